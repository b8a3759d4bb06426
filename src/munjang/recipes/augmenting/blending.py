"""Labels from two sides: the cross-encoder's scores, and the cosines of the bi-encoder that finds the neighbours.

A cross-encoder that saw few labelled pairs is often no better than the bi-encoder, but it errs elsewhere: the mean of
both is better than either. The cosines are first brought to the scale of the labels (least squares on the labelled
pairs: two numbers). How much they count is given, or chosen on the development sets ("auto"), among WEIGHTS.

Enters: scores and spread of every candidate, its cosine. Leaves: the same two arrays, blended; the spread is the
standard deviation over all readings, so that a pair on which both sides disagree is an uncertain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.evaluation.metrics import spearman
from munjang.recipes.augmenting.scoring import PairScores
from munjang.vectors.files import create_npy

Array: TypeAlias = npt.NDArray[Any]

WEIGHTS = (0.0, 0.25, 0.5, 0.75)  # of the cosines; at 1 the bi-encoder would label for itself
_WINDOW = 1 << 20  # pairs blended at once
_SAME = 1e-6  # cosines that differ by less are equal but for rounding, and a fit to that could be anything


@dataclass(frozen=True)
class Scale:
    """Cosine -> the scale of the labels: shift + factor * cosine, cut to 0..1."""

    shift: float
    factor: float

    @classmethod
    def fit(cls, cosines: Array, labels: Array) -> Scale:  # [n], [n]
        """Least squares; where the cosines do not rise with the labels, they are taken as they are."""
        near, truth = np.asarray(cosines, np.float64), np.asarray(labels, np.float64)
        if np.ptp(near) < _SAME or np.ptp(truth) == 0:
            return cls(0.0, 1.0)
        factor = float(np.mean((near - near.mean()) * (truth - truth.mean())) / np.var(near))
        return cls(float(truth.mean()) - factor * float(near.mean()), factor) if factor > 0 else cls(0.0, 1.0)

    def __call__(self, cosines: Array) -> Array:
        scaled: Array = np.clip(self.shift + self.factor * np.asarray(cosines, np.float32), 0.0, 1.0)
        return scaled.astype(np.float32)


def blended(scores: Array, cosines: Array, weight: float) -> Array:  # [n], [n] on the scale of the labels -> [n]
    """The label of every pair."""
    mean: Array = ((1 - weight) * scores + weight * cosines).astype(np.float32)
    return mean


def blended_spread(scores: Array, spread: Array, cosines: Array, weight: float) -> Array:
    """The standard deviation over the cross-encoder's readings, with (1 - weight) in all, and the cosine."""
    label = blended(scores, cosines, weight)
    variance = (1 - weight) * (spread**2 + (scores - label) ** 2) + weight * (cosines - label) ** 2
    found: Array = np.sqrt(variance).astype(np.float32)
    return found


def best_weight(sets: Sequence[tuple[Array, Array, Array]]) -> tuple[float, dict[str, float]]:
    """The weight whose labels agree best with sets of (labels, scores, scaled cosines); Spearman of every weight."""
    found = {
        weight: float(
            np.mean([_agreement(labels, blended(scores, cosines, weight)) for labels, scores, cosines in sets])
        )
        for weight in WEIGHTS
    }
    return max(found, key=lambda weight: found[weight]), {f"{weight:g}": value for weight, value in found.items()}


def _agreement(labels: Array, ours: Array) -> float:
    """Spearman; 0 where one side is constant, as the scores of a cross-encoder that learned nothing are."""
    return 0.0 if np.ptp(labels) == 0 or np.ptp(ours) == 0 else spearman(labels, ours)


def write_blended(folder: Path, scores: PairScores, cosines: Array, weight: float) -> None:
    """scores.npy and spread.npy of the blended labels; cosines: [m] on the scale of the labels."""
    count = len(scores)
    with (
        create_npy(folder / "scores.npy", (count,), np.float32) as labels,
        create_npy(folder / "spread.npy", (count,), np.float32) as spread,
    ):
        for start in range(0, count, _WINDOW):
            window = slice(start, start + _WINDOW)
            one, other = np.asarray(scores.scores[window]), cosines[window]
            labels[window] = blended(one, other, weight)
            spread[window] = blended_spread(one, np.asarray(scores.spread[window]), other, weight)
