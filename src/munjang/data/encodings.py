"""Bytes of unknown encoding -> text, or an error that names the line.

A byte-order mark decides at once. Otherwise the bytes are UTF-8, unless they are not valid UTF-8 and look like Korean
in cp949 (which contains EUC-KR). Two opposite mistakes must be avoided: reading a UTF-8 file with one damaged byte as
cp949 turns all of it into nonsense, and refusing cp949 refuses what Korean Windows writes. A file is scanned once
before it is read, so that a broken byte in its last line fails now and not after hours of encoding. A pipe can be read
only once: the first piece that is not ASCII decides, and from there on decoding is strict.
"""

from __future__ import annotations

import codecs
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import AnyStr, BinaryIO

from munjang.errors import DataError, InputError, MunjangWarning

BLOCK = 1 << 20  # bytes read at once

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
_CSV_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class _BrokenByte(DataError):
    """Bytes that are not valid in the encoding; `place` is line, offset and value of the first of them."""

    def __init__(self, message: str, place: tuple[int, int, int]) -> None:
        super().__init__(message)
        self.place = place


def check_encoding(encoding: str) -> None:
    """Raise `InputError` if Python has no text encoding of this name."""
    try:
        b" ".decode(encoding)
    except UnicodeError:  # one byte is not UTF-16, but the name is known
        return
    except LookupError:  # also for codecs that do not make text, such as base64
        raise InputError(
            f"unknown encoding {encoding!r}: expected a name such as utf-8, cp949, euc-kr or utf-16"
        ) from None


def detect_encoding(open_file: Callable[[], BinaryIO], name: str, *, byte: int = 0, line: int = 1) -> str:
    """Return the encoding of a file that can be opened twice; cp949 comes with a `MunjangWarning`.

    Args:
        byte, line: where the first byte of the file is in the whole source, for messages.
    """
    with open_file() as file:
        head = file.read(BLOCK)
        marked = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
        if marked:
            return marked
        _refuse_unmarked_utf16(head, name)
        try:
            for _ in decode(chain([head], iter(lambda: file.read(BLOCK), b"")), "utf-8", name, byte=byte, line=line):
                pass
        except _BrokenByte as error:
            failed_line, offset, value = error.place
        else:
            return "utf-8"
    with open_file() as file:
        if not _is_korean_cp949(file):
            raise DataError(
                f"{name}, line {failed_line}: byte {value:#04x} at offset {offset:,} is not valid UTF-8, and the file "
                "as a whole does not read as Korean cp949 either. Repair that line, or pass the encoding "
                "(--encoding NAME) if you know it"
            )
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
    for block, last in chain(((block, False) for block in blocks), [(b"", True)]):
        try:
            text = decoder.decode(block, last)
        except UnicodeDecodeError as error:
            held_back = len(error.object) - len(block)  # an unfinished character from the block before
            offset = byte - held_back + error.start
            broken = line + error.object[: error.start].count(b"\n")
            value = error.object[error.start]
            raise _BrokenByte(
                f"{name}, line {broken}: byte {value:#04x} at offset {offset:,} is not valid {encoding} "
                f"({error.reason}). Repair that line, or pass the right encoding (--encoding NAME)",
                (broken, offset, value),
            ) from None
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
            encoding = detect_encoding(partial(io.BytesIO, piece), name, byte=byte, line=line)
            yield from decode(chain([piece], pieces), encoding, name, byte=byte, line=line)
            return
        yield piece.decode("ascii")
        byte += len(piece)
        line += piece.count(b"\n")


def text_lines(texts: Iterable[str]) -> Iterator[str]:
    """Cut at line feeds only (not at U+2028, U+0085...), without the line feed or carriage return and line feed."""
    for piece in whole_lines(texts):
        if piece.endswith("\n"):
            lines = piece[:-1].replace("\r\n", "\n")
            yield from (lines.removesuffix("\r") if piece.endswith("\r\n") else lines).split("\n")
        else:
            yield piece  # the last line, without an end


def csv_lines(texts: Iterable[str]) -> Iterator[str]:
    """Cut after line feeds and lone carriage returns and keep them, as csv.reader expects."""
    for piece in whole_lines(texts):
        if "\r" in piece:
            yield from (match.group() for match in _CSV_LINE.finditer(piece))
        else:
            *lines, last = piece.split("\n")
            yield from (line + "\n" for line in lines)
            if last:
                yield last


def whole_lines(blocks: Iterable[AnyStr]) -> Iterator[AnyStr]:
    """Regroup blocks so that each ends with a line feed, except perhaps the last.

    A line feed is never part of a longer character in UTF-8 or cp949.
    """
    unfinished: list[AnyStr] = []
    for block in blocks:
        end = block.rfind("\n" if isinstance(block, str) else b"\n") + 1
        if end == 0:
            unfinished.append(block)
            continue
        unfinished.append(block[:end])
        yield block[:0].join(unfinished)
        unfinished = [block[end:]] if end < len(block) else []
    if unfinished:
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


def _is_korean_cp949(file: BinaryIO) -> bool:
    """Whether bytes that are not UTF-8 are Korean cp949. Four conditions on the whole input, all needed:

    - every byte decodes as cp949;
    - of the lines that are not ASCII at most one in five is valid UTF-8 (whole lines of cp949 hardly ever are);
    - under three quarters of the non-ASCII bytes form UTF-8 sequences (nearly all in damaged UTF-8, about a quarter
      by chance in Korean cp949, up to two thirds in single sentences);
    - most double-byte characters are the 2,350 common Hangul syllables (B0A1 to C8FE), unlike misread UTF-8 or Latin-1.
    """
    valid = invalid = high = sequences = characters = hangul = 0
    for piece in whole_lines(iter(lambda: file.read(BLOCK), b"")):
        try:
            piece.decode("cp949")
        except UnicodeDecodeError:
            return False
        for line in piece.split(b"\n"):
            if not line.isascii():
                is_valid = _is_utf8(line)
                valid += is_valid
                invalid += not is_valid
        high += len(_HIGH.findall(piece))
        sequences += sum(map(len, _UTF8_SEQUENCE.findall(piece)))
        pairs = _CP949_CHARACTER.findall(piece)
        characters += len(pairs)
        hangul += sum(1 for pair in pairs if _COMMON_HANGUL.fullmatch(pair))
    return valid * 4 <= invalid and sequences * 4 < high * 3 and hangul * 2 > characters


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
