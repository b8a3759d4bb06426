"""Two rows of numbers -> how well they go together: Pearson's r, and Spearman's, which is Pearson's of the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array, numbers, same_length


def pearson(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Pearson's correlation; constant scores have none, and are an error."""
    left, right = _pair(a, b)
    return _of_centred(left - left.mean(), right - right.mean())


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Spearman's rank correlation; equal scores share the mean of their ranks."""
    left, right = _pair(a, b)
    left, right = ranks(left), ranks(right)
    return _of_centred(left - left.mean(), right - right.mean())


def ranks(values: npt.ArrayLike) -> Array:
    """Ranks from 1, float64 [n]; equal values share the mean of their ranks."""
    array = numbers(values, "values")
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Array = (last - (counts - 1) / 2)[inverse.reshape(-1)]
    return shared


def _pair(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
    left, right = numbers(a, "the first scores"), numbers(b, "the second scores")
    same_length(first=left, second=right)
    for name, values in (("first", left), ("second", right)):
        if values.min() == values.max():
            raise InputError(f"constant scores: the {name} ones are all {values[0]:g}, so nothing can correlate")
    return left, right


def _of_centred(left: Array, right: Array) -> float:
    # Divided by the greatest first: squares of tiny numbers would vanish.
    left, right = left / np.abs(left).max(), right / np.abs(right).max()
    value = left @ right / np.sqrt((left @ left) * (right @ right))
    return float(np.clip(value, -1.0, 1.0))
