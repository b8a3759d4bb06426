"""Projections beside scikit-learn, and what they must keep: neighbours, determinism, bounded work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from munjang.errors import InputError, MissingExtraError
from munjang.tasks import projection
from munjang.tasks.projection import choose_method, pca, project, umap


def clouds(count: int, width: int = 16, groups: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows about a few directions, and which each belongs to."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(groups, width))
    labels = np.arange(count) % groups
    return (centres[labels] + 0.1 * generator.normal(size=(count, width))).astype(np.float32), labels


def purity(points: np.ndarray, labels: np.ndarray) -> float:
    """How often the nearest other point has the same label."""
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return float((labels[distances.argmin(axis=1)] == labels).mean())


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(1, 8), st.integers(1, 5), st.integers(0, 1000))
def test_pca_is_that_of_scikit_learn_but_for_signs(count: int, width: int, dimensions: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, width))
    found = pca(rows, dimensions)
    kept = min(dimensions, width, count)
    expected = PCA(kept, svd_solver="full").fit_transform(rows)
    np.testing.assert_allclose(np.abs(found[:, :kept]), np.abs(expected), atol=1e-5)
    assert found.shape == (count, dimensions)
    assert (found[np.abs(found).argmax(axis=0), np.arange(dimensions)] >= 0).all()


def test_pca_reads_memory_maps_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = clouds(101)
    np.save(tmp_path / "rows.npy", rows)
    whole = pca(rows, 3)
    monkeypatch.setattr(projection, "BLOCK", 7)
    np.testing.assert_allclose(pca(np.load(tmp_path / "rows.npy", mmap_mode="r"), 3), whole, atol=1e-5)


def test_equal_rows_fall_on_one_point() -> None:
    points, method = project(np.ones((5, 3), dtype=np.float32))
    assert method == "pca"
    np.testing.assert_array_equal(points, np.zeros((5, 2)))


def test_tsne_keeps_neighbours_and_repeats() -> None:
    rows, labels = clouds(80)
    points, method = project(rows, method="tsne", seed=3)
    assert (method, points.dtype, points.shape) == ("tsne", np.float32, (80, 2))
    assert purity(points, labels) > 0.95
    np.testing.assert_array_equal(points, project(rows, method="tsne", seed=3)[0])


def test_rows_beyond_the_sample_land_among_their_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MOST_LAID_OUT", 60)
    monkeypatch.setattr(projection, "BLOCK", 32)
    rows, labels = clouds(200)
    laid_out: list[int] = []
    lay_out = projection._lay_out
    monkeypatch.setattr(projection, "_lay_out", lambda unit, seed: (laid_out.append(len(unit)), lay_out(unit, seed))[1])
    points, _ = project(rows, method="tsne")
    assert laid_out == [60]
    assert purity(points, labels) > 0.95
    assert np.isfinite(points).all()


@pytest.mark.slow  # its compilation takes half a minute
def test_umap_keeps_neighbours_and_repeats() -> None:
    rows, labels = clouds(120)
    points, method = project(rows, method="umap", seed=1)
    assert method == "umap"
    assert purity(points, labels) > 0.95
    np.testing.assert_array_equal(points, project(rows, method="umap", seed=1)[0])
    assert umap(rows, 5, spread=0.0).shape == (120, 5)


def test_auto_takes_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"umap", "sklearn"}
    monkeypatch.setattr(projection, "_installed", lambda package: package in there)
    assert choose_method("auto", 100) == "umap"
    there.remove("umap")
    assert choose_method("auto", 100) == "tsne"
    with pytest.raises(MissingExtraError, match=r"munjang\[umap\]"):
        choose_method("umap", 100)
    there.clear()
    assert choose_method("auto", 100) == "pca"
    with pytest.raises(MissingExtraError, match=r"munjang\[tasks\]"):
        choose_method("tsne", 100)


def test_few_rows_are_laid_out_by_pca() -> None:
    assert choose_method("tsne", 7) == "pca"
    assert project(np.eye(3, dtype=np.float32), method="tsne")[0].shape == (3, 2)
    assert project(np.eye(1, dtype=np.float32))[0].tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((0, 3), dtype=np.float32), "no rows"),
        (np.zeros(3, dtype=np.float32), r"\[n, dimension\]"),
        (np.zeros((2, 3), dtype=np.int64), "rows of floats"),
        (np.array([[1.0, 2.0], [np.nan, 0.0]]), "row 1 holds NaN"),
    ],
)
def test_errors_say_what_is_wrong(rows: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        project(rows)
    with pytest.raises(InputError, match="method must be one of"):
        project(np.eye(3), method="mds")  # type: ignore[arg-type]
