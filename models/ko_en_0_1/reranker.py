"""`munjang-rerank-ko-en`, out of what the making of the bi-encoder left: one call, stage after stage.

negatives   for every made question, passages that the bi-encoder ranks high and that do not answer it
relevance   lists of passages, graded by the larger English model (left out where none was given)
main        from a labeller: silver pairs, STS, questions among their passages, and graded lists
main-2 ...  the same by other seeds
mean        the mean of their weights
finish      probabilities (Platt) by everyday questions, the threshold of 'no good answer', int8 weights
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.ko_en.everyday import everyday_lists, read_questions
from models.ko_en_0_1.calibrating import calibrate_reranker
from models.ko_en_0_1.making import BiMade, make_bi
from models.ko_en_0_1.material import Material, read_material
from models.ko_en_0_1.passages import Questions, joined
from models.ko_en_0_1.positions import fewer_positions
from models.ko_en_0_1.recording import write_making
from models.ko_en_0_1.relevance import Grading, graded_lists
from models.ko_en_0_1.settings import RerankPlan, scaled
from models.ko_en_0_1.silver import both_ways, read_silver
from models.ko_en_0_1.stage_training import (
    OTHER_SEED,
    Array,
    Workshop,
    described,
    load_array,
    save_arrays,
    task,
)
from models.ko_en_0_1.teaching import MakeOptions, read_passages
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.evaluation.sts import StsEvaluator
from munjang.progress import Progress
from munjang.recipes.stages import Done, Made, open_stages
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import top_k

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
    if options.bi.plan.labellers < 1:
        raise InputError(
            f"the reranker begins as a labeller: labellers must be at least 1, got {options.bi.plan.labellers}"
        )
    bi = make_bi(options.bi)
    plan = scaled(options.plan, options.bi.scale)
    material = read_material(options.bi.data, scaled(options.bi.plan, options.bi.scale), seed=options.bi.seed)
    with open_stages(options.folder, RECIPE, progress=options.progress) as stages:
        given = options.bi
        shop = Workshop(stages, given.device, given.seed, given.progress, material.selection)
        making = _Making(plan, material, shop, bi, scaled(given.plan, given.scale).max_length)
        negatives = making.negatives()
        relevance = None if given.larger is None or not plan.relevance else making.relevance(given.larger)
        mains = [making.main(number, negatives, relevance) for number in range(1, plan.mains + 1)]
        mean = shop.mean(mains, lambda one: shop.cross(one.folder / "model", plan.max_length))
        finish = making.finish(mean, negatives)
        folder = finish.folder / "model"
        model = CrossEncoder.load(folder, device=given.device)
        path = options.folder / "making.json"
        write_making(path, model, folder, stages.done, given=given, rows=material.rows)
        return RerankMade(folder, list(stages.done), dict(finish.facts))


@dataclass(frozen=True)
class _Making:
    plan: RerankPlan
    material: Material
    shop: Workshop
    bi: BiMade
    bi_length: int

    def questions(self, name: str = "passages") -> Questions:
        return read_passages(self.bi.stages["passages"], name)

    def negatives(self) -> Done:
        """int64 [questions, negatives] each: places of passages, for questions to learn from and for those held out."""
        plan, source = self.plan, self.bi.stages["multi"]

        def make(folder: Path) -> Made:
            model = self.shop.bi(source, self.bi_length)
            found = {
                name: find_negatives(model, some, plan.negatives, self.shop.seed, progress=self.shop.progress)
                for name, some in (("passages", self.questions()), ("held", self.held()))
            }
            return Made(save_arrays(folder, **found))

        inputs = {"model": source.digest, "passages": self.bi.stages["passages"].digest, "count": plan.negatives}
        return self.shop.stages.run("negatives", {**inputs, "length": self.bi_length, "seed": self.shop.seed}, make)

    def held(self) -> Questions:
        """Questions held out, among all passages."""
        rest = self.questions()
        return joined([self.questions("held"), Questions([], rest.passages, [], rest.groups)])

    def lists(self, negatives: Done, name: str = "passages") -> Examples:
        """Questions with the right passage first, then wrong ones."""
        questions = self.held() if name == "held" else self.questions()
        return lists_of(questions, load_array(negatives, name), name=name)

    def relevance(self, larger: str | Path) -> Done:
        return Grading(larger, self.plan.relevance, self.material, self.bi.stages["passages"], self.shop).run()

    def main(self, number: int, negatives: Done, relevance: Done | None) -> Done:
        """One of several trainings, which see the same data in other orders.

        relevance: the stage whose graded lists are learned too; without it the other parts keep their proportion.
        """
        shop = replace(self.shop, seed=self.shop.seed + OTHER_SEED * (number - 1))
        plan, begun, length = self.plan, self.bi.stages["labeller-1-sts"], self.plan.train_length
        parts = {name: part for name, part in plan.main_parts.items() if name != "relevance" or relevance}

        def tasks() -> list[Task]:
            found = [
                task(self.lists(negatives), objectives.CrossRanking(), parts["passages"]),
                task(both_ways(self.material.graded()), objectives.CrossScore(), parts["sts"]),
                task(self.silver(shop.seed), objectives.CrossScore(), parts["silver"]),
            ]
            if relevance:
                lists = graded_lists(relevance, self.questions(), temperature=plan.relevance_temperature)
                found.append(task(lists, objectives.CrossKl(), parts["relevance"]))
            return found

        inputs = {
            "begun": begun.digest,
            "negatives": negatives.digest,
            "passages": self.bi.stages["passages"].digest,
            "silver": self.bi.stages["labels"].digest,
            "sts": data_hash(self.material.graded()),
            "parts": described(parts),
            "length": length,
            "relevance": [relevance.digest, plan.relevance_temperature] if relevance else None,
        }
        return shop.trained(
            "main" if number == 1 else f"main-{number}",
            lambda: shop.cross(begun.folder / "model", length),
            tasks,
            schedule=plan.main,
            inputs=inputs,
        )

    def silver(self, seed: int) -> Examples:
        return read_silver(self.material, self.bi.stages["pairs"], self.bi.stages["labels"], seed=seed)

    def judged(self, held: Examples) -> Examples:
        """What calibrates the reranker: everyday questions; in a trial, whose model knows too little, made ones."""
        if not self.plan.everyday:
            return ranked(held)
        return everyday_lists(BiEncoder.load(self.bi.folder, device=self.shop.device), self.plan.everyday)

    def finish(self, main: Done, negatives: Done) -> Done:
        def make(folder: Path) -> Made:
            held = self.lists(negatives, "held")
            known = self.judged(held)
            return finished(main, folder, "main", shop=self.shop, length=self.plan.max_length, known=known, held=held)

        asked = self.plan.everyday
        inputs: dict[str, object] = {"model": main.digest, "negatives": negatives.digest, "everyday": asked}
        inputs["length"] = self.plan.max_length
        if asked:
            inputs["questions"] = hash_texts([f"{one.query} {sorted(one.answers)}" for one in read_questions()])
            inputs["bi"] = self.bi.stages["finish"].digest
        return self.shop.stages.run("finish", inputs | {"passages": self.bi.stages["passages"].digest}, make)


def finished(
    trained: Done, folder: Path, by: str, *, shop: Workshop, length: int, known: Examples, held: Examples
) -> Made:
    """The last stage of a reranker: probabilities by the pairs of `known`, int8 weights, and what they score.

    by: the name of its trainings in the plan. held: lists of the right passage and wrong ones, not trained on.
    """
    before = _no_longer(shop.cross(trained.folder / "model", length))
    before.save(folder / "model", dtype="int8")
    # Measured with the weights as they are saved: whole numbers.
    model = shop.cross(folder / "model", length)
    try:
        calibrated = calibrate_reranker(model, known)
    except InputError as error:
        raise InputError(
            f"the reranker is trained, but over the {len(known):,} pairs of {known.name!r} its scores cannot "
            f"become probabilities: {error}. Give `{by}` more steps (a trial: a larger scale); the stages "
            "before them are kept"
        ) from error
    calibrated.save(folder / "model", dtype="int8")
    calibrated.save(folder / "float32")
    after = CrossEncoder.load(folder / "model", device=shop.device)
    scores = {
        kind: {one.name: StsEvaluator(one)(which).value for one in shop.selection}
        | {"first of its list": first_of(which, held)}
        for kind, which in (("float32", before), ("int8", after))
    }
    return Made(["model", "float32"], {"selection": scores})


def lists_of(questions: Questions, negatives: Array, *, name: str) -> Examples:
    """Questions with the right passage first, then wrong ones. negatives: int64 [questions, n]."""
    columns = {
        "anchor": list(questions.queries),
        "positive": [questions.passages[place] for place in questions.answers],
    }
    for number in range(negatives.shape[1]):
        role = "negative" if number == 0 else f"negative_{number + 1}"
        columns[role] = [questions.passages[place] for place in negatives[:, number].tolist()]
    return Examples(name, "pairs", columns)


def _no_longer(model: CrossEncoder) -> CrossEncoder:
    """The model without positions that it never reads: what lies in the package is to be small."""
    parts = model.parts
    body, config = fewer_positions(parts.body, parts.hf_config, model.max_length)
    return CrossEncoder(replace(parts, body=body, hf_config=config), device=model.device)


def find_negatives(
    model: BiEncoder, questions: Questions, count: int, seed: int, *, progress: Progress = False
) -> Array:
    """Of the nearest passages that do not answer a question, some: half of them the very nearest.

    A passage's twin in the other language answers the same questions, and is none.
    """
    groups = np.array(questions.groups)
    vectors = model.encode(questions.passages, progress=progress)
    most = min(_LOOKED_AT + 2, len(groups))  # the answer and its twin may be among them
    found = top_k(model.encode(questions.queries), vectors, most, device=str(model.device)).indices
    generator = np.random.default_rng(seed)
    kept = np.empty((len(found), count), np.int64)
    for row, (near, answer) in enumerate(zip(found, questions.answers, strict=True)):
        wrong = near[groups[near] != groups[answer]][:_LOOKED_AT]
        if not len(wrong):
            raise InputError(
                f"expected passages that do not answer {questions.queries[row]!r}, got {len(groups)}, all of one "
                "group; make more passages"
            )
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
