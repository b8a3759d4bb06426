"""Documents to passages: the spans of a text that the model reads whole.

Most texts fit into one passage, which counting their tokens tells; only the others are cut (`munjang.text.chunks`).
A text of many megabytes is cut into pieces at white space first, so that no tokenisation holds all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from munjang.errors import InputError
from munjang.index.documents import titled
from munjang.text.chunks import chunk_all
from munjang.text.tokenizer import Tokenizer

_PIECE = 200_000  # characters that are tokenised at once
_SPACE = re.compile(r"\s")
_DEFAULT = 256  # tokens of a passage, at most, where none are given: longer ones blur what a vector says


@dataclass(frozen=True)
class Span:
    """A passage of a text: text[start:end]."""

    start: int
    end: int
    tokens: int  # special tokens and those of the title included


@dataclass(frozen=True)
class Cutter:
    """Cuts texts into spans of at most `size` tokens, special tokens included, `stride` apart."""

    tokenizer: Tokenizer
    size: int
    stride: int
    limit: int  # tokens that the model reads, its prompt left out

    @classmethod
    def resolve(cls, tokenizer: Tokenizer, size: int | None, stride: int | None, *, prompt: str = "") -> Cutter:
        """The sizes that were asked for, checked; the model's prompt for documents takes its share of the length."""
        prompted = int(tokenizer.count([prompt])[0]) - tokenizer.specials if prompt else 0
        largest = tokenizer.max_length - prompted
        size = max(tokenizer.specials + 1, min(largest * 3 // 4, _DEFAULT)) if size is None else size
        room = size - tokenizer.specials
        if size > largest or room < 1:
            raise InputError(
                f"chunk_tokens must be {tokenizer.specials + 1}..{largest} (what the model reads, less its prompt), "
                f"got {size}"
            )
        stride = max(1, room // 2) if stride is None else stride
        if stride > room:
            raise InputError(f"stride must be 1..{room} (chunk_tokens without special tokens), got {stride}")
        return cls(tokenizer, size, stride, largest)

    def passages(self, texts: Sequence[str], titles: Sequence[str]) -> tuple[list[list[Span]], list[str]]:
        """The spans of every text, and all passages one after another as they are encoded: under their titles.

        titles: one for each text, '' for none. A title has at most half of what the model reads.
        """
        half = self.limit // 2
        heads = self._heads(titles)
        titles = [
            title if head <= half else title[: len(title) * half // head]
            for title, head in zip(titles, heads, strict=True)
        ]
        spans = self.cut(texts, titles)
        passages = [
            titled(title, text[span.start : span.end])
            for text, title, some in zip(texts, titles, spans, strict=True)
            for span in some
        ]
        return spans, passages

    def cut(self, texts: Sequence[str], titles: Sequence[str] = ()) -> list[list[Span]]:
        """The spans of every text; a text without tokens has none.

        titles: one for each text, '' for none. Where a title and a passage of `size` are more than the model reads, the
        passages are made shorter.
        """
        found: list[list[Span]] = [[] for _ in texts]
        heads = self._heads(titles or [""] * len(texts))
        sizes = [min(self.size, max(self.limit // 2, self.limit - head)) for head in heads]
        short = [place for place, text in enumerate(texts) if len(text) <= _PIECE]
        counts = self.tokenizer.count([texts[place] for place in short]).tolist() if short else []
        long = sorted({*range(len(texts))} - {*short})
        for place, count in zip(short, counts, strict=True):
            text = texts[place]
            if count > sizes[place]:
                long.append(place)
            elif count > self.tokenizer.specials and (bare := text.strip()):
                start = len(text) - len(text.lstrip())
                found[place] = [Span(start, start + len(bare), count + heads[place])]
        for place in long:
            found[place] = list(self._cut_long(texts[place], sizes[place], heads[place]))
        return found

    def _heads(self, titles: Sequence[str]) -> list[int]:
        """Tokens of the titles, without special ones."""
        named = [title for title in titles if title]
        counts = iter(self.tokenizer.count(named).tolist() if named else [])
        return [next(counts) - self.tokenizer.specials if title else 0 for title in titles]

    def _cut_long(self, text: str, size: int, head: int) -> Iterator[Span]:
        stride = min(self.stride, size - self.tokenizer.specials)
        for start, end in _pieces(text):
            for _, chunk in chunk_all([text[start:end]], self.tokenizer, size=size, stride=stride):
                yield Span(start + chunk.start, start + chunk.end, chunk.tokens + head)


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
