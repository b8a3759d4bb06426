"""Vectors of a model -> rows as they are kept, and pairs of them -> nearness.

Nearness is what ranks: the inner product, or minus the squared (Manhattan: the plain) distance. It saves a root for
every pair, and faiss speaks it too. `Metric.scores` turns what is left of it into the similarities of
`munjang.vectors`. FAISS does the counting where it is installed and knows the metric; else numpy and torch do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from munjang.types import Similarity

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
BLOCK_FLOATS = 4_000_000  # floats that are worked on at a time: 16 MB
ROUNDING = 6e-8  # half a unit of the last place of float32


@functools.cache
def faiss_or_none() -> ModuleType | None:
    """FAISS, where it is installed."""
    try:
        import faiss
    except ImportError:
        return None
    module: ModuleType = faiss
    return module


@dataclass(frozen=True)
class Metric:
    """How two vectors are compared."""

    similarity: Similarity
    dimension: int

    @property
    def faiss(self) -> ModuleType | None:
        """FAISS, where it can count this metric."""
        return None if self.similarity == "manhattan" else faiss_or_none()

    @property
    def is_product(self) -> bool:
        return self.similarity in ("cosine", "dot")

    def prepare(self, vectors: NDArray[np.floating]) -> Floats:  # [n, d] -> [n, d]
        """Rows as they are kept and asked for: float32, side by side, of length 1 for the cosine."""
        if self.similarity != "cosine":
            return np.ascontiguousarray(vectors, dtype=np.float32)
        wide = vectors.astype(np.float64)  # squares of 1e30 would be beyond float32
        lengths = np.sqrt(np.einsum("nd,nd->n", wide, wide))
        lengths[lengths == 0] = 1
        wide /= lengths[:, None]
        return wide.astype(np.float32, order="C")

    def pairs(self, queries: Floats, rows: Floats, ids: Rows) -> Floats:  # [q, d], [n, d], [q, c] -> [q, c]
        """Nearness of every query with its own rows; -inf where an id is -1.

        Each pair is counted alike wherever it stands, so that equal rows have equal nearness: a matrix product
        rounds by its shape.
        """
        if self.faiss is None or not len(rows):
            return self._pairs_by_numpy(queries, rows, ids)
        out = np.empty(ids.shape, dtype=np.float32)
        count = self.faiss.fvec_inner_products_by_idx if self.is_product else self.faiss.fvec_L2sqr_by_idx
        pointers = [self.faiss.swig_ptr(array) for array in (out, queries, rows, np.ascontiguousarray(ids))]
        count(*pointers, self.dimension, len(queries), ids.shape[1])
        return out if self.is_product else -out

    def _pairs_by_numpy(self, queries: Floats, rows: Floats, ids: Rows) -> Floats:
        out = np.full(ids.shape, -np.inf, dtype=np.float32)
        step = max(1, BLOCK_FLOATS // (self.dimension * max(1, ids.shape[1])))
        for start in range(0, len(queries), step):
            some = ids[start : start + step]
            if len(rows):
                near = self.broadcast(queries[start : start + step, None], rows[some])
                out[start : start + step] = np.where(some < 0, -np.inf, near)
        return out

    def broadcast(self, queries: Floats, rows: Floats) -> Floats:  # [..., d], [..., d] -> [...]
        """Nearness of rows that lie one over the other, counted in float64."""
        if self.is_product:
            near = np.einsum("...d,...d->...", queries, rows, dtype=np.float64)
        else:
            apart = queries.astype(np.float64) - rows
            near = -(np.abs(apart) if self.similarity == "manhattan" else apart * apart).sum(axis=-1)
        out: Floats = near.astype(np.float32)
        return out

    def column(self, query: Floats, rows: Floats) -> Floats:  # [d], [n, d] -> [n]
        """Nearness of one query with rows, quickly: it may differ from `pairs` by `rounding`."""
        near: Floats
        if self.is_product:
            near = rows @ query
            return near
        apart = rows - query
        near = np.abs(apart).sum(axis=1) if self.similarity == "manhattan" else np.einsum("nd,nd->n", apart, apart)
        return -near

    def rounding(self, queries: Floats, longest: float) -> Floats:  # [q, d] -> [q]
        """How far two ways to count the nearness of the same pair can differ; `longest` is the longest row."""
        lengths = np.sqrt(np.einsum("nd,nd->n", queries, queries))
        size = lengths * longest if self.is_product else (lengths + longest) ** 2
        if self.similarity == "manhattan":
            size = np.sqrt(self.dimension) * (lengths + longest)
        out: Floats = (2 * ROUNDING * self.dimension * size).astype(np.float32)
        return out

    def scores(self, nearness: Floats) -> Floats:
        """Nearness -> similarity; greater is nearer in both."""
        return -np.sqrt(-nearness) if self.similarity == "euclidean" else nearness
