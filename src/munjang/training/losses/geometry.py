"""Cosines and distances for training: finite values and finite gradients for equal vectors and for zero vectors.

The gradient of a length is undefined at 0, and the usual answers are NaN or a push of 1e12. Here it is 0 for a
distance between equal vectors, and the cosine with a zero vector is 0.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from munjang.training.losses.shapes import one_of
from munjang.vectors.similarity import unit_rows

Distance = Literal["cosine", "euclidean", "manhattan"]


def check_distance(distance: str) -> None:
    """Only the three distances that there are."""
    one_of("distance", distance, get_args(Distance))


def cosines(u: Tensor, v: Tensor) -> Tensor:  # [n, d], [n, d] -> [n]
    """Cosine of row i with row i."""
    return (unit_rows(u) * unit_rows(v)).sum(dim=1)


def product(left: Tensor, right: Tensor) -> Tensor:  # [n, d], [m, d] -> [n, m]
    """Every row with every row, in the precision of the rows also where autocast would halve it."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right.T


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:  # [n, d], [m, d] -> [n, m]
    """Cosine of every row with every row."""
    return product(unit_rows(left), unit_rows(right))


def distances(u: Tensor, v: Tensor, distance: Distance) -> Tensor:  # [n, d], [n, d] -> [n]
    """How far row i is from row i; the cosine distance is 1 - cosine."""
    if distance == "cosine":
        return 1 - cosines(u, v)
    order = 2 if distance == "euclidean" else 1
    lengths: Tensor = torch.linalg.vector_norm(u - v, ord=order, dim=1)
    return lengths


def distance_matrix(vectors: Tensor, distance: Distance) -> Tensor:  # [n, d] -> [n, n]
    """How far every row is from every row.

    Euclidean without |a|^2 + |b|^2 - 2ab: in float32 that leaves equal vectors 3e-4 apart.
    """
    if distance == "cosine":
        return 1 - cosine_matrix(vectors, vectors)
    if distance == "euclidean":
        return torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.cdist(vectors, vectors, p=1.0)
