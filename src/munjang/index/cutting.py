"""Documents to passages: the spans of a text that the model reads whole.

Most texts fit into one passage, which counting their tokens tells; only the others are cut (`munjang.text.chunks`).
A text of many megabytes is cut into pieces at white space first, so that no tokenisation holds all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from munjang.errors import InputError
from munjang.text.chunks import chunk_all
from munjang.text.tokenizer import Tokenizer

_PIECE = 200_000  # characters that are tokenised at once
_SPACE = re.compile(r"\s")
_MOST = 512  # of what a model reads, three quarters are a passage where nobody says how many tokens


@dataclass(frozen=True)
class Span:
    """A passage of a text: text[start:end]."""

    start: int
    end: int
    tokens: int  # special tokens included


@dataclass(frozen=True)
class Cutter:
    """Cuts texts into spans of at most `size` tokens, special tokens included, `stride` apart."""

    tokenizer: Tokenizer
    size: int
    stride: int

    @classmethod
    def resolve(cls, tokenizer: Tokenizer, size: int | None, stride: int | None, *, prompt: str = "") -> Cutter:
        """The sizes that were asked for, checked; the model's prompt for documents takes its share of the length."""
        prompted = int(tokenizer.count([prompt])[0]) - tokenizer.specials if prompt else 0
        largest = tokenizer.max_length - prompted
        size = max(tokenizer.specials + 1, min(largest, _MOST) * 3 // 4) if size is None else size
        room = size - tokenizer.specials
        if size > largest or room < 1:
            raise InputError(
                f"chunk_tokens must be {tokenizer.specials + 1}..{largest} (what the model reads, less its prompt), "
                f"got {size}"
            )
        stride = max(1, room // 2) if stride is None else stride
        if stride > room:
            raise InputError(f"stride must be 1..{room} (chunk_tokens without special tokens), got {stride}")
        return cls(tokenizer, size, stride)

    def cut(self, texts: Sequence[str]) -> list[list[Span]]:
        """The spans of every text; a text without tokens has none."""
        found: list[list[Span]] = [[] for _ in texts]
        short = [place for place, text in enumerate(texts) if len(text) <= _PIECE]
        counts = self.tokenizer.count([texts[place] for place in short]).tolist() if short else []
        long = sorted({*range(len(texts))} - {*short})
        for place, count in zip(short, counts, strict=True):
            text = texts[place]
            if count > self.size:
                long.append(place)
            elif count > self.tokenizer.specials and (bare := text.strip()):
                start = len(text) - len(text.lstrip())
                found[place] = [Span(start, start + len(bare), count)]
        for place in long:
            found[place] = list(self._cut_long(texts[place]))
        return found

    def _cut_long(self, text: str) -> Iterator[Span]:
        for start, end in _pieces(text):
            for _, chunk in chunk_all([text[start:end]], self.tokenizer, size=self.size, stride=self.stride):
                yield Span(start + chunk.start, start + chunk.end, chunk.tokens)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Parts of at most _PIECE characters, cut behind white space where there is some in the last half."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        for place in range(end, start + _PIECE // 2, -1):
            if _SPACE.match(text, place - 1):
                end = place
                break
        yield start, end
        start = end
    yield start, len(text)
