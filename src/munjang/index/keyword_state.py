"""Segments and the numbers of the living passages -> the best passages for the terms of a query, by BM25.

    score(q, d) = sum over the terms t of q of  idf(t) * f * (k1 + 1) / (f + k1 * (1 - b + b * |d| / mean))
    idf(t) = log(1 + (n - df(t) + 1/2) / (df(t) + 1/2)); a term that q has twice counts twice

f is how often d has t, |d| how many terms d has, `mean` the mean of these (Robertson and Zaragoza 2009; k1 = 1.2 and
b = 0.75, as Lucene and tantivy have them). n, df and mean count the living passages only, at the moment of asking: a
score says the same whatever was removed before, however the passages lie in segments, and whatever a filter allows.

The search is exact. Terms are gone through from the rarest to the commonest. As soon as all that is left together
cannot lift a new passage among the k best, only those seen so far that still can get there are looked up in the
remaining lists, which are the long ones (MaxScore, Turtle and Flood 1995).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from munjang.index.keyword_segment import Mask, Rows, Segment

K1, B = 1.2, 0.75
Floats: TypeAlias = NDArray[np.float64]
_LONG = 256  # entries: a shorter list is added sooner than it is thought about
_FEW = 16  # looking up costs about so many times more than going through
_REMEMBERED = 100_000  # document frequencies
_ROUNDING = 1e-6  # relative; scores are compared as float32, in which what differs by less may be equal


@dataclass(frozen=True)
class Query:
    """The terms of a query with repetitions, and those that a passage must have."""

    terms: Sequence[str]
    required: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Within:
    """The rows that may be found."""

    mask: Mask | None  # [rows]; None: all
    only: Rows | None  # the same as row numbers, where somebody chose them


@dataclass(frozen=True, eq=False)
class _List:
    """Where one term of a query stands among the passages that may be found."""

    rows: Rows  # ascending
    counts: NDArray[np.uint16]
    factor: float  # times * idf * (k1 + 1)
    bound: float  # the most that it adds to a passage

    def weights(self, norms: Floats, at: NDArray[np.intp] | slice = slice(None)) -> Floats:
        times = self.counts[at].astype(np.float64)
        return self.factor * times / (times + norms[self.rows[at]])


@dataclass(frozen=True, eq=False)
class KeywordState:
    """All terms of one generation of an index. Never changed, so that threads may search it while others follow."""

    segments: tuple[Segment, ...]  # their numbers ascend from one to the next
    generation: int
    upto: int  # all passages up to this number are here
    numbers: NDArray[np.int64]  # [rows], of living and removed passages
    alive: Mask | None  # [rows]; None: all
    norms: Floats  # [rows]: k1 * (1 - b + b * length / mean)
    living: int
    least: float  # of the norms of the living
    frequencies: dict[str, int] = field(default_factory=dict)  # df, as far as they were asked for

    @classmethod
    def of(
        cls, segments: Sequence[Segment], living: NDArray[np.int64], generation: int, upto: int
    ) -> KeywordState | None:
        """None where a living passage is in no segment."""
        numbers = _joined([segment.numbers for segment in segments], np.int64)
        lengths = _joined([segment.lengths for segment in segments], np.int32)
        at = np.searchsorted(numbers, living)
        if len(living) and (at[-1] >= len(numbers) or not np.array_equal(numbers[at], living)):
            return None
        alive = None
        if len(living) < len(numbers):
            alive = np.zeros(len(numbers), np.bool_)
            alive[at] = True
        mean = float(lengths[at].mean(dtype=np.float64)) if len(living) else 0.0
        norms = K1 * (1 - B + B * lengths / (mean or 1.0))
        least = float(norms[at].min()) if len(living) else 0.0
        return cls(tuple(segments), generation, upto, numbers, alive, norms, len(living), least)

    def masks(self) -> list[Mask | None]:
        """For every segment which of its rows are alive."""
        if self.alive is None:
            return [None] * len(self.segments)
        edges = np.cumsum([len(segment.numbers) for segment in self.segments])[:-1]
        return list(np.split(self.alive, edges))

    def within(self, allowed: Mask | None) -> Within:
        """A mask over the living passages as one over rows."""
        if allowed is None:
            return Within(self.alive, None)
        mask = allowed
        if self.alive is not None:
            mask = np.zeros(len(self.numbers), np.bool_)
            mask[self.alive] = allowed
        return Within(mask, np.flatnonzero(mask).astype(np.int32))

    def best(self, query: Query, k: int, within: Within) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and numbers ([<= k], best first) of the passages with a term of the query."""
        within = self._with_required(query, within)
        asked = [(self._frequency(term), term, times) for term, times in Counter(query.terms).items()]
        lists = []
        for frequency, term, times in sorted(asked):
            if frequency:
                lists.append(self._list(term, times * self._idf(frequency) * (K1 + 1), within))
        rows, scores = _best([one for one in lists if len(one.rows)], k, self.norms)
        return scores, self.numbers[rows]

    def reach(self, query: Query) -> float:
        """The score that no passage exceeds: every term of the query, also those that no passage has, without end."""
        return float(
            sum(times * self._idf(self._frequency(term)) * (K1 + 1) for term, times in Counter(query.terms).items())
        )

    def _idf(self, frequency: int) -> float:
        return float(np.log1p((self.living - frequency + 0.5) / (frequency + 0.5)))

    def _with_required(self, query: Query, within: Within) -> Within:
        if not query.required:
            return within
        first, *others = sorted(query.required, key=lambda term: (self._frequency(term), term))
        rows = self._entries(first)[0]
        for term in others:
            rows = np.intersect1d(rows, self._entries(term)[0], assume_unique=True)
        rows = rows if within.mask is None else rows[within.mask[rows]]
        mask = np.zeros(len(self.numbers), np.bool_)
        mask[rows] = True
        return Within(mask, rows)

    def _entries(self, term: str) -> tuple[Rows, NDArray[np.uint16]]:
        """Rows and counts of a term in all segments, removed passages too."""
        rows, counts, base, encoded = [], [], 0, term.encode()
        for segment in self.segments:
            where = segment.find(encoded)
            if where.stop > where.start:
                own = segment.rows[where]
                rows.append(own + np.int32(base) if base else own)
                counts.append(segment.counts[where])
            base += len(segment.numbers)
        return _joined(rows, np.int32), _joined(counts, np.uint16)

    def _frequency(self, term: str) -> int:
        found = self.frequencies.get(term)
        if found is None:
            if len(self.frequencies) > _REMEMBERED:
                self.frequencies.clear()
            rows, _ = self._entries(term)
            found = len(rows) if self.alive is None else int(self.alive[rows].sum())
            self.frequencies[term] = found
        return found

    def _list(self, term: str, factor: float, within: Within) -> _List:
        rows, counts = self._entries(term)
        if within.only is not None and len(within.only) * _FEW < len(rows):
            at = np.minimum(np.searchsorted(rows, within.only), len(rows) - 1)
            at = at[rows[at] == within.only]
            rows, counts = rows[at], counts[at]
        elif within.mask is not None:
            kept = within.mask[rows]
            rows, counts = rows[kept], counts[kept]
        most = float(counts.max()) if len(counts) else 0.0
        return _List(rows, counts, factor, factor * most / (most + self.least) if most else 0.0)


def _best(lists: Sequence[_List], k: int, norms: Floats) -> tuple[Rows, NDArray[np.float32]]:
    """Rows and scores, best first; sums are made in the order of the lists, whichever way a row is reached."""
    left = [*np.cumsum([one.bound for one in reversed(lists)])[::-1].tolist(), 0.0]  # of a list and all after it
    total = np.zeros(len(norms))
    seen: list[Rows] = []
    size = place = 0
    for place, one in enumerate(lists):
        if size >= k and len(one.rows) > _LONG and left[place] < left[0] - left[place]:  # else nobody is that far
            reached = total[np.concatenate(seen)]
            if left[place] < _kth(reached, k) * (1 - _ROUNDING):
                break
        before = total[one.rows]
        seen.append(one.rows[before == 0.0])
        size += len(seen[-1])
        total[one.rows] = before + one.weights(norms)
    else:
        place = len(lists)
    rows = _joined(seen, np.int32)
    reached = total[rows]
    for rest in range(place, len(lists)):
        hopeful = reached + left[rest] >= _kth(reached, k) * (1 - _ROUNDING)
        rows, reached = rows[hopeful], reached[hopeful]
        reached = reached + _looked_up(lists[rest], rows, norms)
    return _sorted(rows, reached.astype(np.float32), k)


def _looked_up(one: _List, rows: Rows, norms: Floats) -> Floats:
    at = np.minimum(np.searchsorted(one.rows, rows), len(one.rows) - 1)
    hit = one.rows[at] == rows
    added = np.zeros(len(rows))
    added[hit] = one.weights(norms, at[hit])
    return added


def _sorted(rows: Rows, scores: NDArray[np.float32], k: int) -> tuple[Rows, NDArray[np.float32]]:
    if len(rows) > k:
        kept = scores >= np.float32(_kth(scores, k))
        rows, scores = rows[kept], scores[kept]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _kth(values: NDArray[np.floating], k: int) -> float:
    """The k-th greatest; nothing is required of any where there are fewer."""
    if len(values) < k:
        return 0.0
    return float(np.partition(values, len(values) - k)[len(values) - k])


def _joined(arrays: Sequence[NDArray[np.generic]], dtype: type[np.generic]) -> NDArray:  # type: ignore[type-arg]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
