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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
    unit_vectors,
)
from settings import RERANKER
from torch import Tensor
from torch.nn import functional

from munjang.data import Examples, join
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.nn.calibration import fit_platt
from munjang.students import fewer_layers
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives.base import Given, Objective
from munjang.types import Threshold
from munjang.vectors import top_k

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


def list_examples(
    name: str, queries: list[str], candidates: list[list[str]], logits: Array, answered: bool
) -> Examples:
    """Lists with soft labels: a softmax of the teachers' logits [n, candidates] beside a 0 for 'none of these'.

    answered: the first candidate is known to be right; it gets 1 - RERANKER.taught, and is taken out of some lists.
    """
    draw = np.random.default_rng(RERANKER.seed)
    candidates, logits = [list(column) for column in candidates], logits.astype(np.float32)
    for number in range(len(candidates) - RERANKER.easy, len(candidates)):  # any other list's answer
        candidates[number] = [candidates[0][row] for row in draw.integers(0, len(queries), len(queries)).tolist()]
        logits[:, number] = -9
    missing = np.flatnonzero(draw.random(len(queries)) < RERANKER.without_answer) if answered else np.zeros(0, np.int64)
    for row in missing.tolist():
        candidates[0][row] = candidates[1][int(draw.integers(len(queries)))]
        logits[row, 0] = -9
    powers = np.exp(np.minimum(logits, 20))
    targets = powers / (1 + powers.sum(axis=1, keepdims=True))
    if answered:
        known = np.zeros_like(targets)
        known[:, 0] = 1
        known[missing] = targets[missing]
        targets = RERANKER.taught * targets + (1 - RERANKER.taught) * known
    columns = {"anchor": queries, "positive": candidates[0]}
    for number, column in enumerate(candidates[1:], start=1):
        columns["negative" if number == 1 else f"negative_{number}"] = column
    kept = np.array([row for row, query in enumerate(queries) if query.split() != candidates[0][row].split()])
    return Examples(name, "pairs", columns, targets.astype(np.float32)).take(kept)


@dataclass(frozen=True)
class Teachers:
    """The bi-encoder and cross-encoders that judge lists together; probabilities by half of the everyday questions."""

    bi: BiEncoder
    crosses: tuple[CrossEncoder, ...]
    weights: tuple[float, ...]  # of the cosine and of every cross-encoder's logit
    shift: float

    @classmethod
    def of(cls, bi: BiEncoder, crosses: tuple[CrossEncoder, ...], weights: Sequence[float], texts: Path) -> Teachers:
        raw, logits, labels = cls(bi, crosses, tuple(weights[: 1 + len(crosses)]), 0.0), [], []
        for search in dev_searches(texts):
            if search.name.startswith("everyday"):
                places, cosines, _ = scored_lists(bi, None, search, RERANKER.candidates)
                candidates = [[search.passages[place] for place in row] for row in places.tolist()]
                logits.append(raw.judge(search.queries, candidates, cosines)[::2].ravel())
                right = [np.isin(row, answers) for row, answers in zip(places, search.answers, strict=True)]
                labels.append(np.stack(right)[::2].ravel())
        scale, shift = fit_platt(np.concatenate(logits), np.concatenate(labels))
        say(f"teachers by {raw.weights}: scale {scale:.3f}, shift {shift:.3f}")
        return cls(bi, crosses, tuple(scale * weight for weight in raw.weights), shift)

    def judge(self, queries: list[str], candidates: list[list[str]], cosines: Array) -> Array:
        """float32 [n, candidates]: logits of relevance."""
        pairs = [(query, text) for query, row in zip(queries, candidates, strict=True) for text in row]
        total = self.weights[0] * cosines.astype(np.float32) + self.shift
        for weight, cross in zip(self.weights[1:], self.crosses, strict=True):
            if weight:
                total = total + weight * cross.predict(pairs, raw=True).reshape(cosines.shape)
        return np.asarray(total, np.float32)


def some_queries(searches: Iterable[Search]) -> Iterator[Search]:
    """The development sets, RERANKER.queries of each; all everyday questions."""
    for search in searches:
        most = None if search.name.startswith("everyday") else RERANKER.queries
        yield replace(search, queries=search.queries[:most], answers=search.answers[:most])


def lists_of(texts: Path, folder: Path, by_words: Teachers, by_meaning: Teachers) -> dict[str, Examples]:
    questions, stored = questions_of(texts), np.load(folder / "lists.npz")
    rows, places = stored["rows"], stored["places"]
    kinds = np.array([questions.kinds[row] for row in rows.tolist()])
    talk = np.array([questions.sources[place] == "chatbot" for place in places[:, 0].tolist()])  # answers to anything
    titles, sentences = np.isin(kinds, TITLES), np.isin(kinds, SENTENCES)
    material = {}
    for name, chosen in (("questions", ~titles & ~sentences), ("titles", titles), ("sentences", sentences)):
        some = np.flatnonzero(chosen & ~talk)
        if not len(some):
            continue
        queries = [questions.queries[row] for row in rows[some]]
        candidates = [[questions.passages[place] for place in row] for row in places[some].tolist()]
        logits = by_words.judge(queries, candidates, stored["miner"][some])
        columns = [list(column) for column in zip(*candidates, strict=True)]
        material[name] = list_examples(name, queries, columns, logits, answered=True)
    material["open"] = open_lists(texts, by_meaning)
    pairs, stored = read_rows(texts / "translations.jsonl.xz"), np.load(folder / "translations.npz")
    sides, half = [[row[1] for row in pairs], [row[2] for row in pairs]], len(pairs)
    columns = [
        [sides[1 - row // half][place] for row, place in enumerate(column)] for column in stored["places"].T.tolist()
    ]
    logits = 50 * (stored["miner"].astype(np.float32) - stored["miner"][:, :1].astype(np.float32)) + 3
    material["translations"] = list_examples("translations", [*sides[0], *sides[1]], columns, logits, answered=True)
    return material


def open_lists(texts: Path, teachers: Teachers) -> Examples:
    """Conversation and sentences with what is found for them anywhere: only the teachers know what is right."""
    draw = np.random.default_rng(RERANKER.seed)
    sentences = [row[0] for row in read_rows(texts / "sentences.jsonl.xz")]
    rows = read_rows(texts / "passages.jsonl.xz")
    pool = list(dict.fromkeys([*(row[0] for row in rows), *sentences]))
    asked = [text for row in rows if row[1] in RERANKER.open_sources for _, text in row[4]]
    asked = [asked[row] for row in draw.permutation(len(asked))[: RERANKER.open_lists // 3]]
    asked += [sentences[row] for row in draw.permutation(len(sentences))[: RERANKER.open_lists - len(asked)]]
    count = min(RERANKER.open_near, len(pool))
    near = top_k(
        *(unit_vectors(teachers.bi, some) for some in (asked, pool)),
        count,
        memory_mb=8192,
        device=str(teachers.bi.device),
    )
    wanted = min(8, count)
    keys = (np.arange(count) + 1.0) * draw.exponential(size=(len(asked), count))
    itself = [
        [normalise(pool[place]) == normalise(text) for place in row]
        for text, row in zip(asked, np.asarray(near.indices).tolist(), strict=True)
    ]
    keys[np.array(itself)] = np.inf
    picked = np.sort(keys.argsort(axis=1)[:, :wanted], axis=1)
    places, cosines = (np.take_along_axis(np.asarray(some), picked, axis=1) for some in (near.indices, near.scores))
    candidates = [[pool[place] for place in row] for row in places.tolist()]
    logits = teachers.judge(asked, candidates, cosines)
    say(f"{len(asked):,} open lists; with an answer by the teachers: {(logits.max(axis=1) > 0).mean():.3f}")
    columns = [list(column) for column in zip(*candidates, strict=True)]
    return list_examples("open", asked, columns, logits, answered=False)


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
    crosses = tuple(CrossEncoder.load(folder, device=args.device) for folder in args.teachers)
    first = load(args.first, args.device, RERANKER.max_length)
    by_words, by_meaning = (Teachers.of(first, crosses, some, args.texts) for some in RERANKER.teachers)
    material: dict[str, tuple[Examples, Objective]] = {
        name: (examples, AnswerOrNone())
        for name, examples in lists_of(args.texts, args.lists, by_words, by_meaning).items()
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
    parser.add_argument("--teachers", type=Path, nargs="*", default=[], help="rerankers whose judgement is learned")
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
    for search in some_queries(dev_searches(args.texts)[: 1 if args.trial else None]):
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
