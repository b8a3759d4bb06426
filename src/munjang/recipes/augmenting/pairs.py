"""Which pairs may be made of the sentences, in one place; and the pairs that were found, on disk.

No pair is ever a sentence with itself, mirrored or repeated, one that is labelled already, or one of the evaluation.
Sentences are different by `same_key`, and a pair is one number, smaller place * n + larger place: so (i, j) and (j, i)
are the same, repetitions are equal numbers, and a rule is a search in a sorted array. Evaluation pairs are compared
more strictly, without punctuation and spaces as well (`normalise`): a full stop must not smuggle a test pair in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.examples import Examples
from munjang.data.overlaps import normalise
from munjang.errors import DataError, InputError
from munjang.recipes.augmenting.sentences import Sentences

Array: TypeAlias = npt.NDArray[Any]

ORIGINS: dict[str, int] = {"semantic": 1, "bm25": 2, "random": 4, "kde": 8}  # bits: a pair may be found twice
MOST = 3_000_000_000  # sentences: their pairs' numbers still fit into 63 bits
FILES = ("left.npy", "right.npy", "origin.npy")


class PairFilter:
    """The rules. `known` are pairs that have a label, `forbidden` the sets that evaluate."""

    def __init__(
        self, sentences: Sentences, *, known: Sequence[Examples] = (), forbidden: Sequence[Examples] = ()
    ) -> None:
        count = len(sentences)
        if count > MOST:
            raise InputError(f"at most {MOST:,} sentences can be paired, got {count:,}")
        self.count = count
        self.sentences_hash = sentences.hash
        left, right = _sides(known)
        places = sentences.places_of(left), sentences.places_of(right)
        self.known = _sorted_keys(*places, count)  # int64, ascending: keys of labelled pairs
        self._group, self._groups, self.forbidden = _evaluation(sentences, forbidden)

    def keys(self, left: Array, right: Array) -> Array:  # [m], [m] -> int64 [m]
        """One number for each pair, whatever its order."""
        return _keys(left, right, self.count)

    def sides(self, keys: Array) -> tuple[Array, Array]:  # int64 [m] -> two of them, the smaller place first
        """The places that a pair's number stands for."""
        return keys // max(1, self.count), keys % max(1, self.count)

    def allowed(self, left: Array, right: Array) -> Array:  # bool, of the shape of both
        """Which pairs may be made; repetitions among them are the caller's to drop, by their keys."""
        fits: Array = left != right
        fits &= ~among(self.known, _keys(left, right, self.count))
        if len(self.forbidden):
            fits &= ~among(self.forbidden, _keys(self._group[left], self._group[right], self._groups))
        return fits

    def barred(self) -> Array:  # int64 [n]
        """For each sentence, how many others it must not be paired with: exact, or a little too many."""
        both = np.concatenate(self.sides(self.known)) if len(self.known) else np.zeros(0, np.int64)
        counts: Array = np.bincount(both, minlength=self.count)
        if len(self.forbidden):
            sizes = np.bincount(self._group[self._group >= 0], minlength=self._groups)
            one, other = self.forbidden // self._groups, self.forbidden % self._groups
            of_groups = np.bincount(one, sizes[other], self._groups)
            twice = one != other
            of_groups += np.bincount(other[twice], sizes[one[twice]], self._groups)
            inside = self._group >= 0
            counts[inside] += of_groups[self._group[inside]].astype(np.int64)
        return counts

    @property
    def hash(self) -> str:
        """Of everything that decides which pairs may be made."""
        digest = hashlib.blake2b(self.sentences_hash.encode(), digest_size=16)
        for array in (self.known, self.forbidden, self._group if len(self.forbidden) else self.forbidden):
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class CandidatePairs:
    """Pairs of places among the sentences, in ascending order; memory-mapped where they were read."""

    left: Array  # int32 [m], the smaller place
    right: Array  # int32 [m], the larger place
    origin: Array  # uint8 [m], bits of ORIGINS

    @classmethod
    def read(cls, folder: str | Path) -> CandidatePairs:
        """Those that `find_candidates` left in this folder."""
        path = Path(folder)
        missing = [name for name in FILES if not (path / name).is_file()]
        if missing:
            raise DataError(f"{path}: expected the candidate pairs {', '.join(FILES)}, but {missing[0]} is not there")
        try:
            left, right, origin = (np.load(path / name, mmap_mode="r", allow_pickle=False) for name in FILES)
        except ValueError as error:
            raise DataError(
                f"{path}: the candidate pairs are damaged ({error}); remove them and find them again"
            ) from (error)
        if not left.shape == right.shape == origin.shape:
            raise DataError(
                f"{path}: {', '.join(FILES)} must be of one length, got {len(left):,}, {len(right):,} and "
                f"{len(origin):,}; remove them and find them again"
            )
        return cls(left, right, origin)

    def __len__(self) -> int:
        return len(self.left)

    def __repr__(self) -> str:
        return f"CandidatePairs({len(self):,}: {origin_counts(self.origin)})"

    def windows(self, size: int) -> Iterator[slice]:
        """Slices of at most so many pairs."""
        return (slice(start, min(start + size, len(self))) for start in range(0, len(self), size))

    @property
    def hash(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.left, self.right):
            for window in self.windows(1 << 20):
                digest.update(np.ascontiguousarray(array[window]).data)
        return digest.hexdigest()


def origin_name(bits: int) -> str:
    """'semantic', or 'bm25+semantic' for a pair that both found."""
    return "+".join(sorted(name for name, bit in ORIGINS.items() if bits & bit))


def origin_counts(origin: Array) -> dict[str, int]:
    """How many pairs each way of finding them, or mix of ways, has given; the most first."""
    counts = np.bincount(np.asarray(origin, np.uint8), minlength=1)
    named = {origin_name(bits): int(count) for bits, count in enumerate(counts) if count}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))


def _keys(left: Array, right: Array, count: int) -> Array:
    one, other = np.asarray(left, np.int64), np.asarray(right, np.int64)
    keys: Array = np.minimum(one, other) * count + np.maximum(one, other)
    return keys


def _sorted_keys(left: Array, right: Array, count: int) -> Array:
    """Keys of the pairs whose two sides are among the sentences (-1: is not), each once, ascending."""
    inside = (left >= 0) & (right >= 0)
    keys: Array = np.unique(_keys(left[inside], right[inside], count))
    return keys


def among(ascending: Array, keys: Array) -> Array:  # bool, of the shape of the keys
    """Which keys stand in an ascending array."""
    if not len(ascending):
        return np.zeros(keys.shape, np.bool_)
    places = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    same: Array = ascending[places] == keys
    return same


def _sides(sets: Sequence[Examples]) -> tuple[list[str], list[str]]:
    """The pairs of texts in these sets: every two columns of a row."""
    left: list[str] = []
    right: list[str] = []
    for examples in sets:
        for one, other in combinations(examples.columns.values(), 2):
            left += one
            right += other
    return left, right


def _evaluation(sentences: Sentences, forbidden: Sequence[Examples]) -> tuple[Array, int, Array]:
    """The group of every sentence, how many groups there are, and the forbidden pairs of groups as keys, ascending.

    A group is what `normalise` takes for one; sentences that no evaluation set has need none, and have -1.
    """
    left, right = _sides(forbidden)
    numbers: dict[str, int] = {}
    sides = [[numbers.setdefault(normalise(text), len(numbers)) for text in side] for side in (left, right)]
    one, other = (np.array(side, np.int64) for side in sides)
    if not numbers:
        return np.zeros(0, np.int64), 0, np.zeros(0, np.int64)
    group = np.fromiter((numbers.get(normalise(text), -1) for text in sentences.texts), np.int64, len(sentences))
    return group, len(numbers), np.unique(_keys(one, other, len(numbers)))
