r"""A measured model -> the folder that the package loads: thresholds, card, int8 weights.

    python models/ko_en/08_finish.py --data PUBLIC_SETS --bi out/2/bi/model --table report.json --out out/final/ko-en
    python models/ko_en/08_finish.py --data PUBLIC_SETS --reranker out/2/reranker/model --table report.json \
        --out out/final/rerank-ko-en

Thresholds of the bi-encoder: 'paraphrase' has the best mean F1 of KorSTS dev, STSb dev (4 of 5 and more means the same)
and 300 groups of ParaKQC; 'cluster' the best F1 over pairs of these groups. The reranker has its threshold from 06.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from common import say
from settings import VERSION

import munjang
from munjang.data import load_dataset
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.types import Threshold

Array = np.ndarray[Any, Any]
GROUPS = 300  # of ParaKQC's 1,000; the others are measured on
CARD = """---
language: [ko, en]
license: cc-by-sa-4.0
library_name: munjang
base_model: intfloat/multilingual-e5-small
pipeline_tag: {pipeline}
---

# {name}

Version {version}. {what}

```python
import munjang

{code}
```

| set | score |
|---|---:|
{table}

{notes}
How it was made, with sources and licences: `models/ko_en/README.md` in the repository.
"""


def f1_curve(same: Array, scores: Array, positives: int, steps: Array) -> Array:
    """F1 at every threshold of `steps`, which fall; same: bool [n], scores: [n], positives: in all."""
    order = np.argsort(-scores, kind="stable")
    right = np.concatenate(([0.0], np.cumsum(same[order])))
    taken = np.searchsorted(-scores[order], -steps, side="right")
    return np.asarray(2 * right[taken] / (taken + positives))


def group_f1(groups: Array, labels: Array) -> float:
    """F1 over pairs of rows: in one group, and in one cluster (label -1: in none)."""

    def pairs(counts: Array) -> float:
        return float((counts * (counts - 1) / 2).sum())

    inside = labels >= 0
    both = np.unique(np.stack([groups[inside], labels[inside]]), axis=1, return_counts=True)[1]
    made, wanted = pairs(np.bincount(labels[inside])), pairs(np.bincount(groups))
    return 2 * pairs(both) / (made + wanted)


def thresholds(model: BiEncoder, data: Path) -> dict[str, Threshold]:
    steps = np.round(np.arange(0.99, 0.3, -0.001), 3)
    curves = {}
    for name in ("korsts", "stsb"):
        examples = load_dataset(name, "dev", data)
        a, b = (model.encode(column, normalize=True) for column in examples.columns.values())
        same = np.asarray(examples.targets) >= 0.8
        curves[f"{name} dev"] = f1_curve(same, (a * b).sum(axis=1), int(same.sum()), steps)
    questions = load_dataset("parakqc", "test", data)
    names = sorted(questions.labels)[:GROUPS]
    rows = [row for row, label in enumerate(np.asarray(questions.targets)) if questions.labels[int(label)] in names]
    groups = np.asarray(questions.targets)[rows]
    vectors = model.encode([questions.columns["text"][row] for row in rows], normalize=True)
    left, right = np.triu_indices(len(rows), 1)
    same = groups[left] == groups[right]
    curves["ParaKQC"] = f1_curve(same, (vectors @ vectors.T)[left, right], int(same.sum()), steps)
    mean = np.mean(list(curves.values()), axis=0)
    best = int(mean.argmax())
    measured = {name: {"f1": round(float(c[best]), 4), "best": round(float(c.max()), 4)} for name, c in curves.items()}
    say(f"paraphrase: {steps[best]} {measured}")
    meaning = "two texts mean the same where the cosine of their vectors is at least this"
    limits = {
        "paraphrase": Threshold(float(steps[best]), "paraphrase", meaning, {"chosen by": "mean f1", "sets": measured})
    }
    tried = {}
    for step in np.round(np.arange(0.96, 0.7, -0.01), 2).tolist():
        clusters = munjang.cluster(vectors, method="communities", threshold=step, min_size=2)
        tried[step] = group_f1(groups, clusters.labels)
    step = max(tried, key=tried.__getitem__)
    say(f"cluster: {step} {tried[step]:.4f}")
    meaning = "a text belongs to a community where the cosine with its centre is at least this"
    limits["cluster"] = Threshold(
        step, "cluster", meaning, {"chosen by": "f1 over pairs", "ParaKQC": round(tried[step], 4)}
    )
    return limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--data", "--table", "--out"):
        parser.add_argument(name, type=Path, required=True)
    model_of = parser.add_mutually_exclusive_group(required=True)
    model_of.add_argument("--bi", type=Path)
    model_of.add_argument("--reranker", type=Path)
    args = parser.parse_args()
    table = json.loads(args.table.read_text())
    side = "bi" if args.bi is not None else "reranker"
    lines = []
    for name, values in table.items():
        shown = values.get(side) if isinstance(values, dict) and side in values else values
        if isinstance(shown, dict):  # a set of several figures
            shown = ", ".join(f"{key} {value}" for key, value in shown.items() if key not in ("bi", "reranker"))
        if shown:
            lines.append(f"| {name} | {shown} |")
    common: dict[str, Any] = {"version": VERSION, "table": "\n".join(lines)}
    if args.bi is not None:
        bi = BiEncoder.load(args.bi)
        bi = bi.with_thresholds(thresholds(bi, args.data))
        card = CARD.format(
            name="munjang-ko-en",
            pipeline="sentence-similarity",
            what="Sentence embeddings for Korean and English: 12 layers of 384, 30,000 pieces, 512 tokens. Texts need "
            "no prefix. Vectors of other versions cannot be compared with these.",
            code='model = munjang.load("munjang-ko-en")\nvectors = model.encode(["비가 온다.", "It is raining."])',
            notes="Cosines are high: unrelated texts have 0.7; for paraphrases see the threshold in `munjang.json`.\n",
            **common,
        )
        bi.save(args.out, dtype="int8", card=card)
        say(f"{args.out}: fingerprint {BiEncoder.load(args.out).fingerprint}")
    else:
        cross = CrossEncoder.load(args.reranker)
        card = CARD.format(
            name="munjang-rerank-ko-en",
            pipeline="text-ranking",
            what="Scores a question and a passage: the probability that the passage answers it.",
            code='reranker = munjang.load_reranker("munjang-rerank-ko-en")\nreranker.rank("question", ["passage"])',
            notes="Order candidates by logit + weight x cosine of the bi-encoder (`munjang.json`: `cosine weight`).\n",
            **common,
        )
        cross.save(args.out, dtype="int8", card=card)
        say(f"{args.out}: fingerprint {CrossEncoder.load(args.out).fingerprint}")


if __name__ == "__main__":
    main()
