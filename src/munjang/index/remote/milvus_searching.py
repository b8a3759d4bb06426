"""Vectors -> the nearest passages in Milvus, best first.

A row that is no head counts only where its version is the head's (see milvus_rows.py); where such rows fall away, more
are asked for. The graph of Milvus may give fewer rows than there are, where very many are wanted or a filter leaves few
paths; and it gives at most 16,384. Then the rows are read page by page and compared here, which is slow and exact: the
answer is never short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from munjang.index.filters import Filter
from munjang.index.remote.engine import Float32, Scored
from munjang.index.remote.milvus_filters import expression
from munjang.index.remote.milvus_reading import MOST_ROWS, Reading
from munjang.index.remote.milvus_rows import head_key, id_of_key
from munjang.index.remote.milvus_schema import METRICS, Facts, Layout
from munjang.types import Similarity
from munjang.vectors import similarity

_ANSWER_ROWS = 200_000  # of all queries of a request together
_PAGE_BYTES = 16 << 20  # of vectors in a page that is compared here


@dataclass(frozen=True)
class _Found:
    """A row that was found."""

    key: str
    version: str
    number: int
    score: float

    @property
    def is_head(self) -> bool:
        return "!" not in self.key

    def scored(self) -> Scored:
        return Scored(id_of_key(self.key), self.number, self.score)


@dataclass(frozen=True)
class Searcher:
    """Searches of one engine."""

    reading: Reading
    facts: Facts
    layout: Layout

    def search(self, vectors: Float32, k: int, filter: Filter | None) -> list[list[Scored]]:
        """For every query [q, d] the k nearest passages."""
        where = "count > 0" if filter is None else f"count > 0 and {expression(filter)}"
        found: list[list[Scored]] = []
        most = max(1, min(1_000, _ANSWER_ROWS // min(k, MOST_ROWS)))
        for first in range(0, len(vectors), most):
            found += self._some(vectors[first : first + most], k, where)
        return found

    def _some(self, vectors: Float32, k: int, where: str) -> list[list[Scored]]:
        """Ask the graph; ask for more where rows fell away; read everything where it gives too little."""
        results: list[list[Scored]] = [[] for _ in vectors]
        waiting, depth, was_short = list(range(len(vectors))), k, False
        while waiting and depth <= MOST_ROWS:
            hits = self._graph(vectors[waiting], depth, where)
            short = any(len(own) < depth for own in hits)
            # Rows that could be found; not counted: more than asked for.
            there = self.reading.count(self.reading.address.name, where) if short else depth + 1
            again = []
            for place, raw, own in zip(waiting, hits, self._current(hits), strict=True):
                results[place] = own[:k]
                if len(own) < k and len(raw) < there:
                    again.append(place)
            # Rows fell away, or are just being replaced and were found twice: ask for more. Too little again: read all.
            waiting, depth, was_short = again, MOST_ROWS + 1 if short and was_short else depth * 2 + 8, short
        for place in waiting:
            results[place] = self._exact(vectors[place : place + 1], k, where)
        return results

    def _graph(self, vectors: Float32, depth: int, where: str) -> list[list[_Found]]:
        answer = self.reading.connection.call(
            lambda client: client.search(
                self.reading.address.name,
                data=list(vectors),
                anns_field="vector",
                limit=depth,
                filter=where,
                output_fields=["version", "number"],
                search_params={
                    "metric_type": METRICS[self.facts.similarity],
                    "params": {"ef": max(self.layout.ef_search, depth)},
                },
                consistency_level=self.layout.level,
                timeout=self.reading.address.timeout,
            )
        )
        return [[self._found(hit) for hit in own] for own in answer]

    def _found(self, hit: Any) -> _Found:
        entity, distance = hit["entity"], float(hit["distance"])
        if self.facts.similarity == "euclidean":  # Milvus gives the square
            distance = -float(np.sqrt(max(0.0, distance)))
        score = distance if np.isfinite(distance) else 0.0  # a vector of zeros has no direction
        return _Found(str(hit["id"]), entity["version"], int(entity["number"]), score)

    def _current(self, hits: Sequence[Sequence[_Found]]) -> list[list[Scored]]:
        """Without the rows of versions that do not hold (any more, or not yet)."""
        asked = {head_key(id_of_key(one.key)) for own in hits for one in own if not one.is_head}
        rows = self.reading.by_keys(self.reading.address.name, sorted(asked), ["version"])
        holding = {row["key"]: row["version"] for row in rows}
        return [
            [one.scored() for one in own if one.is_head or holding.get(head_key(id_of_key(one.key))) == one.version]
            for own in hits
        ]

    def _exact(self, vector: Float32, k: int, where: str) -> list[Scored]:
        """Every row that meets the condition, compared here, a page at a time; vector [1, d]."""
        best: list[Scored] = []
        size = max(100, min(MOST_ROWS, _PAGE_BYTES // (4 * self.facts.dimension)))
        for rows in self.reading.pages(self.reading.address.name, where, ["version", "number", "vector"], size=size):
            matrix = np.array([row["vector"] for row in rows], np.float32)
            scores = similarity(vector, matrix, cast(Similarity, self.facts.similarity))[0].tolist()
            found = [
                _Found(row["key"], row["version"], int(row["number"]), score)
                for row, score in zip(rows, scores, strict=True)
            ]
            best = sorted(best + self._current([found])[0], key=lambda one: -one.score)[:k]
        return best
