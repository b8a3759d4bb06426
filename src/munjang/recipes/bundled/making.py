"""`munjang-ko-en`, from public data and two teachers to the model in the package: one call, stage after stage.

    student ... distil   a student that places both languages like its teachers (`teaching`)
    multi       NLI, STS, questions, passages, translations together: a first whole model
    pairs       neighbours among all sentences, with that model's cosines
    labeller-*  cross-encoders: NLI, then these pairs, then STS
    labels      the pairs again, labelled by cross-encoders and bi-encoder together
    final       `multi` again from `distil`, with the labelled pairs
    finish      thresholds, int8 weights

Every stage is done once; the same call after a kill goes on, and changed settings repeat what depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, load_dataset
from munjang.data.cells import NLI_LABELS
from munjang.errors import InputError
from munjang.evaluation.sts import StsEvaluator
from munjang.recipes.bundled.calibrating import calibrate_bi, parakqc_parts
from munjang.recipes.bundled.material import read_material
from munjang.recipes.bundled.recording import write_making
from munjang.recipes.bundled.settings import scaled
from munjang.recipes.bundled.silver import (
    Labeller,
    in_other_languages,
    known_pairs,
    neighbours_of,
    pairs_of,
    silver_pairs,
    without_known,
)
from munjang.recipes.bundled.stage_training import Workshop, described, load_array, save_arrays, task
from munjang.recipes.bundled.teaching import MakeOptions, Taught, Teaching, question_pairs, read_passages
from munjang.recipes.stages import Done, Made, open_stages
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import pairwise_similarity

RECIPE = "bundled bi-encoder"
_NLI = tuple(NLI_LABELS)[:3]


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
        write_making(path, model, folder, stages.done, seed=options.seed, rows=material.rows)
        return BiMade(folder, {one.name: one for one in stages.done}, finish.facts)


class _Making:
    """The stages after `distil`, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching = teaching
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
        multi = self.together("multi", distil, taught)
        pairs = self.pairs(multi)
        labellers = [self.labeller(number, distil, pairs) for number in range(1, self.plan.labellers + 1)]
        labels = self.labels(pairs, multi, labellers)
        final = self.together("final", distil, taught, silver=(pairs, labels))
        return self.finish(final, calibrating)

    def together(self, name: str, begun: Done, taught: Taught, *, silver: tuple[Done, Done] | None = None) -> Done:
        """Every kind of data, a share of the steps each."""
        plan, material, teaching = self.plan, self.material, self.teaching
        parts = plan.final_parts if silver else plan.multi_parts

        def tasks() -> list[Task]:
            questions = question_pairs(read_passages(taught.passages))
            found = [
                task(material.triplets("ko", self.shop.seed), objectives.Ranking(), parts["nli-ko"]),
                task(material.triplets("en", self.shop.seed), objectives.Ranking(), parts["nli-en"]),
                task(material.scored(), objectives.CoSent(), parts["sts"]),
                task(material.questions, objectives.Ranking(symmetric=True), parts["questions"]),
                task(questions, objectives.Ranking(), parts["passages"]),
                task(teaching.taught(taught), teaching.objective(), parts["translations"]),
                task(teaching.long(taught), teaching.long_objective(), parts["long"]),
            ]
            if silver:
                found.append(task(self.silver(*silver), objectives.CoSent(), parts["silver"]))
            return found

        length = plan.max_length  # the passages are long
        inputs = {"begun": begun.digest, **taught.digests, "parts": described(parts), "losses": teaching.losses}
        inputs |= teaching.of("nli", "sts", "questions", "translations")
        inputs |= {"silver": [one.digest for one in silver or ()], "length": length}
        schedule = plan.final if silver else plan.multi
        return self.shop.trained(name, lambda: self.shop.bi(begun, length), tasks, schedule=schedule, inputs=inputs)

    # --- silver pairs ------------------------------------------------------------------------------------------------

    def pairs(self, multi: Done) -> Done:
        plan, material, pool = self.plan, self.material, self.material.pool()

        def make(folder: Path) -> Made:
            model = self.shop.bi(multi, plan.train_length)
            vectors = model.encode(pool, normalize=True)
            near = neighbours_of(vectors, plan.pool_neighbours, device=str(model.device))
            pairs = silver_pairs(near, random_share=plan.random_pairs, seed=self.shop.seed)
            known = known_pairs([*material.sts.values(), *material.selection, *material.evaluation])
            pairs = without_known(pool, pairs, known)
            cosines = np.asarray(pairwise_similarity(vectors[pairs[:, 0]], vectors[pairs[:, 1]]), np.float32)
            labels = Labeller(model, [], material.scored(), cosine_weight=1.0).scale(cosines)
            names = save_arrays(folder, pairs=pairs, cosines=cosines, labels=labels)
            return Made(names, {"sentences": len(pool), "pairs": len(pairs)})

        inputs = {"model": multi.digest, "pool": hash_texts(pool), "neighbours": plan.pool_neighbours}
        inputs |= {"random": plan.random_pairs, "length": plan.train_length, "seed": self.shop.seed}
        inputs |= {"evaluation": [data_hash(one) for one in material.evaluation]}
        return self.shop.stages.run("pairs", inputs, make)

    def silver(self, pairs: Done, labels: Done) -> Examples:
        """The pairs with their labels, in either language where there are both."""
        return read_silver(self.material.pool(), self.material.other, pairs, labels, seed=self.shop.seed)

    def labeller(self, number: int, distil: Done, pairs: Done) -> Done:
        """One cross-encoder: NLI, then the bi-encoder's labels of many pairs, then those of people."""
        plan, material, name = self.plan, self.material, f"labeller-{number}"
        shop = replace(self.shop, seed=self.shop.seed + number)
        size, length = plan.labeller_batch, plan.train_length

        def begin() -> CrossEncoder:
            return CrossEncoder.from_body(shop.bi(distil, length), _NLI, seed=shop.seed, device=shop.device)

        nli = shop.trained(
            f"{name}-nli",
            begin,
            lambda: [Task(one, objectives.CrossEntropy(), batch_size=size) for one in material.nli.values()],
            schedule=plan.labeller_nli,
            inputs={"body": distil.digest, "batch": size, "length": length, **self.teaching.of("nli")},
            select=False,
        )
        silver = shop.trained(
            f"{name}-silver",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [Task(self.silver(pairs, pairs), objectives.CrossScore(), batch_size=2 * size)],
            schedule=plan.labeller_silver,
            inputs={"model": nli.digest, "pairs": pairs.digest, "batch": 2 * size, "length": length},
            select=False,
        )
        return shop.trained(
            f"{name}-sts",
            lambda: shop.cross(silver.folder / "model", length),
            lambda: [Task(material.scored(), objectives.CrossScore(), batch_size=size)],
            schedule=plan.labeller_sts,
            inputs={"model": silver.digest, "batch": size, "length": length, **self.teaching.of("sts")},
        )

    def labels(self, pairs: Done, multi: Done, labellers: Sequence[Done]) -> Done:
        plan, material = self.plan, self.material

        def make(folder: Path) -> Made:
            bi = self.shop.bi(multi, plan.train_length)
            crosses = [self.shop.cross(one.folder / "model", plan.train_length) for one in labellers]
            labeller = Labeller(bi, crosses, material.scored(), cosine_weight=plan.cosine_weight)
            read = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(pairs, "labels"), name="pairs")
            near = labeller.scale(load_array(pairs, "cosines"))
            labels = labeller.label(read.columns["a"], read.columns["b"], near, progress=self.shop.progress)
            return Made(save_arrays(folder, labels=labels), {"agreement": labeller.agreement(material.selection)})

        inputs: dict[str, object] = {"pairs": pairs.digest, "bi": multi.digest}
        inputs |= {"crosses": [one.digest for one in labellers]}
        inputs |= {"cosine": plan.cosine_weight, "length": plan.train_length}
        return self.shop.stages.run("labels", inputs, make)

    def finish(self, final: Done, calibrating: str) -> Done:
        """The model at its full length, with its thresholds, as float32 and as int8."""

        def make(folder: Path) -> Made:
            model = self.shop.bi(final, self.plan.max_length)
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


def read_silver(pool: Sequence[str], other: Mapping[str, str], pairs: Done, labels: Done, *, seed: int) -> Examples:
    """The pairs of a run with the labels that another of its stages gave them."""
    found = pairs_of(pool, load_array(pairs, "pairs"), load_array(labels, "labels"), name="silver")
    return in_other_languages(found, other, seed=seed)
