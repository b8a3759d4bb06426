"""The stage `measure`: the student before and after, and its teachers, on every development and test set.

A teacher that does not know a set's language is measured all the same: how little it knows is what a multilingual
student is compared with. A teacher that is no model of ours is measured through its vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from munjang.bi_encoder import BiEncoder, Encoded
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError
from munjang.evaluation import Evaluator, Scores, evaluate
from munjang.files import atomic_write, disk_errors
from munjang.recipes.defaults import RecipeName
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.options import Compared
from munjang.recipes.distilling.teacher_vectors import blocks_of
from munjang.recipes.distilling.teachers import Loaded
from munjang.recipes.options import Model
from munjang.recipes.stages import Made
from munjang.recipes.tasks import Work, evaluators
from munjang.recipes.telling import say
from munjang.types import EncodeReport

NAME = "measured.json"
_BOOTSTRAP = 1000  # draws for the intervals of test scores
_BLOCK = 1024  # texts that a teacher which is no model of ours gets at a time


def dev_evaluators(job: Job) -> list[Evaluator]:
    """What chooses the model."""
    return evaluators(_like(job), job.sets.dev, Work(()))


def test_evaluators(job: Job) -> list[Evaluator]:
    """What reports, each with an interval."""
    return evaluators(_like(job), job.sets.test, Work(()), bootstrap=_BOOTSTRAP)


def _like(job: Job) -> RecipeName:
    """The recipe whose evaluators measure such a student."""
    return "cross_rank" if job.cross_student else "sts"


def make(folder: Path, job: Job, before: Model | None, after: Model) -> Made:
    """Measure, and write measured.json."""
    chosen = [*test_evaluators(job), *dev_evaluators(job)]
    plain = [replace(one, bootstrap=0) for one in cast(Any, chosen)]  # only the student's interval is shown
    found: dict[str, object] = {"parts": ["test"] * len(job.sets.test) + ["dev"] * len(job.sets.dev)}
    say(job.options.progress, "measuring the student")
    found["after"] = [one.to_dict() for one in evaluate(after, chosen)]
    found["before"] = None
    if before is not None:
        say(job.options.progress, "measuring the student as it was before")
        found["before"] = [one.to_dict() for one in evaluate(before, plain)]
    teachers = []
    for teacher in job.teachers if job.options.before else ():
        say(job.options.progress, f"measuring the teacher {teacher.name}")
        scores = [_teacher_score(teacher, one) for one in plain]
        teachers.append({"name": teacher.name, "scores": [None if one is None else one.to_dict() for one in scores]})
    found["teachers"] = teachers
    with disk_errors(folder, safe="the trained student is whole; make room and run the same command again"):
        atomic_write(folder / NAME, (json.dumps(found, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace"))
    return Made([NAME])


def read(folder: Path) -> tuple[Compared, ...]:
    """What was measured, a `Compared` for every set."""
    found: Mapping[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))

    def scores(saved: Sequence[Any] | None, place: int) -> Scores | None:
        return None if not saved or saved[place] is None else Scores.from_dict(saved[place])

    return tuple(
        Compared(
            part,
            after=Scores.from_dict(found["after"][place]),
            before=scores(found["before"], place),
            teachers=tuple(scores(teacher["scores"], place) for teacher in found["teachers"]),
        )
        for place, part in enumerate(found["parts"])
    )


def _teacher_score(teacher: Loaded, evaluator: Evaluator) -> Scores | None:
    """None where such a model cannot be measured on such a set: a cross-encoder on a search among all translations."""
    model = teacher.model
    if not isinstance(model, BiEncoder | CrossEncoder):
        model = cast(BiEncoder, _Vectors(teacher))
    try:
        return evaluate(model, [evaluator])[0]
    except InputError:
        return None


class _Vectors:
    """A teacher that is no model of ours, as far as evaluators need a bi-encoder."""

    prompts: Mapping[str, str] = {}
    max_length = 0
    similarity_name = "cosine"

    def __init__(self, teacher: Loaded) -> None:
        self._teacher = teacher
        self.dimension = teacher.width
        self.device = torch.device("cpu")

    def encode_report(self, texts: Sequence[str], **_: object) -> Encoded:
        rows = [np.asarray(self._teacher.encode(block), np.float32) for block in blocks_of(texts, _BLOCK)]
        found = np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)
        return Encoded(found, EncodeReport(len(found), 0, 0, 0, 0, 0.0))

    def encode(self, texts: Sequence[str], **_: object) -> np.ndarray[Any, Any]:
        return self.encode_report(texts).vectors
