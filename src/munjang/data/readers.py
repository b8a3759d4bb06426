"""Files as rows: txt, csv, tsv, jsonl, json and Parquet; text formats also compressed (gz, xz, bz2) and from stdin.

A file is read in bounded memory. Nothing is repaired or skipped, because one dropped row shifts every vector after it:
a broken byte or JSON value is a `DataError` that names the line, and a record with the wrong number of fields is a row
with a problem.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from munjang.data.encodings import BLOCK, csv_lines, decode, decode_pipe, detect_encoding, text_lines
from munjang.data.rows import Format, ReadLimits, ReadOptions, Row, RowSource, Table, kind_of, unique_keys
from munjang.errors import DataError

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
_LARGEST_FIELD = 2**31 - 1  # of a csv; the default of the csv module, 131,072, is one long article
_LARGEST_ITEM = 1 << 26  # characters of a JSON value; a longer one that does not end is taken for broken
_SPACE = re.compile(r"[ \t\n\r]*")


class RowFile(RowSource):
    """The rows of one file; see `open_rows`."""

    error = DataError

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.is_stdin = str(path) == "-"
        is_pipe = self.is_stdin or (path.exists() and not path.is_file() and not path.is_dir())
        name = options.name or ("stdin" if self.is_stdin else str(path))
        super().__init__(name, self._table, reiterable=not is_pipe)
        self.short_name = name if self.is_stdin else path.name

    @property
    def kind(self) -> Format:
        """The format: of the options, or of the suffix."""
        if self.options.format is not None:
            return self.options.format
        if self.is_stdin:
            return "txt"
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
            suffixes.pop()
        if not suffixes or suffixes[-1] not in FORMAT_SUFFIXES:
            raise DataError(
                f"{self.name}: unknown format. Expected a name that ends in {', '.join(FORMAT_SUFFIXES)} (text formats "
                f"also with {', '.join(COMPRESSED_SUFFIXES)}); otherwise pass the format (--format)"
            )
        return FORMAT_SUFFIXES[suffixes[-1]]

    def content(self) -> Iterator[str]:
        """Yield the decoded content of a text format in pieces."""
        encoding = self.options.encoding
        if self.is_stdin:
            yield from self._decode(sys.stdin.buffer, encoding)
            return
        with _reading(self.name):
            if encoding is None and self.reiterable:
                encoding = detect_encoding(self._open_file, self.name)
            file = self._open_file()
        with file:
            yield from self._decode(file, encoding)

    def _decode(self, file: BinaryIO, encoding: str | None) -> Iterator[str]:
        blocks = _blocks(file, self.name)
        if encoding is None:
            return decode_pipe(blocks, self.name)
        is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        return decode(blocks, "utf-8-sig" if is_utf8 else encoding, self.name)

    def _open_file(self) -> BinaryIO:
        file = open_binary(self.path)
        limits = self.options.limits
        return file if limits is None else cast(BinaryIO, _LimitedFile(file, limits, self.name))

    def _table(self) -> Table:
        table = self._unlimited_table()
        limits = self.options.limits
        if limits is None:
            return table
        limits.check("file_columns", len(table.names), self.name)

        def read(columns: Sequence[str] | None) -> Iterator[Row]:
            for number, row in enumerate(table.read(columns), start=1):
                limits.check("file_rows", number, self.name)
                limits.check("file_columns", len(row.values), self.name)
                yield row

        return Table(table.names, read)

    def _unlimited_table(self) -> Table:
        kind = self.kind
        if kind == "txt":
            lines = enumerate(text_lines(self.content()), start=1)
            read = lambda columns: (Row(f"line {number}", {"text": line}) for number, line in lines)  # noqa: E731
            return Table(("text",), read, has_names=False)
        if kind == "csv" or kind == "tsv":
            quoting = (kind == "csv") if self.options.quoting is None else self.options.quoting
            return self._separated("," if kind == "csv" else "\t", quoting=quoting)
        if kind == "parquet":
            from munjang.data.parquet import open_parquet

            if not self.reiterable:
                raise DataError(f"{self.name}: Parquet cannot be read from a pipe; save it to a file first")
            return open_parquet(self.path, self.name, self.options.limits)
        return self._json(json_lines if kind == "jsonl" else json_list)

    def _separated(self, delimiter: str, *, quoting: bool) -> Table:
        """A csv or tsv file. Blank lines are skipped, but are empty texts where there is a single column."""
        records = _records(self.content(), delimiter, quoting=quoting, name=self.name)
        first = next((record for record in records if record[1]), None)
        if first is None:
            return Table((), lambda columns: iter(()))
        width = len(first[1])
        names = tuple(first[1]) if self.options.header else tuple(map(str, range(width)))
        keys = unique_keys(names)
        rest = records if self.options.header else chain([first], records)

        def read(columns: Sequence[str] | None) -> Iterator[Row]:
            for number, fields in rest:
                if len(fields) == width:
                    yield Row(f"line {number}", dict(zip(keys, fields, strict=True)))
                elif fields:
                    problem = "too many fields" if len(fields) > width else "too few fields"
                    yield Row(f"line {number}", dict(zip(map(str, range(len(fields))), fields, strict=True)), problem)
                elif width == 1:
                    yield Row(f"line {number}", {keys[0]: ""})

        return Table(names, read)

    def _json(self, read_values: Callable[[Iterable[str], str], Iterator[tuple[str, object]]]) -> Table:
        """Objects, the first of which names the columns; a string is an object with `text`."""
        values = read_values(self.content(), self.name)
        first = next(values, None)
        if first is None:
            return Table((), lambda columns: iter(()))

        def row(place: str, value: object) -> Row:
            if isinstance(value, str):
                value = {"text": value}
            if isinstance(value, dict) and value:
                return Row(place, value)
            got = "an empty one" if value == {} else kind_of(value)
            return Row(
                place,
                {"": value},
                f'expected an object with columns, such as {{"text": "..."}}, or a string, got {got}',
            )

        start = row(*first)
        if start.problem:
            raise DataError(f"{self.where(start)}: {start.problem}")
        rows = (row(place, value) for place, value in values)
        return Table(tuple(start.values), lambda columns: chain([start], rows))


def read_lines(path: str | Path, *, encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of a text file, decompressed and decoded, blank ones too."""
    return text_lines(RowFile(Path(path), ReadOptions(format="txt", encoding=encoding)).content())


def open_binary(path: Path) -> BinaryIO:
    """Open a file, decompressed where its name says that it is compressed."""
    if path.is_dir():
        raise DataError(f"{path}: expected a file, got a folder")
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    opener = COMPRESSED_SUFFIXES.get(path.suffix.lower())
    return cast(BinaryIO, opener(path)) if opener else path.open("rb")


def json_lines(texts: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Yield place and value of every line that is not blank."""
    for number, line in enumerate(text_lines(texts), start=1):
        if line and not line.isspace():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{name}, line {number}: expected a JSON value, but {error}") from None
            yield f"line {number}", value


def json_list(texts: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Yield place and value of every item of one list, without holding the list in memory."""
    cursor = _JsonCursor(texts)
    opening = cursor.next_mark()
    if opening == "":
        return
    if opening != "[":
        raise DataError(
            f"{name}: expected a JSON list, [...], but it begins with {opening!r}. If every line is an object, pass "
            "--format jsonl"
        )
    number, mark = 0, ","
    if cursor.peek_mark() == "]":
        mark = cursor.next_mark()
    while mark != "]":
        number += 1
        where = f"{name}, item {number}"
        yield f"item {number}", cursor.value(where)
        mark = cursor.next_mark()
        if mark not in ("]", ","):
            raise DataError(f"{where}: expected ',' or ']' after it, got {mark or 'the end of the file'!r}")
    extra = cursor.next_mark()
    if extra:
        raise DataError(f"{name}: expected nothing after the list, got {extra!r}")


class _JsonCursor:
    """A position in JSON text that arrives in pieces."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = iter(texts)
        self._buffer = ""
        self._at = 0
        self._ended = False
        self._decoder = json.JSONDecoder()

    def peek_mark(self) -> str:
        """Return the next character that is not white space, or nothing at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._fetch():
                return ""

    def next_mark(self) -> str:
        mark = self.peek_mark()
        self._at += len(mark)
        return mark

    def value(self, where: str) -> object:
        """Return the value that starts here; more text is fetched until it is complete."""
        self.peek_mark()
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._buffer, self._at)
                return value
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError) as error:  # a number too long, a nesting too deep
                raise DataError(f"{where}: the JSON value cannot be read: {error}") from None
            if len(self._buffer) - self._at > _LARGEST_ITEM or not self._fetch():
                raise DataError(f"{where}: expected a JSON value, but: {problem}")

    def _fetch(self) -> bool:
        """Fetch at least as much as is buffered, so that a long value is parsed a logarithmic number of times."""
        wanted = len(self._buffer) - self._at
        pieces: list[str] = []
        fetched = 0
        while not self._ended and fetched <= wanted:
            piece = next(self._texts, "")
            self._ended = not piece
            pieces.append(piece)
            fetched += len(piece)
        self._buffer = self._buffer[self._at :] + "".join(pieces)
        self._at = 0
        return fetched > 0


def _records(texts: Iterable[str], delimiter: str, *, quoting: bool, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and fields of every record; a blank line has no fields.

    csv is parsed strictly: the lenient mode of the csv module lets one unclosed quotation mark swallow the rest of a
    file. tsv is not quoted by default: KorSTS and others have bare quotation marks that are part of the text.
    """
    if not quoting:
        for number, line in enumerate(text_lines(texts), start=1):
            yield number, line.split(delimiter) if line else []
        return
    if csv.field_size_limit() < _LARGEST_FIELD:
        csv.field_size_limit(_LARGEST_FIELD)  # for the whole process: csv has no other setting
    reader = csv.reader(csv_lines(texts), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{name}, in the record that starts at line {start}: {error}. If its quotation marks are plain text, "
                "pass --quoting off"
            ) from None
        yield start, fields


class _LimitedFile:
    """A file that can be read up to its limit of unpacked bytes."""

    def __init__(self, file: BinaryIO, limits: ReadLimits, name: str) -> None:
        self._file = file
        self._check = partial(limits.check, "unpacked_bytes", name=name)
        self._count = 0

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._count += len(block)
        self._check(self._count)
        return block

    def __enter__(self) -> _LimitedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield blocks of at most BLOCK bytes as soon as they arrive: a slow pipe is not waited for."""
    read = getattr(file, "read1", file.read)
    while True:
        with _reading(name):
            block = read(BLOCK)
        if not block:
            return
        yield block


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{name}: cannot be read to the end: {error}") from error
