"""Terms of passages -> a segment: for every term, which passages have it and how often.

    terms per passage -> `built` -> Segment <-> arrays of a file
    neighbouring segments, less what was removed -> `merged` -> Segment

A segment is never changed. Nothing in it depends on other passages (no weights, no document frequencies), so what is
found with many small segments is to the last bit what is found with one large one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
MOST = np.iinfo(np.uint16).max  # a term that stands more often in one passage counts as so many


@dataclass(frozen=True, eq=False, repr=False)
class Segment:
    """Passages with ascending numbers. Terms are sorted by their bytes, the rows of a term ascend."""

    numbers: NDArray[np.int64]  # [n]
    lengths: NDArray[np.int32]  # [n]: terms in the passage
    checks: NDArray[np.uint32]  # [n]: checksums of the texts that the terms were made from
    letters: NDArray[np.uint8]  # [bytes]: all terms in UTF-8, one after another
    ends: NDArray[np.int64]  # [terms + 1]: where each term begins and the one before it ends
    starts: NDArray[np.int64]  # [terms + 1]: where the rows of a term begin
    rows: Rows  # [entries]
    counts: NDArray[np.uint16]  # [entries]: how often the passage has the term
    file: str = ""  # the name of its file, where it has one

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in NAMES}

    def find(self, term: bytes) -> slice:
        """Where the rows of a term are; empty where no passage has it."""
        low, high = 0, len(self.ends) - 1
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < term:
                low = middle + 1
            else:
                high = middle
        if low == len(self.ends) - 1 or self._term(low) != term:
            return slice(0, 0)
        return slice(int(self.starts[low]), int(self.starts[low + 1]))

    def _term(self, place: int) -> bytes:
        return self.letters[self.ends[place] : self.ends[place + 1]].tobytes()

    def terms(self) -> list[bytes]:
        whole, ends = self.letters.tobytes(), self.ends.tolist()
        return [whole[first:last] for first, last in pairwise(ends)]


NAMES = ("numbers", "lengths", "checks", "letters", "ends", "starts", "rows", "counts")
TYPES: Mapping[str, Any] = {
    "numbers": np.int64,
    "lengths": np.int32,
    "checks": np.uint32,
    "letters": np.uint8,
    "ends": np.int64,
    "starts": np.int64,
    "rows": np.int32,
    "counts": np.uint16,
}


def from_arrays(arrays: Mapping[str, Array]) -> Segment:
    """A segment from the arrays of a file; ValueError or KeyError where they do not fit together."""
    found = {name: arrays[name] for name in NAMES}
    if any(found[name].dtype != TYPES[name] or found[name].ndim != 1 for name in NAMES):
        raise ValueError("arrays of other types")
    values: Mapping[str, Any] = found
    segment = Segment(**values)
    count, entries = len(segment.numbers), len(segment.rows)
    fits = len(segment.lengths) == len(segment.checks) == count and len(segment.counts) == entries
    fits = fits and len(segment.ends) == len(segment.starts) >= 1
    if not fits or int(segment.starts[-1]) != entries or int(segment.ends[-1]) != len(segment.letters):
        raise ValueError("arrays of different lengths")
    return segment


def built(numbers: NDArray[np.int64], checks: Sequence[int], terms: Iterable[Sequence[str]]) -> Segment:
    """A segment of passages and their terms."""
    words: dict[str, int] = {}
    found, lengths = array("q"), array("i")
    for own in terms:
        found.extend([words.setdefault(term, len(words)) for term in own])
        lengths.append(len(own))
    # UTF-8 sorts as the characters do.
    order = sorted(words)
    place = np.empty(len(words), np.int64)
    place[[words[word] for word in order]] = np.arange(len(words))
    encoded = [word.encode() for word in order]
    count = max(1, len(lengths))
    own_rows = np.repeat(np.arange(len(lengths)), lengths)
    keys, times = np.unique(place[np.array(found, np.int64)] * count + own_rows, return_counts=True)
    return Segment(
        numbers=np.asarray(numbers, np.int64).copy(),
        lengths=np.array(lengths, np.int32),
        checks=np.array(checks, np.uint32),
        letters=np.frombuffer(b"".join(encoded), np.uint8),
        ends=_bounds(np.array([len(term) for term in encoded], np.int64)),
        starts=_bounds(np.bincount(keys // count, minlength=len(words))),
        rows=(keys % count).astype(np.int32),
        counts=np.minimum(times, MOST).astype(np.uint16),
    )


def merged(segments: Sequence[Segment], alive: Sequence[Mask | None]) -> Segment:
    """Segments one after another as one, without the rows that are not alive (None: all are)."""
    kept = [_kept(segment, mask) for segment, mask in zip(segments, alive, strict=True)]
    names = [segment.terms() for segment in kept]
    terms = sorted(set().union(*names))
    numbers = {term: place for place, term in enumerate(terms)}
    places = [np.array([numbers[term] for term in own], np.int64) for own in names]
    totals = np.zeros(len(terms), np.int64)
    for segment, own in zip(kept, places, strict=True):
        totals[own] += np.diff(segment.starts)
    starts = _bounds(totals)
    rows, counts = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), np.uint16)
    free, base = starts[:-1].copy(), 0  # free: where the next entry of a term goes
    for segment, own in zip(kept, places, strict=True):
        sizes = np.diff(segment.starts)
        target = np.repeat(free[own] - segment.starts[:-1], sizes) + np.arange(len(segment.rows))
        rows[target], counts[target] = segment.rows + np.int32(base), segment.counts
        free[own] += sizes
        base += len(segment.numbers)
    return Segment(
        numbers=np.concatenate([segment.numbers for segment in kept]),
        lengths=np.concatenate([segment.lengths for segment in kept]),
        checks=np.concatenate([segment.checks for segment in kept]),
        letters=np.frombuffer(b"".join(terms), np.uint8),
        ends=_bounds(np.array([len(term) for term in terms], np.int64)),
        starts=starts,
        rows=rows,
        counts=counts,
    )


def _kept(segment: Segment, alive: Mask | None) -> Segment:
    """The living rows, and the terms that they have."""
    if alive is None or alive.all():
        return segment
    entries = alive[segment.rows]  # [entries]
    sums = np.concatenate(([0], np.cumsum(entries)))
    sizes = sums[segment.starts[1:]] - sums[segment.starts[:-1]]
    used = sizes > 0
    terms = [term for term, is_used in zip(segment.terms(), used.tolist(), strict=True) if is_used]
    moved = (np.cumsum(alive) - 1).astype(np.int32)
    return Segment(
        numbers=segment.numbers[alive],
        lengths=segment.lengths[alive],
        checks=segment.checks[alive],
        letters=np.frombuffer(b"".join(terms), np.uint8),
        ends=_bounds(np.array([len(term) for term in terms], np.int64)),
        starts=_bounds(sizes[used]),
        rows=moved[segment.rows[entries]],
        counts=segment.counts[entries],
    )


def _bounds(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
