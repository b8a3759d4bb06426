"""Platt scaling beside scikit-learn's, and the measures beside their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import _sigmoid_calibration
from sklearn.metrics import log_loss as their_log_loss

from munjang.nn.calibration import expected_calibration_error, fit_platt, log_loss, sigmoid, softmax


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(0.05, 20),
    shift=st.floats(-30, 30),
    count=st.integers(8, 300),
)
def test_as_scikit_learn_fits_it(seed: int, scale: float, shift: float, count: int) -> None:
    generator = np.random.default_rng(seed)
    truth = (generator.random(count) < 0.4).astype(int)
    truth[:2] = [0, 1]
    logits = (generator.normal(truth, 1.0) * scale + shift).astype(np.float32)
    a, b = fit_platt(logits, truth)
    # theirs is 1 / (1 + exp(A f + B)); both are the minimum of one convex loss, and theirs stops a little early
    their_a, their_b = (-x for x in _sigmoid_calibration(logits.astype(np.float64), truth))
    ours, theirs = sigmoid(a * logits.astype(np.float64) + b), sigmoid(their_a * logits.astype(np.float64) + their_b)
    assert np.abs(ours - theirs).max() < 2e-3


def test_classes_that_are_wholly_apart_stay_finite() -> None:
    logits = np.array([-3.0, -2.0, 2.0, 3.0])
    a, b = fit_platt(logits, np.array([0, 0, 1, 1]))
    assert 0 < a < 10
    assert abs(b) < 1e-6


def test_log_loss_is_scikit_learns() -> None:
    generator = np.random.default_rng(0)
    logits, truth = generator.normal(size=50), generator.integers(0, 2, 50)
    assert log_loss(logits, truth) == pytest.approx(their_log_loss(truth, sigmoid(logits)))
    assert np.isfinite(log_loss(np.array([1e4, -1e4]), np.array([0, 1])))


def test_calibration_error_by_its_definition() -> None:
    generator = np.random.default_rng(1)
    p, y = generator.random(400), generator.integers(0, 2, 400)
    p[:2] = [0.0, 1.0]
    expected = 0.0
    for low in range(10):
        inside = (p >= low / 10) & ((p < (low + 1) / 10) | (low == 9))
        if inside.any():
            expected += inside.sum() / 400 * abs(p[inside].mean() - y[inside].mean())
    assert expected_calibration_error(p, y) == pytest.approx(expected)
    assert expected_calibration_error(y.astype(float), y) == 0


def test_sigmoid_and_softmax_do_not_overflow() -> None:
    big = np.array([-1e30, -1000, 0, 1000, 1e30], np.float32)
    assert sigmoid(big).tolist() == [0, 0, 0.5, 1, 1]
    assert sigmoid(big).dtype == np.float32
    assert softmax(np.array([[1000, 0], [-1000, -1000]], np.float32)).tolist() == [[1, 0], [0.5, 0.5]]
    assert softmax(np.zeros((0, 3), np.float32)).shape == (0, 3)
