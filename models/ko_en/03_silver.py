"""Sentences -> pairs of neighbours with labels: what the bi-encoder learns similarity from.

    python models/ko_en/03_silver.py --body out/body --texts out/data --reranker RERANKER --out out/silver

A label is the weighted mean of three judges: an earlier reranker, the cosine of `--body`, and a cross-encoder on that
body that learned the mean of the other two, then people's scores. The weights are those that agree best with the
development sets. Round one takes e5's body, round two the bi-encoder of round one (`--prefix ""`). Pairs of development
and evaluation sets are never labelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import load, pair_key, read_rows, say, scored_sets
from settings import SILVER

from munjang.data import Examples, join
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.evaluation.metrics import spearman
from munjang.training import Task, objectives, train
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
    pairs = np.concatenate([pairs, random, across, np.stack([own, twins[own]], axis=1)])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def without_known(rows: list[list[Any]], pairs: Array, known: Array) -> Array:
    """Pairs that no evaluation or training set scores; only pairs with a judged text can be."""
    scored = set(known.tolist())
    judged = np.array([kind == "judged" for _, kind, _ in rows])
    looked = judged[pairs].any(axis=1)
    kept = [
        not look or pair_key(rows[a][0], rows[b][0]) not in scored
        for (a, b), look in zip(pairs.tolist(), looked.tolist(), strict=True)
    ]
    return pairs[np.array(kept)]


def both_ways(examples: Examples) -> Examples:
    a, b = examples.columns.values()
    return join([examples, Examples(examples.name, "scored", {"a": b, "b": a}, examples.targets)], name=examples.name)


class Cosine:
    """Cosines of a bi-encoder on the scale of people's scores (a polynomial of degree 3, fitted on training pairs)."""

    def __init__(self, model: BiEncoder, prefix: str, people: Examples) -> None:
        self.model, self.prefix = model, prefix
        assert people.targets is not None
        self.curve = np.polynomial.Polynomial.fit(self.raw(*people.columns.values()), people.targets, 3)

    def raw(self, a: Sequence[str], b: Sequence[str]) -> Array:
        texts = {text: row for row, text in enumerate(dict.fromkeys([*a, *b]))}
        vectors = self.model.encode_report([self.prefix + text for text in texts], normalize=True).vectors
        left, right = (np.array([texts[text] for text in side]) for side in (a, b))
        return np.concatenate(
            [
                (vectors[left[at : at + 65536]] * vectors[right[at : at + 65536]]).sum(axis=1)
                for at in range(0, len(left), 65536)
            ]
        )

    def __call__(self, a: Sequence[str], b: Sequence[str]) -> Array:
        return np.clip(self.curve(self.raw(a, b)), 0, 1)


def crossed(model: CrossEncoder, a: Sequence[str], b: Sequence[str], *, both: bool = False) -> Array:
    """Scores of pairs; every second pair the other way round, which costs half of both orders."""
    pairs = list(zip(a, b, strict=True))
    if both:
        return np.asarray((model.predict(pairs) + model.predict([(y, x) for x, y in pairs])) / 2)
    return model.predict([pair if row % 2 else pair[::-1] for row, pair in enumerate(pairs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--body", "--texts", "--reranker", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--prefix", default="query: ", help="of every text that --body reads")
    parser.add_argument("--device")
    parser.add_argument("--trial", type=float, default=1.0, help="share of everything, for a trial")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(args.texts / "sentences.jsonl.xz")
    dev = scored_sets(args.texts, "dev")
    people = both_ways(join(list(scored_sets(args.texts, "train").values()), name="people"))
    if args.trial < 1:
        rows = [[text, kind, -1] for text, kind, _ in rows[:: round(1 / args.trial)]]
        people = people.take(np.arange(0, len(people), round(1 / args.trial)))
        dev = {name: examples.take(np.arange(min(len(examples), 100))) for name, examples in dev.items()}
    bi = load(args.body, args.device, SILVER.max_length)
    vectors = bi.encode_report([args.prefix + text for text, *_ in rows], normalize=True).vectors
    pairs = without_known(rows, neighbour_pairs(rows, vectors, str(bi.device)), np.load(args.texts / "known.npy"))
    if len(pairs) > SILVER.max_pairs:
        pairs = np.random.default_rng(0).permutation(pairs)[: SILVER.max_pairs]
    a, b = ([rows[place][0] for place in side] for side in pairs.T.tolist())
    say(f"{len(rows):,} sentences, {len(pairs):,} pairs")
    reranker = CrossEncoder.load(args.reranker, device=args.device)
    cosine = Cosine(bi, args.prefix, people)
    votes = {"reranker": crossed(reranker, a, b), "cosine": cosine(a, b)}
    say("scored by the reranker and the bi-encoder")
    cross = CrossEncoder.from_body(bi, 1, seed=SILVER.seed, device=args.device)
    cross.max_length = bi.max_length
    some = np.random.default_rng(1).permutation(len(pairs))[: SILVER.first_pairs]
    labels = np.clip(0.75 * votes["reranker"] + 0.25 * votes["cosine"], 0, 1).astype(np.float32)
    silver = Examples("silver", "scored", {"a": [a[i] for i in some], "b": [b[i] for i in some]}, labels[some])
    result = train(cross, [Task(silver, objectives.CrossScore())], replace(SILVER.on_silver, seed=SILVER.seed))
    say(f"cross-encoder on silver pairs: {result}")
    result = train(cross, [Task(people, objectives.CrossScore())], replace(SILVER.on_people, seed=SILVER.seed))
    say(f"then on people's scores: {result}")
    votes["cross"] = crossed(cross, a, b)
    judged = {
        name: {
            "reranker": crossed(reranker, *examples.columns.values(), both=True),
            "cosine": cosine(*examples.columns.values()),
            "cross": crossed(cross, *examples.columns.values(), both=True),
        }
        for name, examples in dev.items()
    }

    def agreement(weights: dict[str, float]) -> dict[str, float]:
        return {
            name: round(
                100 * spearman(np.asarray(examples.targets), sum(w * judged[name][k] for k, w in weights.items())), 2
            )
            for name, examples in dev.items()
        }

    for name in votes:
        say(f"  {name}: {agreement({name: 1.0})}")
    grid = [
        dict(zip(("reranker", "cosine", "cross"), (1.0, *rest), strict=True))
        for rest in product((0.0, 0.25, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0))
    ]
    best = max(grid, key=lambda weights: fmean(agreement(weights).values()))
    say(f"  weights {best}: {agreement(best)}")
    mean = sum(weight * votes[name] for name, weight in best.items()) / sum(best.values())
    np.savez_compressed(
        args.out / "silver.npz", pairs=pairs.astype(np.int32), labels=np.clip(mean, 0, 1).astype(np.float16)
    )


if __name__ == "__main__":
    main()
