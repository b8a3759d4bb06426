"""A finished reranker that learns once more, in a few steps on small data; tests copy what they change."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from making.whole_run import bi_plan
from models.ko_en_0_1.agreeing import AgreeOptions
from models.ko_en_0_1.material import Material, read_material
from models.ko_en_0_1.reranker import RerankMade
from models.ko_en_0_1.settings import AgreePlan, Part, Schedule
from munjang.cross_encoder import CrossEncoder
from munjang.recipes.stages import Done

READERS = ("bilingual-1", "bilingual-2", "larger-1", "larger-2")
READ = (*READERS, "labels", "people")
AGREED = ("agreed", "agreed-2", "mean", "merged", "finish")
STAGES = ("begun", "pairs", "voices", "passages", "bilingual-nli", "larger-nli", *READ, *AGREED)


def plan(**changes: object) -> AgreePlan:
    small = AgreePlan(
        max_length=64,
        train_length=64,
        neighbours=3,
        translated_neighbours=2,
        other_neighbours=1,
        questions=60,
        held_questions=15,
        negatives=3,
        everyday=0,
        nli_batch=8,
        bilingual_nli=Schedule(4, 1e-3),
        bilingual=Schedule(6, 1e-3),
        larger_nli=Schedule(4, 1e-3),
        larger=Schedule(6, 1e-3),
        reader_parts={"silver": Part(0.5, 8), "people": Part(0.5, 8)},
        agreements=2,
        agreed=Schedule(6, 1e-3),
        agreed_parts={"silver": Part(0.5, 8), "people": Part(0.2, 8), "kept": Part(0.3, 8)},
    )
    return replace(small, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Run:
    folder: Path
    made: RerankMade
    given: AgreeOptions
    reranker: Path  # the folder that it began as
    bi: Path  # that of the bi-encoder
    tiny: Path  # every larger model

    def stage(self, name: str) -> Done:
        return next(one for one in self.made.stages if one.name == name)

    def array(self, stage: str, name: str) -> np.ndarray:
        found: np.ndarray = np.load(self.stage(stage).folder / f"{name}.npy")
        return found

    def cross(self, stage: str) -> CrossEncoder:
        """As the stages load it: on some machines it computes in bfloat16."""
        return CrossEncoder.load(self.stage(stage).folder / "model", device="cpu", max_length=64)

    def tasks(self, stage: str) -> dict[str, dict[str, Any]]:
        told = json.loads((self.stage(stage).folder / "config.json").read_text("utf-8"))["tasks"]
        return {task["name"]: task for task in told}

    @property
    def material(self) -> Material:
        return read_material(self.given.data, bi_plan())
