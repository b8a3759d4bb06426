"""Long texts to overlapping chunks that fit the model, cut at word boundaries, with their positions in the text.

    text -> tokens with offsets -> units -> spans of units -> Chunk(text, start, end, tokens)

A unit is a run of characters without white space. One with more tokens than a chunk may have is cut where the
pre-tokenizer cuts (between a word and its punctuation, between ideographs), and only then between tokens. Each chunk is
tokenized again by itself, because that is what the model will see, and shortened if it came out too long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np
import tokenizers

from munjang.errors import InputError
from munjang.text.fast_words import encodings
from munjang.text.tokenizer import Tokenizer

_WORD = re.compile(r"\S+")
_WINDOW = 64  # texts tokenized at once


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
    """Cut a text into overlapping chunks that the model reads without truncation.

    Args:
        text: of any length.
        tokenizer: of the model, `model.tokenizer`.
        size: most tokens of a chunk, special tokens included.
        stride: tokens between the beginnings of two chunks, about; the rest of `size` is overlap.

    Returns:
        Chunks in order. Together they cover every character that is not white space, the last one ends with the text,
        and each contains something the ones before do not. A text without tokens has none. Only a single character with
        more tokens than `size` makes a longer chunk.

    Raises:
        InputError: if `size` or `stride` is out of range, or the text is not valid Unicode.

    Example:
        >>> model = munjang.load()
        >>> [chunk.start for chunk in munjang.chunks("오늘은 비가 온다. " * 40, model.tokenizer, size=64, stride=32)]
        [0, 88, 176, 264, 352]
    """
    return [chunk for _, chunk in chunk_all([text], tokenizer, size=size, stride=stride)]


def chunk_all(
    texts: Iterable[str], tokenizer: Tokenizer, *, size: int = 128, stride: int = 64
) -> Iterator[tuple[int, Chunk]]:
    """Chunk many texts lazily and in order, as `chunks` does; yields each chunk with the number of its text."""
    room = size - tokenizer.specials
    if room < 1 or size > tokenizer.max_length:
        raise InputError(
            f"size must be {tokenizer.specials + 1}..{tokenizer.max_length} (special tokens and one of the text, "
            f"max_length of the model), got {size}"
        )
    if not 1 <= stride <= room:
        raise InputError(f"stride must be 1..{room} (size without special tokens), got {stride}")
    return _chunk_all(iter(texts), tokenizer, size, stride)


def _chunk_all(texts: Iterator[str], tokenizer: Tokenizer, size: int, stride: int) -> Iterator[tuple[int, Chunk]]:
    room = size - tokenizer.specials
    first = 0
    while window := list(islice(texts, _WINDOW)):
        rows = encodings(tokenizer.backend, window, special=False, offsets=True, first=first)
        for number, (text, encoding) in enumerate(zip(window, rows, strict=True), start=first):
            units = _units(text, encoding, room)
            if not any(unit.tokens for unit in units):
                continue

            def fits(start: int, end: int, text: str = text) -> bool:
                return int(tokenizer.count([text[start:end]])[0]) <= size

            spans = _spans(list(units), room, stride, lambda start, end: True)
            counts = tokenizer.count([text[start:end] for start, end in spans])
            if counts.max() > size:  # alone, a chunk may have more tokens than in its text
                spans = _spans(units, room, stride, fits)
                counts = tokenizer.count([text[start:end] for start, end in spans])
            for (start, end), count in zip(spans, counts.tolist(), strict=True):
                yield number, Chunk(text[start:end], start, end, count)
        first += len(window)


def _spans(units: list[_Unit], room: int, stride: int, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Character spans of the chunks. Changes `units`: one that does not fit alone is cut in half."""
    spans: list[tuple[int, int]] = []
    first = covered = 0  # units before `covered` are in a chunk
    while covered < len(units):
        last, tokens = first, 0
        while last < len(units) and (last == first or tokens + units[last].tokens <= room):
            tokens += units[last].tokens
            last += 1
        while last > first + 1 and not fits(units[first].start, units[last - 1].end):
            last -= 1
        start, end, tokens = units[first]
        middle = (start + end) // 2
        if last == first + 1 and middle > start and not fits(start, end):
            units[first:last] = [_Unit(start, middle, tokens // 2), _Unit(middle, end, tokens - tokens // 2)]
            covered += first < covered  # the unit that was cut had been in a chunk
            continue
        if last > covered:  # otherwise the chunk before contains it, where the overlap had to shrink
            spans.append((start, units[last - 1].end))
            covered = last
        # The next chunk begins `stride` tokens later, at least one unit later, and not behind what is covered.
        limit = min(last, covered)
        after, tokens = first, 0
        while after < limit and tokens + units[after].tokens <= stride:
            tokens += units[after].tokens
            after += 1
        first = min(max(after, first + 1), limit)
    return spans


def _units(text: str, encoding: tokenizers.Encoding, room: int) -> list[_Unit]:
    """The words of a text with their token counts; words of more than `room` tokens are cut."""
    words = [match.span() for match in _WORD.finditer(text)]
    if not words:
        return []
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)  # [tokens, 2], characters
    ends = np.array([end for _, end in words], dtype=np.int64)
    # A token may begin with the space before its word, so its last character decides. One that is only space is counted
    # with the word after it.
    owner = np.minimum(np.searchsorted(ends, offsets[:, 1] - 1, side="right"), len(words) - 1)  # [tokens]
    counts = np.bincount(owner, minlength=len(words)).tolist()
    if max(counts) <= room:
        return [_Unit(start, end, count) for (start, end), count in zip(words, counts, strict=True)]
    word_ids = encoding.word_ids
    units: list[_Unit] = []
    for number, ((start, end), count) in enumerate(zip(words, counts, strict=True)):
        if count <= room:
            units.append(_Unit(start, end, count))
            continue
        pieces: list[tuple[int, int]] = []  # first token, tokens
        for _, group in groupby(np.flatnonzero(owner == number).tolist(), key=word_ids.__getitem__):
            tokens = list(group)
            pieces += [(tokens[0], len(tokens))] if len(tokens) <= room else [(token, 1) for token in tokens]
        last = _Unit(start, end, pieces[0][1])
        for token, size in pieces[1:]:
            begin = int(offsets[token, 0])
            if last.start < begin < end:
                units.append(last._replace(end=begin))
                last = _Unit(begin, end, size)
            else:  # it begins in the same character, or is white space behind the last word of the text
                last = last._replace(tokens=last.tokens + size)
        units.append(last)
    return units
