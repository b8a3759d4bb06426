"""Tables as rows, batch by batch: pandas, polars, Arrow, Hugging Face datasets and Parquet files.

An object brings its own library; none is imported for it. Parquet files of strangers are read within limits on what
they unpack to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from munjang.data.rows import ReadLimits, Row, RowSource, Table, unique_keys
from munjang.errors import DataError, InputError, MissingExtraError

_BATCH = 4096  # rows that become Python values at once
_PIECE = 16 << 20  # bytes that become Python values at once, where a file is limited
_STRINGS = ("object", "str", "string", "String", "Utf8", "Categorical", "Enum", "large_string", "string_view")
_TO_LIST = ("tolist", "to_list", "to_pylist")

Batches = Callable[[Sequence[int]], Iterable[list[list[object]]]]  # positions of columns -> of each batch, their values


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
    if library == "datasets" and hasattr(frame, "with_format") and hasattr(frame, "__len__"):
        columns = _dataset_columns(frame)
    elif library == "pyarrow" and hasattr(frame, "schema"):
        columns = _arrow_columns(frame)
    elif library in ("pandas", "polars") and kind != "Series" and hasattr(frame, "columns"):
        columns = _frame_columns(frame, library)
    else:
        to_list = next((getattr(frame, method) for method in _TO_LIST if hasattr(frame, method)), None)
        return frame if to_list is None else to_list()  # type: ignore[no-any-return]  # an iterable of its library
    names, types, batches = columns
    strings = tuple(
        key
        for key, type_ in zip(unique_keys(names), types, strict=True)
        if str(type_).partition("(")[0].partition("[")[0] in _STRINGS
    )
    is_stream = library == "pyarrow" and not hasattr(frame, "num_rows")  # of Arrow batches: read once
    return RowSource(
        name, lambda: Table(names, _read(names, batches, first=0), strings),
        total=None if is_stream else len(frame) if library != "pyarrow" else frame.num_rows, reiterable=not is_stream,
    )  # fmt: skip


def _frame_columns(frame: Any, library: str) -> tuple[tuple[str, ...], Sequence[object], Batches]:
    def batches(places: Sequence[int]) -> Iterator[list[list[object]]]:
        for at in range(0, len(frame), _BATCH):
            if library == "polars":
                yield [frame[at : at + _BATCH, place].to_list() for place in places]
            else:
                yield [frame.iloc[at : at + _BATCH, place].tolist() for place in places]

    types = [getattr(getattr(dtype, "categories", None), "dtype", dtype) for dtype in frame.dtypes]
    return tuple(map(str, frame.columns)), frame.dtypes if library == "polars" else types, batches


def _arrow_columns(table: Any) -> tuple[tuple[str, ...], Sequence[object], Batches]:
    """A Table, a RecordBatch or a stream of batches."""

    def batches(places: Sequence[int]) -> Iterator[list[list[object]]]:
        is_stream = not hasattr(table, "num_rows")
        for part in table if is_stream else table.to_batches(_BATCH) if hasattr(table, "to_batches") else [table]:
            yield [part.column(place).to_pylist() for place in places]

    return tuple(table.schema.names), [getattr(kind, "value_type", kind) for kind in table.schema.types], batches


def _dataset_columns(dataset: Any) -> tuple[tuple[str, ...], Sequence[object], Batches]:
    plain = dataset.with_format(None)
    names = tuple(plain.column_names)

    def batches(places: Sequence[int]) -> Iterator[list[list[object]]]:
        chosen = [names[place] for place in places]
        for batch in plain.select_columns(chosen).iter(batch_size=_BATCH):
            yield [batch[column] for column in chosen]

    return names, [getattr(plain.features[name], "dtype", "") for name in names], batches


def _read(names: tuple[str, ...], batches: Batches, *, first: int) -> Callable[[Sequence[str] | None], Iterator[Row]]:
    keys = unique_keys(names)

    def read(columns: Sequence[str] | None) -> Iterator[Row]:
        chosen, number = tuple(columns or keys), first
        for batch in batches([keys.index(column) for column in chosen]):
            for values in zip(*batch, strict=True):
                yield Row(f"row {number}", dict(zip(chosen, values, strict=True)))
                number += 1

    return read


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

    def batches(places: Sequence[int]) -> Iterator[list[list[object]]]:
        with opened() as file:
            if limits is None:
                chosen = list(dict.fromkeys(names[place] for place in places)) if is_unique else None
                parts = file.iter_batches(_BATCH, columns=chosen)
            else:
                parts = _limited_batches(path, file.metadata, name, limits)
            for part in parts:
                yield [part.column(names[place] if is_unique else place).to_pylist() for place in places]

    return Table(names, _read(names, batches, first=1))


def _limited_batches(path: Path, metadata: Any, name: str, limits: ReadLimits) -> Iterator[Any]:
    """Read a bounded number of bytes at a time.

    The sizes in the footer are checked before anything is unpacked. Strings are read as dictionaries, which hold a
    string of a million rows once, and counted before they become Python values.
    """
    import pyarrow.parquet as pq

    limits.check("file_rows", metadata.num_rows, name)
    limits.check("file_columns", metadata.num_columns, name)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [[group.column(place) for place in range(metadata.num_columns)] for group in groups]
    widths = [max(8, metadata.schema.column(place).length or 0) for place in range(metadata.num_columns)]
    declared = sum(
        max(chunk.total_uncompressed_size, chunk.num_values * width)
        for row in chunks
        for chunk, width in zip(row, widths, strict=True)
    )
    limits.check("unpacked_bytes", declared, name)
    # Delta encoding repeats a part of the value before, so a chunk does not say how large its values are: read few.
    prefixed = [[chunk for chunk in row if "DELTA_BYTE_ARRAY" in chunk.encodings] for row in chunks]
    strings = {chunk.path_in_schema for row in chunks for chunk in row if chunk.physical_type == "BYTE_ARRAY"}
    dictionaries = strings - {chunk.path_in_schema for row in prefixed for chunk in row}
    unpacked = 0
    with pq.ParquetFile(path, read_dictionary=sorted(dictionaries)) as file:
        for number, row in enumerate(prefixed):
            largest = max((chunk.total_uncompressed_size for chunk in row), default=0)
            size = max(1, min(_BATCH, _PIECE // largest if largest else _BATCH))
            for batch in file.iter_batches(batch_size=size, row_groups=[number]):
                batch_bytes = sum(map(_unpacked_bytes, batch.columns))
                unpacked += batch_bytes
                limits.check("unpacked_bytes", unpacked, name)
                step = max(1, batch.num_rows * _PIECE // max(_PIECE, batch_bytes))
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
