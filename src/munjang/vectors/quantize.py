"""Vectors as one byte or one bit per dimension, and search on them.

int8: every dimension has its own range, cut into 255 equal steps; the error is at most half a step within the range,
and values beyond it are clipped. The ranges stay with the codes, so that later vectors can be quantised alike:
`quantize_int8(later, ranges=first.ranges)`.

binary: one bit per dimension, set where a value is above 0, packed as `numpy.packbits` does; a bit decodes to +1 or -1.

Search has two steps: the codes, 4 or 32 times smaller, give `k * oversample` candidates for every query, which are
scored again against finer vectors: the originals (an array, or a memory map of which only these rows are read), or the
decoded codes. Float queries against sign bits already repair most of what the bits lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from munjang.errors import InputError
from munjang.types import Similarity
from munjang.vectors.search import COPIES, TopK, check_k, nearest, plan_tiles, scan, stable_top_k
from munjang.vectors.similarity import (
    Array,
    ArrayT,
    Matrix,
    Vectors,
    as_matrix,
    blocks,
    check_comparable,
    check_numeric,
    device_of,
    float_dtype,
    like,
    prepare,
    row_scores,
    tensor_of,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK_FLOATS = 8_000_000  # floats converted at a time: 32 MB
_BITS_OF_BYTE = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class Int8Vectors(Generic[ArrayT]):
    """Vectors as int8 codes: value = code * scale + offset. The codes may be a memory map."""

    codes: ArrayT  # int8 [n, d]
    ranges: ArrayT  # float32 [2, d]: the lowest and the highest value of each dimension

    def __post_init__(self) -> None:
        _check_codes(self.codes, "int8")
        _check_ranges(self.ranges, int(self.codes.shape[1]))

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

    def matrix(self, name: str) -> Matrix:
        """Return the vectors as a matrix that decodes the rows it reads."""
        scale, offset = tensor_of(self.scale, slice(None)), tensor_of(self.offset, slice(None))

        def decode(codes: Tensor) -> Tensor:
            return codes.to(scale.dtype) * scale.to(codes.device) + offset.to(codes.device)

        return Matrix(self.codes, name, dimension=self.dimension, decode=decode)


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

    def matrix(self, name: str) -> Matrix:
        """Return the vectors as a matrix that decodes the rows it reads."""
        return Matrix(
            self.codes, name, dimension=self.dimension, decode=lambda codes: unpack_signs(codes, self.dimension)
        )


def quantize_int8(vectors: ArrayT, ranges: Vectors | None = None) -> Int8Vectors[ArrayT]:
    """Quantise to int8.

    Args:
        vectors: [n, d], as a numpy array or a torch tensor.
        ranges: Lows and highs [2, d] of earlier vectors (default: those of `vectors`).

    Returns:
        Codes and ranges, of the kind of `vectors`.

    Raises:
        InputError: A value is not finite, the ranges do not fit, or there are neither vectors nor ranges.

    Example:
        >>> import numpy as np
        >>> quantize_int8(np.array([[0.0, 1.0], [2.55, 3.0]], dtype=np.float32)).codes.tolist()
        [[-128, -128], [127, 127]]
    """
    import torch

    matrix = as_matrix(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    with torch.no_grad():
        if ranges is None:
            bounds = _ranges_of(matrix, dtype, device)
        else:
            _check_ranges(ranges, matrix.dimension)
            bounds = tensor_of(ranges, slice(None)).to(device, torch.float32)
        scale = (bounds[1] / 255 - bounds[0] / 255).to(dtype)
        offset = (bounds[0] + 128 * (bounds[1] / 255 - bounds[0] / 255)).to(dtype)
        step = torch.where(scale > 0, scale, 1)
        codes = torch.empty(matrix.shape, dtype=torch.int8, device=device)
        for rows in blocks(matrix.count, _block_rows(matrix)):
            block = matrix.read_finite(rows, dtype, device)
            codes[rows] = ((block - offset) / step).round().clamp(-128, 127).to(torch.int8)
    return Int8Vectors(codes=like(codes, vectors), ranges=like(bounds, vectors))


def decode_int8(vectors: Int8Vectors[ArrayT]) -> ArrayT:
    """Return the float32 vectors [n, d] that the codes stand for."""
    return like(_decoded(vectors.matrix("vectors")), vectors.codes)


def quantize_binary(vectors: ArrayT) -> BinaryVectors[ArrayT]:
    """Keep the sign of every value as one bit.

    Args:
        vectors: [n, d], as a numpy array or a torch tensor.

    Returns:
        Packed bits, of the kind of `vectors`.

    Raises:
        InputError: A value is not finite.

    Example:
        >>> import numpy as np
        >>> quantize_binary(np.array([[0.5, -0.5, 1.0, 0.0]])).codes.tolist()
        [[160]]
    """
    import torch

    matrix = as_matrix(vectors, "vectors")
    dtype, device = float_dtype(matrix), device_of(matrix)
    codes = torch.empty((matrix.count, math.ceil(matrix.dimension / 8)), dtype=torch.uint8, device=device)
    with torch.no_grad():
        for rows in blocks(matrix.count, _block_rows(matrix)):
            codes[rows] = pack_signs(matrix.read_finite(rows, dtype, device))
    return BinaryVectors(codes=like(codes, vectors), dimension=matrix.dimension)


def decode_binary(vectors: BinaryVectors[ArrayT]) -> ArrayT:
    """Return float32 vectors [n, d] of +1 and -1."""
    return like(_decoded(vectors.matrix("vectors")), vectors.codes)


def hamming_distances(a: BinaryVectors[ArrayT], b: BinaryVectors[Any]) -> ArrayT:
    """Count the bits in which every row of `a` differs from every row of `b`: int32 [n, m].

    Raises:
        InputError: The dimensions differ.
    """
    import torch

    left, right = a.matrix("a"), b.matrix("b")
    if left.dimension != right.dimension:
        raise InputError(f"a and b must have the same dimension, got {left.dimension} and {right.dimension}")
    device = device_of(left, right)
    out = torch.empty((left.count, right.count), dtype=torch.int32, device=device)
    for columns in blocks(right.count, 16_384):
        block = tensor_of(b.codes, columns).to(device)
        for rows in blocks(left.count, 512):
            out[rows, columns] = hamming(tensor_of(a.codes, rows).to(device), block, left.dimension)
    return like(out, a.codes)


# --- search ----------------------------------------------------------------------------------------------------------


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
    """Find the k most similar int8 vectors for float queries.

    Args:
        queries: Vectors [q, d], as a numpy array or a torch tensor.
        corpus: Quantised vectors.
        k: Number of neighbours, 1..n.
        kind: "cosine", "dot", "euclidean" or "manhattan".
        rescore: The float vectors that were quantised, to score `k * oversample` candidates again (default: the
            decoded codes decide, and `oversample` has no effect).
        oversample: Candidates for each of the k results, at least 1.
        memory_mb: Working memory, as in `top_k`.

    Returns:
        Scores and row indices [q, k], of the kind and on the device of `queries`.

    Raises:
        InputError: Shapes do not match, k or oversample is out of range, or a value is not finite.
    """
    import torch

    left, right = as_matrix(queries, "queries"), corpus.matrix("corpus")
    exact, k, candidates = _check_search(left, right, k, kind, rescore, oversample)
    device = device_of(right, left)
    with torch.no_grad():
        rough = k if exact is None else candidates
        scores, indices = nearest(left, right, rough, kind=kind, device=device, memory_mb=memory_mb)
        if exact is not None:
            scores, indices = _rescore(left, exact, indices, k, kind=kind, memory_mb=memory_mb)
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
    """Find the k most similar binary vectors for float queries: the nearest by Hamming distance, scored again.

    Args:
        queries: Vectors [q, d], as a numpy array or a torch tensor.
        corpus: Quantised vectors.
        k: Number of neighbours, 1..n.
        kind: "cosine", "dot", "euclidean" or "manhattan".
        rescore: The float vectors that were quantised (default: candidates are scored as vectors of +1 and -1).
        oversample: Candidates for each of the k results, at least 1.
        memory_mb: Working memory, as in `top_k`.

    Returns:
        Scores and row indices [q, k], of the kind and on the device of `queries`.

    Raises:
        InputError: Shapes do not match, k or oversample is out of range, or a value is not finite.
    """
    import torch

    left, right = as_matrix(queries, "queries"), corpus.matrix("corpus")
    exact, k, candidates = _check_search(left, right, k, kind, rescore, oversample)
    with torch.no_grad():
        indices = _nearest_bits(left, right, candidates, device=device_of(right, left), memory_mb=memory_mb)
        scores, indices = _rescore(left, right if exact is None else exact, indices, k, kind=kind, memory_mb=memory_mb)
    return TopK(scores=like(scores, queries), indices=like(indices, queries))


def _check_search(
    queries: Matrix, corpus: Matrix, k: int, kind: str, rescore: Vectors | None, oversample: float
) -> tuple[Matrix | None, int, int]:
    """Check the arguments of a two-step search; return the originals, k, and the number of candidates."""
    exact = None if rescore is None else as_matrix(rescore, "rescore")
    if exact is not None and exact.shape != corpus.shape:
        raise InputError(
            f"rescore must be the vectors that the codes were made of, shape {corpus.shape}, got {exact.shape}"
        )
    check_comparable(queries, corpus, kind)
    k = check_k(k, corpus.count)
    if not oversample >= 1:
        raise InputError(f"oversample must be at least 1, got {oversample}")
    return exact, k, min(corpus.count, math.ceil(k * oversample))


def _nearest_bits(queries: Matrix, corpus: Matrix, k: int, *, device: torch.device, memory_mb: float) -> Tensor:
    """Return the k rows of least Hamming distance, int64 [q, k].

    There are few distances and many rows, so nearly every boundary is tied, and settling ties costs four times the
    distances. Distance and index in one number (whole, below 2^53) leave no ties.
    """
    import torch

    wide = torch.float32 if device.type == "mps" else torch.float64  # without float64, ties may fall otherwise
    tiles = plan_tiles(memory_mb, dimension=corpus.dimension, k=k, itemsize=wide.itemsize)
    dtype = float_dtype(queries)

    def read(columns: slice) -> Tensor:
        return tensor_of(corpus.values, columns).to(device)

    def score(rows: slice, columns: slice, block: Tensor) -> Tensor:
        bits = pack_signs(queries.read_finite(rows, dtype, device))
        distances = hamming(bits, block, corpus.dimension).to(wide)
        return -(distances * corpus.count + torch.arange(columns.start, columns.stop, device=device))

    shape = (queries.count, corpus.count)
    return scan(read, score, shape=shape, k=k, tiles=tiles, device=device, dtype=wide)[1]


def _rescore(
    queries: Matrix, exact: Matrix, candidates: Tensor, k: int, *, kind: Similarity, memory_mb: float
) -> tuple[Tensor, Tensor]:  # scores [q, k], indices [q, k]
    """Score each query with its own candidates [q, c] again and keep the k best."""
    import torch

    dtype, device = float_dtype(queries, exact), candidates.device
    scores = torch.empty((queries.count, k), dtype=dtype, device=device)
    indices = torch.empty((queries.count, k), dtype=torch.int64, device=device)
    row_bytes = candidates.shape[1] * exact.dimension * COPIES * dtype.itemsize
    for rows in blocks(queries.count, max(1, int(memory_mb * 1e6 / row_bytes))):
        ascending = candidates[rows].sort(dim=1).values  # in order of index: equal scores go to the lower one
        finer = prepare(exact.read_finite(ascending.numpy(force=True), dtype, device), kind)  # [rows, c, d]
        query = prepare(queries.read_finite(rows, dtype, device)[:, None], kind)  # [rows, 1, d]
        scores[rows], positions = stable_top_k(row_scores(query, finer, kind), k)
        indices[rows] = ascending.gather(1, positions)
    return scores, indices


# --- codes -----------------------------------------------------------------------------------------------------------


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
    for part in blocks(len(out), max(1, 65_536 // max(1, out.shape[1]))):  # the working copies fit the cache
        for word in range(columns.shape[0]):
            out[part] += count_bits(rows[part, word, None] ^ columns[word])
    return torch.from_numpy(out)


def count_bits_by_table(words: Array) -> Array:  # uint64 [...] -> uint8 [...]
    """Count the set bits: for numpy before 2.0, which has no bitwise_count."""
    counts: Array = _BITS_OF_BYTE[words[..., None].view(np.uint8)].sum(axis=-1, dtype=np.uint8)
    return counts


count_bits = getattr(np, "bitwise_count", count_bits_by_table)


def _words(codes: Array) -> Array:  # uint8 [n, w] -> uint64 [n, ceil(w / 8)]
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(padded).view(np.uint64)


def _ranges_of(matrix: Matrix, dtype: torch.dtype, device: torch.device) -> Tensor:  # -> float32 [2, d]
    import torch

    if matrix.count == 0:
        raise InputError("there are no vectors to take the ranges from: pass ranges of earlier ones")
    lows, highs = [], []
    for rows in blocks(matrix.count, _block_rows(matrix)):
        block = matrix.read_finite(rows, dtype, device)
        lows.append(block.amin(dim=0))
        highs.append(block.amax(dim=0))
    return torch.stack((torch.stack(lows).amin(dim=0), torch.stack(highs).amax(dim=0))).to(torch.float32)


def _decoded(matrix: Matrix) -> Tensor:  # -> float32 [n, d]
    import torch

    device = device_of(matrix)
    out = torch.empty(matrix.shape, dtype=torch.float32, device=device)
    for rows in blocks(matrix.count, _block_rows(matrix)):
        out[rows] = matrix.read(rows, torch.float32, device)
    return out


def _check_codes(codes: Vectors, dtype: str) -> None:
    check_numeric(codes, "codes")
    if codes.ndim != 2 or str(codes.dtype).removeprefix("torch.") != dtype or codes.shape[1] == 0:
        raise InputError(f"codes must be {dtype} [n, bytes], got {codes.dtype} {tuple(codes.shape)}")


def _check_ranges(ranges: Vectors, dimension: int) -> None:
    check_numeric(ranges, "ranges")
    if tuple(ranges.shape) != (2, dimension):
        raise InputError(f"ranges must be lows and highs, shape {(2, dimension)}, got {tuple(ranges.shape)}")
    bounds = tensor_of(ranges, slice(None))
    if not (bounds.abs() < math.inf).all() or (bounds[0] > bounds[1]).any():
        raise InputError("ranges must be finite numbers, and no low above its high")


def _block_rows(matrix: Matrix) -> int:
    return max(1, BLOCK_FLOATS // matrix.dimension)
