"""What a recipe trains with where nothing else is said: one table, by the size of the body.

The numbers are those of the Sentence-BERT paper (1 epoch, AdamW 2e-5, 10 % linear warm-up) where it has some, and what
worked for Korean models elsewhere. Small bodies take, and need, larger learning rates than large ones. Nothing here
imports torch: the command line shows the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

RecipeName = Literal["nli", "sts", "triplet", "contrastive", "cross_nli", "cross_sts", "cross_rank"]
Size = Literal["small", "base", "large"]

RECIPE_NAMES: tuple[RecipeName, ...] = (
    "nli",
    "sts",
    "triplet",
    "contrastive",
    "cross_nli",
    "cross_sts",
    "cross_rank",
)
SIZES: tuple[Size, ...] = ("small", "base", "large")

# What each recipe may be trained with; the first is the default, unless the kind of the data decides.
OBJECTIVES: dict[RecipeName, tuple[str, ...]] = {
    "nli": ("softmax", "ranking"),
    "sts": ("cosine", "cosent", "angle"),
    "triplet": ("euclidean", "cosine", "ranking"),
    "contrastive": ("ranking", "contrastive", "online"),
    "cross_nli": ("cross_entropy",),
    "cross_sts": ("bce", "mse", "order"),
    "cross_rank": ("bce", "ranking", "lambda", "list_net", "rank_net"),
}


@dataclass(frozen=True)
class Default:
    """The numbers of one recipe."""

    epochs: float
    batch_size: int
    learning_rates: dict[Size, float]
    why: str


_RATES: dict[Size, float] = {"small": 5e-5, "base": 2e-5, "large": 1e-5}

DEFAULTS: dict[RecipeName, Default] = {
    "nli": Default(1, 64, _RATES, "the paper's single epoch and 2e-5; batches of 64 give ranking enough negatives"),
    "sts": Default(
        4,
        32,
        {"small": 1e-4, "base": 2e-5, "large": 1e-5},
        "a few thousand pairs: four passes; Korean models took 1e-4 (small) and 2e-5 (base)",
    ),
    "triplet": Default(1, 32, _RATES, "as NLI; triplets compare within a row, so that the batch matters less"),
    "contrastive": Default(1, 128, _RATES, "the other rows of a batch are the negatives: many of them help"),
    "cross_nli": Default(
        3, 64, {"small": 1e-4, "base": 3e-5, "large": 1e-5}, "a new head needs more passes; 3e-5 for Korean base bodies"
    ),
    "cross_sts": Default(
        10,
        64,
        {"small": 1e-4, "base": 3e-5, "large": 1e-5},
        "a new head on few pairs: ten passes, of which the development set keeps the best",
    ),
    "cross_rank": Default(
        1, 32, _RATES, "a step holds whole lists: 32 queries; click and question sets are large, one pass does"
    ),
}

WARM_UP = 0.1  # share of the steps, the paper's
EVALUATIONS = 4  # at least so many during a run, so that there is something to choose from


def size_of(parameters: int) -> Size:
    """The size of a body by its parameters outside the embedding tables.

    A multilingual vocabulary makes a small body look large: paraphrase-multilingual-MiniLM has 118M parameters, of
    which 96M are embeddings.
    """
    if parameters < 50_000_000:
        return "small"
    return "base" if parameters < 200_000_000 else "large"


def evaluate_every(steps_per_epoch: int, epochs: float) -> int | None:
    """Steps between evaluations; None (every epoch) where the epochs are enough to choose from."""
    if epochs >= EVALUATIONS:
        return None
    return max(1, math.ceil(steps_per_epoch * epochs / EVALUATIONS))


def shown(recipe: RecipeName) -> str:
    """The defaults of a recipe in a line, for people."""
    default = DEFAULTS[recipe]
    rates = ", ".join(f"{default.learning_rates[size]:g} {size}" for size in SIZES)
    return f"{default.epochs:g} epochs, batches of {default.batch_size}, learning rate {rates}"
