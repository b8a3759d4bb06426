"""`State`: where a run stands, as its checkpoints keep it; and which evaluation was the best.

Enters: what each step and each evaluation gave. Leaves: numbers and tensors for a checkpoint, and the same state again
from them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.evaluation import Evaluator, LabelEvaluator, Scores
from munjang.training.run import Best

_RECENT = 50  # losses that a result's mean is over
_BEST = "best."  # before the names of the best weights in a checkpoint


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    tokens: int = 0
    rows: int = 0
    seconds: float = 0.0
    start: float | None = None  # the chosen metric of the model as given
    best: Best | None = None
    top: float | None = None  # the best evaluation of a trained model: what patience waits for
    worse: int = 0  # evaluations since that one
    stopped: bool = False  # patience is at an end
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    evaluations: list[dict[str, object]] = field(default_factory=list)
    recent: dict[str, deque[float]] = field(default_factory=dict)  # task -> its last losses

    def remember(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Keep the losses and the evaluations of some records of the log."""
        for record in records:
            if "loss" in record:
                self.recent.setdefault(record["task"], deque(maxlen=_RECENT)).append(float(record["loss"]))
            if "evaluation" in record:
                self.evaluations.append(dict(record))

    def memories(self) -> list[dict[str, Any]]:
        """Records that `remember` would make the same of."""
        losses = ({"task": task, "loss": loss} for task, recent in self.recent.items() for loss in recent)
        return [*losses, *self.evaluations]

    def judge(self, metric: str, value: float, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights if they are the best so far, those of the model as given (step 0) included.

        Patience does not count the start: a model often gets worse before it gets better.
        """
        if self.step == 0:
            self.start = value
        elif self.top is None or _better(value, self.top):
            self.top, self.worse = value, 0
        else:
            self.worse += 1
        if self.best is None or _better(value, self.best.value):
            self.best = Best(metric, value, self.step)
            self.best_weights = {name: tensor.detach().clone() for name, tensor in weights.items()}

    def facts(self) -> dict[str, object]:
        """The numbers, for a checkpoint."""
        return {
            "tokens": self.tokens,
            "rows": self.rows,
            "seconds": self.seconds,
            "start": self.start,
            "best": None if self.best is None else vars(self.best),
            "top": self.top,
            "worse": self.worse,
            "stopped": self.stopped,
        }

    def tensors(self) -> list[tuple[str, Tensor]]:
        """The best weights, for a checkpoint."""
        return [(_BEST + name, tensor) for name, tensor in self.best_weights.items()]

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Put back what `facts` and `tensors` gave."""
        self.step, self.tokens, self.rows = int(facts["step"]), int(facts["tokens"]), int(facts["rows"])
        self.seconds, self.worse, self.stopped = float(facts["seconds"]), int(facts["worse"]), bool(facts["stopped"])
        best = facts["best"]
        if best is not None:
            self.best = Best(str(best["metric"]), float(best["value"]), int(best["step"]))
            self.start = facts.get("start")  # a checkpoint of 0.1.0 has neither
            self.top = facts.get("top", self.best.value)
        self.best_weights = {
            name.removeprefix(_BEST): tensor.to(device) for name, tensor in tensors.items() if name.startswith(_BEST)
        }


def _better(value: float, other: float) -> bool:
    """NaN is never better than a number."""
    return value > other or (math.isnan(other) and not math.isnan(value))


def measurable(evaluator: Evaluator) -> bool:
    """Whether an evaluator can measure an untrained model; not where it needs a classifier that the training makes."""
    return not (isinstance(evaluator, LabelEvaluator) and evaluator.classifier is not None)


def deciding(evaluators: Sequence[Evaluator], wanted: str | None) -> Evaluator:
    """The evaluator whose metric chooses the best model."""
    return next((one for one in evaluators if wanted and wanted.startswith(f"{one.name}/")), evaluators[0])


def check_evaluators(evaluators: Sequence[Evaluator], wanted: str | None) -> None:
    """Refuse, before anything is trained, scores that cannot be told apart, or a metric that no evaluator measures."""
    names = [evaluator.name for evaluator in evaluators]
    if len(set(names)) < len(names):
        raise InputError(f"evaluators need names of their own, got {names}: give the examples names")
    if wanted is None:
        return
    if not evaluators:
        raise InputError(f"metric {wanted!r} needs evaluators to measure it, got none")
    if not any(wanted.startswith(f"{evaluator.name}/") for evaluator in evaluators):
        known = ", ".join(f"{evaluator.name}/{evaluator.main}" for evaluator in evaluators)
        raise InputError(f"metric must be SET/metric of one of the evaluators, for example {known}, got {wanted!r}")


def chosen_metric(scores: Sequence[Scores], wanted: str | None) -> tuple[str, float]:
    """The metric that chooses the best model, and its value: 'SET/metric', or the first evaluator's main one."""
    known = {f"{score.name}/{name}": value for score in scores for name, value in score.values.items()}
    name = wanted or f"{scores[0].name}/{scores[0].main}"
    if name not in known:
        raise InputError(f"metric must be one of {', '.join(known)}, got {name!r}")
    return name, known[name]
