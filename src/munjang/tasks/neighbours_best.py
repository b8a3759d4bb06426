"""A stream of scored pairs -> the best of them, in memory that the answer bounds.

Two limits may be set: `top`, the number of pairs in all, and `per_text`, how many neighbours a row may bring. With the
second, a pair stays if it is among the best of its left or of its right row: that is what sentence-transformers' mining
returns. Pairs wait in a buffer; when it is full it is cut, and the least score that can still matter rises.

Why the rise is safe with `per_text`: a pair that is in the lists of both its rows fills two places, so 2 * top filled
places hold at least `top` pairs; and later pairs can only raise the scores in the lists. Counting pairs instead would
be wrong, because a new pair may push two others out.

Equal scores go to the lower left row, then to the lower right one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from munjang.tasks.neighbours_tiles import Bools, Floats, Ints, Pairs, joined

Numbers = npt.NDArray[np.int64]

_ROOM = 1 << 20  # pairs that may always wait; cutting them takes up to 200 bytes for each where many are equal


class BestPairs:
    """Keeps the best pairs of those it is given."""

    def __init__(self, rows: int, *, top: int | None, per_text: int | None) -> None:
        self._rows = rows
        self._top = top
        self._per_text = per_text
        self._parts: list[Pairs] = []
        self._waiting = 0
        self._room = _ROOM if top is None else max(_ROOM, 4 * top)
        self.least = -math.inf  # what lies below cannot be among the best any more

    def add(self, pairs: Pairs) -> None:
        """Take some more; no pair may come twice."""
        if self.least > -math.inf:
            pairs = pairs.at(pairs.scores >= np.float32(self.least))
        if not len(pairs):
            return
        self._parts.append(pairs)
        self._waiting += len(pairs)
        if self._waiting > self._room and (self._top is not None or self._per_text is not None):
            self._cut()

    def waiting(self) -> Pairs:
        """All that may still be among the best, in no order."""
        self._parts = [joined(self._parts)]
        return self._parts[0]

    def finish(self) -> Pairs:
        """The best, best first."""
        pairs = self._kept(joined(self._parts))
        self._parts = []
        if self._top is not None and len(pairs) > self._top:
            level = -np.partition(-pairs.scores, self._top - 1)[self._top - 1]
            pairs = pairs.at(pairs.scores >= level)
        return pairs.at(order_of(pairs, self._rows)[: self._top])

    def _cut(self) -> None:
        pairs = joined(self._parts)
        if self._per_text is None:
            assert self._top is not None
            pairs = _first(pairs, self._top, self._rows)
            if len(pairs) == self._top:
                self.least = float(pairs.scores.min())
        else:
            places = _places(pairs, self._per_text, self._rows)
            pairs, places = pairs.at(places > 0), places[places > 0]
            if self._top is not None and int(places.sum()) >= 2 * self._top:
                order = order_of(pairs, self._rows)
                filled = np.cumsum(places[order])
                pairs = pairs.at(order[: int(np.searchsorted(filled, 2 * self._top)) + 1])
                self.least = float(pairs.scores.min())
        self._parts, self._waiting = [pairs], len(pairs)
        self._room = max(self._room, 2 * len(pairs))  # the answer itself may be large

    def _kept(self, pairs: Pairs) -> Pairs:
        if self._per_text is None:
            return pairs
        return pairs.at(_places(pairs, self._per_text, self._rows) > 0)


def order_of(pairs: Pairs, rows: int) -> Numbers:
    """The order from the best on."""
    # Score and place in one whole number: sorting those is ten times as quick as an argsort.
    keys = _falling(pairs.scores).astype(np.uint64) << np.uint64(32) | np.arange(len(pairs), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    scores = pairs.scores[order]
    equal = scores[1:] == scores[:-1]
    if equal.any():
        tied = np.flatnonzero(np.concatenate([equal, [False]]) | np.concatenate([[False], equal]))
        some = order[tied]
        within = pairs.left[some].astype(np.int64) * rows + pairs.right[some]
        order[tied] = some[np.lexsort((within, -scores[tied]))]
    return order


def degrees(pairs: Pairs, rows: int) -> Numbers:
    """In how many pairs each row is, [rows]."""
    counts: Numbers = np.bincount(pairs.left, minlength=rows) + np.bincount(pairs.right, minlength=rows)
    return counts


def _first(pairs: Pairs, count: int, rows: int) -> Pairs:
    """The best `count`, in no order."""
    if len(pairs) <= count:
        return pairs
    level = -np.partition(-pairs.scores, count - 1)[count - 1]
    above = pairs.at(pairs.scores > level)
    equal = pairs.at(pairs.scores == level)
    return joined([above, equal.at(order_of(equal, rows)[: count - len(above)])])


def _places(pairs: Pairs, per_text: int, rows: int) -> npt.NDArray[np.int8]:
    """Of how many of its two rows' lists each pair is a part: 0, 1 or 2, [m]."""
    if not len(pairs):
        return np.zeros(0, np.int8)
    full = degrees(pairs, rows) > per_text
    places = np.full(len(pairs), 2, np.int8)
    for one in (pairs.left, pairs.right):
        places[full[one]] -= 1  # until it is found in the list
    levels = _levels(pairs, full, per_text, rows)
    for one in (pairs.left, pairs.right):
        places[full[one] & (pairs.scores > levels[one])] += 1
    _settle_ties(pairs, places, (full, levels), per_text)
    return places


def _levels(pairs: Pairs, full: Bools, per_text: int, rows: int) -> Floats:
    """The score of each full row's last place, [rows]; -inf for the others."""
    keys = np.concatenate([_keys(one, pairs.scores, full) for one in (pairs.left, pairs.right)])
    keys.sort()  # by row, then from the best on: one sort of whole numbers, which is ten times as quick as two keys
    owners = (keys >> np.uint64(32)).astype(np.int64)
    first = np.searchsorted(owners, np.flatnonzero(full))
    last = keys[first + per_text - 1]
    levels = np.full(rows, -np.inf, np.float32)
    levels[full] = _scores_of(last)
    return levels


def _keys(one: Ints, scores: Floats, full: Bools) -> npt.NDArray[np.uint64]:
    """Row and score in one number that sorts by row, and within a row from the greatest score to the least."""
    chosen = full[one]
    return (one[chosen].astype(np.uint64) << np.uint64(32)) | _falling(scores[chosen]).astype(np.uint64)


def _falling(scores: Floats) -> npt.NDArray[np.uint32]:
    """Whole numbers that sort from the greatest score to the least."""
    bits = (scores + np.float32(0)).view(np.uint32)  # + 0: of -0 and 0 one number
    rising = np.where(bits >> np.uint32(31) == 1, ~bits, bits | np.uint32(1 << 31))
    falling: npt.NDArray[np.uint32] = ~rising
    return falling


def _scores_of(keys: npt.NDArray[np.uint64]) -> Floats:
    rising = ~(keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    negative = rising >> np.uint32(31) == 0
    scores: Floats = np.where(negative, ~rising, rising & np.uint32(0x7FFFFFFF)).view(np.float32)
    return scores


def _settle_ties(pairs: Pairs, places: npt.NDArray[np.int8], lists: tuple[Bools, Floats], per_text: int) -> None:
    """Of pairs that score as a full row's last place, those with the lowest other row get what places are left."""
    full, levels = lists
    tied = [np.flatnonzero(full[one] & (pairs.scores == levels[one])) for one in (pairs.left, pairs.right)]
    owner = np.concatenate([pairs.left[tied[0]], pairs.right[tied[1]]]).astype(np.int64)
    if not len(owner):
        return
    other = np.concatenate([pairs.right[tied[0]], pairs.left[tied[1]]])
    place = np.concatenate(tied)
    above = np.zeros(len(levels), np.int64)
    for one in (pairs.left, pairs.right):
        above += np.bincount(one[full[one] & (pairs.scores > levels[one])], minlength=len(levels))
    order = np.lexsort((other, owner))
    owner, place = owner[order], place[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    np.add.at(places, place[rank < per_text - above[owner]], 1)
