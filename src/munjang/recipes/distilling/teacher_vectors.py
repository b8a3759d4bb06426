"""A teacher's vectors on disk: every text once per teacher, shared by all runs, whole after a kill at any moment.

    CACHE/<key>/about.json    which teacher, how it computed, and how many rows are durable
    CACHE/<key>/keys.bin      16 bytes a row: the hash of the text
    CACHE/<key>/vectors.bin   the rows, float32 or float16 [rows, width], memory-mapped

Enters: texts and something that encodes them. Leaves: row numbers into one memory-mapped array. Only texts that are not
there yet are encoded, block after block. First the vectors and keys of a block are forced to the disk, then about.json
is renamed into place: what lies behind its count is the torn end of a killed writer, and is overwritten. Readers need
no lock; one process at a time may write.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import DataError, InputError, ModelError
from munjang.files import OutputLock, atomic_write, disk_errors, write_all
from munjang.progress import Progress, track

Array = np.ndarray[Any, Any]
Int64: TypeAlias = npt.NDArray[np.int64]
Storage = Literal["float32", "float16"]
STORAGES: tuple[Storage, ...] = ("float32", "float16")
Encode = Callable[[list[str]], Array]  # texts -> float [n, width]

BLOCK = 4096  # texts that are encoded and written at a time
_KEY = 16  # bytes
_FORMAT = 1
_SAFE = "the vectors before are whole; make room and run the same command again"


class TeacherVectors:
    """The vectors of one teacher in one cache folder. Made with `open_vectors`."""

    def __init__(self, folder: Path, width: int, storage: Storage) -> None:
        self.folder, self.width, self.storage = folder, width, storage
        self._keys: npt.NDArray[np.uint64] = np.zeros((0, 2), np.uint64)
        self._order: Int64 = np.zeros(0, np.int64)  # of the rows, by the first half of their keys
        self._read_keys()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def array(self) -> Array:
        """Every durable row: a read-only memory map [rows, width]."""
        if not len(self):
            return np.zeros((0, self.width), self.storage)
        return np.memmap(self.folder / "vectors.bin", self.storage, "r", shape=(len(self), self.width))

    def rows_for(self, texts: Sequence[str]) -> Int64:
        """The row of every text, int64 [n]; -1 where a text is not there."""
        return self._find(keys_of(texts))

    def add(self, texts: Iterable[str], encode: Encode, *, progress: Progress = False) -> int:
        """Encode the texts that are not there yet; how many these were."""
        missing = self._missing(texts)
        if not missing:
            return 0
        lock = OutputLock(self.folder / ".lock", self.folder)
        try:
            self._read_keys()  # another process may have been at work until now
            missing = self._missing(missing)
            rows = len(self)
            with track(progress, len(missing)) as done:
                for block in blocks_of(missing, BLOCK):
                    rows = self._append(rows, block, encode(block))
                    done(len(block))
            self._read_keys()
        finally:
            lock.release()
        return len(missing)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _missing(self, texts: Iterable[str]) -> list[str]:
        """Every different text that is not there, in the order in which it first comes."""
        unique = list(dict.fromkeys(texts))
        return [text for text, row in zip(unique, self.rows_for(unique).tolist(), strict=True) if row < 0]

    def _append(self, rows: int, texts: Sequence[str], found: Array) -> int:
        """Write a block behind so many durable rows; how many there are now."""
        vectors = self._checked(texts, found)
        with disk_errors(self.folder, safe=_SAFE):
            _write_at(self.folder / "vectors.bin", rows * vectors[:1].nbytes, vectors)
            _write_at(self.folder / "keys.bin", rows * _KEY, keys_of(texts))
            _write_about(self.folder, {**_about(self.folder), "rows": rows + len(texts)})
        return rows + len(texts)

    def _checked(self, texts: Sequence[str], found: Array) -> Array:
        vectors = np.asarray(found)
        if vectors.shape != (len(texts), self.width):
            raise ModelError(
                f"the teacher must give vectors [{len(texts)}, {self.width}] for {len(texts)} texts, got "
                f"{list(vectors.shape)}: its dimension says otherwise"
            )
        stored = np.ascontiguousarray(vectors, self.storage)
        bad = np.flatnonzero(~np.isfinite(stored).all(axis=1))
        if len(bad):
            raise ModelError(
                f"{len(bad):,} of {len(texts):,} teacher vectors are not finite in {self.storage}, the first for "
                f"{texts[int(bad[0])][:60]!r}; keep them as float32, or look at the teacher"
            )
        return stored

    def _read_keys(self) -> None:
        rows = int(_about(self.folder)["rows"])
        path, vectors = self.folder / "keys.bin", self.folder / "vectors.bin"
        wanted = rows * self.width * np.dtype(self.storage).itemsize
        if rows and (_size(path) < rows * _KEY or _size(vectors) < wanted):
            raise DataError(
                f"{self.folder} is damaged: about.json speaks of {rows:,} rows, but its files are shorter; remove the "
                "folder, and its vectors are computed again"
            )
        if rows != len(self):
            self._keys = np.fromfile(path, np.uint64, 2 * rows).reshape(-1, 2)
            self._order = np.argsort(self._keys[:, 0], kind="stable")

    def _find(self, wanted: npt.NDArray[np.uint64]) -> Int64:
        found = np.full(len(wanted), -1, np.int64)
        if not len(self) or not len(wanted):
            return found
        first = self._keys[self._order, 0]
        place = np.searchsorted(first, wanted[:, 0])
        open_ = np.arange(len(wanted))
        # Rows that share the first half of a key stand side by side; almost always there is one.
        while len(open_):
            open_ = open_[place[open_] < len(first)]
            open_ = open_[first[place[open_]] == wanted[open_, 0]]
            rows = self._order[place[open_]]
            hit = self._keys[rows, 1] == wanted[open_, 1]
            found[open_[hit]] = rows[hit]
            open_ = open_[~hit]
            place[open_] += 1
        return found


def open_vectors(
    cache: str | Path, identity: Mapping[str, object], *, width: int, storage: Storage = "float32"
) -> TeacherVectors:
    """The vectors of one teacher in a cache folder, which is made where there is none.

    identity: everything that decides its vectors, as JSON takes it (fingerprint, precision, prompt, normalising).
    """
    if storage not in STORAGES:
        raise InputError(f"storage must be one of {', '.join(STORAGES)}, got {storage!r}")
    known = {"format": _FORMAT, "teacher": dict(identity), "width": width, "storage": storage}
    text = json.dumps(known, sort_keys=True, ensure_ascii=False)
    folder = Path(cache) / hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    with disk_errors(folder, safe="nothing was computed yet"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "about.json").is_file():
            _write_about(folder, {**known, "rows": 0})
    return TeacherVectors(folder, width, storage)


def keys_of(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """uint64 [n, 2]: the hash of every text."""
    hashed = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY).digest() for text in texts)
    return np.frombuffer(b"".join(hashed), np.uint64).reshape(-1, 2)


def blocks_of(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of so many texts; always the same ones, so that a run that goes on computes what an unbroken one would."""
    rest = iter(texts)
    while block := list(islice(rest, size)):
        yield block


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "about.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT or int(found["rows"]) < 0:
            raise ValueError(f"format {found['format']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({error}): remove {folder}, and its vectors are computed again") from (
            error
        )
    return dict(found)


def _write_about(folder: Path, content: Mapping[str, object]) -> None:
    atomic_write(folder / "about.json", (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())


def _write_at(path: Path, offset: int, data: Array) -> None:
    """Write behind what is durable, over the torn end that a killed writer may have left, and force it to the disk."""
    with open(path, "ab"):
        pass  # so that it is there
    with open(path, "r+b", buffering=0) as file:
        file.truncate(offset)
        file.seek(offset)
        write_all(file, data.tobytes())
        os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
