"""Vectors and targets -> a head whose scores are probabilities.

Rows are held out in turn (five folds; of many rows one fifth, once), and heads that have not seen them tell them. What
they say decides two things: C, the one whose scores make the least loss, and the scale that makes scores probabilities
(temperature scaling, Guo et al. 2017). Prototypes have no C, and leave every row out by itself, which costs nothing.
Then the head is fitted on all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from munjang.errors import InputError, MunjangWarning
from munjang.evaluation.metrics import AgainstMajority
from munjang.evaluation.probe import fold_of
from munjang.nn.calibration import expected_calibration_error, fit_platt, sigmoid, softmax
from munjang.tasks.classifier_heads import (
    Array,
    Head,
    LinearFitting,
    fit_prototypes,
    left_out_cosines,
    row_weights,
)
from munjang.tasks.classifier_labels import Targets

HeadName = Literal["logistic", "prototype"]
CHOICES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # inverse strengths of the L2
USUAL_C = 10.0  # where no row can be held out
COSINE_SCALE = 20.0  # of cosines that nothing calibrates: what models are trained with (MNRL)
FOLDS = 5
_MANY = 4_000  # rows from which on one fifth tells enough
_ROUGH = 1e-4  # of the gradient: which C is best shows before the last digit does


@dataclass(frozen=True)
class Logistic:
    """A logistic regression over the vectors."""

    c: float | None = None  # inverse strength of the L2; None: the best of five, by rows held out
    balanced: bool = False  # let rare labels count as much as frequent ones
    seed: int = 0  # of the folds

    def __post_init__(self) -> None:
        if self.c is not None and not 0 < self.c < float("inf"):
            raise InputError(f"c must be above 0 and finite, got {self.c}")
        if self.seed < 0:
            raise InputError(f"seed must be at least 0, got {self.seed}")


@dataclass(frozen=True)
class Prototype:
    """The mean vector of each label: for very few rows, and for labels that come and go."""


HeadSettings = Logistic | Prototype


@dataclass(frozen=True)
class Calibration:
    """How well probabilities agree with what happens, on rows held out; before and after the scores were scaled."""

    rows: int
    log_loss_before: float
    log_loss_after: float
    error_before: float  # expected calibration error: |probability - frequency|, in ten bins
    error_after: float
    accuracy: float | None = None  # of several labels: of whole sets; None: of a classifier of 0.1.0
    majority: float | None = None  # the accuracy of always giving the most frequent label (or set of labels)

    @property
    def against_majority(self) -> AgainstMajority | None:
        """The accuracy on the rows held out beside that of the most frequent label."""
        if self.accuracy is None or self.majority is None:
            return None
        return AgainstMajority(self.rows, self.accuracy, self.majority)


@dataclass(frozen=True)
class Scaling:
    """Logits = scale * scores + shift; the shift is for several labels whose scores are cosines."""

    scale: float = 1.0
    shift: float = 0.0
    calibration: Calibration | None = None  # None: there was nothing to calibrate with

    def probabilities(self, scores: Array, *, multilabel: bool) -> Array:  # [n, labels] -> float32 [n, labels]
        logits = self.scale * scores.astype(np.float64) + self.shift
        return (sigmoid(logits) if multilabel else softmax(logits)).astype(np.float32)


@dataclass(frozen=True)
class Choice:
    """What rows held out decided."""

    scaling: Scaling
    c: float | None = None


def head_settings(head: HeadName | HeadSettings) -> HeadSettings:
    """A head by its name or its settings."""
    if isinstance(head, Logistic | Prototype):
        return head
    if head not in ("logistic", "prototype"):
        raise InputError(f"head must be 'logistic' or 'prototype' (or Logistic(...), Prototype()), got {head!r}")
    return Logistic() if head == "logistic" else Prototype()


def fit_head(vectors: Array, targets: Targets, settings: HeadSettings, *, c: float | None, device: str = "cpu") -> Head:
    """A head on all rows."""
    if isinstance(settings, Prototype):
        return fit_prototypes(vectors, targets)
    return LinearFitting(vectors, targets, balanced=settings.balanced, device=device).fit(c or USUAL_C)


def choose(
    vectors: Array,
    targets: Targets,
    settings: HeadSettings,
    *,
    parts: list[Array] | None = None,
    device: str = "cpu",
) -> Choice:
    """C and scale by rows held out. parts: which ones, bool [n] each; None: folds (prototypes: each row by itself)."""
    if isinstance(settings, Prototype):
        return _choose_prototypes(vectors, targets, parts)
    parts = splits(targets, seed=settings.seed) if parts is None else parts
    if not parts:
        _warn_uncalibrated()
        return Choice(Scaling(), settings.c or USUAL_C)
    choices = (settings.c,) if settings.c is not None else CHOICES
    told = np.zeros((len(choices), *_shape(targets)), np.float32)
    for held in parts:
        fitting = LinearFitting(vectors[~held], targets.take(~held), balanced=settings.balanced, device=device)
        for place, c in enumerate(choices):
            told[place][held] = fitting.fit(c, tolerance=_ROUGH).scores(vectors[held])
    seen = np.logical_or.reduce(parts)
    weights = row_weights(targets, balanced=settings.balanced)[seen]
    found = [_scaling(scores[seen], targets.take(seen), weights) for scores in told]
    losses = [scaling.calibration.log_loss_after for scaling in found if scaling.calibration is not None]
    best = int(np.argmin(losses))  # of equals the smallest C, which is the simplest
    return Choice(found[best], choices[best])


def splits(targets: Targets, *, seed: int) -> list[Array]:
    """Rows to hold out, bool [n] each. A label's only row is never held out: nothing would know the label then."""
    if targets.multilabel:
        counts = np.where(targets.values, targets.counts, len(targets) + 1)
        keys = np.where(targets.values.any(axis=1), counts.argmin(axis=1), len(targets.names))
        alone = (targets.values & (targets.counts == 1)).any(axis=1)
    else:
        keys, alone = targets.values, (targets.counts == 1)[targets.values]
    fold = np.where(alone, -1, fold_of(keys, FOLDS, seed=seed))
    parts = [fold == number for number in range(FOLDS if len(targets) <= _MANY else 1)]
    return [held for held in parts if held.any() and _teaches(targets.take(~held))]


def _teaches(targets: Targets) -> bool:
    """Whether a head can be fitted to these rows: there are labels to tell apart."""
    return bool((targets.counts > 0).sum() > 1) if not targets.multilabel else len(targets) > 1


def _choose_prototypes(vectors: Array, targets: Targets, parts: list[Array] | None) -> Choice:
    if parts is None:
        scores, seen = left_out_cosines(vectors, targets)
    else:
        scores, seen = np.zeros(_shape(targets), np.float32), np.zeros(len(targets), np.bool_)
        for held in parts:
            scores[held] = fit_prototypes(vectors[~held], targets.take(~held)).scores(vectors[held])
            seen |= held
    if not seen.any():
        _warn_uncalibrated()
        return Choice(Scaling(COSINE_SCALE))
    return Choice(scaling_of_cosines(scores[seen], targets.take(seen)))


def scaling_of_cosines(cosines: Array, targets: Targets) -> Scaling:
    """What makes probabilities of cosines; of several labels a shift, too, because a cosine of 0 is no even chance."""
    if not targets.multilabel:
        return _scaling(cosines, targets, np.ones(len(targets), np.float32), before=COSINE_SCALE)
    scale, shift = fit_platt(cosines.reshape(-1), targets.values.reshape(-1))
    if scale <= 0:
        raise InputError(
            "texts of a label are no nearer to each other than to other texts: prototypes cannot tell these labels; "
            "use head='logistic'"
        )
    before = Scaling(COSINE_SCALE)
    after = Scaling(scale, shift)
    return Scaling(scale, shift, _compare(cosines, targets, (before, after)))


def _scaling(scores: Array, targets: Targets, weights: Array, *, before: float = 1.0) -> Scaling:
    scale = fit_scale(scores, targets, weights)
    return Scaling(scale, calibration=_compare(scores, targets, (Scaling(before), Scaling(scale)), weights))


def fit_scale(scores: Array, targets: Targets, weights: Array) -> float:
    """The scale with the least log loss, which is convex in it: by halving, on a logarithmic scale.

    A share of 1 / (rows + 2) of every target goes to the other labels, as in Platt's method: rows that are told
    perfectly would otherwise drive the scale to infinity.
    """
    z = scores.astype(np.float64)
    truth = _smooth(targets)  # [n, labels]
    weight = weights.astype(np.float64)
    weight = weight if weight.ndim == 2 else weight[:, None]

    def slope(scale: float) -> float:
        said = sigmoid(scale * z) if targets.multilabel else softmax(scale * z)
        return float((weight * (said - truth) * z).sum())

    low, high = np.log(1e-4), np.log(1e4)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(float(np.exp(middle))) < 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def _smooth(targets: Targets) -> Array:  # float64 [n, labels]
    share = 1 / (len(targets) + 2)
    if targets.multilabel:
        return np.where(targets.values, 1 - share, share)
    truth = np.full(_shape(targets), share / (len(targets.names) - 1))
    truth[np.arange(len(targets)), targets.values] = 1 - share
    return truth


def _compare(
    scores: Array, targets: Targets, scalings: tuple[Scaling, Scaling], weights: Array | None = None
) -> Calibration:
    (loss_before, error_before), (loss_after, error_after) = (
        judge(scaling.probabilities(scores, multilabel=targets.multilabel), targets, weights) for scaling in scalings
    )
    right, majority = told_right(scalings[1].probabilities(scores, multilabel=targets.multilabel), targets)
    return Calibration(len(targets), loss_before, loss_after, error_before, error_after, right, majority)


def told_right(probabilities: Array, targets: Targets) -> tuple[float, float]:
    """The accuracy, and that of always giving the most frequent label; of several labels, of whole sets."""
    if targets.multilabel:
        _, counts = np.unique(targets.values, axis=0, return_counts=True)
        right = ((probabilities >= 0.5) == targets.values).all(axis=1)
    else:
        counts = targets.counts
        right = probabilities.argmax(axis=1) == targets.values
    return float(right.mean()), float(counts.max() / len(targets))


def judge(probabilities: Array, targets: Targets, weights: Array | None = None) -> tuple[float, float]:
    """Log loss and expected calibration error. Of one label, that of the likeliest; of several, of each of them."""
    p = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)
    if targets.multilabel:
        losses = -np.where(targets.values, np.log(p), np.log1p(-p))
        said, right = p.reshape(-1), targets.values.reshape(-1)
    else:
        losses = -np.log(p[np.arange(len(p)), targets.values])
        said, right = p.max(axis=1), p.argmax(axis=1) == targets.values
    loss = float(losses.mean() if weights is None else np.average(losses, weights=weights))
    return loss, expected_calibration_error(said, right)


def _shape(targets: Targets) -> tuple[int, int]:
    return len(targets), len(targets.names)


def _warn_uncalibrated() -> None:
    warnings.warn(
        "no label has two rows that can be held out, so probabilities are not calibrated: their order is right, their "
        "size is a guess; more rows per label mend it",
        MunjangWarning,
        stacklevel=5,
    )
