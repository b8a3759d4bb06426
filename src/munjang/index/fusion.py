"""Rankings of the same things by different measures -> one ranking: reciprocal rank fusion.

    score(row) = sum over the rankings of  weight / (constant + rank)        ranks from 1; no rank adds nothing

(Cormack, Clarke and Büttcher 2009.) Cosines and BM25 scores have no common scale; ranks have. The constant keeps the
first place of one ranking from outweighing two good places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from munjang.errors import InputError


def fuse(
    rankings: Sequence[NDArray[np.int64]],
    *,
    k: int,
    constant: float = 60,
    weights: Sequence[float] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k best rows ([<= k], best first) and their scores; equal scores go to the lower row.

    Each ranking has rows of 0 and more, best first, every row once. The order of the rankings does not matter.
    """
    factors = _checked(rankings, k, constant, weights)
    lists = [np.asarray(ranking, dtype=np.int64).reshape(-1) for ranking in rankings]
    if not sum(map(len, lists)):
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    rows, places = np.unique(np.concatenate(lists), return_inverse=True)  # [n], [all]
    if len(rows) and rows[0] < 0:
        raise InputError(f"a ranking must have rows of 0 and more, got {rows[0]}: leave out what was not found")
    parts = np.zeros((len(rows), len(lists)))  # [n, rankings]
    start = 0
    for column, (ranking, factor) in enumerate(zip(lists, factors, strict=True)):
        own = places[start : start + len(ranking)]
        if len(np.unique(own)) != len(own):
            raise InputError(f"ranking {column} has a row more than once; each may stand there once")
        parts[own, column] = factor / (constant + np.arange(1, len(ranking) + 1))
        start += len(ranking)
    # Added from the least on: the sum is then the same whichever ranking gave which part.
    scores = np.sort(parts, axis=1).sum(axis=1).astype(np.float32)
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def _checked(
    rankings: Sequence[NDArray[np.int64]], k: int, constant: float, weights: Sequence[float] | None
) -> list[float]:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}")
    if not 0 <= constant < np.inf:
        raise InputError(f"constant must be 0 or more, got {constant!r}")
    factors = [1.0] * len(rankings) if weights is None else [float(weight) for weight in weights]
    if len(factors) != len(rankings):
        raise InputError(f"there must be one weight for each of the {len(rankings)} rankings, got {len(factors)}")
    if not all(0 <= factor < np.inf for factor in factors):
        raise InputError(f"weights must be 0 or more and finite, got {factors}")
    return factors
