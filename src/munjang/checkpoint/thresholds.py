"""Thresholds that were measured for a model, and munjang.json, which keeps them beside it.

    {"format": 1, "thresholds": {TASK: {"value": ..., "meaning": ..., "measured": {...}}}}

A threshold belongs to the weights that it was measured with: what changes these or the vectors (training, a new head,
another pooling, another truncate_dim) drops it. A model without thresholds has no munjang.json.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, TypeVar

from munjang.checkpoint.files import read_object
from munjang.errors import InputError, ModelError
from munjang.types import Threshold


class HasParts(Protocol):
    """A bi- or cross-encoder, as far as its thresholds go."""

    parts: Any  # ModelParts or CrossParts, which need this module themselves


FILE = "munjang.json"
Holder = TypeVar("Holder", bound=HasParts)
_FORMAT = 1


def checked(given: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """The thresholds by task, each finite and fit to be written as JSON."""
    for task, threshold in given.items():
        if not isinstance(threshold, Threshold):
            raise InputError(f"thresholds map tasks to Threshold, got {type(threshold).__name__} for {task!r}")
        if threshold.task != task:
            raise InputError(f"a threshold stands under its task, but that of {threshold.task!r} is under {task!r}")
        value: Any = threshold.value
        meaning: Any = threshold.meaning
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"the threshold for {task!r} must be a finite number, got {value!r}")
        if not isinstance(meaning, str):
            raise InputError(f"what the threshold for {task!r} means must be a text, got {meaning!r}")
        try:
            json.dumps(dict(threshold.measured), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"what was measured for the threshold {task!r} must be fit for JSON: {error}") from error
    return dict(given)


def with_thresholds(model: Holder, thresholds: Mapping[str, Threshold]) -> Holder:
    """A copy of a bi- or cross-encoder that shares its weights and has these thresholds."""
    other = copy.copy(model)
    # The tokenizer's own copy, because max_length may then differ; its backend is shared and never changed.
    other.parts = replace(model.parts, thresholds=checked(thresholds), tokenizer=copy.copy(model.parts.tokenizer))
    return other


def read_thresholds(folder: Path) -> dict[str, Threshold]:
    """What munjang.json in a model folder says; nothing where there is none."""
    path = Path(folder) / FILE
    content = read_object(path)
    if not content:
        if path.is_file():
            raise ModelError(f"{path} must say its 'format', got an empty object: {_remedy(path)}")
        return {}
    stated = content.get("format")
    if isinstance(stated, bool) or not isinstance(stated, int) or stated < 1:
        raise ModelError(f"{path} must say its 'format' as a whole number, got {stated!r}: {_remedy(path)}")
    if stated > _FORMAT:
        raise ModelError(
            f"{path} has format {stated}, which a newer munjang wrote; this one reads up to {_FORMAT}: "
            "pip install --upgrade munjang"
        )
    entries = content.get("thresholds", {})
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: 'thresholds' must map tasks to thresholds, got {entries!r}: {_remedy(path)}")
    return {task: _threshold(task, entry, path) for task, entry in entries.items()}


def write_thresholds(folder: Path, thresholds: Mapping[str, Threshold]) -> None:
    """Write munjang.json into a folder that is being filled, if there is anything to say."""
    if not thresholds:
        return
    entries = {
        task: {"value": float(one.value), "meaning": one.meaning, "measured": dict(one.measured)}
        for task, one in checked(thresholds).items()
    }
    text = json.dumps({"format": _FORMAT, "thresholds": entries}, ensure_ascii=False, indent=2, allow_nan=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def described(thresholds: Mapping[str, Threshold]) -> dict[str, str]:
    """Thresholds for people: the value and what it means."""
    return {task: f"{one.value:g}: {one.meaning}" for task, one in thresholds.items()}


def _threshold(task: str, entry: object, path: Path) -> Threshold:
    value = entry.get("value") if isinstance(entry, dict) else None
    meaning = entry.get("meaning", "") if isinstance(entry, dict) else None
    measured = entry.get("measured", {}) if isinstance(entry, dict) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isinstance(meaning, str) or not isinstance(measured, dict):
        raise ModelError(
            f"{path}: the threshold {task!r} needs a number 'value', a text 'meaning' and an object 'measured', got "
            f"{entry!r:.200}: {_remedy(path)}"
        )
    try:
        return checked({task: Threshold(float(value), task, meaning, measured)})[task]  # type: ignore[arg-type]
    except (InputError, OverflowError) as error:  # the last: a whole number that no float holds
        raise ModelError(f"{path}: the threshold {task!r}: {error}; {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    return f"fetch the model again, or delete {path.name} to do without thresholds"
