"""Two groupings of the same rows -> how alike they are, whatever their groups are called.

Logarithms are natural. The definitions are scikit-learn's, corner cases too: groupings that are both trivial agree (1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from munjang.evaluation.metrics.arrays import Array, classes, same_length


@dataclass(frozen=True)
class VMeasure:
    """Homogeneity (a cluster has one class), completeness (a class is in one cluster), their harmonic mean."""

    homogeneity: float
    completeness: float
    v_measure: float


def v_measures(gold: npt.ArrayLike, found: npt.ArrayLike) -> VMeasure:
    """All three at once."""
    table = contingency(gold, found)
    of_gold, of_found, shared = _entropy(table.sum(1)), _entropy(table.sum(0)), _mutual_information(table)
    homogeneity = shared / of_gold if of_gold else 1.0
    completeness = shared / of_found if of_found else 1.0
    both = homogeneity + completeness
    return VMeasure(homogeneity, completeness, 2 * homogeneity * completeness / both if both else 0.0)


def v_measure(gold: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """The harmonic mean of homogeneity and completeness; the same number as NMI with the arithmetic mean."""
    return v_measures(gold, found).v_measure


def normalized_mutual_information(gold: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """Mutual information over the arithmetic mean of the entropies."""
    table = contingency(gold, found)
    of_gold, of_found = _entropy(table.sum(1)), _entropy(table.sum(0))
    if of_gold == of_found == 0:
        return 1.0
    return _mutual_information(table) / ((of_gold + of_found) / 2)


def adjusted_rand_index(gold: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """The share of pairs of rows that both groupings treat alike, less what chance gives: 0 by chance, 1 the same."""
    table = contingency(gold, found)
    together = _pairs(table).sum()
    of_gold, of_found = _pairs(table.sum(1)).sum(), _pairs(table.sum(0)).sum()
    every = float(_pairs(np.array([table.sum()]))[0])
    most = (of_gold + of_found) / 2
    by_chance = of_gold * of_found / every if every else 0.0
    return float((together - by_chance) / (most - by_chance)) if most != by_chance else 1.0


def contingency(gold: npt.ArrayLike, found: npt.ArrayLike) -> Array:
    """How many rows are in class i and cluster j: float64 [classes, clusters]."""
    truth, guess = classes(gold, "gold"), classes(found, "found")
    same_length(gold=truth, found=guess)
    names, rows = np.unique(truth, return_inverse=True)
    others, columns = np.unique(guess, return_inverse=True)
    cells = np.bincount(rows.reshape(-1) * len(others) + columns.reshape(-1), minlength=len(names) * len(others))
    return cells.reshape(len(names), len(others)).astype(float)


def _entropy(counts: Array) -> float:
    if len(counts) == 1:
        return 0.0
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _mutual_information(table: Array) -> float:
    joint = table / table.sum()
    expected = np.outer(joint.sum(1), joint.sum(0))
    there = joint > 0
    value = float((joint[there] * np.log(joint[there] / expected[there])).sum())
    return max(0.0, value) if abs(value) > 1e-15 else 0.0


def _pairs(counts: Array) -> Array:
    pairs: Array = counts * (counts - 1) / 2
    return pairs
