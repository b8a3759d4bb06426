"""Vectors of many dimensions -> few: PCA of our own, t-SNE and UMAP where they are installed.

    pca     exact, from the covariance [d, d], in passes over blocks of rows: memory maps stay on the disk
    tsne    PCA to 50 dimensions, then scikit-learn's t-SNE (extra `tasks`); beyond 20,000 rows a sample is laid out,
            and every other row is put between the rows of the sample that are nearest to it
    umap    umap-learn (extra `umap`)

The same seed gives the same points. Rows are compared by their directions (cosine): they are made unit vectors first.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Literal, get_args

import numpy as np

from munjang.errors import InputError, MissingExtraError
from munjang.vectors import normalize, top_k

Array = np.ndarray[Any, Any]
Method = Literal["auto", "umap", "tsne", "pca"]

BLOCK = 8_192  # rows that are read at once
MOST_LAID_OUT = 20_000  # rows that t-SNE itself lays out: a minute or two on a laptop
FEWEST = 8  # with fewer rows t-SNE and UMAP have no neighbours to speak of, and PCA is used
NEIGHBOURS = 3  # between which a row outside the sample is put
_BEFORE_TSNE = 50  # dimensions, as the authors of t-SNE advise


def project(vectors: Array, *, method: Method = "auto", seed: int = 0) -> tuple[Array, str]:
    """Points in the plane, float32 [n, 2], and the name of the method that made them ('umap', 'tsne' or 'pca')."""
    rows = check_vectors(vectors)
    chosen = choose_method(method, len(rows))
    if chosen == "pca":
        return _centred(pca(normalize(rows), 2)), chosen
    if chosen == "umap":
        return _centred(umap(rows, 2, seed=seed)), chosen
    return _centred(_tsne(rows, seed)), chosen


def choose_method(method: Method, rows: int) -> Literal["umap", "tsne", "pca"]:
    """What 'auto' stands for here; a method that was named is there, or the error says what to install."""
    if method not in get_args(Method):
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if method == "umap" and not _installed("umap"):
        raise MissingExtraError("umap-learn", "umap", "method='umap'")
    if method == "tsne" and not _installed("sklearn"):
        raise MissingExtraError("scikit-learn", "tasks", "method='tsne'")
    if method == "pca" or rows < FEWEST:
        return "pca"
    if method != "auto":
        return method
    return "umap" if _installed("umap") else "tsne" if _installed("sklearn") else "pca"


def pca(vectors: Array, dimensions: int) -> Array:
    """The rows along their axes of greatest variance, float32 [n, dimensions], zeros where there are fewer axes.

    The directions of axes are free; here the coordinate of largest size on each axis is positive, so that every
    machine gives the same picture.
    """
    import torch

    rows = check_vectors(vectors)
    count, width = rows.shape
    if dimensions < 1:
        raise InputError(f"dimensions must be 1 or more, got {dimensions}")
    mean = torch.zeros(width, dtype=torch.float64)
    for start in range(0, count, BLOCK):
        mean += torch.from_numpy(np.array(rows[start : start + BLOCK], dtype=np.float64)).sum(dim=0)
    mean /= count
    covariance = torch.zeros((width, width), dtype=torch.float64)
    for start in range(0, count, BLOCK):
        block = torch.from_numpy(np.array(rows[start : start + BLOCK], dtype=np.float64)) - mean
        covariance += block.T @ block
    values, axes = torch.linalg.eigh(covariance)  # ascending
    kept = min(dimensions, width)
    axes = axes.flip(1)[:, :kept]  # [d, kept]
    # An axis without variance is any direction at all: what rounding leaves on it means nothing.
    empty = values.flip(0)[:kept] <= 1e-12 * max(float(values[-1]), 1e-300)
    axes[:, empty] = 0
    out = np.zeros((count, dimensions), dtype=np.float32)
    for start in range(0, count, BLOCK):
        block = torch.from_numpy(np.array(rows[start : start + BLOCK], dtype=np.float64)) - mean
        out[start : start + BLOCK, :kept] = (block @ axes).numpy()
    far = np.abs(out).argmax(axis=0)  # [dimensions]
    return np.asarray(out * np.where(out[far, np.arange(dimensions)] < 0, -1, 1), dtype=np.float32)


def umap(vectors: Array, dimensions: int, *, seed: int = 0, neighbours: int = 15, spread: float = 0.1) -> Array:
    """UMAP with cosine distances, float32 [n, dimensions]. `spread`: how near points may lie (0 packs clusters)."""
    rows = check_vectors(vectors)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # umap warns that a seed means one thread, and its imports of much else
            from umap import UMAP
    except ImportError as error:
        raise MissingExtraError("umap-learn", "umap", "UMAP") from error
    # Its spectral start needs more rows than dimensions to spare.
    start = "spectral" if len(rows) > dimensions + 2 else "random"
    layout = UMAP(
        n_components=dimensions,
        n_neighbors=min(neighbours, len(rows) - 1),
        min_dist=spread,
        metric="cosine",
        init=start,
        random_state=seed,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(layout.fit_transform(normalize(rows)), dtype=np.float32)


def check_vectors(vectors: Array) -> Array:
    """Rows of finite numbers, or an error."""
    rows = vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors)
    if rows.ndim != 2 or rows.shape[1] < 1 or not np.issubdtype(rows.dtype, np.floating):
        raise InputError(f"vectors must be rows of floats, [n, dimension], got {rows.dtype} {list(rows.shape)}")
    for start in range(0, len(rows), BLOCK):
        good = np.isfinite(rows[start : start + BLOCK]).all(axis=1)
        if not good.all():
            raise InputError(f"vectors must be finite, but row {start + int(np.argmin(good))} holds NaN or infinity")
    if not len(rows):
        raise InputError("there is nothing to project: no rows")
    return rows


def _tsne(vectors: Array, seed: int) -> Array:
    unit = normalize(np.asarray(vectors))
    if len(unit) <= MOST_LAID_OUT:
        return _lay_out(unit, seed)
    chosen = np.sort(np.random.default_rng(seed).choice(len(unit), MOST_LAID_OUT, replace=False))
    sample = unit[chosen]
    points = _lay_out(sample, seed)
    out = np.empty((len(unit), 2), dtype=np.float32)
    for start in range(0, len(unit), BLOCK):
        near = top_k(unit[start : start + BLOCK], sample, NEIGHBOURS, kind="cosine")
        # Near ones pull much harder: a row that is in the sample, or is like one of it, lands there.
        pull = 1 / np.maximum(1 - near.scores, 1e-6) ** 2  # [block, NEIGHBOURS]
        pull /= pull.sum(axis=1, keepdims=True)
        out[start : start + BLOCK] = (points[near.indices] * pull[:, :, None]).sum(axis=1)
    out[chosen] = points
    return out


def _lay_out(unit: Array, seed: int) -> Array:
    from sklearn.manifold import TSNE

    reduced = pca(unit, min(_BEFORE_TSNE, unit.shape[1])) if unit.shape[1] > 2 else unit
    perplexity = min(30.0, (len(unit) - 1) / 3)
    start = pca(reduced, 2)
    # As scikit-learn's own start from PCA: small, so that the first steps can still move everything.
    start = start / max(float(start[:, 0].std()), 1e-12) * 1e-4
    layout = TSNE(2, perplexity=perplexity, init=start, random_state=seed, learning_rate="auto")
    return np.asarray(layout.fit_transform(reduced), dtype=np.float32)


def _centred(points: Array) -> Array:
    return np.asarray(points - points.mean(axis=0), dtype=np.float32)


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
