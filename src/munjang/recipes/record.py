"""scores.json: what a recipe found, beside what the training loop writes, whole enough to make the report from it."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from munjang.data import Examples
from munjang.data.overlaps import Overlap, SetLeakage
from munjang.evaluation import Mistake, Scores
from munjang.evaluation.metrics import AgainstMajority
from munjang.files import atomic_write, disk_errors
from munjang.recipes.card import write_card
from munjang.recipes.options import Model, RecipeResult
from munjang.recipes.report import write_report
from munjang.recipes.sets import Sets
from munjang.training import Task

NAME = "scores.json"
_FORMAT = 1
_PACKAGES = ("munjang", "torch", "numpy", "tokenizers", "safetensors")
_SAFE = "the trained model is in the run folder's model/; make room and run the same command again"


@dataclass(frozen=True)
class Measured:
    """What was measured on the trained model."""

    dev: tuple[Scores, ...] = ()
    test: tuple[Scores, ...] = ()
    truncated: tuple[Scores, ...] = ()  # with the first values of the vectors only
    labelled: AgainstMajority | None = None  # how well labels are told
    mistakes_of: str = ""  # the set that the mistakes are from
    mistakes: tuple[Mistake, ...] = ()


def write_record(folder: Path, result: RecipeResult, sets: Sets, tasks: Sequence[Task], measured: Measured) -> None:
    """Write scores.json, the model card and the report into a run folder."""
    content = {
        "format": _FORMAT,
        "recipe": result.recipe,
        "headline": result.headline,
        "dev": [score.to_dict() for score in measured.dev],
        "test": [score.to_dict() for score in measured.test],
        "truncated": [score.to_dict() for score in measured.truncated],
        "before": result.before.to_dict(),
        "sets": [set_facts(role, examples) for role, examples in sets.roles()],
        "tasks": [set_facts("task", task.examples) for task in tasks],
        "leakage": leakage_facts(sets),
        "mistakes": {"set": measured.mistakes_of, "rows": [asdict(mistake) for mistake in measured.mistakes]},
        "notes": list(result.notes),
        "model": model_facts(result.model),
        "versions": versions(),
        "device": device_name(result.model),
    }
    with disk_errors(folder, safe=_SAFE):
        text = json.dumps(content, ensure_ascii=False, indent=2, default=str)
        atomic_write(folder / NAME, (text + "\n").encode("utf-8", "replace"))
        write_card(folder, result.model, content)
        write_report(folder)


def versions() -> dict[str, str]:
    """Of Python and of what computes."""
    return {"python": platform.python_version(), **{package: _version(package) for package in _PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def device_name(model: Model) -> str:
    """The device that trained."""
    if model.device.type == "cuda":
        return f"{model.device} ({torch.cuda.get_device_name(model.device)})"
    return str(model.device)


def model_facts(model: Model) -> dict[str, object]:
    """What the model is, as the report shows it."""
    found = model.describe()
    kept = ("source", "family", "layers", "hidden size", "parameters", "pooling", "head", "labels", "max length")
    return {name: found[name] for name in kept if name in found}


def set_facts(role: str, examples: Examples) -> dict[str, object]:
    """A set, for JSON: its rows, and what was left out of it."""
    reading = examples.reading
    return {
        "role": role,
        "name": examples.name,
        "kind": examples.kind,
        "rows": len(examples),
        "labels": list(examples.labels)[:20],
        "source": reading.source,
        "seen": reading.rows,
        "refused_counts": dict(reading.refused_counts),
        "refused": [asdict(one) for one in reading.refused],
        "notes": list(reading.notes),
    }


def leakage_facts(sets: Sets) -> dict[str, object] | None:
    """What training and evaluation share, for JSON."""
    if sets.leakage is None:
        return None
    roles = [*["dev"] * len(sets.dev), *["test"] * len(sets.test)]
    roles += ["another stage"] * (len(sets.leakage.sets) - len(roles))
    return {
        "policy": sets.policy,
        "removed": sets.removed,
        "sets": [_set_leakage(role, found) for role, found in zip(roles, sets.leakage.sets, strict=True)],
        "train": [{"name": one.name, "rows": one.rows, "shared": len(one.some)} for one in sets.leakage.train],
    }


def _set_leakage(role: str, found: SetLeakage) -> dict[str, object]:
    return {
        "role": role,
        "name": found.name,
        "rows": found.rows,
        "sentences": found.sentences,
        "exact": _overlap(found.exact),
        "normalised": _overlap(found.normalised),
        "examples": list(found.examples),
    }


def _overlap(found: Overlap) -> dict[str, int]:
    return {
        "sentences": found.sentences,
        "some": len(found.some),
        "every": len(found.every),
        "whole": len(found.whole),
    }
