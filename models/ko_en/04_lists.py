r"""Queries and translations -> lists of a right passage and wrong ones, with what three models say of them.

    python models/ko_en/04_lists.py --body out/body --miner out/1/model --texts out/data --reranker RERANKER \
        --out out/lists

Wrong passages are drawn from the first ones of the miner (e5's body, in round two the bi-encoder of round one) and of
BM25. e5 (with its prefixes), the miner and an earlier reranker score every list: both trainings learn from their sum.
Writes lists.npz, translations.npz, and e5's vectors of all queries and passages (float16).
"""

from __future__ import annotations

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
from common import Questions, load, questions_of, read_rows, say, unit_vectors
from settings import LISTS

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.recipes.augmenting.bm25 import BM25
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]
QUERY, PASSAGE = "query: ", "passage: "
_bm25: BM25  # of the processes that search


def _first_by_words(queries: list[str]) -> Array:
    """int32 [queries, LISTS.by_words]: BM25's first passages."""
    rows = []
    for query in queries:
        scores = _bm25.scores(query)
        best = np.argpartition(-scores, min(LISTS.by_words, len(scores) - 1))[: LISTS.by_words]
        rows.append(best[np.argsort(-scores[best], kind="stable")])
    return np.stack(rows).astype(np.int32)


def by_words(passages: list[str], queries: list[str], processes: int) -> Array:
    global _bm25
    _bm25 = BM25.of(passages)
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        parts = [queries[at : at + 500] for at in range(0, len(queries), 500)]
        return np.concatenate(pool.map(_first_by_words, parts))


def negatives_of(near: Array, words: Array, forbidden: Array, draw: np.random.Generator) -> Array:
    """int32 [n, LISTS.negatives]: passages of other groups, mostly of the first ones by vectors, some by words.

    forbidden: bool [n, near + words]: of the query's own group. Where too few are left, the same stands there twice.
    """
    candidates = np.concatenate([near, words], axis=1)
    ranks = np.concatenate([np.arange(near.shape[1]) + 1.0, 2.5 * np.arange(words.shape[1]) + 1.0])
    keys = np.where(forbidden, np.inf, ranks * draw.exponential(size=candidates.shape))
    for column in range(1, candidates.shape[1]):  # what both found stands in the list once
        keys[(candidates[:, :column] == candidates[:, column : column + 1]).any(axis=1), column] = np.inf
    order = keys.argsort(axis=1)[:, : LISTS.negatives]
    chosen = np.take_along_axis(candidates, order, axis=1)
    missing = ~np.isfinite(np.take_along_axis(keys, order, axis=1))
    chosen[missing] = draw.integers(0, candidates.max() + 1, int(missing.sum()))
    return chosen.astype(np.int32)


def cosines(queries: Array, passages: Array, rows: Array, places: Array) -> Array:
    """float16 [n, candidates]: of queries[rows] with passages[places], some rows at a time."""
    parts = [
        np.einsum("nd,ncd->nc", queries[rows[at : at + 4096]], passages[places[at : at + 4096]])
        for at in range(0, len(rows), 4096)
    ]
    return np.concatenate(parts).astype(np.float16)


def search_lists(
    questions: Questions,
    e5: BiEncoder,
    miner: BiEncoder,
    reranker: CrossEncoder,
    out: Path,
    *,
    most: int,
    processes: int,
) -> None:
    own_e5 = unit_vectors(e5, [QUERY + text for text in questions.queries])
    passages_e5 = unit_vectors(e5, [PASSAGE + text for text in questions.passages])
    np.savez(out / "e5.npz", queries=own_e5.astype(np.float16), passages=passages_e5.astype(np.float16))
    own, passages = unit_vectors(miner, questions.queries), unit_vectors(miner, questions.passages)
    say(f"{len(questions.queries):,} queries and {len(questions.passages):,} passages encoded by e5 and by the miner")
    draw = np.random.default_rng(LISTS.seed)
    rows = draw.permutation(len(questions.queries))[:most]
    answers = questions.answers[rows]
    near = top_k(own[rows], passages, min(LISTS.by_vectors, len(passages)), memory_mb=8192, device=str(miner.device))
    words = by_words(questions.passages, [questions.queries[row] for row in rows], processes)
    candidates = np.concatenate([np.asarray(near.indices), words], axis=1)
    own_group = questions.groups[candidates] == questions.groups[answers][:, None]
    places = np.concatenate(
        [answers[:, None], negatives_of(np.asarray(near.indices), words, own_group, draw)], axis=1
    ).astype(np.int32)
    first = [float((column[:, 0] == answers).mean()) for column in (np.asarray(near.indices), words)]
    say(f"{len(rows):,} lists; first: miner {100 * first[0]:.1f} %, BM25 {100 * first[1]:.1f} %")
    pairs = (
        (questions.queries[row], questions.passages[place])
        for row, some in zip(rows.tolist(), places.tolist(), strict=True)
        for place in some
    )
    judged = reranker.predict(pairs, raw=True).reshape(places.shape)
    say(f"the reranker puts the answer first in {100 * float((judged.argmax(axis=1) == 0).mean()):.1f} % of the lists")
    np.savez_compressed(
        out / "lists.npz",
        rows=rows.astype(np.int32),
        places=places,
        e5=cosines(own_e5, passages_e5, rows, places),
        miner=cosines(own, passages, rows, places),
        reranker=judged.astype(np.float16),
    )


def translation_lists(texts: Path, miner: BiEncoder, out: Path) -> None:
    """places int32 [2 n, 1 + negatives] in the other language, the translation first; the first n ask in English."""
    rows = read_rows(texts / "translations.jsonl.xz")
    english, korean = (unit_vectors(miner, [row[side] for row in rows]) for side in (1, 2))
    draw = np.random.default_rng(LISTS.seed)
    found, scores = [], []
    for own, other, side in ((english, korean, 2), (korean, english, 1)):
        names = np.unique([" ".join(row[side].split()).casefold() for row in rows], return_inverse=True)[1]
        near = np.asarray(top_k(own, other, min(LISTS.by_vectors, len(rows)), device=str(miner.device)).indices)
        same = names[near] == names[: len(near), None]
        nothing = np.zeros((len(near), 0), np.int32)
        places = np.concatenate([np.arange(len(near))[:, None], negatives_of(near, nothing, same, draw)], axis=1)
        found.append(places.astype(np.int32))
        scores.append(cosines(own, other, np.arange(len(near)), places))
    np.savez_compressed(out / "translations.npz", places=np.concatenate(found), miner=np.concatenate(scores))
    say(f"{2 * len(rows):,} lists of translations")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--body", "--miner", "--texts", "--reranker", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--lists", type=int, default=LISTS.lists)
    parser.add_argument("--processes", type=int, default=8)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    e5, miner = (load(folder, args.device, LISTS.passage_length) for folder in (args.body, args.miner))
    reranker = CrossEncoder.load(args.reranker, device=args.device)
    questions = questions_of(args.texts)
    search_lists(questions, e5, miner, reranker, args.out, most=args.lists, processes=args.processes)
    translation_lists(args.texts, miner, args.out)


if __name__ == "__main__":
    main()
