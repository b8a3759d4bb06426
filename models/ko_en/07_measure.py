"""The report's table for finished models: run once, for the models that are to be shipped.

python models/ko_en/06_measure.py --data PUBLIC_SETS --bi out/bi/model [--reranker out/reranker/model] --out table.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from common import Search, orders, say, scored_lists
from settings import RERANKER

from munjang.data import load_dataset
from munjang.data.datasets import load_retrieval
from munjang.data.examples import Retrieval
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.evaluation.retrieval import RetrievalEvaluator
from munjang.evaluation.sts import StsEvaluator
from munjang.vectors import top_k

STS = (("korsts", "test"), ("klue-sts", "dev"), ("stsb", "test"), *((f"sts{year}", "test") for year in range(12, 17)))
SEARCH = (("korquad", "dev"), ("nfcorpus", "test"))


def some_of(retrieval: Retrieval, count: int) -> Search:
    """Every n-th query, about `count` of them, and the whole corpus."""
    place = {name: row for row, name in enumerate(retrieval.corpus)}
    names = [name for name, grades in retrieval.relevant.items() if any(grade > 0 for grade in grades.values())]
    names = names[:: max(1, len(names) // count)]
    answers = [[place[text] for text, grade in retrieval.relevant[name].items() if grade > 0] for name in names]
    return Search(retrieval.name, [retrieval.queries[name] for name in names], list(retrieval.corpus.values()), answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bi", type=Path, required=True)
    parser.add_argument("--reranker", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1000, help="that are reranked, of each retrieval set")
    parser.add_argument("--candidates", type=int, default=RERANKER.candidates)
    parser.add_argument("--cosine-weight", type=float, help="default: the one that 06 chose")
    args = parser.parse_args()
    model = BiEncoder.load(args.bi)
    reranker = None if args.reranker is None else CrossEncoder.load(args.reranker)
    weight = args.cosine_weight
    if weight is None and reranker is not None:
        weight = float(str(reranker.thresholds["answer"].measured["cosine weight"]))
    table: dict[str, object] = {}

    def keep(name: str, value: object) -> None:
        table[name] = value
        args.out.write_text(json.dumps(table, indent=1))
        say(f"{name}: {value}")

    for name, split in STS:
        examples = load_dataset(name, split, args.data)
        values = {"bi": round(100 * StsEvaluator(examples)(model).value, 2)}
        if reranker is not None:
            values["reranker"] = round(100 * StsEvaluator(examples)(reranker).value, 2)
        keep(f"{name} {split}", values)
    pairs = list(load_dataset("tatoeba", "test", args.data).columns.values())
    english, korean = (model.encode(side) for side in pairs)
    ways = [
        float((np.asarray(top_k(a, b, 1).indices)[:, 0] == np.arange(len(a))).mean())
        for a, b in ((english, korean), (korean, english))
    ]
    keep("tatoeba", {"en-ko": round(100 * ways[0], 2), "ko-en": round(100 * ways[1], 2)})
    for name, split in SEARCH:
        retrieval = load_retrieval(name, split, args.data)
        values = RetrievalEvaluator(retrieval)(model).values
        keep(f"{name} {split}", {key: round(100 * values[key], 2) for key in ("recall@1", "recall@10", "ndcg@10")})
        if reranker is not None:
            search = some_of(retrieval, args.queries)
            report = orders(*scored_lists(model, reranker, search, args.candidates), search.answers, [weight])
            keep(
                f"{name} {split}, {len(search.queries):,} queries: nDCG@10 (of relevant or not) and recall@1",
                {key: [round(value, 2) for value in both] for key, both in report.items()},
            )


if __name__ == "__main__":
    main()
