"""A shard -> its rows, one at a time: each either good, or bad with a reason.

`munjang.data.rows` stops at a broken row, because in one file a dropped row shifts all that follow, and scans a file
for its encoding before it reads it. A job of many hours over terabytes cannot do either: a row that is broken in its
bytes, its JSON or its size is set aside with its place and its reason, and the shard goes on. What concerns the file as
a whole (cut off, not Parquet, no such column) is a DataError.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from munjang.data.columns import choose_column, named_column
from munjang.data.files import open_binary
from munjang.data.rows import kind_of
from munjang.errors import DataError, MissingExtraError, brief
from munjang.sharding.options import Reading
from munjang.sharding.shards import Shard

_MARK = b"\xef\xbb\xbf"  # of UTF-8
_BATCH = 1024  # rows of Parquet at a time


class Good(NamedTuple):
    """A row that can be encoded."""

    line: int  # from 1: of a jsonl file its line, of Parquet its row
    text: str
    column: str | None  # that held the text; None for a bare JSON string
    cells: dict[str, object]  # the columns to keep; all of them where documents are made


class Bad(NamedTuple):
    """A row that cannot, and why."""

    line: int
    reason: str


Read: TypeAlias = Iterator[Good | Bad]


class _Refused(Exception):
    """A row is bad; the text is the reason."""


def read_rows(shard: Shard, reading: Reading, *, whole: bool) -> Read:
    """The rows in file order, in bounded memory. whole: hand on all columns, not only those to keep."""
    if shard.kind == "parquet":
        return _parquet_rows(shard, reading, whole=whole)
    return _json_rows(shard, reading, whole=whole)


def _refuse_large(size: int, reading: Reading) -> None:
    if size > reading.largest_row:
        raise _Refused(f"too large: more than {reading.largest_row:,} bytes")


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _json_rows(shard: Shard, reading: Reading, *, whole: bool) -> Read:
    kinds: dict[str, str] = {}
    for number, line in enumerate(_lines(shard, reading.largest_row), start=1):
        if number == 1 and line.startswith(_MARK):
            line = line.removeprefix(_MARK)
        if not line.strip():
            continue
        try:
            _refuse_large(len(line), reading)
            value = _value(line, reading.encoding)
            good = _json_row(number, value, reading, whole=whole)
            if not whole:
                _check_kinds(good.cells, kinds)
        except _Refused as refusal:
            yield Bad(number, str(refusal))
        else:
            yield good


def _lines(shard: Shard, largest: int) -> Iterator[bytes]:
    """Lines without their end; of one that is too large only the beginning, one byte longer than is allowed."""
    with _reading(shard), open_binary(Path(shard.path)) as file:
        while line := file.readline(largest + 2):
            rest = line
            while not rest.endswith(b"\n") and len(rest) == largest + 2:
                rest = file.readline(largest + 2)
            yield line.rstrip(b"\r\n")[: largest + 1]


@contextlib.contextmanager
def _reading(shard: Shard) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{shard.name}: cannot be read to the end: {error}") from error


def _value(line: bytes, encoding: str) -> object:
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError as error:
        raise _Refused(
            f"byte {line[error.start]:#04x} at byte {error.start:,} of the row is not valid {encoding} (--encoding "
            "NAME names another)"
        ) from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _Refused(f"expected a JSON value, but: {error.msg}, at character {error.pos + 1:,}") from None
    except (ValueError, RecursionError) as error:  # a number too long, a nesting too deep
        raise _Refused(f"the JSON value cannot be read: {error}") from None
    if b"\\u" in line:  # only an escape can bring half a surrogate pair
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _Refused("half a surrogate pair is no character") from None
        except RecursionError:
            raise _Refused("the JSON value is nested too deeply") from None
    return cast(object, value)


def _json_row(number: int, value: object, reading: Reading, *, whole: bool) -> Good:
    if isinstance(value, str) and not reading.keep and reading.column is None:
        return Good(number, value, None, {})
    if not isinstance(value, dict) or not value:
        raise _Refused(f"expected an object that holds a text, got {brief(value)}")
    names = list(value)
    try:
        column = names[choose_column(names, reading.column, "the row")]
    except DataError as error:
        raise _Refused(str(error)) from None
    return Good(number, _text(value[column], column), column, _cells(value, reading, whole=whole))


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise _Refused(f"expected a text in {column!r}, got {kind_of(value)}")
    return value


def _cells(value: dict[str, object], reading: Reading, *, whole: bool) -> dict[str, object]:
    if whole:
        return value
    missing = next((name for name in reading.keep if name not in value), None)
    if missing is not None:
        raise _Refused(f"there is no {missing!r} to keep")
    return {name: value[name] for name in reading.keep}


def _check_kinds(cells: dict[str, object], kinds: dict[str, str]) -> None:
    """A column of an output has one type, which its first value decides; a row of another one is set aside."""
    found: dict[str, str] = {}
    for name, value in cells.items():
        if value is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise _Refused(f"{name!r} holds {value}, which JSON does not have")
        found[name] = kind_of(value)
        if kinds.get(name, found[name]) != found[name]:
            raise _Refused(f"{name!r} holds {found[name]}, in the rows before it {kinds[name]}")
    for name, kind in found.items():
        kinds.setdefault(name, kind)


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _parquet_rows(shard: Shard, reading: Reading, *, whole: bool) -> Read:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading Parquet") from None
    try:
        with pq.ParquetFile(shard.path) as file:
            names = list(file.schema_arrow.names)
            column = names[choose_column(names, reading.column, shard.name)]
            _check_type(pa, file.schema_arrow.field(column).type, column, shard.name)
            kept = [names[named_column(names, name, shard.name)] for name in reading.keep]
            wanted = names if whole else list(dict.fromkeys([column, *kept]))
            line = 0
            for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
                for row in _batch_rows(batch, wanted):
                    line += 1
                    yield _parquet_row(line, row, column, reading, whole=whole)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{shard.name}: cannot be read as Parquet: {error}") from error


def _check_type(pa: Any, kind: Any, column: str, where: str) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_view = getattr(pa.types, "is_string_view", lambda _: False)
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or is_view(inner)):
        raise DataError(f"{where}: expected texts in column {column!r}, but its type is {kind} (--column chooses)")


def _batch_rows(batch: Any, names: list[str]) -> Iterator[dict[str, object] | str]:
    """The rows of a batch as dicts; the reason, of one whose bytes are no text."""
    try:
        columns = [batch.column(name).to_pylist() for name in names]
    except UnicodeDecodeError:  # somewhere in the batch: now row by row
        yield from (_one_row(batch, names, place) for place in range(batch.num_rows))
        return
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _one_row(batch: Any, names: list[str], place: int) -> dict[str, object] | str:
    try:
        return {name: batch.column(name)[place].as_py() for name in names}
    except UnicodeDecodeError as error:
        return f"byte {error.start:,} of a text is not valid UTF-8"


def _parquet_row(line: int, row: dict[str, object] | str, column: str, reading: Reading, *, whole: bool) -> Good | Bad:
    if isinstance(row, str):
        return Bad(line, row)
    try:
        text = _text(row[column], column)
        if len(text) * 4 > reading.largest_row:  # no character has more bytes in UTF-8
            _refuse_large(len(text.encode()), reading)
        return Good(line, text, column, _cells(row, reading, whole=whole))
    except _Refused as refusal:
        return Bad(line, str(refusal))
