"""The file of results: written whole after every (model, set), so that a rerun goes on where the last one stopped.

A score is taken from the file only where everything that decides it is the same: the model's fingerprint, its precision
and dimension, and a hash of the set's texts, targets and settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from munjang.errors import DataError, InputError
from munjang.evaluation.scores import Model, Scores
from munjang.files import atomic_write, disk_errors

_FORMAT = 1
_NOT_DECIDING = ("reading", "progress")  # where the rows came from, and who hears how far it is


@dataclass(frozen=True)
class Identity:
    """Which model, computing how."""

    model: str  # as people call it
    fingerprint: str
    dtype: str
    dimension: int | None  # of a bi-encoder

    @property
    def key(self) -> str:
        return f"{self.fingerprint} {self.dtype} {self.dimension or ''}".rstrip()


def identity_of(name: str, model: Model) -> Identity:
    """What the results of this model are kept under."""
    dtype = str(getattr(model, "dtype", "")).removeprefix("torch.")
    return Identity(name, model.fingerprint, dtype, getattr(model, "dimension", None))


def content_of(evaluator: object) -> str:
    """A hash of everything that an evaluator (a dataclass) holds: texts, targets, settings."""
    found = hashlib.sha256()
    _absorb(found, evaluator)
    return found.hexdigest()[:32]


def _absorb(found: hashlib._Hash, value: object) -> None:
    """Type and content, so that neither 1 and '1' nor ['ab'] and ['a', 'b'] are the same."""
    found.update(type(value).__name__.encode())
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode())
        found.update(np.ascontiguousarray(value).data)
    elif isinstance(getattr(value, "fingerprint", None), str):  # a second model, such as a reranker
        _absorb(found, (value.fingerprint, str(getattr(value, "dtype", ""))))  # type: ignore[attr-defined]
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            if part.name not in _NOT_DECIDING:
                _absorb(found, getattr(value, part.name))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _absorb(found, key)
            _absorb(found, part)
    elif isinstance(value, list | tuple):
        found.update(str(len(value)).encode())
        for part in value:
            _absorb(found, part)
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        found.update(f"{len(data)}:".encode() + data)
    elif value is None or isinstance(value, int | float):
        found.update(repr(value).encode())
    else:
        raise InputError(
            f"an evaluator that holds a {type(value).__name__} cannot be recognised again in saved results"
        )


class Results:
    """Scores by model and set, in memory and, with a path, on disk."""

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._models: dict[str, dict[str, Any]] = {}
        self._left_out: dict[str, str] = {}
        if self._path is not None and self._path.exists():
            self._models = _read(self._path)

    def known(self, identity: Identity, name: str, content: str) -> Scores | None:
        """What an earlier run found for this very model and set."""
        saved = self._models.get(identity.key, {}).get("sets", {}).get(name)
        return Scores.from_dict(saved) if saved is not None and saved["content"] == content else None

    def add(self, identity: Identity, scores: Scores, content: str) -> None:
        """Keep the scores, and write."""
        model = self._of(identity)
        model["skipped"].pop(scores.name, None)
        model["sets"][scores.name] = {"content": content, **scores.to_dict()}
        self._write()

    def skip(self, identity: Identity, name: str, reason: str) -> None:
        """Keep why a set was skipped, and write."""
        self._of(identity)["skipped"][name] = reason
        self._write()

    def leave_out(self, sets: Mapping[str, str]) -> None:
        """Keep which sets this run measured for no model, with the reason, and write."""
        self._left_out = dict(sets)
        self._write()

    def about(self, identity: Identity, facts: Mapping[str, object]) -> None:
        """Keep facts about the model (as JSON takes them) beside its scores, and write; others stay."""
        self._of(identity).setdefault("about", {}).update(facts)
        self._write()

    def _of(self, identity: Identity) -> dict[str, Any]:
        model = self._models.setdefault(identity.key, {"sets": {}, "skipped": {}})
        model |= {"model": identity.model, "fingerprint": identity.fingerprint}
        model |= {"dtype": identity.dtype, "dimension": identity.dimension}
        return model

    def _write(self) -> None:
        if self._path is None:
            return
        record = {"format": _FORMAT, "models": self._models, "left_out": self._left_out}
        text = json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False)
        with disk_errors(self._path, safe="the results before this one are whole"):
            atomic_write(self._path, (text + "\n").encode())


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["format"] != _FORMAT:
            raise ValueError(f"its format is {saved['format']}, expected {_FORMAT}")
        models: dict[str, dict[str, Any]] = saved["models"]
        for model in models.values():
            model["skipped"].items()
            for scores in model["sets"].values():
                Scores.from_dict(scores)
                str(scores["content"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is there, but it does not hold results of `munjang evaluate` ({error}): choose another file, or "
            "remove it"
        ) from error
    return models
