"""Windows of checked inputs, bounded by count and by characters, and progress.

`munjang.data.rows` is the gate that checks texts and pairs; here they are cut into windows (`Rows`, or lists of pairs),
so that a stream of any length passes through bounded memory.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from munjang.data.rows import Source, TextRow, open_pairs, open_texts

Progress = bool | Callable[[int, int | None], None]


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


@contextlib.contextmanager
def progress_teller(progress: Progress, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function that takes 'n more are done', from any thread, and tells the caller as they asked."""
    if progress is False:
        yield lambda n: None
        return
    tell: Callable[[int, int | None], None] = _Line() if progress is True else progress
    lock = threading.Lock()
    count = 0

    def more(n: int) -> None:
        nonlocal count
        with lock:
            count += n
            if n:
                tell(count, total)

    try:
        yield more
    finally:
        if isinstance(tell, _Line):
            tell.close()


class _Line:
    """One line on stderr, rewritten at most ten times a second."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last = 0.0
        self._shown = False

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._last < 0.1 and done != total:
            return
        self._last = now
        rate = done / max(now - self._started, 1e-9)
        line = f"{done:,}" + (f" of {total:,} ({done / total:.0%})" if total else "") + f"  {rate:,.0f}/s"
        if total and rate:
            line += f"  {clock((total - done) / rate)} left"
        sys.stderr.write(f"\r{line:<60}")
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")


def clock(seconds: float) -> str:
    """Seconds as people read them: 3:07, 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
