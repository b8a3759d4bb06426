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
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from munjang.data.encodings import BLOCK, csv_lines, decode, decode_pipe, detect_encoding, text_lines
from munjang.data.rows import EMPTY, Format, ReadOptions, Row, RowSource, Table, table_of, unique_keys
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
        if encoding is None and self.reiterable:
            encoding = detect_encoding(self._blocks, self.name)
        if encoding is None:
            return decode_pipe(self._blocks(), self.name)
        is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        return decode(self._blocks(), "utf-8-sig" if is_utf8 else encoding, self.name)

    def _blocks(self) -> Iterator[bytes]:
        """Yield blocks of at most BLOCK bytes; those of a pipe as soon as they arrive."""
        limits, count = self.options.limits, 0
        try:
            with contextlib.nullcontext(sys.stdin.buffer) if self.is_stdin else open_binary(self.path) as file:
                read = file.read if self.reiterable else getattr(file, "read1", file.read)
                while block := read(BLOCK):
                    count += len(block)
                    if limits is not None:
                        limits.check("unpacked_bytes", count, self.name)
                    yield block
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise DataError(f"{self.name}: cannot be read to the end: {error}") from error

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

        return replace(table, read=read)

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
            from munjang.data.tables import open_parquet

            if not self.reiterable:
                raise DataError(f"{self.name}: Parquet cannot be read from a pipe; save it to a file first")
            open_binary(self.path).close()  # for the errors about missing files
            return open_parquet(self.path, self.name, self.options.limits)
        return table_of((json_lines if kind == "jsonl" else json_list)(self.content(), self.name), self)

    def _separated(self, delimiter: str, *, quoting: bool) -> Table:
        """A csv or tsv file. Blank lines are skipped, but are empty texts where there is a single column."""
        records = _records(self.content(), delimiter, quoting=quoting, name=self.name)
        first = next((record for record in records if record[1]), None)
        if first is None:
            return EMPTY
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
    pieces, decode = iter(texts), json.JSONDecoder().raw_decode
    buffer, at, number = "", 0, 0

    def fetch() -> bool:
        """Fetch at least as much as is buffered, so that a long value is parsed a logarithmic number of times."""
        nonlocal buffer, at
        fetched = [buffer[at:]]
        missing = len(fetched[0])
        while missing >= 0 and (piece := next(pieces, "")):
            fetched.append(piece)
            missing -= len(piece)
        buffer, at = "".join(fetched), 0
        return len(fetched) > 1

    def peek() -> str:
        """Return the next character that is not white space, or nothing at the end."""
        nonlocal at
        while True:
            at = _SPACE.match(buffer, at).end()  # type: ignore[union-attr]  # it matches everywhere
            if at < len(buffer) or not fetch():
                return buffer[at : at + 1]

    opening = peek()
    if not opening:
        return
    if opening != "[":
        raise DataError(
            f"{name}: expected a JSON list, [...], but it begins with {opening!r}. If every line is an object, pass "
            "--format jsonl"
        )
    at += 1
    mark = "]" if peek() == "]" else ","
    at += mark == "]"
    while mark == ",":
        number += 1
        where = f"{name}, item {number}"
        peek()
        while True:
            try:
                value, at = decode(buffer, at)
                break
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError) as error:  # a number too long, a nesting too deep
                raise DataError(f"{where}: the JSON value cannot be read: {error}") from None
            if len(buffer) - at > _LARGEST_ITEM or not fetch():
                raise DataError(f"{where}: expected a JSON value, but: {problem}")
        yield f"item {number}", value
        mark = peek()
        at += len(mark)
        if mark not in ("]", ","):
            raise DataError(f"{where}: expected ',' or ']' after it, got {mark or 'the end of the file'!r}")
    if extra := peek():
        raise DataError(f"{name}: expected nothing after the list, got {extra!r}")


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
