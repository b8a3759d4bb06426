"""The larger English model, made to read Korean, as a cross-encoder: the best labeller of pairs that there is here.

    larger-student   its body with Korean pieces beside its own; their rows by translations and the second teacher
    larger-targets   its own vectors of English sentences
    larger-distil    Korean sentences learn to lie where their translations lie
    larger-nli, -sts a cross-encoder of it: NLI, then scores that people gave, in both languages
    larger           the pairs, labelled by it
    larger-silver, -best   it again, after `larger-nli`: these labels and the cosines' first, then those of people
    best             the pairs, labelled by that one

It has 12 layers of 768 and is far too large for the package; what it knows reaches the bundled models by its labels.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.data.cells import NLI_LABELS
from munjang.evaluation.metrics import spearman
from munjang.recipes.bundled.silver import both_ways, pairs_of, read_silver
from munjang.recipes.bundled.stage_training import described, load_array, save_arrays, task
from munjang.recipes.bundled.teaching import Teaching, each
from munjang.recipes.stages import Done, Made
from munjang.students import VocabularyPlan
from munjang.training import Task, objectives
from munjang.training.run import data_hash, hash_texts

NLI = tuple(NLI_LABELS)[:3]


class Crosses(NamedTuple):
    """The larger cross-encoder after NLI, and after scores."""

    nli: Done
    sts: Done


class Larger:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching, model: str | Path) -> None:
        self.teaching, self.model = teaching, model
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        # Where it is missing, that is said now and not after the stages before.
        english = BiEncoder.load(model, device="cpu")
        self.print, self.width = english.fingerprint, english.dimension
        self.pieces = english.tokenizer.backend.get_vocab_size() + self.plan.larger_pieces

    def run(self, second: Done) -> Crosses:
        """second: the second teacher's vectors."""
        nli = self.nli(self.distil(self.student(), self.targets(), second))
        return Crosses(nli, self.sts("larger-sts", nli, labels=1))

    # --- it learns Korean --------------------------------------------------------------------------------------------

    def student(self) -> Done:
        options = self.teaching.options
        vocabulary = VocabularyPlan(self.pieces, keep="all", embeddings="guide", hangul=self.plan.hangul)
        _, korean = self.material.translations.columns.values()
        texts = [*korean, *self.material.plain]

        def make(folder: Path) -> Made:
            return self.teaching.save_student(self.model, vocabulary, texts, folder)

        inputs = {"model": self.print, "guide": options.second.fingerprint, "seed": options.seed}
        inputs |= {"vocabulary": asdict(vocabulary), "texts": hash_texts(texts), **self.teaching.of("translations")}
        return self.shop.stages.run("larger-student", inputs, make)

    def targets(self) -> Done:
        english, _ = self.material.translations.columns.values()

        def make(folder: Path) -> Made:
            model = BiEncoder.load(self.model, device=self.shop.device, max_length=self.plan.train_length)
            vectors = each(english, lambda some: model.encode(some, normalize=True)).astype(np.float16)
            return Made(save_arrays(folder, translations=vectors), {"translations": len(vectors)})

        inputs = {"model": self.print, "length": self.plan.train_length, **self.teaching.of("translations")}
        return self.shop.stages.run("larger-targets", inputs, make)

    def distil(self, student: Done, targets: Done, second: Done) -> Done:
        plan, material, parts = self.plan, self.material, self.plan.larger_distil_parts

        def tasks() -> list[Task]:
            english, korean = material.translations.columns.values()
            vectors = [load_array(one, "translations") for one in (targets, second)]
            both = Examples(
                "translations", "taught", {"text": english, "translation": korean}, np.concatenate(vectors, axis=1)
            )
            plain = Examples("plain", "taught", {"text": material.plain}, load_array(second, "plain"))
            scores = load_array(second, "scores")
            near = pairs_of(material.plain, load_array(second, "pairs"), scores, name="neighbours")
            return [
                task(both, self.teaching.objective(self.width), parts["translations"]),
                task(plain, objectives.Distil([self.teaching.by_second(1.0)]), parts["plain"]),
                task(near, objectives.CoSent(), parts["neighbours"]),
            ]

        inputs: dict[str, object] = {one.name: one.digest for one in (student, targets, second)}
        inputs |= {"parts": described(parts), "losses": self.teaching.losses, "length": plan.train_length}
        return self.shop.trained(
            "larger-distil",
            lambda: self.shop.bi(student, plan.train_length),
            tasks,
            schedule=plan.larger_distil,
            inputs=inputs,
        )

    # --- it becomes a cross-encoder, and labels ----------------------------------------------------------------------

    def nli(self, distil: Done) -> Done:
        plan, material, shop = self.plan, self.material, self.shop
        length, size = plan.train_length, plan.labeller_batch

        def begin() -> CrossEncoder:
            return CrossEncoder.from_body(shop.bi(distil, length), NLI, seed=shop.seed, device=shop.device)

        return shop.trained(
            "larger-nli",
            begin,
            lambda: [Task(one, objectives.CrossEntropy(), batch_size=size) for one in material.nli.values()],
            schedule=plan.larger_nli,
            inputs={"body": distil.digest, "batch": size, "length": length, **self.teaching.of("nli")},
            select=False,
        )

    def silver(self, nli: Done, silver: tuple[Done, Done]) -> Done:
        """silver: pairs, and the first labels of them."""
        plan, shop = self.plan, self.shop
        length, size = plan.train_length, 2 * plan.labeller_batch
        return shop.trained(
            "larger-silver",
            lambda: shop.cross(nli.folder / "model", length, labels=1),
            lambda: [
                Task(read_silver(self.material, *silver, seed=shop.seed), objectives.CrossScore(), batch_size=size)
            ],
            schedule=plan.larger_silver,
            inputs={"model": nli.digest, "pairs": [one.digest for one in silver], "batch": size, "length": length},
            select=False,
        )

    def sts(self, name: str, begun: Done, *, labels: int | None = None) -> Done:
        """Scores that people gave. labels: how many the head is to have, where that is another number."""
        plan, shop = self.plan, self.shop
        length, size = plan.train_length, plan.labeller_batch
        return shop.trained(
            name,
            lambda: shop.cross(begun.folder / "model", length, labels=labels),
            lambda: [Task(both_ways(self.material.scored()), objectives.CrossScore(), batch_size=size)],
            schedule=plan.larger_sts,
            inputs={"model": begun.digest, "batch": size, "length": length, **self.teaching.of("sts")},
        )

    def labels(self, name: str, pairs: Done, labeller: Done) -> Done:
        """float32 [pairs]: what it says of each. A pair that is there in two languages is read in English."""
        plan, shop = self.plan, self.shop

        def make(folder: Path) -> Made:
            model = shop.cross(labeller.folder / "model", plan.train_length)
            pool, places = self.material.pool(), load_array(pairs, "pairs").tolist()
            scores = model.predict([(pool[a], pool[b]) for a, b in places], progress=shop.progress)
            agreement = {}
            for one in shop.selection:
                assert one.targets is not None
                told = model.predict(list(zip(*one.columns.values(), strict=True)))
                agreement[one.name] = spearman(np.asarray(one.targets), told)
            return Made(save_arrays(folder, scores=scores), {"pairs": len(scores), "agreement": agreement})

        inputs = {"pairs": pairs.digest, "labeller": labeller.digest, "length": plan.train_length}
        inputs |= {"selection": [data_hash(one) for one in shop.selection]}
        return self.shop.stages.run(name, inputs, make)
