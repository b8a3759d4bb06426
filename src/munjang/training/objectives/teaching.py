"""Objectives of a student that learns a teacher's vectors: `Distil` from one teacher or several, and plain `Mse`.

Enters: taught examples, whose targets are the vectors that a teacher has made of the first column. All columns of a row
(a text and its translations) are taught with the same vector: so a student learns to place a translation where its
teacher places the original (Reimers and Gurevych 2020). Several teachers' vectors lie side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product

import torch
from torch import Tensor

from munjang.data import Examples
from munjang.errors import InputError
from munjang.training import losses
from munjang.training.objectives.base import Given, Objective


class Mse(Objective):
    """Distillation: a teacher's vectors are the targets (Reimers and Gurevych 2020)."""

    kinds = ("taught",)
    any_width = False

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        assert examples.targets is not None
        if examples.targets.shape[1] != dimension:
            raise InputError(
                f"the teacher's vectors have {examples.targets.shape[1]} values, the student's {dimension}: "
                "they must match; give the student a Dense layer that projects to the teacher's width"
            )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        return _mean([losses.mse(vectors, given.targets) for vectors in outputs])


@dataclass(frozen=True)
class Teaching:
    """What is learned from one teacher: the width of its vectors, and how much each loss counts (0: not at all).

    mse, cosine and contrastive compare a student's vector with its teacher's and need equal widths; relational compares
    how near rows are to each other, and does not.
    """

    width: int
    mse: float = 1.0
    cosine: float = 0.0
    contrastive: float = 0.0
    relational: float = 0.0
    scale: float = 20.0  # of the cosines in contrastive
    temperature: float = 0.05  # of the cosines in relational

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"width must be at least 1 (the values of a teacher's vector), got {self.width}")
        weights = {"mse": self.mse, "cosine": self.cosine, "contrastive": self.contrastive}
        weights["relational"] = self.relational
        for name, weight in weights.items():
            if not 0 <= weight < math.inf:
                raise InputError(f"the weight of {name} must be 0 or more, got {weight}")
        if not any(weights.values()):
            raise InputError(f"a teacher must teach something: one of {', '.join(weights)} needs a weight above 0")
        for name, value in (("scale", self.scale), ("temperature", self.temperature)):
            if not 0 < value < math.inf:
                raise InputError(f"{name} must be above 0, got {value}")

    @property
    def same_width(self) -> bool:
        """Whether student and teacher must have vectors of one width."""
        return bool(self.mse or self.cosine or self.contrastive)


class Distil(Objective):
    """Distillation from the vectors of one or several teachers: the sum of each one's weighted losses.

    Targets are [n, sum of the widths], in the order of `teachers`. mse, cosine and contrastive are means over the
    columns of texts. relational is the mean over all pairs of columns, each with itself and with the others: the
    student's cosines of texts with translations are taught to be the teacher's cosines of the originals.
    """

    kinds = ("taught",)

    def __init__(self, teachers: Sequence[Teaching]) -> None:
        super().__init__()
        if not teachers:
            raise InputError("Distil needs at least one teacher: Distil([Teaching(width)])")
        self.teachers = tuple(teachers)
        self.rowwise = not any(teacher.contrastive or teacher.relational for teacher in self.teachers)
        # The other rows are what a row is told apart from: its own text must not be among them.
        self.unique_texts = any(teacher.contrastive for teacher in self.teachers)
        self.any_width = not any(teacher.same_width for teacher in self.teachers)

    def settings(self) -> dict[str, object]:
        return {"teachers": [asdict(teacher) for teacher in self.teachers]}

    def prepare(self, examples: Examples, dimension: int) -> None:
        super().prepare(examples, dimension)
        assert examples.targets is not None
        widths = [teacher.width for teacher in self.teachers]
        if examples.targets.shape[1] != sum(widths):
            raise InputError(
                f"the targets of {examples.name} have {examples.targets.shape[1]} values a row, but the teachers have "
                f"{' + '.join(map(str, widths))} = {sum(widths)}: lay their vectors side by side, in this order"
            )
        for number, teacher in enumerate(self.teachers, start=1):
            if teacher.same_width and teacher.width != dimension:
                raise InputError(
                    f"the vectors of teacher {number} have {teacher.width} values, the student's {dimension}: mse, "
                    "cosine and contrastive need equal widths. Give the student a Dense layer that projects to "
                    f"{teacher.width} (StudentPlan(dimension={teacher.width}), --dimension {teacher.width}), or learn "
                    f"from this teacher by relational alone (Teaching({teacher.width}, mse=0, relational=1))"
                )

    def forward(self, outputs: Sequence[Tensor], given: Given) -> Tensor:
        assert given.targets is not None
        parts = given.targets.split([teacher.width for teacher in self.teachers], dim=1)
        found = [_taught(outputs, vectors, how) for vectors, how in zip(parts, self.teachers, strict=True)]
        return torch.stack(found).sum()


def _taught(outputs: Sequence[Tensor], targets: Tensor, how: Teaching) -> Tensor:
    """The loss of columns of vectors [n, d] against one teacher's [n, width]."""
    found: list[Tensor] = []
    if how.mse:
        found.append(how.mse * _mean([losses.mse(each, targets) for each in outputs]))
    if how.cosine:
        found.append(how.cosine * _mean([losses.cosine_distance(each, targets) for each in outputs]))
    if how.contrastive:
        each_one = [losses.teacher_contrastive(each, targets, scale=how.scale) for each in outputs]
        found.append(how.contrastive * _mean(each_one))
    if how.relational:
        pairs = product(outputs, repeat=2)
        related = [losses.relational(a, targets, temperature=how.temperature, others=b) for a, b in pairs]
        found.append(how.relational * _mean(related))
    return torch.stack(found).sum()


def _mean(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).mean()
