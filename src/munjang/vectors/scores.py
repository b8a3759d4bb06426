"""Two matrices of vectors -> their similarities, and vectors -> unit vectors.

Greater is always nearer: Euclidean and Manhattan similarity are the negative distances, as in
sentence-transformers. The cosine with a zero vector is 0, never NaN. Gradients flow through tensors.

Matrices are worked through in tiles, so that besides the inputs and the answer only a tile is in memory: never
`[n, m, d]`, and never a second copy of a memory map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from munjang.errors import InputError
from munjang.types import Similarity
from munjang.vectors.rows import ArrayT, Rows, Vectors, blocks, check_dimensions, device_of, float_dtype, like, rows_of

if TYPE_CHECKING:
    from torch import Tensor

TILE_FLOATS = 8_000_000  # floats of one tile's side or face: 32 MB, enough for the matrix product to run full


def similarity(a: ArrayT, b: Vectors, kind: Similarity = "cosine") -> ArrayT:
    """Return the similarity of every row of `a` with every row of `b`, `[n, m]`."""
    import torch

    left, right = rows_of(a, "a"), rows_of(b, "b")
    check_dimensions(left, right)
    check_similarity(kind)
    dtype, device = float_dtype(left, right), device_of(left, right)
    out = torch.empty((left.count, right.count), dtype=dtype, device=device)
    wide = min(_tile_rows(right), right.count) or 1
    high = min(_tile_rows(left), max(1, TILE_FLOATS // wide))
    for columns in blocks(right.count, wide):
        tile_right = prepare(right.read(columns, dtype=dtype, device=device), kind)
        for rows in blocks(left.count, high):
            tile_left = prepare(left.read(rows, dtype=dtype, device=device), kind)
            out[rows, columns] = matrix_scores(tile_left, tile_right, kind)
    return like(out, a)


def pairwise_similarity(a: ArrayT, b: Vectors, kind: Similarity = "cosine") -> ArrayT:
    """Return the similarity of row i of `a` with row i of `b`, `[n]`."""
    import torch

    left, right = rows_of(a, "a"), rows_of(b, "b")
    check_dimensions(left, right)
    check_similarity(kind)
    if left.count != right.count:
        raise InputError(
            f"a and b must have as many rows, got shapes {left.shape} and {right.shape}:"
            " similarity(a, b) compares every row with every row"
        )
    dtype, device = float_dtype(left, right), device_of(left, right)
    out = torch.empty(left.count, dtype=dtype, device=device)
    for rows in blocks(left.count, _tile_rows(left)):
        tile_left = prepare(left.read(rows, dtype=dtype, device=device), kind)
        tile_right = prepare(right.read(rows, dtype=dtype, device=device), kind)
        out[rows] = row_scores(tile_left, tile_right, kind)
    return like(out, a)


def normalize(vectors: ArrayT) -> ArrayT:
    """Return rows of length 1, in the shape given; a zero row stays zero."""
    import torch

    matrix = rows_of(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    out = torch.empty(matrix.shape, dtype=dtype, device=device)
    for rows in blocks(matrix.count, _tile_rows(matrix)):
        out[rows] = unit_rows(matrix.read(rows, dtype=dtype, device=device))
    return like(out.reshape(tuple(vectors.shape)), vectors)


def check_similarity(kind: str) -> None:
    """Only the four similarities that there are."""
    if kind not in get_args(Similarity):
        raise InputError(f"kind must be one of {', '.join(get_args(Similarity))}, got {kind!r}")


def prepare(block: Tensor, kind: Similarity) -> Tensor:
    """What can be done once per row and not once per pair: for the cosine, the division by the length."""
    return unit_rows(block) if kind == "cosine" else block


def unit_rows(block: Tensor) -> Tensor:  # [..., d] -> [..., d]
    """Divide rows by their length, without overflow: 1e30 squared is beyond float32."""
    import torch

    largest = block.detach().abs().amax(dim=-1, keepdim=True)
    scaled = block / torch.where(largest > 0, largest, 1)  # now every length is within 1..sqrt(d), or 0
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(length > 0, length, 1)


def matrix_scores(left: Tensor, right: Tensor, kind: Similarity) -> Tensor:  # [n, d], [m, d] -> [n, m]
    """Score every prepared row with every prepared row."""
    import torch

    if kind == "manhattan":
        return -torch.cdist(left, right, p=1.0)  # a kernel of its own: no [n, m, d] here
    if kind == "euclidean":
        return -_euclidean(left, right)
    return left @ right.T


def row_scores(left: Tensor, right: Tensor, kind: Similarity) -> Tensor:  # [..., d], [..., d] -> [...]
    """Score prepared rows one to one; shapes broadcast."""
    import torch

    if kind == "manhattan":
        return -(left - right).abs().sum(dim=-1)
    if kind == "euclidean":
        distances: Tensor = torch.linalg.vector_norm(_wide(left - right), dim=-1)
        return -distances.to(left.dtype)
    return (left * right).sum(dim=-1)


def _euclidean(left: Tensor, right: Tensor) -> Tensor:
    """Distances by one matrix product: |a|^2 + |b|^2 - 2ab.

    In float32 that sum cancels, and equal vectors lie 3e-4 apart. So float32 goes through float64, which costs
    twice the time and leaves 1e-8; float64 input takes the slow way without a product.
    """
    import torch

    wide = _wide(left)
    if wide.dtype == left.dtype:
        return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.cdist(wide, _wide(right), compute_mode="use_mm_for_euclid_dist").to(left.dtype)


def _wide(block: Tensor) -> Tensor:
    """As float64, where the device has it: squares then neither overflow nor cancel."""
    return block if block.device.type == "mps" else block.double()


def _tile_rows(matrix: Rows) -> int:
    return max(1, TILE_FLOATS // matrix.dimension)
