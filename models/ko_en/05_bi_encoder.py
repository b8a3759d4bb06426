r"""The bi-encoder: one multi-task training from e5's body, then weights a share of the way back to e5.

    python models/ko_en/05_bi_encoder.py --body out/body --texts out/data --silver out/silver --lists out/lists \
        --out out/bi

Tasks: similarity by order (silver pairs and people's), search (in-batch and mined negatives, e5's own distribution over
the same candidates, and over each list the one of e5, miner and reranker together), translations, a little NLI. No text
has a prefix; e5's vectors, which are kept to, are of texts with 'query: ' and 'passage: '.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import (
    between,
    dev_searches,
    line_of,
    load,
    questions_of,
    read_rows,
    say,
    scored_sets,
    search_scores,
    silver_rows,
    steps_of,
    sts_scores,
    teachers_scores,
    unit_vectors,
)
from settings import BI
from torch import Tensor
from torch.nn import functional

from munjang.data import Examples, join
from munjang.encoders import BiEncoder
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.objectives.base import Given, Objective

Array = np.ndarray[Any, Any]
QUERY, PASSAGE = "query: ", "passage: "
# Development sets of sources that are not trained on, in one language each.
CHOOSING = (
    "unseen manuals ko",
    "unseen ko, no spaces",
    "unseen ko, asked",
    "unseen manuals en",
    "unseen en, asked",
    "everyday",
)


class Search(Objective):
    """InfoNCE over the batch's passages and negatives, with two teachers.

    L = a CE(s cos(q_i, c_j)) + b KL(softmax(s e5(q_i, c_j)) || softmax(s cos(q_i, c_j)))
        + c KL(softmax(t_i) || softmax(s cos(q_i, own candidates)))

    s is the inverse temperature, t the teachers' scores of a row's own candidates. In the first term no passage of the
    query's own group is a negative. known: e5's vectors [n, d] of each column; teacher: t [n, columns - 1]; groups: of
    each candidate [n, columns - 1].
    """

    kinds = ("pairs",)
    rowwise = False
    unique_texts = True

    def __init__(
        self,
        known: Sequence[Array],
        teacher: Array,
        groups: Array,
        *,
        weights: tuple[float, float, float],
        scale: float,
    ) -> None:
        super().__init__()
        self.guides = (*known, teacher.astype(np.float32), groups.astype(np.float32))
        self.weights, self.scale = weights, scale

    def settings(self) -> dict[str, object]:
        return {"weights": list(self.weights), "scale": self.scale}

    def guide(self, examples: Examples) -> tuple[Array, ...]:
        return self.guides

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        queries, *candidates = (functional.normalize(each.float(), dim=1) for each in outputs)
        *known, teacher, groups = given.guides
        contrast, retention, listwise = self.weights
        count, columns = len(queries), len(candidates)
        scores = self.scale * queries @ torch.cat(candidates).T  # [n, columns x n], column by column
        wanted = (self.scale * known[0].float() @ torch.cat(known[1:]).float().T).log_softmax(dim=1)
        own = torch.arange(count, device=scores.device)
        kept = functional.kl_div(scores.log_softmax(dim=1), wanted, reduction="batchmean", log_target=True)
        same = groups[:, :1] == groups.T.reshape(1, -1)  # [n, columns x n]
        same = same & (torch.arange(columns * count, device=scores.device) != own[:, None])
        found = functional.cross_entropy(scores.masked_fill(same, -1e4), own)
        lists = torch.stack([scores.gather(1, (own + count * i)[:, None])[:, 0] for i in range(columns)], dim=1)
        ranked = functional.kl_div(
            lists.log_softmax(dim=1), teacher.log_softmax(dim=1), reduction="batchmean", log_target=True
        )
        return contrast * found + retention * kept + listwise * ranked


def search_rows(texts: Path, folder: Path) -> tuple[Examples, tuple[list[Array], Array, Array]]:
    """Queries with their passage and the hardest of its list's negatives; e5's vectors, teachers' scores, groups."""
    questions, stored, e5 = questions_of(texts), np.load(folder / "lists.npz"), np.load(folder / "e5.npz")
    rows, places = stored["rows"], stored["places"]
    scores = teachers_scores(questions, stored)
    # Hard is what the teachers score high; what they score far above the answer may be an answer too.
    hard = np.where(scores[:, 1:] > scores[:, :1] + BI.doubtful, -np.inf, scores[:, 1:])
    order = np.concatenate([np.zeros((len(rows), 1), int), 1 + (-hard).argsort(axis=1)[:, : BI.negatives]], axis=1)
    places, scores = (np.take_along_axis(each, order, axis=1) for each in (places, scores))
    columns = {"anchor": [questions.queries[row] for row in rows.tolist()]}
    for name, column in zip(
        ("positive", "negative", *(f"negative_{i}" for i in range(2, 9))), places.T.tolist(), strict=False
    ):
        columns[name] = [questions.passages[place] for place in column]
    known = [e5["queries"][rows], *(e5["passages"][column] for column in places.T)]
    return Examples("queries", "pairs", columns), (known, scores, questions.groups[places])


def translation_rows(texts: Path, folder: Path, e5: BiEncoder) -> tuple[Examples, tuple[list[Array], Array, Array]]:
    """Sentences in either language with their translation and a near one that is wrong."""
    rows, stored = read_rows(texts / "translations.jsonl.xz"), np.load(folder / "translations.npz")
    half = len(rows)
    texts_of = [[row[1] for row in rows], [row[2] for row in rows]]
    vectors = [[unit_vectors(e5, [prefix + text for text in some]) for some in texts_of] for prefix in (QUERY, PASSAGE)]
    draw = np.random.default_rng(BI.seed)
    picked = np.stack([np.zeros(2 * half, int), draw.integers(1, stored["places"].shape[1], 2 * half)], axis=1)
    places, scores = (np.take_along_axis(stored[name], picked, axis=1) for name in ("places", "miner"))
    columns: list[list[str]] = [[], [], []]
    known: list[list[Array]] = [[], [], []]
    for way in (0, 1):
        own = slice(way * half, (way + 1) * half)
        columns[0] += texts_of[way]
        known[0].append(vectors[0][way])
        for number, column in enumerate(places[own].T):
            columns[number + 1] += [texts_of[1 - way][place] for place in column.tolist()]
            known[number + 1].append(vectors[1][1 - way][column])
    groups = np.stack([np.arange(2 * half) % half, places[:, 1]], axis=1)
    kept = np.array(
        [row for row, pair in enumerate(zip(*columns[:2], strict=True)) if pair[0].split() != pair[1].split()]
    )
    examples = Examples("translations", "pairs", dict(zip(("anchor", "positive", "negative"), columns, strict=True)))
    teacher = BI.scale * scores.astype(np.float32)
    return examples.take(kept), ([np.concatenate(each)[kept] for each in known], teacher[kept], groups[kept])


def nli_rows(texts: Path) -> Examples:
    rows = [row for row in read_rows(texts / "nli.jsonl.xz") if row[0].split() != row[1].split()]
    names = ("anchor", "positive", "negative")
    return Examples("nli", "pairs", {name: [row[i] for row in rows] for i, name in enumerate(names)})


def trained(args: argparse.Namespace, e5: BiEncoder) -> tuple[BiEncoder, dict[str, object]]:
    rows, taught = search_rows(args.texts, args.lists)
    turned, turned_taught = translation_rows(args.texts, args.lists, e5)
    people = join(list(scored_sets(args.texts, "train").values()), name="people")
    material: dict[str, tuple[Examples, Objective]] = {
        "queries": (rows, Search(*taught, weights=BI.search, scale=BI.scale)),
        "translations": (turned, Search(*turned_taught, weights=BI.translated, scale=BI.scale)),
        "silver": (silver_rows(args.texts, args.silver), objectives.CoSent(scale=BI.scale)),
        "people": (people, objectives.CoSent(scale=BI.scale)),
        "nli": (nli_rows(args.texts), objectives.Ranking(scale=BI.scale)),
    }
    say(f"material: { ({name: len(examples) for name, (examples, _) in material.items()}) }")
    model = load(args.body, args.device, BI.passage_length)
    parts = {name: BI.parts[name] for name in material}
    steps = {
        name: steps_of(material[name][0], part, model, args.tokens_per_second * args.seconds)
        for name, part in parts.items()
    }
    say(f"steps: {steps}")
    tasks = [
        Task(material[name][0], material[name][1], batch_size=part.batch, weight=part.weight, share=float(steps[name]))
        for name, part in parts.items()
    ]
    settings = TrainingSettings(
        max_steps=sum(steps.values()),
        learning_rate=BI.learning_rate,
        warm_up=BI.warm_up,
        token_budget=BI.token_budget,
        seed=BI.seed,
        log_every=50,
    )
    result = train(model, tasks, settings, progress=lambda done, total: None)
    say(f"trained: {result}; losses { ({name: round(value, 3) for name, value in result.losses.items()}) }")
    return model, {"steps": steps, "training": result.as_dict()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--body", "--texts", "--silver", "--lists", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--tokens-per-second", type=float, default=900_000.0, help="of the training on this device")
    parser.add_argument("--seconds", type=float, default=1.0, help="factor of the seconds of every part")
    parser.add_argument("--trial", action="store_true", help="measure one development set and two shares only")
    parser.add_argument("--trained", type=Path, help="measure and mix this model instead of training one")
    parser.add_argument("--earlier", type=Path, help="the trained model of another run, to mix with this one")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    e5 = load(args.body, args.device, BI.passage_length)
    dev, searches = scored_sets(args.texts, "dev"), dev_searches(args.texts)
    shares = BI.shares
    if args.trial:
        searches, shares = searches[:1], (0.5, 1.0)
    record: dict[str, object] = {}

    def measured(
        name: str, model: BiEncoder, query: str = "", passage: str = ""
    ) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
        sts, search = sts_scores(model, dev), search_scores(model, searches, query=query, passage=passage)
        record[name] = {"sts": sts, "search": search}
        (args.out / "dev.json").write_text(json.dumps(record, ensure_ascii=False, indent=1))
        say(f"{name}: {line_of(sts, search)}")
        return sts, search

    if args.trained is None:
        measured("e5 with prefixes", e5, QUERY, PASSAGE)
        model, chosen = trained(args, e5)
        model.save(args.out / "trained", dtype="int8")
    else:
        model, chosen = load(args.trained, args.device, BI.passage_length), {}
    mixtures = [(share, 0.0) for share in shares]
    if args.earlier is not None:
        earlier = load(args.earlier, args.device, BI.passage_length)
        mixtures = list(product(BI.mixed_shares, BI.earlier))
    best, best_score = None, 0.0
    for share, part in mixtures:
        mixed = between(e5, model if part == 0 else between(model, earlier, part), share)
        sts, retrieval = measured(f"{share:.1f} of the way, {part:.2f} of the earlier run", mixed)
        unseen = [retrieval[search.name][0] for search in searches if search.name in CHOOSING] or [0.0]
        score = fmean(sts.values()) + fmean(unseen)
        say(f"  STS {fmean(sts.values()):.2f}, sets that choose {fmean(unseen):.2f}: {score:.2f}")
        if best is None or score > best_score:
            best, best_score = mixed, score
            chosen.update(share=share, earlier=part, score=score)
    assert best is not None
    best.save(args.out / "model", dtype="int8")
    say(f"chosen: {chosen['share']} of the way, {chosen['earlier']} of it by the earlier run")
    (args.out / "chosen.json").write_text(json.dumps(chosen, default=str))


if __name__ == "__main__":
    main()
