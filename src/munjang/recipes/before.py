"""The scores of the model before it is trained: without them nobody can say whether training helped.

Enters: the model as it is about to be trained and the evaluators of its development and test sets. Leaves: `Before`,
kept in before.json of the run folder, so that a run that goes on does not measure again. A classifier that is made for
the training alone (the softmax of NLI) has no scores before it; a new head of a cross-encoder has, at the level of
chance.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from munjang.evaluation import Evaluator, Scores, evaluate
from munjang.files import atomic_write, disk_errors
from munjang.recipes.options import Before, Model, RecipeOptions
from munjang.recipes.sets import Sets
from munjang.recipes.tasks import Work
from munjang.recipes.telling import say
from munjang.training import TrainingSettings
from munjang.training.run import data_hash, describe_run, identity_of
from munjang.training.state import measurable

NAME = "before.json"
_SAFE = "nothing was trained yet"


def measure_before(
    model: Model,
    sets: Sets,
    *,
    work: Work,
    settings: TrainingSettings,
    chosen: tuple[Sequence[Evaluator], Sequence[Evaluator]],
    options: RecipeOptions,
) -> Before:
    """Measure the untrained model, or read what an interrupted run measured."""
    dev, test = chosen
    folder = None if options.folder is None else Path(options.folder)
    if not (dev or test) or not options.before or _belongs_to_another(folder, model, work, settings, dev):
        return Before()
    key = [f"{model.fingerprint}", *(f"{one.name} {data_hash(one)}" for one in sets.evaluation)]
    if folder is not None and (known := _read(folder / NAME, key)) is not None:
        return known
    if any(measurable(one) for one in (*dev, *test)):
        say(options.progress, "measuring the untrained model")
    found = Before(_scores(model, dev), _scores(model, test))
    for one in (*found.dev, *found.test):
        if one is not None:
            say(options.progress, f"before training: {one}")
    if folder is not None:
        content = json.dumps({"of": key, **found.to_dict()}, ensure_ascii=False, indent=2)
        with disk_errors(folder / NAME, safe=_SAFE):
            atomic_write(folder / NAME, (content + "\n").encode("utf-8", "replace"))
    return found


def _scores(model: Model, chosen: Sequence[Evaluator]) -> tuple[Scores | None, ...]:
    """In order; None where an evaluator needs what is yet to be trained."""
    found = iter(evaluate(model, [one for one in chosen if measurable(one)]))
    return tuple(next(found) if measurable(one) else None for one in chosen)


def _belongs_to_another(
    folder: Path | None, model: Model, work: Work, settings: TrainingSettings, dev: Sequence[Evaluator]
) -> bool:
    """Whether the folder holds another run: then training refuses it at once, and nothing is measured for nothing."""
    try:
        known = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder is not None else None
    except (OSError, ValueError):
        return False
    if not isinstance(known, dict):
        return False
    described = describe_run(model, work.tasks, settings, evaluators=dev)
    return known.get("identity") != identity_of(described)


def _read(path: Path, key: Sequence[str]) -> Before | None:
    """What was measured before, if it was this model on these sets."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Before.from_dict(saved) if saved["of"] == list(key) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
