"""What a person hands in: checked, counted, cut into windows.

Enters: any iterable of texts, of dicts with a `text`, or of pairs of texts. Leaves: windows bounded by count and by
characters (`Rows`, or lists of pairs), so that a stream of any length passes through bounded memory. An item that is
not a text, or not a pair, is an error that names its position; an empty string is legal.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from munjang.errors import InputError

Row = TypeVar("Row")

_MISSING = ("nan", "none", "null", "n/a", "#n/a", "<na>", "nat")  # what programs write for a missing value
_REPEATED = re.compile(r"(.{1,8}?)\1{19,}", re.DOTALL)  # a unit of up to 8 code points, 20 times or more


def unusual(text: str) -> str | None:
    """Say why a text is probably not one, such as "empty"; None for an ordinary text. All of them are legal."""
    content = text.strip()
    if not content:
        return "only white space" if text else "empty"
    if len(content) <= 4 and content.casefold() in _MISSING:
        return repr(content)
    if len(content) >= 20 and _REPEATED.fullmatch(content):
        return "a few characters repeated"
    return None


@dataclass
class UnusualTexts:
    """Counts unusual texts by reason; its string names the first of each."""

    texts: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)

    def add(self, text: str, place: str) -> None:
        """Look at a text; `place` is where messages say it is."""
        self.texts += 1
        reason = unusual(text)
        if reason is not None:
            self.counts[reason] += 1
            self._first.setdefault(reason, place)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        named = (
            f"{count:,} {reason} ({self._first[reason] if count == 1 else 'first: ' + self._first[reason]})"
            for reason, count in self.counts.most_common()
        )
        return f"{self.counts.total():,} of {self.texts:,} texts are empty, missing or repetitive: {', '.join(named)}"


@dataclass(frozen=True)
class Rows:
    """A window of inputs: texts, and the other columns where the rows were dicts."""

    texts: list[str]
    columns: dict[str, list[object]]

    def after(self, count: int) -> Rows:
        """The rows behind the first `count`."""
        if not count:
            return self
        return Rows(self.texts[count:], {name: values[count:] for name, values in self.columns.items()})


def as_rows(rows: Iterable[Row] | str) -> tuple[Iterable[Row], int | None]:
    """The rows and how many there are, where that is known; a single string is one row."""
    if isinstance(rows, str):
        return [rows], 1  # type: ignore[list-item]
    if isinstance(rows, bytes | Mapping) or not isinstance(rows, Iterable):
        raise InputError(f"expected a list or another iterable of texts, got {type(rows).__name__}: {_short(rows)}")
    return rows, len(rows) if isinstance(rows, Sized) else None


def split_rows(rows: Iterable[object], max_texts: int, max_characters: int) -> Iterator[Rows]:
    """Windows of at most so many texts and, unless a single text is longer, so many characters."""
    if isinstance(rows, list | tuple) and set(map(type, rows)) <= {str}:
        yield from _split_texts(rows, max_texts, max_characters)
        return
    texts: list[str] = []
    records: list[Mapping[str, object]] = []
    characters = position = 0
    for position, row in enumerate(rows):
        text = _text_of(row, position)
        if texts and (len(texts) >= max_texts or characters + len(text) > max_characters):
            yield Rows(texts, _columns(records, position - len(texts)))
            texts, records, characters = [], [], 0
        texts.append(text)
        characters += len(text)
        if isinstance(row, Mapping):
            records.append(row)
        elif records:
            raise InputError(f"row {position} is a text, but the rows before it were dicts: give one or the other")
    if texts:
        yield Rows(texts, _columns(records, position + 1 - len(texts)))


def _split_texts(texts: Sequence[str], max_texts: int, max_characters: int) -> Iterator[Rows]:
    """The same for a list of nothing but strings, by slices."""
    start = 0
    while start < len(texts):
        window = list(texts[start : start + max_texts])
        if sum(map(len, window)) > max_characters:
            fits = itertools.takewhile(lambda total: total <= max_characters, itertools.accumulate(map(len, window)))
            window = window[: max(1, sum(1 for _ in fits))]
        yield Rows(window, {})
        start += len(window)


def as_pairs(pairs: object) -> tuple[Iterable[object], int | None]:
    """The pairs and how many there are, where that is known; a text, or one bare pair, is refused."""
    if isinstance(pairs, str | bytes | Mapping) or not isinstance(pairs, Iterable):
        raise InputError(
            f"expected a list or another iterable of pairs (a, b), got {type(pairs).__name__}: {_short(pairs)}. "
            "A cross-encoder reads two texts together: one pair is [(a, b)]"
        )
    return pairs, len(pairs) if isinstance(pairs, Sized) else None


def split_pairs(pairs: Iterable[object], max_pairs: int, max_characters: int) -> Iterator[list[tuple[str, str]]]:
    """Windows of at most so many pairs and, unless a single pair is longer, so many characters."""
    window: list[tuple[str, str]] = []
    characters = 0
    for position, given in enumerate(pairs):
        pair = _pair_of(given, position)
        length = len(pair[0]) + len(pair[1])
        if window and (len(window) >= max_pairs or characters + length > max_characters):
            yield window
            window, characters = [], 0
        window.append(pair)
        characters += length
    if window:
        yield window


def _pair_of(given: object, position: int) -> tuple[str, str]:
    if isinstance(given, str):
        raise InputError(
            f"pair {position} must be two texts (a, b), got a single text: {_short(given)}. A cross-encoder reads two "
            "texts together: one pair is [(a, b)]; for vectors of single texts use a bi-encoder"
        )
    texts = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(texts, tuple | list):
        raise InputError(f"pair {position} must be two texts (a, b), got {type(given).__name__}: {_short(given)}")
    if len(texts) != 2:
        raise InputError(f"pair {position} must be two texts (a, b), got {len(texts)}: {_short(given)}")
    first, second = texts
    for which, text in (("first", first), ("second", second)):
        if not isinstance(text, str):
            raise InputError(
                f"the {which} text of pair {position} must be a string, got {type(text).__name__}: {_short(text)}. "
                "An empty text is '', a missing one must be left out or replaced"
            )
    return first, second


def _text_of(row: object, position: int) -> str:
    text = row.get("text") if isinstance(row, Mapping) else row
    if isinstance(text, str):
        return text
    if isinstance(row, Mapping) and "text" not in row:
        raise InputError(f"row {position} has no 'text', only {', '.join(map(repr, row)) or 'nothing'}")
    raise InputError(
        f"text {position} must be a string, got {type(text).__name__}: {_short(text)}. "
        "An empty text is '', a missing one must be left out or replaced"
    )


def _columns(records: Sequence[Mapping[str, object]], first: int) -> dict[str, list[object]]:
    if not records:
        return {}
    names = [str(name) for name in records[0] if name != "text"]
    columns: dict[str, list[object]] = {name: [] for name in names}
    for offset, record in enumerate(records):
        if len(record) - 1 != len(names):
            raise InputError(f"row {first + offset} has the keys {list(record)}, the rows before it {['text', *names]}")
        for name in names:
            if name not in record:
                raise InputError(f"row {first + offset} has no {name!r}, as the rows before it had")
            columns[name].append(record[name])
    return columns


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
