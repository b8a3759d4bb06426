"""Files as rows: txt, csv, tsv, jsonl, json and Parquet; text formats also compressed (gz, xz, bz2) and from stdin.

A file is read in bounded memory. Nothing is repaired or skipped, because one dropped row shifts every vector after it:
a broken byte or JSON value is a `DataError` that names the line, and a record with the wrong number of fields is a row
with a problem.

Encodings: a byte-order mark decides at once. Otherwise the bytes are UTF-8, unless they are not valid UTF-8 and look
like Korean in cp949 (which contains EUC-KR). Reading a UTF-8 file with one damaged byte as cp949 would turn all of it
into nonsense, and refusing cp949 refuses what Korean Windows writes. A file is scanned once before it is read, so that
a broken byte in its last line fails now and not after hours of encoding. A pipe can be read only once: the first piece
that is not ASCII decides, and from there on decoding is strict.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import json
import lzma
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, AnyStr, BinaryIO, cast

from munjang.data.rows import EMPTY, Format, ReadOptions, Row, RowSource, Table, table_of
from munjang.errors import DataError, MunjangWarning

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
BLOCK = 1 << 20  # bytes read at once
_LARGEST_FIELD = 2**31 - 1  # of a csv; the default of the csv module, 131,072, is one long article
_LARGEST_ITEM = 1 << 26  # characters of a JSON value; a longer one that does not end is taken for broken
_SPACE = re.compile(r"[ \t\n\r]*")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HIGH = re.compile(rb"[\x80-\xff]")
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_CP949_CHARACTER = re.compile(rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]")
_COMMON_HANGUL = re.compile(rb"[\xb0-\xc8][\xa1-\xfe]")


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
        suffixes = [suffix.lower() for suffix in self.path.suffixes if suffix.lower() not in COMPRESSED_SUFFIXES]
        if not suffixes or suffixes[-1] not in FORMAT_SUFFIXES:
            raise DataError(
                f"{self.name}: unknown format. Expected a name that ends in {', '.join(FORMAT_SUFFIXES)} (text formats "
                f"also with {', '.join(COMPRESSED_SUFFIXES)}); otherwise pass the format (--format)"
            )
        return FORMAT_SUFFIXES[suffixes[-1]]

    def content(self) -> Iterator[str]:
        """Yield the decoded content of a text format in pieces."""
        encoding = self.options.encoding
        if encoding is None and not self.reiterable:
            return decode_pipe(self._blocks(), self.name)
        if encoding is None:
            encoding = detect_encoding(self._blocks, self.name)
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
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
        table, limits = self._unlimited_table(), self.options.limits
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
        if kind == "parquet":
            from munjang.data.tables import open_parquet

            if not self.reiterable:
                raise DataError(f"{self.name}: Parquet cannot be read from a pipe; save it to a file first")
            open_binary(self.path).close()  # for the errors about missing files
            return open_parquet(self.path, self.name, self.options.limits)
        if kind == "csv" or kind == "tsv":
            return self._separated("," if kind == "csv" else "\t")
        if kind == "txt":
            lines = enumerate(text_lines(self.content()), start=1)
            read = lambda columns: (Row(f"line {number}", {"text": line}) for number, line in lines)  # noqa: E731
            return Table(("text",), read, has_names=False)
        return table_of((json_lines if kind == "jsonl" else json_list)(self.content(), self.name), self)

    def _separated(self, delimiter: str) -> Table:
        """A csv or tsv file. Blank lines are skipped, but are empty texts where there is a single column."""
        records = self._records(delimiter)
        first = next((record for record in records if record[1]), None)
        if first is None:
            return EMPTY
        width = len(first[1])
        names = tuple(first[1]) if self.options.header else tuple(map(str, range(width)))
        rest = records if self.options.header else chain([first], records)

        def read(columns: Sequence[str] | None) -> Iterator[Row]:
            keys = table.keys
            for number, fields in rest:
                if not fields and width > 1:
                    continue
                fields = fields or [""]
                if len(fields) == width:
                    yield Row(f"line {number}", dict(zip(keys, fields, strict=True)))
                else:
                    problem = "too many fields" if len(fields) > width else "too few fields"
                    yield Row(f"line {number}", {str(at): cell for at, cell in enumerate(fields)}, problem)

        table = Table(names, read)
        return table

    def _records(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and fields of every record; a blank line has no fields.

        csv is parsed strictly: the lenient mode of the csv module lets one unclosed quotation mark swallow the rest of
        a file. tsv is not quoted by default: KorSTS and others have bare quotation marks that are part of the text.
        """
        texts, quoting = self.content(), self.options.quoting
        if not (delimiter == "," if quoting is None else quoting):
            for number, line in enumerate(text_lines(texts), start=1):
                yield number, line.split(delimiter) if line else []
            return
        if csv.field_size_limit() < _LARGEST_FIELD:
            csv.field_size_limit(_LARGEST_FIELD)  # for the whole process: csv has no other setting
        lines = chain.from_iterable(io.StringIO(piece, newline="") for piece in whole_lines(texts))  # keeps line ends
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        while True:
            start = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(
                    f"{self.name}, in the record that starts at line {start}: {error}. If its quotation marks are "
                    "plain text, pass --quoting off"
                ) from None
            yield start, fields


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file, decompressed and decoded, blank ones too."""
    return text_lines(RowFile(Path(path), ReadOptions("txt")).content())


def open_binary(path: Path) -> BinaryIO:
    """Open a file, decompressed where its name says that it is compressed."""
    if path.is_dir():
        raise DataError(f"{path}: expected a file, got a folder")
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    return cast(BinaryIO, COMPRESSED_SUFFIXES.get(path.suffix.lower(), partial(open, mode="rb"))(path))


# JSON


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
    pieces, decode_value = iter(texts), json.JSONDecoder().raw_decode
    buffer, at = "", 0

    def fetch() -> bool:
        """Fetch about as much as is buffered, so that a long value is parsed a logarithmic number of times."""
        nonlocal buffer, at
        rest = buffer[at:]
        fetched = "".join(islice(pieces, 1 + len(rest) // BLOCK))
        buffer, at = rest + fetched, 0
        return bool(fetched)

    def peek() -> str:
        """Return the next character that is not white space, or nothing at the end."""
        nonlocal at
        while True:
            at = cast(re.Match[str], _SPACE.match(buffer, at)).end()
            if at < len(buffer) or not fetch():
                return buffer[at : at + 1]

    mark = peek()
    if not mark:
        return
    if mark != "[":
        raise DataError(
            f"{name}: expected a JSON list, [...], but it begins with {mark!r}. If every line is an object, pass "
            "--format jsonl"
        )
    at += 1
    if peek() == "]":
        mark, at = "]", at + 1
    number = 0
    while mark != "]":
        number += 1
        where = f"{name}, item {number}"
        peek()
        while True:
            try:
                value, at = decode_value(buffer, at)
                break
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError) as error:  # a number too long, a nesting too deep
                raise DataError(f"{where}: the JSON value cannot be read: {error}") from None
            if len(buffer) - at > _LARGEST_ITEM or not fetch():
                raise DataError(f"{where}: expected a JSON value, but: {problem}")
        yield f"item {number}", value
        mark = peek()
        if mark not in ("]", ","):
            raise DataError(f"{where}: expected ',' or ']' after it, got {mark or 'the end of the file'!r}")
        at += 1
    if extra := peek():
        raise DataError(f"{name}: expected nothing after the list, got {extra!r}")


# Encodings


class _BrokenByte(DataError):
    """Bytes that are not valid in the encoding; `line` is that of the first of them."""

    line = 0


def detect_encoding(read: Callable[[], Iterable[bytes]], name: str, *, byte: int = 0, line: int = 1) -> str:
    """Return the encoding of bytes that can be read twice; cp949 comes with a `MunjangWarning`.

    Args:
        read: returns the bytes from their beginning, in blocks.
        byte, line: where the first byte of the file is in the whole source, for messages.
    """
    blocks = iter(read())
    head = next(blocks, b"")
    marked = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
    if marked:
        return marked
    _refuse_unmarked_utf16(head, name)
    try:
        for _ in decode(chain([head], blocks), "utf-8", name, byte=byte, line=line):
            pass
        return "utf-8"
    except _BrokenByte as error:
        if not _is_korean_cp949(read()):
            raise DataError(f"{error}. The file as a whole does not read as Korean cp949 either") from None
        failed_line = error.line
    warnings.warn(
        f"{name} is not UTF-8 (line {failed_line}); read as cp949 (Korean Windows, EUC-KR). Pass the encoding "
        "(--encoding NAME) if that is wrong",
        MunjangWarning,
        stacklevel=2,
    )
    return "cp949"


def decode(blocks: Iterable[bytes], encoding: str, name: str, *, byte: int = 0, line: int = 1) -> Iterator[str]:
    """Decode strictly, block by block; an error names line and byte, counted from `line` and `byte`."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    for block in chain(blocks, [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            held_back = len(error.object) - len(block)  # an unfinished character from the block before
            offset = byte - held_back + error.start
            broken = line + error.object[: error.start].count(b"\n")
            failure = _BrokenByte(
                f"{name}, line {broken}: byte {error.object[error.start]:#04x} at offset {offset:,} is not valid "
                f"{encoding} ({error.reason}). Repair that line, or pass the right encoding (--encoding NAME)"
            )
            failure.line = broken
            raise failure from None
        except UnicodeError as error:  # utf-16 and utf-32 without the mark that they need
            raise DataError(f"{name}: not valid {encoding}: {error}. Pass the right --encoding NAME") from None
        byte += len(block)
        line += text.count("\n")
        if text:
            yield text


def decode_pipe(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode a stream that can be read only once: ASCII passes, the first other piece decides."""
    pieces = whole_lines(blocks)
    byte, line = 0, 1
    for piece in pieces:
        if byte == 0:
            _refuse_unmarked_utf16(piece, name)
        if not piece.isascii():
            encoding = detect_encoding(partial(iter, [piece]), name, byte=byte, line=line)
            yield from decode(chain([piece], pieces), encoding, name, byte=byte, line=line)
            return
        yield piece.decode("ascii")
        byte += len(piece)
        line += piece.count(b"\n")


def text_lines(texts: Iterable[str]) -> Iterator[str]:
    """Cut at line feeds only (not at U+2028, U+0085...), without the line feed or carriage return and line feed."""
    for piece in whole_lines(texts):
        if piece.endswith("\n"):
            yield from piece.replace("\r\n", "\n").removesuffix("\n").split("\n")
        else:
            yield piece  # the last line, without an end


def whole_lines(blocks: Iterable[AnyStr]) -> Iterator[AnyStr]:
    """Regroup blocks so that each ends with a line feed, except perhaps the last.

    A line feed is never part of a longer character in UTF-8 or cp949.
    """
    unfinished: list[AnyStr] = []
    for block in blocks:
        end = block.rfind("\n" if isinstance(block, str) else b"\n") + 1
        unfinished.append(block[: end or None])
        if end:
            yield block[:0].join(unfinished)
            unfinished = [block[end:]]
    if any(unfinished):
        yield unfinished[0][:0].join(unfinished)


def _refuse_unmarked_utf16(head: bytes, name: str) -> None:
    """ASCII written as UTF-16 is valid UTF-8 with a NUL after every letter: it must not pass as text."""
    sample = head[:4096]
    if any(head.startswith(mark) for mark, _ in _MARKS) or len(sample) < 8 or sample.count(0) * 4 < len(sample):
        return
    order = "le" if sample[1::2].count(0) >= sample[0::2].count(0) else "be"
    raise DataError(
        f"{name}: at least a quarter of its bytes are NUL, so it is not UTF-8 text. If it is UTF-16 without a "
        f"byte-order mark, pass --encoding utf-16-{order}"
    )


def _is_korean_cp949(blocks: Iterable[bytes]) -> bool:
    """Whether bytes that are not UTF-8 are Korean cp949. Four conditions on the whole input, all needed:

    - every byte decodes as cp949;
    - of the lines that are not ASCII at most one in five is valid UTF-8 (whole lines of cp949 hardly ever are);
    - under three quarters of the non-ASCII bytes form UTF-8 sequences (nearly all in damaged UTF-8, about a quarter
      by chance in Korean cp949, up to two thirds in single sentences);
    - most double-byte characters are the 2,350 common Hangul syllables (B0A1 to C8FE), unlike misread UTF-8 or Latin-1.
    """
    lines = valid = high = sequences = characters = hangul = 0
    for piece in whole_lines(blocks):
        if not decodes(piece, "cp949"):
            return False
        foreign = [line for line in piece.split(b"\n") if not line.isascii()]
        lines += len(foreign)
        valid += sum(decodes(line, "utf-8") for line in foreign)
        high += len(_HIGH.findall(piece))
        sequences += sum(map(len, _UTF8_SEQUENCE.findall(piece)))
        pairs = _CP949_CHARACTER.findall(piece)
        characters += len(pairs)
        hangul += sum(_COMMON_HANGUL.fullmatch(pair) is not None for pair in pairs)
    return valid * 5 <= lines and sequences * 4 < high * 3 and hangul * 2 > characters


def decodes(content: bytes, encoding: str) -> bool:
    """Whether the bytes are valid in the encoding."""
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
