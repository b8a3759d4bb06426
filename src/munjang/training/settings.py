"""`TrainingSettings`: every number that decides a training run, checked before anything is computed.

They are written into the run folder as JSON, so that a run can be repeated; `step_count` and `warm_up_steps` resolve
what depends on the amount of data. A warm-up that is longer than the training is an error, not a model that never
learned.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from munjang.errors import InputError

Schedule = Literal["linear", "cosine", "constant"]
Sampling = Literal["proportional", "round_robin", "temperature"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]

SCHEDULES: tuple[Schedule, ...] = ("linear", "cosine", "constant")
SAMPLINGS: tuple[Sampling, ...] = ("proportional", "round_robin", "temperature")

_NUMBERS = (
    "epochs",
    "max_steps",
    "batch_size",
    "learning_rate",
    "embedding_rate",
    "head_rate",
    "warm_up",
    "weight_decay",
    "max_grad_norm",
    "dropout",
    "token_budget",
    "temperature",
    "seed",
    "ema",
    "evaluate_every",
    "save_every",
    "save_seconds",
    "keep_checkpoints",
    "patience",
    "log_every",
)


@dataclass(frozen=True)
class TrainingSettings:
    """How to train. The defaults are the paper's, but for the batch: 1 epoch, AdamW 2e-5, 10 % linear warm-up."""

    epochs: float = 1.0
    max_steps: int | None = None  # wins over epochs
    batch_size: int = 32  # rows (for ranked data: queries) in a step, over all processes together
    learning_rate: float = 2e-5
    embedding_rate: float | None = None  # learning rate of the embedding tables; None: as the rest
    head_rate: float | None = None  # of new heads: a cross-encoder's, the softmax of NLI; None: as the rest
    warm_up: float = 0.1  # below 1: share of the steps; from 1 on: steps
    schedule: Schedule = "linear"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    dropout: float | None = None  # None: as the model's config says
    precision: Precision = "auto"  # auto: bfloat16 where the GPU computes with it, else float32
    token_budget: int | None = None  # tokens that go through the device at a time; None: by its memory
    sampling: Sampling = "proportional"
    temperature: float = 2.0  # sampling by size ** (1 / temperature)
    seed: int = 0
    ema: float | None = None  # decay of an exponential average of the weights, which is then evaluated and saved
    evaluate_every: int | None = None  # steps; None: at the end of every epoch
    save_every: int | None = None  # steps between checkpoints; None: by time
    save_seconds: float = 60.0  # between checkpoints by time; more where writing one takes over a tenth of it
    keep_checkpoints: int | None = None  # how many, also of a finished run; None: 2 while it runs, none afterwards
    patience: int | None = None  # stop after so many evaluations without a better score; None: never
    metric: str | None = None  # "SET/metric" that chooses the best model; None: the first evaluator's main one
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InputError(f"{name} must be a number, got {value!r}")
        for name, ok, wanted in self._checks():
            if not ok:
                raise InputError(f"{name} must be {wanted}, got {getattr(self, name)!r}")

    def _checks(self) -> list[tuple[str, bool, str]]:
        return [
            ("epochs", 0 < self.epochs < math.inf, "above 0 and finite"),
            ("max_steps", self.max_steps is None or self.max_steps >= 1, "at least 1"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("learning_rate", 0 < self.learning_rate < 1, "between 0 and 1"),
            ("embedding_rate", self.embedding_rate is None or 0 <= self.embedding_rate < 1, "between 0 and 1"),
            ("head_rate", self.head_rate is None or 0 <= self.head_rate < 1, "between 0 and 1"),
            ("warm_up", self.warm_up >= 0 and math.isfinite(self.warm_up), "a share below 1 or a number of steps"),
            ("schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            ("weight_decay", 0 <= self.weight_decay < 1, "between 0 and 1"),
            ("betas", len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas), "two numbers below 1"),
            ("max_grad_norm", self.max_grad_norm > 0, "above 0"),
            ("dropout", self.dropout is None or 0 <= self.dropout < 1, "between 0 and 1"),
            (
                "precision",
                self.precision in ("auto", "float32", "bfloat16", "float16"),
                "auto, float32, bfloat16 or float16",
            ),
            ("token_budget", self.token_budget is None or self.token_budget >= 1, "at least 1"),
            ("sampling", self.sampling in SAMPLINGS, f"one of {', '.join(SAMPLINGS)}"),
            ("seed", self.seed >= 0, "at least 0"),
            ("temperature", self.temperature > 0, "above 0"),
            ("ema", self.ema is None or 0 < self.ema < 1, "between 0 and 1"),
            ("evaluate_every", self.evaluate_every is None or self.evaluate_every >= 1, "at least 1"),
            ("save_every", self.save_every is None or self.save_every >= 1, "at least 1"),
            ("save_seconds", 0 <= self.save_seconds < math.inf, "at least 0 and finite"),
            ("keep_checkpoints", self.keep_checkpoints is None or self.keep_checkpoints >= 1, "at least 1"),
            ("patience", self.patience is None or self.patience >= 1, "at least 1"),
            ("log_every", self.log_every >= 1, "at least 1"),
        ]

    def step_count(self, steps_per_epoch: int) -> int:
        """Steps of the whole run."""
        return self.max_steps if self.max_steps is not None else max(1, round(self.epochs * steps_per_epoch))

    def warm_up_steps(self, steps: int) -> int:
        """Steps of the warm-up; an error where it would not end before the training does."""
        if self.warm_up < 1:
            return int(self.warm_up * steps)
        if self.warm_up >= steps:
            raise InputError(
                f"warm_up must be shorter than the training, which has {steps:,} steps, got {self.warm_up:,.0f} steps: "
                "the learning rate would never be reached; give a share (0.1) or fewer steps"
            )
        return int(self.warm_up)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def rate_at(step: int, steps: int, warm_up: int, schedule: Schedule) -> float:
    """The factor of the learning rate in step 0..steps-1: rises to 1 during the warm-up, then falls towards 0."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    if schedule == "constant":
        return 1.0
    gone = (step - warm_up) / max(1, steps - warm_up)
    return 1.0 - gone if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
