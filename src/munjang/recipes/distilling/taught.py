"""Sources and what the teachers said of them -> tasks for the training loop.

| teacher       | student       | source                         | objective                             |
|---------------|---------------|--------------------------------|---------------------------------------|
| vectors       | bi-encoder    | texts, translations            | Distil: mse, cosine, contrastive...   |
| cross-encoder | bi-encoder    | pairs with negatives           | kl (the default), margin_mse          |
| cross-encoder | bi-encoder    | scored pairs (scores not used) | cosent (the default), cosine          |
| cross-encoder | cross-encoder | pairs with negatives           | kl (the default), margin_mse          |
| cross-encoder | cross-encoder | scored pairs (scores not used) | bce (the default), mse                |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from munjang.data import Examples
from munjang.errors import InputError
from munjang.nn.calibration import sigmoid
from munjang.recipes.distilling.defaults import LOSSES
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.options import Teacher
from munjang.recipes.distilling.sources import Taken
from munjang.recipes.distilling.targets import read_scores, read_targets
from munjang.training import Task, objectives

Array = np.ndarray[Any, Any]
_LISTS: dict[bool, dict[str, Callable[[], objectives.Objective]]] = {  # by whether the student is a cross-encoder
    False: {"kl": objectives.Kl, "margin_mse": lambda: objectives.MarginMse(similarity="cosine")},
    True: {"kl": objectives.CrossKl, "margin_mse": objectives.CrossMarginMse},
}
_SCORED: dict[bool, dict[str, Callable[[], objectives.Objective]]] = {
    False: {"cosent": objectives.CoSent, "cosine": objectives.CosineMse},
    True: {"bce": objectives.CrossScore, "mse": lambda: objectives.CrossScore("mse")},
}


def check_sources(job: Job) -> None:
    """Refuse sources that these teachers cannot teach over."""
    asked = job.options.objective
    if not job.by_scores and asked is not None:
        raise InputError(
            f"objective={asked!r} is for a cross-encoder that teaches; what is learned from vectors is said with each "
            f"teacher: Teacher(model, {', '.join(f'{name}=...' for name in LOSSES)})"
        )
    if not job.by_scores and job.options.negatives is not None:
        raise InputError(
            "negatives are for a cross-encoder that teaches: a teacher that makes vectors teaches over single texts"
        )
    if job.by_scores:
        _check_cross(job.teachers[0].teacher)
    for one in job.taken:
        columns = len(one.examples.columns)
        if not job.by_scores:
            if one.examples.kind == "scored" or columns > 2:
                raise InputError(
                    f"a teacher that makes vectors teaches over texts and translations, but {one.name} is "
                    f"{one.examples.kind} with the columns {', '.join(one.examples.columns)}; give it as plain texts"
                )
            continue
        if one.examples.kind == "plain":
            raise InputError(
                f"a cross-encoder scores pairs, but {one.name} holds single texts: give pairs (anchor, positive, and "
                "negatives where there are any) or scored pairs"
            )
        if job.cross_student and one.examples.kind == "pairs" and columns < 3:
            raise InputError(
                f"{one.name} has no negatives, and a student that is a cross-encoder cannot look for any: find them "
                "with a bi-encoder first (`munjang negatives`, munjang.training.mine_negatives), or give scored pairs"
            )
        objective_for(one.examples, cross=job.cross_student, asked=asked)


def _check_cross(teacher: Teacher) -> None:
    """Refuse what a cross-encoder that teaches would not heed."""
    losses = [name for name in LOSSES if getattr(teacher, name)]
    if losses:
        raise InputError(
            f"{' and '.join(losses)} {'is' if len(losses) == 1 else 'are'} learned from vectors, but the teacher is a "
            "cross-encoder, which gives scores: say with objective= (--score-objective) how these are learned"
        )
    if teacher.prompt is not None or teacher.normalize is not None:
        name = "prompt is put before texts" if teacher.prompt is not None else "normalize is for vectors"
        raise InputError(f"{name}, but the teacher is a cross-encoder, which scores pairs as they are: leave it out")


def objective_for(examples: Examples, *, cross: bool, asked: str | None) -> objectives.Objective:
    """What learns a cross-encoder's scores of such a source."""
    known = (_SCORED if examples.kind == "scored" else _LISTS)[cross]
    name = next(iter(known)) if asked is None else asked
    if name not in known:
        raise InputError(
            f"objective for {examples.name} ({'scored pairs' if examples.kind == 'scored' else 'pairs with negatives'},"
            f" student a {'cross' if cross else 'bi'}-encoder) must be one of {', '.join(known)}, got {name!r}"
        )
    return known[name]()


def vector_tasks(job: Job, folder: Path) -> list[Task]:
    """A task for every source, with the targets that the stage `teacher` left in its folder."""
    taught = [
        objectives.Teaching(
            one.width,
            **{name: one.teacher.losses.get(name, 0.0) for name in LOSSES},
            scale=one.teacher.scale,
            temperature=one.teacher.temperature,
        )
        for one in job.teachers
    ]
    tasks = []
    for number, one in enumerate(job.taken, start=1):
        rows = one.rows(job.options.seeded).tolist()
        columns = [[column[row] for row in rows] for column in one.examples.columns.values()]
        names = ("text", "translation")[: len(columns)]
        examples = Examples(one.name, "taught", dict(zip(names, columns, strict=True)), read_targets(folder, number))
        tasks.append(Task(examples, objectives.Distil(taught)))
    return tasks


def score_tasks(job: Job, taken: Sequence[Taken], folder: Path) -> list[Task]:
    """The same with a cross-encoder's scores as targets: logits of lists, probabilities of scored pairs."""
    tasks = []
    for number, one in enumerate(taken, start=1):
        logits = read_scores(folder, number)
        targets = sigmoid(logits).astype(np.float32) if one.examples.kind == "scored" else logits
        examples = replace(one.examples, targets=targets).take(one.rows(job.options.seeded))
        objective = objective_for(one.examples, cross=job.cross_student, asked=job.options.objective)
        if type(objective) is objectives.MarginMse:
            objective = objectives.MarginMse(similarity="cosine", scale=_reach(logits))
        tasks.append(Task(examples, objective))
    return tasks


def _reach(logits: Array) -> float:
    """A scale with which cosines, 2 apart at most, reach nearly all of the teacher's margins."""
    margins = np.abs(logits[:, :1] - logits[:, 1:])
    return max(1.0, round(float(np.quantile(margins, 0.95)) / 2, 2))


def masked_tasks(job: Job) -> list[Task]:
    """The warm-up: every text of every source once; where it was asked for, also translations as one text."""
    columns = [list(one.examples.columns.values()) for one in job.taken]
    texts = list(dict.fromkeys(text for each in columns for column in each for text in column))
    objective = objectives.MaskedWords(seed=job.options.seeded)  # one head for both
    tasks = [Task(Examples("plain texts", "plain", {"text": texts}), objective)]
    pairs = [each for each in columns if len(each) > 1]
    if job.options.mlm_translations and pairs:
        both = {
            "text": [text for each in pairs for text in each[0]],
            "translation": [text for each in pairs for text in each[1]],
        }
        tasks.append(Task(Examples("translations side by side", "plain", both), objective))
    return tasks
