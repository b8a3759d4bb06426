"""Several recipes one after another: NLI then STS, STS then NLI, a bi-encoder's body on to a cross-encoder.

All data is read and compared before the first stage trains: every training set with the evaluation sets of every stage,
because a test sentence that an earlier stage learned from is as much leakage as one of the last. A stage that needs
other outputs than the one before keeps the body and makes a new head (see `models.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from munjang.data import Examples
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes import config
from munjang.recipes.defaults import RECIPE_NAMES
from munjang.recipes.options import ChainResult, GivenModel, RecipeOptions, RecipeResult, Stage
from munjang.recipes.report import write_overview
from munjang.recipes.running import Prepared, prepare_stage, run
from munjang.recipes.sets import check_roles
from munjang.recipes.tasks import is_cross
from munjang.recipes.telling import say


def chain(model: GivenModel, stages: Sequence[Stage], *, folder: str | Path | None = None) -> ChainResult:
    """Train the stages in order; each goes on with the model that the one before left.

    folder: gets a run folder for every stage (1-nli, 2-sts...) and index.html over them. The same call on it goes on
    where an interrupted chain stopped.
    """
    _check(stages)
    path = None if folder is None else Path(folder)
    prepared = [
        prepare_stage(stage, _stage_folder(path, stage, number)) for number, stage in enumerate(stages, start=1)
    ]
    return _run_all(model, prepared, path)


def repeat(
    path: str | Path, *, folder: str | Path | None = None, progress: Progress = False
) -> tuple[RecipeResult, ...]:
    """Run a recipe.json (or the run folder that holds one) again; the results of its stages.

    folder: where; by default the folder of the recipe.json, whose run is then gone on with, or found finished.
    """
    saved = config.read_config(path)
    target = Path(folder) if folder is not None else Path(path) if Path(path).is_dir() else Path(path).parent
    stages = [replace(one, options=replace(one.options or RecipeOptions(), progress=progress)) for one in saved.stages]
    if not saved.chained:
        return (run(saved.model, prepare_stage(stages[0], target, saved.expected[0])),)
    prepared = [
        prepare_stage(stage, _stage_folder(target, stage, number), expected)
        for number, (stage, expected) in enumerate(zip(stages, saved.expected, strict=True), start=1)
    ]
    return _run_all(saved.model, prepared, target).stages


def _run_all(model: GivenModel, prepared: Sequence[Prepared], folder: Path | None) -> ChainResult:
    for one in prepared:
        for other in prepared:
            check_roles(one.sets.dev, other.sets.test)
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one writes
    if folder is not None and first:
        told = [config.stage_dict(one.recipe, one.given, one.sets, one.options, None) for one in prepared]
        config.write_chain(folder, model, told)
    given = model
    results: list[RecipeResult] = []
    for number, stage in enumerate(prepared):
        say(stage.options.progress, f"stage {number + 1} of {len(prepared)}: {stage.recipe.replace('_', '-')}")
        results.append(run(given, stage, others=_others(prepared, number)))
        given = results[-1].model
        if folder is not None and first:
            write_overview(folder)
    return ChainResult(results[-1].model, tuple(results), folder)


def _others(prepared: Sequence[Prepared], number: int) -> list[Examples]:
    """The evaluation sets of all other stages, each once."""
    own = prepared[number].sets.evaluation
    found: list[Examples] = []
    for stage in prepared:
        found += [one for one in stage.sets.evaluation if not any(one is other for other in (*own, *found))]
    return found


def _stage_folder(folder: Path | None, stage: Stage, number: int) -> Path | None:
    return None if folder is None else folder / f"{number}-{stage.recipe}"


def _check(stages: Sequence[Stage]) -> None:
    if not stages:
        raise InputError("a chain needs at least one stage, such as Stage('nli', train)")
    for stage in stages:
        if stage.recipe not in RECIPE_NAMES:
            raise InputError(f"recipe must be one of {', '.join(RECIPE_NAMES)}, got {stage.recipe!r}")
        if stage.options is not None and stage.options.folder is not None:
            raise InputError(
                f"a stage of a chain has no folder of its own, got {stage.options.folder}: give chain(folder=...)"
            )
    crossed = [is_cross(stage.recipe) for stage in stages]
    if crossed != sorted(crossed):
        raise InputError(
            "a bi-encoder cannot follow a cross-encoder in a chain: "
            + ", ".join(stage.recipe for stage in stages)
            + "; train the bi-encoder first, or start anew from the cross-encoder's folder"
        )
