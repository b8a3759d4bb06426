"""Which sentence of a passage answers the query: what the page marks.

Enters: passages and the query's vector. Leaves: for each passage the offsets of the sentence that is nearest to it.
Sentences are cut at the marks that end them in Korean and English, not after abbreviations, initials and numbers, and
at line breaks; a very long one is cut at commas and spaces. Their vectors are computed together and kept, because the
same passages are found again and again.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from munjang.types import Similarity
from munjang.vectors import similarity as similarity_of

Floats = NDArray[np.float32]
Encode = Callable[[list[str]], Awaitable[Floats]]  # texts -> [n, d]

LONGEST = 400  # characters; a longer sentence is cut further
MOST = 64  # sentences of one passage that are compared
KEPT = 20_000  # vectors

# An ending mark, what closes after it, and space: "... 갔다." 그리고 / He left." Then
_END = re.compile(r"[.!?…。！？]+[\"'”’»)\]」』]*(?=\s)|\n+")
_SOFT = re.compile(r"[,;:，、]\s|\s")
_ABBREVIATIONS = re.compile(
    r"(mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|e\.g|i\.e|fig|vol|pp|inc|ltd|co|dept|est|approx|u\.s|u\.k|a\.m|p\.m|ph\.d)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Span:
    """A sentence: text[start:end]."""

    start: int
    end: int


def split(text: str) -> list[Span]:
    """The sentences of a text, in order, without the space around them; none where there is nothing but space."""
    found: list[Span] = []
    start = 0
    for match in _END.finditer(text):
        if match.group()[0] == "." and _goes_on(text, start, match.start(), match.end()):
            continue
        found += _trimmed(text, start, match.end())
        start = match.end()
    found += _trimmed(text, start, len(text))
    return [part for span in found for part in _shortened(text, span)]


def _goes_on(text: str, start: int, dot: int, end: int) -> bool:
    """Whether a full stop does not end the sentence: an abbreviation, an initial, a numbered item."""
    word = re.split(r"[\s(\"'“‘]", text[start:dot])[-1]
    if _ABBREVIATIONS.fullmatch(word) or (len(word) == 1 and word.isascii() and word.isupper()):
        return True
    if word.isdigit() and not text[start:dot].strip()[: -len(word)].strip():
        return True  # "1. First": the number belongs to what follows
    following = text[end:].lstrip()[:1]
    return following.islower() and following.isascii()


def _trimmed(text: str, start: int, end: int) -> list[Span]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return [Span(start, end)] if end > start else []


def _shortened(text: str, span: Span) -> list[Span]:
    """A sentence, or its parts where it is too long to be shown as one."""
    parts, start = [], span.start
    while span.end - start > LONGEST:
        cuts = [match.end() for match in _SOFT.finditer(text, start + LONGEST // 2, start + LONGEST)]
        cut = cuts[-1] if cuts else start + LONGEST
        parts += _trimmed(text, start, cut)
        start = cut
    return parts + _trimmed(text, start, span.end)


class SentenceFinder:
    """Finds the nearest sentences for one model, and keeps their vectors."""

    def __init__(self, encode: Encode, kind: Similarity, *, kept: int = KEPT) -> None:
        self._encode = encode
        self._kind = kind
        self._most = kept
        self._kept: OrderedDict[bytes, NDArray[np.float16]] = OrderedDict()  # digest of a sentence -> vector
        self._lock = threading.Lock()

    async def nearest(self, query: Floats, passages: Sequence[str]) -> list[Span | None]:
        """For every passage the sentence nearest to the query's vector [d]; None where it has no words."""
        cut = [split(passage)[:MOST] for passage in passages]
        several = [
            passage[span.start : span.end]
            for passage, spans in zip(passages, cut, strict=True)
            if len(spans) > 1
            for span in spans
        ]
        vectors = await self._vectors(list(dict.fromkeys(several)))
        return [_best(query, passage, spans, vectors, self._kind) for passage, spans in zip(passages, cut, strict=True)]

    async def _vectors(self, texts: list[str]) -> dict[str, NDArray[np.float16]]:
        digests = {text: hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts}
        found: dict[str, NDArray[np.float16]] = {}
        with self._lock:
            for text, digest in digests.items():
                if digest in self._kept:
                    self._kept.move_to_end(digest)
                    found[text] = self._kept[digest]
        missing = [text for text in texts if text not in found]
        if missing:
            fresh = (await self._encode(missing)).astype(np.float16)
            found |= dict(zip(missing, fresh, strict=True))
            self._keep([(digests[text], found[text].copy()) for text in missing])  # a view would hold the whole batch
        return found

    def _keep(self, fresh: Sequence[tuple[bytes, NDArray[np.float16]]]) -> None:
        with self._lock:
            self._kept.update(fresh)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


def _best(
    query: Floats, passage: str, spans: Sequence[Span], vectors: dict[str, NDArray[np.float16]], kind: Similarity
) -> Span | None:
    if len(spans) < 2:
        return spans[0] if spans else None
    rows = np.stack([vectors[passage[span.start : span.end]] for span in spans]).astype(np.float32)  # [n, d]
    return spans[int(similarity_of(query[None], rows, kind)[0].argmax())]
