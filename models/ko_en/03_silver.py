"""Sentences -> pairs of neighbours with labels: what the bi-encoder learns similarity from.

    python models/ko_en/03_silver.py --body out/body --texts out/data --reranker RERANKER --out out/silver

Pairs are each sentence with its nearest others by e5. Labels are the mean of cross-encoders on e5's body that learned
people's scores and of an earlier reranker. A second round of cross-encoders learns the first labels before the scores.
Pairs of development and evaluation sets are never labelled.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import load, read_rows, say, scored_sets
from settings import SILVER

from munjang.data import Examples, join
from munjang.encoders import CrossEncoder
from munjang.evaluation.metrics import spearman
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]


def neighbour_pairs(rows: list[list[Any]], vectors: Array, device: str) -> Array:
    """int64 [pairs, 2], the lower place first: nearest others, translations of them, and random pairs."""
    judged = np.array([kind == "judged" for _, kind, _ in rows])
    twins = np.array([place for *_, place in rows])
    counts = np.where(
        judged, SILVER.judged_neighbours, np.where(twins >= 0, SILVER.translated_neighbours, SILVER.neighbours)
    )
    most = min(SILVER.judged_neighbours, len(rows) - 1)
    near = np.asarray(top_k(vectors, vectors, most, exclude_self=True, memory_mb=8192, device=device).indices)
    firsts, places = np.nonzero(np.arange(most) < counts[:, None])
    pairs = np.stack([firsts, near[firsts, places]], axis=1)
    draw = np.random.default_rng(0)
    random = draw.integers(0, len(rows), (round(SILVER.random_share * len(pairs)), 2))
    across = pairs[(twins[pairs[:, 1]] >= 0) & (draw.random(len(pairs)) < 0.3)]  # the neighbour in the other language
    across = np.stack([across[:, 0], twins[across[:, 1]]], axis=1)
    own = np.flatnonzero(twins > np.arange(len(rows)))
    own = draw.permutation(own)[: len(own) // 4]
    found = np.concatenate([pairs, random, across, np.stack([own, twins[own]], axis=1)])
    found = np.unique(np.sort(found, axis=1), axis=0)
    return found[found[:, 0] != found[:, 1]]


def without_known(rows: list[list[Any]], pairs: Array, known: Array) -> Array:
    """Pairs that no evaluation or training set scores; only those of two judged or two equal texts can be."""
    from importlib import import_module

    key = import_module("02_data").pair_key
    stands = set(known.tolist())
    judged = np.array([kind == "judged" for _, kind, _ in rows])
    looked = judged[pairs].any(axis=1)
    kept = [
        not look or key(rows[a][0], rows[b][0]) not in stands
        for (a, b), look in zip(pairs.tolist(), looked.tolist(), strict=True)
    ]
    return pairs[np.array(kept)]


def both_ways(examples: Examples) -> Examples:
    a, b = examples.columns.values()
    return join([examples, Examples(examples.name, "scored", {"a": b, "b": a}, examples.targets)], name=examples.name)


def agreement(model: CrossEncoder, sets: dict[str, Examples]) -> dict[str, float]:
    return {
        name: round(100 * spearman(np.asarray(one.targets), said(model, *one.columns.values())), 2)
        for name, one in sets.items()
    }


def said(model: CrossEncoder, a: list[str], b: list[str]) -> Array:
    """Mean score of both orders, float32 [n]."""
    return np.mean(
        [model.predict(list(zip(*order, strict=True))) for order in ((a, b), (b, a))], axis=0, dtype=np.float32
    )


def one_way(model: CrossEncoder, a: list[str], b: list[str]) -> Array:
    """Scores of pairs, every second one the other way round: half the cost of both orders."""
    pairs = [(x, y) if row % 2 else (y, x) for row, (x, y) in enumerate(zip(a, b, strict=True))]
    return model.predict(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--body", "--texts", "--reranker", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--trial", type=float, default=1.0, help="share of everything, for a trial")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no second round after this time")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(asked.texts / "sentences.jsonl.xz")
    if asked.trial < 1:
        rows = [[text, kind, -1] for text, kind, _ in rows[:: round(1 / asked.trial)]]
    bi = load(asked.body, asked.device, SILVER.max_length)
    vectors = bi.encode_report(["query: " + text for text, *_ in rows], normalize=True).vectors
    say(f"{len(rows):,} sentences encoded")
    pairs = without_known(rows, neighbour_pairs(rows, vectors, str(bi.device)), np.load(asked.texts / "known.npy"))
    if len(pairs) > SILVER.max_pairs:
        pairs = np.random.default_rng(0).permutation(pairs)[: SILVER.max_pairs]
    say(f"{len(pairs):,} pairs")
    a, b = ([rows[place][0] for place in side] for side in pairs.T.tolist())
    dev = scored_sets(asked.texts, "dev")
    people = both_ways(join(list(scored_sets(asked.texts, "train").values()), name="people"))
    if asked.trial < 1:
        people = people.take(np.arange(0, len(people), round(1 / asked.trial)))

    def learned(seed: int, silver: Examples | None = None) -> CrossEncoder:
        model = CrossEncoder.from_body(bi, 1, seed=seed, device=asked.device)
        model.max_length = bi.max_length
        if silver is not None:
            train(model, [Task(silver, objectives.CrossScore())], replace(SILVER.again, seed=seed))
            say(f"  seed {seed}, silver alone: {agreement(model, dev)}")
        settings: TrainingSettings = replace(SILVER.cross, seed=seed)
        if silver is not None:
            settings = replace(
                settings, epochs=max(0.1, settings.epochs * 0.6), learning_rate=settings.learning_rate / 2
            )
        result = train(model, [Task(people, objectives.CrossScore())], settings)
        say(f"  seed {seed}: {result}: {agreement(model, dev)}")
        return model

    reranker = CrossEncoder.load(asked.reranker, device=asked.device)
    say(f"reranker: {agreement(reranker, dev)}")
    old = one_way(reranker, a, b)
    say("read by the reranker")
    crosses = [learned(seed) for seed in SILVER.seeds]
    new = np.mean([one_way(model, a, b) for model in crosses], axis=0)

    def blend(cross: Array, reranked: Array) -> Array:
        total = SILVER.cross_weight + SILVER.reranker_weight
        return np.clip((SILVER.cross_weight * cross + SILVER.reranker_weight * reranked) / total, 0, 1).astype(
            np.float32
        )

    def report(models: list[CrossEncoder]) -> str:
        found = {}
        for name, one in dev.items():
            texts = list(one.columns.values())
            label = blend(np.mean([said(model, *texts) for model in models], axis=0), said(reranker, *texts))
            found[name] = round(100 * spearman(np.asarray(one.targets), label), 2)
        return str(found)

    labels = blend(new, old)
    np.savez_compressed(asked.out / "silver.npz", pairs=pairs.astype(np.int32), labels=labels.astype(np.float16))
    say(f"labels of the first round agree with people: {report(crosses)}")
    if SILVER.again_pairs and time.perf_counter() < asked.seconds:
        some = np.random.default_rng(1).permutation(len(pairs))[: SILVER.again_pairs]
        silver = Examples("silver", "scored", {"a": [a[i] for i in some], "b": [b[i] for i in some]}, labels[some])
        again = [learned(SILVER.seeds[0] + 10, silver)]
        labels = blend(one_way(again[0], a, b), old)
        np.savez_compressed(asked.out / "silver.npz", pairs=pairs.astype(np.int32), labels=labels.astype(np.float16))
        say(f"labels of the second round: {report(again)}")
        again[0].save(asked.out / "cross")


if __name__ == "__main__":
    main()
