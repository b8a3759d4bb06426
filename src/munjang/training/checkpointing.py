"""A run's state on disk: weights, optimiser, averages, position; and what a finished run leaves. No pickle.

`checkpoints/step-00000120/` holds `state.safetensors` and `state.json`. It is written aside, forced to the disk and
renamed, and only then are older ones removed: whenever the process is killed, the last whole checkpoint is there. The
random state needs no place: everything random follows from the seed and the step (`stepping.py`, `batching.py`). Nor
does the number of processes: a run may go on with more of them or fewer.

A finished run needs no checkpoint: `model/`, `objectives.safetensors` (where objectives have weights of their own) and
`result.json`, which is written last and holds a hash of the saved weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from munjang import checkpoint
from munjang.errors import ResumeError
from munjang.files import atomic_write, disk_errors, sync_folder
from munjang.training.processes import Processes

_PREFIX = "step-"
_RESULT, _OBJECTIVES = "result.json", "objectives.safetensors"
_PIECE = 1 << 20  # bytes hashed at a time


def write_checkpoint(
    folder: Path, step: int, tensors: Iterable[tuple[str, Tensor]], facts: Mapping[str, object], *, keep: int
) -> Path:
    """Write the state after `step` steps, and remove all but the last `keep`."""
    target = folder / f"{_PREFIX}{step:08d}"
    safe = "the checkpoints before it are whole; make room and run the same command again to go on from the last one"
    with disk_errors(target, safe=safe):
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{target.name}.tmp"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors})
            atomic_write(aside / "state.safetensors", data)
            atomic_write(aside / "state.json", json.dumps({"step": step, **facts}).encode())
            shutil.rmtree(target, ignore_errors=True)
            os.replace(aside, target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_folder(folder)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints, oldest first."""
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if (path / "state.json").is_file())


def last_checkpoint(folder: Path, processes: Processes) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last whole state, where there is one. The first process reads it and sends it to the others."""
    found = checkpoints(folder)
    newest = processes.all_say(int(found[-1].name.removeprefix(_PREFIX)) if found else -1)
    if max(newest) > newest[0]:
        raise ResumeError(
            f"process {newest.index(max(newest))} finds a checkpoint of step {max(newest):,} in {folder}, process 0 "
            f"{f'only one of step {newest[0]:,}' if newest[0] >= 0 else 'none'}: processes may start on other machines "
            "than before, so the run folder must lie where all of them see it"
        )
    return processes.tell_state(read_checkpoint(found[-1]) if found and processes.first else None)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of one checkpoint."""
    try:
        return load_file(path / "state.safetensors"), json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, SafetensorError) as error:
        raise ResumeError(
            f"the checkpoint {path} cannot be read ({error}); remove it to resume from the one before"
        ) from error


# --- finished runs ---------------------------------------------------------------------------------------------------


def write_finished(folder: Path, objectives: Mapping[str, Tensor], result: Mapping[str, object]) -> None:
    """Mark a run as finished, after its model was saved to folder/model.

    Args:
        folder: the run folder
        objectives: the weights of the objectives, by name
        result: the `TrainingResult` as JSON takes it
    """
    if objectives:
        atomic_write(folder / _OBJECTIVES, save({name: one.detach().cpu() for name, one in objectives.items()}))
    text = json.dumps({**result, "weights": _hash_weights(folder / "model")}, ensure_ascii=False, indent=2, default=str)
    atomic_write(folder / _RESULT, (text + "\n").encode())


def last_finished(
    folder: Path, processes: Processes, *, cross: bool
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return what `read_finished` gives the first process, which sends it to the others."""
    said = processes.all_say(int((folder / _RESULT).is_file()))
    if max(said) > said[0]:
        raise ResumeError(
            f"process {said.index(1)} finds a finished run in {folder}, process 0 none: processes may start on other "
            "machines than before, so the run folder must lie where all of them see it"
        )
    return processes.tell_state(read_finished(folder, cross=cross) if processes.first else None)


def read_finished(folder: Path, *, cross: bool) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return weights and result of a finished run; None where it is not finished, or its model was removed.

    Raises:
        ResumeError: the model in the folder is not the one that the run saved
    """
    try:
        result = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        known = str(result.pop("weights"))  # a run of 0.1.0 has none: its checkpoints are still there
    except (OSError, ValueError, KeyError):
        return None
    if not (folder / "model").is_dir():
        return None
    if _hash_weights(folder / "model") != known:
        raise ResumeError(
            f"{folder / 'model'} is not the model that this run saved: its weights were changed; choose another run "
            "folder, or move that model away to train it again"
        )
    parts = checkpoint.read_cross(folder / "model") if cross else checkpoint.read(folder / "model")
    head = parts.head if isinstance(parts, checkpoint.CrossParts) else parts.heads
    tensors = {f"body.{name}": tensor for name, tensor in parts.body.state_dict().items()}
    tensors |= {f"head.{name}": tensor for name, tensor in head.state_dict().items()}
    if (folder / _OBJECTIVES).is_file():
        tensors |= load_file(folder / _OBJECTIVES)
    return tensors, result


def _hash_weights(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    return digest.hexdigest()
