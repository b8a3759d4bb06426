"""Ranked lists -> how high the right ones stand. One value per query; the caller takes the mean.

`grades` [q, m] holds, for every query, the relevance of what was ranked, best first: 0 is not relevant. `totals` [q]
says how many relevant ones there are in all, found or not. Lists shorter than k count as if filled with 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array


def reciprocal_rank(grades: npt.ArrayLike, k: int) -> Array:
    """1 / the rank of the first relevant one among the first k, or 0. Its mean is MRR@k."""
    hits = _top(grades, k) > 0
    first = hits.argmax(axis=1)
    return np.where(hits.any(axis=1), 1.0 / (first + 1), 0.0)


def hit_rate(grades: npt.ArrayLike, k: int) -> Array:
    """1 where any of the first k is relevant (sentence-transformers calls its mean accuracy@k)."""
    return (_top(grades, k) > 0).any(axis=1).astype(float)


def precision_at(grades: npt.ArrayLike, k: int) -> Array:
    """The share of k places that are relevant."""
    shares: Array = (_top(grades, k) > 0).sum(axis=1) / k
    return shares


def recall_at(grades: npt.ArrayLike, totals: npt.ArrayLike, k: int) -> Array:
    """The share of the relevant ones that stand among the first k."""
    top = _top(grades, k)
    shares: Array = (top > 0).sum(axis=1) / _totals(totals, top)
    return shares


def average_precision_at(grades: npt.ArrayLike, totals: npt.ArrayLike, k: int) -> Array:
    """The mean of the precision at every relevant one among the first k; its mean is MAP@k.

    Divided by min(k, relevant), so that a perfect list has 1, as in sentence-transformers; trec_eval's map_cut divides
    by all relevant ones.
    """
    top = _top(grades, k)
    hits = top > 0
    precision = np.cumsum(hits, axis=1) / np.arange(1, top.shape[1] + 1)
    means: Array = (precision * hits).sum(axis=1) / np.minimum(_totals(totals, top), k)
    return means


def ndcg(grades: npt.ArrayLike, ideal: npt.ArrayLike, k: int) -> Array:
    """Discounted gain of the first k beside that of the best order.

    The gain is linear in the grade, as in trec_eval and scikit-learn (not 2^grade - 1); the discount is log2(rank + 1).
    ideal: [q, m], the grades of all relevant ones, greatest first, filled with 0.
    """
    best = _top(ideal, k)
    if (np.diff(best, axis=1) > 0).any():
        raise InputError("ideal must hold grades from the greatest down")
    gain, most = _discounted(_top(grades, k)), _discounted(best)
    if len(gain) != len(most):
        raise InputError(f"grades and ideal must have as many queries, got {len(gain)} and {len(most)}")
    return np.divide(gain, most, out=np.zeros_like(gain), where=most > 0)


def tied_ndcg(grades: npt.ArrayLike, scores: npt.ArrayLike, k: int) -> float:
    """NDCG@k of one query's list by its scores; equal scores share their gains evenly, as in scikit-learn."""
    gains, values = np.asarray(grades, dtype=float), np.asarray(scores, dtype=float)
    _, inverse, counts = np.unique(-values, return_inverse=True, return_counts=True)
    shared = np.bincount(inverse, weights=gains) / counts
    expected = np.repeat(shared, counts)[None]
    return float(ndcg(expected, np.sort(gains)[::-1][None], k)[0])


def _top(grades: npt.ArrayLike, k: int) -> Array:
    array = np.asarray(grades, dtype=np.float64)
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if array.ndim != 2 or not array.size:
        raise InputError(f"grades must be [queries, ranked], neither of them 0, got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("grades must be finite and 0 or more")
    return array[:, :k]


def _totals(totals: npt.ArrayLike, top: Array) -> Array:
    array = np.asarray(totals, dtype=np.float64)
    if array.shape != (len(top),):
        raise InputError(f"totals must be one number per query ({len(top)}), got shape {array.shape}")
    if (array < np.maximum(1, (top > 0).sum(axis=1))).any():
        raise InputError("totals must be 1 or more, and count every relevant one that was ranked")
    return array


def _discounted(grades: Array) -> Array:
    gains: Array = grades @ (1.0 / np.log2(np.arange(2, grades.shape[1] + 2)))
    return gains
