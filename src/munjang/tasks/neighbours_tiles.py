"""Two blocks of rows -> the pairs of them at or above a cosine: exact, but mostly computed in small numbers.

Enters: vectors, of any kind that `munjang.vectors` reads, and for a tile (a block of rows by a block of rows) the least
cosine that matters. Leaves: `Pairs`, whose scores are float32 cosines.

Almost no pair of a corpus is alike, so a tile is first computed roughly: in int8 on CPUs that multiply it natively, in
float16 on GPUs. How far a rough cosine can be off is known: a.b - a'.b' is at most |a - a'| |b| + |a'| |b - b'| (Cauchy
and Schwarz), and the lengths of these differences are computed, not guessed. What lies within that of the limit is
scored again in float32. Where too many do, or where nothing rough is quick, the tile is computed in float32 at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.nn.device import choose_device
from munjang.vectors.similarity import Vectors, as_matrix, blocks, device_of, unit_rows

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_CLIP = 4.0  # standard deviations that int8 spans; what lies beyond is cut, and the cut is part of the known error
_FEW = 1 / 500  # of a tile's pairs: scoring one pair again costs some 200 times its share of a float32 product
_LEAST_ROUGH = 4096  # rows: below, making the codes costs more than it saves
_HALF_SLACK = 0.003  # a float16 product rounds its sums, and may add them up in float16, too
_ROUNDING = 1e-5  # of float32 arithmetic on unit vectors, and more
_UNIT = 3e-7  # what a row that was brought to length 1 may be off
_BLOCK = 1024  # rows prepared at once: they stay in the cache
_EXTRACT = 1 << 19  # pairs handed out at once
_RESCORE = 1 << 13  # pairs whose rows are gathered at once on a CPU


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows, left < right, and their cosines; all [m]."""

    left: Ints
    right: Ints
    scores: Floats

    def __len__(self) -> int:
        return len(self.scores)

    def at(self, chosen: Bools | npt.NDArray[np.int64]) -> Pairs:
        """Some of them."""
        return Pairs(self.left[chosen], self.right[chosen], self.scores[chosen])


NO_PAIRS = Pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))


def joined(parts: list[Pairs]) -> Pairs:
    """All of them in one."""
    if not parts:
        return NO_PAIRS
    return Pairs(
        np.concatenate([part.left for part in parts]),
        np.concatenate([part.right for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )


class UnitRows:
    """A checked matrix whose rows are read at length 1, in float32, on the device that computes."""

    def __init__(self, vectors: Vectors, *, device: str | None = None, memory_mb: float = 64) -> None:
        self._rows = as_matrix(vectors, "vectors")
        if vectors.ndim != 2:
            raise InputError(f"expected vectors [n, d], got one vector of shape {tuple(vectors.shape)}")
        if self._rows.count >= 2**31:
            raise InputError(f"at most {2**31 - 1:,} rows can be compared, got {self._rows.count:,}")
        self.device = device_of(self._rows) if device is None else choose_device(device)
        self.zero = np.zeros(self.count, np.bool_)  # rows without a direction
        self._step = _BLOCK if self.device.type == "cpu" else 64 * _BLOCK
        self._are_unit = self._look()
        self._ready: Tensor | None = None  # [n, d] at length 1 on the device, where there is room for all
        as_they_are = self._are_unit and device_of(self._rows) == self.device
        if not as_they_are and self.count * self.dimension * 4 <= _room(self.device, memory_mb):
            ready = torch.empty((self.count, self.dimension), device=self.device)
            for part in blocks(self.count, self._step):
                ready[part] = self.read(part)
            self._ready = ready

    @property
    def count(self) -> int:
        return self._rows.count

    @property
    def dimension(self) -> int:
        return self._rows.dimension

    def read(self, rows: slice | npt.NDArray[np.int64]) -> Tensor:  # [m, d]
        """Some rows at length 1; a row of zeros stays zero."""
        if self._ready is not None:
            return self._ready[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.device)]
        block = self._rows.read(rows, dtype=torch.float32, device=self.device)
        return block if self._are_unit else unit_rows(block)

    def _look(self) -> bool:
        """Look at all rows before anything is computed; whether their lengths are 1, to the rounding of float32."""
        are_unit = True
        for part in blocks(self.count, self._step):
            block = self._rows.read(part, dtype=torch.float32, device=self.device)
            lengths = torch.linalg.vector_norm(block, dim=1)
            if not torch.isfinite(lengths).all():  # a square may overflow where the row itself is finite
                self._rows.read_finite(part, dtype=torch.float32, device=self.device)
            are_unit = are_unit and bool(((lengths - 1).abs() <= _UNIT).all())
            if not are_unit and bool((lengths == 0).any()):
                self.zero[part] = (block == 0).all(dim=1).cpu().numpy()
        return are_unit


def _room(device: torch.device, memory_mb: float) -> float:
    """Bytes that unit rows may take: a GPU's memory is there to be used, a computer's is the caller's."""
    if device.type != "cuda":
        return memory_mb * 1e6 / 2
    free, _ = torch.cuda.mem_get_info(device)
    return float(0.4 * free)


class Tiles:
    """Scores tiles of one matrix with itself."""

    def __init__(self, rows: UnitRows, *, memory_mb: float) -> None:
        if not memory_mb > 0:
            raise InputError(f"memory_mb must be above 0, got {memory_mb}")
        self.rows = rows
        gpu = rows.device.type == "cuda"
        # A pair of a tile takes four bytes for its score and one for the mask; twice that is left for the rest.
        side = int(math.sqrt(memory_mb * 1e6 / 10))
        most = 16_384 if gpu else 1024 if torch.get_num_threads() <= 4 else 2048
        self.side = max(64, min(side, most))
        self._may_be_rough = rows.count >= _LEAST_ROUGH and (gpu or _int8_pays(rows.dimension))
        self._codes: _Codes | None = None
        self._tried = self._crowded = 0  # tiles computed roughly, and those of them that had too many candidates
        self._held: tuple[slice, Tensor] | None = None
        self._faces: dict[str, npt.NDArray[Any]] = {}

    def pairs(
        self, rows: slice, columns: slice, low: float | tuple[Floats, Floats], *, many: bool = False
    ) -> Iterator[Pairs]:
        """The pairs left < right of a tile at or above `low`: one limit, or one for every row and every column.

        Of two limits the lower counts. The blocks must be equal, or the rows lie before the columns. many: that too
        many are to be expected for a rough look to be of use.
        """
        floor = low if isinstance(low, float) else float(min(low[0].min(), low[1].min()))
        if floor > 1 + _ROUNDING:
            return
        if self._may_be_rough and floor > -1 and not many and not self._mostly_crowded():
            self._tried += 1
            found = self._roughly(rows, columns, floor)
            if found is not None:
                yield from self._scored(rows, columns, found, low)
                return
            self._crowded += 1
        yield from self._exactly(rows, columns, low)

    # --- rough first -------------------------------------------------------------------------------------------------

    def _mostly_crowded(self) -> bool:
        return self._tried >= 8 and self._crowded > self._tried / 2

    def _roughly(
        self, rows: slice, columns: slice, floor: float
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """Candidates by their places in the tile; None where there are too many of them."""
        if self._codes is None:
            self._codes = _half_codes(self.rows) if self.rows.device.type == "cuda" else _int8_codes(self.rows)
        codes = self._codes
        one, other = codes.errors[rows].max(), codes.errors[columns].max()
        least = (floor - one - other - one * other - codes.slack) / codes.unit
        left, right = codes.values[rows], codes.values[columns]
        shape = (len(left), len(right))
        most = _FEW * math.prod(shape)
        if rows == columns:  # every pair stands there twice, and every row with itself
            most = 2 * most + len(left)
        if left.device.type == "cpu":
            tile = self._face("tile32", shape, np.int32)
            torch._int_mm(left, right.T, out=torch.from_numpy(tile))
            mask = self._face("mask", shape, np.bool_)
            np.greater_equal(tile, np.int32(math.ceil(least)), out=mask)
            if np.count_nonzero(mask) > most:
                return None
            places = np.flatnonzero(mask)
            return places // shape[1], places % shape[1]
        rough = (left @ right.T) >= least
        if int(rough.sum()) > most:
            return None
        found = rough.nonzero().cpu().numpy()
        return found[:, 0], found[:, 1]

    def _scored(
        self,
        rows: slice,
        columns: slice,
        found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        low: float | tuple[Floats, Floats],
    ) -> Iterator[Pairs]:
        """Candidates with their cosines in float32; those below the limit fall away."""
        left, right = found[0] + rows.start, found[1] + columns.start
        upper = left < right
        left, right = left[upper], right[upper]
        step = _RESCORE if self.rows.device.type == "cpu" else _EXTRACT
        block = self._block(rows) if len(left) else None
        for part in blocks(len(left), step):
            assert block is not None
            ours = block[torch.from_numpy(left[part] - rows.start).to(block.device)]
            scores = torch.linalg.vecdot(ours, self.rows.read(right[part])).cpu().numpy()
            pairs = Pairs(left[part].astype(np.int32), right[part].astype(np.int32), scores)
            yield pairs.at(scores >= _limits(pairs, rows, columns, low))

    # --- exact at once -----------------------------------------------------------------------------------------------

    def _exactly(self, rows: slice, columns: slice, low: float | tuple[Floats, Floats]) -> Iterator[Pairs]:
        left = self._block(rows)
        right = left if columns == rows else self.rows.read(columns)
        if left.device.type == "cpu":
            tile = self._face("tile", (len(left), len(right)), np.float32)
            torch.mm(left, right.T, out=torch.from_numpy(tile))
            mask = self._mask(tile, low)
            for part in _strips(np.count_nonzero(mask, axis=1)):
                places = np.flatnonzero(mask[part])
                yield _upper(places, tile[part].reshape(-1)[places], (part.start, tile.shape[1]), (rows, columns))
            return
        scores = left @ right.T
        on_device = _device_mask(scores, low)
        for part in _strips(on_device.sum(dim=1).cpu().numpy()):
            found = on_device[part].reshape(-1).nonzero().flatten()
            values = scores[part].reshape(-1)[found].cpu().numpy()
            yield _upper(found.cpu().numpy(), values, (part.start, scores.shape[1]), (rows, columns))

    def _mask(self, tile: Floats, low: float | tuple[Floats, Floats]) -> Bools:
        mask = self._face("mask", tile.shape, np.bool_)
        if isinstance(low, float):
            np.greater_equal(tile, np.float32(low), out=mask)
            return mask
        np.greater_equal(tile, low[0][:, None], out=mask)
        other = self._face("mask2", tile.shape, np.bool_)
        np.greater_equal(tile, low[1][None, :], out=other)
        np.logical_or(mask, other, out=mask)
        return mask

    def _block(self, rows: slice) -> Tensor:
        """The unit rows of a block; the last one is kept, because a whole band of tiles begins with it."""
        if self._held is None or self._held[0] != rows:
            self._held = (rows, self.rows.read(rows))
        return self._held[1]

    def _face(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
        """Room for a tile, taken once: fresh pages for every tile cost as much as comparing it."""
        size = math.prod(shape)
        if name not in self._faces or self._faces[name].size < size:
            self._faces[name] = np.empty(size, dtype)
        return self._faces[name][:size].reshape(shape)


# --- codes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Codes:
    values: Tensor  # int8 or float16 [n, d]
    errors: Floats  # [n], |row - code|
    unit: float  # a product of codes counts so much
    slack: float  # what the arithmetic on the codes may add


def _int8_codes(rows: UnitRows) -> _Codes:
    """Rows turned at random, so that no dimension stands out, and rounded to steps of one size."""
    generator = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(rows.dimension, rows.dimension, generator=generator))
    step = min(1.0, _CLIP / math.sqrt(rows.dimension)) / 127
    values = torch.empty((rows.count, rows.dimension), dtype=torch.int8)
    errors = np.empty(rows.count, np.float32)
    for part in blocks(rows.count, _BLOCK):
        turned = rows.read(part) @ turn
        codes = (turned / step).round_().clamp_(-127, 127)
        values[part] = codes.to(torch.int8)
        errors[part] = torch.linalg.vector_norm(turned - codes * step, dim=1).numpy()
    return _Codes(values, errors, step * step, _ROUNDING)


def _half_codes(rows: UnitRows) -> _Codes:
    values = torch.empty((rows.count, rows.dimension), dtype=torch.float16, device=rows.device)
    errors = np.empty(rows.count, np.float32)
    for part in blocks(rows.count, 65_536):
        exact = rows.read(part)
        values[part] = exact.half()
        errors[part] = torch.linalg.vector_norm(exact - values[part].float(), dim=1).cpu().numpy()
    return _Codes(values, errors, 1.0, _HALF_SLACK)


@functools.cache
def _int8_pays(dimension: int) -> bool:
    """Whether this CPU multiplies int8 natively, and rightly.

    The product is tried where the sums are largest, which older CPUs cut, and in this dimension: torch does not offer
    it officially, and it is wrong for vectors of one number.
    """
    native = getattr(torch.cpu, "_is_vnni_supported", None)
    if native is None or not native() or not hasattr(torch, "_int_mm"):
        return False
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-127, 128, (67, dimension), dtype=torch.int8, generator=generator)
    codes[0], codes[1] = 127, -127
    try:
        product = torch._int_mm(codes, codes[:61].T)
    except RuntimeError:
        return False
    return torch.equal(product.double(), codes.double() @ codes[:61].double().T)


# --- from masks to pairs ---------------------------------------------------------------------------------------------


def _device_mask(scores: Tensor, low: float | tuple[Floats, Floats]) -> Tensor:
    if isinstance(low, float):
        return scores >= low
    rows, columns = (torch.from_numpy(each).to(scores.device) for each in low)
    return (scores >= rows[:, None]) | (scores >= columns[None, :])


def _strips(counts: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Runs of a tile's rows that hold about `_EXTRACT` pairs each, however crowded it is; empty ones are left out."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(total[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + _EXTRACT, side="right")))
        if total[stop - 1] > before:
            yield slice(start, stop)
        start = stop


def _upper(places: npt.NDArray[np.int64], scores: Floats, shape: tuple[int, int], tile: tuple[slice, slice]) -> Pairs:
    """Flat places in a strip of a tile -> pairs left < right."""
    first, width = shape
    left = (places // width + (first + tile[0].start)).astype(np.int32)
    right = (places % width + tile[1].start).astype(np.int32)
    pairs = Pairs(left, right, scores)
    return pairs.at(left < right) if tile[0] == tile[1] else pairs


def _limits(pairs: Pairs, rows: slice, columns: slice, low: float | tuple[Floats, Floats]) -> np.float32 | Floats:
    if isinstance(low, float):
        return np.float32(low)
    lower: Floats = np.minimum(low[0][pairs.left - rows.start], low[1][pairs.right - columns.start])
    return lower
