"""The bilingual model made small enough for the package: what the labellers, and so the reranker, begin as.

    compact-student   some of its layers, and of its pieces those that our texts use most
    compact           it learns to give the whole model's vectors again

Enters: a bi-encoder of any size, the texts of `teaching`. Leaves: a stage with a bi-encoder of the plan's size. Its
body read much Korean before we met it, where the student's Korean is all ours; what came of that as a reranker, better
here and worse there, stands in docs/models.md.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import cast

import numpy as np

from models.ko_en_0_1.settings import Part
from models.ko_en_0_1.stage_training import Array, described, task
from models.ko_en_0_1.teaching import Teaching
from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.recipes.stages import Done, Made
from munjang.students import StudentPlan, VocabularyPlan, fewer_layers, make_student
from munjang.students.layers import chosen_layers
from munjang.students.plans import VocabularyKind
from munjang.students.vocabulary import old_vocabulary
from munjang.training import Task, objectives
from munjang.training.run import hash_texts


class Compact:
    """The stages, in order; each is a method that tells what it is made of."""

    def __init__(self, teaching: Teaching, model: str | Path) -> None:
        self.teaching, self.model = teaching, model
        self.plan, self.material, self.shop = teaching.plan, teaching.material, teaching.shop
        # What cannot be made smaller is refused now and not after the stages before.
        whole = BiEncoder.load(model, device="cpu")
        self.print, self.width = whole.fingerprint, whole.dimension
        chosen_layers(whole.parts.hf_config, self.plan.compact_layers)
        kind = cast(VocabularyKind, old_vocabulary(whole.tokenizer, keep_added=True).kind)
        self.vocabulary = VocabularyPlan(self.plan.compact_pieces, kind, old_share=1.0)

    def run(self) -> Done:
        return self.taught(self.student())

    def student(self) -> Done:
        plan, vocabulary, texts = self.plan, self.vocabulary, self.teaching.texts()

        def make(folder: Path) -> Made:
            whole = BiEncoder.load(self.model, device="cpu")
            cut = fewer_layers(whole.parts, plan.compact_layers)
            made = make_student(cut, StudentPlan(vocabulary=vocabulary), texts=texts, progress=self.shop.progress)
            BiEncoder(made.parts, device="cpu").save(folder / "model")
            return Made(["model"], {"layers": list(plan.compact_layers), "report": made.report})

        inputs = {"model": self.print, "layers": plan.compact_layers, "vocabulary": asdict(vocabulary)}
        return self.shop.stages.run("compact-student", {**inputs, "texts": hash_texts(texts)}, make)

    def taught(self, student: Done) -> Done:
        plan, parts = self.plan, {"texts": Part(1.0, self.plan.compact_batch)}
        english, korean = self.material.translations.columns.values()
        texts = list(dict.fromkeys([*english, *korean, *self.material.plain, *self.teaching.rare]))

        def vectors() -> Array:
            whole = BiEncoder.load(self.model, device=self.shop.device, max_length=plan.train_length)
            found = whole.encode(texts, normalize=True, progress=self.shop.progress)
            return found.astype(np.float16)

        def tasks() -> list[Task]:
            teaching = objectives.Teaching(self.width, mse=0, cosine=plan.cosine, relational=plan.relational)
            examples = Examples("texts", "taught", {"text": texts}, vectors())
            return [task(examples, objectives.Distil([teaching]), parts["texts"])]

        inputs: dict[str, object] = {"student": student.digest, "teacher": self.print, "texts": hash_texts(texts)}
        inputs |= {"parts": described(parts), "losses": [plan.cosine, plan.relational], "length": plan.train_length}
        return self.shop.trained(
            "compact",
            lambda: self.shop.bi(student, plan.train_length),
            tasks,
            schedule=plan.compact,
            inputs=inputs,
        )
