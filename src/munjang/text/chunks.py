"""Long texts to chunks that a model reads whole: overlapping, at word boundaries, with places in the original text.

    text -> tokens with offsets -> units (words) -> spans of units -> Chunk(text, start, end, tokens)

A unit is what must not be torn: a run of characters without white space. One that has more tokens than a chunk may
hold is cut where the pre-tokeniser cuts (between a word and its punctuation, between ideographs), and only then
between tokens. A chunk is text[start:end], so that a hit can be shown where it stands; it is tokenised once more by
itself, because that is what the model will see, and shortened if that came out too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from munjang.errors import InputError
from munjang.text.backend import check_unicode
from munjang.text.tokenizer import Tokenizer

WORD = re.compile(r"\S+")
TEXTS_AT_ONCE = 64


@dataclass(frozen=True)
class Chunk:
    """A part of a text: text == original[start:end]."""

    text: str
    start: int  # characters
    end: int
    tokens: int  # of this chunk alone, special tokens included


class _Unit(NamedTuple):
    start: int
    end: int
    tokens: int


def chunks(text: str, tokenizer: Tokenizer, *, size: int = 128, stride: int = 64) -> list[Chunk]:
    """Chunks of at most `size` tokens, special tokens included, each beginning about `stride` tokens after the last.

    Together they cover every character that is not white space; the last one ends with the text and always brings
    something new. A text without tokens has no chunks. A single character that has more tokens than `size` is the
    only thing that can make a longer chunk.
    """
    return [chunk for _, chunk in chunk_all([text], tokenizer, size=size, stride=stride)]


def chunk_all(
    texts: Iterable[str], tokenizer: Tokenizer, *, size: int = 128, stride: int = 64
) -> Iterator[tuple[int, Chunk]]:
    """The chunks of many texts, lazily and in order, each with the number of its text."""
    room = size - tokenizer.specials
    if room < 1 or size > tokenizer.max_length:
        raise InputError(
            f"size must be {tokenizer.specials + 1}..{tokenizer.max_length} (special tokens and one of the text, "
            f"max_length of the model), got {size}"
        )
    if not 1 <= stride <= room:
        raise InputError(f"stride must be 1..{room} (size without special tokens), got {stride}")
    return _chunk_all(texts, tokenizer, size, stride)


def _chunk_all(texts: Iterable[str], tokenizer: Tokenizer, size: int, stride: int) -> Iterator[tuple[int, Chunk]]:
    room = size - tokenizer.specials
    source = iter(texts)
    seen = 0
    while group := list(islice(source, TEXTS_AT_ONCE)):
        try:
            encodings = tokenizer.backend.encode_batch(group, add_special_tokens=False)
        except (TypeError, UnicodeError) as error:
            check_unicode(group, first=seen)
            raise InputError(f"the tokenizer refused a text: {error}") from error
        for number, (text, encoding) in enumerate(zip(group, encodings, strict=True), start=seen):
            for chunk in _chunks(text, _units(text, encoding, room), tokenizer, (size, room, stride)):
                yield number, chunk
        seen += len(group)


def _chunks(text: str, units: list[_Unit], tokenizer: Tokenizer, limits: tuple[int, int, int]) -> list[Chunk]:
    """Plan by the token counts of the whole text; plan again with real counts if a chunk came out too long."""
    size, room, stride = limits
    if sum(unit.tokens for unit in units) == 0:
        return []

    def fits(start: int, end: int) -> bool:
        return int(tokenizer.count([text[start:end]])[0]) <= size

    spans = _plan(list(units), room, stride, lambda start, end: True)
    counts = tokenizer.count([text[start:end] for start, end in spans])
    if counts.max() > size:
        spans = _plan(list(units), room, stride, fits)
        counts = tokenizer.count([text[start:end] for start, end in spans])
    return [Chunk(text[start:end], start, end, int(count)) for (start, end), count in zip(spans, counts, strict=True)]


def _plan(units: list[_Unit], room: int, stride: int, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Character spans of the chunks. `units` is changed: one that does not fit alone is halved."""
    spans: list[tuple[int, int]] = []
    first = reached = 0  # reached: units before this one are in a chunk
    while reached < len(units):
        last, tokens = first, 0
        while last < len(units) and (last == first or tokens + units[last].tokens <= room):
            tokens += units[last].tokens
            last += 1
        while last > first + 1 and not fits(units[first].start, units[last - 1].end):
            last -= 1
        if last == first + 1 and not fits(units[first].start, units[first].end):
            halves = _halved(units[first])
            if len(halves) > 1:
                units[first:last] = halves
                reached += first < reached  # the unit that was halved had been in a chunk
                continue
        if last > reached:  # else it lies within the chunk before, which an overlap that had to shrink may cause
            spans.append((units[first].start, units[last - 1].end))
            reached = last
        first = _next(units, first, min(last, reached), stride)
    return spans


def _next(units: list[_Unit], first: int, last: int, stride: int) -> int:
    """The unit with which the next chunk begins: `stride` tokens on, but never beyond the end of this one."""
    tokens = 0
    start = first
    while start < last and tokens + units[start].tokens <= stride:
        tokens += units[start].tokens
        start += 1
    return min(max(start, first + 1), last)


def _halved(unit: _Unit) -> list[_Unit]:
    middle = (unit.start + unit.end) // 2
    if middle == unit.start:
        return [unit]
    tokens = unit.tokens // 2
    return [_Unit(unit.start, middle, tokens), _Unit(middle, unit.end, unit.tokens - tokens)]


def _units(text: str, encoding: Any, room: int) -> list[_Unit]:
    """The words of the text with their token counts, those with more than `room` cut further."""
    words = [match.span() for match in WORD.finditer(text)]
    if not words:
        return []
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)  # [tokens, 2], characters
    ends = np.array([end for _, end in words], dtype=np.int64)
    # A token may begin with the space before its word, so its last character decides. One that is only space is
    # counted with the word after it.
    owner = np.minimum(np.searchsorted(ends, offsets[:, 1] - 1, side="right"), len(words) - 1)  # [tokens]
    counts = np.bincount(owner, minlength=len(words))
    units: list[_Unit] = []
    for number, (start, end) in enumerate(words):
        count = int(counts[number])
        if count <= room:
            units.append(_Unit(start, end, count))
        else:
            tokens = np.flatnonzero(owner == number)
            units.extend(_pieces((start, end), offsets[tokens], [encoding.word_ids[i] for i in tokens], room))
    return units


def _pieces(
    span: tuple[int, int], offsets: np.ndarray[Any, np.dtype[np.int64]], word_ids: list[int | None], room: int
) -> list[_Unit]:
    """A word that is too long, cut where the pre-tokeniser cuts, and what is still too long, between tokens."""
    start, end = span
    pieces: list[_Unit] = []
    at = 0
    while at < len(offsets):
        after = at + 1
        while after < len(offsets) and word_ids[after] == word_ids[at]:
            after += 1
        if after - at <= room:
            pieces.append(_Unit(int(offsets[at, 0]), end, after - at))
        else:
            pieces.extend(_Unit(int(offsets[token, 0]), end, 1) for token in range(at, after))
        at = after
    return _closed(pieces, start, end)


def _closed(pieces: list[_Unit], start: int, end: int) -> list[_Unit]:
    """Let each piece reach to the next one, and join those that begin in the same character or behind the word."""
    closed: list[_Unit] = []
    for piece in pieces:
        begin = start if not closed else max(piece.start, start)
        # A token of the white space behind the last word of a text begins where that word ends.
        if closed and (begin <= closed[-1].start or begin >= end):
            closed[-1] = closed[-1]._replace(tokens=closed[-1].tokens + piece.tokens)
        else:
            if closed:
                closed[-1] = closed[-1]._replace(end=begin)
            closed.append(_Unit(begin, end, piece.tokens))
    return closed
