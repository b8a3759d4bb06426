"""Measured points -> what each part of the work costs: least squares without negative costs.

A cost below nothing would make a plan for large sizes absurd, so every coefficient is 0 or more. Deviations count in
proportion to what was measured: the small points say as much as the large ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit(parts: Sequence[Sequence[float]], measured: Sequence[float]) -> tuple[list[float], float]:
    """Costs [k] for parts [n, k] that were measured to take [n]; and the largest deviation, as a share.

    The few parts there are allow to try all sets of them: the best set whose costs are all positive is the answer.
    """
    wanted = np.asarray(measured, dtype=np.float64)
    if not len(wanted) or not (np.isfinite(wanted) & (wanted > 0)).all():
        raise ValueError(f"measurements must be positive and finite, got {measured}")
    table: Floats = np.asarray(parts, dtype=np.float64) / wanted[:, None]  # [n, k]; every row should add up to 1
    width = table.shape[1]
    best, least = np.zeros(width), float(len(wanted))
    for size in range(1, width + 1):
        for chosen in itertools.combinations(range(width), size):
            scale = np.linalg.norm(table[:, chosen], axis=0)
            if not scale.all():
                continue
            found = np.linalg.lstsq(table[:, chosen] / scale, np.ones(len(wanted)), rcond=None)[0] / scale
            error = float(((table[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(width), error
                best[list(chosen)] = found
    return [float(value) for value in best], float(np.abs(table @ best - 1).max())
