"""Vectors and a threshold -> communities: groups about a central row, all of whose members lie near it.

The definition is that of sentence-transformers' `community_detection`, with the same communities in the same order: a
row's community is all rows at or above the threshold of it. The largest communities come first (of equal ones that of
the first row); each keeps what is left of it, if its centre is still free and enough is left. The centre stands first
among the members, then they follow by falling similarity.

It does not take n x n memory, nor n times a row: only pairs above the threshold are kept, found tile by tile. Where
even these outgrow the memory allowed, only their number per row is kept, and the members of the centres that come to be
looked at are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.progress import Progress
from munjang.tasks.neighbours import Limit, scan
from munjang.tasks.neighbours_best import degrees
from munjang.tasks.neighbours_tiles import Bools, Floats, Pairs, Tiles, UnitRows, joined
from munjang.vectors.similarity import Vectors, blocks

Numbers = npt.NDArray[np.int64]
_Near = Callable[[int], tuple[Numbers, Floats]]  # a centre -> the rows near it, without itself, and their scores

_PAIR_BYTES = 40  # a pair, as it is collected and sorted


def communities(
    vectors: Vectors,
    threshold: float,
    *,
    min_size: int = 10,
    memory_mb: float = 64,
    device: str | None = None,
    progress: Progress = False,
) -> list[Numbers]:
    """Rows of each community, its centre first, the largest community first."""
    rows = UnitRows(vectors, device=device, memory_mb=memory_mb)
    return communities_of(rows, threshold, min_size=min_size, memory_mb=memory_mb, progress=progress)


def communities_of(
    unit: UnitRows, threshold: float, *, min_size: int, memory_mb: float, progress: Progress = False
) -> list[Numbers]:
    """The same for rows that are ready."""
    if min_size < 1:
        raise InputError(f"min_size must be 1 or more, got {min_size}")
    tiles = Tiles(unit, memory_mb=memory_mb)
    rows = unit.count
    most = int(memory_mb * 1e6 / _PAIR_BYTES)
    counts, pairs = np.zeros(rows, np.int64), _Kept(most)
    for found in scan(tiles, Limit(threshold), progress=progress):
        counts += degrees(found, rows)
        pairs.add(found)
    near_itself = np.where(unit.zero, threshold <= 0, threshold <= 1)
    counts += near_itself
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_size]
    taken = np.zeros(rows, np.bool_)
    if pairs.complete:
        batches = iter([(order, _looked_up(pairs.all(), rows))])
    else:
        batches = _computed(unit, threshold, (order, counts, taken), most)
    found_all: list[Numbers] = []
    for centres, near in batches:
        found_all += _greedy(centres, near, taken, (near_itself, min_size))
    return sorted(found_all, key=len, reverse=True)


def _greedy(centres: Numbers, near: _Near, taken: Bools, rule: tuple[Bools, int]) -> Iterator[Numbers]:
    """Communities of the centres that are still free, in their order; what they take is marked."""
    near_itself, min_size = rule
    for centre in centres.tolist():
        if taken[centre]:
            continue
        members, scores = near(centre)
        free = ~taken[members]
        if int(free.sum()) + int(near_itself[centre]) < min_size:
            continue
        members, scores = members[free], scores[free]
        community = np.concatenate([[centre], members[np.lexsort((members, -scores))]])
        taken[community] = True
        yield community


class _Kept:
    """Pairs, as long as they are not too many; then none."""

    def __init__(self, most: int) -> None:
        self._parts: list[Pairs] = []
        self._left = most
        self.complete = True

    def add(self, pairs: Pairs) -> None:
        if not self.complete or not len(pairs):
            return
        self._left -= len(pairs)
        if self._left < 0:
            self.complete, self._parts = False, []
            return
        self._parts.append(pairs)

    def all(self) -> Pairs:
        parts, self._parts = self._parts, []
        return joined(parts)


def _looked_up(pairs: Pairs, rows: int) -> _Near:
    """Neighbours from the pairs that were kept: those of row i lie at starts[i]..starts[i + 1]."""
    one = np.concatenate([pairs.left, pairs.right])
    order = np.argsort(one, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(one, minlength=rows))])
    half = len(pairs)

    def near(centre: int) -> tuple[Numbers, Floats]:
        places = order[starts[centre] : starts[centre + 1]]
        first = places < half
        pair = np.where(first, places, places - half)
        return np.where(first, pairs.right[pair], pairs.left[pair]).astype(np.int64), pairs.scores[pair]

    return near


def _computed(
    rows: UnitRows, threshold: float, state: tuple[Numbers, Numbers, Bools], most: int
) -> Iterator[tuple[Numbers, _Near]]:
    """Free centres in their order, a batch at a time, whose neighbours are computed and fit into memory together."""
    order, counts, taken = state
    at = 0
    while at < len(order):
        ahead = order[at:]
        free = np.flatnonzero(~taken[ahead])
        if not len(free):
            return
        total = np.cumsum(counts[ahead[free]])
        size = max(1, min(512, int(np.searchsorted(total, most, side="right"))))
        batch = ahead[free[:size]]
        at += int(free[len(batch) - 1]) + 1
        yield batch, _compared(rows, batch, threshold)


def _compared(rows: UnitRows, centres: Numbers, threshold: float) -> _Near:
    """Neighbours of some centres, computed now."""
    queries = rows.read(centres)
    parts: list[tuple[Numbers, Numbers, Floats]] = []
    for part in blocks(rows.count, 8192):
        scores = (queries @ rows.read(part).T).cpu().numpy()
        one, other = np.nonzero(scores >= np.float32(threshold))
        parts.append((one, other + part.start, scores[one, other]))
    one, other, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    others = other != centres[one]
    one, other, values = one[others], other[others], values[others]
    order = np.argsort(one, kind="stable")
    starts = np.searchsorted(one[order], np.arange(len(centres) + 1))
    place = {int(centre): number for number, centre in enumerate(centres)}

    def near(centre: int) -> tuple[Numbers, Floats]:
        mine = order[starts[place[centre]] : starts[place[centre] + 1]]
        return other[mine], values[mine]

    return near
