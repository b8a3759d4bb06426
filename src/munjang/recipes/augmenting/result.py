"""What `augmented` answers with: the model, whether the silver pairs helped, and everything that was measured.

Every part is read back from what its stage wrote down, so that a rerun that had nothing to do answers the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from munjang.encoders import BiEncoder
from munjang.evaluation import Scores
from munjang.evaluation.metrics import Difference
from munjang.recipes.augmenting.samples import Row
from munjang.recipes.options import RecipeResult
from munjang.recipes.record import versions
from munjang.recipes.stages import Done

Part = Literal["test", "dev"]
Delivered = Literal["augmented", "labelled", "given"]


@dataclass(frozen=True)
class Trained:
    """One of the trainings, as its stage remembers it; its folder has the model and report.html."""

    name: str  # of the stage: baseline, cross, bi...
    folder: Path
    test: tuple[Scores, ...]
    dev: tuple[Scores, ...]  # chose the model: optimistic
    steps: int
    seconds: float  # of training alone
    notes: tuple[str, ...] = ()
    unchanged: bool = False  # nothing beat the model that this training began with

    @property
    def model(self) -> Path:
        """The folder of the trained model."""
        return self.folder / "model"

    @classmethod
    def of(cls, done: Done) -> Trained:
        """From the facts of a stage."""
        facts = done.facts
        test, dev = (tuple(Scores.from_dict(one) for one in facts[part]) for part in ("test", "dev"))
        return cls(
            done.name,
            done.folder,
            test,
            dev,
            facts["steps"],
            facts["training"],
            tuple(facts["notes"]),
            bool(facts.get("unchanged")),  # a stage of 0.1.0 has none
        )


def training_facts(result: RecipeResult) -> dict[str, object]:
    """What a stage remembers of a training."""
    return {
        "test": [one.to_dict() for one in result.scores],
        "dev": [one.to_dict() for one in result.dev],
        "before": result.before.to_dict(),
        "steps": result.training.steps,
        "training": result.training.seconds,
        "notes": list(result.notes),
        "unchanged": result.training.unchanged,
    }


@dataclass(frozen=True)
class Choice:
    """Which model is delivered, and why."""

    delivered: Delivered
    why: str
    by_test: bool = False  # for want of a development set

    def __str__(self) -> str:
        names = {
            "augmented": "the model trained with the silver pairs",
            "labelled": "the model trained on the labelled pairs alone",
            "given": "the model as given, unchanged",
        }
        return f"delivered {names[self.delivered]}: {self.why}"


@dataclass(frozen=True)
class Gain:
    """One evaluation set: the bi-encoder on the labelled pairs alone, and the one with the silver pairs."""

    name: str
    part: Part  # dev, where there is no test set: it chose both models
    metric: str
    rows: int
    baseline: float
    augmented: float
    difference: Difference  # of the second to the first, paired bootstrap over the rows
    untrained: float | None = None  # the model as it was given

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Gain:
        """Back from JSON."""
        return cls(**{**saved, "difference": Difference(**saved["difference"])})

    def __str__(self) -> str:
        gap = self.difference
        return (
            f"{self.name}: {self.metric} {100 * self.baseline:.2f} -> {100 * self.augmented:.2f} "
            f"({100 * gap.value:+.2f}, 95 % interval {100 * gap.low:+.2f} to {100 * gap.high:+.2f})"
        )


@dataclass(frozen=True)
class Silver:
    """The silver set: how it came about, and how it lies beside the labelled pairs."""

    path: Path
    rows: int
    candidates: int
    sentences: int
    origins: dict[str, int]  # semantic, bm25+semantic... -> rows
    found: dict[str, int]  # the same of all candidates
    steps: dict[str, int]  # what was left after each step of the sampling
    edges: tuple[float, ...]
    histogram: tuple[int, ...]
    labelled_histogram: tuple[int, ...]
    agreement: dict[str, dict[str, float | None]]  # set -> how well the labels of silver pairs agree with its own
    samples: dict[str, list[Row]]  # rows to look at, by what they are examples of
    truncated: int = 0  # readings of pairs that were cut
    cross_agreement: dict[str, dict[str, float | None]] = field(default_factory=dict)  # of the cross-encoder alone
    blend: float = 0.0  # how much the bi-encoder's cosines count in the labels
    blend_tried: dict[str, float] = field(default_factory=dict)  # weight -> Spearman of the labels on dev


@dataclass(frozen=True)
class AugmentResult:
    """What Augmented SBERT did."""

    model: BiEncoder  # as `choice` says
    folder: Path
    scenario: str  # gold or public
    gains: tuple[Gain, ...]
    silver: Silver
    bi: Trained
    baseline: Trained | None
    cross: tuple[Trained, ...]  # none where a ready one labelled
    others: tuple[Trained, ...]  # pretraining of the cross-encoder, silver before gold
    stages: tuple[Done, ...]
    choice: Choice
    notes: tuple[str, ...] = ()  # what a reader must know

    def __str__(self) -> str:
        lines = [f"augment: {self.choice}"]
        lines += [f"{self.silver.rows:,} silver pairs of {self.silver.candidates:,} candidates"]
        return "\n".join([*lines, *map(str, self.gains), *self.notes])


def choose(bi: Trained, baseline: Trained | None, gains: Sequence[Gain]) -> Choice:
    """Choose the model to deliver: by the development set, or by a test set on which the silver pairs did harm."""
    if baseline is None:
        if bi.unchanged:
            return Choice("augmented", "no training beat the model that it began with on the development set")
        return Choice("augmented", "it was compared with no other")
    if bi.dev:
        without, told = baseline.dev[0], bi.dev[0]
        name = f"{told.name} (dev) {told.main}"
        scores = f"{name} {100 * without.value:.2f} without and {100 * told.value:.2f} with silver"
        if told.value > without.value:
            return Choice("augmented", scores)
        if baseline.unchanged:
            return Choice("given", f"no training beat it; {scores}")
        return Choice("labelled", f"the silver pairs did not help; {scores}")
    harm = [one for one in gains if one.difference.clear and one.difference.value < 0]
    if not harm or any(one.difference.clear and one.difference.value > 0 for one in gains):
        return Choice("augmented", "there is no development set that could choose another")
    first = harm[0]
    name = f"{first.name} (test) {first.metric}"
    scores = f"{name} {100 * first.baseline:.2f} without and {100 * first.augmented:.2f} with silver"
    if first.untrained is not None and first.untrained >= first.baseline:
        return Choice("given", f"training did harm; {scores}, {100 * first.untrained:.2f} untrained", by_test=True)
    return Choice("labelled", f"the silver pairs did harm; {scores}", by_test=True)


def gain_notes(gains: Sequence[Gain], *, compared: bool) -> list[str]:
    """Whether silver helped, in words: plainly where it did not."""
    if not compared:
        return ["There is no baseline: nobody can say whether the silver pairs helped."]
    if not gains:
        return ["There is neither a test nor a development set: nobody can say whether the silver pairs helped."]
    return [_verdict(gain) for gain in gains if not (gain.difference.value > 0 and gain.difference.clear)] + [
        f"{gain.name} chose both models, as there is no test set: its scores are optimistic."
        for gain in gains
        if gain.part == "dev"
    ]


def _verdict(gain: Gain) -> str:
    gap = gain.difference
    told = f"95 % interval of the difference {100 * gap.low:+.2f} to {100 * gap.high:+.2f}"
    if gap.value > 0:
        return (
            f"{gain.name}: {100 * gap.value:+.2f} with the silver pairs, but this may be chance ({told}): the rows are "
            "too few, or the help too small, to tell."
        )
    end = "The silver pairs did harm here" if gap.clear else "The silver pairs did not help here"
    return f"{end}: {gain.name} {100 * gain.baseline:.2f} without and {100 * gain.augmented:.2f} with them ({told})."


def labeller_notes(silver: Silver, baseline: Sequence[Trained], *, prepared: bool = False) -> list[str]:
    """What speaks against the labels of the silver pairs: nobody checked them, or the bi-encoder knew better before."""
    if not silver.agreement:
        return [
            "How good the labels are is not known: there are no labelled pairs that the cross-encoder did not learn "
            "from. Give a development set."
        ]
    known = {f"{one.name} (test)": one for trained in baseline for one in trained.test}
    known |= {f"{one.name} (dev)": one for trained in baseline for one in trained.dev}
    remedies = "more labelled pairs, longer training, another start (cross_model, --cross-model)" + (
        "" if prepared else ", or preparing it (pretrain, --pretrain)"
    )
    return [
        f"The labels would agree with {name} worse (spearman {100 * value:.2f}) than the bi-encoder without silver "
        f"pairs does ({100 * known[name].value:.2f}): such labels can hardly help. What may: {remedies}."
        for name, one in silver.agreement.items()
        if name in known and (value := one["spearman"] or 0.0) < known[name].value
    ]


def result_dict(
    result: AugmentResult,
    options: Mapping[str, object],
    model: Mapping[str, object],
    *,
    data: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """result.json: everything that the report shows, and what is needed to repeat the run.

    data: what it was made of (`Material.data`).
    """
    found = [one for one in (result.baseline, *result.cross, *result.others, result.bi) if one is not None]
    order = [one.folder for one in result.stages]
    trainings = sorted(found, key=lambda one: order.index(one.folder))
    silver = asdict(result.silver)
    return {
        "format": 1,
        "recipe": "augmented",
        "scenario": result.scenario,
        "delivered": result.choice.delivered,
        "headline": str(result.choice),
        "model": dict(model),
        "gains": [asdict(gain) | {"clear": gain.difference.clear} for gain in result.gains],
        "silver": silver | {"path": _beside(result.silver.path, result.folder)},
        "trainings": [
            {
                "name": one.name,
                "folder": _beside(one.folder, result.folder),
                "test": [score.to_dict() for score in one.test],
                "dev": [score.to_dict() for score in one.dev],
                "steps": one.steps,
                "seconds": one.seconds,
                "notes": list(one.notes),
            }
            for one in trainings
        ],
        "stages": [
            {"name": one.name, "folder": one.folder.name, "seconds": round(one.seconds, 3), "skipped": one.skipped}
            for one in result.stages
        ],
        "notes": list(result.notes),
        "options": dict(options),
        "data": dict(data or {}),
        "versions": versions(),
    }


def _beside(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
