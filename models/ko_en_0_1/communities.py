"""Similarities and a threshold -> groups of rows that lie close together: how a clustering threshold is judged.

A community is a row, its centre, with all rows at or above the threshold of it. The largest comes first and keeps its
rows; a later one, whose centre is still free, keeps what is left of it, where that is still large enough. This is what
sentence-transformers calls community detection. Rows that are in no community are groups of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.metrics.clustering import contingency

_MOST = 20_000  # rows: their similarities are in memory all at once


@dataclass(frozen=True)
class PairScores:
    """Of all pairs of rows: how many the groups join rightly, and how many they should."""

    precision: float
    recall: float
    f1: float


def similarity_matrix(unit: Array) -> Array:
    """Cosines of all pairs of rows of unit vectors: float32 [n, d] -> [n, n]."""
    if len(unit) > _MOST:
        raise InputError(f"communities are judged on at most {_MOST:,} texts, got {len(unit):,}: take some of them")
    rows = np.asarray(unit, np.float32)
    cosines: Array = rows @ rows.T
    np.fill_diagonal(cosines, 1.0)
    return cosines


def communities(cosines: Array, threshold: float, *, min_size: int = 2) -> Array:
    """The number of every row's group, [n, n] -> int64 [n]; groups are numbered from the largest community on."""
    if cosines.ndim != 2 or cosines.shape[0] != cosines.shape[1]:
        raise InputError(f"expected the cosines of all pairs, [n, n], got shape {cosines.shape}")
    if min_size < 1:
        raise InputError(f"min_size must be 1 or more, got {min_size}")
    near = cosines >= threshold
    sizes = near.sum(axis=1)
    centres = np.argsort(-sizes, kind="stable")  # of equals the first row
    groups = np.full(len(cosines), -1, np.int64)
    number = 0
    for centre in centres[sizes[centres] >= min_size].tolist():
        if groups[centre] >= 0:
            continue
        free = np.flatnonzero(near[centre] & (groups < 0))
        if len(free) >= min_size:
            groups[free] = number
            number += 1
    alone = np.flatnonzero(groups < 0)
    groups[alone] = number + np.arange(len(alone))
    return groups


def pair_scores(gold: Array, found: Array) -> PairScores:
    """Precision, recall and F1 over pairs of rows that are in one group."""
    table = contingency(gold, found)

    def pairs(counts: Array) -> float:
        return float((counts * (counts - 1) / 2).sum())

    right, said, there = pairs(table), pairs(table.sum(axis=0)), pairs(table.sum(axis=1))
    if not there:
        raise InputError("no two rows are of one group, so there is no pair to find")
    return PairScores(right / said if said else 0.0, right / there, 2 * right / (said + there))
