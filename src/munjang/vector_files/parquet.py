"""The .parquet store: one part per window in `<name>.partial/`, streamed into one file at the end.

A Parquet file has its index at its end, so a file that was cut off cannot be read, and one cannot be added to. The
parts are Arrow files (quick to write, exact in their types), each written aside and renamed. Completing needs room
for a second copy for a moment, and memory for one row group.

The first window decides the columns' types. A column that was all null so far takes its type from the first value.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from munjang.errors import DataError, InputError, MissingExtraError, ResumeError
from munjang.files import atomic_write, sync_folder
from munjang.vector_files.progress import BEGIN_AGAIN, Progress
from munjang.vector_files.stores import Window

FINGERPRINT_KEY = b"munjang.fingerprint"  # in the file's schema metadata
ROW_GROUP_BYTES = 64 << 20


def import_pyarrow(purpose: str) -> Any:
    """pyarrow with its compute and parquet modules, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", purpose) from error
    return pyarrow


class ParquetStore:
    """Columns text (where kept), vector (fixed_size_list<float>), then the others."""

    takes_columns = True

    def __init__(self, target: Path, dimension: int, *, fingerprint: str, keep_texts: bool) -> None:
        self._arrow = import_pyarrow("writing .parquet files")
        self._target = target
        self._folder = target.with_name(target.name + ".partial")
        self._joined = self._folder / "joined.parquet"
        self._ready = self._folder / "joined.ready"  # there once joined.parquet is whole
        self._fingerprint = fingerprint
        self._keep_texts = keep_texts
        self._vector_type = self._arrow.list_(self._arrow.float32(), dimension)
        self._types: dict[str, Any] = {}
        self.layout = "parquet" if keep_texts else "parquet without texts"

    def begin(self) -> int:
        self._folder.mkdir()
        return 0

    def exists(self) -> bool:
        return self._folder.exists()

    def was_published(self, progress: Progress) -> bool:
        return self._ready.exists() and not self._joined.exists() and self._target.exists()

    def resume(self, progress: Progress) -> None:
        # "ready" goes first: alone, it would say that the joined file was published.
        for leftover in (self._ready, self._joined, *self._folder.glob("*.tmp")):
            leftover.unlink(missing_ok=True)
            sync_folder(self._folder)
        size = crc = 0
        for part in self._parts():
            if _first_row(part) >= progress.rows:
                part.unlink()  # written, but killed before the progress file said so
                continue
            data = part.read_bytes()
            size, crc = size + len(data), zlib.crc32(data, crc)
        if (size, crc) != (progress.bytes, progress.crc32):
            raise ResumeError(
                f"{self._folder} is damaged: {progress.rows:,} rows are {progress.bytes:,} bytes, it has {size:,}"
                f"{'' if size != progress.bytes else ' with another checksum'}; {BEGIN_AGAIN}"
            )
        for part in self._parts():
            with self._arrow.OSFile(str(part)) as file:
                self._types = self._seen_types(self._arrow.ipc.open_file(file).schema)

    def write(self, window: Window, progress: Progress) -> tuple[int, int]:
        table = self._table(window)
        sink = self._arrow.BufferOutputStream()
        with self._arrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = memoryview(sink.getvalue())
        atomic_write(self._folder / f"part-{window.first:015d}.arrow", data)
        self._types = self._seen_types(table.schema)
        return progress.bytes + data.nbytes, zlib.crc32(data, progress.crc32)

    def publish(self, progress: Progress) -> None:
        try:
            self._join(progress.rows)
            atomic_write(self._ready, b"")
        except BaseException:
            with contextlib.suppress(OSError):
                self._ready.unlink(missing_ok=True)  # alone, it would say that the joined file was published
                self._joined.unlink(missing_ok=True)  # a full disk gets its room back; the parts stay
            raise
        os.replace(self._joined, self._target)
        sync_folder(self._folder)
        sync_folder(self._target.parent)

    def close(self) -> None:
        """Nothing stays open between two windows."""

    def clear(self) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("part-*.arrow"))

    def _table(self, window: Window) -> Any:
        arrow = self._arrow
        values = arrow.array(window.vectors.reshape(-1))
        names, arrays = ["vector"], [arrow.FixedSizeListArray.from_arrays(values, type=self._vector_type)]
        if self._keep_texts:
            names.insert(0, "text")
            arrays.insert(0, self._column("text", window.texts, first=window.first))
        for name, column in window.columns.items():
            names.append(name)
            arrays.append(self._column(name, column, first=window.first))
        return arrow.table(arrays, names=names)

    def _column(self, name: str, values: Sequence[object], *, first: int) -> Any:
        """An Arrow array of the column's type; an error where that would lose something."""
        arrow = self._arrow
        wanted = arrow.string() if name == "text" else self._types.get(name)
        wanted = None if wanted == arrow.null() else wanted
        rows = f"rows {first:,} to {first + len(values) - 1:,}"
        try:
            array = arrow.array(values, type=wanted if name == "text" else None)
            if wanted is None or array.type in (wanted, arrow.null()):
                return array
            # 1 may become 1.0; but Arrow would also quietly drop a new field of a struct, so compare.
            array = arrow.array(values, type=wanted)
            if array.to_pylist() != list(values):
                raise TypeError("a value would change")
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            kind = f"of the type its first rows had, {wanted}," if wanted is not None else "of one type"
            raise InputError(
                f"column {name!r} must be {kind} but {rows} are not: {error}; make it one type (for example text)"
            ) from error
        return array

    def _seen_types(self, schema: Any) -> dict[str, Any]:
        types = dict(self._types)
        for field in schema:
            if field.name not in ("text", "vector") and types.get(field.name, self._arrow.null()) == self._arrow.null():
                types[field.name] = field.type
        return types

    def _schema(self) -> Any:
        arrow = self._arrow
        fields = [("text", arrow.string())] if self._keep_texts else []
        fields += [("vector", self._vector_type), *self._types.items()]
        return arrow.schema(fields, metadata={FINGERPRINT_KEY: self._fingerprint.encode()})

    def _join(self, rows: int) -> None:
        schema = self._schema()
        dictionaries = [name for name in schema.names if name != "vector"]  # vectors never repeat
        joined = 0
        with open(self._joined, "wb") as file:
            with self._arrow.parquet.ParquetWriter(file, schema, use_dictionary=dictionaries or False) as writer:
                for table in self._row_groups(schema, rows):
                    writer.write_table(table, row_group_size=table.num_rows)
                    joined += table.num_rows
            file.flush()
            os.fsync(file.fileno())
        if joined != rows:
            raise DataError(f"{self._folder} holds {joined:,} rows, {rows:,} were written; {BEGIN_AGAIN}")

    def _row_groups(self, schema: Any, rows: int) -> Iterator[Any]:
        """The parts as tables of the final schema, several to a row group."""
        arrow, waiting, size = self._arrow, [], 0
        for part in self._parts():
            if _first_row(part) >= rows:  # written, but interrupted before it counted
                break
            table = arrow.ipc.open_file(part.read_bytes()).read_all()
            for place, field in enumerate(schema):
                if table.schema.field(place).type != field.type:  # all null in this window
                    table = table.set_column(place, field, arrow.nulls(table.num_rows, field.type))
            waiting.append(table.cast(schema))
            size += table.nbytes
            if size >= ROW_GROUP_BYTES:
                yield arrow.concat_tables(waiting)
                waiting, size = [], 0
        if waiting:
            yield arrow.concat_tables(waiting)


def _first_row(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))
