"""What `augmented` is told: `AugmentOptions`, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes.augmenting.candidates import Candidates
from munjang.recipes.augmenting.defaults import (
    BI_OBJECTIVES,
    CROSS_OBJECTIVES,
    MIXES,
    PRETRAIN_PAIRS,
    RETRIEVERS,
    BiObjective,
    CrossObjective,
    Mix,
    RetrieveWith,
)
from munjang.recipes.augmenting.sampling import Sampling
from munjang.recipes.options import GivenModel, LeakagePolicy, RecipeOptions, SetOptions


@dataclass(frozen=True)
class AugmentOptions:
    """Everything that may be chosen about Augmented SBERT.

    bi_changes and cross_changes are settings that differ from the defaults of the recipes sts and cross_sts,
    pretrain_changes those of the pretraining. The bi-encoder on gold alone (the baseline) and the one on gold and
    silver train with the same.
    """

    folder: str | Path  # the run folder
    cross_encoder: GivenModel | Sequence[GivenModel] | None = None  # ready ones, which label; None: trained on gold
    cross_model: GivenModel | None = None  # what that one starts from; None: the body of the bi-encoder
    cross_count: int = 1  # several, by seed: labels are their mean, and their spread says how certain these are
    cross_objective: CrossObjective = "order"
    pretrain: bool = False  # prepare it on candidates and random pairs with the retriever's cosines as scores
    pretrain_pairs: int = PRETRAIN_PAIRS  # at most so many of them
    candidates: Candidates = field(default_factory=Candidates)  # how pairs are found
    blend: float | Literal["auto"] = "auto"  # how much the retriever's cosines count in the labels; auto: by dev
    sampling: Sampling = field(default_factory=Sampling)  # which of them are kept
    retriever: GivenModel | None = None  # the bi-encoder that finds neighbours; None: as retrieve_with says
    retrieve_with: RetrieveWith = "trained"  # the baseline, or the model as it is given
    objective: BiObjective = "cosine"  # of the bi-encoder
    mix: Mix = "together"  # gold and silver in one pass, or silver, then gold
    baseline: bool = True  # train on the labelled pairs alone too, for comparison
    gold_rows: int | None = None  # label so many rows of gold only; of the others the sentences are used
    bi_changes: Mapping[str, object] = field(default_factory=dict)
    cross_changes: Mapping[str, object] = field(default_factory=dict)
    pretrain_changes: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0  # of new heads, of the training, of gold_rows; candidates and sampling have their own
    device: str | None = None
    leakage: LeakagePolicy = "report"
    max_length: int | None = None
    domain_column: str | None = None  # of a domain file with several columns
    sets: SetOptions = field(default_factory=SetOptions)
    progress: Progress = False

    def __post_init__(self) -> None:
        choices = (("objective", BI_OBJECTIVES), ("cross_objective", CROSS_OBJECTIVES), ("mix", MIXES),
                   ("retrieve_with", RETRIEVERS))  # fmt: skip
        for name, known in choices:
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        for name in ("cross_count", "pretrain_pairs", "gold_rows"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number from 1 on, got {value!r}")
        if self.blend != "auto" and not (isinstance(self.blend, int | float) and 0 <= self.blend < 1):
            raise InputError(f"blend must be 'auto' or a number from 0 up to, but not, 1, got {self.blend!r}")
        if self.pretrain_changes and not self.pretrain:
            raise InputError("pretrain_changes are settings of the pretraining, which is not asked for: pretrain=True")
        if self.labellers:
            told = [name for name in ("cross_model", "cross_changes", "pretrain") if getattr(self, name)]
            told += ["cross_count"] if self.cross_count > 1 else []
            if told:
                raise InputError(
                    f"cross_encoder is ready and is not trained, so {', '.join(told)} would do nothing: leave one away"
                )
        if self.retriever is not None and not self.needs_vectors and self.blend == 0:
            raise InputError(
                "retriever finds neighbours for the strategy semantic (or cosines for pretrain and blend), and nothing "
                f"of these is asked for: the strategies are {', '.join(self.candidates.strategies)}"
            )
        for changes in (self.bi_changes, self.cross_changes, self.pretrain_changes):
            RecipeOptions(changes=changes, leakage=self.leakage)  # raises where a setting is unknown
            if "seed" in changes:
                raise InputError("the seed of every part follows from AugmentOptions(seed=...), not from changes")

    @property
    def labellers(self) -> tuple[GivenModel, ...]:
        """The ready cross-encoders; none where they are trained here."""
        given = self.cross_encoder
        if given is None:
            return ()
        return (given,) if isinstance(given, str | Path | BiEncoder | CrossEncoder) else tuple(given)

    @property
    def needs_vectors(self) -> bool:
        """Whether a retriever has to encode the sentences, whatever becomes of the labels."""
        return "semantic" in self.candidates.strategies or self.pretrain

    def blends(self, *, dev: bool) -> bool:
        """Whether cosines may count in the labels; dev: there is a development set to choose by."""
        return dev if self.blend == "auto" else self.blend > 0

    def needs_baseline(self, *, vectors: bool) -> bool:
        """Whether the model is trained on the labelled pairs alone: to compare with, or to find neighbours."""
        return self.baseline or (vectors and self.retriever is None and self.retrieve_with == "trained")

    def recipe(self, changes: Mapping[str, object], **told: Any) -> RecipeOptions:
        """The options of one of the trainings."""
        return RecipeOptions(
            changes=changes,
            leakage=self.leakage,
            max_length=self.max_length,
            device=self.device,
            progress=self.progress,
            **{"seed": self.seed, **told},
        )

    def to_dict(self) -> dict[str, object]:
        """What was chosen, for people and for result.json; models by their names."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("progress", "folder")}
        for name in ("cross_model", "retriever"):
            found[name] = model_name(found[name])
        found["cross_encoder"] = [model_name(one) for one in self.labellers] or None
        return {
            **found,
            "candidates": asdict(self.candidates),
            "sampling": asdict(self.sampling),
            "sets": asdict(self.sets),
            "bi_changes": dict(self.bi_changes),
            "cross_changes": dict(self.cross_changes),
            "pretrain_changes": dict(self.pretrain_changes),
        }


def model_name(given: GivenModel | None) -> str | None:
    """A model as it was given; one in memory by where it is from."""
    if given is None or isinstance(given, str):
        return given
    return str(given) if isinstance(given, Path) else given.parts.source or "a model in memory"
