"""Rows in, a finished file out; interrupted at any moment, it goes on where it was.

Enters: windows of vectors with their texts and other columns, in order. Leaves: a .npy, .jsonl or .parquet file under
its final name, only when it is whole. Until then the data lie beside it (`<name>.partial`), with a record of how far
they are durable (`<name>.progress.json`): first the data are forced to the disk, then the record is renamed into
place, so a kill between the two costs one window and never leaves a wrong row.

A resumed run streams the same rows again. `skip` hashes those that are done, and refuses to go on if they are others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from munjang.errors import DataError, InputError, ResumeError
from munjang.files import OutputLock, disk_errors, sync_folder
from munjang.vector_files.parquet import ParquetStore
from munjang.vector_files.progress import BEGIN_AGAIN, Progress, RowsHash, load_progress
from munjang.vector_files.stores import JsonlStore, NpyStore, Store, Window

SUFFIXES = (".npy", ".parquet", ".jsonl")
Columns = Mapping[str, Sequence[object]]


class VectorWriter:
    """Writes one output; made by `open_writer`. A context manager: leaving it unfinished keeps it resumable."""

    def __init__(
        self, path: Path, *, progress: Progress, store: Store, lock: OutputLock, published: bool = False
    ) -> None:
        self.path = path
        self._published = published  # by an earlier run that was killed before it removed what lay beside the file
        self.rows_done = progress.rows  # rows that an earlier, interrupted run left durable
        self._target = _real(path)
        self._progress = progress
        self._store = store
        self._lock = lock
        self._hash = RowsHash()
        self._to_skip = progress.rows
        self._names: tuple[str, ...] | None = None  # of the columns; the first window decides
        self._open = True

    @property
    def rows(self) -> int:
        """Rows that are durable now."""
        return self._progress.rows

    @property
    def rows_to_skip(self) -> int:
        """Rows that are done and that `skip` has not been shown yet."""
        return self._to_skip

    def skip(self, texts: Sequence[str], columns: Columns | None = None) -> int:
        """Pass over rows that are done; how many of these texts they were. The rest is for `append`.

        Takes the same texts and columns that `append` got. Once all done rows have passed, they are compared
        with those of the earlier run; a ResumeError closes the writer and leaves the earlier rows as they were.
        """
        self._check_open()
        columns = self._check_rows(self.rows_done - self._to_skip, texts, columns)
        count = min(len(texts), self._to_skip)
        if count == 0:
            return 0
        self._hash = self._hash.extended(texts[:count], columns)
        self._to_skip -= count
        if self._to_skip == 0 and self._hash.hexdigest() != self._progress.rows_hash:
            self._refuse_if_published()
            self.close()
            raise ResumeError(
                f"{self.path}: an earlier, unfinished run did {self.rows_done:,} rows, but from other texts or "
                f"columns than the first {self.rows_done:,} given now; {BEGIN_AGAIN}"
            )
        return count

    def append(self, vectors: np.ndarray, texts: Sequence[str], columns: Columns | None = None) -> None:
        """Add rows; they are durable when this returns.

        vectors: float [len(texts), dimension]. After an error the rows before are safe, and these may be tried again.
        """
        self._check_open()
        if self._to_skip and len(texts):
            raise InputError(f"{self._to_skip:,} rows are done and must be shown to skip() before any are added")
        columns = self._check_rows(self.rows, texts, columns)
        vectors = self._check_vectors(vectors, len(texts))
        if not len(texts):
            return
        self._refuse_if_published()
        extended = self._hash.extended(texts, columns)
        with self._disk_errors():
            size, crc = self._store.write(Window(self.rows, vectors, texts, columns), self._progress)
            progress = replace(
                self._progress,
                rows=self.rows + len(texts),
                bytes=size,
                crc32=crc,
                rows_hash=extended.hexdigest(),
            )
            progress.save(_progress_path(self._target))
        self._progress, self._hash = progress, extended

    def finish(self) -> Path:
        """Complete the file under its final name, remove what lay beside it, and close."""
        self._check_open()
        if self._to_skip:
            self._refuse_if_published()
            seen = self.rows_done - self._to_skip
            self.close()
            raise ResumeError(
                f"{self.path}: an earlier, unfinished run did {self.rows_done:,} rows, but only {seen:,} texts "
                f"came this time; give the same texts, or {BEGIN_AGAIN}"
            )
        try:
            if not self._published:
                with self._disk_errors():
                    self._store.publish(self._progress)
        except BaseException:
            self.close()
            raise
        with contextlib.suppress(OSError):  # the output is whole, whatever is left beside it
            _discard(self._target, self._store)
        self._shut()
        return self.path

    def close(self) -> None:
        """Stop here. What is durable stays, and the same call goes on from it later."""
        if not self._open:
            return
        if self._progress.rows == 0 and not self._recorded():  # nothing to keep
            with contextlib.suppress(OSError):
                _discard(self._target, self._store)
        self._shut()

    def __enter__(self) -> VectorWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _recorded(self) -> bool:
        """Whether the record on disk has rows: Ctrl-C may strike between saving it and noting it here."""
        try:
            record = load_progress(_progress_path(self._target), self.path)
        except ResumeError:
            return True  # damaged: not ours to throw away
        return record is not None and record.rows > 0

    def _refuse_if_published(self) -> None:
        """Raise, and remove what lies beside the file, where the file is finished and the rows are not all of its."""
        if self._published:
            with contextlib.suppress(OSError):
                _discard(self._target, self._store)
            self._shut()
            raise _already_finished(self.path)

    def _shut(self) -> None:
        self._open = False
        self._store.close()
        self._lock.release()

    def _disk_errors(self) -> contextlib.AbstractContextManager[None]:
        again = "run the same command again" + (" without overwrite" if self._progress.replaces else "")
        safe = f"{self.rows:,} rows are safe: when that is put right, {again}, and it goes on from there"
        return disk_errors(self.path, safe=safe)

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(f"the writer of {self.path} is closed; open a new one with open_writer")

    def _check_rows(self, first: int, texts: Sequence[str], columns: Columns | None) -> Columns:
        columns = columns or {}
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"text {first + row:,} must be a string, got {type(text).__name__}: {text!r}")
        for name, values in columns.items():
            if name in ("text", "vector"):
                raise InputError(f"a column cannot be called {name!r}: the output has one of that name already")
            if len(values) != len(texts):
                raise InputError(f"column {name!r} has {len(values):,} values for {len(texts):,} texts")
        if columns and not self._store.takes_columns:
            raise InputError(f"{self.path}: .npy holds vectors only, not {', '.join(columns)}; use .parquet or .jsonl")
        if self._names is not None and set(self._names) != set(columns):
            raise InputError(f"the columns were {list(self._names)} so far and are now {list(columns)}")
        self._names = self._names if self._names is not None else tuple(columns)
        return {name: columns[name] for name in self._names}

    def _check_vectors(self, vectors: np.ndarray, count: int) -> np.ndarray:
        vectors = np.asarray(vectors)
        expected = (count, self._progress.dimension)
        if vectors.shape != expected or vectors.dtype.kind != "f":
            raise InputError(f"vectors must be floats of shape {expected}, got {vectors.dtype} {vectors.shape}")
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(vectors, dtype="<f4")
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = self.rows + int(np.argmin(finite))
            raise InputError(f"the vector of row {row:,} is not finite; no file should hold it. Nothing was written")
        return vectors


def open_writer(
    path: str | Path, *, dimension: int, fingerprint: str, overwrite: bool = False, keep_texts: bool = True
) -> VectorWriter:
    """Begin an output, or go on with one that was interrupted (`rows_done` says how far it got).

    path: ends in .npy (vectors only), .parquet or .jsonl. fingerprint: of the model and the prompt; an interrupted
    output goes on only with the same. overwrite: begin anew, whatever is there; a finished file stays until the new
    one is whole. An interrupted overwriting run goes on when opened again without overwrite.
    """
    path = Path(path)
    target = _real(path)
    if dimension < 1:
        raise InputError(f"dimension must be at least 1, got {dimension}")
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"cannot be written: there is no folder {target.parent}"
        raise DataError(f"{path} {what}")
    store = _store(target, dimension, fingerprint=fingerprint, keep_texts=keep_texts)
    begun = Progress(
        layout=store.layout,
        dimension=dimension,
        fingerprint=fingerprint,
        replaces=overwrite,
        rows=0,
        bytes=0,
        crc32=0,
        rows_hash=RowsHash().hexdigest(),
    )
    with disk_errors(path, safe="what an earlier run wrote is as it was"):
        lock = OutputLock(target.with_name(target.name + ".lock"), path)
        try:
            progress, published = _begin_or_resume(path, begun, store)
        except BaseException:
            store.close()
            lock.release()
            raise
    return VectorWriter(path, progress=progress, store=store, lock=lock, published=published)


def _begin_or_resume(path: Path, begun: Progress, store: Store) -> tuple[Progress, bool]:
    """Return the rows that are done, and whether the file has its final name already."""
    target = _real(path)
    record = _progress_path(target)
    earlier = None if begun.replaces else load_progress(record, path)
    if earlier is not None and store.was_published(earlier) and earlier.is_same_run(begun):
        return earlier, True  # killed after naming the finished file
    if earlier is None or store.was_published(earlier) or not store.exists():
        _discard(target, store)
        earlier = None
    if target.exists() and not begun.replaces and (earlier is None or not earlier.replaces):
        raise _already_finished(path)
    if earlier is not None:
        earlier.check_same_run(begun, path)
        store.resume(earlier)
        return earlier, False
    progress = replace(begun, bytes=store.begin())
    progress.save(record)
    return progress, False


def _already_finished(path: Path) -> DataError:
    return DataError(f"{path} is there already, finished; {BEGIN_AGAIN}")


def _discard(target: Path, store: Store) -> None:
    """Remove an unfinished output. The record goes first, while the data it speaks of are whole."""
    record = _progress_path(target)
    record.unlink(missing_ok=True)
    record.with_name(record.name + ".tmp").unlink(missing_ok=True)
    sync_folder(target.parent)
    store.clear()


def _store(target: Path, dimension: int, *, fingerprint: str, keep_texts: bool) -> Store:
    suffix = target.suffix.lower()
    if suffix == ".npy":
        return NpyStore(target, dimension)
    if suffix == ".jsonl":
        return JsonlStore(target, keep_texts=keep_texts)
    if suffix == ".parquet":
        return ParquetStore(target, dimension, fingerprint=fingerprint, keep_texts=keep_texts)
    raise InputError(f"an output must end in {', '.join(SUFFIXES)}, got {target.name!r}")


def _real(path: Path) -> Path:
    # Behind a link the data lie where the link points to, and the lock is the same under both names.
    return Path(os.path.realpath(path))


def _progress_path(target: Path) -> Path:
    return target.with_name(target.name + ".progress.json")
