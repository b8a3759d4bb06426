"""A matrix of vectors -> blocks of float rows on a device.

What enters is what callers have: a numpy array, a memory map larger than memory, a tensor, int8 codes, packed
bits. What leaves is `[rows, d]` float32 (float64 for float64) tensors, read block by block, so that nothing else
in this package needs to know where vectors come from, and only a block of them is ever converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array: TypeAlias = npt.NDArray[Any]
Vectors: TypeAlias = "Array | Tensor"
ArrayT = TypeVar("ArrayT", "npt.NDArray[Any]", "Tensor")  # answers are of the kind of the first argument


@dataclass(frozen=True)
class Rows:
    """A checked matrix, read a block at a time."""

    values: Vectors  # [count, d] as given, or the codes of a quantised matrix
    dimension: int  # d; for codes, that of the decoded vectors
    name: str  # how errors call it
    decode: Callable[[Tensor], Tensor] | None = None  # codes -> float vectors, on the codes' device

    @property
    def count(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return (self.count, self.dimension)

    @property
    def is_double(self) -> bool:
        if isinstance(self.values, np.ndarray):
            return self.values.dtype.kind == "f" and self.values.dtype.itemsize == 8  # in any byte order
        return str(self.values.dtype) == "torch.float64"

    def read(self, rows: slice | Array, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return some rows as floats: `[len, d]`, or `[..., d]` for an array of indices."""
        block = block_of(self.values, rows).to(device)
        return (block if self.decode is None else self.decode(block)).to(dtype)

    def read_finite(self, rows: slice | Array, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Like `read`, but a NaN or an infinity is an error that names its row."""
        import torch

        block = self.read(rows, dtype=dtype, device=device)
        finite = torch.isfinite(block)
        if not finite.all():
            bad = int((~finite.all(dim=-1)).flatten().nonzero()[0])
            row = rows.start + bad if isinstance(rows, slice) else int(rows.reshape(-1)[bad])
            raise InputError(
                f"{self.name} row {row} is not finite (it holds NaN or infinity): remove it, or make the vector again"
            )
        return block


def rows_of(vectors: Vectors, name: str) -> Rows:
    """Check that these are real vectors, `[n, d]` or one `[d]`."""
    check_kind(vectors, name)
    matrix = vectors.reshape(1, -1) if vectors.ndim == 1 else vectors
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise InputError(
            f"{name} must be vectors [n, d] or one vector [d] with d >= 1, got shape {tuple(vectors.shape)}"
        )
    return Rows(values=matrix, dimension=int(matrix.shape[1]), name=name)


def check_kind(vectors: Vectors, name: str) -> None:
    """Only numpy arrays and tensors of real numbers; checked without importing torch for an array."""
    if isinstance(vectors, np.ndarray):
        real = vectors.dtype.kind in "fiub" and vectors.dtype.itemsize <= 8
    else:
        import torch

        if not isinstance(vectors, torch.Tensor):
            raise InputError(
                f"{name} must be a numpy array or a torch tensor, got {type(vectors).__name__}:"
                " numpy.asarray(...) makes one of a list"
            )
        real = not vectors.is_complex() and vectors.layout == torch.strided
    if not real:
        raise InputError(f"{name} must hold real numbers of at most 64 bits, got dtype {vectors.dtype}")


def check_dimensions(left: Rows, right: Rows) -> None:
    """Both must have as many dimensions."""
    if left.dimension != right.dimension:
        raise InputError(
            f"{left.name} and {right.name} must have as many dimensions, got shapes {left.shape} and"
            f" {right.shape}: were they made by the same model and truncation?"
        )


def block_of(values: Vectors, rows: slice | Array) -> Tensor:
    """Return some rows as a tensor where they lie, sharing memory with an array where torch can."""
    import torch

    if not isinstance(values, np.ndarray):
        return values[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(values.device)]
    block = np.asarray(values[rows])
    # Torch warns of read-only memory (a memory map) and refuses foreign byte order and negative strides.
    if not (block.flags.c_contiguous and block.flags.writeable and block.dtype.isnative):
        block = np.array(block, dtype=block.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(block)


def float_dtype(*matrices: Rows) -> torch.dtype:
    """The type to compute in: float64 as soon as one of them is, else float32."""
    import torch

    return torch.float64 if any(matrix.is_double for matrix in matrices) else torch.float32


def device_of(*matrices: Rows) -> torch.device:
    """Where to compute: the first matrix that is not on the CPU decides."""
    import torch

    for matrix in matrices:
        if not isinstance(matrix.values, np.ndarray) and matrix.values.device.type != "cpu":
            return matrix.values.device
    return torch.device("cpu")


def like(result: Tensor, example: ArrayT) -> ArrayT:
    """Give a result the kind and the device of an argument."""
    if isinstance(example, np.ndarray):
        return result.numpy(force=True)
    return result.to(example.device)


def blocks(count: int, size: int) -> Iterator[slice]:
    """Cut 0..count into runs of at most `size`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
