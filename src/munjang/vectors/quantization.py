"""Float vectors -> one byte or one bit per dimension, and back.

int8: every dimension has its own range, cut into 255 equal steps; the error is at most half a step within the
range, and values beyond it are clipped. The ranges stay with the codes, so later vectors can be quantised alike:
`quantize_int8(later, ranges=first.ranges)`.

binary: one bit per dimension, set where the value is above 0, packed as `numpy.packbits` packs (first dimension
in the highest bit, last byte filled with zeros). A bit decodes to +1 or -1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from munjang.errors import InputError
from munjang.vectors.rows import (
    Array,
    ArrayT,
    Rows,
    Vectors,
    block_of,
    blocks,
    check_kind,
    device_of,
    float_dtype,
    like,
    rows_of,
)

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_FLOATS = 8_000_000  # floats converted at a time: 32 MB


@dataclass(frozen=True, eq=False)
class Int8Vectors(Generic[ArrayT]):
    """Vectors as int8 codes: value = code * scale + offset. The codes may be a memory map."""

    codes: ArrayT  # int8 [n, d]
    ranges: ArrayT  # float32 [2, d]: the lowest and the highest value of each dimension

    def __post_init__(self) -> None:
        _check_codes(self.codes, "int8")
        _check_ranges(self.ranges, self.dimension)

    @property
    def dimension(self) -> int:
        return int(self.codes.shape[1])

    @property
    def scale(self) -> ArrayT:  # float32 [d], the width of a step; 0 where a dimension never changes
        scale: ArrayT = self.ranges[1] / 255 - self.ranges[0] / 255  # high - low might overflow
        return scale

    @property
    def offset(self) -> ArrayT:  # float32 [d], the value of code 0
        offset: ArrayT = self.ranges[0] + 128 * self.scale
        return offset

    def rows(self, name: str) -> Rows:
        """The vectors, to be decoded as they are read."""
        scale, offset = _tensor(self.scale), _tensor(self.offset)

        def decode(codes: Tensor) -> Tensor:
            return codes.to(scale.dtype) * scale.to(codes.device) + offset.to(codes.device)

        return Rows(values=self.codes, dimension=self.dimension, name=name, decode=decode)


@dataclass(frozen=True, eq=False)
class BinaryVectors(Generic[ArrayT]):
    """Vectors as packed bits, eight dimensions to a byte. The codes may be a memory map."""

    codes: ArrayT  # uint8 [n, ceil(d / 8)]
    dimension: int  # d

    def __post_init__(self) -> None:
        _check_codes(self.codes, "uint8")
        if self.dimension < 1 or int(self.codes.shape[1]) != math.ceil(self.dimension / 8):
            raise InputError(
                f"{self.dimension} dimensions need {math.ceil(self.dimension / 8)} bytes a row,"
                f" got codes of shape {tuple(self.codes.shape)}"
            )

    def rows(self, name: str) -> Rows:
        """The vectors, to be decoded as they are read."""
        return Rows(
            values=self.codes,
            dimension=self.dimension,
            name=name,
            decode=lambda codes: unpack_signs(codes, self.dimension),
        )


def quantize_int8(vectors: ArrayT, ranges: Vectors | None = None) -> Int8Vectors[ArrayT]:
    """Quantise to int8, by the vectors' own lows and highs or by `ranges` `[2, d]` from earlier ones."""
    import torch

    matrix = rows_of(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    if ranges is not None:
        _check_ranges(ranges, matrix.dimension)
    with torch.no_grad():
        bounds = _ranges_of(matrix) if ranges is None else _tensor(ranges).to(device, torch.float32)
        codes = torch.zeros(matrix.shape, dtype=torch.int8, device=device)
        result = Int8Vectors(codes=like(codes, vectors), ranges=like(bounds, vectors))
        scale, offset = _tensor(result.scale).to(dtype), _tensor(result.offset).to(dtype)
        step = torch.where(scale > 0, scale, 1)
        for rows in blocks(matrix.count, _block_rows(matrix)):
            block = matrix.read_finite(rows, dtype=dtype, device=device)
            codes[rows] = ((block - offset) / step).round().clamp(-128, 127).to(torch.int8)
    return Int8Vectors(codes=like(codes, vectors), ranges=result.ranges)


def decode_int8(vectors: Int8Vectors[ArrayT]) -> ArrayT:
    """Return the float32 vectors `[n, d]` that the codes stand for."""
    return like(_decoded(vectors.rows("vectors")), vectors.codes)


def quantize_binary(vectors: ArrayT) -> BinaryVectors[ArrayT]:
    """Keep of every value only whether it is above 0."""
    import torch

    matrix = rows_of(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    codes = torch.empty((matrix.count, math.ceil(matrix.dimension / 8)), dtype=torch.uint8, device=device)
    with torch.no_grad():
        for rows in blocks(matrix.count, _block_rows(matrix)):
            codes[rows] = pack_signs(matrix.read_finite(rows, dtype=dtype, device=device))
    return BinaryVectors(codes=like(codes, vectors), dimension=matrix.dimension)


def decode_binary(vectors: BinaryVectors[ArrayT]) -> ArrayT:
    """Return float32 vectors `[n, d]` of +1 and -1."""
    return like(_decoded(vectors.rows("vectors")), vectors.codes)


def hamming_distances(a: BinaryVectors[ArrayT], b: BinaryVectors[Any]) -> ArrayT:
    """Return in how many bits every row of `a` differs from every row of `b`, int32 `[n, m]`."""
    import torch

    left, right = a.rows("a"), b.rows("b")
    if left.dimension != right.dimension:
        raise InputError(f"a and b must have as many dimensions, got {left.dimension} and {right.dimension}")
    device = device_of(left, right)
    out = torch.empty((left.count, right.count), dtype=torch.int32, device=device)
    for columns in blocks(right.count, 16_384):
        block = block_of(b.codes, columns).to(device)
        for rows in blocks(left.count, 512):
            out[rows, columns] = hamming(block_of(a.codes, rows).to(device), block, left.dimension)
    return like(out, a.codes)


def pack_signs(block: Tensor) -> Tensor:  # float [n, d] -> uint8 [n, ceil(d / 8)]
    """Pack `block > 0` as numpy.packbits does, on any device."""
    import torch

    bits = torch.nn.functional.pad((block > 0).to(torch.uint8), (0, -block.shape[1] % 8))
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=block.device)
    shifted = bits.view(len(bits), bits.shape[1] // 8, 8).bitwise_left_shift(shifts)
    return shifted.sum(dim=2, dtype=torch.uint8)


def unpack_signs(codes: Tensor, dimension: int) -> Tensor:  # uint8 [..., ceil(d / 8)] -> float32 [..., d]
    """Turn packed bits into +1 and -1, on any device."""
    import torch

    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=codes.device)
    bits = ((codes[..., None] >> shifts) & 1).flatten(-2)[..., :dimension]
    return bits.to(torch.float32) * 2 - 1


def hamming(left: Tensor, right: Tensor, dimension: int) -> Tensor:  # uint8 [n, w], [m, w] -> int32 [n, m]
    """Count the bits that differ. Torch cannot count bits, so the CPU does it in numpy, 64 at a time.

    Elsewhere +1 and -1 are multiplied: the product of two rows is d - 2 * distance, exactly, even in TF32.
    """
    import torch

    if left.device.type != "cpu":
        product = unpack_signs(left, dimension) @ unpack_signs(right, dimension).T
        return ((dimension - product) / 2).round().to(torch.int32)
    rows, columns = _words(left.numpy()), np.ascontiguousarray(_words(right.numpy()).T)  # [n, w], [w, m]
    out = np.zeros((rows.shape[0], columns.shape[1]), dtype=np.int32)
    for some in blocks(len(out), max(1, 65_536 // max(1, out.shape[1]))):  # the working copies fit the cache
        for word in range(columns.shape[0]):
            out[some] += count_bits(rows[some, word, None] ^ columns[word])
    return torch.from_numpy(out)


def count_bits_by_table(words: Array) -> Array:  # uint64 [...] -> uint8 [...]
    """Count the set bits: for numpy before 2.0, which has no bitwise_count."""
    counts: Array = _BITS_OF_BYTE[words[..., None].view(np.uint8)].sum(axis=-1, dtype=np.uint8)
    return counts


_BITS_OF_BYTE = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)
count_bits = getattr(np, "bitwise_count", count_bits_by_table)


def _words(codes: Array) -> Array:  # uint8 [n, w] -> uint64 [n, ceil(w / 8)]
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(padded).view(np.uint64)


def _ranges_of(matrix: Rows) -> Tensor:  # -> float32 [2, d]
    import torch

    if matrix.count == 0:
        raise InputError("there are no vectors to take the ranges from: pass ranges of earlier ones")
    dtype, device = float_dtype(matrix), device_of(matrix)
    ends = []
    for rows in blocks(matrix.count, _block_rows(matrix)):
        block = matrix.read_finite(rows, dtype=dtype, device=device)
        ends.append(torch.stack((block.amin(dim=0), block.amax(dim=0))))
    lows, highs = torch.stack(ends).unbind(dim=1)
    return torch.stack((lows.amin(dim=0), highs.amax(dim=0))).to(torch.float32)


def _decoded(matrix: Rows) -> Tensor:
    import torch

    device = device_of(matrix)
    out = torch.empty(matrix.shape, dtype=torch.float32, device=device)
    for rows in blocks(matrix.count, _block_rows(matrix)):
        out[rows] = matrix.read(rows, dtype=torch.float32, device=device)
    return out


def _check_codes(codes: Vectors, dtype: str) -> None:
    check_kind(codes, "codes")
    if codes.ndim != 2 or str(codes.dtype).removeprefix("torch.") != dtype or codes.shape[1] == 0:
        raise InputError(f"codes must be {dtype} [n, bytes], got {codes.dtype} {tuple(codes.shape)}")


def _check_ranges(ranges: Vectors, dimension: int) -> None:
    check_kind(ranges, "ranges")
    if tuple(ranges.shape) != (2, dimension):
        raise InputError(f"ranges must be lows and highs, shape {(2, dimension)}, got {tuple(ranges.shape)}")
    bounds = _tensor(ranges)
    if not (bounds.abs() < math.inf).all() or (bounds[0] > bounds[1]).any():
        raise InputError("ranges must be finite numbers, and no low above its high")


def _tensor(values: Vectors) -> Tensor:
    return block_of(values, slice(None))


def _block_rows(matrix: Rows) -> int:
    return max(1, BLOCK_FLOATS // matrix.dimension)
