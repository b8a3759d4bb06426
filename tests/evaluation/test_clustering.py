"""k-means beside scikit-learn's, and the evaluator on texts."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.sample import topics
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import ClusteringEvaluator, k_means
from munjang.evaluation.metrics import v_measure


def blobs(n: int, k: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(k, 16)) * 3
    labels = generator.integers(0, k, n)
    return (centres[labels] + generator.normal(size=(n, 16)) * spread).astype(np.float32), labels


def test_clear_clusters_are_found() -> None:
    vectors, labels = blobs(600, 7, 0.5)
    found = k_means(vectors, 7)
    assert v_measure(labels, found.assigned) == pytest.approx(1)
    assert np.allclose(found.centres[found.assigned[0]], vectors[labels == labels[0]].mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
def test_as_good_as_sklearns(spread: float) -> None:
    vectors, _ = blobs(800, 9, spread)
    ours = min((k_means(vectors, 9, seed=seed) for seed in range(5)), key=lambda found: found.inertia)
    theirs = sklearn.cluster.KMeans(9, n_init=5, random_state=0).fit(vectors)
    assert ours.inertia <= theirs.inertia_ * 1.02
    distances = ((vectors[:, None] - ours.centres[None]) ** 2).sum(axis=2)
    assert np.isclose(ours.inertia, distances.min(axis=1).sum(), rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5), st.integers(0, 20))
def test_never_fails_on_repeated_rows(n: int, k: int, different: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).integers(0, different + 1, (n, 2)).astype(np.float32)
    if k > n:
        with pytest.raises(InputError, match=rf"k must be 1\.\.{n}"):
            k_means(vectors, k, seed=seed)
        return
    found = k_means(vectors, k, seed=seed)
    assert np.isfinite(found.centres).all()
    assert found.assigned.min() >= 0
    assert found.assigned.max() < k
    if k == n == len(np.unique(vectors, axis=0)):
        assert found.inertia == 0
    again = k_means(vectors, k, seed=seed)
    assert np.array_equal(found.assigned, again.assigned)


def test_topics_are_found(model: BiEncoder) -> None:
    found = ClusteringEvaluator(topics(), runs=3)(model)
    assert found.main == "v_measure"
    assert found.value > 0.5
    assert found.values["adjusted_rand"] > 0.4
    assert found.intervals == {}
    assert found.values["v_measure_spread"] >= 0
    assert ClusteringEvaluator(topics(), runs=3)(model).values == found.values


def test_one_class_only_is_said() -> None:
    with pytest.raises(InputError, match="one: constant gold labels"):
        ClusteringEvaluator(Examples("one", "classified", {"text": ["a", "b"]}, np.array([1, 1]), ("x", "y")))
