"""One search as the service does it: the models compute in their batchers, the index is read in a thread.

    query -> room (vector) -> thread (first stage; the reranker's pairs go to its room) -> sentences -> `Found`

The library's own `searching.run` does the search, so a service and a program find the same. Only who computes differs:
`_Reader` looks like a cross-encoder to it, but waits in its thread for the room, which serves everybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from munjang.encoders import CrossEncoder, Predicted
from munjang.index.filters import as_filter
from munjang.index.results import Hit, Mode, Results
from munjang.index.searching import Asked, Request, check_texts
from munjang.serve.errors import DeadlinePassed, ServeError
from munjang.serve.indexes import Shelved
from munjang.serve.rooms import RerankRoom, Wish
from munjang.serve.sentences import Span
from munjang.serve.threads import Threads
from munjang.types import EncodeReport

Floats = NDArray[np.float32]
MARKED = 50  # hits whose sentence is looked for


@dataclass(frozen=True)
class Query:
    """What a person asks an index."""

    text: str
    k: int = 10
    mode: Mode = "semantic"
    reranker: RerankRoom | None = None
    candidates: int | None = None
    budget: float | None = None  # seconds for the reranker
    filter: Mapping[str, Any] | str | None = None
    sentences: bool = True


@dataclass(frozen=True)
class Like:
    """A document that others shall be like."""

    id: str
    k: int = 10
    reranker: RerankRoom | None = None
    candidates: int | None = None
    budget: float | None = None  # seconds for the reranker
    filter: Mapping[str, Any] | str | None = None
    sentences: bool = True


@dataclass(frozen=True)
class Found:
    """The hits with their sentences, and where the time went."""

    results: Results
    sentences: list[Span | None]  # offsets in the document's text
    seconds: dict[str, float]
    truncated: int  # the query, and pairs of the reranker, that were longer than the model reads


class Searcher:
    """Searches the indexes of a service."""

    def __init__(self, threads: Threads, deadline_s: float) -> None:
        self._threads = threads
        self._deadline = deadline_s

    async def search(self, shelved: Shelved, query: Query) -> Found:
        """The hits of a query."""
        check_texts([query.text])
        clock = _Clock(self._deadline)
        condition = await self._run(lambda: as_filter(query.filter), clock)
        vector = None
        if query.mode != "keyword":
            vector = await self._vector(shelved, query.text, clock)
        reader = None if query.reranker is None else _Reader(query.reranker, clock)
        threshold = shelved.room.model.thresholds.get("answer") if query.mode != "keyword" else None
        request = Request(
            query.k,
            query.mode,
            condition,
            cast("CrossEncoder | None", reader),
            query.candidates,
            answer=None if threshold is None else threshold.value,
            budget=query.budget,
        )
        (results,) = await self._run(lambda: shelved.index.search_ready(Asked([query.text], vector), request), clock)
        clock.add(results.timings)
        spans: list[Span | None] = [None] * len(results)
        if query.sentences and len(results):
            if vector is None:
                vector = await self._vector(shelved, query.text, clock)
            spans = await self._sentences(shelved, vector[0], results.hits, clock)
        return Found(results, spans, clock.finished(), clock.truncated)

    async def more_like(self, shelved: Shelved, like: Like) -> Found:
        """The documents nearest to one of the index."""
        clock = _Clock(self._deadline)
        reader = None if like.reranker is None else _Reader(like.reranker, clock)

        def find() -> Results:
            return shelved.index.more_like(
                like.id,
                like.k,
                filter=like.filter,
                reranker=cast("CrossEncoder | None", reader),
                candidates=like.candidates,
                rerank_budget=like.budget,
            )

        results = await self._run(find, clock)
        clock.add(results.timings)
        spans: list[Span | None] = [None] * len(results)
        if like.sentences and len(results):
            text = await self._run(lambda: shelved.index.get(like.id).text, clock)
            vector = await self._vector(shelved, text, clock, as_document=True)
            spans = await self._sentences(shelved, vector[0], results.hits, clock)
        return Found(results, spans, clock.finished(), clock.truncated)

    async def _vector(self, shelved: Shelved, text: str, clock: _Clock, *, as_document: bool = False) -> Floats:
        embed = shelved.room.embed_document if as_document else shelved.room.embed_query
        answer = await embed([text], wish=clock.wish())
        clock.add({"tokenise": answer.timing.tokenise, "queue": answer.timing.queue, "encode": answer.timing.compute})
        clock.truncated += 0 if as_document else answer.truncated
        return np.asarray(answer.values, np.float32)  # [1, d]

    async def _run(self, call: Callable[[], Any], clock: _Clock) -> Any:
        try:
            return await asyncio.wait_for(self._threads.run(call), clock.left())
        except asyncio.TimeoutError:
            raise DeadlinePassed(f"the search was not done within {self._deadline:g} s") from None

    async def _sentences(
        self, shelved: Shelved, vector: Floats, hits: Sequence[Hit], clock: _Clock
    ) -> list[Span | None]:
        """The sentence of each hit that is nearest to the query. It is an extra: a busy service leaves it out."""
        started = time.perf_counter()
        spans: list[Span | None] = [None] * len(hits)
        try:
            near = shelved.finder.nearest(vector, [hit.passage.text for hit in hits[:MARKED]])
            found = await asyncio.wait_for(near, clock.left())
        except (ServeError, asyncio.TimeoutError):
            found = []
        for place, span in enumerate(found):
            if span is not None:
                first = hits[place].passage.start
                spans[place] = Span(first + span.start, first + span.end)
        clock.add({"sentences": time.perf_counter() - started})
        return spans


@dataclass
class _Clock:
    """A request's time: how much is left, and where it went."""

    deadline: float  # seconds
    started: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)
    truncated: int = 0

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, value in seconds.items():
            if name != "total":
                self.seconds[name] = self.seconds.get(name, 0.0) + value

    def left(self) -> float:
        return max(0.0, self.started + self.deadline - time.perf_counter())

    def wish(self) -> Wish:
        return Wish(priority="query", deadline=self.left())

    def finished(self) -> dict[str, float]:
        return {**self.seconds, "total": time.perf_counter() - self.started}


class _Reader:
    """A room's cross-encoder as `munjang.index.reranking` uses one, from the thread of a search."""

    def __init__(self, room: RerankRoom, clock: _Clock) -> None:
        self._room = room
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.labels = room.model.labels
        self.parts = room.model.parts
        self.thresholds = room.model.thresholds
        self.first_stage_weight = room.model.first_stage_weight
        self.max_length = room.model.max_length

    def predict_report(self, pairs: Sequence[tuple[str, str]], *, raw: bool = False) -> Predicted:
        scored = self._room.score(pairs, raw=raw, wish=self._clock.wish())
        answer = asyncio.run_coroutine_threadsafe(scored, self._loop).result()
        self._clock.truncated += answer.truncated
        compute = answer.timing.compute
        report = EncodeReport(len(pairs), answer.tokens, 0, 0, self.max_length, compute)
        return Predicted(answer.values, report)
