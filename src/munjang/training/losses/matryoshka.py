"""Any loss, on the first so many dimensions of the vectors as well: vectors that stay good when they are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from munjang.errors import InputError


def matryoshka(
    loss: Callable[..., Tensor],
    vectors: Sequence[Tensor],
    dimensions: Sequence[int],
    *,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """Sum over dimensions m of weight_m loss(vectors cut to their first m values); weights are 1 by default.

    Kusupati et al. 2022, equation (1). `loss` takes the vectors, in order, and nothing else: bind what it also needs.
    Cut vectors are not brought back to unit length, which only losses of dot products and distances can tell: those
    see what `truncate_dim` gives.
    """
    if not vectors or not dimensions:
        raise InputError(f"matryoshka needs vectors and dimensions, got {len(vectors)} and {len(dimensions)} of them")
    weights = [1.0] * len(dimensions) if weights is None else weights
    if len(weights) != len(dimensions):
        raise InputError(f"weights must be one for each of the {len(dimensions)} dimensions, got {len(weights)}")
    width = min(tensor.shape[-1] for tensor in vectors)
    for dimension in dimensions:
        if not 1 <= dimension <= width:
            raise InputError(f"dimensions must be 1..{width} (the vectors' dimension), got {dimension}")
    parts = [
        weight * loss(*(tensor[..., :dimension] for tensor in vectors))
        for dimension, weight in zip(dimensions, weights, strict=True)
    ]
    return torch.stack(parts).sum()
