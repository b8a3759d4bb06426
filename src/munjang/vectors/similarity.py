"""Similarity of vectors: every row with every row, row by row, and rows of unit length.

Greater is always nearer: Euclidean and Manhattan similarity are negative distances, as in sentence-transformers. The
cosine with a zero vector is 0, never NaN. Gradients flow through tensors.

Matrices are read in blocks (`Matrix`), so that besides inputs and result only a tile is in memory: never [n, m, d], and
never a second copy of a memory map. The arithmetic runs in torch, which is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.types import Similarity

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array: TypeAlias = npt.NDArray[Any]
Vectors: TypeAlias = "Array | Tensor"
ArrayT = TypeVar("ArrayT", "npt.NDArray[Any]", "Tensor")  # results are of the kind of the first argument

TILE_FLOATS = 8_000_000  # floats on one side of a tile: 32 MB, enough for a matrix product at full speed


def similarity(a: ArrayT, b: Vectors, kind: Similarity = "cosine") -> ArrayT:
    """Compare every row of `a` with every row of `b`.

    Args:
        a: Vectors [n, d], or one vector [d], as a numpy array or a torch tensor.
        b: Vectors [m, d], or one vector [d].
        kind: "cosine", "dot", "euclidean" or "manhattan".

    Returns:
        Similarities [n, m], float32 (float64 where an input is float64), of the kind and on the device of `a`.

    Raises:
        InputError: An argument is no matrix of real numbers, or the dimensions differ.

    Example:
        >>> import numpy as np
        >>> similarity(np.eye(2), np.array([[3.0, 4.0]])).round(1).tolist()
        [[0.6], [0.8]]
    """
    import torch

    left, right = as_matrix(a, "a"), as_matrix(b, "b")
    check_comparable(left, right, kind)
    dtype, device = float_dtype(left, right), device_of(left, right)
    out = torch.empty((left.count, right.count), dtype=dtype, device=device)
    width = min(_tile_rows(right), right.count) or 1
    height = min(_tile_rows(left), max(1, TILE_FLOATS // width))
    for columns in blocks(right.count, width):
        tile_right = prepare(right.read(columns, dtype, device), kind)
        for rows in blocks(left.count, height):
            tile_left = prepare(left.read(rows, dtype, device), kind)
            out[rows, columns] = matrix_scores(tile_left, tile_right, kind)
    return like(out, a)


def pairwise_similarity(a: ArrayT, b: Vectors, kind: Similarity = "cosine") -> ArrayT:
    """Compare row i of `a` with row i of `b`.

    Args:
        a: Vectors [n, d], or one vector [d], as a numpy array or a torch tensor.
        b: As many vectors.
        kind: "cosine", "dot", "euclidean" or "manhattan".

    Returns:
        Similarities [n], of the kind and on the device of `a`.

    Raises:
        InputError: An argument is no matrix of real numbers, or the shapes differ.

    Example:
        >>> import numpy as np
        >>> pairwise_similarity(np.eye(2), np.array([[3.0, 4.0], [3.0, 4.0]])).round(1).tolist()
        [0.6, 0.8]
    """
    import torch

    left, right = as_matrix(a, "a"), as_matrix(b, "b")
    check_comparable(left, right, kind)
    if left.count != right.count:
        raise InputError(
            f"a and b must have as many rows, got shapes {left.shape} and {right.shape}:"
            " similarity(a, b) compares every row with every row"
        )
    dtype, device = float_dtype(left, right), device_of(left, right)
    out = torch.empty(left.count, dtype=dtype, device=device)
    for rows in blocks(left.count, _tile_rows(left)):
        tile_left = prepare(left.read(rows, dtype, device), kind)
        out[rows] = row_scores(tile_left, prepare(right.read(rows, dtype, device), kind), kind)
    return like(out, a)


def normalize(vectors: ArrayT) -> ArrayT:
    """Scale rows to length 1.

    Args:
        vectors: [n, d], or one vector [d], as a numpy array or a torch tensor.

    Returns:
        Unit rows in the same shape; a zero row stays zero.

    Raises:
        InputError: `vectors` is no matrix of real numbers.

    Example:
        >>> import numpy as np
        >>> normalize(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    import torch

    matrix = as_matrix(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    out = torch.empty(matrix.shape, dtype=dtype, device=device)
    for rows in blocks(matrix.count, _tile_rows(matrix)):
        out[rows] = unit_rows(matrix.read(rows, dtype, device))
    return like(out.reshape(tuple(vectors.shape)), vectors)


# --- arithmetic on tensors -------------------------------------------------------------------------------------------


def unit_rows(block: Tensor) -> Tensor:  # [..., d] -> [..., d]
    """Divide rows by their length without overflow (1e30 squared is beyond float32); zero rows stay zero."""
    import torch

    largest = block.detach().abs().amax(dim=-1, keepdim=True)
    scaled = block / torch.where(largest > 0, largest, 1)  # now every length is within 1..sqrt(d), or 0
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(length > 0, length, 1)


def prepare(block: Tensor, kind: Similarity) -> Tensor:
    """Do what costs once per row instead of once per pair: for the cosine, divide by the length."""
    return unit_rows(block) if kind == "cosine" else block


def matrix_scores(left: Tensor, right: Tensor, kind: Similarity) -> Tensor:  # [n, d], [m, d] -> [n, m]
    """Score every prepared row with every prepared row."""
    import torch

    if kind in ("cosine", "dot"):
        return left @ right.T
    if kind == "manhattan":
        return -torch.cdist(left, right, p=1.0)  # a fused kernel: no [n, m, d]
    if kind == "euclidean":
        # |a|^2 + |b|^2 - 2ab cancels in float32 (equal vectors would be 3e-4 apart), so float32 goes through float64:
        # twice the time, an error of 1e-8. float64 takes the slow kernel without a product.
        wide = _widen(left)
        if wide.dtype == left.dtype:
            return -torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
        return -torch.cdist(wide, _widen(right), compute_mode="use_mm_for_euclid_dist").to(left.dtype)
    raise AssertionError(f"unknown similarity {kind!r}")


def row_scores(left: Tensor, right: Tensor, kind: Similarity) -> Tensor:  # [..., d], [..., d] -> [...]
    """Score prepared rows one to one; shapes broadcast."""
    import torch

    if kind in ("cosine", "dot"):
        return (left * right).sum(dim=-1)
    if kind == "manhattan":
        return -(left - right).abs().sum(dim=-1)
    if kind == "euclidean":
        distances: Tensor = torch.linalg.vector_norm(_widen(left - right), dim=-1)
        return -distances.to(left.dtype)
    raise AssertionError(f"unknown similarity {kind!r}")


def _widen(block: Tensor) -> Tensor:
    """Return float64 where the device has it: squares then neither overflow nor cancel."""
    return block if block.device.type == "mps" else block.double()


# --- matrices that are read in blocks --------------------------------------------------------------------------------


class Matrix:
    """Vectors, or codes of vectors, that are read a block at a time as floats [rows, d]. Made by `as_matrix`.

    values: [count, d] as the caller gave them (array, memory map, tensor), or codes. dimension: d of the floats.
    decode: codes -> float vectors, on the codes' device. Errors call the matrix by its name.
    """

    def __init__(
        self, values: Vectors, name: str, *, dimension: int, decode: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.values, self.name, self.dimension, self._decode = values, name, dimension, decode

    @property
    def count(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return (self.count, self.dimension)

    def read(self, rows: slice | Array, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return rows as floats: [len, d], or [..., d] for an array of indices."""
        block = tensor_of(self.values, rows).to(device)
        return (block if self._decode is None else self._decode(block)).to(dtype)

    def read_finite(self, rows: slice | Array, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return rows as `read` does; raise an InputError that names the first row with NaN or infinity."""
        import torch

        block = self.read(rows, dtype, device)
        finite = torch.isfinite(block)
        if not finite.all():
            bad = int((~finite.all(dim=-1)).flatten().nonzero()[0])
            row = rows.start + bad if isinstance(rows, slice) else int(rows.reshape(-1)[bad])
            raise InputError(
                f"{self.name} row {row} is not finite (it holds NaN or infinity): remove it, or make the vector again"
            )
        return block


def as_matrix(vectors: Vectors, name: str) -> Matrix:
    """Check that these are real vectors, [n, d] or one [d]."""
    check_numeric(vectors, name)
    values = vectors.reshape(1, -1) if vectors.ndim == 1 else vectors
    if values.ndim != 2 or values.shape[1] == 0:
        raise InputError(
            f"{name} must be vectors [n, d] or one vector [d] with d >= 1, got shape {tuple(vectors.shape)}"
        )
    return Matrix(values, name, dimension=int(values.shape[1]))


def check_numeric(values: Vectors, name: str) -> None:
    """Accept numpy arrays and dense tensors of real numbers, without importing torch for an array."""
    if isinstance(values, np.ndarray):
        real = values.dtype.kind in "fiub" and values.dtype.itemsize <= 8
    else:
        import torch

        if not isinstance(values, torch.Tensor):
            raise InputError(
                f"{name} must be a numpy array or a torch tensor, got {type(values).__name__}:"
                " numpy.asarray(...) makes one of a list"
            )
        real = not values.is_complex() and values.layout == torch.strided
    if not real:
        raise InputError(f"{name} must hold real numbers of at most 64 bits, got dtype {values.dtype}")


def check_comparable(left: Matrix, right: Matrix, kind: str) -> None:
    """Require equal dimensions and a similarity that exists."""
    if left.dimension != right.dimension:
        raise InputError(
            f"{left.name} and {right.name} must have the same dimension, got shapes {left.shape} and"
            f" {right.shape}: were they made by the same model and truncation?"
        )
    if kind not in get_args(Similarity):
        raise InputError(f"kind must be one of {', '.join(get_args(Similarity))}, got {kind!r}")


def tensor_of(values: Vectors, rows: slice | Array) -> Tensor:
    """Return rows as a tensor on their own device, sharing memory with an array where torch can."""
    import torch

    if not isinstance(values, np.ndarray):
        return values[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(values.device)]
    block = np.asarray(values[rows])
    # Torch warns of read-only memory (a memory map) and refuses foreign byte order and negative strides.
    if not (block.flags.c_contiguous and block.flags.writeable and block.dtype.isnative):
        block = np.array(block, dtype=block.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(block)


def float_dtype(*matrices: Matrix) -> torch.dtype:
    """Choose the type to compute in: float64 if any matrix is float64 (in any byte order), else float32."""
    import torch

    def is_double(values: Vectors) -> bool:
        if isinstance(values, np.ndarray):
            return values.dtype.kind == "f" and values.dtype.itemsize == 8
        return values.dtype == torch.float64

    return torch.float64 if any(is_double(matrix.values) for matrix in matrices) else torch.float32


def device_of(*matrices: Matrix) -> torch.device:
    """Choose the device to compute on: that of the first matrix that is not on the CPU."""
    import torch

    for matrix in matrices:
        if not isinstance(matrix.values, np.ndarray) and matrix.values.device.type != "cpu":
            return matrix.values.device
    return torch.device("cpu")


def like(result: Tensor, example: ArrayT) -> ArrayT:
    """Return a result as the kind of an argument, on its device."""
    if isinstance(example, np.ndarray):
        return result.numpy(force=True)
    return result.to(example.device)


def blocks(count: int, size: int) -> Iterator[slice]:
    """Cut 0..count into slices of at most `size`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _tile_rows(matrix: Matrix) -> int:
    return max(1, TILE_FLOATS // matrix.dimension)
