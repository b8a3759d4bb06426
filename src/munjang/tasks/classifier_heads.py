"""Vectors and targets -> a head: what turns a vector into one number per label. Pure, in numpy and torch.

    linear       logistic regression with L2 by L-BFGS: softmax over the labels, or for several labels a sigmoid each
    prototypes   the mean direction of each label's vectors, seen from the mean of all; the numbers are cosines

The vectors are centred and divided by one number, their mean length after that, so that C means the same for every
model. Dividing every dimension by its own spread would blow up the noise of a nearly constant one (three dimensions of
all-MiniLM-L6-v2 are such). What was done to the vectors is folded into the weights afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.tasks.classifier_labels import Targets

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]
_STEPS = 300


@dataclass(frozen=True)
class LinearHead:
    """A fitted logistic regression."""

    weight: Array  # float32 [labels, d]
    bias: Array  # float32 [labels]

    def scores(self, vectors: Array) -> Array:  # [n, d] -> float32 [n, labels]
        found: Array = vectors @ self.weight.T + self.bias
        return found


@dataclass(frozen=True)
class PrototypeHead:
    """A direction for each label, seen from a centre."""

    prototypes: Array  # float32 [labels, d], of length 1
    centre: Array  # float32 [d]

    def scores(self, vectors: Array) -> Array:  # [n, d] -> float32 [n, labels], cosines
        found: Array = unit(vectors - self.centre) @ self.prototypes.T
        return found


Head = LinearHead | PrototypeHead


class LinearFitting:
    """Logistic regressions on the same rows: one after the other, each from where the last one ended."""

    def __init__(self, vectors: Array, targets: Targets, *, balanced: bool = False, device: str = "cpu") -> None:
        import torch

        self._centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)  # [d]
        rows = vectors - self._centre
        self._length = float(np.sqrt(np.mean(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)))) or 1.0
        rows /= self._length
        self._rows = torch.from_numpy(rows).to(device)  # [n, d]
        values = targets.values.astype(np.float32) if targets.multilabel else targets.values
        self._values = torch.from_numpy(values).to(device)
        self._weights = torch.from_numpy(row_weights(targets, balanced=balanced)).to(device)
        classes = len(targets.names)
        self._weight = torch.zeros(classes, rows.shape[1], device=device, requires_grad=True)
        self._bias = torch.zeros(classes, device=device, requires_grad=True)

    def fit(self, c: float, *, tolerance: float = 1e-6) -> LinearHead:
        """The least of mean weighted loss + |weight|^2 / (2 c n); biases are free: scikit-learn's objective.

        For two labels there are two rows of weights, not one: c counts twice as much as scikit-learn's there.
        """
        import torch

        optimiser = torch.optim.LBFGS(
            [self._weight, self._bias],
            max_iter=_STEPS,
            tolerance_grad=tolerance,
            tolerance_change=1e-9,
            line_search_fn="strong_wolfe",
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = self._loss() + self._weight.square().sum() / (2 * c * len(self._rows))
            value.backward()
            return value

        with torch.enable_grad():
            optimiser.step(loss)
        weight = self._weight.numpy(force=True).astype(np.float64) / self._length
        bias = self._bias.numpy(force=True) - weight @ self._centre
        return LinearHead(weight.astype(np.float32), bias.astype(np.float32))

    def _loss(self) -> Tensor:
        from torch import addmm
        from torch.nn import functional

        logits = addmm(self._bias, self._rows, self._weight.T)  # [n, labels]
        if self._values.ndim == 2:
            each = functional.binary_cross_entropy_with_logits(logits, self._values, reduction="none")
            return (each * self._weights).sum() / len(self._rows)
        return (functional.cross_entropy(logits, self._values, reduction="none") * self._weights).mean()


def row_weights(targets: Targets, *, balanced: bool) -> Array:  # float32 [n]; of several labels [n, labels]
    """What each row counts: 1, or (balanced) so much that every label counts the same; the mean is 1 either way."""
    if not balanced:
        return np.ones(targets.values.shape, np.float32)
    rows, counts = len(targets), np.maximum(targets.counts, 1)
    if targets.multilabel:
        weights = np.where(targets.values, rows / (2 * counts), rows / (2 * np.maximum(rows - counts, 1)))
    else:
        weights = (rows / (len(targets.names) * counts))[targets.values]
    return weights.astype(np.float32)


def fit_prototypes(vectors: Array, targets: Targets, *, centre: Array | None = None) -> PrototypeHead:
    """The mean direction of each label's vectors, seen from the mean of all, which is what they have in common."""
    centre = vectors.mean(axis=0) if centre is None else centre
    return PrototypeHead(unit(_sums(unit(vectors - centre), targets)), centre)


def left_out_cosines(vectors: Array, targets: Targets) -> tuple[Array, Array]:
    """Cosines [n, labels] with prototypes that were made without the row itself; and which rows have them, bool [n].

    A row that is the only one of its label has no prototype without it. The centre is that of all rows.
    """
    rows = unit(vectors - vectors.mean(axis=0))
    sums = _sums(rows, targets)  # [labels, d]
    cosines = rows @ unit(sums).T
    mine = targets.values if targets.multilabel else targets.values[:, None] == np.arange(len(targets.names))
    lonely = (targets.counts == 1)[None, :] & mine
    for label in range(len(targets.names)):
        own = np.flatnonzero(mine[:, label])
        if len(own) > 1:
            cosines[own, label] = np.einsum("nd,nd->n", unit(sums[label] - rows[own]), rows[own])
    return cosines, ~lonely.any(axis=1)


def unit(vectors: Array) -> Array:
    """Rows of length 1; a row of zeros stays."""
    length = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
    return (vectors / np.where(length > 0, length, 1)).astype(np.float32)


def _sums(rows: Array, targets: Targets) -> Array:  # [n, d] -> [labels, d]
    if targets.multilabel:
        sums: Array = targets.values.T.astype(np.float32) @ rows
        return sums
    sums = np.zeros((len(targets.names), rows.shape[1]), np.float32)
    np.add.at(sums, targets.values, rows)
    return sums
