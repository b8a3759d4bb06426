"""Rows in memory, of three kinds -> candidates for queries.

    FloatRows   float32: what is found needs no second look
    ByteRows    one byte per dimension, a quarter of the memory; how far a decoded row is from the true one is known
    BitRows     one bit per dimension, a thirty-second: good for candidates only

All find candidates by a scan; `Graph` (dense_graph.py) finds them among FloatRows or ByteRows without one. With faiss
the rows lie in a faiss index and `values` or `codes` look into its memory, so that there is one copy of them. Where a
mask leaves few rows, or many queries come at once, the allowed rows are gathered and counted by a matrix product;
else faiss passes over the others by a bitmap (a product is worth it from about 20 queries on, as in faiss itself).
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.index.dense_metric import BLOCK_FLOATS, Floats, Mask, Metric, Rows
from munjang.index.options import VectorKind

GATHER_QUERIES = 20  # from so many queries on, allowed rows are gathered
GATHER_SHARE = 32  # ... and where fewer than one row in so many is allowed
SCAN_ROWS = 16_384  # rows gathered at a time
NARROWING = 4  # so many times the candidates of bits are found by Hamming distance


class KeptRows(abc.ABC):
    """Rows of one kind: what the search (dense_search.py) asks of them."""

    kind: VectorKind
    count: int
    metric: Metric

    @abc.abstractmethod
    def decode(self, rows: slice | Rows) -> Floats:  # -> [len, d]
        """Some rows as floats, as near to the true ones as they are kept."""

    @abc.abstractmethod
    def slack(self, queries: Floats, nearness: Floats) -> Floats:  # [q, d], [q] -> [q]
        """How much nearer to a query a true row can be than one that was found that near; infinite: not known."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file must hold to make them again (`from_arrays`)."""

    @abc.abstractmethod
    def reserve(self, count: int) -> NDArray[Any]:  # -> [count, ...], to be filled
        """Room for so many rows, which then are the rows: reading a file needs no second copy."""

    @abc.abstractmethod
    def add(self, rows: Floats) -> None:
        """Put more rows behind the others; only while nobody else has this object."""

    @abc.abstractmethod
    def take(self, rows: Rows) -> KeptRows:
        """A copy of some rows, with room for more."""

    def candidates(self, queries: Floats, count: int, mask: Mask | None = None) -> tuple[Floats, Rows]:
        """The `count` nearest rows by what is kept, [q, count] twice: nearness (best first) and row, -1 for none."""
        if mask is None:
            return self._scan_all(queries, count)
        allowed = np.flatnonzero(mask)
        if len(queries) < GATHER_QUERIES and len(allowed) * GATHER_SHARE >= self.count and self.can_select:
            return self._scan_selected(queries, count, mask)
        return self._scan_gathered(queries, count, allowed)

    @property
    def can_select(self) -> bool:
        return self.metric.faiss is not None

    def within(self, query: Floats, least: float, mask: Mask | None) -> tuple[Floats, Rows]:  # [d] -> [m], [m]
        """All rows that are at least that near, by what is kept; in order of row."""
        near, found = [], []
        for rows in self.blocks(self.count):
            values = self.metric.column(query, self.decode(rows))
            good = values >= least
            if mask is not None:
                good &= mask[rows]
            near.append(values[good])
            found.append(np.flatnonzero(good) + rows.start)
        return np.concatenate(near), np.concatenate(found)

    def blocks(self, count: int) -> Iterator[slice]:
        step = max(1, BLOCK_FLOATS // self.metric.dimension)
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    @abc.abstractmethod
    def _scan_all(self, queries: Floats, count: int) -> tuple[Floats, Rows]: ...

    @abc.abstractmethod
    def _scan_selected(self, queries: Floats, count: int, mask: Mask) -> tuple[Floats, Rows]: ...

    def _scan_gathered(self, queries: Floats, count: int, allowed: Rows) -> tuple[Floats, Rows]:
        best: tuple[Floats, Rows] = _nothing(len(queries))
        for start in range(0, len(allowed), SCAN_ROWS):
            some = allowed[start : start + SCAN_ROWS]
            near, found = nearest(self.metric, queries, self.decode(some), min(count, len(some)))
            best = merged(best, (near, np.where(found < 0, -1, some[found])), count)
        return best


class FloatRows(KeptRows):
    """float32 rows."""

    kind: VectorKind = "float32"

    def __init__(self, metric: Metric) -> None:
        self.metric, self.count, self.longest = metric, 0, 0.0
        self.values: Floats = np.empty((0, metric.dimension), dtype=np.float32)
        faiss = metric.faiss
        self.storage: Any = None if faiss is None else faiss.IndexFlat(metric.dimension, _faiss_metric(metric))

    def reserve(self, count: int) -> Floats:  # -> [count, d], to be filled
        self.count = count
        if self.storage is None:
            self.values = np.empty((count, self.metric.dimension), dtype=np.float32)
        else:
            self.storage.codes.resize(count * self.metric.dimension * 4)
            self.storage.ntotal = count
            self.look()
        return self.values

    def add(self, rows: Floats) -> None:
        self.longest = max(self.longest, _longest(rows))
        if self.storage is None:
            self.values = np.concatenate((self.values, rows))
        else:
            self.storage.add(rows)
        self.look()

    def take(self, rows: Rows) -> FloatRows:
        other = FloatRows(self.metric)
        other.reserve(len(rows))[:] = self.values[rows]
        other.longest = self.longest
        return other

    def filled(self) -> None:
        """After `reserve`, when the rows are there: measure the longest."""
        self.longest = max((_longest(self.values[rows]) for rows in self.blocks(self.count)), default=0.0)

    def decode(self, rows: slice | Rows) -> Floats:
        return self.values[rows]

    def slack(self, queries: Floats, nearness: Floats) -> Floats:
        return self.metric.rounding(queries, self.longest)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"facts": np.array([self.longest], dtype=np.float64), "rows": self.values}

    def look(self) -> None:
        """After faiss has moved its memory."""
        if self.storage is None:
            self.count = len(self.values)
            return
        self.count = int(self.storage.ntotal)
        self.values = _view(self.metric.faiss, self.storage, self.count * 4 * self.metric.dimension).view(np.float32)
        self.values = self.values.reshape(self.count, self.metric.dimension)

    def _scan_all(self, queries: Floats, count: int) -> tuple[Floats, Rows]:
        if self.storage is None:
            return nearest(self.metric, queries, self.values, count)
        return _signed(self.metric, self.storage.search(queries, count))

    def _scan_selected(self, queries: Floats, count: int, mask: Mask) -> tuple[Floats, Rows]:
        return _signed(self.metric, self.storage.search(queries, count, params=selecting(self.metric, mask)))


class ByteRows(KeptRows):
    """One byte per dimension: value = low + code * step, each dimension with a range of its own.

    The range is that of the rows it was made for; later rows beyond it are clipped. `error` is the longest way of any
    row from its true self, so that the search knows how many candidates are enough.
    """

    kind: VectorKind = "int8"

    def __init__(self, metric: Metric, low: Floats, high: Floats) -> None:
        self.metric, self.low, self.high = metric, low, high
        self.step: Floats = ((high - low) / 255).astype(np.float32)
        self.count, self.longest, self.error = 0, 0.0, 0.0
        self.codes: NDArray[np.uint8] = np.empty((0, metric.dimension), dtype=np.uint8)
        self.storage: Any = None if metric.faiss is None else self._faiss_storage(metric.faiss)

    def _faiss_storage(self, faiss: Any) -> Any:
        kind = faiss.ScalarQuantizer.QT_8bit
        storage = faiss.IndexScalarQuantizer(self.metric.dimension, kind, _faiss_metric(self.metric))
        # faiss decodes to the middle of a step, low' + (code + 1/2) * step: half a step lower it says what we say.
        trained = np.concatenate((self.low - self.step / 2, self.high - self.low)).astype(np.float32)
        faiss.copy_array_to_vector(trained, storage.sq.trained)
        storage.is_trained = True
        return storage

    def reserve(self, count: int) -> NDArray[np.uint8]:  # -> [count, d], to be filled
        self.count = count
        if self.storage is None:
            self.codes = np.empty((count, self.metric.dimension), dtype=np.uint8)
        else:
            self.storage.codes.resize(count * self.metric.dimension)
            self.storage.ntotal = count
            self.look()
        return self.codes

    def encode(self, rows: Floats) -> NDArray[np.uint8]:  # [n, d] -> [n, d]
        codes = np.rint((rows - self.low) / np.where(self.step > 0, self.step, 1)).clip(0, 255).astype(np.uint8)
        apart = rows - self._decoded(codes)
        self.error = max(self.error, _longest(apart) * (1 + 1e-5))
        self.longest = max(self.longest, _longest(rows))
        return codes

    def add(self, rows: Floats) -> None:
        codes = self.encode(rows)
        if self.storage is None:
            self.codes = np.concatenate((self.codes, codes))
            self.count = len(self.codes)
            return
        self.storage.add_sa_codes(codes)
        self.look()

    def take(self, rows: Rows) -> ByteRows:
        other = ByteRows(self.metric, self.low, self.high)
        other.reserve(len(rows))[:] = self.codes[rows]
        other.error, other.longest = self.error, self.longest
        return other

    def decode(self, rows: slice | Rows) -> Floats:
        return self._decoded(self.codes[rows])

    def slack(self, queries: Floats, nearness: Floats) -> Floats:
        rounding = self.metric.rounding(queries, self.longest + self.error)
        if self.metric.is_product:
            lengths: Floats = np.sqrt(np.einsum("nd,nd->n", queries, queries))
            return rounding + lengths * np.float32(self.error)
        if self.metric.similarity == "manhattan":
            return rounding + np.float32(self.error * np.sqrt(self.metric.dimension))
        # |d^2 - d'^2| <= e (2d + e), where d and d' are e apart
        return rounding + np.float32(self.error) * (2 * np.sqrt(np.maximum(-nearness, 0)) + np.float32(self.error))

    def arrays(self) -> dict[str, NDArray[Any]]:
        facts = np.array([self.error, self.longest], dtype=np.float64)
        return {"ranges": np.stack((self.low, self.high)), "facts": facts, "rows": self.codes}

    def look(self) -> None:
        """After faiss has moved its memory."""
        self.count = int(self.storage.ntotal)
        whole = _view(self.metric.faiss, self.storage, self.count * self.metric.dimension)
        self.codes = whole.reshape(self.count, self.metric.dimension)

    def _decoded(self, codes: NDArray[np.uint8]) -> Floats:
        return codes * self.step + self.low

    def _scan_all(self, queries: Floats, count: int) -> tuple[Floats, Rows]:
        if self.storage is not None:
            return _signed(self.metric, self.storage.search(queries, count))
        return self._scan_gathered(queries, count, np.arange(self.count))

    def _scan_selected(self, queries: Floats, count: int, mask: Mask) -> tuple[Floats, Rows]:
        return _signed(self.metric, self.storage.search(queries, count, params=selecting(self.metric, mask)))


class BitRows(KeptRows):
    """One bit per dimension: on which side of `middle` it lies, `width` away from it on average.

    The nearest by Hamming distance, more than asked for, are compared with the query's own floats: as vectors of
    middle + width and middle - width. That is nearer to the truth than whole bits, so fewer candidates are needed.
    """

    kind: VectorKind = "binary"

    def __init__(self, metric: Metric, middle: Floats, width: Floats) -> None:
        self.metric, self.middle, self.width, self.count = metric, middle, width, 0
        self.codes: NDArray[np.uint8] = np.empty((0, -(-metric.dimension // 8)), dtype=np.uint8)

    def encode(self, rows: Floats) -> NDArray[np.uint8]:  # [n, d] -> [n, ceil(d / 8)]
        return np.packbits(rows > self.middle, axis=1)

    def add(self, rows: Floats) -> None:
        self.codes = np.concatenate((self.codes, self.encode(rows)))
        self.count = len(self.codes)

    def reserve(self, count: int) -> NDArray[np.uint8]:
        self.codes, self.count = np.empty((count, self.codes.shape[1]), dtype=np.uint8), count
        return self.codes

    def take(self, rows: Rows) -> BitRows:
        other = BitRows(self.metric, self.middle, self.width)
        other.reserve(len(rows))[:] = self.codes[rows]
        return other

    def decode(self, rows: slice | Rows) -> Floats:
        signs = np.unpackbits(self.codes[rows], axis=1, count=self.metric.dimension).astype(np.float32) * 2 - 1
        return self.metric.prepare(signs * self.width + self.middle)

    def slack(self, queries: Floats, nearness: Floats) -> Floats:
        return np.full(len(queries), np.inf, dtype=np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"middle": self.middle, "width": self.width, "rows": self.codes}

    @property
    def can_select(self) -> bool:
        return False  # bits are so small that gathering them costs nothing

    def _scan_all(self, queries: Floats, count: int) -> tuple[Floats, Rows]:
        return self._scan_gathered(queries, count, None)

    def _scan_selected(self, queries: Floats, count: int, mask: Mask) -> tuple[Floats, Rows]:
        return self._scan_gathered(queries, count, np.flatnonzero(mask))

    def _scan_gathered(self, queries: Floats, count: int, allowed: Rows | None) -> tuple[Floats, Rows]:
        codes = self.codes if allowed is None else self.codes[allowed]
        count = min(count, len(codes))
        found = self._hamming(self.encode(queries), codes, min(NARROWING * count, len(codes)))
        found = found if allowed is None else allowed[found]
        near, rows = np.empty((len(queries), count), np.float32), np.empty((len(queries), count), np.int64)
        for at, some in enumerate(found):  # one query's rows are as many floats as fit the cache
            some = np.sort(some)
            values = self.metric.column(queries[at], self.decode(some))
            order = np.argsort(-values, kind="stable")[:count]
            near[at], rows[at] = values[order], some[order]
        return near, rows

    def _hamming(self, queries: NDArray[np.uint8], codes: NDArray[np.uint8], count: int) -> Rows:
        """[q, w], [n, w] -> [q, count]: the rows of least Hamming distance."""
        faiss = self.metric.faiss
        if faiss is None or not len(codes):
            return _hamming_by_numpy(queries, codes, count)
        found: Rows = faiss.knn_hamming(queries, codes, count)[1]
        return found


def from_arrays(metric: Metric, kind: str, arrays: dict[str, NDArray[Any]]) -> KeptRows:
    """Empty rows of a kind, to be filled through `reserve`; `arrays` are those of a file without "rows"."""
    if kind == "int8":
        made = ByteRows(metric, *arrays["ranges"])
        made.error, made.longest = (float(fact) for fact in arrays["facts"])
        return made
    if kind == "binary":
        return BitRows(metric, arrays["middle"], arrays["width"])
    floats = FloatRows(metric)
    floats.longest = float(arrays["facts"][0])
    return floats


def nearest(metric: Metric, queries: Floats, rows: Floats, count: int) -> tuple[Floats, Rows]:
    """The `count` nearest of some rows, exactly: faiss without an index, or `munjang.vectors.top_k`."""
    count = min(count, len(rows))
    if not count:
        return _nothing(len(queries))
    if metric.faiss is not None:
        contiguous = np.ascontiguousarray(rows)
        return _signed(metric, metric.faiss.knn(queries, contiguous, count, metric=_faiss_metric(metric)))
    from munjang.vectors import top_k

    best = top_k(queries, rows, count, kind="dot" if metric.is_product else metric.similarity)
    scores = best.scores.astype(np.float32)
    return -scores * scores if metric.similarity == "euclidean" else scores, best.indices


def merged(a: tuple[Floats, Rows], b: tuple[Floats, Rows], count: int) -> tuple[Floats, Rows]:
    """The best of two lists for every query; equal nearness in the order of the rows."""
    near, rows = np.concatenate((a[0], b[0]), axis=1), np.concatenate((a[1], b[1]), axis=1)
    order = np.lexsort((rows, -near))[:, :count]
    return np.take_along_axis(near, order, 1), np.take_along_axis(rows, order, 1)


def selecting(metric: Metric, mask: Mask) -> Any:
    """Search parameters that let a scan pass over the rows outside a mask."""
    faiss: Any = metric.faiss
    # faiss keeps no reference to the bits from its own side: the selector made from an array does.
    return faiss.SearchParameters(sel=bitmap(faiss, mask))


def bitmap(faiss: Any, mask: Mask) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))


def _hamming_by_numpy(
    queries: NDArray[np.uint8], codes: NDArray[np.uint8], count: int
) -> Rows:  # [q, w], [n, w] -> [q, count]
    from munjang.vectors import BinaryVectors, hamming_distances

    rows = np.empty((len(queries), count), np.int64)
    step = max(1, BLOCK_FLOATS // max(1, len(codes)))
    for start in range(0, len(queries), step):
        some = BinaryVectors(queries[start : start + step], codes.shape[1] * 8)
        distances = hamming_distances(some, BinaryVectors(codes, codes.shape[1] * 8))  # [some, n]
        rows[start : start + step] = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return rows


def _signed(metric: Metric, answer: tuple[Floats, Rows]) -> tuple[Floats, Rows]:
    """faiss answers squared distances, +inf for nothing; nearness is greater where it is better."""
    return (answer[0], answer[1]) if metric.is_product else (-answer[0], answer[1])


def _faiss_metric(metric: Metric) -> int:
    faiss: Any = metric.faiss
    chosen: int = faiss.METRIC_INNER_PRODUCT if metric.is_product else faiss.METRIC_L2
    return chosen


def _view(faiss: Any, storage: Any, size: int) -> NDArray[np.uint8]:
    if not size:
        return np.empty(0, dtype=np.uint8)
    view: NDArray[np.uint8] = faiss.rev_swig_ptr(storage.codes.data(), size)
    return view


def _longest(rows: Floats) -> float:
    return float(np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64).max(initial=0.0)))


def _nothing(queries: int) -> tuple[Floats, Rows]:
    return np.empty((queries, 0), dtype=np.float32), np.empty((queries, 0), dtype=np.int64)
