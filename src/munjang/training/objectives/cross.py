"""Objectives of cross-encoders: the outputs are logits [n, labels], one tensor for every pair of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from munjang.data import Examples
from munjang.errors import InputError
from munjang.training import losses
from munjang.training.objectives.base import Given, Objective, not_constant, not_itself, several_labels, taught_scores


class CrossEntropy(Objective):
    """k labels: cross-entropy."""

    kinds = ("labelled",)
    cross = True

    def __init__(self, *, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing = smoothing

    def settings(self) -> dict[str, object]:
        return {"smoothing": self.smoothing}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        several_labels(examples)
        if dimension != len(examples.labels):
            raise InputError(
                f"the cross-encoder has {dimension} outputs, but {examples.name} has {len(examples.labels)} labels "
                f"({', '.join(examples.labels)}): load it with labels={list(examples.labels)!r}, which keeps the body "
                "and makes a new head"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        return losses.cross_entropy(outputs[0], given.targets, smoothing=self.smoothing)


class _OneScore(Objective):
    """For cross-encoders with one output."""

    cross = True

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        if dimension != 1:
            raise InputError(
                f"{type(self).__name__} needs a cross-encoder with one output, this one has {dimension}: load it with "
                "labels=1, which keeps the body and makes a new head"
            )


class CrossScore(_OneScore):
    """One score 0..1: binary cross-entropy with the score as probability, or squared error of the sigmoid."""

    kinds = ("scored", "ranked")

    def __init__(self, loss: Literal["bce", "mse"] = "bce") -> None:
        super().__init__()
        if loss not in ("bce", "mse"):
            raise InputError(f"loss must be bce or mse, got {loss!r}")
        self.loss = loss

    def settings(self) -> dict[str, object]:
        return {"loss": self.loss}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_constant(examples)
        assert examples.targets is not None
        if float(examples.targets.min()) < 0 or float(examples.targets.max()) > 1:
            raise InputError(
                f"CrossScore needs targets in 0..1, but {examples.name} has {examples.targets.min():g}.."
                f"{examples.targets.max():g}: use CrossLists for graded relevance"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        logits = outputs[0][:, 0]
        if self.loss == "bce":
            return losses.bce(logits, given.targets)
        return losses.mse(torch.sigmoid(logits), given.targets)


class CrossOrder(_OneScore):
    """STS by order: CoSENT on the logits, so that pairs are ranked as people ranked them."""

    kinds = ("scored",)
    rowwise = False

    def __init__(self, *, scale: float = 1.0, bce: float = 1.0) -> None:
        super().__init__()
        self.scale, self.bce = scale, bce

    def settings(self) -> dict[str, object]:
        return {"scale": self.scale, "bce": self.bce}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_constant(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        logits = outputs[0][:, 0]
        return losses.cosent(logits, given.targets, scale=self.scale) + self.bce * losses.bce(logits, given.targets)


class CrossRanking(_OneScore):
    """The positive before the given negatives: cross-entropy over each row's candidates."""

    kinds = ("pairs",)

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        not_itself(examples)
        if len(examples.columns) < 3:
            raise InputError(
                f"CrossRanking needs negatives beside the positive, but {examples.name} has none: "
                "`munjang negatives` finds them"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        logits = torch.cat(list(outputs), dim=1)  # [n, candidates], the positive first
        return losses.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))


class CrossLists(_OneScore):
    """Rerankers by whole lists: ListNet, LambdaLoss or RankNet over each query's documents."""

    kinds = ("ranked",)
    rowwise = False
    recordable = False  # lists have different lengths

    def __init__(self, loss: Literal["list_net", "lambda", "rank_net"] = "lambda") -> None:
        super().__init__()
        if loss not in ("list_net", "lambda", "rank_net"):
            raise InputError(f"loss must be list_net, lambda or rank_net, got {loss!r}")
        self.loss = loss

    def settings(self) -> dict[str, object]:
        return {"loss": self.loss}

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        assert given.groups is not None
        loss = {"list_net": losses.list_net, "lambda": losses.lambda_loss, "rank_net": losses.rank_net}[self.loss]
        return loss(outputs[0][:, 0], given.targets, given.groups)


class CrossMarginMse(_OneScore):
    """Distillation from a larger cross-encoder: the margin between positive and negative."""

    kinds = ("pairs",)

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        taught_scores(examples)

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        scores = torch.cat(list(outputs), dim=1)
        return losses.mse(scores[:, :1] - scores[:, 1:], given.targets[:, :1] - given.targets[:, 1:])


class CrossKl(CrossMarginMse):
    """Distillation from a larger cross-encoder: its distribution over each row's candidates."""

    def __init__(self, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def settings(self) -> dict[str, object]:
        return {"temperature": self.temperature}

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        return losses.kl_divergence(torch.cat(list(outputs), dim=1), given.targets, temperature=self.temperature)
