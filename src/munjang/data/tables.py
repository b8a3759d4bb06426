"""Tables as rows, batch by batch: pandas, polars, Arrow, Hugging Face datasets and Parquet files.

An object brings its own library; none is imported for it. Parquet files of strangers are read within limits on what
they unpack to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from munjang.data.rows import ReadLimits, Row, RowSource, Table
from munjang.errors import DataError, InputError, MissingExtraError

_BATCH = 4096  # rows that become Python values at once
_PIECE = 16 << 20  # bytes that become Python values at once, where a file is limited
_STRINGS = ("object", "str", "string", "String", "Utf8", "Categorical", "Enum", "large_string", "string_view")
_TO_LIST = ("tolist", "to_list", "to_pylist")

Parts = Callable[[Sequence[int]], Iterable[Any]]  # positions of columns -> parts of the table with at least these
Cells = Callable[[Any, int], list[object]]  # a part and the position of a column in the table -> its values


def open_frame(frame: Any, library: str, name: str) -> RowSource | Iterable[object]:
    """Open a table as rows; a single column (Series, array) becomes a list, any other iterable stays as it is.

    Raises:
        InputError: the object is not one table: it has several splits, is lazy, or is an array of numbers.
    """
    kind, label = type(frame).__name__, f"{name}: " if name else ""
    if library == "datasets" and hasattr(frame, "keys"):
        raise InputError(
            f"{label}expected one split, got a {kind} with {', '.join(map(repr, frame))}: pass one of them, such as "
            f"data[{next(iter(frame), 'train')!r}]"
        )
    if kind == "LazyFrame":
        raise InputError(f"{label}expected a DataFrame, got a LazyFrame: pass frame.collect()")
    if library == "numpy" and (frame.dtype.kind not in "OUT" or frame.ndim == 0):
        raise InputError(f"{label}expected strings, got an array of {frame.dtype} {list(frame.shape)}")
    opened = _open(frame, library)
    if opened is None:
        to_list = next((getattr(frame, method) for method in _TO_LIST if hasattr(frame, method)), None)
        return frame if to_list is None else to_list()  # type: ignore[no-any-return]  # an iterable of its library
    names, types, parts, cells = opened
    table = _table(tuple(map(str, names)), parts, cells, first=0)
    holds_strings = [str(type_).partition("(")[0].partition("[")[0] in _STRINGS for type_ in types]
    strings = tuple(key for key, is_string in zip(table.keys, holds_strings, strict=True) if is_string)
    is_stream = library == "pyarrow" and not hasattr(frame, "num_rows")
    total = None if is_stream else frame.num_rows if library == "pyarrow" else len(frame)
    return RowSource(name, lambda: replace(table, strings=strings), total=total, reiterable=not is_stream)


def _open(frame: Any, library: str) -> tuple[Iterable[Any], Iterable[Any], Parts, Cells] | None:
    """Names and types of the columns of a table, and how to read it; None for a single column."""
    if library == "datasets" and hasattr(frame, "with_format") and hasattr(frame, "__len__"):
        plain = frame.with_format(None)
        names = plain.column_names
        return (
            names,
            [getattr(plain.features[column], "dtype", "") for column in names],
            lambda places: plain.select_columns([names[at] for at in places]).iter(_BATCH),
            lambda part, at: part[names[at]],
        )
    if library == "pyarrow" and hasattr(frame, "schema"):  # a Table, a RecordBatch or a stream of batches
        types = [getattr(type_, "value_type", type_) for type_ in frame.schema.types]
        parts = frame.to_batches(_BATCH) if hasattr(frame, "to_batches") else frame
        return frame.schema.names, types, lambda _: [parts] if hasattr(parts, "num_rows") else parts, _arrow_cells
    if type(frame).__name__ == "Series" or not hasattr(frame, "columns"):
        return None
    starts = range(0, len(frame), _BATCH)
    if library == "polars":
        slices: Parts = lambda _: (frame[at : at + _BATCH] for at in starts)  # noqa: E731
        return frame.columns, frame.dtypes, slices, lambda part, at: part[:, at].to_list()
    types = [getattr(getattr(dtype, "categories", None), "dtype", dtype) for dtype in frame.dtypes]
    slices = lambda _: (frame.iloc[at : at + _BATCH] for at in starts)  # noqa: E731
    return frame.columns, types, slices, lambda part, at: part.iloc[:, at].tolist()


def _arrow_cells(part: Any, at: int) -> list[object]:
    cells: list[object] = part.column(at).to_pylist()
    return cells


def _table(names: tuple[str, ...], parts: Parts, cells: Cells, *, first: int) -> Table:
    """Rows of parts of a table, numbered from `first`; cells: the values of the column at a position of a part."""

    def read(columns: Sequence[str] | None) -> Iterator[Row]:
        keys = table.keys
        chosen, number = tuple(columns or keys), first
        places = [keys.index(column) for column in chosen]
        for part in parts(places):
            for values in zip(*(cells(part, at) for at in places), strict=True):
                yield Row(f"row {number}", dict(zip(chosen, values, strict=True)))
                number += 1

    table = Table(names, read)
    return table


def open_parquet(path: Path, name: str, limits: ReadLimits | None) -> Table:
    """Open a Parquet file; name: the file in messages."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading Parquet") from None

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        try:
            with pq.ParquetFile(path) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name}: cannot be read as Parquet: {error}") from error

    with opened() as file:
        names = tuple(file.schema_arrow.names)
    is_unique = len(set(names)) == len(names)

    def parts(places: Sequence[int]) -> Iterator[Any]:
        with opened() as file:
            if limits is not None:
                yield from _limited_batches(path, file.metadata, name, limits)
            else:
                chosen = list(dict.fromkeys(names[at] for at in places)) if is_unique else None
                yield from file.iter_batches(_BATCH, columns=chosen)

    return _table(names, parts, lambda part, at: _arrow_cells(part, names[at] if is_unique else at), first=1)


def _limited_batches(path: Path, metadata: Any, name: str, limits: ReadLimits) -> Iterator[Any]:
    """Read a bounded number of bytes at a time.

    The sizes in the footer are checked before anything is unpacked. Strings are read as dictionaries, which hold a
    string of a million rows once, and counted before they become Python values.
    """
    import pyarrow.parquet as pq

    limits.check("file_rows", metadata.num_rows, name)
    limits.check("file_columns", metadata.num_columns, name)
    columns = range(metadata.num_columns)
    groups = [[metadata.row_group(at).column(column) for column in columns] for at in range(metadata.num_row_groups)]
    widths = [max(8, metadata.schema.column(column).length or 0) for column in columns]
    declared = sum(
        max(chunk.total_uncompressed_size, chunk.num_values * width)
        for group in groups
        for chunk, width in zip(group, widths, strict=True)
    )
    limits.check("unpacked_bytes", declared, name)
    # Delta encoding repeats a part of the value before, so a chunk does not say how large its values are: read few.
    prefixed = [[chunk for chunk in group if "DELTA_BYTE_ARRAY" in chunk.encodings] for group in groups]
    strings = {chunk.path_in_schema for group in groups for chunk in group if chunk.physical_type == "BYTE_ARRAY"}
    dictionaries = strings - {chunk.path_in_schema for group in prefixed for chunk in group}
    unpacked = 0
    with pq.ParquetFile(path, read_dictionary=sorted(dictionaries)) as file:
        for number, group in enumerate(prefixed):
            largest = max((chunk.total_uncompressed_size for chunk in group), default=1)
            for batch in file.iter_batches(max(1, min(_BATCH, _PIECE // largest)), row_groups=[number]):
                size = sum(map(_unpacked_bytes, batch.columns))
                unpacked += size
                limits.check("unpacked_bytes", unpacked, name)
                step = max(1, batch.num_rows * _PIECE // max(_PIECE, size))
                yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


def _unpacked_bytes(array: Any) -> int:
    """Return the bytes of an Arrow array with its dictionaries expanded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        sizes = pc.binary_length(array.dictionary)
        return int(pc.sum(pc.take(sizes, array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_unpacked_bytes, array.flatten()))
    if pa.types.is_map(kind):
        return _unpacked_bytes(array.keys) + _unpacked_bytes(array.items)
    if pa.types.is_nested(kind):
        return _unpacked_bytes(array.flatten())
    return int(array.nbytes)
