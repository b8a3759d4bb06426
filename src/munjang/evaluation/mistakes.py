"""Examples and a model -> the rows where it is most wrong, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.metrics import ranks
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.pairs import label_probabilities
from munjang.evaluation.scores import Model
from munjang.evaluation.sets import check, gold
from munjang.evaluation.sts import similarities
from munjang.types import Similarity

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from munjang.data import Examples


@dataclass(frozen=True)
class Mistake:
    """One row, what is true of it, what the model said."""

    row: int
    texts: tuple[str, ...]
    gold: float | str  # the score, or the label
    predicted: float | str
    difference: float  # 0..1; of scores with a sign: above 0 the model says 'more alike' than people did


def largest_errors(
    model: Model,
    examples: Examples,
    n: int = 20,
    *,
    similarity: Similarity = "cosine",
    classifier: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> list[Mistake]:
    """The n rows where prediction and gold lie farthest apart, the worst first.

    Scored pairs are compared by their place among all rows (rank, 0..1), because a cosine of 0.6 means something else
    for every model. Labelled pairs by how little the model believed in the right label.
    """
    check(examples, "scored", "labelled", least=2)
    if n < 1:
        raise InputError(f"n must be 1 or more, got {n}")
    truth = gold(examples)
    if examples.kind == "labelled":
        probabilities, _ = label_probabilities(model, examples, classifier)
        doubt = 1 - probabilities[np.arange(len(truth)), truth]
        guess = probabilities.argmax(axis=1)
        named = examples.labels
        return [_mistake(examples, row, (named[truth[row]], named[guess[row]]), doubt) for row in _worst(doubt, n)]
    by_kind = similarities(model, examples).by_kind
    scores = by_kind["score"] if "score" in by_kind else by_kind[similarity]
    gap = (ranks(scores) - ranks(truth)) / max(1, len(truth) - 1)
    return [_mistake(examples, row, (float(truth[row]), float(scores[row])), gap) for row in _worst(np.abs(gap), n)]


def _worst(sizes: Array, n: int) -> list[int]:
    worst: list[int] = np.argsort(-sizes, kind="stable")[:n].tolist()
    return worst


def _mistake(
    examples: Examples, row: int, answers: tuple[float, float] | tuple[str, str], differences: Array
) -> Mistake:
    texts = tuple(column[row] for column in examples.columns.values())
    return Mistake(row, texts, answers[0], answers[1], float(differences[row]))
