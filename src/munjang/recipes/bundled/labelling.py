"""Unlabelled sentences -> silver pairs, stage after stage: what both bundled models learn from most.

    pairs       neighbours among all sentences, with the first whole model's cosines
    english-*   the larger English model as a cross-encoder: NLI, then STS (left out where none was given)
    english     the pairs that are English on both sides, labelled by it
    labeller-*  cross-encoders: NLI, then these pairs, then STS
    labels      the pairs again, labelled by all of them together

A pair that is there in two languages is labelled in English, where models are better, and learned in both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, join
from munjang.data.cells import NLI_LABELS
from munjang.evaluation.metrics import spearman
from munjang.recipes.augmenting.blending import blended
from munjang.recipes.bundled.material import Material
from munjang.recipes.bundled.silver import (
    Labeller,
    in_other_languages,
    known_pairs,
    neighbours_of,
    pairs_of,
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

_NLI = tuple(NLI_LABELS)[:3]
_HANGUL = re.compile(r"[가-힣]")
_LARGER = 2.0  # how many ordinary labellers the larger one counts for


class Labelling:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching, self.larger = teaching, teaching.options.larger
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        # Where it is missing, that is said now and not after the stages before.
        self.larger_print = None if self.larger is None else BiEncoder.load(self.larger, device="cpu").fingerprint

    def run(self, multi: Done, distil: Done) -> tuple[Done, Done]:
        """(pairs, labels); multi: labels first and finds the pairs; distil: what the cross-encoders begin as."""
        pairs = self.pairs(multi)
        english = self.english(pairs, self.english_labeller()) if self.larger is not None else None
        numbers = range(1, self.plan.labellers + 1)
        labellers = [self.labeller(number, distil, (pairs, english or pairs)) for number in numbers]
        return pairs, self.labels(pairs, multi, labellers, english)

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

    # --- the larger English model ------------------------------------------------------------------------------------

    def english_labeller(self) -> Done:
        plan, material, length = self.plan, self.material, self.plan.train_length
        larger, size = self.larger, plan.labeller_batch
        assert larger is not None
        shop = replace(self.shop, selection=self.shop.selection[-1:])  # it reads no Korean

        def begin() -> CrossEncoder:
            body = BiEncoder.load(larger, device=shop.device, max_length=length)
            return CrossEncoder.from_body(body, _NLI, seed=shop.seed, device=shop.device)

        nli = shop.trained(
            "english-nli",
            begin,
            lambda: [Task(material.nli["en"], objectives.CrossEntropy(), batch_size=size)],
            schedule=plan.english_nli,
            inputs={"body": self.larger_print, "batch": size, "length": length, **self.teaching.of("nli")},
            select=False,
        )
        return shop.trained(
            "english-sts",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [Task(both_ways(material.scored("stsb")), objectives.CrossScore(), batch_size=size)],
            schedule=plan.english_sts,
            inputs={"model": nli.digest, "batch": size, "length": length, **self.teaching.of("sts")},
        )

    def english(self, pairs: Done, labeller: Done) -> Done:
        """float32 [pairs]: its labels of English pairs, NaN for others; and first labels of all."""
        plan, shop = self.plan, self.shop

        def make(folder: Path) -> Made:
            model = shop.cross(labeller.folder / "model", plan.train_length)
            pool, places = self.material.pool(), load_array(pairs, "pairs")
            readable = np.array([not _HANGUL.search(text) for text in pool])
            rows = np.flatnonzero(readable[places].all(axis=1))
            scores = np.full(len(places), np.nan, np.float32)
            asked = [(pool[a], pool[b]) for a, b in places[rows].tolist()]
            scores[rows] = model.predict(asked, progress=shop.progress)
            first = with_english([], scores, load_array(pairs, "labels"), plan.cosine_weight)
            dev = self.shop.selection[-1]
            told = model.predict(list(zip(*dev.columns.values(), strict=True)))
            assert dev.targets is not None
            facts = {"pairs": len(rows), "agreement": {dev.name: spearman(np.asarray(dev.targets), told)}}
            return Made(save_arrays(folder, scores=scores, labels=first), facts)

        inputs = {"pairs": pairs.digest, "labeller": labeller.digest, "length": plan.train_length}
        return self.shop.stages.run("english", {**inputs, "cosine": plan.cosine_weight}, make)

    # --- labellers of both languages ---------------------------------------------------------------------------------

    def labeller(self, number: int, distil: Done, silver: tuple[Done, Done]) -> Done:
        """One cross-encoder: NLI, then the first labels of many pairs, then those of people."""
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

    def labels(self, pairs: Done, multi: Done, labellers: Sequence[Done], english: Done | None) -> Done:
        plan, material = self.plan, self.material

        def make(folder: Path) -> Made:
            bi = self.shop.bi(multi, plan.train_length)
            crosses = [self.shop.cross(one.folder / "model", plan.train_length) for one in labellers]
            labeller = Labeller(bi, crosses, material.scored(), cosine_weight=plan.cosine_weight)
            read = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(pairs, "labels"), name="pairs")
            near = labeller.scale(load_array(pairs, "cosines"))
            scores = labeller.read(read.columns["a"], read.columns["b"], progress=self.shop.progress)
            larger = np.full(len(near), np.nan, np.float32) if english is None else load_array(english, "scores")
            labels = with_english(scores, larger, near, plan.cosine_weight)
            return Made(save_arrays(folder, labels=labels), {"agreement": labeller.agreement(material.selection)})

        inputs: dict[str, object] = {"pairs": pairs.digest, "bi": multi.digest}
        inputs |= {"crosses": [one.digest for one in labellers], "english": english.digest if english else None}
        inputs |= {"cosine": plan.cosine_weight, "length": plan.train_length}
        return self.shop.stages.run("labels", inputs, make)


def with_english(scores: Sequence[Float32], larger: Float32, near: Float32, cosine_weight: float) -> Float32:
    """One label for every pair [n]: by the labellers, by the larger one where it is not NaN, by the cosine."""
    total = np.sum(scores, axis=0, dtype=np.float32) if len(scores) else np.zeros(len(near), np.float32)
    there = ~np.isnan(larger)
    counts = len(scores) + _LARGER * there
    mean = (total + np.where(there, _LARGER * np.nan_to_num(larger), 0)) / np.maximum(counts, 1)
    labels: Float32 = np.where(counts > 0, blended(mean, near, cosine_weight), near).astype(np.float32)
    return labels


def both_ways(examples: Examples) -> Examples:
    """Scored pairs in both orders: a likeness has none, and a cross-encoder is to know it."""
    a, b = examples.columns
    turned = replace(examples, columns={a: examples.columns[b], b: examples.columns[a]})
    return join([examples, turned], name=examples.name)


def read_silver(material: Material, pairs: Done, labels: Done, *, seed: int) -> Examples:
    """The pairs of a run with the labels that another of its stages gave them, in either language."""
    found = pairs_of(material.pool(), load_array(pairs, "pairs"), load_array(labels, "labels"), name="silver")
    return in_other_languages(found, material.other, seed=seed)
