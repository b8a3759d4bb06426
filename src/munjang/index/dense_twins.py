"""Rows of which some are equal -> one of each, and which rows stand behind it.

Equal rows poison a graph: they fill each other's lists of neighbours until little leads out of the crowd, and searches
that have nothing to do with them lose recall too (a quarter of it with 1,500 of 3,000 rows in three crowds,
measured). So a graph holds every vector once; a vector that is found stands for all its rows. Real texts have such
crowds: the same short review a thousand times over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.index.dense_metric import Floats, Mask, Rows
from munjang.index.dense_rows import ByteRows, FloatRows

_ODD = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 16_384  # rows that are hashed at a time


@dataclass(frozen=True)
class Twins:
    """For every node the rows that are equal to it. Rows are those of `Part.numbers`."""

    nodes: Rows  # [n], the node of every row
    starts: Rows  # [m + 1]: the rows of node i are members[starts[i]:starts[i + 1]], ascending
    members: Rows  # [n]

    @classmethod
    def of(cls, nodes: Rows, count: int) -> Twins:
        starts = np.concatenate(([0], np.cumsum(np.bincount(nodes, minlength=count)))).astype(np.int64)
        return cls(nodes, starts, np.argsort(nodes, kind="stable"))

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def are_none(self) -> bool:
        """Whether every row is a node of its own; nodes are numbered in the order of their first rows."""
        return self.count == len(self.nodes)

    def any_of(self, mask: Mask) -> Mask:  # [n] -> [m]
        """Which nodes have a row in a mask."""
        out = np.zeros(self.count, dtype=np.bool_)
        out[self.nodes[mask]] = True
        return out

    def first_of(self, mask: Mask | None) -> Rows:  # [n] -> [m]
        """The first row of every node, in a mask where one is given; -1 where it has none there."""
        out = np.full(self.count, -1, dtype=np.int64)
        rows = np.arange(len(self.nodes)) if mask is None else np.flatnonzero(mask)
        out[self.nodes[rows[::-1]]] = rows[::-1]  # the first is written last
        return out

    def spread(self, near: Floats, nodes: Rows, k: int, mask: Mask | None) -> tuple[Floats, Rows]:
        """Nodes that were found, [q, c] -> all their rows in a mask, at most k of each node, [q, wide]; -1 behind."""
        first = self.starts[nodes]
        if mask is None and nodes.min(initial=0) >= 0 and int((self.starts[nodes + 1] - first).max(initial=0)) <= 1:
            return near, self.members[first]
        lists = [[self._rows(int(node), k, mask) for node in one] for one in nodes]
        wide = max((sum(map(len, one)) for one in lists), default=0)
        out = np.full((len(nodes), wide), -np.inf, np.float32), np.full((len(nodes), wide), -1, np.int64)
        for at, one in enumerate(lists):
            found = np.concatenate(one) if one else np.empty(0, np.int64)
            out[1][at, : len(found)] = found
            out[0][at, : len(found)] = np.repeat(near[at], [len(rows) for rows in one])
        return out

    def _rows(self, node: int, k: int, mask: Mask | None) -> Rows:
        if node < 0:
            return np.empty(0, dtype=np.int64)
        rows = self.members[self.starts[node] : self.starts[node + 1]]
        return rows[:k] if mask is None else rows[mask[rows]][:k]


def nodes_of(kept: FloatRows | ByteRows) -> tuple[Rows, Rows]:
    """The node of every row [n], and the row that stands for each node [m], in order of row."""
    codes = _codes(kept)
    return _grouped(codes, np.empty((0, codes.shape[1]), codes.dtype))


def nodes_of_more(kept: FloatRows | ByteRows, more: FloatRows | ByteRows) -> tuple[Rows, Rows]:
    """For further rows the node of each: one that `kept` has, or a new one; and the further rows that are new."""
    return _grouped(_codes(more), _codes(kept))


def _grouped(codes: NDArray[Any], known: NDArray[Any]) -> tuple[Rows, Rows]:
    """Nodes of codes [n], where the first nodes are `known`; and those codes that are new nodes [m]."""
    keys = np.concatenate((_hashes(known), _hashes(codes)))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    leader = first[group][len(known) :]  # for each of the codes, the first that has its hash
    own = np.arange(len(known), len(keys))
    both = np.flatnonzero(leader != own)
    if len(both):
        # Hashes can meet: only what is really equal is a twin; the few others are nodes of their own.
        for at in both:
            lead = leader[at]
            other = known[lead] if lead < len(known) else codes[lead - len(known)]
            if not np.array_equal(other, codes[at]):
                leader[at] = own[at]
    fresh = np.flatnonzero(leader == own)
    places = np.full(len(keys), -1, dtype=np.int64)
    places[: len(known)] = np.arange(len(known))
    places[fresh + len(known)] = np.arange(len(fresh)) + len(known)
    return places[leader], fresh


def _codes(kept: FloatRows | ByteRows) -> NDArray[Any]:
    return kept.values if isinstance(kept, FloatRows) else kept.codes


def _hashes(codes: NDArray[Any]) -> NDArray[np.uint64]:  # [n, d] -> [n]
    out = np.zeros(len(codes), dtype=np.uint64)
    random = np.random.default_rng(0)
    weights = random.integers(1, 1 << 63, codes.shape[1], dtype=np.uint64) | np.uint64(1)
    for start in range(0, len(codes), _BLOCK):
        some = np.ascontiguousarray(codes[start : start + _BLOCK])
        if some.dtype == np.float32:
            some = (some + np.float32(0)).view(np.uint32)  # -0 and 0 are equal
        mixed = (some.astype(np.uint64) + np.uint64(1)) * weights
        mixed ^= mixed >> np.uint64(29)
        out[start : start + _BLOCK] = (mixed * _ODD).sum(axis=1, dtype=np.uint64)
    return out
