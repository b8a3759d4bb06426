"""`munjang-rerank-ko-en`, out of what the making of the bi-encoder left: one call, stage after stage.

negatives   for every made question, passages that the bi-encoder ranks high and that do not answer it
main        from a labeller: silver pairs, STS, and questions among their passages
last        STS and questions alone, slower
finish      probabilities (Platt) by questions held out, the threshold of 'no good answer', int8 weights
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.evaluation.sts import StsEvaluator
from munjang.inputs import Progress
from munjang.recipes.bundled.making import BiMade, MakeOptions, PassageSet, make_bi, pairs_of, read_passages
from munjang.recipes.bundled.material import Material, read_material
from munjang.recipes.bundled.settings import Part, RerankPlan, Schedule, scaled
from munjang.recipes.bundled.stage_training import Workshop, described, save_arrays, task
from munjang.recipes.stages import Done, Made, open_stages
from munjang.training import Task, objectives
from munjang.training.run import data_hash
from munjang.vectors import top_k

Array = np.ndarray[Any, Any]
RECIPE = "bundled reranker"
_LOOKED_AT = 40  # passages that the negatives are drawn from


@dataclass(frozen=True)
class RerankOptions:
    """The bi-encoder's making, which is gone through first (and skipped where it is done), and where this run lies."""

    bi: MakeOptions
    folder: Path
    plan: RerankPlan = field(default_factory=RerankPlan)

    @property
    def progress(self) -> Progress:
        return self.bi.progress


@dataclass(frozen=True)
class RerankMade:
    """What the making left."""

    folder: Path
    stages: Sequence[Done]
    facts: dict[str, Any]


def make_reranker(options: RerankOptions) -> RerankMade:
    """Make the reranker, or go on with it."""
    bi = make_bi(options.bi)
    plan = scaled(options.plan, options.bi.scale)
    material = read_material(options.bi.data, scaled(options.bi.plan, options.bi.scale), seed=options.bi.seed)
    with open_stages(options.folder, RECIPE, progress=options.progress) as stages:
        given = options.bi
        shop = Workshop(stages, given.device, given.seed, given.progress, material.selection)
        making = _Making(plan, material, shop, bi, scaled(given.plan, given.scale).max_length)
        negatives = making.negatives()
        main = making.trained("main", bi.stages["labeller-1-sts"], negatives, schedule=plan.main, parts=plan.main_parts)
        last = making.trained("last", main, negatives, schedule=plan.last, parts=plan.last_parts)
        finish = making.finish(last, negatives)
        return RerankMade(finish.folder / "model", list(stages.done), dict(finish.facts))


@dataclass(frozen=True)
class _Making:
    plan: RerankPlan
    material: Material
    shop: Workshop
    bi: BiMade
    bi_length: int

    def questions(self) -> PassageSet:
        return read_passages(self.bi.stages["passages"])

    def negatives(self) -> Done:
        """int64 [questions, negatives]: places of passages."""
        plan, source = self.plan, self.bi.stages["final"]

        def make(folder: Path) -> Made:
            model = self.shop.bi(source, self.bi_length)
            questions = self.questions()
            return Made(save_arrays(folder, negatives=find_negatives(model, questions, plan.negatives, self.shop.seed)))

        inputs = {"model": source.digest, "passages": self.bi.stages["passages"].digest, "count": plan.negatives}
        return self.shop.stages.run("negatives", {**inputs, "seed": self.shop.seed}, make)

    def lists(self, negatives: Done) -> tuple[Examples, Examples]:
        """(questions to learn from, questions held out): the right passage first, then wrong ones."""
        places: Array = np.load(negatives.folder / "negatives.npy")
        questions = self.questions()
        mixed = np.random.default_rng(0).permutation(len(questions.queries))  # Korean and English on both sides
        columns = {"anchor": [questions.queries[row] for row in mixed]}
        columns["positive"] = [questions.passages[questions.answers[row]] for row in mixed]
        for number in range(places.shape[1]):
            name = "negative" if number == 0 else f"negative_{number + 1}"
            columns[name] = [questions.passages[place] for place in places[mixed, number].tolist()]
        every = Examples("passages", "pairs", columns)
        held = min(self.plan.held_out, len(every) // 4)
        return every.take(np.arange(held, len(every))), every.take(np.arange(held))

    def trained(self, name: str, begun: Done, negatives: Done, *, schedule: Schedule, parts: dict[str, Part]) -> Done:
        length = self.plan.train_length

        def tasks() -> list[Task]:
            found = [
                task(self.lists(negatives)[0], objectives.CrossRanking(), parts["passages"]),
                task(self.material.scored(), objectives.CrossScore(), parts["sts"]),
            ]
            if "silver" in parts:
                found.append(task(self.silver(), objectives.CrossScore(), parts["silver"]))
            return found

        inputs = {
            "begun": begun.digest,
            "negatives": negatives.digest,
            "silver": self.bi.stages["labels"].digest if "silver" in parts else None,
            "sts": [data_hash(one) for one in self.material.sts.values()],
            "parts": described(parts),
            "length": length,
        }
        return self.shop.trained(
            name, lambda: self.shop.cross(begun.folder / "model", length), tasks, schedule=schedule, inputs=inputs
        )

    def silver(self) -> Examples:
        pairs: Array = np.load(self.bi.stages["pairs"].folder / "pairs.npy")
        labels: Array = np.load(self.bi.stages["labels"].folder / "labels.npy")
        return pairs_of(self.material.pool(), pairs, labels, name="silver")

    def finish(self, last: Done, negatives: Done) -> Done:
        from munjang.recipes.bundled.calibrating import calibrate_reranker

        def make(folder: Path) -> Made:
            model = self.shop.cross(last.folder / "model", self.plan.max_length)
            held = self.lists(negatives)[1]
            calibrated = calibrate_reranker(model, ranked(held))
            calibrated.save(folder / "model", dtype="int8")
            calibrated.save(folder / "float32")
            after = CrossEncoder.load(folder / "model", device=self.shop.device)
            scores = {
                kind: {one.name: StsEvaluator(one)(which).value for one in self.material.selection}
                | {"first of its list": first_of(which, held)}
                for kind, which in (("float32", calibrated), ("int8", after))
            }
            return Made(["model", "float32"], {"selection": scores})

        return self.shop.stages.run("finish", {"model": last.digest, "length": self.plan.max_length}, make)


def find_negatives(model: BiEncoder, questions: PassageSet, count: int, seed: int) -> Array:
    """Of the nearest passages that do not answer a question, some: half of them the very nearest."""
    looked_at = min(_LOOKED_AT, len(questions.passages) - 1)
    vectors = model.encode(questions.passages)
    found = top_k(model.encode(questions.queries), vectors, looked_at + 1, device=str(model.device)).indices
    generator = np.random.default_rng(seed)
    kept = np.empty((len(found), count), np.int64)
    for row, (near, answer) in enumerate(zip(found, questions.answers, strict=True)):
        wrong = near[near != answer][:looked_at]
        nearest = wrong[: count // 2]
        rest = generator.permutation(wrong[count // 2 :])[: count - len(nearest)]
        kept[row] = np.resize(np.concatenate([nearest, rest]), count)
    return kept


def ranked(lists: Examples) -> Examples:
    """Lists of one right and several wrong passages as judged pairs."""
    anchors, *others = lists.columns.values()
    count = len(others)
    return Examples(
        lists.name,
        "ranked",
        {
            "query": [text for text in anchors for _ in range(count)],
            "document": [column[row] for row in range(len(anchors)) for column in others],
        },
        np.tile(np.array([1.0] + [0.0] * (count - 1), np.float32), len(anchors)),
        groups=np.repeat(np.arange(len(anchors)), count),
    )


def first_of(model: CrossEncoder, lists: Examples) -> float:
    """How often the right passage has the highest score of its list."""
    judged = ranked(lists)
    scores = model.predict(list(zip(*judged.columns.values(), strict=True))).reshape(len(lists), -1)
    return float(np.mean(scores.argmax(axis=1) == 0))
