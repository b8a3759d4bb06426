"""Models as they are given, kept as they were: every training starts from a fresh copy.

A recipe trains a loaded model in place. Here one model starts several trainings (the baseline, the cross-encoder, the
bi-encoder in the end), so each gets the path, which is read anew, or a copy of what is in memory.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import ModelWarning
from munjang.recipes.models import bi_encoder, cross_encoder, dtype_of
from munjang.recipes.options import GivenModel, RecipeOptions


@dataclass(frozen=True, eq=False)
class Original:
    """A model that must not change."""

    given: GivenModel
    fingerprint: str  # of its weights and settings

    def fresh(self) -> GivenModel:
        """Something that may be trained in place."""
        if isinstance(self.given, BiEncoder):
            return copied_bi(self.given)
        return copied_cross(self.given) if isinstance(self.given, CrossEncoder) else self.given


def original_bi(given: GivenModel, options: RecipeOptions) -> Original:
    """A bi-encoder; one that cannot be loaded, or is none, is an error now."""
    return Original(given, bi_encoder(_untouched(given), options).model.fingerprint)


def original_cross(given: GivenModel, options: RecipeOptions) -> Original:
    """What a cross-encoder with one score can be made of: one that is there, or a body."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)  # the training says it again
        return Original(given, cross_encoder(_untouched(given), 1, options).model.fingerprint)


def copied_bi(model: BiEncoder) -> BiEncoder:
    """The same model with weights of its own."""
    parts = replace(
        model.parts,
        body=copy.deepcopy(model.parts.body),
        heads=copy.deepcopy(model.parts.heads),
        tokenizer=copy.copy(model.parts.tokenizer),  # max_length may then differ
        notes=list(model.parts.notes),
    )
    made = BiEncoder(parts, device=model.device, dtype=dtype_of(model))
    made.truncate_dim = model.truncate_dim
    return made


def copied_cross(model: CrossEncoder) -> CrossEncoder:
    """The same model with weights of its own."""
    parts = replace(
        model.parts,
        body=copy.deepcopy(model.parts.body),
        head=copy.deepcopy(model.parts.head),
        tokenizer=copy.copy(model.parts.tokenizer),
        notes=list(model.parts.notes),
    )
    return CrossEncoder(parts, device=model.device, dtype=dtype_of(model))


def _untouched(given: GivenModel) -> GivenModel:
    """To look at: what a recipe sets on it (max_length) is not set on the original."""
    return given if isinstance(given, str | Path) else Original(given, "").fresh()
