"""Parquet files as rows; of strangers, within limits on what they unpack to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from munjang.data.readers import open_binary
from munjang.data.rows import ReadLimits, Row, Table, unique_keys
from munjang.errors import DataError, MissingExtraError

_BATCH = 4096  # rows
_PIECE = 16 << 20  # bytes that become Python values at once, where a file is limited


def open_parquet(path: Path, name: str, limits: ReadLimits | None) -> Table:
    """Open a Parquet file; name: the file in messages."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading Parquet") from None
    open_binary(path).close()  # for the errors about missing files

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        try:
            with pq.ParquetFile(path) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name}: cannot be read as Parquet: {error}") from error

    with opened() as file:
        names = tuple(file.schema_arrow.names)
    keys = unique_keys(names)

    def read(columns: Sequence[str] | None) -> Iterator[Row]:
        number = 0
        with opened() as file:
            if limits is None:
                is_plain = columns is not None and keys == names
                batches = file.iter_batches(_BATCH, columns=list(dict.fromkeys(columns or ())) if is_plain else None)
            else:
                batches = _limited_batches(path, file.metadata, name, limits)
            for batch in batches:
                chosen = batch.schema.names if keys == names else keys
                for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield Row(f"row {number}", dict(zip(chosen, values, strict=True)))

    return Table(names, read)


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
