"""Candidates and how near each is to its document -> the few that are near to it and unlike each other.

    mmr        one after the other: the nearest first, then always the one that is near to the document and far from
               those that were chosen (maximal marginal relevance, Carbonell and Goldstein 1998)
    max_sum    of the nearest `pool`, the set whose members are least alike, found exactly by trying all of them

Pure functions of numpy arrays; rows are unit vectors, so that a product is a cosine.
"""

from __future__ import annotations

import math
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.errors import InputError

Array = NDArray[np.floating[Any]]
MOST_SETS = 2_000_000  # sets that max_sum tries at most: some seconds
_AT_ONCE = 50_000  # sets that are summed together


def nearest(relevance: Array, top: int) -> list[int]:
    """The `top` most relevant, best first; of equal ones the earlier."""
    return [int(row) for row in np.argsort(-relevance, kind="stable")[:top]]


def mmr(relevance: Array, vectors: Array, *, top: int, weight: float) -> list[int]:
    """Each time the one with the greatest (1 - weight) * relevance - weight * cosine to the nearest chosen one.

    relevance: [n], cosines with the document; vectors: [n, d]. weight 0 looks at relevance alone, 1 at novelty alone.
    """
    if not len(relevance):
        return []
    chosen = nearest(relevance, 1)
    alike = np.full(len(relevance), -np.inf)  # [n], the cosine to the nearest chosen one
    while len(chosen) < min(top, len(relevance)):
        alike = np.maximum(alike, vectors @ vectors[chosen[-1]])
        worth = (1 - weight) * relevance - weight * alike
        worth[chosen] = -np.inf
        chosen.append(int(np.argmax(worth)))
    return chosen


def max_sum(relevance: Array, vectors: Array, *, top: int, pool: int) -> list[int]:
    """Of the `pool` most relevant the `top` whose pairwise cosines have the smallest sum, most relevant first.

    Of sets with equal sums the more relevant one, looked at from its best member on. Every set is tried; where there
    would be more than MOST_SETS of them, an error says so.
    """
    ranked = nearest(relevance, pool)
    top = min(top, len(ranked))
    sets = math.comb(len(ranked), top)
    if sets > MOST_SETS:
        raise InputError(
            f"max_sum would have to try {sets:,} sets ({top} of {len(ranked)}), at most {MOST_SETS:,}: "
            "take a smaller pool or fewer keywords, or diversity='mmr'"
        )
    if top < 2:
        return ranked[:top]
    rows = vectors[ranked]
    cosines = np.asarray(rows @ rows.T, dtype=np.float64)  # [pool, pool]
    best, least = tuple(range(top)), np.inf
    trials = combinations(range(len(ranked)), top)
    while block := list(islice(trials, _AT_ONCE)):
        members = np.array(block)  # [sets, top]
        sums = sum(cosines[members[:, a], members[:, b]] for a, b in combinations(range(top), 2))
        lowest = int(np.argmin(sums))
        if sums[lowest] < least:
            best, least = block[lowest], float(sums[lowest])
    return [ranked[row] for row in best]
