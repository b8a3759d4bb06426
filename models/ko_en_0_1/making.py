"""`munjang-ko-en`, from public data and its teachers to the model in the package: one call, stage after stage.

    student ... distil   a student that places both languages like its teachers (`teaching`)
    settled     its weights but the Korean embeddings, part of the way back to those of `student` (`merging`)
    multi       NLI, STS, questions, passages, translations together: a first whole model
    larger-*    a larger model that learns Korean and to label (`larger`; left out where none was given)
    bilingual-*, compact*   a bilingual model that labels, and the same made small (`compact`; left out likewise)
    pairs ... labels   pairs of all sentences, labelled by cross-encoders and bi-encoder together (`labelling`)
    final       `multi` again from `settled`, with the labelled pairs
    final-2 ... the same by other seeds
    mean        the mean of their weights
    merged      its weights but the Korean embeddings, part of the way back to those of `student` (`merging`)
    finish      thresholds, int8 weights

Every stage is done once; the same call after a kill goes on, and changed settings repeat what depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models.ko_en_0_1.calibrating import calibrate_bi, parakqc_parts
from models.ko_en_0_1.labelling import Labelling
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.merging import furthest, merge
from models.ko_en_0_1.recording import write_making
from models.ko_en_0_1.settings import scaled
from models.ko_en_0_1.silver import read_silver
from models.ko_en_0_1.stage_training import OTHER_SEED, Selection, Workshop, described, task
from models.ko_en_0_1.teaching import MakeOptions, Taught, Teaching, question_pairs, read_passages
from munjang.bi_encoder import BiEncoder
from munjang.data import load_dataset
from munjang.errors import InputError
from munjang.evaluation.sts import StsEvaluator
from munjang.recipes.stages import Done, Made, open_stages
from munjang.training import Task, objectives
from munjang.training.run import data_hash

RECIPE = "bundled bi-encoder"


@dataclass(frozen=True)
class BiMade:
    """What the making left: stages by name, and the finished model's folder."""

    folder: Path
    stages: Mapping[str, Done]
    facts: Mapping[str, Any]


def make_bi(options: MakeOptions) -> BiMade:
    """Make the bi-encoder, or go on with it."""
    if options.seed < 0:
        raise InputError(f"seed must be at least 0, got {options.seed}")
    plan = scaled(options.plan, options.scale)
    # `finish` needs it: where it is missing, that is said now and not at the end.
    calibrating = data_hash(parakqc_parts(load_dataset("parakqc", "test", options.data))[0])
    material = read_material(options.data, plan, seed=options.seed)
    with open_stages(options.folder, RECIPE, progress=options.progress) as stages:
        shop = Workshop(stages, options.device, options.seed, options.progress, material.selection)
        finish = _Making(Teaching(options, plan, material, shop)).run(calibrating)
        folder = finish.folder / "model"
        model = BiEncoder.load(folder, device=options.device)
        path = options.folder / "making.json"
        write_making(path, model, folder, stages.done, given=options, rows=material.rows)
        return BiMade(folder, {one.name: one for one in stages.done}, finish.facts)


class _Making:
    """The stages after `distil`, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching, self.labelling = teaching, Labelling(teaching)
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop

    def run(self, calibrating: str) -> Done:
        teaching = self.teaching
        student = teaching.student()
        second = teaching.second()
        passages = teaching.passages(second)
        tuned = teaching.tuned(passages)
        taught = Taught(second, teaching.targets(tuned, passages), passages)
        warm = teaching.warm_up(student) if self.plan.warm_up.steps else student
        distil = teaching.distil(warm, taught)
        settled = self.merged("settled", student, distil, self.plan.settled_shares, cost=self.plan.settled_cost)
        multi = self.together("multi", settled, taught)
        silver = self.labelling.run(multi, settled, second)
        finals = [self.final(number, settled, taught, silver) for number in range(1, self.plan.finals + 1)]
        mean = self.shop.mean(finals, lambda folder: self.shop.bi(folder, self.plan.max_length))
        merged = self.merged("merged", student, mean, self.plan.merged_shares, cost=self.plan.merged_cost)
        return self.finish(merged, calibrating)

    def final(self, number: int, settled: Done, taught: Taught, silver: tuple[Done, Done]) -> Done:
        """One of several, which see the same data in other orders."""
        shop = replace(self.shop, seed=self.shop.seed + OTHER_SEED * (number - 1))
        name = "final" if number == 1 else f"final-{number}"
        return self.together(name, settled, taught, silver=silver, shop=shop)

    def together(
        self,
        name: str,
        begun: Done,
        taught: Taught,
        *,
        silver: tuple[Done, Done] | None = None,
        shop: Workshop | None = None,
    ) -> Done:
        """Every kind of data, a share of the steps each. shop: with another seed."""
        plan, material, teaching, shop = self.plan, self.material, self.teaching, shop or self.shop
        parts = plan.final_parts if silver else plan.multi_parts

        def tasks() -> list[Task]:
            questions = question_pairs(read_passages(taught.passages))
            found = [
                task(material.triplets("ko", shop.seed), objectives.Ranking(), parts["nli-ko"]),
                task(material.triplets("en", shop.seed), objectives.Ranking(), parts["nli-en"]),
                task(material.graded(), objectives.CoSent(), parts["sts"]),
                task(material.questions, objectives.Ranking(symmetric=True), parts["questions"]),
                task(questions, objectives.Ranking(), parts["passages"]),
                task(teaching.taught(taught), teaching.objective(), parts["translations"]),
                task(teaching.long(taught), teaching.long_objective(), parts["long"]),
                task(teaching.words(taught), teaching.long_objective(), parts["words"]),
            ]
            if silver:
                pairs = read_silver(material, *silver, seed=shop.seed)
                found.append(task(pairs, objectives.CoSent(), parts["silver"]))
            return found

        length = plan.max_length  # the passages are long
        inputs = {"begun": begun.digest, **taught.digests, "parts": described(parts), "losses": teaching.losses}
        inputs |= teaching.of("nli", "sts", "questions", "translations")
        inputs |= {"silver": [one.digest for one in silver or ()], "length": length}
        schedule = plan.final if silver else plan.multi
        return shop.trained(name, lambda: shop.bi(begun, length), tasks, schedule=schedule, inputs=inputs)

    def merged(self, name: str, student: Done, final: Done, shares: tuple[float, ...], *, cost: float) -> Done:
        """Part of the way back to what the student began as; Korean embeddings, guesses there, stay.

        shares: how far, to choose from. cost: what the selection sets' mean may lose by it.
        """
        plan, shop = self.plan, self.shop

        def make(folder: Path) -> Made:
            begun, trained = (shop.bi(one, plan.max_length) for one in (student, final))
            chooses = Selection(shop.selection)
            found, scores = furthest(
                shares,
                lambda share: chooses(merge(begun, trained, share, korean=False)).value,
                cost,
            )
            merge(begun, trained, found, korean=False).save(folder / "model")
            return Made(["model"], {"share": found, "scores": {str(share): value for share, value in scores.items()}})

        inputs: dict[str, object] = {"begun": student.digest, "trained": final.digest, "length": plan.max_length}
        inputs |= {"shares": shares, "cost": cost}
        inputs |= {"selection": [data_hash(one) for one in shop.selection]}
        return shop.stages.run(name, inputs, make)

    def finish(self, final: Done, calibrating: str) -> Done:
        """The model at its full length, with its thresholds, as float32 and as int8."""

        def make(folder: Path) -> Made:
            trained = self.shop.bi(final, self.plan.max_length)
            model = BiEncoder(replace(trained.parts, leftover={}), device=trained.device)  # no pooler
            model.save(folder / "model", dtype="int8")
            # Measured with the weights as they are saved, whole numbers; saved again, they stay the same.
            whole = BiEncoder.load(folder / "model", device=self.shop.device)
            kept = calibrate_bi(whole, self.teaching.options.data)
            whole.with_thresholds(kept).save(folder / "model", dtype="int8")
            model.with_thresholds(kept).save(folder / "float32")
            scores = {
                kind: {one.name: StsEvaluator(one)(which).value for one in self.material.selection}
                for kind, which in (("float32", model), ("int8", whole))
            }
            return Made(["model", "float32"], {"selection": scores})

        inputs = {"model": final.digest, "length": self.plan.max_length, "calibrating": calibrating}
        return self.shop.stages.run("finish", inputs, make)
