"""Classes and scores of rows -> how well they were told apart.

Predictions: accuracy, precision, recall, F1, Matthews' correlation. Scores of a yes-or-no question, greater meaning
yes: the best threshold, average precision, the area under the ROC curve, calibration. A threshold means 'yes at or
above it' and lies halfway between two scores, so that it does not hang on the last digit of one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array, binary, classes, numbers, same_length
from munjang.evaluation.metrics.correlation import ranks
from munjang.nn.calibration import expected_calibration_error

Average = Literal["macro", "micro", "weighted"]


@dataclass(frozen=True)
class PrecisionRecallF1:
    """The three of one class, or of their average."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Threshold:
    """Where to cut, and what that gives."""

    threshold: float
    value: float  # the accuracy or the F1 there
    precision: float
    recall: float


_LEAST_GAIN = 0.05  # of what is possible above the majority label


@dataclass(frozen=True)
class AgainstMajority:
    """The accuracy of a classifier beside that of always giving the most frequent label."""

    rows: int
    accuracy: float
    majority: float

    @property
    def p_value(self) -> float:
        """How probable so many right rows are by guessing as well as the majority label does (one-sided binomial)."""
        right = round(self.accuracy * self.rows)
        if right <= 0 or self.majority >= 1:
            return 1.0
        # By logarithms: sums of many rows would overflow.
        yes, no = math.log(self.majority), math.log1p(-self.majority)
        total = math.lgamma(self.rows + 1)
        tail = [
            math.exp(total - math.lgamma(k + 1) - math.lgamma(self.rows - k + 1) + k * yes + (self.rows - k) * no)
            for k in range(right, self.rows + 1)
        ]
        return min(1.0, math.fsum(tail))

    @property
    def at_chance(self) -> bool:
        """Whether the gain over the majority label is not significant (at 1 %), or tiny (`_LEAST_GAIN`).

        Over thousands of rows 36 % of three balanced labels is significant, and still no better than guessing in use.
        """
        gain = self.accuracy - self.majority
        return self.majority < 1 and (self.p_value >= 0.01 or gain < _LEAST_GAIN * (1 - self.majority))

    def __str__(self) -> str:
        return (
            f"accuracy {100 * self.accuracy:.2f} on {self.rows:,} rows; always the most frequent label: "
            f"{100 * self.majority:.2f}"
        )


def accuracy(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The share of rows that were told right."""
    truth, guess = _both(gold, predicted)
    return float((truth == guess).mean())


def precision_recall_f1(
    gold: npt.ArrayLike, predicted: npt.ArrayLike, *, average: Average = "macro"
) -> PrecisionRecallF1:
    """Over the classes that occur in either: their plain mean, weighted by rows, or (micro) of all rows together.

    A class that was never predicted has precision 0, and F1 0, as in scikit-learn.
    """
    if average not in get_args(Average):
        raise InputError(f"average must be one of {', '.join(get_args(Average))}, got {average!r}")
    truth, guess = _both(gold, predicted)
    names, both = np.unique(np.concatenate((truth, guess)), return_inverse=True)
    truth, guess = np.split(both.reshape(-1), 2)
    right = np.bincount(truth[truth == guess], minlength=len(names)).astype(float)
    there = np.bincount(truth, minlength=len(names)).astype(float)
    said = np.bincount(guess, minlength=len(names)).astype(float)
    if average == "micro":
        right, there, said = right.sum(keepdims=True), there.sum(keepdims=True), said.sum(keepdims=True)
    weights = there / there.sum() if average == "weighted" else np.full(len(right), 1 / len(right))
    return PrecisionRecallF1(
        precision=float(weights @ _share(right, said)),
        recall=float(weights @ _share(right, there)),
        f1=float(weights @ _share(2 * right, said + there)),
    )


def f1(gold: npt.ArrayLike, predicted: npt.ArrayLike, *, average: Average = "macro") -> float:
    """The harmonic mean of precision and recall."""
    return precision_recall_f1(gold, predicted, average=average).f1


def matthews(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Matthews' correlation of two classes; 0 where one side has one class only, as in scikit-learn."""
    truth = binary(gold, "gold", both=False).astype(float)
    guess = binary(predicted, "predicted", both=False).astype(float)
    same_length(gold=truth, predicted=guess)
    if truth.min() == truth.max() or guess.min() == guess.max():
        return 0.0
    truth, guess = truth - truth.mean(), guess - guess.mean()
    return float(truth @ guess / np.sqrt((truth @ truth) * (guess @ guess)))


def best_accuracy(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Threshold:
    """The threshold with the most rows right; of equals the highest."""
    truth, values = _scored(labels, scores)
    cut = _cuts(truth, values)
    # One cut more: above every score, where all rows are told 'no'.
    found = np.concatenate(([0.0], cut.found))
    taken = np.concatenate(([0.0], cut.taken))
    right = found + (cut.rows - taken) - (cut.positives - found)
    best = int(np.argmax(right))
    thresholds = np.concatenate(([np.nextafter(values.max(), np.inf)], cut.thresholds))
    return Threshold(
        threshold=float(thresholds[best]),
        value=float(right[best] / cut.rows),
        precision=float(found[best] / taken[best]) if taken[best] else 0.0,
        recall=float(found[best] / cut.positives),
    )


def best_f1(labels: npt.ArrayLike, scores: npt.ArrayLike, *, positives: int | None = None) -> Threshold:
    """The threshold with the best F1 of the rows with label 1; of equals the highest.

    positives: how many there are in all, where some are not among the rows (pairs that a search did not find).
    """
    truth, values = _scored(labels, scores, both=False)
    cut = _cuts(truth, values)
    total = cut.positives if positives is None else positives
    if not total:
        raise InputError("labels are all 0: there is nothing to find")
    values_f1 = 2 * cut.found / (cut.taken + total)
    best = int(np.argmax(values_f1))
    return Threshold(
        threshold=float(cut.thresholds[best]),
        value=float(values_f1[best]),
        precision=float(cut.found[best] / cut.taken[best]),
        recall=float(cut.found[best] / total),
    )


def average_precision(labels: npt.ArrayLike, scores: npt.ArrayLike, *, positives: int | None = None) -> float:
    """The sum of precision times the gain in recall, score by score (no interpolation), as in scikit-learn.

    positives: as in `best_f1`.
    """
    truth, values = _scored(labels, scores, both=False)
    cut = _cuts(truth, values)
    total = cut.positives if positives is None else positives
    if not total:
        raise InputError("labels are all 0: there is nothing to find")
    gains = np.diff(cut.found, prepend=0.0)
    return float((cut.found / cut.taken) @ gains / total)


def roc_auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """How often a row with label 1 scores above one with label 0; equal scores count half."""
    truth, values = _scored(labels, scores)
    positives = int(truth.sum())
    above = ranks(values)[truth].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(truth) - positives)))


def brier(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """The mean square of (probability - label); 0 is perfect, always saying 0.5 gives 0.25."""
    truth, values = _probabilities(labels, probabilities)
    return float(((values - truth) ** 2).mean())


def calibration_error(labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, bins: int = 10) -> float:
    """Expected calibration error: |mean probability - share of ones| over equal bins, weighted by rows."""
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    truth, values = _probabilities(labels, probabilities)
    return expected_calibration_error(values, truth, bins=bins)


@dataclass(frozen=True)
class _Cuts:
    """For every different score, best first: what is taken at or above it."""

    thresholds: Array  # halfway to the next lower score; the lowest score itself at the end
    taken: Array  # rows at or above
    found: Array  # of these, how many have label 1
    rows: int
    positives: int


def _cuts(truth: Array, values: Array) -> _Cuts:
    order = np.argsort(-values, kind="stable")
    values, found = values[order], np.cumsum(truth[order])
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # the last row of every run of equal scores
    levels = values[last]
    middle = levels[:-1] + (levels[1:] - levels[:-1]) / 2
    middle = np.where(middle == levels[1:], levels[:-1], middle)  # neighbours in float: nothing lies between
    return _Cuts(
        thresholds=np.append(middle, levels[-1]),
        taken=(last + 1).astype(float),
        found=found[last].astype(float),
        rows=len(values),
        positives=int(found[-1]),
    )


def _scored(labels: npt.ArrayLike, scores: npt.ArrayLike, *, both: bool = True) -> tuple[Array, Array]:
    truth, values = binary(labels, both=both), numbers(scores, "scores")
    same_length(labels=truth, scores=values)
    return truth, values


def _probabilities(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> tuple[Array, Array]:
    truth, values = binary(labels, both=False), numbers(probabilities, "probabilities")
    same_length(labels=truth, probabilities=values)
    if values.min() < 0 or values.max() > 1:
        raise InputError(f"probabilities must be 0..1, got {values.min():g}..{values.max():g}")
    return truth, values


def _both(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> tuple[Array, Array]:
    truth, guess = classes(gold, "gold"), classes(predicted, "predicted")
    same_length(gold=truth, predicted=guess)
    return truth, guess


def _share(part: Array, whole: Array) -> Array:
    shares: Array = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return shares
