"""Logits of a head -> loss: classes, yes or no, a score. For cross-encoders, and for the training head of R7."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.shapes import class_ids, column, matrix, one_of, positive

Activation = Literal["identity", "sigmoid"]


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Softmax cross-entropy of logits `[n, k]` with classes `[n]`: -log softmax(logits)[label].

    The classification objective of Reimers and Gurevych 2019, section 3. `smoothing` gives that share of the target
    evenly to all k classes (Szegedy et al. 2016, section 7). A label outside 0..k-1 is not looked for here.
    """
    logits = matrix("logits", logits)
    labels = class_ids("labels", labels, len(logits))
    if not 0 <= smoothing < 1:
        raise InputError(f"smoothing must be 0 or more and below 1, got {smoothing}")
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)


def bce(logits: Tensor, targets: Tensor, *, positive_weight: float | None = None) -> Tensor:
    """Binary cross-entropy of sigmoid(logits) `[n]` with targets `[n]` in 0..1: -w t log s - (1 - t) log (1 - s).

    Targets may be labels or scores. `positive_weight` is w: negatives per positive, where there are many more.
    """
    logits, targets = _scores(logits, targets)
    weight = None
    if positive_weight is not None:
        positive("positive_weight", positive_weight)
        weight = logits.new_full((), positive_weight)
    return functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weight)


def mse_scores(logits: Tensor, targets: Tensor, *, activation: Activation = "identity") -> Tensor:
    """Mean of (f(logit) - target)^2 over rows `[n]`; f is the sigmoid where the model answers with one."""
    logits, targets = _scores(logits, targets)
    one_of("activation", activation, get_args(Activation))
    return functional.mse_loss(logits.sigmoid() if activation == "sigmoid" else logits, targets)


def _scores(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # [n] or [n, 1] -> [n]
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits.flatten()
    if logits.ndim != 1:
        raise InputError(
            f"logits must be one number per row, [n] or [n, 1], got shape {tuple(logits.shape)}:"
            " several labels go through cross_entropy"
        )
    logits = column("logits", logits, len(logits))
    return logits, column("targets", targets, len(logits)).to(logits.dtype)
