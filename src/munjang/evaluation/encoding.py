"""Texts -> a model's vectors or scores, each text once, and what a reader must know about it.

Several evaluators often see the same texts. Within `remembering(model)`, which `evaluate` opens, a text is encoded once
per prompt and its vector kept, up to a bound. What was cut at the model's length comes back as a note: a warning would
be said again after every epoch, and would not stand beside the number it belongs to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from munjang.errors import InputError
from munjang.evaluation.metrics.arrays import Array
from munjang.evaluation.scores import Model
from munjang.types import EncodeReport

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder, CrossEncoder, Encoded

Role = Literal["text", "query", "document"]
_NAMES: dict[Role, tuple[str, ...]] = {"text": (), "query": ("query",), "document": ("document", "passage", "corpus")}
_REMEMBERED_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Vectors:
    """Vectors of texts, in their order."""

    rows: Array  # float32 [n, dimension]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Predictions:
    """A cross-encoder's answers to pairs, in their order."""

    rows: Array  # float32 [n] or [n, labels]
    notes: tuple[str, ...] = ()


@dataclass
class _Memory:
    """Vectors of one model, by prompt and text."""

    model: Model
    rows: dict[tuple[str, str], Array] = field(default_factory=dict)
    doubtful: set[tuple[str, str]] = field(default_factory=set)  # encoded together with texts that were cut
    bytes: int = 0

    def keep(self, prompt: str, texts: Sequence[str], encoded: Encoded) -> None:
        if self.bytes + encoded.vectors.nbytes > _REMEMBERED_BYTES:
            return
        self.bytes += encoded.vectors.nbytes
        self.rows.update(((prompt, text), row) for text, row in zip(texts, encoded.vectors, strict=True))
        if encoded.report.truncated:
            self.doubtful.update((prompt, text) for text in texts)


_memory: ContextVar[_Memory | None] = ContextVar("munjang_evaluation_memory", default=None)


@contextlib.contextmanager
def remembering(model: Model) -> Iterator[None]:
    """Encode every text of this model once, for as long as this lasts."""
    token = _memory.set(_Memory(model))
    try:
        yield
    finally:
        _memory.reset(token)


def encode(model: BiEncoder, texts: Sequence[str], *, role: Role = "text") -> Vectors:
    """Vectors of the texts; queries and documents get the model's prompts for them."""
    prompt = next((name for name in _NAMES[role] if name in model.prompts), None)
    memory = _memory.get()
    if memory is None or memory.model is not model:
        memory = _Memory(model)
    key = prompt or ""
    unique = list(dict.fromkeys(texts))
    missing = [text for text in unique if (key, text) not in memory.rows]
    notes: tuple[str, ...] = ()
    if any((key, text) in memory.doubtful for text in unique):
        notes = (f"truncated: texts beyond {model.max_length} tokens, counted at an earlier set",)
    fresh: dict[str, Array] = {}
    if missing:
        encoded = model.encode_report(missing, prompt_name=prompt)
        notes += _truncated(encoded.report, "texts")
        memory.keep(key, missing, encoded)
        fresh = dict(zip(missing, encoded.vectors, strict=True))
    rows = [fresh[text] if text in fresh else memory.rows[key, text] for text in texts]
    return Vectors(np.stack(rows) if rows else np.zeros((0, model.dimension), np.float32), notes)


def gpu_of(model: BiEncoder) -> str | None:
    """The model's GPU, where it has one: vectors are compared there too."""
    return str(model.device) if model.device.type == "cuda" else None


def predict(model: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> Predictions:
    """The model's scores of the pairs, each different pair once."""
    unique = list(dict.fromkeys(pairs))
    found = model.predict_report(unique)
    place = {pair: row for row, pair in enumerate(unique)}
    return Predictions(found.scores[[place[pair] for pair in pairs]], _truncated(found.report, "pairs"))


def predict_one(model: CrossEncoder, pairs: Sequence[tuple[str, str]], *, name: str) -> Predictions:
    """The same of a model with one score per pair: float32 [n]."""
    if len(model.labels) != 1:
        raise InputError(
            f"{name} needs one score per pair: expected a cross-encoder with one output, got one with "
            f"{len(model.labels)} ({', '.join(model.labels)})"
        )
    return predict(model, pairs)


def _truncated(report: EncodeReport, what: str) -> tuple[str, ...]:
    if not report.truncated:
        return ()
    return (f"truncated: {report.truncated:,} of {report.texts:,} {what} to {report.max_length} tokens",)
