"""`make_student`: a model and a plan in, another model out. The given one is never changed.

    layers -> hidden -> vocabulary -> dimension

in this order, because the width of a body decides the width of its embeddings, and a projection is fitted to the
vectors that the finished body gives. Everything that can be refused is refused before anything is computed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from munjang.bi_encoder import Array, BiEncoder
from munjang.checkpoint import ModelParts
from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.students import projection, surgery
from munjang.students.coverage import words_by_script
from munjang.students.guided import Guide, check_words
from munjang.students.layers import cut_layers, layer_count
from munjang.students.normaliser import tears_hangul
from munjang.students.plans import StudentPlan
from munjang.students.rebuilding import known_body
from munjang.students.surgery import Translations, Work
from munjang.students.vocabulary import check_plan, old_vocabulary
from munjang.students.width import check_hidden, narrow


@dataclass(frozen=True)
class Student:
    """A model made on the spot: `BiEncoder(student.parts)` runs it, `checkpoint.write` saves it."""

    parts: ModelParts
    notes: tuple[str, ...]  # what a person should know, in words
    report: dict[str, object]  # figures: layers, hidden, vocabulary, dimension, parameters; JSON can hold it


def make_student(
    model: BiEncoder | ModelParts,
    plan: StudentPlan,
    *,
    texts: Sequence[str] = (),
    translations: Translations | None = None,
    guide: Guide | None = None,
    teacher_vectors: Array | None = None,
    seed: int = 0,
    progress: Progress = False,
) -> Student:
    """A student of this model, as the plan says.

    texts: plain text of the kind that the student will read; a vocabulary is learnt from it, and widths are chosen by
    it. translations: texts in the language that the model knows, and the same in the new one, row by row, for a
    vocabulary with embeddings="translations" or "guide"; they serve as texts where there are none. guide: for one with
    embeddings="guide", a model that makes vectors of texts in both languages. teacher_vectors: of `texts`, towards
    which a new Dense layer is fitted.
    """
    parts = replace(model.parts, truncate_dim=model.truncate_dim) if isinstance(model, BiEncoder) else model
    parts = replace(parts, thresholds={})  # they belong to the weights as they were
    device = model.device if isinstance(model, BiEncoder) else None
    if isinstance(texts, str):
        raise InputError(f"texts must be a list of texts, got one text: {texts!r:.60}")
    given = texts if isinstance(texts, Sequence) else list(texts)
    material = _Material(given, translations, guide, teacher_vectors, seed, device)
    _check(parts, plan, material)
    if not len(given) and translations is not None:
        material = replace(material, texts=[*translations[0], *translations[1]])
    total = surgery.work_of(plan, material.texts, translations) + projection.work_of(plan, material.texts)
    with track(progress, total or None) as done:
        return _made(parts, plan, material, done)


@dataclass(frozen=True)
class _Material:
    """What a student is made with."""

    texts: Sequence[str]
    translations: Translations | None
    guide: Guide | None
    teacher_vectors: Array | None
    seed: int
    device: torch.device | None


def _made(parts: ModelParts, plan: StudentPlan, material: _Material, done: Callable[[int], None]) -> Student:
    report: dict[str, object] = {}
    notes: list[str] = []
    before = _parameters(parts)
    parts = _copied(parts)
    if plan.layers is not None:
        total = layer_count(parts.hf_config)
        cut = cut_layers(parts.body, parts.hf_config, plan.layers)
        parts = replace(parts, body=cut.body, hf_config=cut.hf_config)
        report["layers"] = {"before": total, "after": plan.layers, "chosen": list(cut.chosen)}
        notes += cut.notes
    if plan.hidden is not None and plan.hidden != parts.body.hidden:
        narrowed = narrow(parts, plan.hidden, material.texts)
        parts, report["hidden"] = narrowed.parts, narrowed.report
        notes += narrowed.notes
    if plan.vocabulary is not None:
        work = Work(material.texts, material.translations, material.guide, material.seed, done)
        remaking = surgery.remade(parts, plan.vocabulary, work)
        parts, report["vocabulary"] = remaking.parts, remaking.report
        notes += remaking.notes
    elif tears_hangul(parts.tokenizer.backend) and "hangul" in words_by_script(material.texts):
        notes.append("the tokenizer tears Hangul into jamo: a plan with a vocabulary corrects that")
    if plan.dimension is not None:
        fitted = projection.project(
            parts,
            plan.dimension,
            texts=material.texts,
            teacher_vectors=material.teacher_vectors,
            seed=material.seed,
            device=material.device,
            done=done,
        )
        parts, report["dimension"] = fitted.parts, fitted.report
        notes += fitted.notes
    report["parameters"] = {"before": before, "after": _parameters(parts)}
    return Student(replace(parts, notes=[*parts.notes, *notes]), tuple(notes), report)


def _check(parts: ModelParts, plan: StudentPlan, material: _Material) -> None:
    """Refuse what cannot be done, before anything is computed."""
    texts, translations, teacher_vectors = material.texts, material.translations, material.teacher_vectors
    if plan.layers is not None:
        known_body(parts.body, "a student with fewer layers")
        total = layer_count(parts.hf_config)
        if plan.layers > total:
            raise InputError(f"layers must be 1..{total} (the layers that the model has), got {plan.layers}")
    if plan.hidden is not None:
        check_hidden(parts, plan.hidden)
    if plan.dimension is not None:
        projection.check_dimension(plan.dimension, texts, teacher_vectors)
    elif teacher_vectors is not None:
        raise InputError("teacher_vectors are for a plan with a dimension: they fit the layer that makes it")
    if translations is not None and len(translations[0]) != len(translations[1]):
        raise InputError(
            f"translations must be two sides of equal length, row by row, got {len(translations[0])} and "
            f"{len(translations[1])} texts"
        )
    check_guide(plan, material.guide)
    if plan.vocabulary is None:
        return
    known_body(parts.body, "a student with another vocabulary")
    check_plan(plan.vocabulary, parts.tokenizer)
    if plan.vocabulary.embeddings == "guide":
        check_words(parts.tokenizer, old_vocabulary(parts.tokenizer, keep_added=plan.vocabulary.keep != "none"))
    if not len(texts) and not (translations and len(translations[0])):
        raise InputError("a vocabulary is learnt from texts: give texts=, or translations=")
    if plan.vocabulary.embeddings == "translations" and not (translations and len(translations[0])):
        raise InputError(
            "embeddings='translations' needs translations=(texts in the language that the model knows, the same in "
            "the new one); embeddings='pieces' does without"
        )


def check_guide(plan: StudentPlan, guide: object) -> None:
    """Refuse a guide that nothing asks for, a plan that has none, and what is no guide."""
    wanted = plan.vocabulary is not None and plan.vocabulary.embeddings == "guide"
    if wanted and guide is None:
        raise InputError(
            "embeddings='guide' needs guide=, a model that makes vectors of texts in the language that the model knows "
            "and in the new one; embeddings='pieces' does without"
        )
    if guide is not None and not wanted:
        raise InputError(
            "a guide is for a plan with VocabularyPlan(..., embeddings='guide'): it makes the first rows of new pieces"
        )
    if guide is not None and (isinstance(guide, str) or not isinstance(guide, Guide)):  # a text has `encode` too
        raise InputError(f"a guide must have encode(list of texts) -> vectors, got {type(guide).__name__}")


def _copied(parts: ModelParts) -> ModelParts:
    """The same model with weights and settings of its own."""
    return replace(
        parts,
        body=copy.deepcopy(parts.body),
        heads=copy.deepcopy(parts.heads),
        tokenizer=copy.copy(parts.tokenizer),  # its backend is never changed, its max_length may be
        hf_config=copy.deepcopy(parts.hf_config),
        prompts=dict(parts.prompts),
        leftover={name: tensor.clone() for name, tensor in parts.leftover.items()},
        notes=list(parts.notes),
    )


def _parameters(parts: ModelParts) -> int:
    modules: tuple[nn.Module, ...] = (parts.body, parts.heads)
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
