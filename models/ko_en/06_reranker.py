r"""The reranker: some layers of the bi-encoder's body, trained on lists of passages, some of them without an answer.

    python models/ko_en/06_reranker.py --bi out/bi/trained --first out/bi/model --texts out/data --lists out/lists \
        --silver out/silver --out out/reranker

Fixed shares of the time go to search lists, to conversations and entailed sentences, to translations, and to pairs
with scores (by order alone, so that they do not move the probabilities). 'None of these' stands in every list with a
logit of 0: it is right where the answer was taken out, so that a score above one half means an answer. At the end Platt
scaling on half of the everyday questions makes the scores probabilities, and the final order is that of
logit + weight x cosine, whose weight the development sets choose.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import (
    Search,
    dev_searches,
    load,
    orders,
    questions_of,
    read_rows,
    say,
    scored_lists,
    scored_sets,
    silver_rows,
    steps_of,
    sts_scores,
    teachers_scores,
)
from settings import RERANKER
from torch import Tensor
from torch.nn import functional

from munjang.data import Examples, join
from munjang.encoders import CrossEncoder
from munjang.students import fewer_layers
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives.base import Given, Objective
from munjang.types import Threshold

Array = np.ndarray[Any, Any]
TITLES = ("heading", "cross", "name", "term", "summary")
SENTENCES = ("hypothesis", "question", "sentence")


class AnswerOrNone(objectives.CrossRanking):
    """Cross-entropy with soft labels over a list and a candidate of logit 0, which has what the labels leave of 1."""

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        logits = torch.cat([*outputs, torch.zeros_like(outputs[0])], dim=1).float()  # [n, candidates + 1]
        none = 1 - given.targets.sum(dim=1, keepdim=True)
        return functional.cross_entropy(logits, torch.cat([given.targets, none], dim=1))


def list_examples(name: str, queries: list[str], candidates: list[list[str]], scores: Array) -> Examples:
    """Lists with soft labels: the answer, a part by the teachers' scores [n, candidates]; some without an answer."""
    draw = np.random.default_rng(RERANKER.seed)
    candidates = [list(column) for column in candidates]
    for number in range(len(candidates) - RERANKER.easy, len(candidates)):  # any other list's answer
        candidates[number] = [candidates[0][row] for row in draw.integers(0, len(queries), len(queries)).tolist()]
        scores[:, number] = -1e9
    soft = np.exp(scores - scores.max(axis=1, keepdims=True))
    targets = RERANKER.taught * soft / soft.sum(axis=1, keepdims=True)
    targets[:, 0] += 1 - RERANKER.taught
    columns = {"anchor": queries, "positive": list(candidates[0])}
    for number, column in enumerate(candidates[1:], start=1):
        columns["negative" if number == 1 else f"negative_{number}"] = column
    for row in np.flatnonzero(draw.random(len(queries)) < RERANKER.without_answer).tolist():
        columns["positive"][row] = candidates[0][int(draw.integers(len(queries)))]  # any other list's answer
        targets[row] = 0
    kept = np.array([row for row, query in enumerate(queries) if query.split() != columns["positive"][row].split()])
    return Examples(name, "pairs", columns, targets.astype(np.float32)).take(kept)


def lists_of(texts: Path, folder: Path) -> dict[str, Examples]:
    questions, stored = questions_of(texts), np.load(folder / "lists.npz")
    scores, rows, places = teachers_scores(questions, stored), stored["rows"], stored["places"]
    kinds = np.array([questions.kinds[row] for row in rows.tolist()])
    talk = np.array([questions.sources[place] == "chatbot" for place in places[:, 0].tolist()])  # answers to anything
    titles, sentences = np.isin(kinds, TITLES), np.isin(kinds, SENTENCES)
    material = {}
    for name, chosen in (("questions", ~titles & ~sentences), ("titles", titles), ("sentences", sentences)):
        some = np.flatnonzero(chosen & ~talk)
        if not len(some):
            continue
        candidates = [[questions.passages[place] for place in column] for column in places[some].T.tolist()]
        material[name] = list_examples(name, [questions.queries[row] for row in rows[some]], candidates, scores[some])
    pairs, stored = read_rows(texts / "translations.jsonl.xz"), np.load(folder / "translations.npz")
    sides, half = [[row[1] for row in pairs], [row[2] for row in pairs]], len(pairs)
    candidates = [
        [sides[1 - row // half][place] for row, place in enumerate(column)] for column in stored["places"].T.tolist()
    ]
    material["translations"] = list_examples(
        "translations", [*sides[0], *sides[1]], candidates, 50 * stored["miner"].astype(np.float32)
    )
    return material


def calibrated(
    cross: CrossEncoder, lists: dict[str, tuple[Search, Array, Array]], weight: float
) -> tuple[CrossEncoder, dict[str, Any]]:
    """Platt scaling and the threshold of an answer, on every second question; how they do on the others.

    weight: of the cosine beside the logit; it is kept in units of the logits that come out.
    """
    pairs, labels = [], []
    for search, places, _ in lists.values():
        for query, row, right in list(zip(search.queries, places.tolist(), search.answers, strict=True))[::2]:
            pairs += [(query, search.passages[place]) for place in row]
            labels += [int(place in right) for place in row]
    platt = cross.calibrate(pairs, labels)
    best = {
        name: 1 / (1 + np.exp(-(platt.scale * logits + platt.shift).max(axis=1)))
        for name, (_, _, logits) in lists.items()
    }
    answered, without = best["everyday"], best["everyday, no answer"]
    grid = np.unique(np.round(np.concatenate([answered[::2], without[::2]]), 4))
    values = [((answered[::2] > value).mean() + (without[::2] <= value).mean()) / 2 for value in grid]
    limit = float(grid[int(np.argmax(values))])
    report = {
        "scale": platt.scale,
        "shift": platt.shift,
        "calibration error": [platt.ece_before, platt.ece_after],
        "relevant": float(np.mean(labels)),
        "threshold": limit,
        "cosine weight": weight * platt.scale,
        "answered": 100 * float((answered[1::2] > limit).mean()),
        "refused": 100 * float((without[1::2] <= limit).mean()),
    }
    meaning = "there is an answer where the reranker gives the first hit at least this probability"
    return cross.with_thresholds({"answer": Threshold(round(limit, 4), "answer", meaning, report)}), report


def trained(args: argparse.Namespace) -> CrossEncoder:
    bi = load(args.bi, args.device, RERANKER.max_length)
    material: dict[str, tuple[Examples, Objective]] = {
        name: (examples, AnswerOrNone()) for name, examples in lists_of(args.texts, args.lists).items()
    }
    people = join(list(scored_sets(args.texts, "train").values()), name="people")
    if args.silver is not None:
        material["silver"] = (silver_rows(args.texts, args.silver), objectives.CrossOrder(bce=0.0))
    material["people"] = (people, objectives.CrossOrder(bce=0.0))
    if args.start is None:
        cross = CrossEncoder.from_body(fewer_layers(bi.parts, args.layers), 1, seed=RERANKER.seed, device=args.device)
    else:
        cross = CrossEncoder.load(args.start, device=args.device)
    cross.max_length = min(RERANKER.max_length, bi.parts.body.max_positions)
    steps = {
        name: steps_of(examples, RERANKER.parts[name], cross, args.tokens_per_second)
        for name, (examples, _) in material.items()
    }
    say(f"steps: {steps}; { ({name: len(examples) for name, (examples, _) in material.items()}) }")
    tasks = [
        Task(examples, objective, batch_size=part.batch, weight=part.weight, share=float(steps[name]))
        for name, (examples, objective) in material.items()
        for part in (RERANKER.parts[name],)
    ]
    settings = TrainingSettings(
        max_steps=sum(steps.values()),
        learning_rate=args.rate,
        head_rate=10 * args.rate if args.start is None else None,
        warm_up=0.06,
        token_budget=262_144,
        seed=RERANKER.seed,
        log_every=50,
    )
    result = train(cross, tasks, settings)
    say(f"trained: {result}; losses { ({name: round(value, 3) for name, value in result.losses.items()}) }")
    return cross


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--bi", "--first", "--texts", "--lists", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--silver", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--tokens-per-second", type=float, default=1_500_000.0, help="of the training on this device")
    parser.add_argument("--trial", action="store_true", help="measure one development set only")
    parser.add_argument("--layers", type=int, nargs="+", default=list(RERANKER.layers))
    parser.add_argument("--start", type=Path, help="train this reranker on instead of a new one")
    parser.add_argument("--rate", type=float, default=RERANKER.learning_rate)
    parser.add_argument("--trained", type=Path, help="measure and calibrate this model instead of training one")
    args = parser.parse_args()
    cross = trained(args) if args.trained is None else CrossEncoder.load(args.trained, device=args.device)
    cross.save(args.out / "uncalibrated", dtype="int8")
    first = load(args.first, args.device, RERANKER.max_length)
    report: dict[str, Any] = {}
    everyday: dict[str, tuple[Search, Array, Array]] = {}
    for search in dev_searches(args.texts)[: 1 if args.trial else None]:
        if not search.name.startswith("everyday"):
            search = replace(
                search, queries=search.queries[: RERANKER.queries], answers=search.answers[: RERANKER.queries]
            )
        places, cosines, logits = scored_lists(first, cross, search, RERANKER.candidates)
        if search.name.startswith("everyday"):
            everyday[search.name] = (search, places, logits)
        if any(search.answers):
            report[search.name] = orders(places, cosines, logits, search.answers, RERANKER.cosine_weights)
            say(f"{search.name}: " + "  ".join(f"{k} {n:.1f}/{f:.1f}" for k, (n, f) in report[search.name].items()))
    means = {name: fmean(values[name][0] for values in report.values()) for name in next(iter(report.values()))}
    weight = max(RERANKER.cosine_weights, key=lambda each: means[f"+ {each:g} cosine"])
    say("mean nDCG@10: " + "  ".join(f"{name} {value:.2f}" for name, value in means.items()))
    report["STS"] = sts_scores(cross, scored_sets(args.texts, "dev"))
    say(f"STS: {report['STS']}")
    if len(everyday) == 2:
        cross, report["calibration"] = calibrated(cross, everyday, weight)
        say(f"calibration: {report['calibration']}")
    cross.save(args.out / "model", dtype="int8")
    (args.out / "dev.json").write_text(json.dumps(report, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
