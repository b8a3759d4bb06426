"""How semantic and keyword hits are fused, and what the first stage's score weighs beside the reranker's logit.

python models/ko_en/09_fusion.py --texts out/data --bi out/final/ko-en [--reranker out/reranker/model] --out fusion.json

Enters: the development sets of 02. Leaves: nDCG@10 and recall@1 of every set, for BM25, the bi-encoder, reciprocal
ranks, and every weight of `munjang.index.fusion.fuse`; with --reranker for every weight of the first stage. --keep
writes the one that was chosen into the reranker's munjang.json. Chosen: fusion.WEIGHT = 0.8; 30 for that of 0.1.0.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

import numpy as np
from common import Array, Search, dev_searches, ndcg_and_recall, say

import munjang
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.index.fusion import DEPTH, WEIGHT, fuse
from munjang.index.results import Results

WEIGHTS = (0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
FIRST_STAGE = (0, 10, 20, 30, 40, 50, 60, 80)
# Queries that people wrote, in the language of their passages; their mean chooses the weight of the fusion.
PEOPLE = (
    "bills", "bills, no spaces", "manuals ko", "manuals en", "unseen manuals ko", "unseen ko, no spaces",
    "unseen ko, casual", "unseen manuals en", "everyday",
)  # fmt: skip
Both = tuple[float, float]  # nDCG@10 and recall@1


def rankings(search: Search, model: BiEncoder) -> list[tuple[tuple[Array, Array], tuple[Array, Array]]]:
    """For every query the places and normalised scores of its nearest passages, and of those by BM25."""
    passages = munjang.TextCollection(
        [{"id": str(row), "text": text} for row, text in enumerate(search.passages)], model
    )
    queries = [query.replace('"', " ") for query in search.queries]
    semantic, keyword = (passages.search_many(queries, DEPTH, mode=mode) for mode in ("semantic", "keyword"))
    return [(scored(near), scored(words)) for near, words in zip(semantic, keyword, strict=True)]


def scored(hits: Results) -> tuple[Array, Array]:
    scores = [hit.stages[0].normalized for hit in hits]
    return np.array([int(hit.id) for hit in hits], np.int64), np.array(scores, np.float32)


def padded(rows: list[Array]) -> Array:
    """Places [queries, 10]; -1 where there are fewer."""
    found = np.full((len(rows), 10), -1, np.int64)
    for line, row in zip(found, rows, strict=True):
        line[: len(row[:10])] = row[:10]
    return found


def reciprocal(semantic: Array, keyword: Array) -> Array:
    """Reciprocal rank fusion with the usual constant, to compare with."""
    scores: dict[int, float] = {}
    for ranking in (semantic, keyword):
        for rank, row in enumerate(ranking.tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (60 + rank)
    return np.array(sorted(scores, key=lambda row: (-scores[row], row)), np.int64)


def fused_scores(search: Search, model: BiEncoder) -> tuple[dict[str, Both], list[tuple[Array, Array]]]:
    """The table of a set, and the first 30 places of every query with their fused scores."""
    lists = rankings(search, model)
    report = {
        "bm25": ndcg_and_recall(padded([keyword[0] for _, keyword in lists]), search.answers),
        "semantic": ndcg_and_recall(padded([semantic[0] for semantic, _ in lists]), search.answers),
        "ranks": ndcg_and_recall(padded([reciprocal(a[0], b[0]) for a, b in lists]), search.answers),
    }
    for weight in WEIGHTS:
        rows = [fuse(semantic, keyword, 10, weight=weight)[0] for semantic, keyword in lists]
        report[f"{weight:g}"] = ndcg_and_recall(padded(rows), search.answers)
    return report, [fuse(semantic, keyword, 30) for semantic, keyword in lists]


def reranked_scores(
    search: Search, first: list[tuple[Array, Array]], cross: CrossEncoder, count: int
) -> dict[str, Both]:
    """nDCG@10 and recall@1 by the weight of the first stage, of about `count` queries."""
    step = max(1, len(first) // count)
    queries, answers, first = search.queries[::step], search.answers[::step], first[::step]
    pairs = [
        (query, search.passages[p]) for query, (rows, _) in zip(queries, first, strict=True) for p in rows.tolist()
    ]
    ends = np.cumsum([len(rows) for rows, _ in first])[:-1]
    logits = np.split(cross.predict(pairs, raw=True), ends)
    report = {}
    for weight in FIRST_STAGE:
        orders = [
            rows[np.argsort(-(logit + weight * scores), kind="stable")]
            for (rows, scores), logit in zip(first, logits, strict=True)
        ]
        report[f"{weight:g}"] = ndcg_and_recall(padded(orders), answers)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--bi", type=Path, required=True)
    parser.add_argument("--reranker", type=Path)
    parser.add_argument("--queries", type=int, default=100, help="of each set, that are reranked; all of everyday")
    parser.add_argument(
        "--keep", type=float, metavar="WEIGHT", help="write this weight into the reranker's munjang.json"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = BiEncoder.load(args.bi)
    cross = None if args.reranker is None else CrossEncoder.load(args.reranker)
    table: dict[str, dict[str, dict[str, Both]]] = {"fusion": {}, "reranked": {}}
    for search in dev_searches(args.texts):
        if not any(search.answers):
            continue
        table["fusion"][search.name], first = fused_scores(search, model)
        if cross is not None:
            count = len(first) if search.name == "everyday" else args.queries
            table["reranked"][search.name] = reranked_scores(search, first, cross, count)
        args.out.write_text(json.dumps(table, indent=1))
        say(search.name)
    for name, sets in table.items():
        for key in next(iter(sets.values()), {}):
            people, every = ([sets[one][key] for one in names if one in sets] for names in (PEOPLE, sets))
            means = (fmean(value[column] for value in some) for some in (people, every) for column in (0, 1))
            say(f"{name} {key}: people {next(means):.2f}/{next(means):.2f} all {next(means):.2f}/{next(means):.2f}")
    say(f"fusion.WEIGHT is {WEIGHT:g}")
    if args.keep is not None:
        assert cross is not None
        path = args.reranker / "munjang.json"
        content = json.loads(path.read_text(encoding="utf-8")) | {"first_stage_weight": args.keep}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
