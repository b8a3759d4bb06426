"""Windows of checked inputs, bounded by count and by characters.

`munjang.data.rows` is the gate that checks texts and pairs; here they are cut into windows (`Rows`, or lists of pairs),
so that a stream of any length passes through bounded memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from munjang.data.rows import Source, TextRow, open_pairs, open_texts


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


def as_rows(rows: Source, *, keep: Sequence[str] | None = ()) -> tuple[Iterable[str | TextRow], int | None]:
    """Return the texts and their number, where it is known; a single string is one text.

    keep: the other columns of a table; None for all.
    """
    if isinstance(rows, str):
        return [rows], 1
    texts = open_texts(rows, keep=keep)
    plain = texts.values
    return (texts.items() if plain is None else plain), texts.total


def split_rows(rows: Iterable[str | TextRow], max_texts: int, max_characters: int) -> Iterator[Rows]:
    """Cut into windows of at most `max_texts` texts and `max_characters` characters; a longer text has its own."""
    if isinstance(rows, list | tuple):
        yield from _split_texts(rows, max_texts, max_characters)
        return
    texts: list[str] = []
    columns: dict[str, list[object]] = {}
    characters = 0
    for row in rows:
        text = row if isinstance(row, str) else row.text
        if texts and (len(texts) >= max_texts or characters + len(text) > max_characters):
            yield Rows(texts, columns)
            texts, columns, characters = [], {}, 0
        texts.append(text)
        characters += len(text)
        if not isinstance(row, str):
            for name, value in row.columns.items():
                columns.setdefault(name, []).append(value)
    if texts:
        yield Rows(texts, columns)


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


def as_pairs(pairs: Source) -> tuple[Iterable[tuple[str, str]], int | None]:
    """Return the pairs and their number, where it is known."""
    opened = open_pairs(pairs)
    return opened, opened.total


def split_pairs(
    pairs: Iterable[tuple[str, str]], max_pairs: int, max_characters: int
) -> Iterator[list[tuple[str, str]]]:
    """Cut into windows of at most `max_pairs` pairs and `max_characters` characters; a longer pair has its own."""
    window: list[tuple[str, str]] = []
    characters = 0
    for pair in pairs:
        length = len(pair[0]) + len(pair[1])
        if window and (len(window) >= max_pairs or characters + length > max_characters):
            yield window
            window, characters = [], 0
        window.append(pair)
        characters += length
    if window:
        yield window
