"""What distillation trains with where nothing else is said: one table, by the size of the student's body.

Reimers and Gurevych (2020) took 2e-5 for XLM-R; small bodies, and embeddings that are new, learn far faster and need
to. Nothing here imports torch: the command line shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from munjang.recipes.defaults import Size

LOSSES = ("mse", "cosine", "contrastive", "relational")  # towards a teacher's vectors
OBJECTIVES = ("kl", "margin_mse", "cosent", "cosine", "bce", "mse")  # towards a cross-encoder's scores
WARM_UP = 0.06  # share of the steps
BETAS = (0.9, 0.98)  # a shorter memory of the squared gradients: targets are dense, and gradients change fast
EMBEDDING_FACTOR = 3.0  # times the learning rate, for a vocabulary that is new
ROWS_FOR_FEW_EPOCHS = 1_000_000  # from so many rows on, fewer passes do


@dataclass(frozen=True)
class DistillDefault:
    """The numbers of one way of distilling."""

    epochs: float
    epochs_large: float  # where there are many rows
    batch_size: int
    learning_rates: dict[Size, float]
    why: str


VECTORS = DistillDefault(
    10,
    3,
    128,
    {"small": 2e-4, "base": 5e-5, "large": 2e-5},
    "targets are exact and plenty: many passes and a high rate pay, 5e-5 and batches of 128 for base bodies",
)
SCORES = DistillDefault(
    3,
    1,
    64,
    {"small": 5e-5, "base": 2e-5, "large": 1e-5},
    "a cross-encoder's scores are learned as labels are: the rates of the other recipes",
)
CROSS_STUDENT = DistillDefault(
    4,
    1,
    64,
    {"small": 1e-4, "base": 3e-5, "large": 1e-5},
    "as cross-encoders are trained; soft labels do not overfit as fast as hard ones",
)
MASKED = DistillDefault(
    1,
    1,
    128,
    {"small": 4e-4, "base": 1e-4, "large": 5e-5},
    "a warm-up of new embeddings: a high rate for a short time",
)


def shown(default: DistillDefault) -> str:
    """The numbers in a line, for people."""
    rates = ", ".join(f"{rate:g} {size}" for size, rate in default.learning_rates.items())
    return f"{default.epochs:g} epochs, batches of {default.batch_size}, learning rate {rates}"
