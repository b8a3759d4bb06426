"""The larger English model, made to read Korean: the body of a labeller of pairs (`labelling`).

    larger-student   its body with Korean pieces beside its own; their rows by translations and the second teacher
    larger-targets   its own vectors of English sentences
    larger-distil    Korean sentences learn to lie where their translations lie

It has 12 layers of 768 and is far too large for the package; what it knows reaches the bundled models by its labels.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from models.ko_en_0_1.silver import pairs_of
from models.ko_en_0_1.stage_training import described, load_array, save_arrays, task
from models.ko_en_0_1.teaching import Teaching, each
from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.recipes.stages import Done, Made
from munjang.students import VocabularyPlan
from munjang.training import Task, objectives
from munjang.training.run import hash_texts


class Larger:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching, model: str | Path) -> None:
        self.teaching, self.model = teaching, model
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        # Where it is missing, that is said now and not after the stages before.
        english = BiEncoder.load(model, device="cpu")
        self.print, self.width = english.fingerprint, english.dimension
        self.pieces = english.tokenizer.backend.get_vocab_size() + self.plan.larger_pieces

    def run(self, second: Done) -> Done:
        """The body that reads Korean. second: the second teacher's vectors."""
        return self.distil(self.student(), self.targets(), second)

    def student(self) -> Done:
        teaching, seed = self.teaching, self.teaching.options.seed
        vocabulary = VocabularyPlan(self.pieces, keep="all", embeddings="guide", hangul=self.plan.hangul)
        _, korean = self.material.translations.columns.values()
        texts = [*korean, *self.material.plain]

        def make(folder: Path) -> Made:
            return teaching.save_student(self.model, vocabulary, texts, folder)

        inputs = {"model": self.print, "guide": teaching.second_teacher.fingerprint, "seed": seed}
        inputs |= {"vocabulary": asdict(vocabulary), "texts": hash_texts(texts), **teaching.of("translations")}
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
