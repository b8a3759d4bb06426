"""Pairs of rows, a block at a time -> groups of rows that are joined by them, directly or through others.

A union-find forest over all rows, worked on by whole blocks in numpy: every row points to a lower one of its group, or
to itself; a block of pairs ties roots together until both rows of every pair have the same root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


class Joined:
    """Which rows belong together, so far."""

    def __init__(self, rows: int) -> None:
        self._parent = np.arange(rows)

    def join(self, left: Ints, right: Ints) -> None:
        """Put the two rows of every pair into one group."""
        one, other = left.astype(np.int64), right.astype(np.int64)
        while len(one):
            one, other = self._root(one), self._root(other)
            apart = one != other
            one, other = one[apart], other[apart]
            low, high = np.minimum(one, other), np.maximum(one, other)
            np.minimum.at(self._parent, high, low)  # of several that a root is tied to, the lowest; the rest next time

    def roots(self) -> Numbers:
        """The lowest row of every row's group, [n]."""
        return self._root(np.arange(len(self._parent)))

    def _root(self, rows: Numbers) -> Numbers:
        found = self._parent[rows]
        while True:
            above = self._parent[found]
            if np.array_equal(above, found):
                break
            found = above
        self._parent[rows] = np.minimum(self._parent[rows], found)  # shorter ways next time
        return found


@dataclass(frozen=True, eq=False)
class EqualTexts:
    """Texts without repetition."""

    first: Numbers  # [m], the row where each different text comes first
    place: Numbers  # [n], which of the m each row is


def equal_texts(texts: Sequence[str]) -> EqualTexts:
    """Find the rows whose texts are the same, letter by letter."""
    seen: dict[str, int] = {}
    place = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))
    _, first = np.unique(place, return_index=True)
    return EqualTexts(first, place)


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of rows that say nearly the same."""

    groups: tuple[Numbers, ...]  # rows ascending, the largest group first, of equal ones that with the first row
    labels: Numbers  # [n], the number of every row's group; -1 for a row that is like no other
    texts: Sequence[str] | None  # where texts were given
    threshold: float
    seconds: float

    @classmethod
    def of(cls, roots: Numbers, texts: Sequence[str] | None, threshold: float, *, seconds: float) -> Duplicates:
        """From the lowest row of every row's group."""
        order = np.argsort(roots, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(roots[order])) + 1)
        groups = sorted((run for run in runs if len(run) > 1), key=lambda run: (-len(run), int(run[0])))
        labels = np.full(len(roots), -1, np.int64)
        for number, group in enumerate(groups):
            labels[group] = number
        return cls(tuple(groups), labels, texts, threshold, seconds)

    @property
    def kept(self) -> Numbers:
        """The rows that remain when of every group only the first is kept, ascending."""
        extra = np.zeros(len(self.labels), np.bool_)
        for group in self.groups:
            extra[group[1:]] = True
        return np.flatnonzero(~extra)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Numbers]:
        return iter(self.groups)
