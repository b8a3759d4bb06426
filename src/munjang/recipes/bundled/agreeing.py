"""The reranker once more: what it says of pairs, put right by models that err elsewhere, and learned again.

People's scores are few, and a cross-encoder that read them many times over knows them by heart. Cosines err elsewhere:
those of the finished bi-encoder, and of English pairs those of the larger English model as it was given, which was not
taught these scores here. All together agree better with people than the reranker alone, which the stage tells.

    voices   the labels: silver pairs with a sentence of a scored set, by all together; questions and passages, by the
             reranker alone
    agreed   both are learned: likeness anew, and what it says of passages is to stay
    agreed-2 ..., agreed-mean   the same by other seeds, and the mean of their weights

Enters: the reranker, the bi-encoder's making, questions with passages. Leaves: another reranker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.recipes.augmenting.blending import Scale, blended
from munjang.recipes.bundled.making import BiMade
from munjang.recipes.bundled.material import Material
from munjang.recipes.bundled.passages import HANGUL
from munjang.recipes.bundled.settings import RerankPlan
from munjang.recipes.bundled.silver import (
    Float32,
    Int64,
    Labeller,
    agreement,
    cosines_of,
    either_way,
    in_other_languages,
    pairs_of,
)
from munjang.recipes.bundled.stage_training import OTHER_SEED, Workshop, described, load_array, save_arrays, task
from munjang.recipes.stages import Done, Made
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts


@dataclass(frozen=True)
class Agreeing:
    """What both stages are made of."""

    plan: RerankPlan
    material: Material
    shop: Workshop
    bi: BiMade
    larger: str | Path | None  # the English bi-encoder
    passages: Callable[[], Examples]  # questions with right and wrong passages, as judged pairs

    def run(self, before: Done) -> Done:
        """before: the stage that left the reranker."""
        voices = self.voices(before)
        trained = [self.agreed(number, before, voices) for number in range(1, self.plan.agreements + 1)]
        return self.shop.mean(
            trained, lambda one: self.shop.cross(one.folder / "model", self.plan.max_length), name="agreed-mean"
        )

    def voices(self, before: Done) -> Done:
        """float32 [pairs]: labels of `_places`; int64 and float32 [kept]: rows of `passages`, and their scores."""
        plan, shop, material = self.plan, self.shop, self.material

        def make(folder: Path) -> Made:
            cross = shop.cross(before.folder / "model", plan.train_length)
            near = BiEncoder.load(self.bi.folder, device=shop.device)
            larger = None if self.larger is None else BiEncoder.load(self.larger, device=shop.device)
            together = Together(near, larger, material=material, plan=plan)
            read = either_way(self._silver(None), seed=shop.seed)
            labels = together(*read.columns.values(), scores=cross.predict(_rows(read), progress=shop.progress))
            alone = [cross.predict(_rows(one)) for one in material.selection]
            told = [
                together(*one.columns.values(), scores=said)
                for one, said in zip(material.selection, alone, strict=True)
            ]
            judged = self.passages()
            rows = np.sort(np.random.default_rng(shop.seed).permutation(len(judged))[: plan.agreed_kept])
            kept = cross.predict(_rows(judged.take(rows)), progress=shop.progress)
            names = save_arrays(folder, labels=labels, rows=rows, kept=kept)
            facts = {"alone": agreement(material.selection, alone), "together": agreement(material.selection, told)}
            return Made(names, {"pairs": len(labels), "kept": len(kept), "agreement": facts})

        inputs: dict[str, object] = {"model": before.digest, "bi": self.bi.stages["finish"].digest}
        inputs["larger"] = None if self.larger is None else BiEncoder.load(self.larger, device="cpu").fingerprint
        inputs |= {"pairs": self.bi.stages["pairs"].digest, "passages": data_hash(self.passages())}
        inputs |= {"scored": data_hash(material.scored()), "length": plan.train_length, "seed": shop.seed}
        inputs |= {"weights": [plan.agreed_cosine, plan.agreed_larger], "kept": plan.agreed_kept}
        inputs["selection"] = [data_hash(one) for one in material.selection]
        return shop.stages.run("voices", inputs, make)

    def agreed(self, number: int, before: Done, voices: Done) -> Done:
        """One of several trainings, which read the pairs in other orders and languages."""
        shop = replace(self.shop, seed=self.shop.seed + OTHER_SEED * (number - 1))
        plan, parts = self.plan, self.plan.agreed_parts

        def tasks() -> list[Task]:
            labelled = self._silver(load_array(voices, "labels"))
            silver = in_other_languages(labelled, self.material.other, seed=shop.seed)
            judged = self.passages().take(load_array(voices, "rows"))
            queries, documents = judged.columns.values()
            kept = Examples("kept", "scored", {"a": queries, "b": documents}, load_array(voices, "kept"))
            return [
                task(either_way(silver, seed=shop.seed), objectives.CrossScore(), parts["silver"]),
                task(kept, objectives.CrossScore(), parts["kept"]),
            ]

        return shop.trained(
            "agreed" if number == 1 else f"agreed-{number}",
            lambda: shop.cross(before.folder / "model", plan.train_length),
            tasks,
            schedule=plan.agreed,
            inputs={
                "model": before.digest,
                "voices": voices.digest,
                "translations": hash_texts([text for pair in self.material.other.items() for text in pair]),
                "parts": described(parts),
                "length": plan.train_length,
            },
        )

    def _silver(self, labels: Float32 | None) -> Examples:
        """The pairs with their labels, in English where they are there in both languages; None: none yet."""
        pool, places = self.material.pool(), self._places()
        return pairs_of(pool, places, np.zeros(len(places), np.float32) if labels is None else labels, name="silver")

    def _places(self) -> Int64:  # [pairs, 2]
        """Of the silver pairs, those with a sentence of a scored set: they are of the kind that is judged."""
        pairs: Int64 = load_array(self.bi.stages["pairs"], "pairs")
        return pairs[self.material.judged()[pairs].any(axis=1)]


class Together:
    """A cross-encoder's scores, put right by cosines on the scale of people's scores."""

    def __init__(self, near: BiEncoder, larger: BiEncoder | None, *, material: Material, plan: RerankPlan) -> None:
        self.larger, self.plan = larger, plan
        self.near = Labeller(near, [], material.scored())
        if larger is not None:
            english = material.sts["stsb"]
            assert english.targets is not None
            self.scale = Scale.fit(cosines_of(larger, *english.columns.values()), english.targets)

    def __call__(self, a: Sequence[str], b: Sequence[str], *, scores: Float32) -> Float32:
        """One label for every pair [n]. scores [n]: what the cross-encoder says."""
        labels = blended(scores, self.near.near(a, b), self.plan.agreed_cosine)
        if self.larger is None:
            return labels
        rows = [row for row, pair in enumerate(zip(a, b, strict=True)) if not any(map(HANGUL.search, pair))]
        if rows:
            told = cosines_of(self.larger, [a[row] for row in rows], [b[row] for row in rows])
            labels[rows] = blended(labels[rows], self.scale(told), self.plan.agreed_larger)
        return labels


def _rows(examples: Examples) -> list[tuple[str, str]]:
    a, b = examples.columns.values()
    return list(zip(a, b, strict=True))
