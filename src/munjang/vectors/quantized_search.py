"""Queries and quantised vectors -> the k best rows, in two steps.

First the codes, which are 4 or 32 times smaller than the floats, give `k * oversample` candidates for every
query. Then the candidates are scored again with float queries against finer vectors: the originals where there
are any (an array, or a memory map of which only the candidates' rows are read), else the decoded codes.
Float queries against sign bits already repair most of what the bits lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from munjang.errors import InputError
from munjang.types import Similarity
from munjang.vectors.quantization import BinaryVectors, Int8Vectors, hamming, pack_signs
from munjang.vectors.rows import (
    ArrayT,
    Rows,
    Vectors,
    block_of,
    blocks,
    check_dimensions,
    device_of,
    float_dtype,
    like,
    rows_of,
)
from munjang.vectors.scores import check_similarity, prepare, row_scores
from munjang.vectors.search import COPIES, TopK, best, candidates_for, check_k, nearest, plan, scan

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def top_k_int8(
    queries: ArrayT,
    corpus: Int8Vectors[Any],
    k: int,
    *,
    kind: Similarity = "cosine",
    rescore: Vectors | None = None,
    oversample: float = 4,
    memory_mb: float = 256,
) -> TopK[ArrayT]:
    """Return the k most similar rows for float queries.

    With `rescore`, the float vectors that the codes were made of, `k * oversample` candidates are scored again.
    Without it the decoded codes decide, and `oversample` has nothing to do. Memory is bounded as in `top_k`.
    """
    import torch

    left, right = rows_of(queries, "queries"), corpus.rows("corpus")
    exact = None if rescore is None else _originals(rescore, right)
    check_dimensions(left, right)
    check_similarity(kind)
    k = check_k(k, right.count)
    rough = candidates_for(k, oversample, right.count)
    device = device_of(right, left)
    with torch.no_grad():
        scores, indices = nearest(
            left, right, k if exact is None else rough, kind=kind, device=device, memory_mb=memory_mb
        )
        if exact is not None:
            scores, indices = _rescored(left, exact, indices, k, kind=kind, memory_mb=memory_mb)
    return TopK(scores=like(scores, queries), indices=like(indices, queries))


def top_k_binary(
    queries: ArrayT,
    corpus: BinaryVectors[Any],
    k: int,
    *,
    kind: Similarity = "cosine",
    rescore: Vectors | None = None,
    oversample: float = 4,
    memory_mb: float = 256,
) -> TopK[ArrayT]:
    """Return the k most similar rows for float queries.

    The `k * oversample` rows nearest by Hamming distance are scored again: with `rescore`, the float vectors that
    the bits were made of, or without it as vectors of +1 and -1. Memory is bounded as in `top_k`.
    """
    import torch

    left, right = rows_of(queries, "queries"), corpus.rows("corpus")
    exact = right if rescore is None else _originals(rescore, right)
    check_dimensions(left, right)
    check_similarity(kind)
    k = check_k(k, right.count)
    rough = candidates_for(k, oversample, right.count)
    with torch.no_grad():
        indices = _nearest_bits(left, right, rough, device=device_of(right, left), memory_mb=memory_mb)
        scores, indices = _rescored(left, exact, indices, k, kind=kind, memory_mb=memory_mb)
    return TopK(scores=like(scores, queries), indices=like(indices, queries))


def _nearest_bits(queries: Rows, corpus: Rows, k: int, *, device: torch.device, memory_mb: float) -> Tensor:
    """The k rows of least Hamming distance, `[q, k]`.

    Distances are few and rows are many, so nearly every boundary is tied, and settling ties costs four times the
    distances. Distance and index in one number (whole, below 2^53) leave no ties.
    """
    import torch

    wide = torch.float32 if device.type == "mps" else torch.float64  # without float64, ties may fall otherwise
    tiles = plan(memory_mb, dimension=corpus.dimension, k=k, itemsize=wide.itemsize)
    dtype = float_dtype(queries)

    def read(columns: slice) -> Tensor:
        return block_of(corpus.values, columns).to(device)

    def score(rows: slice, columns: slice, block: Tensor) -> Tensor:
        bits = pack_signs(queries.read_finite(rows, dtype=dtype, device=device))
        distances = hamming(bits, block, corpus.dimension).to(wide)
        return -(distances * corpus.count + torch.arange(columns.start, columns.stop, device=device))

    shape = (queries.count, corpus.count)
    return scan(read, score, shape=shape, k=k, tiles=tiles, device=device, dtype=wide)[1]


def _rescored(
    queries: Rows, exact: Rows, candidates: Tensor, k: int, *, kind: Similarity, memory_mb: float
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Score each query with its own candidates `[q, c]` again and keep the k best."""
    import torch

    dtype, device = float_dtype(queries, exact), candidates.device
    scores = torch.empty((queries.count, k), dtype=dtype, device=device)
    indices = torch.empty((queries.count, k), dtype=torch.int64, device=device)
    row_bytes = candidates.shape[1] * exact.dimension * COPIES * dtype.itemsize
    for rows in blocks(queries.count, max(1, int(memory_mb * 1e6 / row_bytes))):
        some = candidates[rows].sort(dim=1).values  # in order of index: so equal scores go to the lower one
        finer = exact.read_finite(some.numpy(force=True), dtype=dtype, device=device)  # [rows, c, d]
        query = queries.read_finite(rows, dtype=dtype, device=device)[:, None]
        values, positions = best(row_scores(prepare(query, kind), prepare(finer, kind), kind), k)
        scores[rows], indices[rows] = values, some.gather(1, positions)
    return scores, indices


def _originals(rescore: Vectors, corpus: Rows) -> Rows:
    exact = rows_of(rescore, "rescore")
    if exact.shape != corpus.shape:
        raise InputError(
            f"rescore must be the vectors that the codes were made of, shape {corpus.shape}, got {exact.shape}"
        )
    return exact
