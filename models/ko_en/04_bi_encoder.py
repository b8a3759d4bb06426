"""The bi-encoder: one multi-task training from e5's body, then weights a share of the way back to e5.

    python models/ko_en/04_bi_encoder.py --body out/body --texts out/data --silver out/silver --out out/bi

Tasks: similarity by order (silver pairs and people's), search (in-batch negatives and one mined by e5, and retention:
e5's own distribution over the same candidates), translations, a little NLI. No text has a prefix; e5's vectors, which
are kept to, are of texts with 'query: ' and 'passage: '.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import between, dev_searches, line_of, load, read_rows, say, scored_sets, search_scores, sts_scores
from settings import BI, Part
from torch import Tensor
from torch.nn import functional

from munjang.data import Examples, join
from munjang.encoders import BiEncoder
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives.base import Given, Objective
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]
QUERY, PASSAGE = "query: ", "passage: "
UNSEEN = ("unseen", "everyday")  # development sets of sources that are not trained on


class Search(Objective):
    """InfoNCE over the batch's passages and negatives, and KL to e5's distribution over the same candidates.

    L = a CE(s cos(q_i, c_j)) + b KL(softmax(s e5(q_i, c_j)) || softmax(s cos(q_i, c_j))), s the inverse temperature.
    vectors: e5's, one array [n, d] for each column.
    """

    kinds = ("pairs",)
    rowwise = False
    unique_texts = True

    def __init__(self, vectors: Sequence[Array], *, contrast: float, retention: float, scale: float) -> None:
        super().__init__()
        self.vectors, self.contrast, self.retention, self.scale = tuple(vectors), contrast, retention, scale

    def settings(self) -> dict[str, object]:
        return {"contrast": self.contrast, "retention": self.retention, "scale": self.scale}

    def guide(self, examples: Examples) -> tuple[Array, ...]:
        return self.vectors

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        queries, *candidates = (functional.normalize(each.float(), dim=1) for each in outputs)
        known, *others = given.guides
        scores = self.scale * queries @ torch.cat(candidates).T  # [n, n + m]
        wanted = (self.scale * known @ torch.cat(others).T).log_softmax(dim=1)
        own = torch.arange(len(queries), device=scores.device)
        kept = functional.kl_div(scores.log_softmax(dim=1), wanted, reduction="batchmean", log_target=True)
        return self.contrast * functional.cross_entropy(scores, own) + self.retention * kept


def search_rows(texts: Path, e5: BiEncoder) -> tuple[Examples, list[Array]]:
    """(query, passage, hard negative) and e5's vectors of each column."""
    rows = read_rows(texts / "passages.jsonl.xz")
    passages, groups = [row[0] for row in rows], np.unique([row[2] for row in rows], return_inverse=True)[1]
    asked = [(text, place) for place, row in enumerate(rows) for _, text in row[4]]
    queries, answers = [text for text, _ in asked], np.array([place for _, place in asked])
    of_queries = e5.encode_report([QUERY + text for text in queries], normalize=True).vectors
    of_passages = e5.encode_report([PASSAGE + text for text in passages], normalize=True).vectors
    say(f"{len(queries):,} queries and {len(passages):,} passages encoded by e5")
    most = min(BI.negatives_to, len(passages))
    near = top_k(of_queries, of_passages, most, memory_mb=8192, device=str(e5.device))
    own = (of_queries * of_passages[answers]).sum(axis=1, keepdims=True)
    wrong = groups[near.indices] != groups[answers][:, None]
    good = wrong & (near.scores < own - BI.margin)
    # Where e5 is mistaken all that is near looks better than the answer: then the far ones of the list.
    far = wrong & (np.arange(most) >= most // 2)
    good = np.where(good.any(axis=1, keepdims=True), good, far)
    found = good.any(axis=1)
    order = np.where(good, np.random.default_rng(BI.seed).random(good.shape) + 0.05 * np.arange(most), np.inf)
    negatives = near.indices[np.arange(len(near.indices)), order.argmin(axis=1)]
    first = float((near.indices[:, 0] == answers).mean())
    kept = np.array([row for row in np.flatnonzero(found) if queries[row].split() != passages[answers[row]].split()])
    say(f"{len(kept):,} rows with a negative; e5 finds {100 * first:.1f} % of the passages first")
    columns = {
        "anchor": [queries[row] for row in kept],
        "positive": [passages[answers[row]] for row in kept],
        "negative": [passages[negatives[row]] for row in kept],
    }
    vectors = [of_queries[kept], of_passages[answers[kept]], of_passages[negatives[kept]]]
    return Examples("queries", "pairs", columns), vectors


def translation_rows(texts: Path, e5: BiEncoder) -> tuple[Examples, list[Array]]:
    """(English, Korean) and the other way round, with e5's vectors."""
    pairs = [
        (a, b) if number % 2 else (b, a) for number, (_, a, b) in enumerate(read_rows(texts / "translations.jsonl.xz"))
    ]
    pairs = [pair for pair in pairs if pair[0].split() != pair[1].split()]
    examples = Examples("translations", "pairs", {"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    columns = zip((QUERY, PASSAGE), examples.columns.values(), strict=True)
    return examples, [
        e5.encode_report([prefix + text for text in column], normalize=True).vectors for prefix, column in columns
    ]


def silver_rows(texts: Path, silver: Path) -> Examples:
    sentences = [row[0] for row in read_rows(texts / "sentences.jsonl.xz")]
    stored = np.load(silver / "silver.npz")
    a, b = ([sentences[place] for place in side] for side in stored["pairs"].T.tolist())
    return Examples("silver", "scored", {"a": a, "b": b}, stored["labels"].astype(np.float32))


def nli_rows(texts: Path) -> Examples:
    rows = [row for row in read_rows(texts / "nli.jsonl.xz") if row[0].split() != row[1].split()]
    names = ("anchor", "positive", "negative")
    return Examples("nli", "pairs", {name: [row[i] for row in rows] for i, name in enumerate(names)})


def steps_of(examples: Examples, part: Part, model: BiEncoder, tokens_per_second: float) -> int:
    """As many steps as take the seconds of a part, by the mean length of its rows."""
    some = np.random.default_rng(0).permutation(len(examples))[:2000]
    taken = examples.take(np.sort(some))
    tokens = sum(int(model.tokenizer.encode(column).lengths.sum()) for column in taken.columns.values())
    return max(1, round(part.seconds * tokens_per_second / (tokens / len(taken) * min(part.batch, len(examples)))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--body", "--texts", "--silver", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--tokens-per-second", type=float, default=900_000.0, help="of the training on this device")
    parser.add_argument("--seconds", type=float, default=1.0, help="factor of the seconds of every part")
    parser.add_argument("--contrast", type=float, default=BI.contrast)
    parser.add_argument("--retention", type=float, default=BI.retention)
    parser.add_argument("--rate", type=float, default=BI.learning_rate)
    parser.add_argument("--rows", type=int, help="at most so many of each task, for a trial")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    e5 = load(asked.body, asked.device, BI.passage_length)
    dev, searches = scored_sets(asked.texts, "dev"), dev_searches(asked.texts)
    if asked.rows:
        searches = searches[:1]
    record: dict[str, object] = {}

    def measured(
        name: str, model: BiEncoder, query: str = "", passage: str = ""
    ) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        sts, search = sts_scores(model, dev), search_scores(model, searches, query=query, passage=passage)
        record[name] = {"sts": sts, "search": search}
        (asked.out / "dev.json").write_text(json.dumps(record, ensure_ascii=False, indent=1))
        say(f"{name}: {line_of(sts, search)}")
        return sts, search

    measured("e5 with prefixes", e5, QUERY, PASSAGE)
    rows, vectors = search_rows(asked.texts, e5)
    turned, turned_vectors = translation_rows(asked.texts, e5)
    options = {"contrast": asked.contrast, "retention": asked.retention, "scale": BI.scale}
    people = join(list(scored_sets(asked.texts, "train").values()), name="people")
    material: dict[str, tuple[Examples, Any]] = {
        "queries": (rows, lambda: Search(vectors, **options)),
        "translations": (turned, lambda: Search(turned_vectors, **options)),
        "silver": (silver_rows(asked.texts, asked.silver), lambda: objectives.CoSent(scale=BI.scale)),
        "people": (people, lambda: objectives.CoSent(scale=BI.scale)),
        "nli": (nli_rows(asked.texts), lambda: objectives.Ranking(scale=BI.scale)),
    }
    if asked.rows:
        material = {
            name: (one.take(np.arange(min(asked.rows, len(one)))), make) for name, (one, make) in material.items()
        }
        vectors[:], turned_vectors[:] = ([each[: asked.rows] for each in some] for some in (vectors, turned_vectors))
    model = load(asked.body, asked.device, BI.passage_length)
    parts = {name: BI.parts[name] for name in material}
    steps = {
        name: steps_of(material[name][0], part, model, asked.tokens_per_second * asked.seconds)
        for name, part in parts.items()
    }
    say(f"steps: {steps}")
    tasks = [
        Task(
            material[name][0], material[name][1](), batch_size=part.batch, weight=part.weight, share=float(steps[name])
        )
        for name, part in parts.items()
    ]
    settings = TrainingSettings(
        max_steps=sum(steps.values()),
        learning_rate=asked.rate,
        warm_up=BI.warm_up,
        token_budget=BI.token_budget,
        seed=BI.seed,
        log_every=50,
    )
    result = train(model, tasks, settings, progress=lambda done, total: None)
    say(f"trained: {result}; losses { ({name: round(value, 3) for name, value in result.losses.items()}) }")
    model.save(asked.out / "trained", dtype="int8")
    found = {}
    for share in BI.shares:
        sts, search = measured(f"{share:.1f} of the way", between(e5, model, share))
        unseen = [search[one.name][0] for one in searches if one.name.startswith(UNSEEN)] or [0.0]
        found[share] = fmean(sts.values()) + fmean(unseen)
    best = max(found, key=found.__getitem__)
    say(f"best by STS and the sets of sources that were not trained on: {best}")
    between(e5, model, best).save(asked.out / "model", dtype="int8")
    chosen = {"share": best, "steps": steps, "training": result.as_dict()}
    (asked.out / "chosen.json").write_text(json.dumps(chosen, default=str))


if __name__ == "__main__":
    main()
