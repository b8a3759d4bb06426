"""A model and evaluators -> their scores, every text encoded once."""

from __future__ import annotations

from collections.abc import Sequence

from munjang.evaluation.encoding import remembering
from munjang.evaluation.scores import Evaluator, Model, Scores
from munjang.progress import Progress, track


def evaluate(model: Model, evaluators: Sequence[Evaluator], *, progress: Progress = False) -> list[Scores]:
    """The scores of each evaluator, in order; progress counts evaluators."""
    found = []
    with remembering(model), track(progress, len(evaluators)) as done:
        for evaluator in evaluators:
            found.append(evaluator(model))
            done(1)
    return found
