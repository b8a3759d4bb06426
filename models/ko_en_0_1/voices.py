"""What several models say of how alike two texts are, and one label of it (`agreeing`).

Enters: pairs of texts; models, and what each counts for. Leaves: labels, 0..1, on the scale of people's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from models.ko_en_0_1.passages import HANGUL
from models.ko_en_0_1.silver import Float32, cosines_of
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.progress import Progress
from munjang.recipes.augmenting.blending import Scale


class Voter(Protocol):
    """Who says how alike two texts are, 0..1."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """What it counts for in a label."""

    @property
    def english(self) -> bool:
        """Whether it reads no Korean."""

    def says(self, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> Float32:
        """[n]."""


@dataclass(frozen=True)
class Cross:
    """A cross-encoder; it reads every pair in both orders, for a likeness has none."""

    name: str
    weight: float
    model: CrossEncoder
    english: bool = False

    def says(self, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> Float32:
        one, two = (self.model.predict(list(zip(*pair, strict=True)), progress=progress) for pair in ((a, b), (b, a)))
        mean: Float32 = np.mean([one, two], axis=0, dtype=np.float32)
        return mean


@dataclass(frozen=True)
class Cosine:
    """Cosines, brought to the scale of people's scores. prompt: before every text."""

    name: str
    weight: float
    model: BiEncoder
    people: Examples
    prompt: str = ""
    english: bool = False

    def says(self, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> Float32:
        return self._scale(self._cosines(a, b, progress=progress)).astype(np.float32)

    @cached_property
    def _scale(self) -> Scale:
        assert self.people.targets is not None
        return Scale.fit(self._cosines(*self.people.columns.values()), self.people.targets)

    def _cosines(self, a: Sequence[str], b: Sequence[str], *, progress: Progress = False) -> Float32:
        asked = ([self.prompt + text for text in side] for side in (a, b))
        return cosines_of(self.model, *asked, progress=progress)


def together(
    voters: Sequence[Voter], a: Sequence[str], b: Sequence[str], *, progress: Progress = False
) -> tuple[Float32, dict[str, Float32]]:
    """One label for every pair [n], the weighted mean of who can read it; and what each of them said.

    Who reads no Korean is asked of pairs without it alone, and says nan of the others.
    """
    english = read_english(a, b)
    total, weights = np.zeros(len(a), np.float64), np.zeros(len(a), np.float64)
    said: dict[str, Float32] = {}
    for voter in voters:
        rows = np.flatnonzero(english) if voter.english else np.arange(len(a))
        told = np.full(len(a), np.nan, np.float32)
        if len(rows):
            some = ([side[row] for row in rows.tolist()] for side in (a, b))
            told[rows] = voter.says(*some, progress=progress)
            total[rows] += voter.weight * told[rows]
            weights[rows] += voter.weight
        said[voter.name] = told
    with np.errstate(invalid="ignore"):  # nobody could read it: nan
        return (total / weights).astype(np.float32), said


def read_english(a: Sequence[str], b: Sequence[str]) -> npt.NDArray[np.bool_]:  # [n]
    """Which pairs have no Korean."""
    return np.array([not any(map(HANGUL.search, pair)) for pair in zip(a, b, strict=True)], bool)
