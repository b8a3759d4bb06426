"""What a model does for its batcher: items to tokens, packed batches to values.

Enters: texts (bi-encoder) or pairs (cross-encoder), then packed batches of them. Leaves: full-width vectors, token
vectors or logits, float32 on the host; what a request wants of them (fewer dimensions, unit length, probabilities) is
made of them afterwards, so that requests with different wishes share batches. What is not finite is computed again in
float32, as `encode` and `predict` do.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from munjang.bi_encoder import BiEncoder
from munjang.computer import Computer, CrossComputer
from munjang.cross_encoder import CrossEncoder
from munjang.errors import ModelError
from munjang.text.packing import Batch, Tokens

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]
Values = Sequence[Array] | Array

_log = logging.getLogger("munjang.serve")


@dataclass(frozen=True)
class Kind:
    """What all texts of a batch have in common."""

    prompt_tokens: int = 0  # leading tokens that the pooling leaves out
    every_token: bool = False  # a vector for each token instead of one for the text


class BiWork:
    """A bi-encoder's part; items are texts with their prompt before them."""

    def __init__(self, model: BiEncoder) -> None:
        self._model = model
        self._exact = _Once(lambda: Computer(model.parts, model.device, torch.float32))

    def characters(self, items: Sequence[str]) -> int:
        return sum(map(len, items))

    def tokenise(self, items: Sequence[str]) -> Tokens:
        return self._model.tokenizer.encode(items)

    def empty(self, count: int, kind: Hashable) -> Any:
        assert isinstance(kind, Kind)
        return [None] * count if kind.every_token else np.empty((count, self._model.full_dimension), np.float32)

    def compute(self, batch: Batch, kind: Hashable) -> Values:
        assert isinstance(kind, Kind)
        run = functools.partial(self._vectors, batch=batch, kind=kind)
        rows = _finite(run(self._model.computer), lambda: run(self._exact()), self._model.dtype, self._model)
        return np.split(rows, np.cumsum(batch.lengths)[:-1]) if kind.every_token else rows

    def _vectors(self, computer: Computer, *, batch: Batch, kind: Kind) -> Array:
        with torch.inference_mode():
            if kind.every_token:
                return computer.token_vectors(batch).cpu().numpy()  # [total_tokens, hidden]
            return computer(batch, kind.prompt_tokens, self._model.full_dimension).cpu().numpy()  # [n, dimension]


class CrossWork:
    """A cross-encoder's part; items are pairs, values are logits [labels]."""

    def __init__(self, model: CrossEncoder) -> None:
        self._model = model
        self._exact = _Once(lambda: CrossComputer(model.parts, model.device, torch.float32))

    def characters(self, items: Sequence[Pair]) -> int:
        return sum(len(first) + len(second) for first, second in items)

    def tokenise(self, items: Sequence[Pair]) -> Tokens:
        return self._model.parts.tokenise([pair[0] for pair in items], [pair[1] for pair in items])

    def empty(self, count: int, kind: Hashable) -> Any:
        return np.empty((count, len(self._model.labels)), np.float32)

    def compute(self, batch: Batch, kind: Hashable) -> Values:
        def run(computer: CrossComputer) -> Array:
            with torch.inference_mode():
                return computer(batch).cpu().numpy()  # [n, labels]

        return _finite(run(self._model.computer), lambda: run(self._exact()), self._model.dtype, self._model)


class _Once:
    """Makes a thing when it is first asked for, from any thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made, self._lock = make, None, threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def _finite(rows: Array, again: Callable[[], Array], dtype: torch.dtype, model: BiEncoder | CrossEncoder) -> Array:
    """The rows, or, where some are not finite, the same in float32."""
    if np.isfinite(np.vdot(rows, rows)) or np.isfinite(rows).all():
        return rows
    if dtype != torch.float32:
        _log.warning("values were not finite in %s and are computed again in float32", str(dtype)[6:])
        exact = again()
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, exact)
    if not np.isfinite(rows).all():
        raise ModelError(f"values of {model.parts.source or 'the model'} are not finite even in float32: it is damaged")
    return rows
