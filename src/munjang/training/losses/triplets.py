"""Anchors, positives and negatives `[n, d]`, or vectors with class labels `[n]` that make all triplets -> loss.

Batches of labelled vectors need classes with two members and at least two classes. Whether a batch has them cannot
be seen without waiting for the GPU, so the losses answer 0 (with zero gradient) where there is no triplet, and
`check_classes` is for whoever makes the batches.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import InputError
from munjang.training.losses.geometry import Distance, check_distance, distance_matrix, distances
from munjang.training.losses.shapes import class_ids, matrices, matrix, not_negative

MARGINS: dict[Distance, float] = {"euclidean": 1.0, "manhattan": 1.0, "cosine": 0.2}


def triplet(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float | None = None,
    distance: Distance = "euclidean",
) -> Tensor:
    """Mean of max(D(a, p) - D(a, n) + margin, 0). Reimers and Gurevych 2019, section 3, triplet objective.

    The margin is 1 as there for Euclidean (and Manhattan) distances. A cosine distance lies within 0..2, where 1 would
    ask for the impossible: its margin is 0.2, FaceNet's.
    """
    anchors, positives, negatives = matrices(anchors=anchors, positives=positives, negatives=negatives)
    margin = _margin(margin, distance)
    near, far = distances(anchors, positives, distance), distances(anchors, negatives, distance)
    return functional.relu(near - far + margin).mean()


def batch_hard_triplet(
    vectors: Tensor, labels: Tensor, *, margin: float | None = None, distance: Distance = "euclidean"
) -> Tensor:
    """Mean over anchors of max(farthest positive - nearest negative + margin, 0).

    Hermans, Beyer and Leibe 2017, equation (5). Anchors without a positive or without a negative do not count.
    """
    margin = _margin(margin, distance)
    gaps, counted = _hardest(vectors, labels, distance)
    return _mean(functional.relu(gaps + margin), counted)


def batch_hard_soft_margin(vectors: Tensor, labels: Tensor, *, distance: Distance = "euclidean") -> Tensor:
    """Mean over anchors of log(1 + exp(farthest positive - nearest negative)): pulls on, without a margin.

    Hermans, Beyer and Leibe 2017, section 2, 'soft-margin' of equation (5).
    """
    check_distance(distance)
    gaps, counted = _hardest(vectors, labels, distance)
    return _mean(functional.softplus(gaps), counted)


def batch_all_triplet(
    vectors: Tensor, labels: Tensor, *, margin: float | None = None, distance: Distance = "euclidean"
) -> Tensor:
    """Mean of D(a, p) - D(a, n) + margin over all triplets of the batch where it is above 0.

    Hermans, Beyer and Leibe 2017, equation (6), 'batch all, non-zero'. There are n^3 triplets, but a distance enters
    as often as it stands in an active one: counting that by sorted search needs n^2 numbers, and the same counts
    are the gradient.
    """
    margin = _margin(margin, distance)
    apart, alike, unlike = _batch(vectors, labels, distance)
    with torch.no_grad():
        bound = apart + margin  # a triplet is active where D(a, n) < bound(a, p)
        negatives = apart.masked_fill(~unlike, torch.inf).sort(dim=1).values
        bounds = bound.masked_fill(~alike, -torch.inf).sort(dim=1).values
        as_positive = torch.searchsorted(negatives, bound.contiguous()) * alike  # negatives that (a, p) meets
        as_negative = (len(apart) - torch.searchsorted(bounds, apart.contiguous(), right=True)) * unlike
        active = as_positive.sum()
        weights = (as_positive - as_negative).to(apart.dtype)
    return ((weights * apart).sum() + margin * active) / active.clamp(min=1)


def batch_semi_hard_triplet(
    vectors: Tensor, labels: Tensor, *, margin: float | None = None, distance: Distance = "euclidean"
) -> Tensor:
    """Mean over positive pairs (a, p) of max(D(a, p) - D(a, n) + margin, 0) with a semi-hard negative.

    Schroff, Kalenichenko and Philbin 2015 (FaceNet), section 3.2: n is the nearest negative that is farther than p;
    where there is none, the farthest negative. Pairs whose anchor has no negative do not count.
    """
    margin = _margin(margin, distance)
    apart, alike, unlike = _batch(vectors, labels, distance)
    with torch.no_grad():
        negatives, order = apart.masked_fill(~unlike, torch.inf).sort(dim=1)
        last = unlike.sum(dim=1, keepdim=True) - 1  # where the farthest negative stands; -1: there is none
        counted = alike & (last >= 0)
        place = torch.searchsorted(negatives, apart.contiguous(), right=True)
        chosen = order.gather(1, torch.minimum(place, last).clamp(min=0))  # [n, n]: the negative of (a, p)
        active = (counted & (apart - apart.gather(1, chosen) + margin > 0)).to(apart.dtype)
        # As in batch_all_triplet: how often a distance enters is its weight, and its gradient.
        weights = active.scatter_add(1, chosen, -active)
    return ((weights * apart).sum() + margin * active.sum()) / counted.sum().clamp(min=1)


def check_classes(labels: Tensor) -> None:
    """Raise `InputError` where labels make no triplet: only one class, or no class with two members.

    Looks at the values: for the labels of a data set or of a batch that is still on the CPU.
    """
    _, sizes = torch.unique(class_ids("labels", labels, labels.numel()), return_counts=True)
    if len(sizes) < 2 or int(sizes.max()) < 2:
        raise InputError(
            "triplets need two classes or more, and a class with two rows or more:"
            f" got {len(sizes)} classes, the largest of {int(sizes.max()) if len(sizes) else 0} rows"
        )


def _margin(margin: float | None, distance: Distance) -> float:
    check_distance(distance)
    margin = MARGINS[distance] if margin is None else margin
    not_negative("margin", margin)
    return margin


def _batch(vectors: Tensor, labels: Tensor, distance: Distance) -> tuple[Tensor, Tensor, Tensor]:
    """Distances [n, n]; which are of two rows of one class; which of two classes."""
    vectors = matrix("vectors", vectors)
    labels = class_ids("labels", labels, len(vectors))
    same = labels[:, None] == labels[None, :]
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    return distance_matrix(vectors, distance), same & ~itself, ~same


def _hardest(vectors: Tensor, labels: Tensor, distance: Distance) -> tuple[Tensor, Tensor]:
    """Farthest positive - nearest negative of each anchor [n], and which anchors have both [n]."""
    apart, alike, unlike = _batch(vectors, labels, distance)
    counted = alike.any(dim=1) & unlike.any(dim=1)
    farthest = apart.masked_fill(~alike, -torch.inf).max(dim=1).values
    nearest = apart.masked_fill(~unlike, torch.inf).min(dim=1).values
    return torch.where(counted, farthest, 0) - torch.where(counted, nearest, 0), counted


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return torch.where(counted, values, 0).sum() / counted.sum().clamp(min=1)
