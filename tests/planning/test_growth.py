"""How a graph's costs grow with its size, and the vectors that it is measured with."""

from __future__ import annotations

import numpy as np
import pytest

from munjang.planning.building import Build
from munjang.planning.measuring import _growth
from munjang.planning.texts import vectors


def test_a_graph_grows_by_a_power_that_is_believed() -> None:
    def built(*rows: int) -> list[Build]:
        return [Build(one, 0.0, 1.0, 0.0, 0, 0, 0, 0, None) for one in rows]

    sizes = built(2_500, 10_000, 20_000)
    assert _growth(sizes, [1e-4, 1.3e-4, 1e-4 * 8**0.2]) == pytest.approx(0.2)
    assert _growth(sizes, [1e-4, 1e-4, 0.9e-4]) == 0.1, "a graph that gets cheaper was measured on a busy machine"
    assert _growth(sizes, [1e-4, 2e-4, 5e-4]) == 0.3


def test_generated_vectors_lie_like_those_of_texts() -> None:
    """Documents and queries around the same centres, neither all alike nor without neighbours."""
    documents, queries = vectors(3_000, 384, seed=1), vectors(200, 384, seed=2)
    assert np.allclose(np.linalg.norm(documents, axis=1), 1, atol=1e-5)
    nearest = (queries @ documents.T).max(axis=1)
    assert 0.3 < nearest.mean() < 0.6, "news titles: 0.52"
    spread = np.linalg.svd(documents - documents.mean(axis=0), compute_uv=False) ** 2
    assert 60 < spread.sum() ** 2 / (spread**2).sum() < 160, "news titles: 127"
    assert not np.array_equal(documents[:200], queries)
    assert vectors(10, 32, seed=1).shape == (10, 32)
