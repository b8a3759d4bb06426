"""Calibration of scores: sigmoid and softmax, Platt scaling, log loss and expected calibration error, in numpy.

Platt scaling finds a scale and a shift so that sigmoid(scale * logit + shift) is a probability. Both can be folded into
the last linear layer of a model, so nothing new is saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_STEPS = 100
_BINS = 10


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype, copy=False)


def softmax(x: Array) -> Array:
    """Probabilities of each row, [n, k] -> [n, k], without overflow."""
    if not len(x):
        return x
    powers: Array = np.exp(x - x.max(axis=1, keepdims=True))
    total: Array = powers.sum(axis=1, keepdims=True)
    return powers / total


def fit_platt(logits: Array, labels: Array) -> tuple[float, float]:
    """Scale and shift of Platt (1999), by Newton steps with backtracking (Lin, Lin and Weng 2007).

    The targets are (N+ + 1) / (N+ + 2) and 1 / (N- + 2), not 1 and 0: separable data would otherwise drive the scale to
    infinity.

    Args:
        logits: [n].
        labels: 0 or 1, [n].
    """
    x = np.asarray(logits, np.float64)
    positive = np.asarray(labels) > 0.5
    high = (positive.sum() + 1) / (positive.sum() + 2)
    low = 1 / ((~positive).sum() + 2)
    targets = np.where(positive, high, low)
    # Standardized logits keep the curvature well conditioned, also where logits are large.
    centre, spread = float(x.mean()), float(x.std()) or 1.0
    design = np.stack([(x - centre) / spread, np.ones_like(x)], axis=1)
    weights = np.array([0.0, np.log((positive.sum() + 1) / ((~positive).sum() + 1))])
    loss = _loss(design @ weights, targets)
    for _ in range(_STEPS):
        p = sigmoid(design @ weights)
        gradient = design.T @ (p - targets)
        curvature = design.T @ (design * (p * (1 - p))[:, None]) + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while size > 1e-10:
            moved = weights - size * step
            new = _loss(design @ moved, targets)
            if new <= loss - 1e-4 * size * float(gradient @ step):
                break
            size /= 2
        else:
            break
        done = loss - new < 1e-12 * max(1.0, abs(loss))
        weights, loss = moved, new
        if done:
            break
    scale = float(weights[0]) / spread
    return scale, float(weights[1]) - scale * centre


def _loss(z: Array, targets: Array) -> float:
    return float(np.sum(np.logaddexp(0, z) - targets * z))


def log_loss(logits: Array, labels: Array) -> float:
    """Mean cross-entropy of sigmoid(logits) against labels 0/1."""
    x = np.asarray(logits, np.float64)
    return float(np.mean(np.logaddexp(0, x) - np.asarray(labels, np.float64) * x))


def expected_calibration_error(probabilities: Array, labels: Array, *, bins: int = _BINS) -> float:
    """|mean probability - share of ones| in bins of equal width, weighted by the size of the bins."""
    p, y = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    bin_of = np.minimum((p * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(bin_of, weights=p - y, minlength=bins)
    return float(np.abs(gaps).sum() / max(1, len(p)))
