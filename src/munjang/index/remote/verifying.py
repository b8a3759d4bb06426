"""Is a remote index whole? Every document is read once: its passages and vectors, the counts of the server, and the
search against brute force for a sample.
"""

from __future__ import annotations

import time

import numpy as np

from munjang.index.dense_metric import Metric
from munjang.index.remote.engine import Engine, Float32, StoredDocument
from munjang.index.verifying import VerifyReport
from munjang.progress import Progress, track
from munjang.types import Similarity

_SAMPLE = 20  # documents that are searched for
_BEST = 10
_RECALL = 0.95
_PAGE = 512
_SHOWN = 20  # problems that are listed
_ROUNDING = 1e-4


class _Brute:
    """The best scores of a few queries among all passages, seen one page at a time."""

    def __init__(self, queries: Float32, metric: Metric) -> None:
        self.metric = metric
        self.queries = queries  # [q, d]
        self._prepared = metric.prepare(queries)
        self.best = np.full((len(queries), _BEST), -np.inf, np.float32)  # [q, 10]

    def see(self, vectors: Float32) -> None:  # [n, d]
        if not len(vectors) or not len(self.queries):
            return
        rows = self.metric.prepare(vectors)
        near = np.stack([self.metric.scores(self.metric.column(query, rows)) for query in self._prepared])  # [q, n]
        self.best = -np.sort(-np.concatenate([self.best, near], axis=1), axis=1)[:, :_BEST]


def verify(engine: Engine, dimension: int, similarity: Similarity, *, progress: Progress = False) -> VerifyReport:
    """Read everything, compare, and say what is wrong."""
    started = time.perf_counter()
    problems: list[str] = []
    chosen = engine.get(engine.choose(_SAMPLE), vectors=True).values()
    queries = [one.vectors[0] for one in chosen if one.vectors is not None and len(one.vectors)]
    brute = _Brute(np.array(queries, np.float32).reshape(-1, dimension), Metric(similarity, dimension))
    documents, passages = engine.count()
    seen = [0, 0]
    after: str | None = None
    with track(progress, documents) as done:
        while page := engine.scan(after, _PAGE):
            problems += (said for one in page if (said := _problem(one, dimension)) is not None)
            vectors = [one.vectors for one in page if one.vectors is not None]
            brute.see(np.concatenate(vectors) if vectors else np.zeros((0, dimension), np.float32))
            seen[0] += len(page)
            seen[1] += sum(len(one.spans) for one in page)
            after = page[-1].id
            done(len(page))
    if seen != [documents, passages] and (documents, passages) == engine.count():  # nobody wrote meanwhile
        problems.append(
            f"the server counts {documents:,} documents and {passages:,} passages, but {seen[0]:,} and {seen[1]:,} "
            "are there"
        )
    recall = _recall(engine, brute) if len(brute.queries) else None
    if recall is not None and recall < _RECALL:
        problems.append(f"a search finds only {recall:.0%} of the nearest passages of a sample: raise ef_search")
    return VerifyReport(seen[0], seen[1], tuple(problems[:_SHOWN]), recall, time.perf_counter() - started)


def _problem(document: StoredDocument, dimension: int) -> str | None:
    vectors = document.vectors
    if vectors is None or vectors.shape != (len(document.spans), dimension):
        shape = None if vectors is None else vectors.shape
        return f"document {document.id!r} has {len(document.spans)} passages, but vectors {shape}"
    if not np.isfinite(vectors).all():
        return f"a vector of document {document.id!r} is not finite"
    if not all(0 <= start < end <= len(document.text) for start, end in document.spans):
        return f"a passage of document {document.id!r} lies outside its text"
    return None


def _recall(engine: Engine, brute: _Brute) -> float:
    """The share of the true best scores that a search reaches."""
    found = engine.search(brute.queries, _BEST, None)
    reached = wanted = 0
    for true, passages in zip(brute.best, found, strict=True):
        true = true[np.isfinite(true)]
        own = np.array([one.score for one in passages[: len(true)]] + [-np.inf] * (len(true) - len(passages)))
        slack = _ROUNDING * np.maximum(1.0, np.abs(true))
        reached += int((own >= true - slack).sum())
        wanted += len(true)
    return reached / max(1, wanted)
