"""Labelled sets and plain texts -> the different sentences that candidate pairs are made of.

Two texts are the same sentence when they differ only in case, width and spaces (`same_key`): such a pair would teach
nothing, and one sentence under two numbers would let a pair pass twice. The first spelling stays, in the order in
which sentences are met, so that the same inputs always give the same numbers. Empty texts are left out. What was left
out is counted.

Memory: the sentences themselves and a table of their keys, which share what they can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.examples import Examples
from munjang.data.overlaps import same_key
from munjang.errors import InputError
from munjang.progress import Progress, track

Array: TypeAlias = npt.NDArray[Any]
_STEP = 10_000  # texts between two words about progress


@dataclass(frozen=True, eq=False, repr=False)
class Sentences:
    """Different sentences, in the order in which they were met."""

    texts: list[str]
    places: dict[str, int]  # same_key -> its place in `texts`
    duplicates: int  # texts that said again what was there
    empty: int  # texts without a single character that shows
    hash: str  # of the texts in their order

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: int) -> str:
        return self.texts[place]

    def __repr__(self) -> str:
        return f"Sentences({len(self):,} different, {self.duplicates:,} again, {self.empty:,} empty)"

    def places_of(self, texts: Iterable[str]) -> Array:  # int64 [n]
        """Where each text stands, or -1."""
        return np.fromiter((self.places.get(same_key(text), -1) for text in texts), np.int64)


def collect(sets: Sequence[Examples], texts: Iterable[str] = (), *, progress: Progress = False) -> Sentences:
    """Gather the different sentences of the sets, row by row, and of the plain texts after them."""
    if isinstance(texts, str):
        raise InputError(f"texts must be a list or another iterable of texts, got a single text: {texts[:60]!r}")
    found: list[str] = []
    places: dict[str, int] = {}
    digest = hashlib.blake2b(digest_size=16)
    met = empty = 0
    with track(progress, None) as done:
        for source, text in _every(sets, texts):
            met += 1
            _check(text, source, met)
            key = same_key(text)
            if not key:
                empty += 1
            elif key not in places:
                places[text if key == text else key] = len(found)
                found.append(text)
                digest.update(text.encode() + b"\0")
            if met % _STEP == 0:
                done(_STEP)
        done(met % _STEP)
    return Sentences(found, places, met - empty - len(found), empty, digest.hexdigest())


def _every(sets: Sequence[Examples], texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(where it is from, text), rows of a set one after another so that a pair's sentences stand together."""
    for examples in sets:
        for row in zip(*examples.columns.values(), strict=True):
            for text in row:
                yield examples.name or "examples", text
    for text in texts:
        yield "texts", text


def _check(text: object, source: str, number: int) -> None:
    if not isinstance(text, str):
        raise InputError(f"{source}: text {number} must be a string, got {type(text).__name__}; leave it out")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{source}: text {number} holds half a surrogate pair, which is no character: {text[:60]!r}; repair it "
                "or leave it out"
            ) from None
