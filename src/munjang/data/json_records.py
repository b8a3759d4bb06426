"""JSON lines, or one JSON list -> the values in it, one at a time, whatever the size of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from munjang.data.encodings import text_lines
from munjang.errors import DataError

_LARGEST_ITEM = 1 << 26  # characters; beyond this an item that does not end is taken for broken
_SPACE = re.compile(r"[ \t\n\r]*")


def json_lines(texts: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Place and value of every line that is not blank."""
    for number, line in enumerate(text_lines(texts), start=1):
        if line and not line.isspace():
            where = f"{name}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: expected a JSON value, but {error}") from None
            yield where, value


def json_list(texts: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Place and value of every item of one list, without holding the list."""
    cursor = _Cursor(texts, name)
    opening = cursor.next_mark()
    if opening == "":
        return
    if opening != "[":
        raise DataError(
            f"{name}: expected a JSON list, [...], but it begins with {opening!r}."
            " If every line is an object of its own, pass --format jsonl"
        )
    number = 1
    if cursor.peek_mark() == "]":
        cursor.next_mark()
    else:
        while True:
            where = f"{name}, item {number}"
            yield where, cursor.value(where)
            mark = cursor.next_mark()
            if mark == "]":
                break
            if mark != ",":
                raise DataError(f"{where}: expected ',' or ']' after it, got {mark or 'the end of the file'!r}")
            number += 1
    extra = cursor.next_mark()
    if extra:
        raise DataError(f"{name}: expected nothing after the list, got {extra!r}")


class _Cursor:
    """A place in JSON text that arrives in pieces."""

    def __init__(self, texts: Iterable[str], name: str) -> None:
        self._texts = iter(texts)
        self._buffer = ""
        self._at = 0
        self._ended = False
        self._name = name
        self._decoder = json.JSONDecoder()

    def peek_mark(self) -> str:
        """The next character that is not white space, or nothing at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def next_mark(self) -> str:
        mark = self.peek_mark()
        self._at += len(mark)
        return mark

    def value(self, where: str) -> object:
        """The value that starts here; more text is fetched as long as it is not complete."""
        self.peek_mark()
        while True:
            problem = ""
            try:
                value, self._at = self._decoder.raw_decode(self._buffer, self._at)
                return value
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError) as error:  # a number too long, a nesting too deep
                raise DataError(f"{where}: the JSON value cannot be read: {error}") from None
            if len(self._buffer) - self._at > _LARGEST_ITEM or not self._more():
                raise DataError(f"{where}: expected a JSON value, but: {problem}")

    def _more(self) -> bool:
        """Fetch at least as much as there is, so that a long value costs a constant number of tries per size."""
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
