"""Bytes of unknown encoding -> text, or an error that names the line.

A byte-order mark decides at once (UTF-8, UTF-16, UTF-32). Otherwise the bytes are UTF-8, unless they are not valid
UTF-8 and look like Korean in cp949 (which contains EUC-KR). The two mistakes to avoid are opposite: reading a UTF-8
file with one damaged byte as cp949 (all of it becomes nonsense), and refusing the cp949 files that Korean Windows
writes. So cp949 is taken only when four things hold of the whole input:

- every byte of it decodes as cp949;
- of its lines that are not ASCII, at most one in five is valid UTF-8 (a whole line of Korean cp949 hardly ever is);
- fewer than three quarters of its non-ASCII bytes form valid UTF-8 sequences (in damaged UTF-8 nearly all do; in
  Korean cp949 about a quarter do by chance, in single sentences up to two thirds);
- most of its double-byte characters are the 2,350 common Hangul syllables (bytes B0A1 to C8FE). Real Korean text is
  almost all there, misread UTF-8 and Latin-1 are not.

A file is scanned once before it is read, at about the speed of the disk, so that a broken byte in its last line is
an error now and not after hours of encoding. A pipe can only be read once: it is decided on the first piece that is
not ASCII, and from there on decoded strictly.
"""

from __future__ import annotations

import codecs
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import BinaryIO

from munjang.errors import DataError, InputError, MunjangWarning

BLOCK = 1 << 20  # bytes read at once

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HIGH = re.compile(rb"[\x80-\xff]+")
_UTF8_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}",
)
_CP949_CHARACTER = re.compile(rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]")
_CSV_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_COMMON_HANGUL = re.compile(rb"[\xb0-\xc8][\xa1-\xfe]")


@dataclass(frozen=True)
class _Failure:
    byte: int  # offset of the first byte that does not decode
    line: int  # counted from 1
    value: int  # that byte


def check_encoding(encoding: str) -> None:
    """Raise if Python knows no text encoding of this name."""
    try:
        b" ".decode(encoding)
    except UnicodeError:  # one byte is no UTF-16, but the name is known
        return
    except LookupError:  # also for codecs that do not make text, such as base64
        raise InputError(
            f"unknown encoding {encoding!r}: expected a name such as utf-8, cp949, euc-kr or utf-16"
        ) from None


def detect_encoding(open_file: Callable[[], BinaryIO], name: str, *, byte: int = 0, line: int = 1) -> str:
    """Find the encoding of a file that can be opened twice; cp949 is announced by a MunjangWarning.

    `byte` and `line` say where the file's first byte stands in the whole, for messages.
    """
    with open_file() as file:
        head = file.read(BLOCK)
        marked = _from_mark(head)
        if marked:
            return marked
        _refuse_unmarked_utf16(head, name)
        failure = _first_failure(chain([head], iter(lambda: file.read(BLOCK), b"")), byte, line)
    if failure is None:
        return "utf-8"
    with open_file() as file:
        korean = _is_korean_cp949(file)
    if not korean:
        raise DataError(
            f"{name}, line {failure.line}: byte {failure.value:#04x} at offset {failure.byte:,} is not valid UTF-8,"
            " and the file as a whole does not read as Korean cp949 either."
            " Repair that line, or pass the encoding (--encoding NAME) if you know it"
        )
    warnings.warn(
        f"{name} is not UTF-8 (line {failure.line}); read as cp949 (Korean Windows, EUC-KR)."
        " Pass the encoding (--encoding NAME) if that is wrong",
        MunjangWarning,
        stacklevel=2,
    )
    return "cp949"


def decode(blocks: Iterable[bytes], encoding: str, name: str, *, byte: int = 0, line: int = 1) -> Iterator[str]:
    """Decode strictly, piece by piece; an error names line and byte, counted on from `line` and `byte`."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")

    def pieces() -> Iterator[tuple[bytes, bool]]:
        for block in blocks:
            yield block, False
        yield b"", True

    for block, last in pieces():
        try:
            text = decoder.decode(block, last)
        except UnicodeDecodeError as error:
            held_back = len(error.object) - len(block)  # an unfinished character from the block before
            offset = byte - held_back + error.start
            broken = line + error.object[: error.start].count(b"\n")
            raise DataError(
                f"{name}, line {broken}: byte {error.object[error.start]:#04x} at offset {offset:,} is not valid"
                f" {encoding} ({error.reason}). Repair that line, or pass the right encoding (--encoding NAME)"
            ) from None
        except UnicodeError as error:  # utf-16 and utf-32 without the mark that they need
            raise DataError(f"{name}: not valid {encoding}: {error}. Pass the right --encoding NAME") from None
        byte += len(block)
        line += text.count("\n")
        if text:
            yield text


def decode_pipe(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode a stream that can be read only once: ASCII passes; the first other piece decides."""
    pieces = _whole_lines(blocks)
    byte, line = 0, 1
    for piece in pieces:
        if byte == 0:
            _refuse_unmarked_utf16(piece, name)
        if not piece.isascii():
            encoding = detect_encoding(partial(io.BytesIO, piece), name, byte=byte, line=line)
            yield from decode(chain([piece], pieces), encoding, name, byte=byte, line=line)
            return
        yield piece.decode("ascii")
        byte += len(piece)
        line += piece.count(b"\n")


def text_lines(texts: Iterable[str]) -> Iterator[str]:
    """Cut at line feeds only (not at U+2028, U+0085...), and drop the line feed, or carriage return and line feed."""
    for whole in _whole_texts(texts):
        if whole.endswith("\n"):
            plain = whole[:-1].replace("\r\n", "\n") if "\r\n" in whole else whole[:-1]
            yield from (plain.removesuffix("\r") if whole.endswith("\r\n") else plain).split("\n")
        else:
            yield whole  # the last line, without an end


def csv_lines(texts: Iterable[str]) -> Iterator[str]:
    """Cut after line feeds and lone carriage returns, keeping them: what csv.reader expects."""
    for whole in _whole_texts(texts):
        if "\r" in whole:
            yield from (match.group() for match in _CSV_LINE.finditer(whole))
        else:
            *lines, last = whole.split("\n")
            yield from (line + "\n" for line in lines)
            if last:
                yield last


def _whole_texts(texts: Iterable[str]) -> Iterator[str]:
    """Pieces that end with a line feed, and perhaps a last line that does not, which is then a piece of its own."""
    unfinished: list[str] = []
    for text in texts:
        end = text.rfind("\n") + 1
        if end == 0:
            unfinished.append(text)
            continue
        yield "".join([*unfinished, text[:end]])
        unfinished = [text[end:]] if end < len(text) else []
    if unfinished:
        yield "".join(unfinished)


def _from_mark(head: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    return None


def _refuse_unmarked_utf16(head: bytes, name: str) -> None:
    """ASCII written as UTF-16 is valid UTF-8 with a NUL after every letter: it must not pass as text."""
    sample = head[:4096]
    if _from_mark(head) or len(sample) < 8 or sample.count(0) * 4 < len(sample):
        return
    order = "le" if sample[1::2].count(0) >= sample[0::2].count(0) else "be"
    raise DataError(
        f"{name}: a quarter or more of its bytes are NUL, so it is no UTF-8 text."
        f" If it is UTF-16 without a byte-order mark, pass --encoding utf-16-{order}"
    )


def _first_failure(blocks: Iterable[bytes], byte: int, line: int) -> _Failure | None:
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    block = b""
    try:
        for block in blocks:
            decoder.decode(block)
            byte += len(block)
            line += block.count(b"\n")
        block = b""
        decoder.decode(b"", True)
    except UnicodeDecodeError as error:
        held_back = len(error.object) - len(block)
        return _Failure(
            byte=byte - held_back + error.start,
            line=line + error.object[: error.start].count(b"\n"),
            value=error.object[error.start],
        )
    return None


def _is_korean_cp949(file: BinaryIO) -> bool:
    high = sequences = characters = hangul = 0
    lines = Counter[bool]()  # how many lines that are not ASCII are valid UTF-8, and how many are not
    for piece in _whole_lines(iter(lambda: file.read(BLOCK), b"")):
        try:
            piece.decode("cp949")
        except UnicodeDecodeError:
            return False
        lines.update(_is_utf8(line) for line in piece.split(b"\n") if not line.isascii())
        high += sum(map(len, _HIGH.findall(piece)))
        sequences += sum(map(len, _UTF8_SEQUENCE.findall(piece)))
        found = _CP949_CHARACTER.findall(piece)
        characters += len(found)
        hangul += sum(1 for character in found if _COMMON_HANGUL.fullmatch(character))
    return lines[True] * 4 <= lines[False] and sequences * 4 < high * 3 and hangul * 2 > characters


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces that end with a line feed, which is never a part of a longer character in UTF-8 or cp949."""
    unfinished: list[bytes] = []
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end == 0:
            unfinished.append(block)
            continue
        yield b"".join([*unfinished, block[:end]])
        unfinished = [block[end:]] if end < len(block) else []
    if unfinished:
        yield b"".join(unfinished)
