"""`BiParts` and `CrossParts`: what bi-encoders and cross-encoders are made of, read from a folder or written to one.

Thresholds measured for a model are kept in munjang.json beside it:

    {"format": 1, "thresholds": {TASK: {"value": ..., "meaning": ..., "measured": {...}}}, "first_stage_weight": ...}

They hold for the weights they were measured with: whatever changes the weights or the vectors (training, a new head,
another pooling or truncate_dim) drops them. A reranker may also have the weight that the first stage's score keeps in
the final order (munjang.index.reranking). A model without either has no munjang.json.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch import Tensor, nn

from munjang.checkpoint.folder import read_object, write_json
from munjang.errors import InputError, ModelError
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.heads import ClassifierHead
from munjang.nn.pooling import Pooling
from munjang.text.packing import Tokens
from munjang.text.pairs import encode_pairs
from munjang.text.tokenizer import Tokenizer
from munjang.types import Similarity, Threshold

Body = Encoder | StaticEmbedding | TransformersBody
HeadName = Literal["sbert", "standard"]
ScoreActivation = Literal["Sigmoid", "Identity", "Softmax", "Tanh"]
Holder = TypeVar("Holder", bound="Parts")

_THRESHOLDS = "munjang.json"
_THRESHOLDS_FORMAT = 1


@dataclass(kw_only=True)
class Parts:
    """What bi-encoders and cross-encoders have in common."""

    body: Body
    tokenizer: Tokenizer  # max_length and lower-casing are set
    hf_config: dict[str, object] = field(default_factory=dict)  # config.json of the body; empty for a static one
    leftover: dict[str, Tensor] = field(default_factory=dict)  # the pooler: for saved models, and for new heads
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)  # by task
    first_stage_weight: float = 0.0  # of a reranker: added to its logit for each unit of the first stage's score
    notes: list[str] = field(default_factory=list)  # what had to be assumed or repaired
    source: str = ""  # the folder, or hub id@revision

    def with_thresholds(self: Holder, thresholds: Mapping[str, Threshold]) -> Holder:
        """Return parts with these thresholds that share the weights.

        Raises:
            InputError: A threshold is not finite, not under its task, or cannot be written as JSON.
        """
        # Copy the tokenizer, because max_length may differ later; its backend is shared and never changed.
        return replace(self, thresholds=check_thresholds(thresholds), tokenizer=copy.copy(self.tokenizer))

    def _describe(
        self, modules: Sequence[nn.Module], settings: Mapping[str, object], tokenizer: Mapping[str, object]
    ) -> dict[str, object]:
        config = self.body.config
        return {
            "source": self.source,
            "family": config.family,
            "layers": len(config.steps) or None,
            "hidden size": self.body.hidden,
            "attention heads": config.heads if config.steps else None,
            "parameters": sum(weight.numel() for module in modules for weight in module.parameters()),
            **settings,
            "max length": self.tokenizer.max_length,
            "tokenizer": {
                "model": type(self.tokenizer.backend.model).__name__,
                "vocabulary": self.tokenizer.vocab_size,
                **tokenizer,
            },
            "thresholds": describe_thresholds(self.thresholds),
        }


@dataclass(kw_only=True)
class BiParts(Parts):
    """A bi-encoder: `body -> pooling -> heads`."""

    pooling: Pooling
    heads: nn.ModuleList = field(default_factory=nn.ModuleList)  # Dense, Normalize, VectorNorm, in order
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: Similarity = "cosine"
    truncate_dim: int | None = None

    def describe(self) -> dict[str, object]:
        """Summarize the model for people."""
        settings = {
            "pooling": list(self.pooling.modes),
            "heads": [type(head).__name__ for head in self.heads],
            "prompts": dict(self.prompts),
            "default prompt": self.default_prompt_name,
            "similarity": self.similarity,
        }
        tokenizer = {"special tokens around a text": self.tokenizer.specials}
        return self._describe((self.body, self.heads), settings, tokenizer)


@dataclass(kw_only=True)
class CrossParts(Parts):
    """A cross-encoder: `body -> head`."""

    head: ClassifierHead
    labels: tuple[str, ...]  # names of the outputs; a single one is a score
    activation: ScoreActivation = "Sigmoid"  # what sentence-transformers applies to the logits

    def tokenise(self, a: Sequence[str], b: Sequence[str], *, by_words: bool = True) -> Tokens:
        """Tokenize pairs, with the segments that the body knows."""
        return encode_pairs(self.tokenizer, a, b, segments=self.body.config.segments, by_words=by_words)

    @property
    def uses_segments(self) -> bool:
        """Whether the body gets segment ids, which tell the two texts apart."""
        frame = self.tokenizer.pair_frame
        framed = frame is None or not frame.one_segment
        return framed and self.body.config.segments > 1 and not self.tokenizer.ignores_segments

    def describe(self) -> dict[str, object]:
        """Summarize the model for people."""
        frame = self.tokenizer.pair_frame
        settings = {
            "head": describe_head(self.head),
            "labels": list(self.labels),
            "activation": self.activation,
        }
        tokenizer = {
            "special tokens around a pair": None if frame is None else frame.size,
            "segments": self.uses_segments,
        }
        return {"kind": "cross-encoder", **self._describe((self.body, self.head), settings, tokenizer)}


def describe_head(head: ClassifierHead) -> str:
    """Summarize a head: 'first token, linear, gelu, linear to 3'."""
    shape = head.shape
    steps = [{"cls": "first token", "mean": "mean of tokens"}[shape.pooling]]
    steps += ["linear", shape.activation] if shape.dense else []
    steps += ["norm"] if shape.norm_eps is not None else []
    return ", ".join([*steps, f"linear to {head.labels}"])


# --- thresholds ------------------------------------------------------------------------------------------------------


def check_thresholds(thresholds: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """Return the thresholds by task; raise `InputError` unless each is finite and can be written as JSON."""
    for task, threshold in thresholds.items():
        if not isinstance(threshold, Threshold):
            raise InputError(f"thresholds map tasks to Threshold, got {type(threshold).__name__} for {task!r}")
        if threshold.task != task:
            raise InputError(f"a threshold must be under its task, but that of {threshold.task!r} is under {task!r}")
        value: Any = threshold.value
        meaning: Any = threshold.meaning
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"the threshold for {task!r} must be a finite number, got {value!r}")
        if not isinstance(meaning, str):
            raise InputError(f"the meaning of the threshold for {task!r} must be a text, got {meaning!r}")
        try:
            json.dumps(dict(threshold.measured), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"'measured' of the threshold for {task!r} must be fit for JSON: {error}") from error
    return dict(thresholds)


def describe_thresholds(thresholds: Mapping[str, Threshold]) -> dict[str, str]:
    """Summarize thresholds for people: the value and its meaning."""
    return {task: f"{threshold.value:g}: {threshold.meaning}" for task, threshold in thresholds.items()}


def read_thresholds(folder: Path) -> dict[str, Threshold]:
    """Read munjang.json of a model folder; return nothing if there is none."""
    path = Path(folder) / _THRESHOLDS
    if not path.is_file():
        return {}
    remedy = f"fetch the model again, or delete {path.name} to load it without thresholds"
    content = read_object(path)
    version = content.get("format")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ModelError(f"{path} must have a whole number as its 'format', got {version!r}: {remedy}")
    if version > _THRESHOLDS_FORMAT:
        raise ModelError(
            f"{path} has format {version}, which a newer munjang wrote; this one reads up to {_THRESHOLDS_FORMAT}: "
            "pip install --upgrade munjang"
        )
    entries = content.get("thresholds", {})
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: 'thresholds' must map tasks to thresholds, got {entries!r}: {remedy}")
    thresholds: dict[str, Threshold] = {}
    for task, entry in entries.items():
        values = entry if isinstance(entry, dict) else {}
        value, measured = values.get("value"), values.get("measured", {})
        if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(measured, dict):
            raise ModelError(
                f"{path}: the threshold {task!r} needs a number 'value', a text 'meaning' and an object 'measured', "
                f"got {entry!r:.200}: {remedy}"
            )
        try:
            threshold = Threshold(float(value), task, values.get("meaning", ""), measured)
            thresholds |= check_thresholds({task: threshold})
        except (InputError, OverflowError) as error:  # the latter: an integer that no float holds
            raise ModelError(f"{path}: the threshold {task!r}: {error}; {remedy}") from error
    return thresholds


def read_first_stage_weight(folder: Path) -> float:
    """Read the reranker's weight of the first stage from munjang.json; 0 if there is none."""
    path = Path(folder) / _THRESHOLDS
    value = read_object(path).get("first_stage_weight", 0.0) if path.is_file() else 0.0
    try:
        return check_first_stage_weight(value)
    except InputError as error:
        remedy = f"fetch the model again, or delete {path.name} to load it without"
        raise ModelError(f"{path}: {error}: {remedy}") from error


def check_first_stage_weight(value: Any) -> float:
    """Return the weight as a float; raise `InputError` unless it is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise InputError(f"first_stage_weight must be a finite number of at least 0, got {value!r:.60}")
    return float(value)


def write_thresholds(folder: Path, thresholds: Mapping[str, Threshold], first_stage_weight: float = 0.0) -> None:
    """Write munjang.json, unless there is nothing to write."""
    if not thresholds and not first_stage_weight:
        return
    entries = {
        task: {"value": float(threshold.value), "meaning": threshold.meaning, "measured": dict(threshold.measured)}
        for task, threshold in check_thresholds(thresholds).items()
    }
    content: dict[str, object] = {"format": _THRESHOLDS_FORMAT, "thresholds": entries}
    if first_stage_weight:
        content["first_stage_weight"] = check_first_stage_weight(first_stage_weight)
    write_json(folder / _THRESHOLDS, content)
