"""Texts with classes -> how well clusters of their vectors match the classes: k-means, then the V-measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.encoding import encode
from munjang.evaluation.metrics import adjusted_rand_index, v_measures
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder
from munjang.evaluation.sets import check, gold
from munjang.vectors import normalize

if TYPE_CHECKING:
    from munjang.data import Examples


@dataclass(frozen=True)
class Clusters:
    """What k-means found."""

    assigned: Array  # int64 [n]
    centres: Array  # float32 [k, d]
    inertia: float  # the sum of squared distances to the own centre


@dataclass(frozen=True)
class ClusteringEvaluator:
    """k-means over unit vectors, as many clusters as classes; the mean V-measure of several seeds.

    No bootstrap interval: a row that is drawn twice looks like agreement, so the V-measure of draws lies too high.
    `v_measure_spread` is the standard deviation over the seeds.
    """

    examples: Examples  # classified
    runs: int = 5
    main: str = "v_measure"

    def __post_init__(self) -> None:
        check(self.examples, "classified", least=2)
        gold(self.examples)
        if self.runs < 1:
            raise InputError(f"{self.name}: runs must be 1 or more, got {self.runs}")

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        texts = encode(bi_encoder(model, name=self.name), self.examples.columns["text"])
        truth = gold(self.examples)
        unit, count = normalize(texts.rows), len(np.unique(truth))
        found = [k_means(unit, count, seed=seed).assigned for seed in range(self.runs)]
        all_three = [v_measures(truth, assigned) for assigned in found]
        values = {
            "v_measure": float(np.mean([each.v_measure for each in all_three])),
            "homogeneity": float(np.mean([each.homogeneity for each in all_three])),
            "completeness": float(np.mean([each.completeness for each in all_three])),
            "adjusted_rand": float(np.mean([adjusted_rand_index(truth, assigned) for assigned in found])),
            "v_measure_spread": float(np.std([each.v_measure for each in all_three])),
        }
        return Scores(self.name, values, self.main, len(self.examples), notes=texts.notes)


def k_means(vectors: Array, k: int, *, seed: int = 0, max_steps: int = 100) -> Clusters:
    """Lloyd's algorithm from a k-means++ start; the same seed gives the same clusters.

    A cluster that loses all its rows takes the row that lies farthest from its centre.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if not 1 <= k <= len(rows):
        raise InputError(f"k must be 1..{len(rows)} (the rows), got {k}")
    centres = _start(rows, k, np.random.default_rng(seed))
    lengths = np.einsum("nd,nd->n", rows, rows)
    assigned, nearest = _assign(rows, lengths, centres)
    for _ in range(max_steps):
        centres = _centres(rows, assigned, nearest, k)
        before = assigned
        assigned, nearest = _assign(rows, lengths, centres)
        if np.array_equal(before, assigned):
            break
    return Clusters(assigned, centres, float(nearest.sum(dtype=np.float64)))


def _start(rows: Array, k: int, generator: np.random.Generator) -> Array:
    """k-means++ (Arthur and Vassilvitskii 2007): each next centre far from the others, the best of a few draws."""
    tries = 2 + int(np.log(k))
    chosen = [int(generator.integers(len(rows)))]
    nearest = _distances(rows, rows[chosen])[:, 0].astype(np.float64)
    while len(chosen) < k:
        total = nearest.sum()
        weights = nearest / total if total > 0 else np.full(len(rows), 1 / len(rows))
        drawn = generator.choice(len(rows), size=tries, p=weights)
        closer = np.minimum(nearest[:, None], _distances(rows, rows[drawn]))  # [n, tries]
        best = int(closer.sum(axis=0).argmin())
        chosen.append(int(drawn[best]))
        nearest = closer[:, best]
    start: Array = rows[chosen]
    return start


def _assign(rows: Array, lengths: Array, centres: Array) -> tuple[Array, Array]:  # clusters [n], squared distances [n]
    assigned, nearest = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
    of_centres = np.einsum("kd,kd->k", centres, centres)
    for start in range(0, len(rows), 8192):
        part = slice(start, start + 8192)
        scores = of_centres - 2 * (rows[part] @ centres.T)  # [part, k]: the distance, less the row's own length
        assigned[part] = scores.argmin(axis=1)
        nearest[part] = np.maximum(0, scores.min(axis=1) + lengths[part])
    return assigned, nearest


def _centres(rows: Array, assigned: Array, nearest: Array, k: int) -> Array:
    counts = np.bincount(assigned, minlength=k)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        assigned = assigned.copy()
        assigned[np.argsort(-nearest, kind="stable")[: len(empty)]] = empty
        counts = np.bincount(assigned, minlength=k)
    order = np.argsort(assigned, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    filled = np.flatnonzero(counts)  # moving a row may have emptied a cluster of one
    sums = np.add.reduceat(rows[order], starts[filled], axis=0, dtype=np.float64)
    centres = rows[np.argsort(-nearest, kind="stable")[:k]].astype(np.float64)
    centres[filled] = sums / counts[filled, None]
    return centres.astype(np.float32)


def _distances(rows: Array, centres: Array) -> Array:  # squared, [n, k]
    cross = rows @ centres.T
    lengths = np.einsum("nd,nd->n", rows, rows)[:, None] + np.einsum("kd,kd->k", centres, centres)
    distances: Array = np.maximum(0, lengths - 2 * cross)
    return distances
