"""The reranker: some layers of the bi-encoder's body, trained on lists of passages, some of them without an answer.

    python models/ko_en/05_reranker.py --bi out/bi/trained --texts out/data --out out/reranker

A list is a query, its passage and negatives that the bi-encoder ranks high. A candidate of logit 0, 'none of these',
stands in every list: it is right where the passage was taken out, so that a score above one half means an answer.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Search, dev_searches, load, ndcg_and_recall, read_rows, say, scored_sets, sts_scores
from settings import RERANKER
from torch import Tensor
from torch.nn import functional

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.students import fewer_layers
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives.base import Given
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]


class AnswerOrNone(objectives.CrossRanking):
    """Cross-entropy over a list and a candidate of logit 0, which is right where no target of the row is 1."""

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        logits = torch.cat([*outputs, torch.zeros_like(outputs[0])], dim=1)  # [n, candidates + 1]
        right = torch.cat([given.targets, 1 - given.targets.sum(dim=1, keepdim=True)], dim=1).argmax(dim=1)
        return functional.cross_entropy(logits.float(), right)


def lists_of(texts: Path, model: BiEncoder, most: int | None) -> Examples:
    rows = read_rows(texts / "passages.jsonl.xz")
    passages, groups = [row[0] for row in rows], np.unique([row[2] for row in rows], return_inverse=True)[1]
    asked = [(text, place) for place, row in enumerate(rows) for _, text in row[4] if text.split() != row[0].split()]
    asked = [asked[i] for i in np.random.default_rng(RERANKER.seed).permutation(len(asked))[:most]]
    queries, answers = [text for text, _ in asked], np.array([place for _, place in asked])
    of_passages = model.encode_report(passages, normalize=True).vectors
    of_queries = model.encode_report(queries, normalize=True).vectors
    near = top_k(of_queries, of_passages, min(60, len(passages)), memory_mb=8192, device=str(model.device))
    own = (of_queries * of_passages[answers]).sum(axis=1, keepdims=True)
    good = (groups[near.indices] != groups[answers][:, None]) & (near.scores < own + RERANKER.margin)
    draw = np.random.default_rng(RERANKER.seed + 1)
    ranks = np.where(good, np.arange(near.indices.shape[1]) * draw.random(good.shape), np.inf)  # near ones more often
    order = ranks.argsort(axis=1)[:, : RERANKER.negatives]
    chosen = np.take_along_axis(near.indices, order, axis=1)
    missing = ~np.isfinite(np.take_along_axis(ranks, order, axis=1))
    chosen[missing] = draw.integers(0, len(passages), int(missing.sum()))
    targets = np.zeros((len(asked), RERANKER.negatives + 1), np.float32)
    targets[:, 0] = 1
    without = draw.random(len(asked)) < RERANKER.without_answer
    targets[without] = 0
    first = np.where(without, draw.integers(0, len(passages), len(asked)), answers)
    columns = {"anchor": queries, "positive": [passages[place] for place in first]}
    for number in range(RERANKER.negatives):
        columns["negative" if number == 0 else f"negative_{number + 1}"] = [
            passages[place] for place in chosen[:, number]
        ]
    kept = [
        row
        for row, (query, place) in enumerate(zip(queries, first, strict=True))
        if query.split() != passages[place].split()
    ]
    return Examples("lists", "pairs", columns, targets).take(np.array(kept))


def reranked(bi: BiEncoder, cross: CrossEncoder, one: Search, candidates: int = 30) -> dict[str, float]:
    """nDCG@10 and recall@1 after reranking, and how well the best score tells lists without their answer."""
    asked, texts = (bi.encode_report(some, normalize=True).vectors for some in (one.queries, one.passages))
    near = np.asarray(top_k(asked, texts, min(candidates, len(texts)), device=str(bi.device)).indices)
    pairs = [
        (query, one.passages[place]) for query, row in zip(one.queries, near.tolist(), strict=True) for place in row
    ]
    scores = cross.predict_report(pairs).scores.reshape(near.shape)
    order = np.take_along_axis(near, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    ndcg, first = ndcg_and_recall(order, one.answers)
    right = np.array([np.isin(row, answers) for row, answers in zip(near.tolist(), one.answers, strict=True)])
    best, without = scores.max(axis=1), np.where(right, 0, scores).max(axis=1)
    return {
        "ndcg": ndcg,
        "first": first,
        "answered": 100 * float((best > 0.5).mean()),
        "refused": 100 * float((without <= 0.5).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--bi", "--texts", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--tokens-per-second", type=float, default=1_000_000.0, help="of the training on this device")
    parser.add_argument("--seconds", type=float, default=RERANKER.seconds)
    parser.add_argument("--rows", type=int, help="at most so many lists, for a trial")
    parser.add_argument("--layers", type=int, nargs="+", default=list(RERANKER.layers))
    asked = parser.parse_args()
    bi = load(asked.bi, asked.device, RERANKER.passage_length)
    lists = lists_of(asked.texts, bi, asked.rows)
    say(f"{len(lists):,} lists")
    cross = CrossEncoder.from_body(fewer_layers(bi.parts, asked.layers), 1, seed=RERANKER.seed, device=asked.device)
    cross.max_length = min(RERANKER.max_length, bi.parts.body.max_positions)
    some = lists.take(np.arange(min(len(lists), 500)))
    tokens = sum(int(bi.tokenizer.encode(column).lengths.sum()) for column in some.columns.values()) / len(some)
    tokens += RERANKER.negatives * float(np.mean([len(text) for text in some.columns["anchor"]])) / 2
    steps = max(1, round(asked.seconds * asked.tokens_per_second / (tokens * RERANKER.lists)))
    settings = TrainingSettings(
        max_steps=steps,
        batch_size=RERANKER.lists,
        learning_rate=RERANKER.learning_rate,
        warm_up=0.06,
        token_budget=262_144,
        seed=RERANKER.seed,
        log_every=50,
    )
    result = train(cross, [Task(lists, AnswerOrNone())], settings)
    say(f"trained: {result}; losses {result.losses}")
    cross.save(asked.out / "model", dtype="int8")
    found: dict[str, object] = {}
    for one in dev_searches(asked.texts)[: 1 if asked.rows else None]:
        found[one.name] = reranked(bi, cross, one)
        say(f"{one.name}: {found[one.name]}")
        (asked.out / "dev.json").write_text(json.dumps(found, ensure_ascii=False, indent=1))
    say(f"STS: {sts_scores(cross, scored_sets(asked.texts, 'dev'))}")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
