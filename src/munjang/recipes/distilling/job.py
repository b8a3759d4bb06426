"""`Job`: a distillation whose models are loaded and whose data is read and checked; what every stage is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.recipes.distilling.options import DistillOptions
from munjang.recipes.distilling.sources import Taken
from munjang.recipes.distilling.teachers import Loaded
from munjang.recipes.sets import Sets


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that a distillation is made of."""

    student: BiEncoder | CrossEncoder  # the model that the student begins as
    teachers: Sequence[Loaded]
    taken: Sequence[Taken]  # the sources, free of duplicates and of what leakage='remove' took out
    sets: Sets  # their examples as `train`, and the development and test sets
    options: DistillOptions
    guide: Loaded | None = None  # of the first rows of new pieces

    @property
    def cross_student(self) -> bool:
        return isinstance(self.student, CrossEncoder)

    @property
    def by_scores(self) -> bool:
        """Whether a cross-encoder teaches."""
        return isinstance(self.teachers[0].model, CrossEncoder)

    @property
    def folder(self) -> Path:
        return Path(self.options.folder)

    @property
    def cache(self) -> Path:
        """Where the teachers' vectors lie."""
        return Path(self.options.cache) if self.options.cache is not None else self.folder / "teacher-vectors"
