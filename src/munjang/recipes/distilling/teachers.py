"""The teachers of a distillation, loaded, and the student's width beside theirs: checked before a text is encoded."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from munjang import checkpoint
from munjang.bi_encoder import BiEncoder
from munjang.checkpoint.hub import CROSS_ORGANISATION
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError, ModelError, ModelNotFoundError
from munjang.nn.heads import Dense
from munjang.recipes.distilling.options import DistillOptions, Teacher, VectorTeacher
from munjang.recipes.distilling.teacher_vectors import Encode, TeacherVectors, blocks_of, open_vectors

if TYPE_CHECKING:
    from munjang.students import StudentPlan

Array = np.ndarray[Any, Any]
_BLOCK = 65_536  # texts that are tokenised at a time
_EXACT = ("mse", "cosine", "contrastive")  # losses that compare a vector with the teacher's, value by value


@dataclass
class Loaded:
    """A teacher that is there."""

    teacher: Teacher
    model: BiEncoder | CrossEncoder | VectorTeacher
    name: str
    truncated: int = 0  # texts that it had to cut

    @property
    def max_length(self) -> int:
        """Tokens that it reads; 0 where nobody says."""
        return self.model.max_length if isinstance(self.model, BiEncoder | CrossEncoder) else 0

    def cuts(self, texts: Sequence[str]) -> int:
        """How many texts it has to cut: of those whose vectors were there, nobody else tells."""
        if not isinstance(self.model, BiEncoder):
            return 0
        before = self.prompt
        blocks = blocks_of((before + text for text in texts), _BLOCK)
        return sum(self.model.tokenizer.encode(block).truncated for block in blocks)

    @property
    def prompt(self) -> str:
        """What stands before every text: as given, or the model's own."""
        prompt = self.teacher.prompt
        if isinstance(self.model, BiEncoder) and prompt is None and self.model.parts.default_prompt_name:
            prompt = self.model.prompts[self.model.parts.default_prompt_name]
        return prompt or ""

    @property
    def width(self) -> int:
        """Of its vectors."""
        assert not isinstance(self.model, CrossEncoder)
        return int(self.model.dimension)

    @property
    def identity(self) -> dict[str, object]:
        """Everything that decides its vectors or scores."""
        found: dict[str, object] = {"fingerprint": self.model.fingerprint}
        if isinstance(self.model, BiEncoder | CrossEncoder):
            found["computes"] = str(self.model.dtype).removeprefix("torch.")
        if not isinstance(self.model, CrossEncoder):
            found |= {"prompt": self.prompt, "normalize": bool(self.teacher.normalize), "width": self.width}
        return found

    def vectors(self, cache: Path, options: DistillOptions) -> TeacherVectors:
        """What the cache has of it."""
        return open_vectors(cache, self.identity, width=self.width, storage=options.storage)

    @property
    def encode(self) -> Encode:
        """Texts to float [n, width]."""

        def encode(texts: list[str]) -> Array:
            if isinstance(self.model, BiEncoder):
                found = self.model.encode_report(texts, prompt=self.teacher.prompt, normalize=self.teacher.normalize)
                self.truncated += found.report.truncated
                return found.vectors
            assert not isinstance(self.model, CrossEncoder)
            prompted = [f"{self.teacher.prompt}{text}" for text in texts] if self.teacher.prompt else texts
            rows = np.asarray(self.model.encode(prompted), np.float32)
            if self.teacher.normalize:
                rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
            return rows

        return encode


def load_teachers(teachers: Sequence[Teacher], options: DistillOptions) -> list[Loaded]:
    """Load every teacher; several cross-encoders, or a cross-encoder beside others, are refused."""
    found = [_loaded(teacher, number, options) for number, teacher in enumerate(teachers, start=1)]
    cross = [one for one in found if isinstance(one.model, CrossEncoder)]
    if cross and len(found) > 1:
        raise InputError(
            f"{cross[0].name} is a cross-encoder, which teaches alone: its scores and the vectors of the "
            f"{len(found) - 1} other teachers need different data; distil one after the other"
        )
    for one in cross:
        model = cast(CrossEncoder, one.model)
        if len(model.labels) != 1:
            raise InputError(
                f"a cross-encoder that teaches must give one score to a pair, but {one.name} has the labels "
                f"{', '.join(model.labels)}"
            )
    return found


def load_guide(options: DistillOptions) -> Loaded | None:
    """The model that the first rows of new pieces come from, where the plan asks for one."""
    if options.guide is None:
        return None
    found = _loaded(Teacher(options.guide), 0, options)
    if isinstance(found.model, CrossEncoder):
        raise InputError(f"the guide {found.name} is a cross-encoder, which makes no vectors: give a bi-encoder")
    return found


def _loaded(teacher: Teacher, number: int, options: DistillOptions) -> Loaded:
    given = teacher.model
    if isinstance(given, BiEncoder | CrossEncoder):
        return Loaded(teacher, given, called(given.parts.source) or (f"teacher {number}" if number else "guide"))
    if not isinstance(given, str | Path):
        return Loaded(teacher, given, f"{type(given).__name__} ({given.fingerprint[:12]})")
    model = load_any(given, device=options.device)
    return Loaded(teacher, model, called(str(given)))


def called(path: str) -> str:
    """What reports call a model: the last part of its path, and the one before where every run has such a folder."""
    found = Path(path)
    return f"{found.parent.name}/{found.name}" if found.name == "model" and found.parent.name else found.name


def load_any(given: str | Path, *, device: str | None, max_length: int | None = None) -> BiEncoder | CrossEncoder:
    """A bi-encoder, or a cross-encoder where the folder is one."""
    try:
        folder = checkpoint.resolve(given)
    except ModelNotFoundError:
        folder = checkpoint.resolve(given, organisation=CROSS_ORGANISATION)
    if checkpoint.is_cross(folder):
        return CrossEncoder.load(folder, device=device, max_length=max_length)
    return BiEncoder.load(folder, device=device, max_length=max_length)


def student_width(student: BiEncoder, plan: StudentPlan | None) -> int:
    """The width of the student's vectors when the plan is carried out."""
    if plan is not None and plan.dimension is not None:
        return plan.dimension
    parts = student.parts
    hidden = plan.hidden if plan is not None and plan.hidden is not None else parts.body.hidden
    width = parts.pooling.dimension(hidden)
    for head in parts.heads:
        if isinstance(head, Dense):
            width = head.dimension
    return width


def check_widths(teachers: Sequence[Loaded], width: int) -> None:
    """Refuse losses that compare vectors of different widths, and name what helps."""
    for one in teachers:
        exact = [name for name in _EXACT if name in one.teacher.losses]
        if not exact or one.width == width:
            continue
        raise InputError(
            f"the teacher {one.name} makes vectors of {one.width} values, the student of {width}: "
            f"{' and '.join(exact)} compare{'s' if len(exact) == 1 else ''} them value by value. Give the student a "
            f"Dense layer (StudentPlan(dimension={one.width}), --dimension {one.width}), or learn the similarities "
            "between texts, for which widths do not matter (Teacher(model, relational=1.0), --objective relational)"
        )


def check_length(student: BiEncoder | CrossEncoder, length: int | None) -> None:
    """Refuse a length that the student cannot read; the model itself keeps its own."""
    if length is None:
        return
    copy.copy(student.tokenizer).max_length = length  # raises where it is too short
    limit = student.parts.body.max_positions
    if length > limit:
        raise InputError(f"max_length must be at most {limit} (the student's positions), got {length}")


def load_student(
    student: BiEncoder | CrossEncoder | str | Path | None, teachers: Sequence[Loaded], options: DistillOptions
) -> BiEncoder | CrossEncoder:
    """The model that the student begins as; None: the teacher's own. A model in memory is never changed."""
    given = student
    if given is None:
        first = teachers[0].model
        if not isinstance(first, BiEncoder | CrossEncoder):
            raise InputError(
                f"the teacher {teachers[0].name} has no body that a student could begin as: give student a model, a "
                "folder or a hub id"
            )
        given = first
    model = given if isinstance(given, BiEncoder | CrossEncoder) else _student_from(given, options)
    wanted = options.student_kind
    if wanted == "bi" and isinstance(model, CrossEncoder):
        raise InputError("the student is a cross-encoder, and student_kind='bi' was asked for: give a bi-encoder")
    if wanted == "cross" and isinstance(model, BiEncoder):
        model = CrossEncoder.from_body(model, 1, seed=options.seeded, device=options.device)
    cross_teacher = isinstance(teachers[0].model, CrossEncoder)
    if isinstance(model, CrossEncoder) and not cross_teacher:
        raise InputError(
            "the student is a cross-encoder, but its teacher makes vectors: a cross-encoder learns from a "
            "cross-encoder; give a bi-encoder as student, or a cross-encoder as teacher"
        )
    if isinstance(model, CrossEncoder) and len(model.labels) != 1:
        raise InputError(
            f"the student must give one score to a pair, but it has the labels {', '.join(model.labels)}: load it "
            "with labels=1"
        )
    return model


def _student_from(given: str | Path, options: DistillOptions) -> BiEncoder | CrossEncoder:
    if options.student_kind != "cross":
        return load_any(given, device=options.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the head is new: it is about to be trained
        try:
            return CrossEncoder.load(given, labels=1, device=options.device)
        except ModelError:
            return BiEncoder.load(given, device=options.device)
