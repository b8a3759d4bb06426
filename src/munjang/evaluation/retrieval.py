"""Queries and documents -> how high a model ranks the right ones: among a whole corpus, or within given lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.encoding import encode, gpu_of, predict_one
from munjang.evaluation.metrics import (
    average_precision,
    average_precision_at,
    hit_rate,
    mean,
    ndcg,
    precision_at,
    recall_at,
    reciprocal_rank,
    tied_ndcg,
)
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model, Scores, bi_encoder, cross_encoder
from munjang.evaluation.sets import check, interval, joined, pairs_of
from munjang.types import Similarity
from munjang.vectors import pairwise_similarity, top_k

if TYPE_CHECKING:
    from munjang.data.examples import Examples, Retrieval


@dataclass(frozen=True)
class RetrievalEvaluator:
    """Search the whole corpus for every query: NDCG, MRR, recall, precision, MAP and hit rate at several depths.

    Queries are encoded with the model's prompt for queries, documents with that for documents. Grades count in NDCG,
    linearly. Of equal scores the document that stands first in the corpus wins.
    """

    retrieval: Retrieval
    at: tuple[int, ...] = (1, 3, 5, 10, 100)
    similarity: Similarity | None = None  # None: the model's own
    bootstrap: int = 0
    main: str = "ndcg@10"
    also: tuple[str, ...] = ()  # metrics beside the main one that get an interval

    def __post_init__(self) -> None:
        if not self.at or min(self.at) < 1:
            raise InputError(f"{self.name}: at must be depths of 1 or more, got {self.at}")
        for option, metric in (("main", self.main), *(("also", metric) for metric in self.also)):
            if metric not in {f"{name}@{k}" for name in _METRICS for k in self.at}:
                raise InputError(
                    f"{self.name}: {option} must be one of {', '.join(_METRICS)} @ one of {self.at}, got {metric!r}"
                )
        if not self.retrieval.corpus or not self.asked():
            raise InputError(
                f"{self.name}: expected documents and queries with relevant documents, got "
                f"{len(self.retrieval.corpus)} documents, {len(self.asked())} of {len(self.retrieval.queries)} queries"
            )

    @property
    def name(self) -> str:
        return self.retrieval.name

    def __call__(self, model: Model) -> Scores:
        bi = bi_encoder(model, name=self.name)
        asked, documents = self.asked(), list(self.retrieval.corpus)
        queries = encode(bi, [self.retrieval.queries[query] for query in asked], role="query")
        corpus = encode(bi, list(self.retrieval.corpus.values()), role="document")
        k = min(max(self.at), len(documents))
        kind = self.similarity or bi.similarity_name
        found = top_k(queries.rows, corpus.rows, k, kind=kind, device=gpu_of(bi))
        per_query = self.per_query(asked, self.grades(asked, documents, found.indices))
        intervals: dict[str, tuple[float, float]] = {}
        for metric in (self.main, *self.also):
            intervals |= interval(metric, mean, (per_query[metric],), samples=self.bootstrap)
        return Scores(
            self.name,
            {metric: mean(values) for metric, values in per_query.items()},
            self.main,
            len(asked),
            intervals=intervals,
            notes=joined(self.notes(asked), queries.notes, corpus.notes),
        )

    def asked(self) -> list[str]:
        """Queries that have something to find."""
        relevant = self.retrieval.relevant
        return [query for query in self.retrieval.queries if any(g > 0 for g in relevant.get(query, {}).values())]

    def grades(self, asked: list[str], documents: list[str], indices: Array) -> Array:  # [q, k]
        """The grade of every document that was found, best rank first."""
        grades = np.zeros(indices.shape)
        for row, query in enumerate(asked):
            relevant = self.retrieval.relevant[query]
            grades[row] = [max(0, relevant.get(documents[place], 0)) for place in indices[row].tolist()]
        return grades

    def per_query(self, asked: list[str], grades: Array) -> dict[str, Array]:
        """Metric -> one value per query."""
        best = [sorted((g for g in self.retrieval.relevant[q].values() if g > 0), reverse=True) for q in asked]
        totals = np.array([len(some) for some in best])
        ideal = np.zeros((len(asked), max(1, min(int(totals.max()), max(self.at)))))
        for row, some in enumerate(best):
            ideal[row, : len(some)] = some[: ideal.shape[1]]
        values: dict[str, Array] = {}
        for k in self.at:
            values[f"ndcg@{k}"] = ndcg(grades, ideal, k)
            values[f"mrr@{k}"] = reciprocal_rank(grades, k)
            values[f"map@{k}"] = average_precision_at(grades, totals, k)
            values[f"recall@{k}"] = recall_at(grades, totals, k)
            values[f"precision@{k}"] = precision_at(grades, k)
            values[f"hit_rate@{k}"] = hit_rate(grades, k)
        return values

    def notes(self, asked: list[str]) -> tuple[str, ...]:
        """What was left out."""
        silent, every = len(self.retrieval.queries) - len(asked), len(self.retrieval.queries)
        return (f"{silent:,} of {every:,} queries have no relevant document: left out",) if silent else ()


_METRICS = ("ndcg", "mrr", "map", "recall", "precision", "hit_rate")


@dataclass(frozen=True)
class RerankingEvaluator:
    """Order each query's own list: NDCG@k and MRR@k, and MAP over the whole list."""

    examples: Examples  # ranked
    at: int = 10
    similarity: Similarity | None = None  # None: the model's own
    bootstrap: int = 0

    def __post_init__(self) -> None:
        check(self.examples, "ranked")
        if self.at < 1:
            raise InputError(f"{self.name}: at must be 1 or more, got {self.at}")
        if not self._lists():
            raise InputError(f"{self.name}: no query has both relevant and other documents to order")

    @property
    def name(self) -> str:
        return self.examples.name

    @property
    def main(self) -> str:
        return f"ndcg@{self.at}"

    def __call__(self, model: Model) -> Scores:
        lists, targets = self._lists(), self._targets()
        scores, notes = self._scores(model)
        values = np.array([_one(targets[rows], scores[rows], self.at) for rows in lists])  # [lists, 3]
        names = (f"ndcg@{self.at}", f"mrr@{self.at}", "map")
        if left_out := len(np.unique(self._groups())) - len(lists):
            notes = (*notes, f"{left_out:,} queries have only relevant or only other documents: left out")
        return Scores(
            self.name,
            dict(zip(names, values.mean(axis=0).tolist(), strict=True)),
            self.main,
            len(lists),
            intervals=interval(self.main, mean, (values[:, 0],), samples=self.bootstrap),
            notes=notes,
        )

    def _scores(self, model: Model) -> tuple[Array, tuple[str, ...]]:
        cross = cross_encoder(model)
        if cross is not None:
            found = predict_one(cross, pairs_of(self.examples, "query", "document"), name=self.name)
            return found.rows, found.notes
        bi = bi_encoder(model, name=self.name)
        queries = encode(bi, self.examples.columns["query"], role="query")
        documents = encode(bi, self.examples.columns["document"], role="document")
        scores = pairwise_similarity(queries.rows, documents.rows, self.similarity or bi.similarity_name)
        return scores, joined(queries.notes, documents.notes)

    def _targets(self) -> Array:
        if self.examples.targets is None:
            raise InputError(f"{self.name}: the rows have no relevance")
        return self.examples.targets

    def _groups(self) -> Array:
        if self.examples.groups is None:
            raise InputError(f"{self.name}: the rows have no groups, so it is unknown which query each belongs to")
        return self.examples.groups

    def _lists(self) -> list[Array]:
        """The rows of every query that has something to order."""
        starts = np.unique(self._groups(), return_index=True)[1][1:]
        lists = np.split(np.arange(len(self.examples)), starts)
        relevant = self._targets() > 0
        return [rows for rows in lists if relevant[rows].any() and not relevant[rows].all()]


def _one(grades: Array, scores: Array, k: int) -> tuple[float, float, float]:
    order = np.argsort(-scores, kind="stable")
    first = float(reciprocal_rank(grades[order][None], k)[0])
    return tied_ndcg(grades, scores, k), first, average_precision(grades > 0, scores)
