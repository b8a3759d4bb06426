"""Pairs that belong together or not, and triplets -> how well a model tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.data.columns import some_of
from munjang.errors import InputError
from munjang.evaluation.encoding import encode, predict, predict_one
from munjang.evaluation.metrics import (
    accuracy,
    average_precision,
    best_accuracy,
    best_f1,
    f1,
    matthews,
    mean,
    roc_auc,
)
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder, cross_encoder
from munjang.evaluation.sets import check, gold, interval, joined, pairs_of
from munjang.evaluation.sts import similarities
from munjang.types import Similarity
from munjang.vectors import pairwise_similarity

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from munjang.data.examples import Examples


@dataclass(frozen=True)
class PairClassificationEvaluator:
    """Same or different, by similarity: average precision, the best thresholds and what they give.

    Thresholds found here belong to this model and this data: never carry one to another model.
    """

    examples: Examples  # labelled, with two labels
    positive: str | None = None  # the label of pairs that belong together; None: the second
    similarity: Similarity = "cosine"  # the one that metrics without a suffix are of
    bootstrap: int = 0
    main: str = "average_precision"

    def __post_init__(self) -> None:
        check(self.examples, "labelled", least=2)
        gold(self.examples)
        labels = self.examples.labels
        if len(labels) != 2:
            raise InputError(f"{self.name}: expected two labels, got {len(labels)}: {some_of(labels)}")
        if self.positive is not None and self.positive not in labels:
            raise InputError(f"{self.name}: positive must be {' or '.join(map(repr, labels))}, got {self.positive!r}")

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        positive = 1 if self.positive is None else self.examples.labels.index(self.positive)
        truth = (gold(self.examples) == positive).astype(np.int64)
        found = similarities(model, self.examples)
        main = found.by_kind.get("score", found.by_kind.get(self.similarity))
        assert main is not None
        values = binary_values(truth, main)
        for kind, scores in found.by_kind.items():
            if kind not in ("score", self.similarity):
                values |= {f"{metric}_{kind}": value for metric, value in binary_values(truth, scores).items()}
        return Scores(
            self.name,
            values,
            self.main,
            len(self.examples),
            intervals=interval("average_precision", average_precision, (truth, main), samples=self.bootstrap),
            notes=found.notes,
        )


def binary_values(truth: Array, scores: Array) -> dict[str, float]:
    """Every metric of a yes-or-no question, by name."""
    by_accuracy, by_f1 = best_accuracy(truth, scores), best_f1(truth, scores)
    return {
        "average_precision": average_precision(truth, scores),
        "roc_auc": roc_auc(truth, scores),
        "accuracy": by_accuracy.value,
        "accuracy_threshold": by_accuracy.threshold,
        "f1": by_f1.value,
        "f1_threshold": by_f1.threshold,
        "precision": by_f1.precision,
        "recall": by_f1.recall,
        "mcc": matthews(truth, scores >= by_f1.threshold),
    }


@dataclass(frozen=True)
class TripletEvaluator:
    """How often the positive is nearer to the anchor than every negative of its row."""

    examples: Examples  # pairs: anchor, positive, negative...
    similarity: Similarity = "cosine"
    bootstrap: int = 0
    main: str = "accuracy"

    def __post_init__(self) -> None:
        check(self.examples, "pairs")
        if len(self.examples.columns) < 3:
            raise InputError(f"{self.name}: expected a column of negatives, got {', '.join(self.examples.columns)}")

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        columns = list(self.examples.columns)
        cross = cross_encoder(model)
        if cross is not None:
            predicted = [
                predict_one(cross, pairs_of(self.examples, columns[0], column), name=self.name)
                for column in columns[1:]
            ]
            scores, notes = [part.rows for part in predicted], joined(*(part.notes for part in predicted))
        else:
            bi = bi_encoder(model, name=self.name)
            anchor = encode(bi, self.examples.columns[columns[0]], role="query")
            others = [encode(bi, self.examples.columns[column], role="document") for column in columns[1:]]
            scores = [pairwise_similarity(anchor.rows, other.rows, self.similarity) for other in others]
            notes = joined(anchor.notes, *(other.notes for other in others))
        right = (scores[0] > np.max(scores[1:], axis=0)).astype(float)
        return Scores(
            self.name,
            {"accuracy": mean(right)},
            self.main,
            len(self.examples),
            intervals=interval("accuracy", mean, (right,), samples=self.bootstrap),
            notes=notes,
        )


@dataclass(frozen=True)
class LabelEvaluator:
    """A cross-encoder's labels, or those of a classifier over a bi-encoder's (u, v): accuracy and F1."""

    examples: Examples  # labelled
    classifier: Callable[[Tensor, Tensor], Tensor] | None = None  # u [n, d], v [n, d] -> logits [n, labels]
    bootstrap: int = 0
    main: str = "accuracy"

    def __post_init__(self) -> None:
        check(self.examples, "labelled")
        gold(self.examples)

    @property
    def name(self) -> str:
        return self.examples.name

    def __call__(self, model: Model) -> Scores:
        truth = gold(self.examples)
        guess, notes = self.predicted(model)
        values = {
            "accuracy": accuracy(truth, guess),
            "f1_macro": f1(truth, guess, average="macro"),
            "f1_micro": f1(truth, guess, average="micro"),
            "f1_weighted": f1(truth, guess, average="weighted"),
        }
        right = (truth == guess).astype(float)
        intervals = interval("accuracy", mean, (right,), samples=self.bootstrap)
        return Scores(self.name, values, self.main, len(self.examples), intervals=intervals, notes=notes)

    def predicted(self, model: Model) -> tuple[Array, tuple[str, ...]]:
        """The label of every pair, in the examples' numbering [n], and notes."""
        probabilities, notes = label_probabilities(model, self.examples, self.classifier)
        return probabilities.argmax(axis=1), notes


def label_probabilities(
    model: Model, examples: Examples, classifier: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Array, tuple[str, ...]]:
    """What the model gives to each of the examples' labels: [n, labels] in the examples' order, and notes."""
    cross = cross_encoder(model)
    if cross is not None:
        order, notes = label_order(tuple(cross.labels), examples.labels, name=examples.name)
        predicted = predict(cross, pairs_of(examples))
        return predicted.rows[:, order], joined(notes, predicted.notes)
    if classifier is None:
        raise InputError(
            f"{examples.name}: a bi-encoder gives no labels: pass classifier=, a function of (u, v), or evaluate a "
            "cross-encoder"
        )
    import torch

    bi = bi_encoder(model, name=examples.name)
    u, v = encode(bi, examples.columns["a"]), encode(bi, examples.columns["b"])
    first = next(classifier.parameters(), None) if isinstance(classifier, torch.nn.Module) else None
    device = bi.device if first is None else first.device
    with torch.no_grad():
        logits = classifier(torch.from_numpy(u.rows).to(device), torch.from_numpy(v.rows).to(device)).float()
    if logits.shape != (len(examples), len(examples.labels)):
        raise InputError(
            f"{examples.name}: expected logits [{len(examples)}, {len(examples.labels)}], got {tuple(logits.shape)}"
        )
    return logits.softmax(dim=1).numpy(force=True), joined(u.notes, v.notes)


def label_order(have: tuple[str, ...], want: tuple[str, ...], *, name: str) -> tuple[list[int], tuple[str, ...]]:
    """Which of the model's outputs stands for each label of the set; and a note where only numbers say so."""
    known = {label.casefold(): number for number, label in enumerate(have)}
    if set(known) == {label.casefold() for label in want} and len(known) == len(have) == len(want):
        return [known[label.casefold()] for label in want], ()
    if len(have) == len(want) and len(have) > 1 and all(label.upper() == f"LABEL_{i}" for i, label in enumerate(have)):
        return list(range(len(want))), (f"the model's labels have no names: taken in the order {', '.join(want)}",)
    raise InputError(
        f"{name} has the labels {', '.join(want)}, but the model answers with {', '.join(have) or 'no labels'}: "
        "evaluate on data with the model's labels, or load the model with labels=[...]"
    )
