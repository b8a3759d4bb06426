"""Threshold communities: the same as sentence-transformers' community_detection, in any amount of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import util

from munjang.errors import InputError
from munjang.tasks import communities as module
from munjang.tasks import neighbours_tiles
from munjang.tasks.communities import communities


def grouped(rows: int, dimension: int, *, seed: int, size: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(1, rows // size), dimension))
    spread = 0.2 + generator.random((rows, 1))
    chosen = generator.integers(len(centres), size=rows)
    return (centres[chosen] + spread * generator.standard_normal((rows, dimension))).astype(np.float32)


def theirs(vectors: np.ndarray, threshold: float, min_size: int) -> list[list[int]]:
    return util.community_detection(torch.from_numpy(vectors), threshold=threshold, min_community_size=min_size)


def near_the_threshold(vectors: np.ndarray, threshold: float) -> bool:
    unit = vectors.astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-30)
    return bool((np.abs(unit @ unit.T - threshold) < 3e-7).any())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_same_communities_in_the_same_order(data: st.DataObject) -> None:
    rows, min_size = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 12))
    vectors = grouped(
        rows,
        data.draw(st.integers(2, 24)),
        seed=data.draw(st.integers(0, 10_000)),
        size=data.draw(st.integers(1, 40)),
    )
    threshold = data.draw(st.floats(-0.2, 0.95))
    if near_the_threshold(vectors, threshold):
        return
    memory = data.draw(st.sampled_from([0.001, 0.02, 64]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours_tiles, "_LEAST_ROUGH", data.draw(st.sampled_from([2, 4096])))
        ours = communities(vectors, threshold, min_size=min_size, memory_mb=memory)
    assert [found.tolist() for found in ours] == theirs(vectors, threshold, min_size)


def test_where_pairs_do_not_fit_members_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = grouped(1500, 24, seed=1, size=30)
    calls = []
    usual = module._compared

    def counted(*arguments: Any) -> Any:
        calls.append(len(arguments[1]))
        return usual(*arguments)

    monkeypatch.setattr(module, "_compared", counted)
    expected = theirs(vectors, 0.5, 5)
    assert [found.tolist() for found in communities(vectors, 0.5, min_size=5)] == expected
    assert not calls
    assert [found.tolist() for found in communities(vectors, 0.5, min_size=5, memory_mb=0.05)] == expected
    assert len(calls) > 1
    assert max(calls) > 1


def test_rows_of_zeros_and_equal_rows() -> None:
    vectors = np.zeros((6, 3), np.float32)
    vectors[1:4] = [1, 2, 3]
    found = communities(vectors, 0.9, min_size=2)
    assert [sorted(each.tolist()) for each in found] == [sorted(each) for each in theirs(vectors, 0.9, 2)]
    assert [sorted(each.tolist()) for each in found] == [[1, 2, 3]]
    assert communities(vectors, 0.9, min_size=7) == []
    assert [each.tolist() for each in communities(vectors[:1] + 1, 0.9, min_size=1)] == [[0]]


@pytest.mark.parametrize(
    ("vectors", "arguments", "message"),
    [
        (np.ones((3, 2)), {"min_size": 0}, "min_size must be 1"),
        (np.ones(3), {}, r"vectors \[n, d\]"),
        (np.array([[0.0, np.inf]]), {}, "not finite"),
        (np.ones((3, 2)), {"memory_mb": 0}, "memory_mb"),
    ],
)
def test_bad_input_is_told(vectors: np.ndarray, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        communities(vectors, 0.5, **arguments)


@pytest.mark.gpu
def test_the_same_on_a_gpu() -> None:
    vectors = grouped(20_000, 64, seed=0, size=50)
    ours = communities(vectors, 0.7123, min_size=10, device="cuda")
    assert [found.tolist() for found in ours] == [found.tolist() for found in communities(vectors, 0.7123, min_size=10)]
