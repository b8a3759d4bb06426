"""Scores in 0..1 -> their density, smooth: kernel density estimation with a Gaussian kernel.

Scott's bandwidth, standard deviation * n^(-1/5). At 0 and 1, where many scores lie, a kernel would leak out and the
density would sink to half; what leaks is mirrored back, so that it integrates to 1 over 0..1. Scores are first put on
a fine grid (linear binning), so that millions of them cost one pass: the error is of the order of the squared ratio of
cell to bandwidth, and the bandwidth is never below a few cells. One score, or equal ones, have that least bandwidth.
Two or three scores far apart would ask for a kernel wider than the range; it is held to a fifth of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError

Array: TypeAlias = npt.NDArray[Any]

CELLS = 2048  # of the grid over 0..1
LEAST = 8 / CELLS  # bandwidth: finer differences between scores mean nothing
MOST = 0.2  # bandwidth: beyond it a kernel reaches past the mirror on the other side
_BLOCK = 1 << 20  # scores binned at once


@dataclass(frozen=True, eq=False)
class Density:
    """A density over 0..1, by its values on a grid."""

    values: Array  # float64 [CELLS + 1], at 0, 1/CELLS, ..., 1
    bandwidth: float

    def __call__(self, scores: npt.ArrayLike) -> Array:  # float64, of the scores' shape
        grid = np.linspace(0.0, 1.0, CELLS + 1)
        found: Array = np.interp(np.asarray(scores, np.float64), grid, self.values)
        return found


def estimate(scores: npt.ArrayLike, *, bandwidth: float | None = None) -> Density:
    """The density of these scores, all in 0..1."""
    values = np.asarray(scores)
    if values.ndim != 1 or not len(values):
        raise InputError(f"a density needs scores [n], at least one; got shape {list(values.shape)}")
    if bandwidth is not None and not LEAST <= bandwidth <= MOST:
        raise InputError(f"bandwidth must be {LEAST:g}..{MOST:g}, got {bandwidth}")
    mass, mean, square = np.zeros(CELLS + 1), 0.0, 0.0
    for start in range(0, len(values), _BLOCK):
        block = np.asarray(values[start : start + _BLOCK], np.float64)
        if not (block.min() >= 0 and block.max() <= 1):  # also for NaN
            raise InputError(f"scores must be in 0..1, got {block.min():g}..{block.max():g}")
        mass += _binned(block)
        mean += float(block.sum()) / len(values)
        square += float(block @ block) / len(values)
    if bandwidth is None:
        deviation = np.sqrt(max(0.0, square - mean * mean) * len(values) / max(1, len(values) - 1))
        bandwidth = min(MOST, max(LEAST, float(deviation) * len(values) ** -0.2))
    return Density(_smoothed(mass / len(values), bandwidth), bandwidth)


def _binned(scores: Array) -> Array:  # float64 [CELLS + 1]
    """Each score shared between the two grid points beside it."""
    place = scores * CELLS
    below = np.minimum(place.astype(np.int64), CELLS - 1)
    share = place - below
    mass: Array = np.bincount(below, 1 - share, CELLS + 1) + np.bincount(below + 1, share, CELLS + 1)
    return mass


def _smoothed(mass: Array, bandwidth: float) -> Array:  # [CELLS + 1] -> [CELLS + 1]
    mirrored = np.zeros(3 * CELLS + 1)
    mirrored[CELLS : 2 * CELLS + 1] += mass
    mirrored[: CELLS + 1] += mass[::-1]
    mirrored[2 * CELLS :] += mass[::-1]
    distance = np.arange(-CELLS, CELLS + 1) / CELLS / bandwidth
    kernel = np.exp(-0.5 * distance * distance) / (bandwidth * np.sqrt(2 * np.pi))
    smooth: Array = np.convolve(mirrored, kernel, mode="valid")
    return smooth
