"""Queries and a corpus -> the k best rows of the corpus for every query: exact, in bounded memory.

The corpus is read once, block by block (from a memory map too), and each block is compared with the queries in
tiles; of every tile only the k best survive and are merged with those of the blocks before. Equal scores go to
the lower index: a plain top-k leaves that to chance, so the boundary is looked at and settled (`best`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from munjang.errors import InputError
from munjang.types import Similarity
from munjang.vectors.rows import ArrayT, Rows, Vectors, blocks, check_dimensions, device_of, float_dtype, like, rows_of
from munjang.vectors.scores import check_similarity, matrix_scores, prepare

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BlockT = TypeVar("BlockT")
COPIES = 8  # a number in a tile costs at most this many: as read, as float, normalised, masks, working copies


@dataclass(frozen=True, eq=False)
class TopK(Generic[ArrayT]):
    """For every query its k best rows, best first; equal scores in the order of their indices."""

    scores: ArrayT  # float32 (float64) [q, k]
    indices: ArrayT  # int64 [q, k], rows of the corpus


@dataclass(frozen=True)
class Tiles:
    """How many queries meet how many rows of the corpus at a time."""

    queries: int
    corpus: int


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
    """Return the k most similar rows of the corpus for every query, exactly.

    Besides the inputs and the answer, at most `memory_mb` are in use, or what one query and one row take if that
    is more (the C library may keep as much again of what was freed); a memory-mapped corpus is read in blocks.
    `exclude_self` is for queries that are the corpus: a row is then no neighbour of itself. The work is done on
    `device`, by default where the tensors lie (the CPU for arrays); the answer comes back in the queries' kind.

    Equal scores go to the lower index. Equal vectors may still differ in the last bit of their score when they
    fall into different blocks, because a matrix product rounds by its shape.
    """
    import torch

    left, right = rows_of(queries, "queries"), rows_of(corpus, "corpus")
    check_dimensions(left, right)
    check_similarity(kind)
    if exclude_self and left.count != right.count:
        raise InputError(f"exclude_self needs queries that are the corpus, got shapes {left.shape} and {right.shape}")
    k = check_k(k, right.count, exclude_self=exclude_self)
    where = device_of(right, left) if device is None else usable_device(device)
    with torch.no_grad():
        scores, indices = nearest(
            left, right, k, kind=kind, device=where, memory_mb=memory_mb, exclude_self=exclude_self
        )
    return TopK(scores=like(scores, queries), indices=like(indices, queries))


def nearest(
    queries: Rows,
    corpus: Rows,
    k: int,
    *,
    kind: Similarity,
    device: torch.device,
    memory_mb: float,
    exclude_self: bool = False,
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Do what `top_k` says, for checked arguments."""
    import torch

    dtype = float_dtype(queries, corpus)
    tiles = plan(memory_mb, dimension=corpus.dimension, k=k, itemsize=dtype.itemsize)
    held: dict[int, Tensor] = {}  # prepared queries, where all of them are small beside the budget
    hold = queries.count * queries.dimension * dtype.itemsize <= memory_mb * 1e6 / 8

    def read(columns: slice) -> Tensor:
        return prepare(corpus.read_finite(columns, dtype=dtype, device=device), kind)

    def score(rows: slice, columns: slice, block: Tensor) -> Tensor:
        ready = held.get(rows.start)
        if ready is None:
            ready = prepare(queries.read_finite(rows, dtype=dtype, device=device), kind)
            if hold:
                held[rows.start] = ready
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
    tiles: Tiles,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Score tile by tile and keep the k best of each row: `read` runs once per block of the corpus."""
    import torch

    queries, corpus = shape
    scores = torch.full((queries, k), -torch.inf, dtype=dtype, device=device)
    indices = torch.full((queries, k), -1, dtype=torch.int64, device=device)
    for columns in blocks(corpus, tiles.corpus):
        block = read(columns)
        for rows in blocks(queries, tiles.queries):
            values, positions = best(score(rows, columns, block), k)
            # Earlier rows stand first, so a stable sort keeps the lower index first among equals.
            values = torch.cat((scores[rows], values), dim=1)
            found = torch.cat((indices[rows], positions + columns.start), dim=1)
            order = torch.sort(values, dim=1, descending=True, stable=True)
            scores[rows] = order.values[:, :k]
            indices[rows] = found.gather(1, order.indices[:, :k])
    return scores, indices


def best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:  # [n, m] -> [n, min(k, m)] twice
    """Return the k best scores of each row and where they stand: best first, equals in order of position."""
    import torch

    positions = _positions(scores, k)
    order = torch.sort(scores.gather(1, positions), dim=1, descending=True, stable=True)
    return order.values, positions.gather(1, order.indices)


def _positions(scores: Tensor, k: int) -> Tensor:  # [n, m] -> [n, min(k, m)]
    """Where the k best of each row stand, in order of position; at the boundary, equals go to the lower one."""
    import torch

    if scores.shape[1] <= k:
        return torch.arange(scores.shape[1], device=scores.device).expand(scores.shape[0], -1)
    top = torch.topk(scores, k + 1, dim=1)
    positions = top.indices[:, :k].sort(dim=1).values
    tied = (top.values[:, k - 1] == top.values[:, k]).nonzero().flatten()
    if len(tied):
        rows, level = scores[tied], top.values[tied, k - 1 : k]
        above, equal = rows > level, rows == level
        places = k - above.sum(dim=1, keepdim=True)
        chosen = above | (equal & (equal.cumsum(dim=1, dtype=torch.int32) <= places))
        positions[tied] = chosen.nonzero()[:, 1].view(-1, k)
    return positions


def plan(memory_mb: float, *, dimension: int, k: int, itemsize: int) -> Tiles:
    """Choose tiles that keep to the budget: a third for a block of the corpus, the rest for queries and scores."""
    if not memory_mb > 0:
        raise InputError(f"memory_mb must be above 0, got {memory_mb}")
    budget, number = memory_mb * 1e6, COPIES * itemsize
    corpus = max(1, min(65_536, int(budget / 3 / (dimension * number))))
    merging = 120 * k  # two lists of k scores and indices, sorted: a dozen numbers of 4 or 8 bytes for each
    queries = max(1, int(budget / 2 / ((dimension + corpus) * number + merging)))
    return Tiles(queries=queries, corpus=corpus)


def check_k(k: int, count: int, *, exclude_self: bool = False) -> int:
    """Only a k that the corpus can answer."""
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


def usable_device(device: str) -> torch.device:
    """Name a device that is there."""
    import torch

    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError(f"device must be like 'cpu', 'cuda' or 'cuda:1', got {device!r}") from None
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    return chosen


def candidates_for(k: int, oversample: float, count: int) -> int:
    """How many rows the first, rough pass keeps."""
    if not oversample >= 1:
        raise InputError(f"oversample must be at least 1, got {oversample}")
    return min(count, math.ceil(k * oversample))
