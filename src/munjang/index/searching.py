"""A search from beginning to end: queries enter, `Results` leave.

    queries -> vectors -> (one state of the index) filter -> first stage -> documents -> reranker -> hits

Everything that a search reads, it reads in one transaction. The structures that it searches in are given free before
the reranker, which takes longest, begins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from munjang.encoders import CrossEncoder
from munjang.errors import InputError
from munjang.index.columns import Columns, Mask
from munjang.index.derived import Derived, Session
from munjang.index.filters import Filter
from munjang.index.fusion import DEPTH, SimilarityScale
from munjang.index.passages import Found
from munjang.index.ranking import Candidate, Ranking, Search, fused, rank_documents, staged, subset
from munjang.index.reranking import CANDIDATES, MOST_CANDIDATES, Reranked, check_reranking, rerank
from munjang.index.results import Document, Hit, Mode, Passage, Results, StageName
from munjang.index.state import Layout, Numbers, State

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Request:
    """What was asked, checked."""

    k: int
    mode: Mode
    filter: Filter | None
    reranker: CrossEncoder | None
    candidates: int | None = None  # hits that the reranker reads; None: CANDIDATES, or what fits into the budget
    without: str | None = None  # the id of a document that must not be found
    answer: float | None = None  # the score from which on a semantic hit is an answer
    budget: float | None = None  # seconds for the reranker, for each query

    def __post_init__(self) -> None:
        for name in ("k", "candidates"):
            value = getattr(self, name)
            if name == "candidates" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.mode not in get_args(Mode):
            raise InputError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        if self.budget is not None:
            if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not self.budget >= 0:
                raise InputError(f"rerank_budget must be seconds, 0 or more, got {self.budget!r}")
            if self.candidates is not None:
                raise InputError("give candidates or rerank_budget, not both: each says how many hits are reranked")
        if self.reranker is not None:
            check_reranking("", self.reranker, self.k)

    @property
    def depth(self) -> int:
        """Documents that the first stage must find."""
        if self.reranker is None:
            return self.k
        usual = CANDIDATES if self.budget is None else MOST_CANDIDATES
        return max(self.k, usual if self.candidates is None else self.candidates)


@dataclass
class Clock:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now


@dataclass(frozen=True)
class Asked:
    """The queries: texts, vectors, or both."""

    texts: Sequence[str] | None
    vectors: Vectors | None  # [q, d]

    def __len__(self) -> int:
        if self.texts is not None:
            return len(self.texts)
        assert self.vectors is not None
        return len(self.vectors)


def run(
    asked: Asked,
    request: Request,
    derived: Derived,
    columns: Columns,
    clock: Clock,
    *,
    scale: SimilarityScale | None,
    title: str | None,
) -> list[Results]:
    """Search for every query, in one state of the index. scale: of the model that made the vectors, where it is known.

    title: the field that the reranker reads before each passage.
    """
    needs = {"dense": request.mode != "keyword", "keyword": request.mode != "semantic"}
    if needs["keyword"]:
        derived.check_keyword()
    with derived.session(**needs) as session:
        allowed = allowed_passages(session.state, columns, request.filter, request.without)
        clock.lap("search")
        found = _first_stage(asked, request, session, allowed, clock, scale)
        session.leave()
        fetched = _fetch(session.state, found, whole=request.reranker is None)
        hits = [[_hit(candidate, fetched) for candidate in one] for one in found]
        clock.lap("fetch")
        if request.reranker is None:
            return [as_results(one, request, clock, len(asked)) for one in hits]
        return _second_stage(asked, request, session.state, hits, clock, title)


def allowed_passages(state: State, columns: Columns, filter: Filter | None, without: str | None = None) -> Mask | None:
    """Which of the state's passages may be found: [n]; None for all."""
    allowed = None if filter is None else filter.mask(state, columns)
    row = None if without is None else state.row_of(without)
    if row is not None:
        others = state.layout.owners != row
        allowed = others if allowed is None else allowed & others
    return allowed


def _first_stage(
    asked: Asked,
    request: Request,
    session: Session,
    allowed: Mask | None,
    clock: Clock,
    scale: SimilarityScale | None,
) -> list[list[Candidate]]:
    vectors, texts, dense, keyword = asked.vectors, asked.texts, session.dense, session.keyword

    def nearest(which: Numbers, count: int) -> Found:
        assert vectors is not None
        assert dense is not None
        return scaled(dense.search(vectors[which], count, allowed=allowed), scale)

    def by_words(which: Numbers, count: int) -> Found:
        assert texts is not None
        assert keyword is not None
        return keyword.search(subset(texts, which), count, allowed=allowed)

    layout = session.state.layout
    return first_stage(layout, len(asked), request, clock, allowed=allowed, nearest=nearest, by_words=by_words)


def scaled(found: Found, scale: SimilarityScale | None) -> Found:
    """Similarities with their normalised values, where the scale is known."""
    return found if scale is None else replace(found, normalized=scale.normalise(found.scores))


def first_stage(
    layout: Layout,
    queries: int,
    request: Request,
    clock: Clock,
    *,
    allowed: Mask | None,
    nearest: Search,
    by_words: Search,
) -> list[list[Candidate]]:
    """For every query its best documents, by the stages that the mode asks for."""
    stages: dict[StageName, list[Ranking]] = {}
    depth = request.depth if request.mode != "hybrid" else max(request.depth, DEPTH)
    if request.mode != "keyword":
        stages["semantic"] = rank_documents(nearest, layout, queries, depth, allowed)
        clock.lap("search")
    if request.mode != "semantic":
        stages["keyword"] = rank_documents(by_words, layout, queries, depth, allowed)
        clock.lap("keyword")
    if request.mode != "hybrid":
        return [staged(request.mode, ranking) for ranking in stages[request.mode]]
    pairs = zip(stages["semantic"], stages["keyword"], strict=True)
    return [fused(semantic, keyword, request.depth) for semantic, keyword in pairs]


def _fetch(
    state: State, found: Sequence[Sequence[Candidate]], *, whole: bool
) -> Mapping[int, tuple[Document, Passage]]:
    return state.passages([candidate.number for one in found for candidate in one], whole=whole)


def _hit(candidate: Candidate, fetched: Mapping[int, tuple[Document, Passage]]) -> Hit:
    document, passage = fetched[candidate.number]
    score = candidate.stages[-1].score
    return Hit(document.id, document.text, document.metadata, passage, score, candidate.stages)


def _second_stage(
    asked: Asked, request: Request, state: State, hits: Sequence[Sequence[Hit]], clock: Clock, title: str | None
) -> list[Results]:
    """The reranker's order. Only now are the texts of the documents read that will be shown: they may be long."""
    reranker, texts = request.reranker, asked.texts
    assert reranker is not None
    assert texts is not None
    ranked = rerank_all(texts, hits, reranker, request, title)
    clock.lap("rerank")
    whole = state.texts([hit.id for one in ranked for hit in one.hits])
    shown = [[replace(hit, text=whole[hit.id][0]) for hit in one.hits] for one in ranked]
    clock.lap("fetch")
    return [
        replace(as_results(one, request, clock, len(asked)), scored=how.scored, answered=how.answered)
        for one, how in zip(shown, ranked, strict=True)
    ]


def rerank_all(
    texts: Sequence[str], hits: Sequence[Sequence[Hit]], reranker: CrossEncoder, request: Request, title: str | None
) -> list[Reranked]:
    """Rerank the hits of every query."""
    return [
        rerank(text, one, reranker, request.k, budget=request.budget, title=title)
        for text, one in zip(texts, hits, strict=True)
    ]


def as_results(hits: Sequence[Hit], request: Request, clock: Clock, queries: int) -> Results:
    """What a search found; the times of a batch are shared evenly by its queries."""
    timings = {name: seconds / queries for name, seconds in clock.seconds.items()}
    timings["total"] = sum(timings.values())
    answered = None
    if request.answer is not None and request.mode != "keyword":
        similarities = [stage.score for hit in hits for stage in hit.stages if stage.name == "semantic"]
        answered = max(similarities, default=-np.inf) >= request.answer
    return Results(tuple(hits), timings, request.mode, answered=answered)


def check_texts(queries: Sequence[Any]) -> list[str]:
    """Queries that are texts with something in them."""
    for place, query in enumerate(queries):
        which = f"query {place}" if len(queries) > 1 else "the query"
        if not isinstance(query, str):
            raise InputError(f"{which} must be a text, as the others are, got {type(query).__name__}: {query!r:.60}")
        if not query.strip():
            raise InputError(f"{which} is empty: give a text to search for")
    return list(queries)


def check_vectors(given: Any, dimension: int) -> Vectors:
    """Queries that are vectors: float32 [q, d]."""
    try:
        vectors = np.asarray(given.numpy(force=True) if hasattr(given, "numpy") else given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"a query is a text or a vector of numbers, got {type(given).__name__}: {error}") from error
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InputError(
            f"query vectors must be [queries, {dimension}] (the dimension of the index), got shape {vectors.shape}: "
            "were they made by the model of the index?"
        )
    if not np.isfinite(vectors).all():
        raise InputError("query vectors must be finite, got NaN or infinity")
    return np.ascontiguousarray(vectors)
