"""Unlabelled sentences -> silver pairs, stage after stage: what both bundled models learn from most.

    larger-*, bilingual-*   cross-encoders of larger models that were given: NLI, then STS
    compact-*, compact      the bilingual model made small (`compact`): what labellers begin as, else the student
    pairs       neighbours among all sentences, with the first whole model's cosines
    ...-labels  the pairs, labelled by each larger cross-encoder
    first       the labels that the next ones learn from: theirs and the cosines'
    labeller-*  cross-encoders of the package's size: NLI, then these pairs, then STS
    ...-best, -best-labels   the larger ones again: NLI, then these pairs, then STS; what they say then
    labels      the pairs again, labelled by all of them together

A pair that is there in two languages is labelled in English, where models are better, and learned in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.compact import Compact
from models.ko_en_0_1.crosses import Crosses
from models.ko_en_0_1.larger import Larger
from models.ko_en_0_1.settings import Schedule
from models.ko_en_0_1.silver import (
    Labeller,
    agreement,
    known_pairs,
    neighbours_of,
    pairs_of,
    silver_pairs,
    without_known,
)
from models.ko_en_0_1.stage_training import load_array, save_arrays
from models.ko_en_0_1.teaching import Teaching
from munjang.recipes.augmenting.blending import blended
from munjang.recipes.stages import Done, Made
from munjang.training.run import data_hash, hash_texts
from munjang.vectors import pairwise_similarity

Float32: TypeAlias = npt.NDArray[np.float32]
Voices: TypeAlias = tuple[Sequence[Float32], Sequence[Float32], Float32]  # labellers, larger ones, cosines: [n] each

_LARGER = 2.0  # how many ordinary labellers a larger one counts for


class _Larger(NamedTuple):
    """A cross-encoder of a larger model, after NLI and after scores."""

    stages: Crosses
    nli: Done
    sts: Done
    silver: Schedule  # of the second round; no steps: there is none
    again: Schedule


class Labelling:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching = teaching
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        given = teaching.options.larger
        self.larger = None if given is None else Larger(teaching, given)
        bilingual = teaching.options.bilingual
        self.compact = Compact(teaching, bilingual) if bilingual and self.plan.compact_layers else None

    def run(self, multi: Done, distil: Done, second: Done) -> tuple[Done, Done]:
        """(pairs, labels); multi: labels first and finds the pairs.

        distil: the student, as which labellers begin where no bilingual model was made small.
        second: the second teacher's vectors, from which the larger model learns Korean.
        """
        plan, bilingual = self.plan, self.teaching.options.bilingual
        larger: list[_Larger] = []
        if self.larger:
            schedules = plan.larger_nli, plan.larger_sts, plan.larger_silver
            larger.append(self.cross("larger", self.larger.run(second), *schedules))
        if bilingual is not None:
            schedules = plan.bilingual_nli, plan.bilingual_sts, plan.bilingual_silver
            larger.append(self.cross("bilingual", bilingual, *schedules))
        body = self.compact.run() if self.compact else distil
        begun = [self.begun(number, body) for number in range(1, plan.labellers + 1)]
        first = pairs = self.pairs(multi)
        said = [one.stages.labels(f"{one.stages.name}-labels", pairs, one.sts) for one in larger]
        if said:
            first = self.first(pairs, said)
        labellers = [self.labeller(one, nli, (pairs, first)) for one, nli in begun]
        best = [self.again(one, (pairs, first), before) for one, before in zip(larger, said, strict=True)]
        return pairs, self.labels(pairs, multi, labellers, best)

    def cross(self, name: str, body: Done | str | Path, nli: Schedule, sts: Schedule, silver: Schedule) -> _Larger:
        stages = Crosses(self.teaching, name, self.shop)
        begun = stages.nli(body, nli)
        return _Larger(stages, begun, stages.sts(begun, sts, labels=1), silver, sts)

    def again(self, one: _Larger, silver: tuple[Done, Done], before: Done) -> Done:
        """What a larger one says after a second round, which learns the first labels too; without it: before."""
        if not one.silver.steps:
            return before
        learned = one.stages.silver(one.nli, silver, one.silver)
        best = one.stages.sts(learned, one.again, last="best")
        return one.stages.labels(f"{one.stages.name}-best-labels", silver[0], best)

    def pairs(self, multi: Done) -> Done:
        plan, material, pool = self.plan, self.material, self.material.pool()

        def make(folder: Path) -> Made:
            model = self.shop.bi(multi, plan.train_length)
            vectors = model.encode(pool, normalize=True)
            most = max(plan.pool_neighbours, plan.scored_neighbours)
            near = neighbours_of(vectors, min(most, len(pool) - 1), device=str(model.device))
            scored = material.judged()
            counts = np.where(scored, plan.scored_neighbours, plan.pool_neighbours)
            pairs = silver_pairs(near, random_share=plan.random_pairs, seed=self.shop.seed, counts=counts)
            known = known_pairs([*material.sts.values(), *material.selection, *material.evaluation])
            pairs = without_known(pool, pairs, known)
            cosines = np.asarray(pairwise_similarity(vectors[pairs[:, 0]], vectors[pairs[:, 1]]), np.float32)
            labels = Labeller(model, [], material.scored()).scale(cosines)
            names = save_arrays(folder, pairs=pairs, cosines=cosines, labels=labels)
            more = int(scored[pairs].any(axis=1).sum())
            return Made(names, {"sentences": len(pool), "pairs": len(pairs), "with a scored sentence": more})

        inputs = {"model": multi.digest, "pool": hash_texts(pool), "random": plan.random_pairs}
        inputs |= {"neighbours": [plan.pool_neighbours, plan.scored_neighbours]}
        inputs |= {"length": plan.train_length, "seed": self.shop.seed}
        inputs |= {"evaluation": [data_hash(one) for one in material.evaluation]}
        return self.shop.stages.run("pairs", inputs, make)

    def first(self, pairs: Done, larger: Sequence[Done]) -> Done:
        weight = self.plan.cosine_weight

        def make(folder: Path) -> Made:
            labels = together([], [load_array(one, "scores") for one in larger], load_array(pairs, "labels"), weight)
            return Made(save_arrays(folder, labels=labels), {"pairs": len(labels)})

        inputs = {"pairs": pairs.digest, "larger": [one.digest for one in larger], "cosine": weight}
        return self.shop.stages.run("first", inputs, make)

    def begun(self, number: int, body: Done) -> tuple[Crosses, Done]:
        """One cross-encoder that knows NLI; it needs no labels of pairs yet."""
        stages = Crosses(self.teaching, f"labeller-{number}", replace(self.shop, seed=self.shop.seed + number))
        return stages, stages.nli(body, self.plan.labeller_nli)

    def labeller(self, stages: Crosses, nli: Done, silver: tuple[Done, Done]) -> Done:
        """One cross-encoder: the first labels of many pairs, then those of people."""
        plan = self.plan
        return stages.sts(stages.silver(nli, silver, plan.labeller_silver), plan.labeller_sts)

    def labels(self, pairs: Done, multi: Done, labellers: Sequence[Done], larger: Sequence[Done]) -> Done:
        plan, material = self.plan, self.material

        def make(folder: Path) -> Made:
            bi = self.shop.bi(multi, plan.train_length)
            crosses = [self.shop.cross(one.folder / "model", plan.train_length) for one in labellers]
            labeller = Labeller(bi, crosses, material.scored())
            read = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(pairs, "labels"), name="pairs")
            near = labeller.scale(load_array(pairs, "cosines"))
            scores = labeller.read(read.columns["a"], read.columns["b"], progress=self.shop.progress)
            told = self._selection(labeller, [load_array(one, "selection") for one in larger])
            found = {
                weight: agreement(material.selection, [together(*one, weight) for one in told])
                for weight in plan.cosine_weights
            }
            weight = max(found, key=lambda one: fmean(found[one].values()))
            labels = together(scores, [load_array(one, "scores") for one in larger], near, weight)
            facts = {"agreement": found[weight], "cosine": weight}
            return Made(save_arrays(folder, labels=labels), facts)

        inputs: dict[str, object] = {"pairs": pairs.digest, "bi": multi.digest}
        inputs |= {"crosses": [one.digest for one in labellers], "larger": [one.digest for one in larger]}
        inputs |= {"cosine": plan.cosine_weights, "length": plan.train_length}
        inputs |= {"selection": [data_hash(one) for one in material.selection]}
        return self.shop.stages.run("labels", inputs, make)

    def _selection(self, labeller: Labeller, larger: Sequence[Float32]) -> list[Voices]:
        """Who says what of each selection set. larger: what each said of all their rows."""
        found: list[Voices] = []
        first = 0
        for one in self.material.selection:
            a, b = one.columns.values()
            rows = slice(first, first + len(one))
            said = [each[rows] for each in larger]
            found.append((labeller.read(a, b), said, labeller.near(a, b)))
            first += len(one)
        return found


def together(scores: Sequence[Float32], larger: Sequence[Float32], near: Float32, cosine_weight: float) -> Float32:
    """One label for every pair [n]: by the labellers, by larger ones where there are some, by the cosine."""
    voices = [(1.0, one) for one in scores] + [(_LARGER, one) for one in larger]
    if not voices:
        return near.astype(np.float32)
    weights, said = zip(*voices, strict=True)
    return blended(np.average(said, axis=0, weights=weights).astype(np.float32), near, cosine_weight)
