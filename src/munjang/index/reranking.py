"""The second stage of a search: hits of the first in, the same hits in the order of a cross-encoder out.

    final = (1 - weight) * cross + weight * first        both 0..1; weight 0 is the cross-encoder's order alone

Each hit's best passage is read together with the query. Passages with the same text are read once. The work goes in
blocks from the best candidate down and stops as soon as no candidate that was not read can change the first k: with
the greatest score that a cross-encoder gives (1) it would still end (1 - weight) + weight * first, below the k-th. The
bound is computed as the scores are, so rounding cannot turn it, and the answer is that of reading all. Where weight is
0 the bound is 1, and only k perfect scores end the work early.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.encoders import CrossEncoder
from munjang.errors import InputError, TruncationWarning
from munjang.index.results import Hit, Stage
from munjang.types import Similarity

Scores = NDArray[np.float64]

CEILING = 1.0  # no probability is greater
BLOCK = 32  # passages that are read between two looks at the bound
GPU_BLOCK = 128  # there 128 pairs take hardly longer than 32


@dataclass(frozen=True)
class Reranked:
    """The best hits in their new order, and what that took."""

    hits: list[Hit]
    scored: int  # pairs that the cross-encoder read
    answered: bool | None  # whether a hit reaches the cross-encoder's "answer" threshold; None where it has none
    seconds: float
    truncated: int = 0  # pairs that were longer than the cross-encoder reads


def rerank(
    query: str,
    hits: Sequence[Hit],
    reranker: CrossEncoder,
    k: int,
    *,
    weight: float = 0.0,
    kind: Similarity = "cosine",
) -> Reranked:
    """The k best of `hits`, which come best first from the first stage, by the cross-encoder's scores.

    weight: 0..1, how much of the first stage's score stays in the final one; kind: what that score is after a semantic
    search. Equal scores keep the first stage's order.
    A hit gets the stage "rerank" with the cross-encoder's score, and `moved` says how many places it rose.
    """
    check_reranking(query, reranker, k, weight)
    started = time.perf_counter()
    first = _first_scores(hits, kind)
    reading = _Reading(query, [hit.passage.text for hit in hits], reranker)
    while not reading.finished and _open(reading, first, k, weight):
        reading.read_block()
    known = np.flatnonzero(~np.isnan(reading.scores))
    final = _mixed(reading.scores[known], first[known], weight)
    best = np.argsort(-final, kind="stable")[:k]
    found = [
        _moved(hits[place], place, rank, float(reading.scores[place]), float(final[row]))
        for rank, (row, place) in enumerate(zip(best.tolist(), known[best].tolist(), strict=True), start=1)
    ]
    if reading.truncated:
        _warn_truncated(reranker.max_length)
    return Reranked(
        found,
        reading.read,
        _answered(reading.scores[known[best]], reranker),
        time.perf_counter() - started,
        reading.truncated,
    )


def check_reranking(query: object, reranker: CrossEncoder, k: int, weight: float = 0.0) -> None:
    """Refuse what cannot be reranked, before anything is searched."""
    if not isinstance(query, str):
        raise InputError(
            f"a reranker reads the query's text, got {type(query).__name__}: search with a text, or without a reranker"
        )
    labels: Any = getattr(reranker, "labels", None)
    if labels is None:
        raise InputError(
            f"reranker must be a CrossEncoder, such as munjang.load_reranker() gives, got {type(reranker).__name__}"
        )
    if len(labels) != 1:
        raise InputError(
            f"a reranker gives one score, but this model has {len(labels)} labels ({', '.join(labels)}): load one with "
            "munjang.load_reranker"
        )
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if not 0.0 <= weight <= 1.0:
        raise InputError(f"weight must be 0 (the reranker alone) to 1 (the first stage alone), got {weight}")


class _Reading:
    """The cross-encoder's scores of the candidates, as far as they are known: NaN where they are not."""

    def __init__(self, query: str, texts: Sequence[str], reranker: CrossEncoder) -> None:
        self._query = query
        self._block = GPU_BLOCK if str(getattr(reranker, "device", "")).startswith("cuda") else BLOCK
        self._reranker = reranker
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            self._places.setdefault(text, []).append(place)
        self._texts = list(self._places)  # each once, where it stands highest
        self.scores: Scores = np.full(len(texts), np.nan)  # [n]
        self.read = 0
        self.truncated = 0

    @property
    def finished(self) -> bool:
        return self.read == len(self._texts)

    def read_block(self) -> None:
        """Read the next passages; a rest that would make a poor block of its own goes along."""
        rest = len(self._texts) - self.read
        block = self._texts[self.read : self.read + (self._block if rest >= self._block * 3 // 2 else rest)]
        predicted = self._reranker.predict_report([(self._query, text) for text in block])
        for text, score in zip(block, probabilities(predicted.scores, self._reranker), strict=True):
            self.scores[self._places[text]] = score
        self.read += len(block)
        self.truncated += predicted.report.truncated


def probabilities(scores: NDArray[np.floating[Any]] | float, reranker: CrossEncoder) -> Scores:
    """What `predict` gives for one label, as 0..1, in the same order: a model's saved activation may be another."""
    plain = np.asarray(scores, np.float64)
    activation = reranker.parts.activation
    if activation == "Sigmoid":
        return plain
    if activation == "Tanh":
        return (plain + 1.0) / 2.0
    # Bare logits: exp of a negative number only, so that it cannot overflow.
    small = np.exp(-np.abs(plain))
    return np.where(plain >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _first_scores(hits: Sequence[Hit], kind: Similarity) -> Scores:  # [n]
    """The first stage's scores as 0..1: cosines as they are but not below 0, others relative to the best."""
    scores = np.array([hit.score for hit in hits], np.float64).reshape(len(hits))
    if not len(hits):
        return scores
    if kind == "cosine" and all(stage.name == "semantic" for stage in hits[0].stages):
        return np.clip(scores, 0.0, 1.0)
    if scores.min() < 0:  # distances and dot products: the worst candidate is 0
        scores = scores - scores.min()
    best = scores.max()
    return scores / best if best > 0 else np.zeros_like(scores)


def _mixed(cross: Scores, first: Scores, weight: float) -> Scores:
    return (1.0 - weight) * cross + weight * first


def _open(reading: _Reading, first: Scores, k: int, weight: float) -> bool:
    """Whether a candidate that was not read could still stand among the first k."""
    known = np.flatnonzero(~np.isnan(reading.scores))
    if len(known) < k:
        return True
    final = _mixed(reading.scores[known], first[known], weight)
    last = np.argsort(-final, kind="stable")[k - 1]
    unread = np.flatnonzero(np.isnan(reading.scores))
    bound = _mixed(np.full(len(unread), CEILING), first[unread], weight)
    level, place = final[last], known[last]
    return bool(np.any((bound > level) | ((bound == level) & (unread < place))))


def _moved(hit: Hit, place: int, rank: int, cross: float, final: float) -> Hit:
    stage = Stage("rerank", cross, rank)
    return replace(hit, score=final, stages=(*hit.stages, stage), moved=place + 1 - rank)


def _answered(scores: Scores, reranker: CrossEncoder) -> bool | None:
    threshold = reranker.thresholds.get("answer")
    if threshold is None:
        return None
    return bool(len(scores)) and bool(scores.max() >= probabilities(threshold.value, reranker))


def _warn_truncated(max_length: int) -> None:
    # The same words for every query, so that Python shows them once; `Reranked.truncated` counts.
    warnings.warn(
        f"truncated: a passage and the query were together longer than the {max_length} tokens that the reranker "
        "reads, and the longer of them was cut; make an index with shorter passages (chunk_tokens), or raise the "
        "reranker's max_length where the model allows it",
        TruncationWarning,
        stacklevel=3,
    )
