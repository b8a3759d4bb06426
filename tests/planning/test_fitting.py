"""Costs from points: as scipy's non-negative least squares, and never below nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from munjang.planning.fitting import fit


def test_what_is_exact_is_found() -> None:
    tokens = [4.0, 16.0, 64.0, 200.0]
    costs, deviation = fit([(1, t, t * t) for t in tokens], [2e-4 + 1e-5 * t + 3e-8 * t * t for t in tokens])
    assert costs == pytest.approx([2e-4, 1e-5, 3e-8], rel=1e-6)
    assert deviation < 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 3))
def test_as_scipy(seed: int, points: int, width: int) -> None:
    random = np.random.default_rng(seed)
    parts = random.uniform(0.1, 10, (points, width))
    measured = np.abs(parts @ random.uniform(-1, 3, width)) + random.uniform(0.01, 1, points)
    costs, deviation = fit(parts.tolist(), measured.tolist())
    theirs, residual = nnls(parts / measured[:, None], np.ones(points))
    ours = np.linalg.norm(parts / measured[:, None] @ np.array(costs) - 1)
    assert min(costs) >= 0
    assert ours == pytest.approx(residual, abs=1e-6)
    assert deviation == pytest.approx(np.abs(parts / measured[:, None] @ np.array(costs) - 1).max(), abs=1e-12)
    if points > width:
        np.testing.assert_allclose(costs, theirs, atol=1e-5)


@pytest.mark.parametrize("measured", [[], [0.0], [-1.0], [float("nan")], [float("inf")]])
def test_what_cannot_have_been_measured(measured: list[float]) -> None:
    with pytest.raises(ValueError, match="must be positive and finite"):
        fit([(1.0,)] * len(measured), measured)
