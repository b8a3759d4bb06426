"""Files of texts -> rows, one at a time: txt, csv, tsv, jsonl, json, parquet; gz, xz and bz2 of the text ones; stdin.

Enters: a path (or "-" for stdin) and, where they cannot be guessed, the column, the format, the encoding. Leaves: an
iterator of Row(text, columns), in file order, that never holds more than a piece of the file. Nothing is repaired or
skipped in silence: a null, a field too many, a broken byte is a DataError that names the place, because one dropped
row shifts every vector after it. Row n of the result is line n of a txt file: blank lines are empty texts.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast, get_args

from munjang.data.columns import choose_column, named_column
from munjang.data.encodings import BLOCK, check_encoding, decode, decode_pipe, detect_encoding, text_lines
from munjang.data.json_records import json_lines, json_list
from munjang.data.tables import records, table
from munjang.errors import DataError, DataWarning, InputError, LimitError, MissingExtraError

Format = Literal["txt", "csv", "tsv", "jsonl", "json", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)

FORMAT_SUFFIXES: dict[str, Format] = {
    ".txt": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
COMPRESSED_SUFFIXES: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_PARQUET_BATCH = 4096  # rows
_PARQUET_PIECE = 16 << 20  # bytes that become Python values at once, where a file is limited


class Row(NamedTuple):
    """One text, and the columns that were kept beside it; a tuple, because there are millions of them."""

    text: str
    columns: dict[str, object]


@dataclass(frozen=True)
class ReadLimits:
    """How much of a file is read at most. A few kilobytes can unpack to gigabytes, so it counts what comes out."""

    unpacked_bytes: int
    file_rows: int
    file_columns: int

    def check(self, limit: Literal["unpacked_bytes", "file_rows", "file_columns"], count: int, name: str) -> None:
        """Raise `LimitError` where there is more; name: what messages call the file."""
        most = getattr(self, limit)
        if count > most:
            what = {"unpacked_bytes": "unpacked bytes", "file_rows": "rows", "file_columns": "columns"}[limit]
            raise LimitError(f"{name}: expected at most {most:,} {what}, got {count:,} or more: split the file", limit)


@dataclass(frozen=True)
class Survey:
    """What reading a whole source found."""

    rows: int
    column: str | None  # the column that holds the texts; None where there are no columns


@dataclass(frozen=True)
class TextSource:
    """A file of texts, and how to read it."""

    path: str | Path  # "-" is stdin
    column: str | int | None = None  # name, or 0-based number
    keep: tuple[str, ...] = ()  # columns to hand on beside the text
    format: Format | None = None  # by default from the suffix; txt for stdin
    encoding: str | None = None  # by default found out: UTF-8, UTF-16 with a mark, cp949
    quoting: bool | None = None  # by default on for csv, off for tsv
    header: bool = True  # whether the first record of a csv or tsv names the columns
    check: bool = False  # whether `rows` warns about texts that look empty or missing
    limits: ReadLimits | None = None  # for files of strangers

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.format is not None and self.format not in FORMATS:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {self.format!r}")

    @property
    def name(self) -> str:
        """What messages call it."""
        return "stdin" if self._is_stdin else str(self.path)

    @property
    def is_pipe(self) -> bool:
        """Whether it can be read only once: stdin, a named pipe, a shell's <(...)."""
        path = Path(self.path)
        return self._is_stdin or (path.exists() and not path.is_file() and not path.is_dir())

    @property
    def _is_stdin(self) -> bool:
        return str(self.path) == "-"

    def rows(self) -> Iterator[Row]:
        """The rows, lazily, in file order."""
        if not self.check:
            yield from self._read([])
            return
        from munjang.inputs import UnusualTexts  # imports numpy, which help does without

        found = UnusualTexts()
        for number, row in enumerate(self._read([]), start=1):
            found.add(row.text, f"text {number:,}")
            yield row
        if found:
            warnings.warn(f"{self.name}: {found}", DataWarning, stacklevel=2)

    def survey(self) -> Survey:
        """Read everything once, so that an error shows before any work is done, and count the rows."""
        column: list[str] = []
        count = sum(1 for _ in self._read(column))
        return Survey(rows=count, column=column[0] if column else None)

    def _read(self, chosen: list[str]) -> Iterator[Row]:
        """The rows; the name of the text column, once it is known, is put into `chosen`."""
        kind = self.kind
        if kind == "parquet":
            yield from _parquet_rows(self, chosen)
            return
        texts = self.content()
        if kind == "txt":
            self._refuse_columns()
            for line in text_lines(texts):
                yield Row(line, {})
        elif kind == "csv" or kind == "tsv":
            yield from _table_rows(self, kind, texts, chosen)
        else:
            found = json_lines(texts, self.name) if kind == "jsonl" else json_list(texts, self.name)
            yield from _json_rows(self, found, chosen)

    @property
    def kind(self) -> Format:
        """The format: the one asked for, or the one that the name tells."""
        if self.format is not None:
            return self.format
        if self._is_stdin:
            return "txt"
        suffixes = [suffix.lower() for suffix in Path(self.path).suffixes]
        if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
            suffixes.pop()
        if not suffixes or suffixes[-1] not in FORMAT_SUFFIXES:
            raise DataError(
                f"{self.name}: cannot tell the format from the name. Expected {', '.join(FORMAT_SUFFIXES)}"
                f" (text formats also with {', '.join(COMPRESSED_SUFFIXES)}); pass the format (--format) otherwise"
            )
        return FORMAT_SUFFIXES[suffixes[-1]]

    def content(self) -> Iterator[str]:
        """The decoded content in pieces, of a format that is text."""
        if self._is_stdin:
            yield from self._decoded_once(sys.stdin.buffer)
            return
        open_file = partial(_open_limited, Path(self.path), self.limits, self.name)
        with _reading(self.name):
            encoding = self.encoding if self.encoding or self.is_pipe else detect_encoding(open_file, self.name)
            file = open_file()
        with file:
            if encoding is None:
                yield from self._decoded_once(file)
            else:
                yield from decode(_blocks(file, self.name), _dropping_mark(encoding), self.name)

    def _decoded_once(self, file: BinaryIO) -> Iterator[str]:
        blocks = _blocks(file, self.name)
        if self.encoding is None:
            return decode_pipe(blocks, self.name)
        return decode(blocks, _dropping_mark(self.encoding), self.name)

    def _refuse_columns(self) -> None:
        if self.column is not None or self.keep:
            raise DataError(f"{self.name}: a txt file has no columns, so none can be chosen or kept")


def read_texts(
    path: str | Path,
    *,
    column: str | int | None = None,
    keep: Sequence[str] = (),
    format: Format | None = None,
    encoding: str | None = None,
    quoting: bool | None = None,
    header: bool = True,
) -> Iterator[Row]:
    """Read a file of texts, lazily and in bounded memory; see TextSource for what the arguments mean."""
    return TextSource(path, column, tuple(keep), format, encoding, quoting, header).rows()


def read_bytes(path: str | Path) -> bytes:
    """The whole of a file, decompressed where its name says that it is compressed."""
    with _reading(str(path)), _open(Path(path)) as file:
        return file.read()


def _dropping_mark(encoding: str) -> str:
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _open(path: Path) -> BinaryIO:
    if path.is_dir():
        raise DataError(f"{path}: expected a file, got a folder")
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    opener = COMPRESSED_SUFFIXES.get(path.suffix.lower())
    return cast(BinaryIO, opener(path)) if opener else path.open("rb")


def _open_limited(path: Path, limits: ReadLimits | None, name: str) -> BinaryIO:
    file = _open(path)
    return file if limits is None else cast(BinaryIO, _Limited(file, limits, name))


class _Limited:
    """A file that can be read up to its limit of bytes, decompressed."""

    def __init__(self, file: BinaryIO, limits: ReadLimits, name: str) -> None:
        self._file = file
        self._limits = limits
        self._name = name
        self._count = 0

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._count += len(block)
        self._limits.check("unpacked_bytes", self._count, self._name)
        return block

    def __enter__(self) -> _Limited:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Pieces of at most BLOCK bytes, as soon as they are there: a slow pipe is not waited for."""
    read = getattr(file, "read1", file.read)
    with _reading(name):
        block = read(BLOCK)
    while block:
        yield block
        with _reading(name):
            block = read(BLOCK)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{name}: cannot be read to the end: {error}") from error


def _table_rows(source: TextSource, kind: str, texts: Iterable[str], chosen: list[str]) -> Iterator[Row]:
    quoting = source.quoting if source.quoting is not None else kind == "csv"
    found = records(texts, "," if kind == "csv" else "\t", quoting=quoting, name=source.name)
    names, lines = table(found, header=source.header, name=source.name)
    if not names:
        return
    text_at = choose_column(names, source.column, source.name)
    kept = [(name, named_column(names, name, source.name)) for name in source.keep]
    chosen.append(names[text_at])
    for _, fields in lines:
        yield Row(fields[text_at], {name: fields[position] for name, position in kept})


def _json_rows(source: TextSource, found: Iterator[tuple[str, object]], chosen: list[str]) -> Iterator[Row]:
    column: str | None = None
    for where, value in found:
        if isinstance(value, dict):
            if column is None:
                column = list(value)[choose_column(list(value), source.column, where)] if value else None
                if column is None:
                    raise DataError(f"{where}: expected an object that holds a text, got an empty one")
                chosen.append(column)
            kept = {name: _member(value, name, where) for name in source.keep}
            yield Row(_text(_member(value, column, where), column, where), kept)
        elif isinstance(value, str) and not source.keep and source.column is None and column is None:
            yield Row(_text(value, None, where), {})
        else:
            raise DataError(
                f"{where}: expected {'an object with columns' if chosen or source.keep else 'an object or a string'},"
                f" got {_kind(value)}"
            )


def _member(value: dict[str, object], name: str, where: str) -> object:
    if name not in value:
        raise DataError(f"{where}: there is no {name!r}; it has {', '.join(map(repr, list(value)[:20])) or 'nothing'}")
    return value[name]


def _text(value: object, column: str | None, where: str) -> str:
    if not isinstance(value, str):
        what = f"{column!r} holds" if column is not None else "there is"
        raise DataError(f"{where}: expected a text, but {what} {_kind(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}: half a surrogate pair (\\u{ord(value[error.start]):04x}) is no character"
            ) from None
    return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a string" if isinstance(value, str) else type(value).__name__)


def parquet_table(source: TextSource) -> tuple[list[str], Iterator[list[object]]]:
    """The names of a Parquet file's columns, and its rows, with a value for every column."""
    pa, pq = _pyarrow(source)

    def rows() -> Iterator[list[object]]:
        with _reading_parquet(pa, source.name), pq.ParquetFile(source.path) as file:
            batches = (
                file.iter_batches(batch_size=_PARQUET_BATCH)
                if source.limits is None
                else _limited_batches(file.metadata, source, source.limits)
            )
            for batch in batches:
                yield from (list(row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))

    with _reading_parquet(pa, source.name), pq.ParquetFile(source.path) as file:
        return list(file.schema_arrow.names), rows()


def _limited_batches(metadata: Any, source: TextSource, limits: ReadLimits) -> Iterator[Any]:
    """The batches of a Parquet file of a stranger, a bounded number of bytes at a time.

    What the footer tells is checked before anything is unpacked. Texts are read as dictionaries, in which a text that
    stands in a million rows is there once, and counted before they become Python values.
    """
    import pyarrow.parquet as pq

    limits.check("file_rows", metadata.num_rows, source.name)
    limits.check("file_columns", metadata.num_columns, source.name)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [[group.column(place) for place in range(metadata.num_columns)] for group in groups]
    widths = [max(8, metadata.schema.column(place).length or 0) for place in range(metadata.num_columns)]
    told = sum(
        max(chunk.total_uncompressed_size, chunk.num_values * width)
        for row in chunks
        for chunk, width in zip(row, widths, strict=True)
    )
    limits.check("unpacked_bytes", told, source.name)
    # Each value repeats a part of the one before: the chunk says nothing about their size, and few are read at once.
    prefixed = [[chunk for chunk in row if "DELTA_BYTE_ARRAY" in chunk.encodings] for row in chunks]
    repeated = {
        chunk.path_in_schema
        for row in chunks
        for chunk in row
        if chunk.physical_type == "BYTE_ARRAY" and "DELTA_BYTE_ARRAY" not in chunk.encodings
    } - {chunk.path_in_schema for row in prefixed for chunk in row}
    unpacked = 0
    with pq.ParquetFile(source.path, read_dictionary=sorted(repeated)) as file:
        for number, row in enumerate(prefixed):
            largest = max((chunk.total_uncompressed_size for chunk in row), default=0)
            size = max(1, min(_PARQUET_BATCH, _PARQUET_PIECE // largest if largest else _PARQUET_BATCH))
            for batch in file.iter_batches(batch_size=size, row_groups=[number]):
                here = sum(map(_unpacked_bytes, batch.columns))
                unpacked += here
                limits.check("unpacked_bytes", unpacked, source.name)
                step = max(1, batch.num_rows * _PARQUET_PIECE // max(_PARQUET_PIECE, here))
                yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


def _unpacked_bytes(array: Any) -> int:
    """Bytes of an Arrow array with its dictionaries expanded."""
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


def _pyarrow(source: TextSource) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading Parquet") from None
    if source.is_pipe:
        raise DataError(f"{source.name}: Parquet cannot be read from a pipe; save it to a file first")
    _open(Path(source.path)).close()  # for the messages about files that are not there
    return pa, pq


@contextlib.contextmanager
def _reading_parquet(pa: Any, name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: cannot be read as Parquet: {error}") from error


def _parquet_rows(source: TextSource, chosen: list[str]) -> Iterator[Row]:
    pa, pq = _pyarrow(source)
    with _reading_parquet(pa, source.name), pq.ParquetFile(source.path) as file:
        names = list(file.schema_arrow.names)
        name = names[choose_column(names, source.column, source.name)]
        kept = [names[named_column(names, other, source.name)] for other in source.keep]
        _check_string_type(pa, file.schema_arrow.field(name).type, name, source.name)
        chosen.append(name)
        wanted = list(dict.fromkeys([name, *kept]))
        row = 0
        for batch in file.iter_batches(batch_size=_PARQUET_BATCH, columns=wanted):
            yield from _batch_rows(batch, name, kept, f"{source.name}, row", row)
            row += batch.num_rows


def _batch_rows(batch: Any, name: str, kept: list[str], where: str, before: int) -> Iterator[Row]:
    texts = batch.column(name).to_pylist()
    others = {other: batch.column(other).to_pylist() for other in kept}
    for position, text in enumerate(texts):
        if text is None:
            raise DataError(f"{where} {before + position + 1} (from 1): expected a text, but {name!r} holds null")
        yield Row(text, {other: values[position] for other, values in others.items()})


def _check_string_type(pa: Any, kind: Any, name: str, where: str) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_view = getattr(pa.types, "is_string_view", lambda _: False)
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or is_view(inner)):
        raise DataError(
            f"{where}: expected texts in column {name!r}, but its type is {kind}. Choose another (--column)"
        )
