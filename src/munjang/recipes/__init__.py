"""Recipes: whole training jobs as one call each, resumable, checked for leakage, with a report.

    result = munjang.recipes.sts(model, train, dev, test, options=RecipeOptions(folder="runs/sts"))

    nli sts triplet contrastive           bi-encoders
    cross_nli cross_sts cross_rank        cross-encoders
    chain                                 several, one after another
    repeat                                a recipe.json again
    distill                               a student learns from teachers
    augmented                             few labelled pairs, or none, become many (Augmented SBERT)

Read on first use: `import munjang.recipes` and `munjang --help` do not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from munjang.recipes.augmenting.candidates import Candidates
    from munjang.recipes.augmenting.options import AugmentOptions
    from munjang.recipes.augmenting.report import write_augmented_report
    from munjang.recipes.augmenting.result import AugmentResult
    from munjang.recipes.augmenting.running import augmented
    from munjang.recipes.augmenting.sampling import Sampling
    from munjang.recipes.calls import contrastive, cross_nli, cross_rank, cross_sts, nli, sts, triplet
    from munjang.recipes.chaining import chain, repeat
    from munjang.recipes.distilling.options import (
        DistillOptions,
        DistillResult,
        Source,
        Teacher,
        VectorTeacher,
    )
    from munjang.recipes.distilling.running import distill
    from munjang.recipes.options import ChainResult, RecipeOptions, RecipeResult, SetOptions, Stage
    from munjang.recipes.report import write_overview, write_report
    from munjang.training.lora import LoraSettings

__all__ = [
    "AugmentOptions",
    "AugmentResult",
    "Candidates",
    "ChainResult",
    "DistillOptions",
    "DistillResult",
    "LoraSettings",
    "RecipeOptions",
    "RecipeResult",
    "Sampling",
    "SetOptions",
    "Source",
    "Stage",
    "Teacher",
    "VectorTeacher",
    "augmented",
    "chain",
    "contrastive",
    "cross_nli",
    "cross_rank",
    "cross_sts",
    "distill",
    "nli",
    "repeat",
    "sts",
    "triplet",
    "write_augmented_report",
    "write_overview",
    "write_report",
]

_CALLS = ("contrastive", "cross_nli", "cross_rank", "cross_sts", "nli", "sts", "triplet")
_OPTIONS = ("ChainResult", "RecipeOptions", "RecipeResult", "SetOptions", "Stage")
_LAZY = {
    **dict.fromkeys(_CALLS, "munjang.recipes.calls"),
    **dict.fromkeys(_OPTIONS, "munjang.recipes.options"),
    "chain": "munjang.recipes.chaining",
    "repeat": "munjang.recipes.chaining",
    "write_overview": "munjang.recipes.report",
    "write_report": "munjang.recipes.report",
    "LoraSettings": "munjang.training.lora",
    **dict.fromkeys(
        ("DistillOptions", "DistillResult", "Source", "Teacher", "VectorTeacher"), "munjang.recipes.distilling.options"
    ),
    "distill": "munjang.recipes.distilling.running",
    "AugmentOptions": "munjang.recipes.augmenting.options",
    "AugmentResult": "munjang.recipes.augmenting.result",
    "Candidates": "munjang.recipes.augmenting.candidates",
    "Sampling": "munjang.recipes.augmenting.sampling",
    "augmented": "munjang.recipes.augmenting.running",
    "write_augmented_report": "munjang.recipes.augmenting.report",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'munjang.recipes' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
