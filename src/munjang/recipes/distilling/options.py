"""What distillation is told and what it answers with: `Teacher`, `Source`, `DistillOptions`, `DistillResult`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, Leakage
from munjang.errors import InputError
from munjang.evaluation import Scores
from munjang.progress import Progress
from munjang.recipes.distilling.defaults import LOSSES, OBJECTIVES
from munjang.recipes.distilling.teacher_vectors import STORAGES, Storage
from munjang.recipes.options import POLICIES, LeakagePolicy, Model, SetOptions, seed_of
from munjang.training import NegativeMining, TrainingResult, TrainingSettings

if TYPE_CHECKING:
    from munjang.students import StudentPlan

Array = np.ndarray[Any, Any]


@runtime_checkable
class VectorTeacher(Protocol):
    """Anything that makes vectors of texts: an ONNX model, a service, a table.

    fingerprint: a text that changes whenever the vectors would; cached vectors are kept under it.
    """

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def encode(self, texts: list[str], /) -> Array:
        """float [n, dimension]"""


GivenTeacher: TypeAlias = BiEncoder | CrossEncoder | VectorTeacher | str | Path
GivenGuide: TypeAlias = BiEncoder | VectorTeacher | str | Path


@dataclass(frozen=True)
class Teacher:
    """Somebody to learn from, and what: the weights of the losses towards its vectors.

    Without any weight: mse. mse, cosine and contrastive need a teacher as wide as the student; relational compares
    similarities between the texts of a batch, and takes any width.
    """

    model: GivenTeacher
    mse: float = 0.0
    cosine: float = 0.0  # 1 - cosine
    contrastive: float = 0.0  # find the own teacher vector among those of the batch
    relational: float = 0.0  # be as near to the other texts of the batch as the teacher's vectors are
    weight: float = 1.0  # of all of these
    scale: float = 20.0  # of contrastive
    temperature: float = 0.05  # of relational
    prompt: str | None = None  # put before every text
    normalize: bool | None = None  # None: as the model says

    def __post_init__(self) -> None:
        for name in (*LOSSES, "weight", "scale", "temperature"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"{name} of a teacher must be a number from 0 on, got {value!r}")
        if not (self.weight and self.scale and self.temperature):
            raise InputError("weight, scale and temperature of a teacher must be above 0")

    @property
    def losses(self) -> dict[str, float]:
        """The losses that have a weight; mse where none was given."""
        found = {name: float(getattr(self, name)) * self.weight for name in LOSSES if getattr(self, name)}
        return found or {"mse": self.weight}


@dataclass(frozen=True)
class Source:
    """Texts to learn over: a file, the name of a public set, or examples.

    Translations are pairs: the anchor is in the teacher's language, the positive in another; both get the teacher's
    vector of the anchor. Plain texts are taught as they are. A tsv with the columns en, ko and source becomes a source
    for every value of its last column, each with a name, and so a weight, of its own.

    weight: how often its rows come, by repetition: 2 is every row twice in an epoch, 0.5 a drawn half of them, always
    the same one; 0 leaves the source out.
    """

    data: Examples | str | Path
    weight: float = 1.0
    name: str | None = None
    kind: Literal["parallel", "texts", "pairs"] | None = None  # of a file; None: by its columns
    columns: Mapping[str, str | int] | None = None  # role -> column: anchor and positive, or text

    def __post_init__(self) -> None:
        check_weight(self.weight, str(self.name or self.data))


def check_weight(weight: float, name: str) -> None:
    """Refuse a weight that is no number from 0 on."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise InputError(f"the weight of {name} must be a number from 0 on, got {weight!r}")


GivenSource: TypeAlias = Source | Examples | str | Path


@dataclass(frozen=True)
class DistillOptions:
    """Everything that may be chosen about distillation. The defaults are in `recipes/distilling/defaults.py`."""

    folder: str | Path  # the run folder
    plan: StudentPlan | None = None  # how the student is made of the model it begins as; None: as it is
    student_kind: Literal["bi", "cross"] | None = None  # None: by the student, or as the teacher
    settings: TrainingSettings | None = None  # None: the defaults for the size of the student
    changes: Mapping[str, object] = field(default_factory=dict)  # settings that differ from these defaults
    weights: Mapping[str, float] = field(default_factory=dict)  # by the name of a source, in place of Source.weight
    mlm_epochs: float = 0.0  # a masked-language-model warm-up over the plain texts of all sources
    mlm_changes: Mapping[str, object] = field(default_factory=dict)  # settings of this warm-up
    mlm_translations: bool = False  # in the warm-up also read translations as one text (TLM)
    guide: GivenGuide | None = None  # knows both languages; for VocabularyPlan(embeddings="guide")
    objective: str | None = None  # of a cross-encoder teacher: kl, margin_mse; cosent, cosine (scored pairs), bce, mse
    negatives: NegativeMining | None = None  # how negatives are found for pairs without any; None: 4, the nearest
    cache: str | Path | None = None  # folder of teacher vectors, which runs may share; None: in the run folder
    storage: Storage = "float32"  # of cached teacher vectors; float16 takes half the disk
    leakage: LeakagePolicy = "report"
    max_length: int | None = None  # of the student
    device: str | None = None
    seed: int | None = None  # of everything random; None: as the settings say, or 0
    sets: SetOptions = field(default_factory=SetOptions)
    progress: Progress = False
    before: bool = True  # measure the student before training, and the teachers

    def __post_init__(self) -> None:
        if self.leakage not in POLICIES:
            raise InputError(f"leakage must be one of {', '.join(POLICIES)}, got {self.leakage!r}")
        if self.storage not in STORAGES:
            raise InputError(f"storage must be one of {', '.join(STORAGES)}, got {self.storage!r}")
        if self.settings is not None and self.changes:
            raise InputError("give settings (all of them) or changes (to the defaults), not both")
        for changes in (self.changes, self.mlm_changes):
            unknown = [name for name in changes if name not in TrainingSettings.__dataclass_fields__]
            if unknown:
                known = ", ".join(TrainingSettings.__dataclass_fields__)
                raise InputError(f"changes must be settings ({known}), got {', '.join(unknown)}")
        if not 0 <= self.mlm_epochs < math.inf:
            raise InputError(f"mlm_epochs must be a number from 0 on, got {self.mlm_epochs!r}")
        if self.mlm_translations and not self.mlm_epochs:
            raise InputError("mlm_translations is part of the warm-up: give mlm_epochs (--mlm-epochs) too, such as 1")
        if self.seeded < 0:
            raise InputError(f"seed must be at least 0, got {self.seeded}")
        if self.objective is not None and self.objective not in OBJECTIVES:
            raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        if self.student_kind not in (None, "bi", "cross"):
            raise InputError(f"student_kind must be bi or cross, got {self.student_kind!r}")
        for name, weight in self.weights.items():
            check_weight(weight, name)
        self._check_guide()

    def _check_guide(self) -> None:
        """A guide and a plan that asks for one belong together."""
        vocabulary = None if self.plan is None else self.plan.vocabulary
        wanted = vocabulary is not None and vocabulary.embeddings == "guide"
        if wanted and self.guide is None:
            raise InputError(
                "embeddings='guide' (--embeddings guide) needs guide (--guide), a model that knows the old language "
                "and the new one"
            )
        if self.guide is not None and not wanted:
            raise InputError(
                "guide (--guide) is for a new vocabulary with embeddings='guide' (--vocabulary N --embeddings guide)"
            )
        if self.guide is not None and not isinstance(self.guide, BiEncoder | VectorTeacher | str | Path):
            raise InputError(
                "guide must be a bi-encoder, its folder or hub id, or anything with encode(texts), dimension and "
                f"fingerprint, got {type(self.guide).__name__}"
            )

    @property
    def seeded(self) -> int:
        """The seed that counts."""
        return seed_of(self.seed, self.settings, self.changes)


@dataclass(frozen=True)
class Compared:
    """One evaluation set: the student before and after, and its teachers."""

    part: Literal["dev", "test"]
    after: Scores
    before: Scores | None = None
    teachers: tuple[Scores | None, ...] = ()  # None: cannot be measured on it

    @property
    def teacher(self) -> Scores | None:
        """The best of the teachers."""
        found = [one for one in self.teachers if one is not None]
        return max(found, key=lambda one: one.value, default=None)

    @property
    def kept(self) -> float | None:
        """The student's score as a share of the best teacher's.

        None where the student is far better (by a quarter): then no teacher knows the language, and nothing is kept.
        """
        teacher = self.teacher
        if teacher is None or teacher.value <= 0 or self.after.value > 1.25 * teacher.value:
            return None
        return self.after.value / teacher.value


@dataclass(frozen=True)
class DistillResult:
    """What distillation did: the student, how the training went, what was measured."""

    model: Model
    training: TrainingResult
    compared: tuple[Compared, ...]  # test sets first, then development sets, which chose the model
    leakage: Leakage | None
    folder: Path
    notes: tuple[str, ...]
    facts: Mapping[str, Any]  # everything that result.json holds
    skipped: tuple[str, ...] = ()  # stages that an earlier call had done

    def __str__(self) -> str:
        lines = [f"distill: {self.training}"]
        for one in self.compared:
            line = f"{one.part} {one.after}"
            line += "" if one.before is None else f"; before {100 * one.before.value:.2f}"
            line += "" if one.teacher is None else f"; teacher {100 * one.teacher.value:.2f}"
            line += "" if one.kept is None else f" ({100 * one.kept:.1f} % kept)"
            lines.append(line)
        return "\n".join(lines)


def as_teachers(given: GivenTeacher | Teacher | Sequence[GivenTeacher | Teacher]) -> tuple[Teacher, ...]:
    """One teacher or several, as `Teacher`s."""
    # A Sequence by its kind, not by its methods: anything that encodes may have those.
    several = list(given) if isinstance(given, list | tuple) else [cast(GivenTeacher | Teacher, given)]
    found = tuple(one if isinstance(one, Teacher) else Teacher(one) for one in several)
    if not found:
        raise InputError("distillation needs at least one teacher")
    for one in found:
        if not isinstance(one.model, BiEncoder | CrossEncoder | VectorTeacher | str | Path):
            raise InputError(
                "a teacher must be a model, its folder or hub id, or anything with encode(texts), dimension and "
                f"fingerprint, got {type(one.model).__name__}"
            )
    return found
