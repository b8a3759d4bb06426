"""Weight files to a dict of float32 tensors: safetensors whole, in shards or compact, and old pickles, never run.

What leaves is checked: every file there and whole, every value finite. Tensors are copies, not views of the mapped
file: a file that somebody rewrites in place would otherwise change, or end, a running process.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from munjang.checkpoint.compact import unpack
from munjang.checkpoint.files import contents, read_object
from munjang.errors import ModelError

SAFE = "model.safetensors"
COMPACT = "model.int8.safetensors"  # see compact.py
PICKLE = "pytorch_model.bin"
_LONGEST_HEADER = 16 << 20  # bytes; a tensor takes about 150
_LFS = b"version "
_CONVERT = (
    "convert it where you trust it: safetensors.torch.save_file(torch.load('pytorch_model.bin'), 'model.safetensors')"
)


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights, whole ones before compact ones before pickles; all of them are there."""
    for name in (SAFE, COMPACT, PICKLE):
        if (folder / name).is_file():
            return [folder / name]
        if name != COMPACT and (folder / f"{name}.index.json").is_file():
            return _shards(folder, f"{name}.index.json")
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} holds an adapter, not a whole model: merge it into its base model first "
            "(peft: model.merge_and_unload().save_pretrained(...)) and load the result"
        )
    other = [path.name for path in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin"))]
    hint = f"; {', '.join(other)} is not a name that is read: rename it if it holds the weights" if other else ""
    raise ModelError(f"{folder} has no weights ({SAFE}, {COMPACT} or {PICKLE}); {contents(folder)}{hint}")


def _shards(folder: Path, index: str) -> list[Path]:
    table = read_object(folder / index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelError(f"{folder / index} has no 'weight_map': the file is damaged; fetch the model again")
    names = sorted({str(name) for name in table.values()})
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ModelError(f"{folder / index} names files outside the folder: {', '.join(outside)}")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of the {len(names)} weight files that {index} names: "
            f"{', '.join(missing)}; fetch the model again"
        )
    return [folder / name for name in names]


def load_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder, floating ones as float32, finite."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        loaded = _load_pickle(path) if path.suffix == ".bin" else _load_safe(path)
        if path.name == COMPACT:
            loaded = unpack(loaded, source=str(path))
        weights.update({name: _checked(name, tensor, path) for name, tensor in loaded.items()})
    return weights


def stored_shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes of a folder's weights by name, from the headers of its files; of pickles, from their tensors."""
    shapes: dict[str, list[int]] = {}
    for path in weight_files(folder):
        if path.suffix == ".bin":
            shapes |= {name: list(tensor.shape) for name, tensor in _load_pickle(path).items()}
            continue
        _check_safe(path)
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                shapes |= {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dict)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ModelError(f"{path} is damaged ({error}); fetch the model again") from error
    return shapes


def _checked(name: str, tensor: Tensor, path: Path) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    tensor = tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    # A sum over values of which one is not finite is not finite, and takes no second copy of the tensor. A finite
    # tensor can still overflow the sum, so only a bad sum looks at every value.
    if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise ModelError(
            f"{path}: the weight {name!r} has {bad} values that are not finite (NaN or infinite) of "
            f"{tensor.numel()}: the model was saved from a broken training or is damaged"
        )
    return tensor


def _load_safe(path: Path) -> dict[str, Tensor]:
    _check_safe(path)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
        return tensors
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is damaged ({error}); fetch the model again") from error


def _check_safe(path: Path) -> None:
    """Say what is wrong with a file before the library says 'invalid header'."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(9)
        # The file begins with the length of a JSON object, and the object.
        header = int.from_bytes(start[:8], "little")
        if len(start) < 9 or start[8:] != b"{" or header > _LONGEST_HEADER:
            _refuse(path, start, size)
        raw = start[8:] + file.read(header - 1) if 8 + header <= size else b""
    expected = 8 + header + _data_bytes(raw)
    if size != expected:
        raise ModelError(
            f"{path} should have {expected if raw else f'more than {expected}'} bytes and has {size}: "
            "it is cut off or damaged; fetch the model again"
        )


def _refuse(path: Path, start: bytes, size: int) -> NoReturn:
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ModelError(
            f"{path} is a pickle under a safetensors name: that is unsafe and is not read; rename it to {PICKLE} "
            f"if you know where it comes from, or {_CONVERT}"
        )
    if start.startswith(_LFS):
        raise ModelError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in that folder")
    raise ModelError(f"{path} is not a safetensors file, or damaged ({size} bytes); fetch the model again")


def _data_bytes(header: bytes) -> int:
    """Bytes after the header, by what the header says; 0 where it says nothing readable (the library will complain)."""
    try:
        table = json.loads(header)
        return max(
            (int(entry["data_offsets"][1]) for name, entry in table.items() if name != "__metadata__"), default=0
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return 0


def _check_zip(path: Path) -> None:
    """torch stores without compression; compressed entries could grow a thousandfold."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ModelError(f"{path} is damaged or cut off ({error}); fetch the model again") from error
    if size > path.stat().st_size:
        raise ModelError(f"{path} is damaged: it unpacks to {size:,} bytes; fetch the model again")


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """An old checkpoint, only as far as torch reads it without running code."""
    if path.stat().st_size < 8:
        raise ModelError(f"{path} has {path.stat().st_size} bytes: it is cut off; fetch the model again")
    with path.open("rb") as file:
        if file.read(8) == _LFS:
            raise ModelError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in that folder")
    _check_zip(path)
    try:
        # Only files in the zip format that torch has written since 1.6 can be mapped.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} is a pickle that torch refuses to read without running its code (weights_only): that is unsafe "
            f"and is not done; {_CONVERT}. torch says: {str(error).splitlines()[0]}"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(
            f"{path} is damaged or cut off ({str(error).splitlines()[0]}); fetch the model again"
        ) from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"{path} must hold named tensors, got {type(state).__name__}")
    # A view can repeat few stored values many times (a stride of 0); whole tensors take as much as they store. Weights
    # may share storage, hence the factor.
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > 8 * path.stat().st_size:
        raise ModelError(f"{path} is damaged: its tensors are larger than the file; fetch the model again")
    return {str(name): tensor for name, tensor in state.items()}
