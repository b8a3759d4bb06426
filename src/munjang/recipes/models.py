"""The model of a recipe: loaded where a path was given, with the pooling, the length and the head that are wanted.

A cross-encoder that has another number of outputs than the recipe needs keeps its body and gets a new head, which is
said in a `ModelWarning` and in the report: going on with three outputs where one is needed is the classic failure on
the way from NLI to STS.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from munjang import checkpoint
from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import HeadWish
from munjang.checkpoint.cross_reading import with_head
from munjang.checkpoint.hub import CROSS_ORGANISATION
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError, ModelError, ModelNotFoundError, ModelWarning
from munjang.nn.heads import Dense
from munjang.nn.pooling import Pooling
from munjang.recipes.defaults import Size, size_of
from munjang.recipes.options import GivenModel, Model, RecipeOptions
from munjang.types import DTypeName

_NO_HEAD = "the head is new: the model has none"


@dataclass(frozen=True)
class Ready:
    """A model ready to be trained, and what had to be done for it."""

    model: Model
    notes: tuple[str, ...] = ()


def bi_encoder(given: GivenModel, options: RecipeOptions) -> Ready:
    """The bi-encoder to train."""
    if isinstance(given, CrossEncoder):
        raise InputError(
            "this recipe trains a bi-encoder, got a CrossEncoder: take cross_nli, cross_sts or cross_rank, or give "
            "the folder of a body"
        )
    if isinstance(given, BiEncoder):
        model = given
        if options.pooling is not None:
            _set_pooling(model, options.pooling)
        if options.max_length is not None:
            model.max_length = options.max_length
    else:
        model = _loaded_bi(given, options)
    return Ready(model, tuple(model.parts.notes))


def cross_encoder(given: GivenModel, labels: Sequence[str] | int, options: RecipeOptions) -> Ready:
    """The cross-encoder to train, with these outputs: one that has them, or a body with a new head."""
    if options.pooling is not None:
        raise InputError("pooling belongs to bi-encoders: a cross-encoder's head reads the first token")
    if isinstance(given, BiEncoder):
        model = CrossEncoder.from_body(given, labels, seed=options.seeded, device=given.device, dtype=dtype_of(given))
        model.parts.source = given.parts.source
        notes = _after_training(model.parts.notes)
    elif isinstance(given, CrossEncoder):
        model, notes = _with_outputs(given, labels, options.seeded)
    else:
        model, notes = _loaded(given, labels, options)
    if options.max_length is not None:
        model.max_length = options.max_length
    return Ready(model, notes)


def body_size(model: Model) -> Size:
    """How large the body is, without its embedding tables."""
    return size_of(
        sum(
            weight.numel() for name, weight in model.parts.body.named_parameters() if not name.startswith("embeddings.")
        )
    )


def _loaded_bi(path: str | Path, options: RecipeOptions) -> BiEncoder:
    """From a folder or the hub; of a cross-encoder, an error that says which recipes are for it."""
    try:
        return BiEncoder.load(path, device=options.device, pooling=options.pooling, max_length=options.max_length)
    except ModelNotFoundError:
        raise
    except ModelError as error:
        if not checkpoint.is_cross(checkpoint.resolve(path)):
            raise
        raise InputError(
            f"{path} is a cross-encoder, and this recipe trains a bi-encoder: take cross-nli, cross-sts or cross-rank "
            "for it, or give a bi-encoder or the folder of a body"
        ) from error


def _loaded(
    path: str | Path, labels: Sequence[str] | int, options: RecipeOptions
) -> tuple[CrossEncoder, tuple[str, ...]]:
    """From a folder or the hub. That a body has no head yet is no news here: it is about to be trained."""
    folder = checkpoint.resolve(path, organisation=CROSS_ORGANISATION)
    parts = checkpoint.read_cross(folder, wish=HeadWish(labels, None, options.seeded))
    for note in parts.notes:
        if not note.startswith(_NO_HEAD):
            warnings.warn(f"{path}: {_as_said(note)}", ModelWarning, stacklevel=5)
    return CrossEncoder(parts, device=options.device), _after_training(parts.notes)


def _with_outputs(model: CrossEncoder, labels: Sequence[str] | int, seed: int) -> tuple[CrossEncoder, tuple[str, ...]]:
    """The same model where its head serves; else a copy of its body with a new head."""
    before = model.parts
    if model.labels == (tuple(labels) if not isinstance(labels, int) else model.labels[:labels]):
        return model, ()
    copied = replace(
        before,
        body=copy.deepcopy(before.body),
        head=copy.deepcopy(before.head),
        tokenizer=copy.copy(before.tokenizer),  # max_length may then differ
        notes=[],
    )
    parts = with_head(copied, HeadWish(labels, None, seed))
    for note in parts.notes:
        warnings.warn(_as_said(note), ModelWarning, stacklevel=5)
    return CrossEncoder(parts, device=model.device, dtype=dtype_of(model)), _after_training(parts.notes)


def _after_training(notes: Sequence[str]) -> tuple[str, ...]:
    """Notes as they read when the recipe is done."""
    return tuple(note.replace("; train it before use", "; the recipe trained it") for note in notes)


def _as_said(note: str) -> str:
    """A new head is trained by the recipe itself."""
    return note.replace("; train it before use", "; the body is kept, and the recipe trains the new head")


def _set_pooling(model: BiEncoder, pooling: str | Sequence[str]) -> None:
    before = model.parts.pooling
    wanted = Pooling.parse(pooling, include_prompt=before.include_prompt)
    if len(wanted.modes) != len(before.modes) and any(isinstance(head, Dense) for head in model.parts.heads):
        raise InputError(
            f"pooling must have {len(before.modes)} modes, because a Dense layer follows it, "
            f"got {', '.join(wanted.modes)}"
        )
    model.parts.pooling = wanted
    model.refresh()


def dtype_of(model: Model) -> DTypeName:
    """The precision that a model computes in, as it is asked for."""
    return cast(DTypeName, str(model.dtype).removeprefix("torch."))
