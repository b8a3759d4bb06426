"""Queries and a corpus -> what a reranker adds: a bi-encoder's first hits before and after a cross-encoder orders them.

Enters: a retrieval set and a cross-encoder; then the bi-encoder, which is asked as any evaluator asks. Leaves: every
metric of both orders, and the differences with their paired intervals. What the first search does not find, no reranker
can bring back, so `recall@CANDIDATES` of the first search stands beside them.

The corpus is encoded once. The pairs of all queries go to the reranker as one stream, so that memory holds their
scores and not their texts: 5,774 queries with 100 passages each are 577,400 pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.encoding import encode, gpu_of
from munjang.evaluation.metrics import mean, paired_bootstrap
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.retrieval import RetrievalEvaluator
from munjang.evaluation.scores import Model, Scores, bi_encoder
from munjang.evaluation.sets import interval, joined
from munjang.progress import Progress
from munjang.types import EncodeReport, Similarity
from munjang.vectors import top_k

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder
    from munjang.data.retrieval import Retrieval

_AT = (1, 10)
_METRICS = ("ndcg", "mrr", "map", "recall", "precision", "hit_rate")


@dataclass(frozen=True)
class TwoStageEvaluator:
    """The bi-encoder's first `candidates` for every query, put in order by the reranker.

    `recall@1` and its kin are after reranking; `recall@1_before` is the bi-encoder's own order, `recall@1_gain` the
    difference. Equal scores keep the bi-encoder's order. A set that has fewer documents is reranked whole.
    """

    retrieval: Retrieval
    reranker: CrossEncoder
    candidates: int = 100
    similarity: Similarity | None = None  # None: the bi-encoder's own
    bootstrap: int = 0
    main: str = "recall@1"
    reranker_name: str = ""  # for the note that says who reranked
    progress: Progress = False  # counts pairs

    def __post_init__(self) -> None:
        if self.candidates < max(_AT):
            raise InputError(f"{self.name}: candidates must be {max(_AT)} or more, got {self.candidates}")
        if self.main not in {f"{metric}@{k}" for metric in _METRICS for k in _AT}:
            raise InputError(f"{self.name}: main must be of {', '.join(_METRICS)} @ one of {_AT}, got {self.main!r}")
        if len(self.reranker.labels) != 1:
            raise InputError(
                f"{self.name} needs a reranker with one score per pair, got one with {len(self.reranker.labels)} "
                f"({', '.join(self.reranker.labels)})"
            )
        self._first()

    @property
    def name(self) -> str:
        return f"{self.retrieval.name} two-stage"

    def __call__(self, model: Model) -> Scores:
        bi = bi_encoder(model, name=self.name)
        first = self._first()
        asked, documents = first.asked(), list(self.retrieval.corpus)
        found, notes = self._search(bi, asked)  # [q, k] rows of the corpus
        scores, report = self._rerank(asked, documents, found)
        order = np.argsort(-scores, axis=1, kind="stable")
        before = first.per_query(asked, first.grades(asked, documents, found))
        after = first.per_query(asked, first.grades(asked, documents, np.take_along_axis(found, order, axis=1)))
        values, intervals = self._compared(before, after)
        values["recall_of_candidates"] = mean(before[f"recall@{self.candidates}"])
        who = f" by {self.reranker_name}" if self.reranker_name else ""
        notes = joined((f"first {found.shape[1]} of the bi-encoder reranked{who}",), first.notes(asked), notes)
        if report.truncated:
            notes += (f"truncated: {report.truncated:,} of {report.texts:,} pairs to {report.max_length} tokens",)
        return Scores(self.name, values, self.main, len(asked), intervals=intervals, notes=notes)

    def _first(self) -> RetrievalEvaluator:
        return RetrievalEvaluator(self.retrieval, at=tuple(sorted({*_AT, self.candidates})), main=self.main)

    def _search(self, bi: BiEncoder, asked: list[str]) -> tuple[Array, tuple[str, ...]]:
        queries = encode(bi, [self.retrieval.queries[query] for query in asked], role="query")
        corpus = encode(bi, list(self.retrieval.corpus.values()), role="document")
        kind = self.similarity or bi.similarity_name
        k = min(self.candidates, len(self.retrieval.corpus))
        found = top_k(queries.rows, corpus.rows, k, kind=kind, device=gpu_of(bi))
        return found.indices, joined(queries.notes, corpus.notes)

    def _rerank(self, asked: list[str], documents: list[str], found: Array) -> tuple[Array, EncodeReport]:
        """Scores of the pairs [q, k], in the order of the first search; and how many were cut."""
        texts = [self.retrieval.corpus[document] for document in documents]
        pairs = _Pairs([self.retrieval.queries[query] for query in asked], texts, found)
        scores, filled = np.empty(found.size, np.float32), 0
        report = EncodeReport(0, 0, 0, 0, self.reranker.max_length, 0.0)
        for part in self.reranker.predict_stream(pairs, progress=self.progress):
            scores[filled : filled + len(part.scores)] = part.scores
            filled += len(part.scores)
            report = report.plus(part.report)
        assert filled == found.size
        return scores.reshape(found.shape), report

    def _compared(
        self, before: dict[str, Array], after: dict[str, Array]
    ) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        values: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        for metric in (f"{metric}@{k}" for metric in _METRICS for k in _AT):
            values[metric], values[f"{metric}_before"] = mean(after[metric]), mean(before[metric])
            values[f"{metric}_gain"] = values[metric] - values[f"{metric}_before"]
        for metric in dict.fromkeys((self.main, "recall@1", "ndcg@10")):
            intervals |= interval(metric, mean, (after[metric],), samples=self.bootstrap)
            intervals |= interval(f"{metric}_before", mean, (before[metric],), samples=self.bootstrap)
            if self.bootstrap:
                gap = paired_bootstrap(mean, (after[metric],), (before[metric],), samples=self.bootstrap)
                intervals[f"{metric}_gain"] = (gap.low, gap.high)
        return values, intervals


@dataclass(frozen=True)
class _Pairs:
    """Every query with each of its documents, one after another; counted, but never held all at once."""

    queries: list[str]
    documents: list[str]
    found: Array  # int64 [q, k]

    def __len__(self) -> int:
        return int(self.found.size)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for query, places in zip(self.queries, self.found, strict=True):
            for place in places.tolist():
                yield query, self.documents[place]
