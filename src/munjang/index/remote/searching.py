"""A search in a remote index: queries enter, `Results` leave, as from a folder.

    queries -> engine: nearest passages, passages by words -> documents -> (fused) -> fetched -> (reranked) -> hits

The engine finds passages; a document stands where its best passage stands. Where many of the best passages belong to
few documents, more are asked for. What is deleted between finding and fetching is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from munjang.errors import InputError
from munjang.index.fusion import DEPTH, SimilarityScale
from munjang.index.ranking import Candidate, Ranking, fused, staged
from munjang.index.remote.engine import Engine, Scored, StoredDocument
from munjang.index.results import Hit, Passage, Results, StageName
from munjang.index.searching import Asked, Clock, Request, as_results, rerank_all

_Find = Callable[[list[int], int], list[list[Scored]]]  # (which queries, how many passages) -> for each its passages
_MORE = 8  # passages beyond k that are asked for at once


class _Numbering:
    """Documents and passages as numbers, as rankings know them."""

    def __init__(self) -> None:
        self._documents: dict[str, int] = {}
        self._passages: dict[tuple[str, int], int] = {}
        self.passages: list[tuple[str, int]] = []  # number -> document id, passage

    def document(self, id: str) -> int:
        return self._documents.setdefault(id, len(self._documents))

    def passage(self, found: Scored) -> int:
        key = (found.document, found.number)
        if key not in self._passages:
            self._passages[key] = len(self.passages)
            self.passages.append(key)
        return self._passages[key]


def run(
    asked: Asked,
    request: Request,
    engine: Engine,
    clock: Clock,
    *,
    scale: SimilarityScale | None,
    title: str | None,
) -> list[Results]:
    """Search for every query; scale and title as in a folder."""
    if request.mode != "semantic" and not engine.can_keyword:
        raise InputError(f"mode {request.mode!r} is not possible here, only 'semantic': {engine.keyword_reason}")
    numbering = _Numbering()
    found = _first_stage(asked, request, engine, numbering, clock, scale)
    ids = list(dict.fromkeys(numbering.passages[one.number][0] for some in found for one in some))
    documents = engine.get(ids) if ids else {}
    hits = [[hit for one in some if (hit := _hit(one, numbering, documents)) is not None] for some in found]
    clock.lap("fetch")
    if request.reranker is None:
        return [as_results(some, request, clock, len(asked)) for some in hits]
    return _second_stage(asked, request, hits, clock, title)


def _first_stage(
    asked: Asked,
    request: Request,
    engine: Engine,
    numbering: _Numbering,
    clock: Clock,
    scale: SimilarityScale | None,
) -> list[list[Candidate]]:
    vectors, texts, queries = asked.vectors, asked.texts, len(asked)

    def nearest(which: list[int], count: int) -> list[list[Scored]]:
        assert vectors is not None
        found = engine.search(vectors[which], count, request.filter)
        return found if scale is None else [[_scaled(one, scale) for one in some] for some in found]

    def by_words(which: list[int], count: int) -> list[list[Scored]]:
        assert texts is not None
        return engine.keyword([texts[one] for one in which], count, request.filter)

    stages: dict[StageName, list[Ranking]] = {}
    depth = request.depth if request.mode != "hybrid" else max(request.depth, DEPTH)
    if request.mode != "keyword":
        stages["semantic"] = _ranked(nearest, queries, depth, request.without, numbering)
        clock.lap("search")
    if request.mode != "semantic":
        stages["keyword"] = _ranked(by_words, queries, depth, request.without, numbering)
        clock.lap("keyword")
    if request.mode != "hybrid":
        return [staged(request.mode, ranking) for ranking in stages[request.mode]]
    pairs = zip(stages["semantic"], stages["keyword"], strict=True)
    return [fused(semantic, keyword, request.depth) for semantic, keyword in pairs]


def _scaled(found: Scored, scale: SimilarityScale) -> Scored:
    return replace(found, normalized=float(scale.normalise(np.asarray(found.score, np.float32))))


def _ranked(find: _Find, queries: int, k: int, without: str | None, numbering: _Numbering) -> list[Ranking]:
    """The k best documents of every query; fewer where there are fewer."""
    rankings: list[Ranking] = [_grouped([], k, without, numbering)] * queries
    waiting, depth = list(range(queries)), k + _MORE
    while waiting:
        again = []
        for query, passages in zip(waiting, find(waiting, depth), strict=True):
            rankings[query] = _grouped(passages, k, without, numbering)
            if len(rankings[query].rows) < k and len(passages) >= depth:
                again.append(query)
        waiting, depth = again, depth * 4
    return rankings


def _grouped(passages: Sequence[Scored], k: int, without: str | None, numbering: _Numbering) -> Ranking:
    best: dict[str, Scored] = {}
    for one in passages:
        if one.document != without:
            best.setdefault(one.document, one)  # the first, because best, passage of every document
    kept = list(best.values())[:k]
    shares = [one.normalized for one in kept]
    return Ranking(
        np.array([numbering.document(one.document) for one in kept], np.int64),
        np.array([numbering.passage(one) for one in kept], np.int64),
        np.array([one.score for one in kept], np.float32),
        None if None in shares else np.array(shares, np.float32),
    )


def _hit(candidate: Candidate, numbering: _Numbering, documents: dict[str, StoredDocument]) -> Hit | None:
    id, number = numbering.passages[candidate.number]
    document = documents.get(id)
    if document is None or number >= len(document.spans):
        return None
    start, end = document.spans[number]
    passage = Passage(document.text[start:end], start, end)
    return Hit(id, document.text, document.fields, passage, candidate.stages[-1].score, candidate.stages)


def _second_stage(
    asked: Asked, request: Request, hits: Sequence[Sequence[Hit]], clock: Clock, title: str | None
) -> list[Results]:
    reranker, texts = request.reranker, asked.texts
    assert reranker is not None
    assert texts is not None
    ranked = rerank_all(texts, hits, reranker, request, title)
    clock.lap("rerank")
    return [
        replace(as_results(one.hits, request, clock, len(asked)), scored=one.scored, answered=one.answered)
        for one in ranked
    ]
