"""What a run is made of and what comes out of it: `Task`, `TrainingResult`, and the identity that a resume checks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from munjang.data import Examples
from munjang.data.examples import blocks_of
from munjang.errors import InputError, ResumeError
from munjang.evaluation import Evaluator
from munjang.files import atomic_write, disk_errors
from munjang.training.lora import describe_lora
from munjang.training.objectives import Objective
from munjang.training.settings import TrainingSettings
from munjang.training.trainee import Model

# Settings that change how a run goes, but not where it ends.
_IDLE = ("token_budget", "keep_checkpoints", "log_every", "save_every", "save_seconds")


@dataclass(frozen=True)
class Task:
    """A data set and what it is trained with."""

    examples: Examples
    objective: Objective
    batch_size: int | None = None  # None: as the settings say
    weight: float = 1.0  # of its loss
    share: float | None = None  # of the steps, beside the shares of the other tasks; None: as `sampling` says


@dataclass(frozen=True)
class Best:
    """The evaluation that chose the model."""

    metric: str
    value: float
    step: int  # 0: the model as given


@dataclass(frozen=True)
class TrainingResult:
    """What a run did. The model itself was changed in place, and saved under `folder` / model."""

    folder: Path | None
    steps: int
    epochs: float
    seconds: float  # of training, without evaluating and saving
    tokens: int
    rows: int
    losses: dict[str, float]  # task -> mean loss of its last steps
    best: Best | None
    evaluations: list[dict[str, object]] = field(default_factory=list)
    truncated: dict[str, int] = field(default_factory=dict)  # task -> sequences that were cut
    stopped_early: bool = False
    resumed_from: int | None = None
    peak_memory: int = 0  # bytes on the GPU
    start: float | None = None  # of the model as given, by the metric of `best`; None: not measured

    @property
    def unchanged(self) -> bool:
        """Whether no evaluation beat the model as given, which is then what the run delivers."""
        return self.best is not None and self.best.step == 0

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], folder: Path) -> TrainingResult:
        """The result of a finished run, from its result.json."""
        best = saved["best"]
        return cls(**{**saved, "folder": folder, "best": None if best is None else Best(**best)})

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"folder": None if self.folder is None else str(self.folder)}

    def __str__(self) -> str:
        rate = self.tokens / self.seconds if self.seconds else 0.0
        line = f"{self.steps:,} steps, {self.rows:,} rows in {self.seconds:.1f} s ({rate:,.0f} tokens/s)"
        if self.best is not None and self.unchanged:
            line += f"; nothing beat the model as given ({self.best.metric} {self.best.value:.4f})"
        elif self.best is not None:
            line += f"; best {self.best.metric} {self.best.value:.4f} at step {self.best.step:,}"
            line += "" if self.start is None else f" (before training {self.start:.4f})"
        return line + ("; stopped early" if self.stopped_early else "")


def check_tasks(model: Model, tasks: Sequence[Task], cross: bool) -> None:
    """Refuse what cannot be trained together."""
    if not tasks:
        raise InputError("there is nothing to train on: give at least one Task(examples, objective)")
    kind = "cross-encoder" if cross else "bi-encoder"
    for task in tasks:
        if task.objective.cross != cross:
            raise InputError(f"{type(task.objective).__name__} does not train a {kind}")
        if task.batch_size is not None and task.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {task.batch_size}")
        if not 0 < task.weight < math.inf:
            raise InputError(f"the weight of {task.examples.name} must be above 0 and finite, got {task.weight}")
        if task.share is not None and not 0 < task.share < math.inf:
            raise InputError(f"the share of {task.examples.name} must be above 0 and finite, got {task.share}")
    without = [task.examples.name for task in tasks if task.share is None]
    if 0 < len(without) < len(tasks):
        raise InputError(f"shares of the steps need one for every task; {', '.join(without)} has none")
    names = [task.examples.name for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"tasks need names of their own, got {names}: give the examples names")


def describe_run(
    model: Model, tasks: Sequence[Task], settings: TrainingSettings, *, evaluators: Sequence[Evaluator]
) -> dict[str, object]:
    """Everything that decides the outcome, for config.json and for the identity."""
    return {
        "model": {
            "source": model.parts.source,
            "fingerprint": model.fingerprint,
            "max_length": model.max_length,
            "lora": describe_lora(model.parts.body),  # what the fingerprint of the weights cannot tell
        },
        "tasks": [
            {
                "name": task.examples.name,
                "kind": task.examples.kind,
                "rows": len(task.examples),
                "data": data_hash(task.examples),
                "objective": type(task.objective).__name__,
                "objective_settings": task.objective.settings(),
                "batch_size": task.batch_size,
                "weight": task.weight,
                **({} if task.share is None else {"share": task.share}),  # runs without any keep their identity
            }
            for task in tasks
        ],
        "settings": settings.as_dict(),
        "evaluators": [
            {"name": evaluator.name, "main": evaluator.main, "data": _data_of(evaluator)} for evaluator in evaluators
        ],
    }


def identity_of(description: dict[str, object]) -> str:
    """A hash of what must be the same for a run to be gone on with."""
    settings = description["settings"]
    assert isinstance(settings, dict)
    deciding = {name: value for name, value in settings.items() if name not in _IDLE}
    model = description["model"]
    assert isinstance(model, dict)
    model = {name: value for name, value in model.items() if name != "source"}  # the fingerprint says it all
    said = {**description, "settings": deciding, "model": model}
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_config(path: Path, identity: str, description: dict[str, object]) -> None:
    """Refuse the folder of another run; a new one gets its config.json."""
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")).get("identity") != identity:
            raise ResumeError(
                f"{path.parent} holds another run (other data, model or settings; see its config.json); "
                "choose another folder, or remove it"
            )
        return
    text = json.dumps({"identity": identity, **description}, ensure_ascii=False, indent=2, default=str)
    with disk_errors(path, safe="nothing was trained yet"):
        atomic_write(path, (text + "\n").encode())


def _data_of(evaluator: Evaluator) -> str | None:
    """A hash of what an evaluator measures on: another development set chooses another model."""
    examples = getattr(evaluator, "examples", None)
    return data_hash(examples) if isinstance(examples, Examples) else None


def hash_texts(texts: Sequence[str]) -> str:
    """A hash of texts in their order."""
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def data_hash(examples: Examples) -> str:
    """A hash of every text and target."""
    digest = hashlib.blake2b(digest_size=16)
    for name, column in examples.columns.items():
        digest.update(f"{name}\0".encode())
        digest.update("\0".join(column).encode("utf-8", "surrogatepass"))
    for values in (examples.targets, examples.groups):
        if values is not None:
            for block in blocks_of(values):  # which may lie in a file and be larger than the memory
                wide = np.float32 if block.dtype == np.float16 else block.dtype
                digest.update(np.ascontiguousarray(block, dtype=wide).tobytes())
    digest.update(repr(examples.labels).encode())
    return digest.hexdigest()
