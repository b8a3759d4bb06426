"""What the stages of the making share: where they work, how they train, how a model is chosen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from models.ko_en_0_1.merging import M, mean_of
from models.ko_en_0_1.settings import Part, Schedule
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.evaluation import Scores
from munjang.evaluation.scores import Model
from munjang.evaluation.sts import StsEvaluator
from munjang.progress import Progress
from munjang.recipes.stages import Done, Made, Stages
from munjang.training import Task, objectives, train
from munjang.training.run import data_hash

Array = np.ndarray[Any, Any]
OTHER_SEED = 100  # from one of several trainings to the next: far from the seeds of the labellers


class Selection:
    """The mean Spearman over the sets that choose: none of them alone decides."""

    name = "selection"
    main = "mean"

    def __init__(self, sets: Sequence[Examples]) -> None:
        self.sets = tuple(sets)

    def __call__(self, model: Model) -> Scores:
        values = {one.name: StsEvaluator(one)(model).value for one in self.sets}
        return Scores(self.name, {**values, "mean": fmean(values.values())}, "mean", sum(map(len, self.sets)))


@dataclass(frozen=True)
class Workshop:
    """Where a making works: its stages, and what every one of them needs to know."""

    stages: Stages
    device: str | None
    seed: int
    progress: Progress
    selection: tuple[Examples, ...]

    def bi(self, done: Done, length: int) -> BiEncoder:
        """The bi-encoder that a stage left."""
        return BiEncoder.load(done.folder / "model", device=self.device, max_length=length)

    def cross(self, folder: Path, length: int, *, labels: int | Sequence[str] | None = None) -> CrossEncoder:
        """A cross-encoder; where the number of its labels changes, its body with a new head."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the head is new: it is about to be trained
            return CrossEncoder.load(folder, labels=labels, device=self.device, max_length=length)

    def trained(
        self,
        name: str,
        begin: Callable[[], Model],
        tasks: Callable[[], Sequence[Task]],
        *,
        schedule: Schedule,
        inputs: Mapping[str, object],
        select: bool = True,
    ) -> Done:
        """A stage that trains. Models and data are made only where it is not done yet; `inputs` tell what they are."""
        settings = schedule.settings(self.seed)
        told = {**inputs, "settings": settings.as_dict(), "select": [data_hash(one) for one in self.selection] * select}

        def make(folder: Path) -> Made:
            evaluators = [Selection(self.selection)] if select else []
            model = begin()
            # The making stays as it was recorded: what a stage begins with is no candidate.
            result = train(
                model, tasks(), settings, folder=folder, evaluators=evaluators, start=(), progress=self.progress
            )
            chosen = result.evaluations[-1] if result.evaluations else {}
            return Made(["model", "log.jsonl"], {"training": result.as_dict(), "last": chosen})

        return self.stages.run(name, told, make)

    def mean(self, trained: Sequence[Done], load: Callable[[Done], M], *, name: str = "mean") -> Done:
        """A stage with the mean of the weights that several trainings left; of one alone, that one."""
        if len(trained) == 1:
            return trained[0]

        def make(folder: Path) -> Made:
            models, chooses = [load(one) for one in trained], Selection(self.selection)
            alone = [chooses(one).value for one in models]
            mean = mean_of(models)
            mean.save(folder / "model")
            return Made(["model"], {"alone": alone, "together": dict(chooses(mean).values)})

        inputs = {"trained": [one.digest for one in trained], "select": [data_hash(one) for one in self.selection]}
        return self.stages.run(name, inputs, make)


def task(examples: Examples, objective: objectives.Objective, part: Part) -> Task:
    """A data set of a stage."""
    return Task(examples, objective, batch_size=part.batch_size, weight=part.weight, share=part.share)


def described(parts: Mapping[str, Part]) -> dict[str, list[float]]:
    """The parts of a stage, for its key."""
    return {name: [part.share, part.batch_size, part.weight] for name, part in parts.items()}


def save_arrays(folder: Path, **arrays: Array) -> list[str]:
    """Write arrays into a stage's folder; the names of their files."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [f"{name}.npy" for name in arrays]


def load_array(done: Done, name: str) -> Array:
    """An array that a stage left."""
    found: Array = np.load(done.folder / f"{name}.npy")
    return found
