"""Unit rows -> labels by two methods of scikit-learn (extra `tasks`): agglomerative clustering and HDBSCAN."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError, MissingExtraError
from munjang.tasks.neighbours_tiles import UnitRows

Numbers = npt.NDArray[np.int64]
Linkage = Literal["average", "complete", "single"]

MOST_AGGLOMERATIVE = 20_000  # rows: all distances are in memory, 3.2 GB of them
MOST_HDBSCAN = 100_000  # rows: in hundreds of dimensions no tree helps, and the time grows with their square


def agglomerative(rows: UnitRows, *, k: int | None, threshold: float | None, linkage: Linkage) -> Numbers:
    """Join the nearest clusters until k are left, or until no two are as near as the threshold (a cosine)."""
    if rows.count > MOST_AGGLOMERATIVE:
        raise InputError(
            f"agglomerative clustering holds the distances of all pairs in memory and takes at most"
            f" {MOST_AGGLOMERATIVE:,} rows, got {rows.count:,}: use method='communities' with the same threshold, or"
            " method='kmeans'"
        )
    if rows.count == 1:
        return np.zeros(1, np.int64)
    found = _sklearn("agglomerative clustering").AgglomerativeClustering(
        n_clusters=k,
        distance_threshold=None if threshold is None else max(0.0, 1 - threshold),
        metric="precomputed",
        linkage=linkage,
    )
    unit = rows.read(slice(0, rows.count)).cpu().numpy()
    distances = np.maximum(0, 1 - unit @ unit.T)  # the cosine with a row of zeros is 0, which scikit-learn refuses
    labels: Numbers = found.fit_predict(distances).astype(np.int64)
    return labels


def hdbscan(rows: UnitRows, *, min_size: int) -> Numbers:
    """Dense regions of at least `min_size` rows; -1 for rows between them."""
    if rows.count > MOST_HDBSCAN:
        raise InputError(
            f"HDBSCAN compares all pairs and takes at most {MOST_HDBSCAN:,} rows, got {rows.count:,}: use"
            " method='communities' or method='kmeans'"
        )
    if min_size < 2:
        raise InputError(f"min_size must be 2 or more for HDBSCAN, got {min_size}")
    if rows.count < min_size:
        return np.full(rows.count, -1, np.int64)
    # Between unit vectors the Euclidean distance orders as the cosine does, and needs no matrix of all pairs.
    method = _sklearn("HDBSCAN").HDBSCAN(min_cluster_size=min_size, metric="euclidean", copy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        labels: Numbers = method.fit_predict(rows.read(slice(0, rows.count)).cpu().numpy()).astype(np.int64)
    return labels


def _sklearn(purpose: str) -> Any:
    try:
        import sklearn.cluster
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "tasks", purpose) from error
    return sklearn.cluster
