"""Rows -> a graph that finds near ones without a scan: HNSW (Malkov and Yashunin 2016), by faiss.

The graph only says which rows to look at: what it finds is counted again by the rows. It is built or grown by the one
process that writes (`DenseIndex.save`), because that takes a fraction of a millisecond per row; readers take it
from the file, and scan where there is none. Growing works on a copy: others may be searching the old one.

A filter costs a graph recall: it walks through rows that are not allowed and stops when it has seen enough of them. So
it looks at as many more rows as the filter passes over, and where the filter passes few the allowed rows are
scanned instead (`pays`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.index.dense_metric import Floats, Mask, Rows
from munjang.index.dense_rows import ByteRows, FloatRows, bitmap

LINKS = 32  # neighbours of a row; twice as many on the lowest level
CONSTRUCTION = 120  # rows looked at to place a new one
FILL = True  # keep pruned neighbours while there is room: 0.995 instead of 0.987 on short reviews, in thrice the time
SEARCH = 128  # rows looked at for a query
PER_RESULT = 4  # ... at least so many for each row asked for
BUILD_ROWS = 4_096  # rows between two reports of progress
# A scan of so many rows costs about as much as a walk that looks at one row: 14 to 16 in one
# trial with 384 dimensions, rounded down, since a scan is exact.
SCAN_PER_STEP = 12

GraphRows = FloatRows | ByteRows


class Graph:
    """HNSW over rows, whose memory it shares."""

    def __init__(self, rows: GraphRows, index: Any) -> None:
        self.rows, self._index = rows, index

    @classmethod
    def build(cls, source: GraphRows, tell: Callable[[int], None]) -> Graph:
        """A graph over a copy of the rows."""
        faiss: Any = source.metric.faiss
        rows = source.take(np.empty(0, dtype=np.int64))
        size, metric = rows.metric.dimension, rows.storage.metric_type
        if isinstance(rows, ByteRows):  # faiss writes only graphs of a known kind, so not its plain IndexHNSW
            index = faiss.IndexHNSWSQ(size, faiss.ScalarQuantizer.QT_8bit, LINKS, metric)
        else:
            index = faiss.IndexHNSWFlat(size, LINKS, metric)
        index.hnsw.efConstruction, index.keep_max_size_level0 = CONSTRUCTION, FILL
        index.own_fields, index.storage, index.is_trained = False, rows.storage, True
        made = cls(rows, index)
        made._add(source, tell)
        return made

    def grown(self, more: Floats, tell: Callable[[int], None]) -> Graph:
        """A copy with more rows."""
        rows = self.rows.take(np.arange(self.rows.count))
        made = Graph.from_bytes(rows, self.to_bytes())
        made._index.keep_max_size_level0 = FILL  # the bytes do not say it
        added = FloatRows(rows.metric)
        added.add(more)
        made._add(added, tell)
        return made

    def _add(self, source: GraphRows, tell: Callable[[int], None]) -> None:
        for at in range(0, source.count, BUILD_ROWS):
            block = np.ascontiguousarray(source.decode(slice(at, min(at + BUILD_ROWS, source.count))))
            if isinstance(self.rows, ByteRows):
                self.rows.encode(block)  # measures the error; faiss encodes alike
            self._index.add(block)
            tell(len(block))
        self.rows.look()
        self.rows.longest = max(self.rows.longest, source.longest)
        if isinstance(self.rows, ByteRows) and isinstance(source, ByteRows):
            self.rows.error = max(self.rows.error, source.error)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The links without the rows."""
        faiss: Any = self.rows.metric.faiss
        links: NDArray[np.uint8] = faiss.serialize_index(self._index, faiss.IO_FLAG_SKIP_STORAGE)
        return links

    @classmethod
    def from_bytes(cls, rows: GraphRows, links: NDArray[np.uint8]) -> Graph:
        """Put links over the rows they were made for; the bytes must be known to be whole."""
        faiss: Any = rows.metric.faiss
        index = faiss.deserialize_index(links, faiss.IO_FLAG_SKIP_STORAGE)
        if index.ntotal != rows.count or index.d != rows.metric.dimension:
            raise ValueError(f"a graph over {index.ntotal} rows of {index.d}, but there are {rows.count}")
        index.own_fields = False
        index.storage = rows.storage
        return cls(rows, index)

    def candidates(self, queries: Floats, count: int, mask: Mask | None = None) -> tuple[Floats, Rows]:
        """As of the rows, but some of the nearest may be missing."""
        faiss: Any = self.rows.metric.faiss
        wide = self._wide(count, mask)
        selector = None if mask is None else bitmap(faiss, mask)
        params = faiss.SearchParametersHNSW(efSearch=wide, sel=selector)
        near, rows = self._index.search(queries, count, params=params)
        return (near, rows) if self.rows.metric.is_product else (-near, rows)

    def pays(self, count: int, mask: Mask | None) -> bool:
        """Whether a walk costs less than a scan of the allowed rows."""
        allowed = self.rows.count if mask is None else int(np.count_nonzero(mask))
        return allowed > SCAN_PER_STEP * self._wide(count, mask)

    def _wide(self, count: int, mask: Mask | None) -> int:
        share = 1.0 if mask is None else max(1, int(np.count_nonzero(mask))) / max(1, len(mask))
        return int(max(SEARCH, PER_RESULT * count) / share)
