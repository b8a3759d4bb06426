"""Search over a list of texts in memory, as an index searches a folder: the same calls, the same hits, nothing on disk.

Enters: texts, or dicts with `text` as `Index.add` takes them, and a bi-encoder. They are cut into passages and encoded
once. Leaves: `Results`, document by document, each with its best passage. Every vector is compared, so the answer is
exact. This is for thousands of texts: what is more, or should outlive the process, belongs into a `munjang.Index`.
Searching by meaning needs no extra; keyword and hybrid need the same as in an index.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from munjang import vectors
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.index.columns import Columns
from munjang.index.cutting import Cutter
from munjang.index.documents import title_of, titled, windows
from munjang.index.filters import Filter, as_filter
from munjang.index.fusion import SimilarityScale
from munjang.index.identity import document_prompt
from munjang.index.options import IndexOptions
from munjang.index.passages import Found
from munjang.index.ranking import Candidate, subset
from munjang.index.reranking import Reranked, check_reranking
from munjang.index.results import Document, Hit, Mode, Passage, Results
from munjang.index.searching import Clock, Request, check_texts, first_stage, rerank_all, scaled
from munjang.index.state import Layout
from munjang.progress import Progress

if TYPE_CHECKING:
    from munjang.index.index import Index
    from munjang.index.keyword import KeywordIndex
    from munjang.index.state import State

Condition = Filter | Mapping[str, Any] | str | None
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Floats = NDArray[np.float32]

TITLE = IndexOptions.title  # as in an index of the usual options


def search_texts(
    documents: Iterable[str | Mapping[str, Any]] | Index,
    query: str,
    k: int = 10,
    *,
    model: BiEncoder | None = None,
    reranker: CrossEncoder | None = None,
    filter: Condition = None,
    mode: Mode | None = None,
) -> Results:
    """The k documents that answer a query best, of a list or of an index.

    Without a model the bundled one is taken; an index has its own. To ask a list more than once, make a
    `TextCollection` of it, which encodes it once.
    """
    from munjang.index.index import Index

    if isinstance(documents, Index):
        if model is not None:
            raise InputError("an index searches with its own model: leave out model, or open the index with it")
        return documents.search(query, k, filter=filter, mode=mode, reranker=reranker)
    if model is None:
        from munjang.loading import load

        model = load()
    return TextCollection(documents, model).search(query, k, filter=filter, mode=mode, reranker=reranker)


class TextCollection:
    """Documents in memory, encoded once and searched as an `Index` is; they do not change.

    A document without an id has its place in the list, '0', '1'..., as its id. Long texts are cut into passages.
    """

    def __init__(
        self, documents: Iterable[str | Mapping[str, Any]], model: BiEncoder, *, progress: Progress = False
    ) -> None:
        self.model = model
        self._documents = _checked(documents)
        self._state = _State(self._documents, model)
        self._state.encode(model, progress)
        self._scale = SimilarityScale.of(model)
        self._columns = Columns()
        self._keyword: KeywordIndex | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._documents)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        filter: Condition = None,
        mode: Mode | None = None,
        reranker: CrossEncoder | None = None,
        candidates: int | None = None,
        rerank_budget: float | None = None,
    ) -> Results:
        """The k best documents; fewer where there are fewer. The arguments are those of `Index.search`."""
        if not isinstance(query, str):
            raise InputError(f"query must be one text, got {type(query).__name__}; search_many takes several")
        (found,) = self.search_many(
            [query],
            k,
            filter=filter,
            mode=mode,
            reranker=reranker,
            candidates=candidates,
            rerank_budget=rerank_budget,
        )
        return found

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        filter: Condition = None,
        mode: Mode | None = None,
        reranker: CrossEncoder | None = None,
        candidates: int | None = None,
        rerank_budget: float | None = None,
    ) -> list[Results]:
        """`search` for several queries, which are encoded together; each has its even share of the timings."""
        if isinstance(queries, str):
            raise InputError("queries must be a list of texts, got a single text: search takes one")
        texts = check_texts(queries)
        request = Request(k, mode or "hybrid", as_filter(filter), reranker, candidates, budget=rerank_budget)
        if not texts:
            return []
        if reranker is not None:
            check_reranking(texts[0], reranker, k)
        clock = Clock()
        allowed = None if request.filter is None else request.filter.mask(cast("State", self._state), self._columns)
        found = self._first_stage(texts, request, allowed, clock)
        hits = [[self._hit(candidate) for candidate in one] for one in found]
        ranked = [Reranked(one, 0, None, 0.0) for one in hits]
        if reranker is not None:
            ranked = rerank_all(texts, hits, reranker, request, TITLE)
            clock.lap("rerank")
        timings = {name: seconds / len(texts) for name, seconds in clock.seconds.items()}
        timings["total"] = sum(timings.values())
        return [Results(tuple(one.hits), timings, request.mode, one.scored, one.answered) for one in ranked]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _first_stage(
        self, texts: Sequence[str], request: Request, allowed: Mask | None, clock: Clock
    ) -> list[list[Candidate]]:
        """For every query the best documents, in the manner of an index."""
        queries = None
        if request.mode != "keyword":
            queries = self.model.encode_query(texts)  # [q, d]
            clock.lap("encode")

        def nearest(which: Numbers, count: int) -> Found:
            assert queries is not None
            return self._nearest(queries[which], count, allowed)

        def by_words(which: Numbers, count: int) -> Found:
            return self._keywords().search(subset(texts, which), count, allowed=allowed)

        layout = self._state.layout
        return first_stage(layout, len(texts), request, clock, allowed=allowed, nearest=nearest, by_words=by_words)

    def _nearest(self, queries: Floats, count: int, allowed: Mask | None) -> Found:
        """The nearest passages that are allowed, of which there are at least `count`."""
        numbers = self._state.numbers() if allowed is None else self._state.numbers()[allowed]
        found = vectors.top_k(queries, self._state.vectors(numbers), count, kind=self.model.similarity_name)
        return scaled(Found(found.scores, numbers[found.indices]), self._scale)

    def _keywords(self) -> KeywordIndex:
        """The keywords of all passages, in memory, made when they are first asked for."""
        with self._lock:
            if self._keyword is None:
                from munjang.index.keyword import KeywordIndex

                with tempfile.TemporaryDirectory() as folder:  # empty: there is nothing to read, and nothing is saved
                    keyword = KeywordIndex(Path(folder))
                    keyword.refresh(self._state)
                self._keyword = keyword
            return self._keyword

    def _hit(self, candidate: Candidate) -> Hit:
        document = self._documents[int(self._state.layout.owners[candidate.number - 1])]
        start, end = self._state.spans[candidate.number - 1]
        passage = Passage(document.text[start:end], start, end)
        score = candidate.stages[-1].score
        return Hit(document.id, document.text, document.metadata, passage, score, candidate.stages)


class _State:
    """The passages of a list, told as an index's state tells them: to filters and to the keyword index."""

    generation = 1

    def __init__(self, documents: Sequence[Document], model: BiEncoder) -> None:
        self._documents = documents
        cutter = Cutter.resolve(model.tokenizer, None, None, prompt=document_prompt(model))
        self._titles = [title_of(document.metadata, TITLE) for document in documents]
        cut, self._passages = cutter.passages([document.text for document in documents], self._titles)
        owners = [place for place, spans in enumerate(cut) for _ in spans]
        self.spans = [(span.start, span.end) for spans in cut for span in spans]
        numbers = np.arange(1, len(owners) + 1, dtype=np.int64)
        self.layout = Layout(self.generation, len(owners), numbers, np.array(owners, np.int64))
        self.all_vectors: Floats = np.zeros((0, model.dimension), np.float32)  # [n, d]

    def encode(self, model: BiEncoder, progress: Progress) -> None:
        self.all_vectors = model.encode_document(self._passages, progress=progress)
        self._passages = []  # each is a copy of a part of its text

    @property
    def dimension(self) -> int:
        return int(self.all_vectors.shape[1])

    def last_number(self) -> int:
        return len(self.spans)

    def numbers(self) -> Numbers:
        return self.layout.numbers

    def vectors(self, numbers: Numbers) -> Floats:
        return self.all_vectors[numbers - 1]

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[Numbers, Floats]]:
        yield self.numbers()[after:upto], self.all_vectors[after:upto]

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[Numbers, list[str]]]:
        owners = self.layout.owners[after:upto].tolist()
        texts = [
            titled(self._titles[owner], self._documents[owner].text[start:end])
            for owner, (start, end) in zip(owners, self.spans[after:upto], strict=True)
        ]
        yield self.numbers()[after:upto], texts

    def changed_metadata(self, since: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        if since < self.generation:
            yield from ((place, document.metadata) for place, document in enumerate(self._documents))


def _checked(given: Iterable[str | Mapping[str, Any]]) -> list[Document]:
    documents: list[Document] = []
    places: dict[str, int] = {}
    for incoming in (one for window in windows(given) for one in window):
        id = incoming.id if incoming.named else str(incoming.position)
        if id in places:
            raise InputError(
                f"documents {places[id]} and {incoming.position} have the same id {id!r}: ids must differ (a document "
                "without one has its place as its id)"
            )
        places[id] = incoming.position
        documents.append(Document(id, incoming.text, json.loads(incoming.metadata)))
    return documents
