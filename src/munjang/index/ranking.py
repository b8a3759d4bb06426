"""The first stage of a search: query vectors or texts enter, the best documents leave, each by its best passage.

    semantic   nearest passages            -> documents
    keyword    passages by BM25            -> documents
    hybrid     both, fusion.DEPTH deep     -> fused by a weighted sum of normalised scores

A document stands where its best passage stands. Where many of the best passages belong to few documents, more are asked
for, until there are k documents or no passages left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    normalized: NDArray[np.float32] | None  # [<= k]; None where the scale is unknown


@dataclass(frozen=True)
class Candidate:
    """A document on its way to being a hit."""

    number: int  # of its best passage
    stages: tuple[Stage, ...]


def rank_documents(search: Search, layout: Layout, queries: int, k: int, allowed: Mask | None) -> list[Ranking]:
    """The k best documents of every query; fewer where there are fewer."""
    total = len(layout.numbers) if allowed is None else int(allowed.sum())
    nothing = np.zeros(0, np.float32)
    rankings = [Ranking(layout.numbers[:0], layout.numbers[:0], nothing, nothing)] * queries
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
            normalized = None if found.normalized is None else found.normalized[place][real]
            rankings[query] = _grouped(layout, found.numbers[place][real], found.scores[place][real], normalized, k)
            if len(rankings[query].rows) < k and real.sum() >= depth:
                again.append(query)
        if depth >= total:
            break
        depth = min(total, depth * 4)
        waiting = np.array(again, dtype=np.int64)
    return rankings


def _grouped(
    layout: Layout, numbers: Numbers, scores: NDArray[np.float32], normalized: NDArray[np.float32] | None, k: int
) -> Ranking:
    rows = layout.owners_of(numbers)
    _, first = np.unique(rows, return_index=True)  # the first, because best, passage of every document
    kept = np.sort(first)[:k]
    return Ranking(rows[kept], numbers[kept], scores[kept], None if normalized is None else normalized[kept])


def staged(name: StageName, ranking: Ranking) -> list[Candidate]:
    """Candidates of a search with one stage."""
    normalized = [None] * len(ranking.rows) if ranking.normalized is None else ranking.normalized.tolist()
    found = zip(ranking.numbers.tolist(), ranking.scores.tolist(), normalized, strict=True)
    return [
        Candidate(number, (Stage(name, score, rank, share),))
        for rank, (number, score, share) in enumerate(found, start=1)
    ]


def fused(semantic: Ranking, keyword: Ranking, k: int) -> list[Candidate]:
    """Candidates of both stages by `fusion.fuse`; a document in both shows its semantic passage."""
    assert semantic.normalized is not None  # hybrid searches have texts, and with them the model and its scale
    assert keyword.normalized is not None
    rows, scores = fuse((semantic.rows, semantic.normalized), (keyword.rows, keyword.normalized), k)
    known = [_by_row("semantic", semantic), _by_row("keyword", keyword)]
    candidates = []
    for rank, (row, score) in enumerate(zip(rows.tolist(), scores.tolist(), strict=True), start=1):
        earlier = [stage[row] for stage in known if row in stage]
        stages = (*(stage for one in earlier for stage in one.stages), Stage("hybrid", score, rank, score))
        candidates.append(Candidate(earlier[0].number, stages))
    return candidates


def _by_row(name: StageName, ranking: Ranking) -> dict[int, Candidate]:
    return dict(zip(ranking.rows.tolist(), staged(name, ranking), strict=True))


def subset(queries: Sequence[str], which: Numbers) -> list[str]:
    return [queries[place] for place in which.tolist()]
