"""Unit rows -> how many clusters they fall into: the k whose k-means has the greatest mean silhouette.

The silhouette of a row (Rousseeuw 1987) compares its mean distance to its own cluster, a, with that to the nearest
other one, b: (b - a) / max(a, b). Distances are 1 - cosine. A sample of the rows is clustered for some values of k,
from coarse to fine, and its silhouettes are exact; all its distances are computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.tasks.cluster_kmeans import Numbers, k_means
from munjang.tasks.neighbours_tiles import UnitRows

_SAMPLE = 3000  # rows; their distances take 36 MB
_STEPS = 25  # of k-means for a value of k that is only tried
_FINE = 8  # values of k tried beside the best of the coarse ones
_MOST = 100


@dataclass(frozen=True)
class Choice:
    """The number of clusters, and the mean silhouette of every number that was tried."""

    k: int
    silhouettes: dict[int, float]


def choose_k(rows: UnitRows, *, most: int | None = None, seed: int = 0, progress: Progress = False) -> Choice:
    """Choose k within 2..most; without `most`, up to the square root of the rows, and at most 100."""
    if rows.count < 3:
        raise InputError(f"k cannot be chosen for {rows.count} rows: pass k=1..{rows.count}")
    if most is not None and most < 2:
        raise InputError(f"the largest k to try must be 2 or more, got {most}")
    top = min(most or min(_MOST, max(8, math.isqrt(rows.count))), rows.count - 1, _SAMPLE - 1)
    chosen = np.arange(rows.count)
    if rows.count > _SAMPLE:
        chosen = np.sort(np.random.default_rng(seed).choice(rows.count, _SAMPLE, replace=False))
    unit = rows.read(chosen)
    sample = UnitRows(unit, memory_mb=math.inf)
    distances = (1 - unit @ unit.T).clamp_(min=0)
    scores: dict[int, float] = {}

    def look(k: int) -> None:
        if k not in scores:
            found = k_means(sample, k, seed=seed, max_steps=_STEPS, starts=2)
            scores[k] = mean_silhouette(distances, found.labels) if found.k > 1 else -1.0

    coarse = _coarse(top)
    with track(progress, len(coarse) + _FINE) as done:
        for k in coarse:
            look(k)
            done(1)
        for k in _fine(coarse, _best(scores)):
            look(k)
        done(_FINE)
    return Choice(_best(scores), dict(sorted(scores.items())))


def mean_silhouette(distances: Tensor, labels: Numbers) -> float:
    """The mean over all rows, [n, n] and [n]; a row that is alone in its cluster counts 0."""
    given = torch.from_numpy(labels).to(distances.device)
    sizes = torch.bincount(given)
    if len(sizes) < 2 or bool((sizes == 0).any()):
        raise InputError("silhouettes need two clusters or more, numbered from 0 without a gap")
    member = torch.nn.functional.one_hot(given).to(distances.dtype)  # [n, k]
    totals = distances @ member  # [n, k]
    rows = torch.arange(len(given), device=distances.device)
    own = totals[rows, given] / (sizes[given] - 1).clamp(min=1)
    others = totals / sizes
    others[rows, given] = torch.inf
    nearest = others.min(dim=1).values
    values = (nearest - own) / torch.maximum(nearest, own).clamp(min=1e-12)
    return float(torch.where(sizes[given] > 1, values, 0.0).double().mean())


def _coarse(most: int) -> list[int]:
    values = list(range(2, min(8, most) + 1))
    while values[-1] < most:
        values.append(min(most, math.ceil(values[-1] * 1.25)))
    return values


def _fine(coarse: list[int], best: int) -> list[int]:
    place = coarse.index(best)
    low, high = coarse[max(0, place - 1)], coarse[min(len(coarse) - 1, place + 1)]
    return sorted({round(float(value)) for value in np.linspace(low, high, _FINE + 2)[1:-1]})


def _best(scores: dict[int, float]) -> int:
    """The k of the greatest silhouette; of equal ones the least."""
    return max(sorted(scores), key=lambda k: scores[k])
