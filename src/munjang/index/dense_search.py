"""Queries and kept rows -> the k nearest rows of each, proven where that can be.

A scan or a graph gives somewhat more candidates than asked for. They are counted again, pair by pair: with the rows
themselves where these are floats, else with the true vectors of the index. A query is settled when its k-th best is
better than the last candidate can possibly be in truth (`KeptRows.slack`): then nothing left out can belong to the
answer, and equal rows that end at the boundary go to the lower number. What is not settled is asked again for more
candidates, and at last every row that could still belong is looked at.

A graph and bits prove nothing; there a query counts as settled unless the k-th and the last candidate are equal,
which is how a crowd of equal rows shows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from munjang.index.dense_graph import Graph
from munjang.index.dense_metric import BLOCK_FLOATS, Floats, Mask, Rows
from munjang.index.dense_rows import BitRows, FloatRows, KeptRows
from munjang.index.dense_twins import Twins

ROUNDS = 3  # times that an unsettled query is asked for more candidates
MORE = 8  # ... so many times more
MOST_FETCHED = 8_192  # true vectors that one query may fetch from the index
SPARE = 8  # candidates beyond k among floats
SPARE_BYTES, TIMES_BYTES = 32, 2  # candidates among bytes: k * 2 + 32
SPARE_BITS, TIMES_BITS = 256, 16
FEW_DEAD = 256  # up to so many removed rows are fetched and dropped; beyond, a bitmap passes over them

Fetch = Callable[[Rows], Floats]  # rows [n] -> their true vectors, prepared [n, d]


@dataclass(frozen=True)
class Part:
    """Rows that are searched together."""

    rows: KeptRows
    numbers: Rows  # [n], ascending
    graph: Graph | None = None
    dead: Mask | None = None  # [n], True for rows that were removed
    twins: Twins | None = None  # with a graph: `rows` are its nodes, and these say which numbers each stands for

    @functools.cached_property
    def nodes(self) -> tuple[Part, int]:
        """The nodes of a graph as a part of their own, numbered by their first living number; and how many live."""
        return self.nodes_within(self.mask(None))

    def nodes_within(self, mask: Mask | None) -> tuple[Part, int]:
        """The same, where only the rows of a mask count."""
        assert self.twins is not None
        alive = None if mask is None else self.twins.any_of(mask)
        first = self.numbers[self.twins.first_of(mask)]  # of a node without a row in the mask: any, nobody asks for it
        living = self.twins.count if alive is None else int(np.count_nonzero(alive))
        dead = None if alive is None or living == len(alive) else ~alive
        return Part(self.rows, first, self.graph, dead), living

    @functools.cached_property
    def living(self) -> int:
        return len(self.numbers) if self.dead is None else int(len(self.dead) - np.count_nonzero(self.dead))

    def mask(self, allowed: Mask | None) -> Mask | None:  # [living] -> [n]
        """Which rows may be found, given which of the living ones are allowed."""
        if self.dead is None or allowed is None:
            return allowed if self.dead is None else ~self.dead
        mask = np.zeros(len(self.dead), dtype=np.bool_)
        mask[~self.dead] = allowed
        return mask


def search_part(
    part: Part, queries: Floats, k: int, *, allowed: Mask | None, fetch: Fetch
) -> tuple[Floats, Rows]:  # [q, d] -> [q, <= k] twice: nearness and number
    """The k nearest allowed rows of every query, best first, -1 behind the last."""
    total = part.living if allowed is None else int(np.count_nonzero(allowed))
    k = min(k, total)
    if not k:
        return np.empty((len(queries), 0), dtype=np.float32), np.empty((len(queries), 0), dtype=np.int64)
    if part.twins is not None:
        near, rows = _search_nodes(part, part.twins, queries, k, allowed=allowed, fetch=fetch)
    else:
        near, rows = _Search(part, fetch, total, allowed).run(queries, k)
    return near, np.where(rows < 0, -1, part.numbers[rows])


def _search_nodes(
    part: Part, twins: Twins, queries: Floats, k: int, *, allowed: Mask | None, fetch: Fetch
) -> tuple[Floats, Rows]:  # [q, k] twice: nearness and row
    """Search the nodes, then put their rows in their places."""
    mask = part.mask(allowed)
    inner, total = part.nodes if allowed is None else part.nodes_within(mask)
    near, nodes = _Search(inner, fetch, total, None).run(queries, min(k, total))
    if twins.are_none:
        return near, nodes
    before = near
    near, rows = twins.spread(near, nodes, k, mask)
    if near is before and isinstance(part.rows, FloatRows):  # none of the found has a twin
        return near, rows
    if not isinstance(part.rows, FloatRows):  # equal codes need not be equal vectors
        near = count_again(part, queries, rows, fetch)
    near, rows = _best(near, rows, k)
    if missing := k - rows.shape[1]:
        wider = ((0, 0), (0, missing))
        return np.pad(near, wider, constant_values=-np.inf), np.pad(rows, wider, constant_values=-1)
    return near, rows


def count_again(part: Part, queries: Floats, rows: Rows, fetch: Fetch) -> Floats:  # [q, d], [q, c] -> [q, c]
    """Nearness by the true vectors from the index."""
    needed, at = np.unique(rows, return_inverse=True)
    ids = at.reshape(rows.shape).astype(np.int64)
    if len(needed) and needed[0] < 0:
        needed, ids = needed[1:], ids - 1
    return part.rows.metric.pairs(queries, fetch(part.numbers[needed]), ids)


class _Search:
    """One call's search over one part."""

    def __init__(self, part: Part, fetch: Fetch, total: int, allowed: Mask | None) -> None:
        self.part, self.fetch, self.total = part, fetch, total
        self.dead_rows = 0 if part.dead is None else len(part.numbers) - part.living
        # Few removed rows are cheaper fetched and dropped than passed over.
        self.drop = allowed is None and 0 < self.dead_rows <= FEW_DEAD
        self.mask = None if self.drop else part.mask(allowed)

    def run(self, queries: Floats, k: int) -> tuple[Floats, Rows]:  # -> [q, k] twice
        count = _first_count(self.part.rows, k)
        near, rows, settled = self._ask(queries, k, count)
        for _ in range(ROUNDS):
            if settled.all():
                return near, rows
            count = min(count * MORE, max(count, MOST_FETCHED))
            again = np.flatnonzero(~settled)
            near[again], rows[again], settled[again] = self._ask(queries[again], k, count)
        if not isinstance(self.part.rows, BitRows):
            for at in np.flatnonzero(~settled):
                near[at], rows[at] = self._settle(queries[at], k, near[at, -1])
        return near, rows

    def _ask(self, queries: Floats, k: int, count: int) -> tuple[Floats, Rows, Mask]:  # [q, k], [q, k], [q]
        """The k best of `count` candidates, and which queries that settles."""
        step = max(1, BLOCK_FLOATS // (self.part.rows.metric.dimension * count))
        if isinstance(self.part.rows, FloatRows) or len(queries) <= step:  # only fetched vectors need room
            return self._ask_together(queries, k, count)
        parts = [self._ask_together(queries[at : at + step], k, count) for at in range(0, len(queries), step)]
        near, rows, settled = (np.concatenate(some) for some in zip(*parts, strict=True))
        return near, rows, settled

    def _ask_together(self, queries: Floats, k: int, count: int) -> tuple[Floats, Rows, Mask]:
        part, dead = self.part, self.part.dead
        count = min(max(count, k), self.total) + (self.dead_rows if self.drop else 0)
        whole = count >= self.total + (self.dead_rows if self.drop else 0)
        if part.graph is not None and not whole and part.graph.pays(count, self.mask):
            kept, rows = part.graph.candidates(queries, count, self.mask)
            proof = False
        else:
            kept, rows = part.rows.candidates(queries, count, self.mask)
            proof = not isinstance(part.rows, BitRows)
        if self.drop and dead is not None:
            rows = np.where(dead[rows] & (rows >= 0), -1, rows)
        near = self._count(queries, rows)
        last = near.min(axis=1)
        if proof:
            last = kept[:, -1] + part.rows.slack(queries, kept[:, -1])
        near, rows = _best(near, rows, k)
        full = rows[:, -1] >= 0
        return near, rows, full & ((near[:, -1] > last) | whole)

    def _count(self, queries: Floats, rows: Rows) -> Floats:  # [q, d], [q, c] -> [q, c]
        kept = self.part.rows
        if isinstance(kept, FloatRows):
            return kept.metric.pairs(queries, kept.values, rows)
        return count_again(self.part, queries, rows, self.fetch)

    def _settle(self, query: Floats, k: int, least: np.float32) -> tuple[Floats, Rows]:  # -> [k], [k]
        """Look at every row that can be as near as the k-th that was found."""
        kept = self.part.rows
        floor = np.array([least if np.isfinite(least) else -np.inf], dtype=np.float32)
        bound = float(floor[0] - kept.slack(query[None], floor)[0]) if np.isfinite(least) else -np.inf
        mask = self.part.mask(None) if self.drop else self.mask
        near, rows = kept.within(query, bound, mask)
        if not isinstance(kept, FloatRows) and len(rows) > MOST_FETCHED:
            # A crowd of equal codes: those of the lowest numbers stand for it.
            rows = np.sort(rows[np.lexsort((rows, -near))[:MOST_FETCHED]])
        counted = self._count(query[None], rows[None])
        best, found = _best(counted, rows[None], k)
        return best[0], found[0]


def _first_count(rows: KeptRows, k: int) -> int:
    if isinstance(rows, BitRows):
        return TIMES_BITS * k + SPARE_BITS
    return k + SPARE if isinstance(rows, FloatRows) else TIMES_BYTES * k + SPARE_BYTES


def _best(near: Floats, rows: Rows, k: int) -> tuple[Floats, NDArray[np.int64]]:  # [q, c] -> [q, k]
    """The k nearest, equals in the order of their rows; k <= c, and -1 last."""
    if len(near) == 1:  # one query is to cost little more than its search
        one = np.lexsort((rows[0], -near[0]))[:k]
        return near[:, one], rows[:, one]
    order = np.lexsort((rows, -near))[:, :k]
    return np.take_along_axis(near, order, 1), np.take_along_axis(rows, order, 1)
