"""The stage `student`: the model that learns, made by the plan out of the one it begins as, and saved."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.checkpoint import BiParts, CrossParts, replace_head
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.nn.pooling import Pooling
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.options import DistillOptions
from munjang.recipes.distilling.sources import Taken, plain_texts
from munjang.recipes.distilling.targets import anchors
from munjang.recipes.stages import Made
from munjang.students.guided import check_words
from munjang.students.rebuilding import known_body
from munjang.students.vocabulary import check_plan as check_vocabulary
from munjang.students.vocabulary import old_vocabulary
from munjang.students.width import check_hidden
from munjang.training.run import data_hash

if TYPE_CHECKING:
    from munjang.students import Student, StudentPlan

Array = np.ndarray[Any, Any]
Model = BiEncoder | CrossEncoder
_SAMPLE = 20_000  # texts that a projection, or a choice of hidden units, is fitted on


def check_plan(plan: StudentPlan | None, student: Model, taken: Sequence[Taken]) -> None:
    """Refuse a plan that cannot be carried out with these sources."""
    if plan is None:
        return
    if isinstance(student, CrossEncoder) and plan.dimension is not None:
        raise InputError("dimension is the width of vectors, and a cross-encoder makes none: leave it out of the plan")
    parts = _as_model(student.parts) if isinstance(student, CrossEncoder) else student.parts
    if plan.layers is not None:
        layers = len(known_body(parts.body, "a student with fewer layers").config.steps)
        if not 1 <= plan.layers <= layers:
            raise InputError(f"layers must be 1..{layers} (the layers that the student begins with), got {plan.layers}")
    if plan.hidden is not None:
        check_hidden(parts, plan.hidden)
    vocabulary = plan.vocabulary
    if vocabulary is not None:
        known_body(parts.body, "a student with another vocabulary")
        check_vocabulary(vocabulary, parts.tokenizer)
        if vocabulary.embeddings == "guide":
            check_words(parts.tokenizer, old_vocabulary(parts.tokenizer, keep_added=vocabulary.keep != "none"))
    if vocabulary is not None and vocabulary.embeddings == "translations" and not any(map(_translated, taken)):
        raise InputError(
            "embeddings='translations' (--embeddings translations) needs translations, and no source has any: give a "
            "parallel source, or take embeddings='pieces'"
        )


def stage_inputs(job: Job) -> dict[str, object]:
    """Everything that decides the student."""
    plan = job.options.plan
    found: dict[str, object] = {"model": job.student.fingerprint, "plan": None if plan is None else asdict(plan)}
    if isinstance(job.student, BiEncoder):  # saved with the student, and no part of a fingerprint
        parts = job.student.parts
        found["saved"] = [parts.prompts, parts.default_prompt_name, parts.similarity, job.student.truncate_dim]
    if plan is not None and (plan.vocabulary or plan.hidden or plan.dimension):
        found["texts"] = [[one.name, data_hash(one.examples)] for one in job.taken]
        found["seed"] = job.options.seeded
    if plan is not None and plan.dimension is not None:
        found["teachers"] = [one.identity for one in job.teachers]
    if job.guide is not None:
        found["guide"] = job.guide.identity
    return found


def make(folder: Path, job: Job) -> Made:
    """Make and save the student."""
    student, plan = job.student, job.options.plan
    if plan is None:
        student.save(folder / "model")
        return Made(["model"], {"notes": [], "report": {}, "model": _described(student)})
    given: BiEncoder | BiParts = _as_model(student.parts) if isinstance(student, CrossEncoder) else student
    notes: list[str] = []
    report: dict[str, object] = {}
    for step in _steps(plan):
        result = _carry_out(given, step, _told(step, job), job.options)
        parts = result.parts
        # On the student's device, where a projection is fitted next.
        given = parts if isinstance(student, CrossEncoder) else BiEncoder(parts, device=student.device, dtype="float32")
        notes += list(result.notes)
        report |= dict(result.report)
    if job.guide is not None:
        report["guide"] = {"name": job.guide.name, **job.guide.identity}
    model: Model
    if isinstance(student, CrossEncoder):
        model = CrossEncoder(_as_cross(student.parts, parts, job.options.seeded), device="cpu", dtype="float32")
    else:
        model = BiEncoder(parts, device="cpu", dtype="float32")
    model.save(folder / "model")
    return Made(["model"], {"notes": notes, "report": report, "model": _described(model)})


def _steps(plan: StudentPlan) -> list[StudentPlan]:
    """The plan, the projection on its own: it is fitted on a sample, a vocabulary on all texts."""
    if plan.dimension is None or plan == replace(plan, layers=None, hidden=None, vocabulary=None):
        return [plan]
    empty = {"layers": None, "hidden": None, "vocabulary": None}
    return [replace(plan, dimension=None), replace(plan, **empty)]


def _told(step: StudentPlan, job: Job) -> dict[str, Any]:
    """The texts that a step of the plan needs, and what goes with them."""
    taken, seed = job.taken, job.options.seeded
    if step.dimension is not None:
        texts, sources = _sample(taken, seed)
        return {"texts": texts, "teacher_vectors": _teacher_vectors(sources, step.dimension, job)}
    if step.vocabulary is None:
        return {"texts": _sample(taken, seed)[0] if step.hidden is not None else ()}
    told: dict[str, Any] = {"texts": [text for one in taken for text in plain_texts(one.examples)]}
    rows = [list(one.examples.columns.values()) for one in taken if _translated(one)]
    if step.vocabulary.embeddings != "pieces" and rows:  # a guide does without, and better with
        told["translations"] = ([t for one in rows for t in one[0]], [t for one in rows for t in one[1]])
    if job.guide is not None:
        told["guide"] = job.guide.model
    return told


def _carry_out(given: BiEncoder | BiParts, step: StudentPlan, told: dict[str, Any], options: DistillOptions) -> Student:
    from munjang.students import make_student

    return make_student(given, step, seed=options.seeded, progress=options.progress, **told)


def _sample(taken: Sequence[Taken], seed: int) -> tuple[list[str], list[str]]:
    """Drawn texts of all columns, and the text whose teacher vector each should have: its row's first."""
    texts = [text for one in taken for text in plain_texts(one.examples)]
    firsts = [text for one in taken for _ in one.examples.columns for text in anchors(one.examples)]
    if len(texts) <= _SAMPLE:
        return texts, firsts
    chosen = np.sort(np.random.default_rng(seed).choice(len(texts), _SAMPLE, replace=False)).tolist()
    return [texts[row] for row in chosen], [firsts[row] for row in chosen]


def _teacher_vectors(sources: Sequence[str], dimension: int, job: Job) -> Array | None:
    """The vectors of the first teacher that is as wide as the student will be: where its projection should lead."""
    for teacher in job.teachers:
        if not isinstance(teacher.model, CrossEncoder) and teacher.width == dimension:
            store = teacher.vectors(job.cache, job.options)
            store.add(sources, teacher.encode, progress=job.options.progress)
            return np.asarray(store.array[store.rows_for(sources)], np.float32)
    return None


def _translated(one: Taken) -> bool:
    return one.examples.kind == "pairs" or len(one.examples.columns) > 1


def _described(model: Model) -> dict[str, object]:
    kept = ("family", "layers", "hidden size", "parameters", "dimension", "max length", "tokenizer")
    return {name: value for name, value in model.describe().items() if name in kept}


# --- cross-encoders --------------------------------------------------------------------------------------------------


def _as_model(parts: CrossParts) -> BiParts:
    """A cross-encoder's body as a bi-encoder's, so that the same plan can be carried out on it."""
    return BiParts(
        body=parts.body,
        tokenizer=parts.tokenizer,
        pooling=Pooling(("cls",)),
        hf_config=dict(parts.hf_config),
        leftover=dict(parts.leftover),
        source=parts.source,
    )


def _as_cross(before: CrossParts, made: BiParts, seed: int) -> CrossParts:
    """The new body with the old head; with a new one where the body is narrower."""
    found = replace(
        before,
        body=made.body,
        head=copy.deepcopy(before.head),
        tokenizer=made.tokenizer,
        hf_config=dict(made.hf_config),  # which has all that the old one had, but for what is no longer true
        leftover=dict(made.leftover),
        notes=[],
    )
    if made.body.hidden == before.body.hidden:
        return found
    return replace_head(found, before.labels if len(before.labels) > 1 else 1, seed=seed)
