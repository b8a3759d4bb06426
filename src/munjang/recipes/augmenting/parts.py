"""Finished pieces of a long job as .npy files in a folder, so that a killed job goes on where it stopped.

A piece is written aside and renamed, so that its name means it is whole. Beside the pieces lies `made-of.json`: what
they were made of. Pieces made of something else are an error, never a quiet mixture. When the job is done its result
is written, then a record of the result, and the pieces go.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import ResumeError
from munjang.files import atomic_write, disk_errors

Array: TypeAlias = npt.NDArray[Any]
_SAFE = "the pieces that are done stay; make room and call it again"


class Parts:
    """The pieces of one job, in `folder`/parts, and the record of its result, `folder`/`record`."""

    def __init__(self, folder: Path, record: str, made_of: Mapping[str, object], *, results: Sequence[str]) -> None:
        """results: the files of the result, in `folder`, which the record speaks of."""
        self.folder = folder
        self._parts = folder / "parts"
        self._record = folder / record
        self._results = [folder / name for name in results]
        self._made_of = json.loads(json.dumps(made_of))
        mark = self._parts / "made-of.json"
        for path, before in ((mark, _read(mark)), (self._record, _read(self._record).get("made of"))):
            if path.exists():
                self._check(before, path)
        with disk_errors(folder, safe=_SAFE):
            self._parts.mkdir(parents=True, exist_ok=True)
            atomic_write(mark, _json(self._made_of))

    def finished(self) -> bool:
        """Whether the result is there, whole; one that lost a file is made anew."""
        if not self._record.exists():
            return False
        if not all(path.exists() for path in self._results):
            self._record.unlink()
            return False
        self._clear()
        return True

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def path(self, name: str) -> Path:
        return self._parts / f"{name}.npy"

    def read(self, name: str) -> Array:
        """A finished piece, memory-mapped unless it is empty."""
        try:
            array: Array = np.load(self.path(name), mmap_mode="r", allow_pickle=False)
        except ValueError:  # nothing to map
            array = np.load(self.path(name), allow_pickle=False)
        return array

    def write(self, name: str, array: Array) -> None:
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        with disk_errors(self.path(name), safe=_SAFE):
            atomic_write(self.path(name), buffer.getbuffer())

    def finish(self, facts: Mapping[str, object]) -> None:
        """Record that the result is there, and drop the pieces."""
        with disk_errors(self._record, safe=_SAFE):
            atomic_write(self._record, _json({**facts, "made of": self._made_of}))
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self._parts, ignore_errors=True)

    def _check(self, before: object, path: Path) -> None:
        if before == self._made_of:
            return
        old = before if isinstance(before, dict) else {}
        names = [name for name in {**old, **self._made_of} if old.get(name) != self._made_of.get(name)]
        raise ResumeError(
            f"{self.folder}: what lies there was made with other {', '.join(names)} ({path.name}); remove the folder "
            "to begin again, or choose another"
        )


def _json(content: Mapping[str, object]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def _read(path: Path) -> dict[str, Any]:
    """An object of JSON; an empty one where there is no file."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResumeError(f"{path} is damaged ({error}); remove the folder {path.parent} to begin again") from error
    return content if isinstance(content, dict) else {}
