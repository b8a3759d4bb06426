"""Stages of a long recipe, each in a folder of its own: done once, gone on with after a kill, skipped when unchanged.

    RUN/run.json               of which recipe the run is: nothing else is written over
    RUN/1-cross/begun.json     what the stage is made of (its key); written before the work
    RUN/1-cross/...            what it makes; the work itself goes on from what a killed attempt left here
    RUN/1-cross/stage.json     the key again, facts, and a hash of every output; written when the stage is whole

The number is the stage's place in this run. A stage that was done under another number (because an option put one more
before it) is renamed, not done again.

The key is a hash of the stage's name, of its inputs and of the outputs of the stages before it (`Done.digest`). The
same key: the stage is skipped. Another key: what lies there was made of something else, and the stage begins anew. An
output that somebody edited by hand since it was made is used as it is now, and said so: the stages after it see its new
hash. An output that is gone is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from munjang.errors import DataError, InputError
from munjang.files import OutputLock, atomic_write, disk_errors, sync_folder
from munjang.progress import Progress
from munjang.recipes.telling import say

_RUN, _BEGUN, _DONE = "run.json", "begun.json", "stage.json"
_WRITTEN_OVER = ("model", "result.json", "index.html", "recipe.json", "config.json", "modules.json")
_FORMAT = 1
_PIECE = 1 << 20  # bytes hashed at a time


@dataclass(frozen=True)
class Made:
    """What a stage leaves: its outputs, relative to its folder, and what is to be remembered of the work."""

    outputs: Sequence[str]  # files or folders
    facts: Mapping[str, object] = field(default_factory=dict)  # as JSON takes them


@dataclass(frozen=True)
class Done:
    """A finished stage."""

    name: str
    folder: Path
    digest: str  # of its outputs' content: an input of the stages after it
    facts: Mapping[str, Any]
    seconds: float  # the work took, when it was done
    skipped: bool  # nothing had to be done this time


class Stages:
    """The stages of one run folder, one after another. Made with `open_stages`."""

    def __init__(self, folder: Path, *, progress: Progress = False) -> None:
        self.folder, self.progress = folder, progress
        self.done: list[Done] = []

    def run(self, name: str, inputs: Mapping[str, object], make: Callable[[Path], Made]) -> Done:
        """Do a stage unless it is done. `make` works in the folder it is given and may find its own half work there.

        inputs: everything that decides the outputs, as JSON takes it; give data by hash and earlier stages by digest.
        """
        folder = self.folder / f"{len(self.done) + 1}-{name}"
        key = key_of(name, inputs)
        if not folder.exists():
            self._take_over(folder, name, key)
        found = self._finished(folder, name, key)
        if found is None:
            found = self._work(folder, name, key, inputs=inputs, make=make)
        self.done.append(found)
        return found

    def _take_over(self, folder: Path, name: str, key: str) -> None:
        """Rename the folder of this very stage that has another number, where there is one."""
        for other in sorted(self.folder.glob(f"*-{name}")):
            number = other.name.removesuffix(f"-{name}")
            if number.isdecimal() and (_read(other / _BEGUN) or {}).get("key") == key:
                with disk_errors(folder, safe="nothing was changed"):
                    other.rename(folder)
                    sync_folder(self.folder)
                return

    def _finished(self, folder: Path, name: str, key: str) -> Done | None:
        saved = _read(folder / _DONE)
        if saved is None or saved.get("key") != key:
            return None
        outputs: dict[str, dict[str, Any]] = saved["outputs"]
        missing = [output for output in outputs if not (folder / output).exists()]
        if missing:
            say(self.progress, f"{folder.name}: {', '.join(missing)} is gone; the stage is done again")
            return None
        now = {output: _state(folder / output, known) for output, known in outputs.items()}
        edited = [output for output, known in outputs.items() if now[output]["hash"] != known["hash"]]
        for output in edited:
            say(self.progress, f"{folder.name}: {output} was changed since it was made, and is used as it is now")
        say(self.progress, f"{folder.name}: done before, skipped")
        return Done(name, folder, _digest(now), saved["facts"], float(saved["seconds"]), skipped=True)

    def _work(
        self, folder: Path, name: str, key: str, *, inputs: Mapping[str, object], make: Callable[[Path], Made]
    ) -> Done:
        begun = _read(folder / _BEGUN)
        fresh = begun is None or begun.get("key") != key
        if begun is None and folder.is_dir() and any(entry.name != f"{_BEGUN}.tmp" for entry in folder.iterdir()):
            raise DataError(
                f"{folder} is in the way: it is no stage of a run (it has no {_BEGUN}); choose another run folder, "
                "or move it away"
            )
        if begun is not None and fresh:
            say(self.progress, f"{folder.name}: {_changed(begun, inputs)}; the stage begins anew")
        with disk_errors(folder, safe="the stages before it are whole; make room and run the same command again"):
            if fresh:
                _remove(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _DONE).unlink(missing_ok=True)
            if fresh:
                _write(folder / _BEGUN, {"format": _FORMAT, "stage": name, "key": key, "inputs": inputs})
        say(self.progress, f"{folder.name}: {'begins' if fresh else 'goes on'}")
        started = time.perf_counter()
        made = make(folder)
        seconds = time.perf_counter() - started
        with disk_errors(folder, safe="the stages before it are whole; make room and run the same command again"):
            states = {output: _state(folder / output, None) for output in made.outputs}
            content = {"format": _FORMAT, "stage": name, "key": key, "seconds": round(seconds, 3)}
            _write(folder / _DONE, {**content, "inputs": inputs, "facts": made.facts, "outputs": states})
        say(self.progress, f"{folder.name}: done in {seconds:.1f} s")
        facts = json.loads(json.dumps(made.facts, default=str))  # as a rerun will read them
        return Done(name, folder, _digest(states), facts, seconds, skipped=False)


def check_run_folder(folder: str | Path, recipe: str) -> None:
    """Refuse a folder that something else has filled (a training, a model), before it would be written over.

    A run in stages says from its first moment on, in run.json, of which recipe it is.
    """
    path = Path(folder)
    found = [name for name in (_RUN, *_WRITTEN_OVER) if (path / name).exists()]
    if found and (_read(path / _RUN) or {}).get("recipe") != recipe:
        raise InputError(
            f"{path} holds something else than a run of {recipe!r} ({', '.join(found)}), which would be written over: "
            "choose another run folder, or move these away"
        )


@contextlib.contextmanager
def open_stages(folder: str | Path, recipe: str, *, progress: Progress = False) -> Iterator[Stages]:
    """The stages of a run folder, which one process at a time may work on."""
    path = Path(folder)
    check_run_folder(path, recipe)
    with disk_errors(path, safe="nothing was done yet"):
        path.mkdir(parents=True, exist_ok=True)
    lock = OutputLock(path / ".stages.lock", path)
    try:
        with disk_errors(path, safe="nothing was done yet"):
            if not (path / _RUN).exists():
                _write(path / _RUN, {"format": _FORMAT, "recipe": recipe})
        yield Stages(path, progress=progress)
    finally:
        lock.release()


def key_of(name: str, inputs: Mapping[str, object]) -> str:
    """The hash of what a stage is made of."""
    text = json.dumps([_FORMAT, name, inputs], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def hash_files(path: Path) -> str:
    """A hash of a file, or of all files in a folder with their names."""
    digest = hashlib.blake2b(digest_size=16)
    for file in _files(path):
        if file != path:
            digest.update(f"{file.relative_to(path).as_posix()}\0".encode())
        with open(file, "rb") as opened:
            while piece := opened.read(_PIECE):
                digest.update(piece)
    return digest.hexdigest()


def _state(path: Path, known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Size, times and hash; files whose names, sizes and times are as they were are not read again."""
    stats = [(file.relative_to(path).as_posix(), file.stat()) for file in _files(path)]
    listed = json.dumps([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    state: dict[str, Any] = {
        "bytes": sum(stat.st_size for _, stat in stats),
        "files": hashlib.blake2b(listed.encode(), digest_size=16).hexdigest(),
    }
    same = known is not None and all(known.get(name) == value for name, value in state.items())
    return {**state, "hash": known["hash"] if same and known is not None else hash_files(path)}


def _remove(folder: Path) -> None:
    """Renamed first: killed in the middle, half a folder does not lie under the name of a stage."""
    doomed = folder.with_name(f".{folder.name}.old")
    if doomed.exists():
        shutil.rmtree(doomed)
    if folder.exists():
        folder.rename(doomed)
        shutil.rmtree(doomed)


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _digest(states: Mapping[str, Mapping[str, Any]]) -> str:
    text = json.dumps({output: state["hash"] for output, state in states.items()}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _changed(begun: Mapping[str, Any], inputs: Mapping[str, object]) -> str:
    """Which inputs differ from those that the stage began with."""
    before = begun.get("inputs") or {}
    now = json.loads(json.dumps(inputs, default=str))
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return f"it was made with other {', '.join(names)}" if names else "it was made by another release"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: Path, content: Mapping[str, object]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2, default=str)
    atomic_write(path, (text + "\n").encode("utf-8", "replace"))
