"""What a recipe is told and what it answers with: `RecipeOptions`, `RecipeResult`, and the stages of a chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, Kind, Leakage
from munjang.data.rows import Format
from munjang.errors import InputError
from munjang.evaluation import Scores
from munjang.evaluation.metrics import AgainstMajority
from munjang.nn.pooling import PoolingMode
from munjang.progress import Progress
from munjang.recipes.defaults import RecipeName
from munjang.training import TrainingResult, TrainingSettings
from munjang.training.losses import Part

if TYPE_CHECKING:
    from munjang.training.lora import LoraSettings

Model: TypeAlias = BiEncoder | CrossEncoder
GivenModel: TypeAlias = BiEncoder | CrossEncoder | str | Path
GivenSet: TypeAlias = Examples | str | Path  # a path, or the name of a public set: korsts, klue-nli, stsb:dev
GivenSets: TypeAlias = GivenSet | Sequence[GivenSet] | None
LeakagePolicy = Literal["report", "remove", "refuse"]
POLICIES: tuple[LeakagePolicy, ...] = ("report", "remove", "refuse")


def seed_of(seed: int | None, settings: TrainingSettings | None, changes: Mapping[str, object]) -> int:
    """The seed that counts: as given, or else as the settings or the changes to them say."""
    if seed is not None:
        return seed
    return settings.seed if settings is not None else int(str(changes.get("seed", 0)))


@dataclass(frozen=True)
class SetOptions:
    """How sets that are given by path or by name are read; the same for training, development and test sets."""

    folder: str | None = None  # where the public sets lie that are given by name
    kind: Kind | None = None  # None: by the recipe and the columns
    columns: Mapping[str, str | int] | None = None  # role -> column, as in munjang.data.read_examples
    score_range: tuple[float, float] | None = None
    labels: tuple[str, ...] | None = None  # names of the labels in the order of their ids
    any_labels: bool = False  # without names: take every distinct value of the label column as a label
    drop_outside: bool = False  # leave out rows outside of score_range or labels, instead of an error
    format: Format | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class RecipeOptions:
    """Everything that may be chosen about a recipe. The defaults are in `recipes/defaults.py`."""

    folder: str | Path | None = None  # the run folder; None keeps nothing
    settings: TrainingSettings | None = None  # None: the recipe's defaults for the size of the body
    changes: Mapping[str, object] = field(default_factory=dict)  # settings that differ from these defaults
    objective: str | None = None  # None: the recipe's first, or what the kind of the data asks for
    concatenation: tuple[Part, ...] = ("u", "v", "|u-v|")  # softmax of NLI
    pooling: PoolingMode | tuple[PoolingMode, ...] | None = None  # None: as the model says
    matryoshka: tuple[int, ...] = ()  # dimensions that are trained beside the full one
    lora: LoraSettings | None = None
    leakage: LeakagePolicy = "report"
    max_length: int | None = None
    device: str | None = None  # for a model that is loaded here
    seed: int | None = None  # of new heads and of the training; None: as the settings say
    sets: SetOptions = SetOptions()
    progress: Progress = False
    before: bool = True  # measure the development and test sets before training too

    def __post_init__(self) -> None:
        if self.leakage not in POLICIES:
            raise InputError(f"leakage must be one of {', '.join(POLICIES)}, got {self.leakage!r}")
        if self.settings is not None and self.changes:
            raise InputError(
                "give settings (all of them) or changes (to the recipe's defaults), not both; got changes of "
                f"{', '.join(self.changes)}"
            )
        unknown = [name for name in self.changes if name not in TrainingSettings.__dataclass_fields__]
        if unknown:
            known = ", ".join(TrainingSettings.__dataclass_fields__)
            raise InputError(f"changes must be settings ({known}), got {', '.join(unknown)}")

    @property
    def seeded(self) -> int:
        """The seed that counts."""
        return seed_of(self.seed, self.settings, self.changes)


@dataclass(frozen=True)
class Before:
    """The scores of the untrained model, in the order of the sets; None where it could not have any."""

    dev: tuple[Scores | None, ...] = ()
    test: tuple[Scores | None, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        return {
            part: [None if one is None else one.to_dict() for one in scores]
            for part, scores in (("dev", self.dev), ("test", self.test))
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Sequence[Mapping[str, object] | None]]) -> Before:
        """Back from JSON."""
        dev, test = (
            tuple(None if one is None else Scores.from_dict(one) for one in saved[part]) for part in ("dev", "test")
        )
        return cls(dev, test)


@dataclass(frozen=True)
class RecipeResult:
    """What a recipe did: the trained model, how the training went, what was measured."""

    recipe: RecipeName
    model: Model
    training: TrainingResult
    scores: tuple[Scores, ...]  # of the test sets
    dev: tuple[Scores, ...]  # of the development sets, which chose the model: optimistic
    leakage: Leakage | None  # None: nothing to compare with
    folder: Path | None
    notes: tuple[str, ...] = ()  # what a reader must know
    before: Before = Before()  # the same sets, measured before training
    truncated: tuple[Scores, ...] = ()  # of Matryoshka models: the test (or development) sets by the first values alone
    labelled: AgainstMajority | None = None  # where labels were learned: test, else development, else training rows

    @property
    def failed(self) -> str:
        """Why this model should not replace the one that was given; empty where nothing speaks against it."""
        best = self.training.best
        if self.training.unchanged and best is not None:
            return (
                f"nothing beat the model as given ({best.metric} {100 * best.value:.2f}), so it is delivered unchanged"
            )
        if self.labelled is not None and self.labelled.at_chance:
            return f"the model is at chance: {self.labelled}"
        worse = [pair for pair in self._judged() if pair[0].value < pair[1].value]
        if worse:
            return f"the model is worse than before training on {_changes(worse)}"
        return ""

    @property
    def headline(self) -> str:
        """The outcome in one line, beside the model as given."""
        told = self.failed or _changes(self._judged()) or self._uncompared()
        if self.labelled is not None and not self.failed:
            told += f" ({self.labelled})"
        return f"{self.recipe.replace('_', '-')}: {told}"

    def _uncompared(self) -> str:
        measured = [f"{one.name}: {one.main} {100 * one.value:.2f}" for one in self.scores or self.dev]
        return ", ".join([*measured, "not compared with the model as given"])

    def _judged(self) -> list[tuple[Scores, Scores]]:
        """Scores after and before: of the test sets, or else of the development sets."""
        pairs = self.compared("test") or self.compared("dev")
        return [(after, before) for after, before in pairs if before is not None]

    def __str__(self) -> str:
        lines = [self.headline, f"{self.recipe}: {self.training}"]
        lines += [f"dev (chose the model) {score}{_was(old)}" for score, old in self.compared("dev")]
        lines += [f"test {score}{_was(old)}" for score, old in self.compared("test")]
        return "\n".join(lines)

    def compared(self, part: Literal["dev", "test"]) -> list[tuple[Scores, Scores | None]]:
        """Every score of the trained model with that of the untrained one, where there is one."""
        after, before = (self.dev, self.before.dev) if part == "dev" else (self.scores, self.before.test)
        return list(zip(after, before if len(before) == len(after) else (None,) * len(after), strict=True))


def _changes(pairs: Sequence[tuple[Scores, Scores]]) -> str:
    return ", ".join(
        f"{after.name}: {after.main} {100 * before.value:.2f} -> {100 * after.value:.2f}" for after, before in pairs
    )


def _was(before: Scores | None) -> str:
    return "" if before is None else f"; before training {100 * before.value:.2f}"


@dataclass(frozen=True)
class Stage:
    """One recipe of a chain, with its data."""

    recipe: RecipeName
    train: GivenSets
    dev: GivenSets = None
    test: GivenSets = None
    options: RecipeOptions | None = None


@dataclass(frozen=True)
class ChainResult:
    """What a chain did, stage by stage; the model is the last one's."""

    model: Model
    stages: tuple[RecipeResult, ...]
    folder: Path | None

    def __str__(self) -> str:
        return "\n".join(str(stage) for stage in self.stages)
