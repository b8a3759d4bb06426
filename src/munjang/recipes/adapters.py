"""Training through LoRA adapters: only they learn, and what is saved has them folded into plain weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.recipes.models import dtype_of
from munjang.recipes.options import Model
from munjang.training.lora import LoraSettings, apply_lora, has_lora, merge_lora, merged_copy
from munjang.types import SavedName


class _AdaptedBiEncoder(BiEncoder):
    """A bi-encoder with adapters in its body, which saves what it computes: the merged weights."""

    def save(self, path: str | Path, *, dtype: SavedName | torch.dtype = "float32", card: str | None = None) -> None:
        parts = replace(self.parts, body=merged_copy(self.parts.body))
        BiEncoder(parts, device="cpu", dtype="float32").save(path, dtype=dtype, card=card)


class _AdaptedCrossEncoder(CrossEncoder):
    """A cross-encoder with adapters in its body; likewise."""

    def save(self, path: str | Path, *, dtype: SavedName | torch.dtype = "float32", card: str | None = None) -> None:
        parts = replace(self.parts, body=merged_copy(self.parts.body))
        CrossEncoder(parts, device="cpu", dtype="float32").save(path, dtype=dtype, card=card)


@contextlib.contextmanager
def adapted(model: Model, lora: LoraSettings | None) -> Iterator[Model]:
    """The model to train: with adapters for as long as this lasts, afterwards merged, whatever happened."""
    if lora is None:
        yield model
        return
    apply_lora(model.parts.body, lora)
    try:
        learner: Model
        if isinstance(model, CrossEncoder):
            learner = _AdaptedCrossEncoder(model.parts, device=model.device, dtype=dtype_of(model))
        else:
            learner = _AdaptedBiEncoder(model.parts, device=model.device, dtype=dtype_of(model))
            learner.truncate_dim = model.truncate_dim  # evaluated as it will be used
        learner.threads = model.threads
        yield learner
    finally:
        if has_lora(model.parts.body):  # a finished run is taken over merged
            merge_lora(model.parts.body)
        model.refresh()
