"""Probabilities and what is true -> how good a classifier is: in all, for each label, and what it takes for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.evaluation import Scores
from munjang.evaluation.metrics import accuracy, f1
from munjang.tasks.classifier_fitting import judge
from munjang.tasks.classifier_labels import Targets

Array = np.ndarray[Any, Any]
_MIXED_UP = 10  # pairs of labels to name


@dataclass(frozen=True)
class LabelScores:
    """One label among the others."""

    label: str
    precision: float
    recall: float
    f1: float
    rows: int  # that have it


@dataclass(frozen=True)
class MixedUp:
    """How often one label was taken for another."""

    label: str
    said: str
    rows: int


@dataclass(frozen=True)
class ClassifierReport:
    """What a classifier reaches on labelled texts."""

    scores: Scores  # accuracy, f1_macro, log_loss, calibration_error; of several labels f1_micro, too
    labels: tuple[LabelScores, ...]
    mixed_up: tuple[MixedUp, ...]  # the most frequent first; none where a text may have several labels

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.values.items())
        return f"{self.scores.rows:,} rows: {values}"


def report(probabilities: Array, targets: Targets, *, threshold: float = 0.5) -> ClassifierReport:
    """Measure. threshold: from which probability on a text has a label, where it may have several."""
    loss, error = judge(probabilities, targets)
    told = {"log_loss": loss, "calibration_error": error}
    if targets.multilabel:
        truth, said = targets.values, probabilities >= threshold
        labels = _label_scores(targets.names, truth, said)
        right, both = (truth & said).sum(), truth.sum() + said.sum()
        values = {
            "f1_micro": float(2 * right / both) if both else 0.0,
            "f1_macro": float(np.mean([label.f1 for label in labels])),
            "accuracy": float((truth == said).all(axis=1).mean()),  # of whole sets
        }
        return ClassifierReport(Scores("texts", values | told, "f1_micro", len(targets)), labels, ())
    guess = probabilities.argmax(axis=1)
    values = {"accuracy": accuracy(targets.values, guess), "f1_macro": f1(targets.values, guess)}
    every = np.arange(len(targets.names))
    labels = _label_scores(targets.names, targets.values[:, None] == every, guess[:, None] == every)
    scores = Scores("texts", values | told, "accuracy", len(targets))
    return ClassifierReport(scores, labels, _mixed_up(targets, guess))


def _label_scores(names: tuple[str, ...], truth: Array, said: Array) -> tuple[LabelScores, ...]:  # bool [n, labels]
    right = (truth & said).sum(axis=0)
    there, taken = truth.sum(axis=0), said.sum(axis=0)
    return tuple(
        LabelScores(
            name,
            precision=_share(right[at], taken[at]),
            recall=_share(right[at], there[at]),
            f1=_share(2 * right[at], there[at] + taken[at]),
            rows=int(there[at]),
        )
        for at, name in enumerate(names)
    )


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else 0.0


def _mixed_up(targets: Targets, guess: Array) -> tuple[MixedUp, ...]:
    wrong = targets.values != guess
    pairs, counts = np.unique(np.stack([targets.values[wrong], guess[wrong]], axis=1), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MIXED_UP]
    names = targets.names
    return tuple(MixedUp(names[pairs[at, 0]], names[pairs[at, 1]], int(counts[at])) for at in order)
