"""Exact nearest neighbours in bounded memory.

The corpus is read once, block by block (from a memory map too), and each block is compared with the queries in tiles;
only the k best scores of every tile survive and are merged with those before. Equal scores go to the lower index: a
plain top-k leaves that to chance, so ties at the boundary are settled (`stable_top_k`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from munjang.errors import InputError
from munjang.types import Similarity
from munjang.vectors.similarity import (
    ArrayT,
    Matrix,
    Vectors,
    as_matrix,
    blocks,
    check_comparable,
    device_of,
    float_dtype,
    like,
    matrix_scores,
    prepare,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BlockT = TypeVar("BlockT")
COPIES = 8  # copies of a number that a tile needs at most: as read, as float, normalised, masks, work space


@dataclass(frozen=True, eq=False)
class TopK(Generic[ArrayT]):
    """The k best rows for every query, best first; equal scores in the order of their indices."""

    scores: ArrayT  # float32 (float64) [q, k]
    indices: ArrayT  # int64 [q, k], rows of the corpus


def top_k(
    queries: ArrayT,
    corpus: Vectors,
    k: int,
    *,
    kind: Similarity = "cosine",
    exclude_self: bool = False,
    memory_mb: float = 256,
    device: str | None = None,
) -> TopK[ArrayT]:
    """Find the k most similar rows of the corpus for every query, exactly.

    Equal scores go to the lower index. Equal vectors may still differ in the last bit of their score when they fall
    into different blocks, because a matrix product rounds by its shape.

    Args:
        queries: Vectors [q, d], or one vector [d], as a numpy array or a torch tensor.
        corpus: Vectors [n, d]; a memory map is read in blocks.
        k: Number of neighbours, 1..n.
        kind: "cosine", "dot", "euclidean" or "manhattan".
        exclude_self: For queries that are the corpus: a row is no neighbour of itself.
        memory_mb: Working memory besides inputs and result (at least what one query and one row take; the C library
            may keep as much again of the freed memory).
        device: Where to compute (default: where the tensors are; the CPU for arrays).

    Returns:
        Scores and row indices [q, k], of the kind and on the device of `queries`.

    Raises:
        InputError: Shapes do not match, k is out of range, a value is not finite, or scores overflow.

    Example:
        >>> import numpy as np
        >>> top_k(np.array([1.0, 0.1]), np.eye(2), 1).indices.tolist()
        [[0]]
    """
    import torch

    from munjang.nn.device import choose_device

    left, right = as_matrix(queries, "queries"), as_matrix(corpus, "corpus")
    check_comparable(left, right, kind)
    if exclude_self and left.count != right.count:
        raise InputError(f"exclude_self needs queries that are the corpus, got shapes {left.shape} and {right.shape}")
    k = check_k(k, right.count, exclude_self=exclude_self)
    chosen = device_of(right, left) if device is None else choose_device(device)
    with torch.no_grad():
        scores, indices = nearest(
            left, right, k, kind=kind, device=chosen, memory_mb=memory_mb, exclude_self=exclude_self
        )
    return TopK(scores=like(scores, queries), indices=like(indices, queries))


def nearest(
    queries: Matrix,
    corpus: Matrix,
    k: int,
    *,
    kind: Similarity,
    device: torch.device,
    memory_mb: float,
    exclude_self: bool = False,
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Search checked matrices, which may be quantised."""
    import torch

    dtype = float_dtype(queries, corpus)
    tiles = plan_tiles(memory_mb, dimension=corpus.dimension, k=k, itemsize=dtype.itemsize)
    prepared: dict[int, Tensor] = {}  # queries, kept where all of them are small beside the budget
    keep = queries.count * queries.dimension * dtype.itemsize <= memory_mb * 1e6 / 8

    def read(columns: slice) -> Tensor:
        return prepare(corpus.read_finite(columns, dtype, device), kind)

    def score(rows: slice, columns: slice, block: Tensor) -> Tensor:
        ready = prepared.get(rows.start)
        if ready is None:
            ready = prepare(queries.read_finite(rows, dtype, device), kind)
            if keep:
                prepared[rows.start] = ready
        tile = matrix_scores(ready, block, kind)
        first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
        if exclude_self and first < last:
            same = torch.arange(first, last, device=device)
            tile[same - rows.start, same - columns.start] = -torch.inf
        return tile

    shape = (queries.count, corpus.count)
    scores, indices = scan(read, score, shape=shape, k=k, tiles=tiles, device=device, dtype=dtype)
    if not torch.isfinite(scores).all():  # NaN and infinity sort first, so none can hide behind rank k
        raise InputError(f"{kind} scores overflow {dtype}: scale the vectors down or pass float64")
    return scores, indices


def scan(
    read: Callable[[slice], BlockT],
    score: Callable[[slice, slice, BlockT], Tensor],
    *,
    shape: tuple[int, int],
    k: int,
    tiles: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Score tile by tile and keep the k best of every query; `read` runs once for every block of the corpus."""
    import torch

    queries, corpus = shape
    scores = torch.full((queries, k), -torch.inf, dtype=dtype, device=device)
    indices = torch.full((queries, k), -1, dtype=torch.int64, device=device)
    for columns in blocks(corpus, tiles[1]):
        block = read(columns)
        for rows in blocks(queries, tiles[0]):
            values, positions = stable_top_k(score(rows, columns, block), k)
            # Scores of earlier rows come first, so a stable sort keeps the lower index first among equals.
            values = torch.cat((scores[rows], values), dim=1)
            merged = torch.cat((indices[rows], positions + columns.start), dim=1)
            order = torch.sort(values, dim=1, descending=True, stable=True)
            scores[rows] = order.values[:, :k]
            indices[rows] = merged.gather(1, order.indices[:, :k])
    return scores, indices


def stable_top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:  # [n, m] -> values, positions [n, min(k, m)]
    """Return the k best scores of every row and their positions: best first, equal ones in order of position."""
    import torch

    if scores.shape[1] <= k:
        positions = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape[0], -1)
    else:
        top = torch.topk(scores, k + 1, dim=1)
        positions = top.indices[:, :k].sort(dim=1).values
        tied = (top.values[:, k - 1] == top.values[:, k]).nonzero().flatten()
        if len(tied):  # at the boundary, equal scores go to the lower position
            rows, level = scores[tied], top.values[tied, k - 1 : k]
            above, equal = rows > level, rows == level
            places = k - above.sum(dim=1, keepdim=True)
            chosen = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= places))
            positions[tied] = chosen.nonzero()[:, 1].view(-1, k)
    order = torch.sort(scores.gather(1, positions), dim=1, descending=True, stable=True)
    return order.values, positions.gather(1, order.indices)


def plan_tiles(memory_mb: float, *, dimension: int, k: int, itemsize: int) -> tuple[int, int]:
    """Choose queries and corpus rows of a tile: a third of the budget for corpus rows, half for queries and scores."""
    if not memory_mb > 0:
        raise InputError(f"memory_mb must be above 0, got {memory_mb}")
    budget, number = memory_mb * 1e6, COPIES * itemsize
    corpus = max(1, min(65_536, int(budget / 3 / (dimension * number))))
    merging = 120 * k  # two lists of k scores and indices, sorted: a dozen numbers of 4 or 8 bytes for each
    queries = max(1, int(budget / 2 / ((dimension + corpus) * number + merging)))
    return queries, corpus


def check_k(k: int, count: int, *, exclude_self: bool = False) -> int:
    """Return k as an int; raise an InputError where the corpus is smaller."""
    try:
        k = operator.index(k)
    except TypeError:
        raise InputError(f"k must be a whole number, got {k!r}") from None
    most, what = (count - 1, "corpus size without the row itself") if exclude_self else (count, "corpus size")
    if most < 1:
        raise InputError(f"there is nothing to search: the corpus has {count} rows")
    if not 1 <= k <= most:
        raise InputError(f"k must be 1..{most} ({what}), got {k}")
    return k
