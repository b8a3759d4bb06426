"""Texts with classes -> what a linear classifier over the frozen vectors reaches, as SentEval measures it.

Multinomial logistic regression with L2, by L-BFGS in torch: the optimum is unique, so it is scikit-learn's
LogisticRegression to within a rounding. Vectors are standardised with the training rows' mean and spread, so that a
model whose vectors have length 1 is not punished harder by the L2 than another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.encoding import encode, gpu_of
from munjang.evaluation.metrics import accuracy, f1, mean
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder
from munjang.evaluation.sets import check, gold, interval, joined

if TYPE_CHECKING:
    from torch import Tensor

    from munjang.data import Examples

_CHOICES = (0.01, 0.1, 1.0, 10.0)  # inverse strengths of the L2, as scikit-learn's C


@dataclass(frozen=True)
class LinearProbe:
    """A fitted classifier: standardise, multiply, add, take the greatest."""

    mean: Array  # [d]
    spread: Array  # [d]
    weight: Array  # [classes, d]
    bias: Array  # [classes]
    classes: Array  # [classes] the numbers that labels had

    def logits(self, vectors: Array) -> Array:  # [n, d] -> [n, classes]
        scores: Array = ((vectors - self.mean) / self.spread) @ self.weight.T + self.bias
        return scores

    def predict(self, vectors: Array) -> Array:  # [n, d] -> [n]
        guess: Array = self.classes[self.logits(vectors).argmax(axis=1)]
        return guess


@dataclass(frozen=True)
class ProbeEvaluator:
    """Accuracy and macro F1 on the test split, or over folds where there is none."""

    train: Examples  # classified
    test: Examples | None = None
    folds: int = 10  # without a test split
    c: float | None = None  # the inverse strength of the L2; None: the best of four on a tenth of the training rows
    seed: int = 0
    bootstrap: int = 0
    main: str = "accuracy"

    def __post_init__(self) -> None:
        for examples in (self.train,) if self.test is None else (self.train, self.test):
            check(examples, "classified", least=2)
        gold(self.train)
        if self.test is not None and self.test.labels != self.train.labels:
            raise InputError(
                f"{self.name}: train and test must have the same labels, got {', '.join(self.train.labels)} and "
                f"{', '.join(self.test.labels)}"
            )
        if self.test is None and not 2 <= self.folds <= len(self.train):
            raise InputError(f"{self.name}: folds must be 2..{len(self.train)} (the rows), got {self.folds}")

    @property
    def name(self) -> str:
        return self.train.name if self.test is None else self.test.name

    def __call__(self, model: Model) -> Scores:
        bi = bi_encoder(model, name=self.name)
        train = encode(bi, self.train.columns["text"])
        device = gpu_of(bi) or "cpu"
        if self.test is None:
            truth, notes = gold(self.train), train.notes
            guess = self._by_folds(train.rows, truth, device)
            notes = (f"{self.folds} folds", *notes)
        else:
            test = encode(bi, self.test.columns["text"])
            assert self.test.targets is not None
            truth, notes = self.test.targets, joined(train.notes, test.notes)
            guess = self._fit(train.rows, gold(self.train), device).predict(test.rows)
        right = (truth == guess).astype(float)
        values = {"accuracy": accuracy(truth, guess), "f1_macro": f1(truth, guess)}
        intervals = interval("accuracy", mean, (right,), samples=self.bootstrap)
        return Scores(self.name, values, self.main, len(truth), intervals=intervals, notes=notes)

    def _fit(self, vectors: Array, labels: Array, device: str, c: float | None = None) -> LinearProbe:
        c = c or self.c or choose_c(vectors, labels, seed=self.seed, device=device)
        return fit_probe(vectors, labels, c=c, device=device)

    def _by_folds(self, vectors: Array, labels: Array, device: str) -> Array:
        """Every row, as told by a classifier that has not seen it; C is chosen once, in the first fold's rest."""
        fold = fold_of(labels, self.folds, seed=self.seed)
        rest = fold != 0
        c = self.c or choose_c(vectors[rest], labels[rest], seed=self.seed, device=device)
        guess = np.empty_like(labels)
        for number in range(self.folds):
            held = fold == number
            guess[held] = self._fit(vectors[~held], labels[~held], device, c).predict(vectors[held])
        return guess


def fold_of(labels: Array, folds: int, *, seed: int = 0) -> Array:
    """A fold for every row, [n]: at random, each class spread evenly over the folds."""
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[by_class] = np.arange(len(labels)) % folds
    return fold


def choose_c(vectors: Array, labels: Array, *, seed: int = 0, device: str = "cpu") -> float:
    """The C that tells a held-out tenth best; of equals the smallest, which is the simplest."""
    held = fold_of(labels, min(10, len(labels)), seed=seed) == 0
    if len(np.unique(labels[~held])) < 2:
        return 1.0
    reached = [
        accuracy(labels[held], fit_probe(vectors[~held], labels[~held], c=c, device=device).predict(vectors[held]))
        for c in _CHOICES
    ]
    return _CHOICES[int(np.argmax(reached))]


def fit_probe(vectors: Array, labels: Array, *, c: float = 1.0, device: str = "cpu", steps: int = 300) -> LinearProbe:
    """The weights with the least mean cross-entropy + |weight|^2 / (2 c n); biases are free."""
    import torch

    if not c > 0:
        raise InputError(f"c must be above 0, got {c}")
    if len(vectors) != len(labels):
        raise InputError(f"expected as many vectors as labels, got {len(vectors)} and {len(labels)}")
    classes, targets = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError("one class only: a classifier needs at least two")
    centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = vectors.std(axis=0, dtype=np.float64).astype(np.float32)
    spread[spread == 0] = 1.0
    rows = torch.from_numpy((vectors - centre) / spread).to(device)
    with torch.enable_grad():
        weight, bias = _minimise(rows, torch.from_numpy(targets.reshape(-1)).to(device), len(classes), c, steps)
    return LinearProbe(centre, spread, weight.numpy(force=True), bias.numpy(force=True), classes)


def _minimise(rows: Tensor, targets: Tensor, classes: int, c: float, steps: int) -> tuple[Tensor, Tensor]:
    import torch

    weight = torch.zeros(classes, rows.shape[1], device=rows.device, requires_grad=True)
    bias = torch.zeros(classes, device=rows.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=steps, tolerance_grad=1e-5, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.addmm(bias, rows, weight.T)
        value = torch.nn.functional.cross_entropy(logits, targets) + weight.square().sum() / (2 * c * len(rows))
        value.backward()
        return value

    optimiser.step(loss)
    return weight.detach(), bias.detach()
