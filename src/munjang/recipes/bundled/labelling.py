"""Unlabelled sentences -> silver pairs, stage after stage: what both bundled models learn from most.

    pairs       neighbours among all sentences, with the first whole model's cosines
    larger      the pairs, labelled by a larger cross-encoder (module `larger`; where a larger model was given)
    first       the labels that the next ones learn from: its and the cosines'
    labeller-*  cross-encoders of the student: NLI, then these pairs, then STS
    best        the pairs, labelled by the larger cross-encoder that learned from them too
    labels      the pairs again, labelled by all of them together

A pair that is there in two languages is labelled in English, where models are better, and learned in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from munjang.cross_encoder import CrossEncoder
from munjang.recipes.augmenting.blending import blended
from munjang.recipes.bundled.larger import NLI, Larger
from munjang.recipes.bundled.silver import (
    Labeller,
    both_ways,
    known_pairs,
    neighbours_of,
    pairs_of,
    read_silver,
    silver_pairs,
    without_known,
)
from munjang.recipes.bundled.stage_training import load_array, save_arrays
from munjang.recipes.bundled.teaching import Teaching
from munjang.recipes.stages import Done, Made
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import pairwise_similarity

Float32 = npt.NDArray[np.float32]

_LARGER = 2.0  # how many ordinary labellers the larger one counts for


class Labelling:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching = teaching
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        given = teaching.options.larger
        self.larger = None if given is None else Larger(teaching, given)

    def run(self, multi: Done, distil: Done, second: Done) -> tuple[Done, Done]:
        """(pairs, labels); multi: labels first and finds the pairs; distil: what the cross-encoders begin as.

        second: the second teacher's vectors, from which the larger model learns Korean.
        """
        larger, best = self.larger, None
        crosses = larger.run(second) if larger else None
        first = pairs = self.pairs(multi)
        if larger and crosses:
            first = self.first(pairs, larger.labels("larger", pairs, crosses.sts))
        numbers = range(1, self.plan.labellers + 1)
        labellers = [self.labeller(number, distil, (pairs, first)) for number in numbers]
        if larger and crosses:
            again = larger.sts("larger-best", larger.silver(crosses.nli, (pairs, first)))
            best = larger.labels("best", pairs, again)
        return pairs, self.labels(pairs, multi, labellers, best)

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

    def first(self, pairs: Done, larger: Done) -> Done:
        weight = self.plan.cosine_weight

        def make(folder: Path) -> Made:
            labels = together([], load_array(larger, "scores"), load_array(pairs, "labels"), weight)
            return Made(save_arrays(folder, labels=labels), {"pairs": len(labels)})

        return self.shop.stages.run("first", {"pairs": pairs.digest, "larger": larger.digest, "cosine": weight}, make)

    def labeller(self, number: int, distil: Done, silver: tuple[Done, Done]) -> Done:
        """One cross-encoder: NLI, then the first labels of many pairs, then those of people."""
        plan, material, name = self.plan, self.material, f"labeller-{number}"
        shop = replace(self.shop, seed=self.shop.seed + number)
        size, length = plan.labeller_batch, plan.train_length

        def begin() -> CrossEncoder:
            return CrossEncoder.from_body(shop.bi(distil, length), NLI, seed=shop.seed, device=shop.device)

        nli = shop.trained(
            f"{name}-nli",
            begin,
            lambda: [Task(one, objectives.CrossEntropy(), batch_size=size) for one in material.nli.values()],
            schedule=plan.labeller_nli,
            inputs={"body": distil.digest, "batch": size, "length": length, **self.teaching.of("nli")},
            select=False,
        )
        seed = self.shop.seed  # of the languages that the pairs are read in: the same for every labeller
        trained = shop.trained(
            f"{name}-silver",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [Task(read_silver(material, *silver, seed=seed), objectives.CrossScore(), batch_size=2 * size)],
            schedule=plan.labeller_silver,
            inputs={"model": nli.digest, "pairs": [one.digest for one in silver], "batch": 2 * size, "length": length},
            select=False,
        )
        return shop.trained(
            f"{name}-sts",
            lambda: shop.cross(trained.folder / "model", length),
            lambda: [Task(both_ways(material.scored()), objectives.CrossScore(), batch_size=size)],
            schedule=plan.labeller_sts,
            inputs={"model": trained.digest, "batch": size, "length": length, **self.teaching.of("sts")},
        )

    def labels(self, pairs: Done, multi: Done, labellers: Sequence[Done], larger: Done | None) -> Done:
        plan, material = self.plan, self.material

        def make(folder: Path) -> Made:
            bi = self.shop.bi(multi, plan.train_length)
            crosses = [self.shop.cross(one.folder / "model", plan.train_length) for one in labellers]
            labeller = Labeller(bi, crosses, material.scored(), cosine_weight=plan.cosine_weight)
            read = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(pairs, "labels"), name="pairs")
            near = labeller.scale(load_array(pairs, "cosines"))
            scores = labeller.read(read.columns["a"], read.columns["b"], progress=self.shop.progress)
            best = load_array(larger, "scores") if larger else None
            labels = together(scores, best, near, plan.cosine_weight)
            return Made(save_arrays(folder, labels=labels), {"agreement": labeller.agreement(material.selection)})

        inputs: dict[str, object] = {"pairs": pairs.digest, "bi": multi.digest}
        inputs |= {"crosses": [one.digest for one in labellers], "larger": larger.digest if larger else None}
        inputs |= {"cosine": plan.cosine_weight, "length": plan.train_length}
        return self.shop.stages.run("labels", inputs, make)


def together(scores: Sequence[Float32], larger: Float32 | None, near: Float32, cosine_weight: float) -> Float32:
    """One label for every pair [n]: by the labellers, by the larger one where there is one, by the cosine."""
    voices = [(1.0, one) for one in scores] + ([] if larger is None else [(_LARGER, larger)])
    if not voices:
        return near.astype(np.float32)
    weights, said = zip(*voices, strict=True)
    return blended(np.average(said, axis=0, weights=weights).astype(np.float32), near, cosine_weight)
