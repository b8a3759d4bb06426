"""Where the rows of an unfinished output lie. One store per format; this file has .npy and .jsonl.

A store knows bytes, not runs: the writer tells it how far the data are durable, and keeps that record. Both formats
here are one file `<name>.partial` that grows at its end and takes the final name when it is complete.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from munjang.errors import InputError, ResumeError
from munjang.files import sync_folder, write_all
from munjang.vector_files.progress import BEGIN_AGAIN, Progress

CHUNK = 1 << 20


@dataclass(frozen=True)
class Window:
    """Consecutive rows on their way to a file; checked by the writer."""

    first: int  # the number of the first row
    vectors: np.ndarray  # little-endian float32 [n, dimension], C order
    texts: Sequence[str]
    columns: Mapping[str, Sequence[object]]


class Store(Protocol):
    """What a format must be able to do; each step may be cut off at any moment."""

    layout: str
    takes_columns: bool

    def begin(self) -> int:
        """Start empty, after `clear`; the number of durable bytes."""

    def exists(self) -> bool:
        """Whether there are unfinished data."""

    def was_published(self, progress: Progress) -> bool:
        """Whether an earlier run got as far as giving the data their final name."""

    def resume(self, progress: Progress) -> None:
        """Check the durable data and cut off the rest."""

    def write(self, window: Window, progress: Progress) -> tuple[int, int]:
        """Add rows durably; the new number of bytes and their crc32."""

    def publish(self, progress: Progress) -> None:
        """Complete the data and give them their final name."""

    def close(self) -> None:
        """Close open files."""

    def clear(self) -> None:
        """Remove the unfinished data."""


class GrowingFile(abc.ABC):
    """A store of one file that grows at its end. Subclasses say how a header and a window look."""

    layout = ""
    takes_columns = True

    def __init__(self, target: Path) -> None:
        self._target = target
        self._partial = target.with_name(target.name + ".partial")
        self._file: BinaryIO | None = None

    def header(self, rows: int) -> bytes:
        return b""

    @abc.abstractmethod
    def serialise(self, window: Window) -> bytes | memoryview:
        """The bytes of a window's rows."""

    def begin(self) -> int:
        self._file = open(self._partial, "w+b", buffering=0)  # noqa: SIM115 (stays open while rows come)
        write_all(self._file, self.header(0))
        os.fsync(self._file.fileno())
        return len(self.header(0))

    def exists(self) -> bool:
        return self._partial.exists()

    def was_published(self, progress: Progress) -> bool:
        return not self.exists() and self._target.exists() and self._target.stat().st_size == progress.bytes

    def resume(self, progress: Progress) -> None:
        self._file = open(self._partial, "r+b", buffering=0)  # noqa: SIM115 (stays open while rows come)
        there = os.fstat(self._file.fileno()).st_size
        if there < progress.bytes:
            raise ResumeError(
                f"{self._partial} is damaged: {progress.rows:,} rows are {progress.bytes:,} bytes, "
                f"but it has {there:,}; {BEGIN_AGAIN}"
            )
        self._file.truncate(progress.bytes)  # what a killed run wrote after its last durable row
        self._file.seek(len(self.header(0)))
        crc = 0
        while chunk := self._file.read(CHUNK):
            crc = zlib.crc32(chunk, crc)
        if crc != progress.crc32:
            raise ResumeError(f"{self._partial} is damaged: its checksum is not that of its rows; {BEGIN_AGAIN}")

    def write(self, window: Window, progress: Progress) -> tuple[int, int]:
        assert self._file is not None
        data = self.serialise(window)
        try:
            self._file.seek(progress.bytes)
            write_all(self._file, data)
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(progress.bytes)  # gives a full disk its room back
            raise
        return progress.bytes + memoryview(data).nbytes, zlib.crc32(data, progress.crc32)

    def publish(self, progress: Progress) -> None:
        assert self._file is not None
        self._file.truncate(progress.bytes)
        self._file.seek(0)
        write_all(self._file, self.header(progress.rows))
        os.fsync(self._file.fileno())
        self.close()
        os.replace(self._partial, self._target)
        sync_folder(self._target.parent)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def clear(self) -> None:
        self.close()
        self._partial.unlink(missing_ok=True)


class NpyStore(GrowingFile):
    """Vectors alone, as numpy's own format: `np.load(path, mmap_mode="r")`."""

    layout = "npy"
    takes_columns = False

    def __init__(self, target: Path, dimension: int) -> None:
        super().__init__(target)
        self._dimension = dimension

    def header(self, rows: int) -> bytes:
        """An npy header of 128 bytes whatever the number of rows, so that it can be patched in place."""
        shape = f"({rows}, {self._dimension})"
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + head.ljust(117).encode("ascii") + b"\n"

    def serialise(self, window: Window) -> bytes | memoryview:
        return window.vectors.reshape(-1).data.cast("B")


class JsonlStore(GrowingFile):
    """One JSON object per line: text, vector, then the other columns."""

    def __init__(self, target: Path, *, keep_texts: bool) -> None:
        super().__init__(target)
        self._keep_texts = keep_texts
        self.layout = "jsonl" if keep_texts else "jsonl without texts"

    def serialise(self, window: Window) -> bytes:
        lines = []
        for row, vector in enumerate(shortest_decimals(window.vectors)):
            record: dict[str, object] = {"text": window.texts[row]} if self._keep_texts else {}
            record["vector"] = vector
            record.update((name, values[row]) for name, values in window.columns.items())
            lines.append(_json_line(record, window.first + row))
        return b"".join(lines)


def _json_line(record: dict[str, object], row: int) -> bytes:
    try:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
        try:
            return line.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold but \ud83d can
            return (json.dumps(record, allow_nan=False, default=_plain) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        columns = ", ".join(name for name in record if name not in ("text", "vector"))
        raise InputError(f"row {row:,} cannot be written as JSON (columns: {columns}): {error}") from error


def _plain(value: object) -> object:
    """Dates and numpy numbers, which come out of tables; anything else is not JSON."""
    for method in ("isoformat", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a {type(value).__name__} is not a JSON value: {value!r}")


def shortest_decimals(vectors: np.ndarray) -> list[list[float]]:
    """Python floats that print with the fewest digits that still read back as the same float32.

    A float32 needs at most nine digits, and every decimal of six survives it. m / 10**k is rounded once, so it is
    the float that prints as these digits, as long as both are exact: m < 2**53 and 0 <= k <= 22. This is some three
    times as fast as asking numpy for each number's text, which is left for sizes that are rare in vectors.
    """
    exact = vectors.astype(np.float64)  # [n, dimension]
    size = np.abs(exact)
    usual = (size >= 1e-13) & (size < 1e5)
    decade = np.floor(np.log10(size, out=np.zeros_like(size), where=usual)).astype(np.int64)  # -13..4
    powers = np.array([float(f"1e{k}") for k in range(23)])
    result = exact.copy()
    for digits in (9, 8, 7, 6):
        scale = powers[digits - 1 - decade]
        rounded = np.rint(exact * scale) / scale
        np.copyto(result, rounded, where=usual & (rounded.astype(np.float32) == vectors))
    for place in np.flatnonzero(~usual & (size > 0)):
        result.flat[place] = float(str(vectors.flat[place]))
    rows: list[list[float]] = result.tolist()
    return rows
