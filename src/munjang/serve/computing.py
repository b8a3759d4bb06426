"""What a model does for its batcher: items to tokens, packed batches to values.

Values are full-width vectors, token vectors or logits, float32 on the host. What a request wants of them (fewer
dimensions, unit length, probabilities) is derived afterwards, so that requests with different options share batches.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.encoders.runtime import CallOptions
from munjang.text.packing import Batch, Tokens

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]
Values = Sequence[Array] | Array

_log = logging.getLogger("munjang.serve")


class ModelWork:
    """The work of one model; items are texts with their prompt before them, or pairs."""

    def __init__(self, model: BiEncoder | CrossEncoder) -> None:
        self._model = model
        self._width = model.full_dimension if isinstance(model, BiEncoder) else len(model.labels)

    def characters(self, items: Sequence[str] | Sequence[Pair]) -> int:
        return sum(len(item) if isinstance(item, str) else len(item[0]) + len(item[1]) for item in items)

    def tokenise(self, items: Any) -> Tokens:
        return self._model.runtime.tokenize(items, CallOptions())

    def empty(self, count: int, kind: Hashable) -> Any:
        assert isinstance(kind, CallOptions)
        return [None] * count if kind.every_token else np.empty((count, self._width), np.float32)

    def compute(self, batch: Batch, kind: Hashable) -> Values:
        assert isinstance(kind, CallOptions)
        runtime = self._model.runtime
        with torch.inference_mode():
            rows = runtime.forward(batch, kind).cpu().numpy()
        rows, recomputed = runtime.ensure_finite(rows, [replace(batch, rows=np.arange(len(batch.lengths)))], kind)
        if recomputed:
            _log.warning(
                "%d values were not finite in %s and were computed again in float32", recomputed, runtime.dtype
            )
        return np.split(rows, np.cumsum(batch.lengths)[:-1]) if kind.every_token else rows
