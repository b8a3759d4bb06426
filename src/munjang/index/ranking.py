"""The first stage of a search: query vectors or texts enter, the best documents leave, each by its best passage.

    semantic   nearest passages            -> documents
    keyword    passages by BM25            -> documents
    hybrid     both, `candidates` deep     -> fused by reciprocal ranks

A document stands where its best passage stands. Where many of the best passages belong to few documents, more are asked
for, until there are k documents or no passages left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from munjang.index.columns import Mask
from munjang.index.fusion import fuse
from munjang.index.passages import Found
from munjang.index.results import Stage, StageName
from munjang.index.state import Layout, Numbers

Search = Callable[[Numbers, int], Found]  # (which queries [p], how many passages) -> [p, how many]


@dataclass(frozen=True)
class Ranking:
    """The documents of one query, best first."""

    rows: Numbers  # [<= k], of the documents
    numbers: Numbers  # [<= k], their best passages
    scores: NDArray[np.float32]  # [<= k]


@dataclass(frozen=True)
class Candidate:
    """A document on its way to being a hit."""

    number: int  # of its best passage
    stages: tuple[Stage, ...]


def rank_documents(search: Search, layout: Layout, queries: int, k: int, allowed: Mask | None) -> list[Ranking]:
    """The k best documents of every query; fewer where there are fewer."""
    total = len(layout.numbers) if allowed is None else int(allowed.sum())
    empty = Ranking(layout.numbers[:0], layout.numbers[:0], np.zeros(0, np.float32))
    rankings = [empty] * queries
    if not total:
        return rankings
    many = len(layout.numbers) / len(layout.rows)  # passages to a document
    depth = min(total, math.ceil(k * many) + (8 if many > 1 else 0))
    waiting = np.arange(queries)
    while len(waiting):
        found = search(waiting, depth)
        again = []
        for place, query in enumerate(waiting.tolist()):
            real = found.numbers[place] >= 0
            rankings[query] = _grouped(layout, found.numbers[place][real], found.scores[place][real], k)
            if len(rankings[query].rows) < k and real.sum() >= depth:
                again.append(query)
        if depth >= total:
            break
        depth = min(total, depth * 4)
        waiting = np.array(again, dtype=np.int64)
    return rankings


def _grouped(layout: Layout, numbers: Numbers, scores: NDArray[np.float32], k: int) -> Ranking:
    rows = layout.owners_of(numbers)
    _, first = np.unique(rows, return_index=True)  # the first, because best, passage of every document
    kept = np.sort(first)[:k]
    return Ranking(rows[kept], numbers[kept], scores[kept])


def staged(name: StageName, ranking: Ranking) -> list[Candidate]:
    """Candidates of a search with one stage."""
    return [
        Candidate(int(number), (Stage(name, float(score), rank),))
        for rank, (number, score) in enumerate(zip(ranking.numbers, ranking.scores, strict=True), start=1)
    ]


def fused(rankings: Mapping[StageName, Ranking], k: int) -> list[Candidate]:
    """Candidates of several stages, by the sum of 1 / (60 + rank); the first stage that has one shows its passage."""
    rows, scores = fuse([ranking.rows for ranking in rankings.values()], k=k)
    known = {name: _by_row(name, ranking) for name, ranking in rankings.items()}
    candidates = []
    for rank, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True), start=1):
        before = [known[name][row] for name in known if row in known[name]]
        stages = (*(stage for one in before for stage in one.stages), Stage("hybrid", score, rank))
        candidates.append(Candidate(before[0].number, stages))
    return candidates


def _by_row(name: StageName, ranking: Ranking) -> dict[int, Candidate]:
    return dict(zip(ranking.rows.tolist(), staged(name, ranking), strict=True))


def subset(queries: Sequence[str], which: Numbers) -> list[str]:
    return [queries[place] for place in which.tolist()]
