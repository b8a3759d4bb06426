"""Files of vectors, .npy, .parquet and .jsonl: written resumably, and read again.

Rows are appended to `<name>.partial`; `<name>.progress.json` records how many rows and bytes of it are durable. Data
are forced to the disk before the record, so a kill costs at most the rows that were being written. The file takes its
final name when it is whole. A resumed run streams the same rows again: `skip` passes over those that are done and
compares them by hash; other rows, another model or other settings are refused. Needs numpy; .parquet needs the extra
`parquet`.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from munjang.errors import DataError, InputError, MissingExtraError, ResumeError
from munjang.files import OutputLock, atomic_path, atomic_write, disk_errors, sync_folder, write_all

SUFFIXES = (".npy", ".parquet", ".jsonl")
ROW_GROUP_BYTES = 64 << 20  # of a .parquet file
_RECORD_FORMAT = 2
_START_OVER = "use overwrite=True (--overwrite) to start over, or choose another output path"

Columns = Mapping[str, Sequence[object]]
Array = np.ndarray[Any, Any]


# --- writing ---------------------------------------------------------------------------------------------------------


def open_writer(path: str | Path, *, width: int, setting: str, overwrite: bool = False) -> VectorWriter:
    """Start an output, or resume one that was interrupted (`rows_done` is how far it got).

    Args:
        path: Ends in .npy (vectors only), .parquet or .jsonl.
        width: Numbers in a row.
        setting: Everything that decides the vectors (model, prompt, precision), as text or as a hash. An interrupted
            output is resumed only with the same one.
        overwrite: Start over. A finished file stays until the new one is whole. To resume an interrupted run that
            overwrites, open it again without overwrite.

    Returns:
        A writer, which locks the output until it is closed.

    Raises:
        InputError: The suffix is unknown, or width is below 1.
        DataError: A finished file exists, the folder does not, or another process writes to it.
        ResumeError: The interrupted output has another setting or width, or is damaged.

    Example:
        >>> with open_writer("scores.npy", width=2, setting="model-1") as writer:  # doctest: +SKIP
        ...     for texts in windows:
        ...         done = writer.skip(texts)
        ...         writer.append(score(texts[done:]), texts[done:])
        ...     writer.finish()
    """
    path = Path(path)
    target = Path(os.path.realpath(path))  # behind a link, the data and the lock are where the link points
    if width < 1:
        raise InputError(f"width must be at least 1, got {width}")
    if target.is_dir():
        raise DataError(f"{path} is a folder; expected the path of a file")
    if not target.parent.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {target.parent}")
    format_ = _format_of(target, width, setting)
    new = _Record(width, setting, replaces=overwrite, bytes=len(format_.header(0)))
    with disk_errors(path, safe="what an earlier run wrote is unchanged"):
        lock = OutputLock(target.with_name(target.name + ".lock"), path)
        try:
            return VectorWriter(path, target, new, format_, lock)
        except BaseException:
            lock.release()
            raise


class VectorWriter:
    """Writer of one output, made by `open_writer`. A context manager: an unfinished output stays resumable."""

    def __init__(self, path: Path, target: Path, new: _Record, format_: _Format, lock: OutputLock) -> None:
        self.path = path
        self._target, self._format, self._lock = target, format_, lock
        self._partial = _beside(target, ".partial")
        self._record_path = _beside(target, ".progress.json")
        self._complete = format_.complete_path(self._partial)  # what is renamed to the final name
        self._file: BinaryIO | None = None
        self._open = True
        self._published = False  # by an earlier run that was killed before it removed what lay beside the file
        self._record = self._load(new)
        self.rows_done = self._record.rows  # rows of an earlier, interrupted run
        self._to_skip = self._record.rows
        self._hash = hashlib.blake2b(digest_size=32)  # of the rows so far
        self._names: tuple[str, ...] | None = None  # of the columns; the first rows decide

    @property
    def rows(self) -> int:
        """Rows that are durable."""
        return self._record.rows

    @property
    def rows_to_skip(self) -> int:
        """Rows that are done and have not yet been passed to `skip`."""
        return self._to_skip

    def skip(self, texts: Sequence[str], columns: Columns | None = None) -> int:
        """Pass over rows that are done; return how many of these they were. The others are for `append`.

        Takes the texts and columns that `append` got. When all done rows have been passed, they are compared with
        those of the earlier run; other rows raise a ResumeError and close the writer, the earlier rows stay.
        """
        columns = self._check_rows(self.rows_done - self._to_skip, texts, columns)
        count = min(len(texts), self._to_skip)
        if count == 0:
            return 0
        self._hash = _hash_rows(self._hash, texts[:count], columns)
        self._to_skip -= count
        if self._to_skip == 0 and self._hash.hexdigest() != self._record.rows_hash:
            self._refuse(f"from other texts or columns than the first {self.rows_done:,} of this run")
        return count

    def append(self, vectors: Array, texts: Sequence[str], columns: Columns | None = None) -> None:
        """Add rows; they are durable when this returns. After an error these rows may be tried again.

        Args:
            vectors: Floats [len(texts), width]; stored as float32.
            texts: The texts of the rows; a .npy file does not store them, but resuming compares them.
            columns: Further columns, each of the length of `texts` (.parquet and .jsonl).

        Raises:
            InputError: The rows do not fit the output. Nothing was written.
            DataError: The disk is full, or fails.
        """
        if self._to_skip and len(texts):
            raise InputError(f"{self._to_skip:,} rows are done and must be passed to skip() before any are added")
        columns = self._check_rows(self.rows, texts, columns)
        vectors = self._check_vectors(vectors, len(texts))
        if not len(texts):
            return
        if self._published:
            self._refuse("and finished")
        row_hash = _hash_rows(self._hash, texts, columns)
        data = self._format.encode(self.rows, vectors, texts, columns)
        with self._disk_errors():
            file = self._partial_file()
            start = self._record.bytes
            try:
                file.seek(start)
                write_all(file, data)
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(start)  # gives a full disk its space back
                raise
            self._save(
                replace(
                    self._record,
                    rows=self.rows + len(texts),
                    bytes=start + memoryview(data).nbytes,
                    rows_hash=row_hash.hexdigest(),
                )
            )
        self._hash = row_hash

    def finish(self) -> Path:
        """Complete the file under its final name, remove what lies beside it, and close."""
        self._check_open()
        if self._to_skip:
            self._refuse(f"but this run has only {self.rows_done - self._to_skip:,} texts")
        try:
            if not self._published:
                with self._disk_errors():
                    self._publish()
        except BaseException:
            self.close()
            raise
        with contextlib.suppress(OSError):  # the output is whole, whatever is left beside it
            self._discard()
        self.close()
        return self.path

    def close(self) -> None:
        """Stop here. What is durable stays, and the same call resumes it later."""
        if not self._open:
            return
        self._open = False
        self._close_file()
        if not self._record_path.exists():
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)  # a first append that failed
        self._lock.release()

    def __enter__(self) -> VectorWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, new: _Record) -> _Record:
        """Look at what an earlier run left; return the record to go on from, or the new one."""
        earlier = None if new.replaces else _read_record(self._record_path, self.path)
        # The complete file is renamed after this was recorded: where it is gone, it has its final name.
        published = earlier is not None and earlier.finishing and self._target.exists() and not self._complete.exists()
        if earlier is not None and published and earlier.is_same_run(new):
            self._published = True
            return earlier
        if earlier is None or published or not self._partial.exists():
            self._discard()
            earlier = None
        if self._target.exists() and not (earlier or new).replaces:
            raise _already_exists(self.path)
        if earlier is None:
            return new
        earlier.check_same_run(new, self.path)
        record = replace(earlier, finishing=False)
        if earlier.finishing:
            self._save(record)
        self._resume(record)
        return record

    def _resume(self, earlier: _Record) -> None:
        """Check the size of the durable data and cut off what a killed run wrote behind them."""
        if self._complete != self._partial:
            self._complete.unlink(missing_ok=True)
        size = self._partial.stat().st_size
        if size < earlier.bytes:
            raise ResumeError(
                f"{self._partial} is damaged: {earlier.rows:,} rows are {earlier.bytes:,} bytes, "
                f"but it has {size:,}; {_START_OVER}"
            )
        self._format.resume(self._partial, earlier.bytes)
        self._file = open(self._partial, "r+b", buffering=0)  # noqa: SIM115 (stays open while rows come)
        self._file.truncate(earlier.bytes)

    def _partial_file(self) -> BinaryIO:
        """Return the open partial file; create it before the first rows."""
        if self._file is None:
            self._file = open(self._partial, "w+b", buffering=0)  # noqa: SIM115 (stays open while rows come)
        return self._file

    def _publish(self) -> None:
        file = self._partial_file()
        file.truncate(self._record.bytes)
        file.seek(0)
        write_all(file, self._format.header(self.rows))
        os.fsync(file.fileno())
        self._close_file()
        self._format.complete(self._partial, self._complete, self._record.bytes)
        self._save(replace(self._record, finishing=True))
        os.replace(self._complete, self._target)
        sync_folder(self._target.parent)

    def _save(self, record: _Record) -> None:
        """Make a record durable; only then does it count."""
        content = {"format": _RECORD_FORMAT, **asdict(record)}
        atomic_write(self._record_path, json.dumps(content, indent=1, ensure_ascii=False).encode())
        self._record = record

    def _discard(self) -> None:
        """Remove an unfinished output. The record goes first, while the data that it describes are whole."""
        self._close_file()
        self._record_path.unlink(missing_ok=True)
        _beside(self._record_path, ".tmp").unlink(missing_ok=True)
        sync_folder(self._target.parent)
        if self._partial.is_dir():  # munjang 0.1 kept parts of a .parquet file in a folder
            shutil.rmtree(self._partial)
        self._partial.unlink(missing_ok=True)
        self._complete.unlink(missing_ok=True)
        _beside(self._complete, ".tmp").unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _refuse(self, reason: str) -> NoReturn:
        """Close, and raise why these rows are not the ones that an earlier run did."""
        if self._published:
            with contextlib.suppress(OSError):
                self._discard()
            self.close()
            raise _already_exists(self.path)
        self.close()
        raise ResumeError(
            f"{self.path}: an earlier, unfinished run did {self.rows_done:,} rows, {reason}; {_START_OVER}"
        )

    def _disk_errors(self) -> contextlib.AbstractContextManager[None]:
        again = "run the same command again" + (" without overwrite" if self._record.replaces else "")
        return disk_errors(self.path, safe=f"{self.rows:,} rows are safe: once that is fixed, {again} to resume")

    def _check_open(self) -> None:
        if not self._open:
            raise InputError(f"the writer of {self.path} is closed; open a new one with open_writer")

    def _check_rows(self, first: int, texts: Sequence[str], columns: Columns | None) -> Columns:
        """Check texts and columns; return the columns in the order of the first rows."""
        self._check_open()
        columns = columns or {}
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"text {first + row:,} must be a string, got {type(text).__name__}: {text!r}")
        for name, values in columns.items():
            if name in ("text", "vector"):
                raise InputError(f"a column cannot be called {name!r}: every output has one of that name")
            if len(values) != len(texts):
                raise InputError(f"column {name!r} has {len(values):,} values for {len(texts):,} texts")
        if columns and not self._format.takes_columns:
            raise InputError(f"{self.path}: .npy holds vectors only, not {', '.join(columns)}; use .parquet or .jsonl")
        if self._names is None:
            self._names = tuple(columns)
        if set(self._names) != set(columns):
            raise InputError(f"the columns were {list(self._names)} so far and are now {list(columns)}")
        return {name: columns[name] for name in self._names}

    def _check_vectors(self, vectors: Array, count: int) -> npt.NDArray[np.float32]:
        vectors = np.asarray(vectors)
        expected = (count, self._record.width)
        if vectors.shape != expected or vectors.dtype.kind != "f":
            raise InputError(f"vectors must be floats of shape {expected}, got {vectors.dtype} {vectors.shape}")
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(vectors, dtype="<f4")
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            row = self.rows + int(np.argmin(finite))
            raise InputError(f"the vector of row {row:,} is not finite (NaN or infinity). Nothing was written")
        return vectors


def unfinished_rows(path: str | Path) -> int:
    """Return how many rows an interrupted run left beside an output; 0 where there is none."""
    record = _read_record(_beside(Path(os.path.realpath(path)), ".progress.json"), Path(path))
    return 0 if record is None else record.rows


@contextlib.contextmanager
def create_npy(path: str | Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[Array]:
    """Create a .npy file that is filled in pieces through a memory map and takes its name when it is whole.

    Raises:
        DataError: The disk is full, or fails.
    """
    safe = "nothing was replaced; make room and run the same command again"
    with disk_errors(Path(path), safe=safe), atomic_path(Path(path)) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):  # writing to a map without space on the disk would end the process
            with open(temporary, "rb+") as file:
                os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END))
        yield array
        array.flush()


def _already_exists(path: Path) -> DataError:
    return DataError(
        f"{path} already exists; use overwrite=True (--overwrite) to replace it, or choose another output path"
    )


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


# --- the record of an unfinished output ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Record:
    """The durable state of an unfinished output: `<name>.progress.json`."""

    width: int
    setting: str
    replaces: bool  # overwrite=True was passed when the run began: it may replace a finished file
    rows: int = 0
    bytes: int = 0  # durable bytes of the data
    rows_hash: str = ""  # of the rows' texts and columns, in order
    finishing: bool = False  # the complete file is about to be renamed

    def is_same_run(self, other: _Record) -> bool:
        return (self.width, self.setting) == (other.width, other.setting)

    def check_same_run(self, other: _Record, path: Path) -> None:
        if not self.is_same_run(other):
            name = "width" if self.width != other.width else "setting"
            raise ResumeError(
                f"{path}: an earlier, unfinished run did {self.rows:,} rows with another {name} "
                f"({getattr(self, name)!r}, now {getattr(other, name)!r}): another model, prompt or precision; "
                f"{_START_OVER}"
            )


def _read_record(record_path: Path, path: Path) -> _Record | None:
    """Read the record of an unfinished output; None where there is none."""
    try:
        content = json.loads(record_path.read_bytes())
        if content["format"] != _RECORD_FORMAT:
            raise ResumeError(
                f"{path}: {record_path.name} was written by another version of munjang (format {content['format']!r}, "
                f"this one reads {_RECORD_FORMAT}); {_START_OVER}"
            )
        record = _Record(**{field.name: content[field.name] for field in fields(_Record)})
        counts = (record.width, record.rows, record.bytes)
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise TypeError(f"counts must be whole numbers, got {counts}")
        return record
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ResumeError(
            f"{path}: {record_path.name} is damaged ({type(error).__name__}: {error}); {_START_OVER}"
        ) from error


def _hash_rows(before: hashlib.blake2b, texts: Sequence[str], columns: Columns) -> hashlib.blake2b:
    """Return the hash after these rows too, however they were cut into windows; `before` stays as it is."""

    def piece(value: str) -> bytes:  # with its length first, so that ["ab", "c"] and ["a", "bc"] differ
        data = value.encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(data)) + data

    # Columns count as well: the same texts with other ids must not be joined to the rows that are done.
    names = sorted(columns)
    head = repr(names) if names else ""
    result = before.copy()
    for row, text in enumerate(texts):
        result.update(piece(text))
        if names:
            result.update(piece(head) + b"".join(piece(repr(columns[name][row])) for name in names))
    return result


# --- formats ---------------------------------------------------------------------------------------------------------


class _Format(abc.ABC):
    """How rows become the bytes of a partial file that grows at its end, and that file the finished one."""

    takes_columns = True

    def header(self, rows: int) -> bytes:
        """Return what precedes the rows, in a fixed number of bytes."""
        return b""

    @abc.abstractmethod
    def encode(
        self, first: int, vectors: npt.NDArray[np.float32], texts: Sequence[str], columns: Columns
    ) -> bytes | memoryview:
        """Return the bytes of rows, the first of which has this number."""

    def resume(self, partial: Path, size: int) -> None:  # noqa: B027 (most formats have no state)
        """Restore what earlier rows decided."""

    def complete_path(self, partial: Path) -> Path:
        """Return where the complete file is built: most partial files grow into it."""
        return partial

    def complete(self, partial: Path, complete: Path, size: int) -> None:  # noqa: B027 (as above)
        """Build the complete file where the partial one is not it."""


class _Npy(_Format):
    """Vectors alone, memory-mappable."""

    takes_columns = False

    def __init__(self, width: int) -> None:
        self._width = width

    def header(self, rows: int) -> bytes:
        """Return an npy header of 128 bytes for any number of rows, so that it can be rewritten in place."""
        shape = f"({rows}, {self._width})"
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + head.ljust(117).encode("ascii") + b"\n"

    def encode(
        self, first: int, vectors: npt.NDArray[np.float32], texts: Sequence[str], columns: Columns
    ) -> memoryview:
        return vectors.reshape(-1).data.cast("B")


class _Jsonl(_Format):
    """One JSON object per line: text, vector, then the other columns."""

    def encode(self, first: int, vectors: npt.NDArray[np.float32], texts: Sequence[str], columns: Columns) -> bytes:
        lines = []
        for row, vector in enumerate(shortest_decimals(vectors)):
            record = {"text": texts[row], "vector": vector, **{name: columns[name][row] for name in columns}}
            try:
                try:
                    line = json.dumps(record, ensure_ascii=False, allow_nan=False, default=_as_json).encode()
                except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold but \ud83d can
                    line = json.dumps(record, allow_nan=False, default=_as_json).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise InputError(
                    f"row {first + row:,} cannot be written as JSON (columns: {', '.join(columns)}): {error}"
                ) from error
            lines.append(line + b"\n")
        return b"".join(lines)


class _Parquet(_Format):
    """Columns text, vector (fixed_size_list<float>), then the others.

    A Parquet file has its index at its end and cannot be added to, so the partial file holds Arrow streams, one per
    `append`, which `complete` joins; this needs room for a second copy for a moment, and memory for one row group.
    The first rows decide the columns' types; a column of nulls takes its type from its first value.
    """

    def __init__(self, width: int, setting: str) -> None:
        self._arrow = import_pyarrow("writing .parquet files")
        self._setting = setting
        self._types = {"text": self._arrow.string(), "vector": self._arrow.list_(self._arrow.float32(), width)}

    def encode(self, first: int, vectors: npt.NDArray[np.float32], texts: Sequence[str], columns: Columns) -> Any:
        arrow = self._arrow
        rows = f"rows {first:,} to {first + len(texts) - 1:,}"
        flat = arrow.array(vectors.reshape(-1))
        arrays = {
            "text": self._column("text", texts, rows),
            "vector": arrow.FixedSizeListArray.from_arrays(flat, type=self._types["vector"]),
            **{name: self._column(name, values, rows) for name, values in columns.items()},
        }
        table = arrow.table(arrays)
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._learn(table.schema)
        return memoryview(sink.getvalue())

    def resume(self, partial: Path, size: int) -> None:
        for table in self._tables(partial, size):
            self._learn(table.schema)

    def complete_path(self, partial: Path) -> Path:
        return _beside(partial, ".joined")

    def complete(self, partial: Path, complete: Path, size: int) -> None:
        metadata = {b"munjang.fingerprint": self._setting.encode()}
        schema = self._arrow.schema(self._types.items(), metadata=metadata)
        repeating = [name for name in schema.names if name != "vector"]
        with (
            atomic_path(complete) as temporary,
            open(temporary, "wb") as file,
            self._arrow.parquet.ParquetWriter(file, schema, use_dictionary=repeating) as writer,
        ):
            for group in self._row_groups(schema, partial, size):
                writer.write_table(group, row_group_size=group.num_rows)

    def _column(self, name: str, values: Sequence[object], rows: str) -> Any:
        """Return an Arrow array of the column's type; raise an InputError where that would lose something."""
        arrow = self._arrow
        wanted = self._types.get(name, arrow.null())
        try:
            array = arrow.array(values, type=wanted if name == "text" else None)
            if wanted == arrow.null() or array.type in (wanted, arrow.null()):
                return array
            # 1 may become 1.0; but Arrow would also silently drop a new field of a struct, so compare.
            array = arrow.array(values, type=wanted)
            if array.to_pylist() != list(values):
                raise TypeError("a value would change")
            return array
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            kind = f"of the type its first rows had, {wanted}," if wanted != arrow.null() else "of one type"
            raise InputError(
                f"column {name!r} must be {kind} but {rows} are not: {error}; make it one type (for example text)"
            ) from error

    def _learn(self, schema: Any) -> None:
        for field in schema:
            if self._types.get(field.name, self._arrow.null()) == self._arrow.null():
                self._types[field.name] = field.type

    def _tables(self, partial: Path, size: int) -> Iterator[Any]:
        """Read the tables of a partial file, memory-mapped."""
        arrow = self._arrow
        if size == 0:  # an empty file cannot be mapped
            return
        try:
            with arrow.memory_map(str(partial)) as source:
                while source.tell() < size:
                    with arrow.ipc.open_stream(source) as reader:
                        yield reader.read_all()
        except arrow.ArrowException as error:
            raise ResumeError(f"{partial} is damaged ({error}); {_START_OVER}") from error

    def _row_groups(self, schema: Any, partial: Path, size: int) -> Iterator[Any]:
        """Gather the tables, in the final schema, to row groups of about ROW_GROUP_BYTES."""
        waiting: list[Any] = []
        waiting_bytes = 0
        for table in self._tables(partial, size):
            for place, field in enumerate(schema):
                if table.schema.field(place).type != field.type:  # all null in these rows
                    table = table.set_column(place, field, self._arrow.nulls(table.num_rows, field.type))
            waiting.append(table.cast(schema))
            waiting_bytes += table.nbytes
            if waiting_bytes >= ROW_GROUP_BYTES:
                yield self._arrow.concat_tables(waiting)
                waiting, waiting_bytes = [], 0
        if waiting:
            yield self._arrow.concat_tables(waiting)


def import_pyarrow(purpose: str) -> Any:
    """Import pyarrow with its compute and parquet modules, or raise an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", purpose) from error
    return pyarrow


def shortest_decimals(vectors: npt.NDArray[np.float32]) -> list[list[float]]:
    """Return Python floats that print with the fewest digits that read back as the same float32.

    A float32 needs at most nine digits, and every decimal of six survives it. m / 10**k is rounded once, so it is the
    float that prints as these digits, as long as both are exact: m < 2**53 and 0 <= k <= 22. This is about three times
    as fast as asking numpy for each number's text, which is left for sizes that are rare in vectors.
    """
    exact = vectors.astype(np.float64)  # [n, width]
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


def _as_json(value: object) -> object:
    """Convert dates and numpy numbers, which come out of tables; refuse anything else."""
    for method in ("isoformat", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a {type(value).__name__} is not a JSON value: {value!r}")


def _format_of(target: Path, width: int, setting: str) -> _Format:
    suffix = target.suffix.lower()
    if suffix == ".npy":
        return _Npy(width)
    if suffix == ".jsonl":
        return _Jsonl()
    if suffix == ".parquet":
        return _Parquet(width, setting)
    raise InputError(f"an output must end in {', '.join(SUFFIXES)}, got {target.name!r}")


# --- reading ---------------------------------------------------------------------------------------------------------


def read_vectors(path: str | Path) -> npt.NDArray[np.float32]:
    """Read the vectors of a .npy, .parquet or .jsonl file.

    Args:
        path: A file that `encode_to`, `munjang encode` or numpy wrote. Other columns are left out.

    Returns:
        float32 [n, width]; of a .npy file of float32, a read-only memory map. A .jsonl file without lines gives [0, 0].

    Raises:
        InputError: The suffix is unknown.
        DataError: There is no such file, it is unfinished or damaged, or it does not hold vectors.
    """
    path = Path(path)
    readers = {".npy": _read_npy, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
    if path.suffix.lower() not in readers:
        raise InputError(f"a file of vectors must end in {', '.join(readers)}, got {path.name!r}")
    if not path.exists():
        unfinished = _beside(path, ".progress.json").exists()
        hint = "; it is unfinished: run the command that writes it again to resume" if unfinished else ""
        raise DataError(f"{path} does not exist{hint}")
    try:
        vectors = readers[path.suffix.lower()](path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise DataError(f"{path} must hold floats [rows, width], but holds {vectors.dtype} {vectors.shape}")
    return vectors if vectors.dtype == np.float32 else vectors.astype(np.float32)


def _read_npy(path: Path) -> Array:
    try:
        vectors = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OverflowError) as error:
        size = path.stat().st_size
        raise DataError(f"{path} is damaged, or no .npy file of vectors ({error}); it has {size:,} bytes") from error
    expected, size = vectors.offset + vectors.nbytes, path.stat().st_size
    if size != expected:
        raise DataError(f"{path} is damaged: {vectors.dtype} {vectors.shape} needs {expected:,} bytes, it has {size:,}")
    return vectors


def _read_parquet(path: Path) -> Array:
    arrow = import_pyarrow("reading .parquet files")
    try:
        with arrow.parquet.ParquetFile(path) as file:
            if "vector" not in file.schema_arrow.names:
                raise DataError(f"{path} has no column 'vector', only {', '.join(file.schema_arrow.names)}")
            kind = file.schema_arrow.field("vector").type
            fixed = arrow.types.is_fixed_size_list(kind)
            if not (fixed or arrow.types.is_list(kind)) or not arrow.types.is_floating(kind.value_type):
                raise DataError(f"{path}: column 'vector' must hold lists of floats, but holds {kind}")
            width = kind.list_size if fixed else None
            vectors, row = np.zeros((file.metadata.num_rows, width or 0), np.float32), 0
            for group in range(file.num_row_groups):
                for chunk in file.read_row_group(group, columns=["vector"]).column("vector").chunks:
                    values = chunk.flatten()
                    if chunk.null_count or values.null_count:
                        raise DataError(f"{path}: column 'vector' has nulls")
                    lengths = set(arrow.compute.list_value_length(chunk).to_pylist())
                    if width is None:  # plain lists: the first chunk decides
                        width = min(lengths, default=0)
                        vectors = np.zeros((len(vectors), width), np.float32)
                    if lengths - {width}:
                        raise DataError(f"{path}: the vectors have different lengths: {sorted({width, *lengths})}")
                    vectors[row : row + len(chunk)] = values.to_numpy(zero_copy_only=False).reshape(len(chunk), width)
                    row += len(chunk)
    except arrow.ArrowException as error:
        raise DataError(f"{path} is damaged, or no .parquet file: {error}") from error
    return vectors


def _read_jsonl(path: Path) -> Array:
    rows: list[Array] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                vector = np.array(json.loads(line)["vector"], dtype=np.float64).astype(np.float32)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                problem = "has no 'vector'" if isinstance(error, KeyError) else f"cannot be read ({error})"
                raise DataError(
                    f"{path}: line {number:,} {problem}; expected an object with a list 'vector'"
                ) from error
            if vector.ndim != 1 or (rows and vector.shape != rows[0].shape):
                wanted = rows[0].shape if rows else "[width]"
                raise DataError(f"{path}: line {number:,} has a vector of shape {vector.shape}, expected {wanted}")
            rows.append(vector)
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)
