"""IBM Model 1 (Brown et al. 1993) between new and old pieces: which old pieces translate a new one.

Enters: row-aligned translations as ids of old pieces and ids of new pieces. Leaves: for each new piece that occurs, the
old pieces it most likely stands for, with weights. t(old | new) is estimated by expectation maximisation over sets of
pieces, with an empty piece that takes what nothing translates ('the'). Everything is arrays: a link is one (new, old)
of one pair, links of one old piece in one pair lie together, and equal links share a number.

Short pairs come first, because they say more with fewer links, and links stop at a budget: at the default of 20
million, about 1 GB and some twenty seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from munjang.text.packing import Int32, Int64, positions, starts_of

LINKS = 20_000_000
ROUNDS = 5
STRONGEST = 8  # old pieces that make a new one's row

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ragged = tuple[Int32, Int32]  # ids [total] and lengths [n]


@dataclass(frozen=True)
class Aligned:
    """The old pieces that one new piece stands for, the surest first."""

    ids: Int64  # [k]
    weights: npt.NDArray[np.float32]  # [k], adding up to 1


def align(
    old: Ragged,
    new: Ragged,
    *,
    ignored: Bools,
    weak: Bools,
    links: int = LINKS,
    rounds: int = ROUNDS,
    done: Callable[[int], None] = lambda n: None,
) -> tuple[dict[int, Aligned], int]:
    """For each new id its strongest old ids; and how many pairs were read.

    ignored [old ids]: special tokens, never an answer. weak [old ids]: punctuation, an answer where there is no other.
    done: told of every pair once when links are made and once in each round.
    """
    empty = int(new[0].max(initial=-1)) + 1  # the id of the empty piece
    sources, targets = _distinct(new, empty), _distinct(old, None)
    chosen = _shortest(sources[1], targets[1], links)
    news, olds, sizes = _links(sources, targets, chosen)
    done(len(old[1]))
    if not len(news):
        return {}, 0
    pairs, number = _numbered(news, olds, int(old[0].max(initial=0)) + 1)
    del news, olds
    chances = _estimate(pairs[0], number, sizes, rounds, lambda: done(len(old[1])))
    return _strongest(pairs, chances, empty, ignored=ignored, weak=weak), len(chosen)


def _distinct(rows: Ragged, extra: int | None) -> Ragged:
    """Every id once in its row, in ascending order; `extra` added to every row that is not empty."""
    ids, lengths = rows
    row = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    if extra is not None:
        filled = np.flatnonzero(lengths > 0)
        row = np.concatenate([row, filled])
        ids = np.concatenate([ids, np.full(len(filled), extra, np.int32)])
    width = int(ids.max(initial=0)) + 1
    keys = np.unique(row * width + ids)
    row, ids = keys // width, (keys % width).astype(np.int32)
    return ids, np.bincount(row, minlength=len(lengths)).astype(np.int32)


def _shortest(sources: Int32, targets: Int32, links: int) -> Int64:
    """The pairs with the fewest links, as many as the budget holds, in their own order."""
    costs = sources.astype(np.int64) * targets
    order = np.argsort(costs, kind="stable")
    order = order[costs[order] > 0]
    return np.sort(order[np.cumsum(costs[order]) <= links])


def _links(sources: Ragged, targets: Ragged, chosen: Int64) -> tuple[Int32, Int32, Int32]:
    """New ids [links], old ids [links], and the size of each run of links of one old piece in one pair [runs]."""
    source_counts, target_counts = sources[1][chosen], targets[1][chosen]
    target_at = positions(starts_of(targets[1])[chosen], target_counts)  # [runs]
    sizes = np.repeat(source_counts, target_counts)  # [runs]
    source_at = positions(np.repeat(starts_of(sources[1])[chosen], target_counts), sizes)  # [links]
    return sources[0][source_at], np.repeat(targets[0][target_at], sizes), sizes


def _numbered(news: Int32, olds: Int32, width: int) -> tuple[tuple[Int64, Int64], Int32]:
    """Each distinct (new, old), sorted by new, as two arrays; and for each link the number of its own [links]."""
    keys = news.astype(np.int64) * width + olds
    order = np.argsort(keys)  # equal keys get one number, so that their order does not matter
    keys = keys[order]
    first = np.empty(len(keys), bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    number = np.empty(len(keys), np.int32)
    number[order] = np.cumsum(first, dtype=np.int32) - np.int32(1)
    keys = keys[first]
    return (keys // width, keys % width), number


def _estimate(sources: Int64, number: Int32, sizes: Int32, rounds: int, told: Callable[[], None]) -> Floats:
    """t(old | new) of each distinct (new, old): [distinct]."""
    begins = starts_of(sizes)
    chances = np.ones(len(sources), np.float64)
    for _ in range(rounds):
        share = chances[number]  # [links]
        totals = np.add.reduceat(share, begins)  # [runs]: what all new pieces of the pair give to one old piece
        np.reciprocal(totals, out=totals)
        share *= np.repeat(totals, sizes)
        counts = np.bincount(number, share, len(sources))
        chances = counts / np.bincount(sources, counts)[sources]
        told()
    return chances


def _strongest(
    pairs: tuple[Int64, Int64], chances: Floats, empty: int, *, ignored: Bools, weak: Bools
) -> dict[int, Aligned]:
    """The surest old pieces of each new one, weights adding up to 1."""
    sources, targets = pairs
    usable = ~ignored[targets] & (sources != empty) & (chances > 0)
    sources, targets, chances = sources[usable], targets[usable], chances[usable]
    # Punctuation behind everything else: it is taken only where nothing else is.
    order = np.lexsort((targets, -chances, weak[targets], sources))
    sources, targets, chances = sources[order], targets[order], chances[order]
    begins = np.flatnonzero(np.diff(sources, prepend=-1))
    aligned: dict[int, Aligned] = {}
    for begin, end in zip(begins, [*begins[1:], len(sources)], strict=True):
        strong = slice(begin, min(end, begin + STRONGEST))
        ids, values = targets[strong], chances[strong]
        if not weak[ids[0]]:
            ids, values = ids[~weak[ids]], values[~weak[ids]]
        aligned[int(sources[begin])] = Aligned(ids, (values / values.sum()).astype(np.float32))
    return aligned
