"""The second stage of a search: the same hits in the order of a cross-encoder.

    final = logit of the cross-encoder + weight * normalised score of the first stage

The weight is the cross-encoder's own (`CrossEncoder.first_stage_weight`, from its munjang.json; 0 is its order alone).
A hit shows the calibrated probability, sigmoid(logit), so with a weight the order of the hits can differ from that of
their probabilities: the order also heeds the first search, the probability says how sure the cross-encoder is.
Each hit is read with the query by its title and best passage. Hits that read the same are read once.
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
from munjang.index.documents import title_of, titled
from munjang.index.results import Hit, Stage
from munjang.nn.calibration import sigmoid

Scores = NDArray[np.float64]

CANDIDATES = 30  # hits that are read where nothing else is said
MOST_CANDIDATES = 100  # hits that a time budget may reach
_FIRST = 8  # hits, at least, by which the speed is measured


@dataclass(frozen=True)
class Reranked:
    """The best hits in their new order, and what that took."""

    hits: list[Hit]
    scored: int  # hits that the cross-encoder read
    answered: bool | None  # whether a hit reaches the cross-encoder's "answer" threshold; None where it has none
    seconds: float
    truncated: int = 0  # pairs that were longer than the cross-encoder reads


def rerank(
    query: str,
    hits: Sequence[Hit],
    reranker: CrossEncoder,
    k: int,
    *,
    budget: float | None = None,
    title: str | None = None,
) -> Reranked:
    """Reorder hits of the first stage with a cross-encoder.

    Equal scores keep the first stage's order. A hit gets the stage "rerank" with its probability, and `moved` says how
    many places it rose.

    Args:
        query: The text that was searched for.
        hits: Best first.
        reranker: A cross-encoder with one score.
        k: How many hits to return.
        budget: Seconds. The best k hits are read in any case, further ones as far as the time allows (default: all).
        title: The field of the metadata that is read before the passage.
    """
    check_reranking(query, reranker, k)
    started = time.perf_counter()
    texts = [titled(title_of(hit.metadata, title), hit.passage.text) for hit in hits]
    logits, truncated = _read(query, texts, reranker, k, budget, started)  # [read]
    chances = probabilities(logits, reranker)
    weight = reranker.first_stage_weight
    final = logits + weight * np.array([hit.stages[-1].normalized or 0.0 for hit in hits[: len(logits)]])
    best = np.argsort(-final, kind="stable")[:k].tolist()
    if truncated:
        _warn_truncated(reranker.max_length)
    return Reranked(
        [_moved(hits[place], place, rank, float(chances[place])) for rank, place in enumerate(best, start=1)],
        len(logits),
        _answered(chances, reranker),
        time.perf_counter() - started,
        truncated,
    )


def check_reranking(query: object, reranker: CrossEncoder, k: int) -> None:
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


def _read(
    query: str, texts: Sequence[str], reranker: CrossEncoder, k: int, budget: float | None, started: float
) -> tuple[Scores, int]:
    """The logits of the first texts, of all or as many as the budget allows; and how many pairs were truncated."""
    known: dict[str, float] = {}
    truncated = 0

    def read_to(end: int) -> None:
        nonlocal truncated
        fresh = [text for text in dict.fromkeys(texts[:end]) if text not in known]
        if fresh:
            predicted = reranker.predict_report([(query, text) for text in fresh], raw=True)
            known.update(zip(fresh, predicted.scores.astype(np.float64).reshape(-1).tolist(), strict=True))
            truncated += predicted.report.truncated

    end = len(texts)
    if budget is not None:
        end = min(len(texts), max(k, _FIRST))
        read_to(end)
        used = time.perf_counter() - started
        end = min(len(texts), end + int(end * max(0.0, budget - used) / used))  # at the speed of the first ones
    read_to(end)
    return np.array([known[text] for text in texts[:end]], np.float64), truncated


def probabilities(logits: NDArray[np.floating[Any]], reranker: CrossEncoder) -> Scores:
    """Logits as 0..1, in the same order: what `predict` gives, but for a saved activation that is no sigmoid."""
    plain = np.asarray(logits, np.float64)
    if reranker.parts.activation == "Tanh":
        return np.asarray((np.tanh(plain) + 1.0) / 2.0)
    return np.asarray(sigmoid(plain))


def _moved(hit: Hit, place: int, rank: int, chance: float) -> Hit:
    stage = Stage("rerank", chance, rank, chance)
    return replace(hit, score=chance, stages=(*hit.stages, stage), moved=place + 1 - rank)


def _answered(chances: Scores, reranker: CrossEncoder) -> bool | None:
    """Whether the best probability reaches the threshold, which is in the units of `predict`."""
    threshold = reranker.thresholds.get("answer")
    if threshold is None:
        return None
    activation, least = reranker.parts.activation, threshold.value
    if activation == "Tanh":
        least = (least + 1.0) / 2.0
    elif activation != "Sigmoid":
        least = float(sigmoid(np.array([least]))[0])
    return bool(len(chances)) and bool(chances.max() >= least)


def _warn_truncated(max_length: int) -> None:
    # The same words for every query, so that Python shows them once; `Reranked.truncated` counts.
    warnings.warn(
        f"truncated: a passage and the query were together longer than the {max_length} tokens that the reranker "
        "reads, and the longer of them was cut; make an index with shorter passages (chunk_tokens), or raise the "
        "reranker's max_length where the model allows it",
        TruncationWarning,
        stacklevel=3,
    )
