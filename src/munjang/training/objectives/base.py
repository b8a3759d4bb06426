"""What every objective has: the kinds of data it takes, how its batches are made, and its call.

An objective is a module only because it may have weights of its own (the softmax layer of NLI). These are trained with
the model and saved in checkpoints, but not in the trained model; the next run begins with new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from munjang.data import Examples
from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.training.trainee import Model

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Given:
    """What is known of the rows of a step."""

    targets: Tensor | None = None  # scores, labels, relevances, teacher scores or vectors
    groups: Tensor | None = None  # int64 [n], on the CPU: which query a row belongs to
    guides: tuple[Tensor, ...] = ()  # a guide's vectors of every column


class Objective(nn.Module):
    """Outputs and what is known of the rows -> a loss."""

    kinds: ClassVar[tuple[str, ...]] = ()  # of `Examples` that it takes
    cross: ClassVar[bool] = False  # for cross-encoders, else for bi-encoders
    rowwise: bool = True  # the loss is a mean over rows, none of which needs another
    recordable: bool = True  # shapes depend on shapes alone, and nothing in Python changes: a CUDA graph may hold it
    unique_texts: bool = False  # no text may stand in a batch twice: the others are its negatives
    trains_heads: bool = True  # what pools and projects a body's output has a part in the loss
    any_width: bool = True  # vectors of any width can be compared, their first values too

    def settings(self) -> dict[str, object]:
        """What it was made with, for the run's config."""
        return {}

    def forget(self) -> None:
        """Drop the weights of an earlier run, so that the same objective begins the next one anew."""

    def meet(self, model: Model) -> None:
        """See the model before anything is computed, where its outputs' width does not say enough."""

    def prepare(self, examples: Examples, dimension: int) -> None:
        """Check the data before anything is computed, and make weights where there are any."""
        if examples.kind not in self.kinds:
            raise InputError(
                f"{type(self).__name__} is trained on {' or '.join(self.kinds)} data, but {examples.name} is "
                f"{examples.kind}: {_REMEDIES.get(examples.kind, 'choose another objective')}"
            )
        if len(examples) == 0:
            raise InputError(f"{examples.name} has no rows to train on")

    def guide(self, examples: Examples) -> tuple[Array, ...]:
        """A guide's vectors of every column, float32 [n, d], where the objective has a guide."""
        return ()

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        raise NotImplementedError


_REMEDIES = {
    "labelled": "train it with Softmax (bi-encoder) or CrossEntropy (cross-encoder), or make positives and hard "
    "negatives of it with munjang.data.nli_triplets; neutral and contradicting pairs are not positives",
    "scored": "train it with CosineMse, CoSent or Angle (bi-encoder) or CrossScore (cross-encoder)",
    "pairs": "train it with Ranking or Triplet (bi-encoder) or CrossRanking (cross-encoder)",
    "classified": "train it with BatchTriplets",
    "ranked": "train it with CrossScore or CrossLists (cross-encoder)",
    "taught": "train it with Distil or Mse",
    "plain": "of plain texts nothing is known; train it with MaskedWords, or let a teacher make vectors of it",
}


def two_values(examples: Examples) -> None:
    """Refuse a scored set that has other scores than 0 and 1, or only one of them."""
    assert examples.targets is not None
    found = np.unique(examples.targets)
    if not np.isin(found, (0.0, 1.0)).all():
        raise InputError(
            f"{examples.name} must have scores 0 (different) and 1 (same) only, got {found[:5].tolist()}...: "
            "make them with a threshold (munjang.data.scored_to_labelled, then labelled_to_scored)"
        )
    if len(found) < 2:
        raise InputError(f"{examples.name} has one class only (every score is {found[0]:g}): nothing can be told apart")


def not_constant(examples: Examples) -> None:
    """Refuse a scored set whose scores are all the same."""
    assert examples.targets is not None
    if len(examples) > 1 and float(np.ptp(examples.targets)) == 0.0:
        raise InputError(f"{examples.name} has one score only ({examples.targets[0]:g}): there is no order to learn")


def several_labels(examples: Examples) -> None:
    """Refuse a labelled set that has one class only."""
    assert examples.targets is not None
    found = np.unique(examples.targets)
    if len(found) < 2:
        name = examples.labels[int(found[0])] if len(found) and examples.labels else found
        raise InputError(f"{examples.name} has one class only ({name}): nothing can be told apart")


def taught_scores(examples: Examples) -> None:
    """Refuse pairs without negatives, or without a teacher's scores."""
    others = len(examples.columns) - 1
    if others < 2:
        raise InputError(
            f"a teacher compares the positive with negatives, but {examples.name} has no negative column; "
            "`munjang negatives` finds them"
        )
    if examples.targets is None or examples.targets.shape != (len(examples), others):
        got = None if examples.targets is None else examples.targets.shape
        raise InputError(
            f"{examples.name} needs the teacher's score of the anchor with each of the {others} other columns as "
            f"targets [{len(examples)}, {others}], got {got}"
        )


def not_itself(examples: Examples) -> None:
    """Refuse pairs whose two texts are the same: a model learns nothing from (a, a)."""
    columns = list(examples.columns.values())
    same = sum(a.split() == b.split() for a, b in zip(columns[0], columns[1], strict=True))
    if same:
        raise InputError(
            f"{same:,} of {len(examples):,} pairs of {examples.name} are a text with itself: they teach nothing; "
            "leave them out (Examples.less)"
        )


def seeded(layer: nn.Linear, seed: int) -> nn.Linear:
    """A linear layer's weights as torch begins with them, from a seed of their own."""
    generator = torch.Generator().manual_seed(seed)
    bound = layer.in_features**-0.5
    with torch.no_grad():
        for weight in (layer.weight, layer.bias):
            weight.copy_(torch.rand(weight.shape, generator=generator) * 2 * bound - bound)
    return layer
