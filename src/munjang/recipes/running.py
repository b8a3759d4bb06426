"""One recipe from its arguments to its result, the same way for all of them.

    sets: read, duplicates out, compared for leakage -> model: loaded, with the head it needs -> tasks, evaluators
    -> the training loop -> test scores -> run folder: recipe.json, scores.json, model card, report

Everything that can be wrong is found before the first step: kinds of data, labels, outputs, warm-up, the one set that
is given for two roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.evaluation import Evaluator, Mistake, Scores, evaluate, largest_errors
from munjang.evaluation.metrics import AgainstMajority
from munjang.recipes import config
from munjang.recipes.adapters import adapted
from munjang.recipes.before import measure_before
from munjang.recipes.defaults import DEFAULTS, WARM_UP, RecipeName, evaluate_every
from munjang.recipes.models import bi_encoder, body_size, cross_encoder
from munjang.recipes.options import Before, GivenModel, GivenSets, Model, RecipeOptions, RecipeResult, Stage
from munjang.recipes.record import Measured, write_record
from munjang.recipes.sets import Sets, check_leakage, read_sets
from munjang.recipes.tasks import (
    KINDS,
    Work,
    as_used,
    evaluators,
    is_cross,
    softmax_classifier,
    wanted_labels,
    work_of,
)
from munjang.recipes.telling import refused_notes, say, tell_sets
from munjang.training import TrainingResult, TrainingSettings, train
from munjang.training.batching import source_of, steps_per_epoch
from munjang.training.processes import Processes

_BOOTSTRAP = 1000  # draws for the intervals of test scores
_MISTAKES = 20  # rows shown in the report
_SEEN = 1000  # training rows that stand in where no labelled rows were held out
OPTIMISTIC = (
    "There is no test set: the development score chose the model, so it is optimistic. Measure on data that had no "
    "part in the choice before you report a number."
)
UNCHOSEN = "There is no development set: the model is that of the last step."


@dataclass(frozen=True)
class Prepared:
    """A recipe whose data is read and checked; nothing is loaded or trained yet."""

    recipe: RecipeName
    sets: Sets
    options: RecipeOptions
    given: config.Given
    expected: config.Expected | None = None  # of a run that is repeated


def prepare(
    recipe: RecipeName, train: GivenSets, dev: GivenSets, test: GivenSets, *, options: RecipeOptions | None
) -> Prepared:
    """Read the sets of a recipe."""
    options = options or RecipeOptions()
    sets = read_sets(train, dev, test, kinds=KINDS[recipe], options=options.sets)
    return Prepared(recipe, sets, options, config.Given(train, dev, test))


def prepare_stage(stage: Stage, folder: Path | None, expected: config.Expected | None = None) -> Prepared:
    """The same for a stage of a chain or of a recipe.json, in a folder of its own."""
    options = replace(stage.options or RecipeOptions(), folder=folder)
    prepared = prepare(stage.recipe, stage.train, stage.dev, stage.test, options=options)
    if expected is not None:
        expected.check_sets(prepared.sets)
    return replace(prepared, expected=expected)


def run(model: GivenModel, prepared: Prepared, *, others: Sequence[Examples] = ()) -> RecipeResult:
    """Train and measure. others: evaluation sets of other stages, which the training data is compared with too."""
    recipe, options = prepared.recipe, prepared.options
    sets = check_leakage(prepared.sets, options.leakage, others=others)
    cross = is_cross(recipe)
    ready = cross_encoder(model, wanted_labels(recipe, sets.train), options) if cross else bi_encoder(model, options)
    trained = ready.model
    work = work_of(
        recipe, sets.train, options, dimension=trained.full_dimension if isinstance(trained, BiEncoder) else 0
    )
    dev = evaluators(recipe, sets.dev, work)
    test = evaluators(recipe, sets.test, work, bootstrap=_BOOTSTRAP)
    plain_test = evaluators(recipe, sets.test, work)
    used = as_used(sets, work, dev, test)
    tell_sets(options.progress, used)
    settings = settings_for(recipe, trained, work, options)
    folder = None if options.folder is None else Path(options.folder)
    first = Processes.find(trained.device).first
    if prepared.expected is not None:
        prepared.expected.check_model(trained)
    if folder is not None and first:
        stage = config.stage_dict(recipe, prepared.given, prepared.sets, options, settings)
        config.write_recipe(folder, config.model_given(model, trained), stage)
    before = Before()
    with adapted(trained, options.lora) as learner:
        if first:
            before = measure_before(
                learner, sets, work=work, settings=settings, chosen=(dev, plain_test), options=options
            )
        start = before.dev if options.before else ()
        training = train(
            learner, work.tasks, settings, folder=folder, evaluators=dev, start=start, progress=options.progress
        )
    notes = (*ready.notes, *refused_notes(used), *_notes(sets), *_cut(training, trained.max_length))
    if not first:
        return RecipeResult(recipe, trained, training, (), (), sets.leakage, folder, notes)
    if dev or test:
        say(options.progress, "measuring the trained model")
    measured = _measure(recipe, trained, sets, work, (dev, test), options)
    result = RecipeResult(recipe, trained, training, measured.test, measured.dev, sets.leakage, folder, notes, before)
    result = replace(result, truncated=measured.truncated, labelled=measured.labelled)
    failed = (result.headline,) if result.failed else ()
    result = replace(result, notes=(*failed, *_worse(result), *notes))
    if folder is not None:
        write_record(folder, result, sets, work.tasks, measured)
    return result


def settings_for(recipe: RecipeName, model: Model, work: Work, options: RecipeOptions) -> TrainingSettings:
    """The settings as given, or the recipe's defaults for a body of this size with the changes that were asked for."""
    if options.settings is not None:
        settings = options.settings
    else:
        default = DEFAULTS[recipe]
        settings = TrainingSettings(
            epochs=default.epochs,
            batch_size=default.batch_size,
            learning_rate=default.learning_rates[body_size(model)],
            warm_up=WARM_UP,
        )
        settings = replace(settings, **options.changes)  # type: ignore[arg-type]
        if "evaluate_every" not in options.changes and settings.max_steps is None:
            settings = replace(settings, evaluate_every=evaluate_every(_per_epoch(work, settings), settings.epochs))
    settings = replace(settings, seed=options.seeded)
    settings.warm_up_steps(settings.step_count(_per_epoch(work, settings)))  # too long a warm-up shows now
    return settings


def _per_epoch(work: Work, settings: TrainingSettings) -> int:
    return steps_per_epoch(
        [source_of(task.examples, task.batch_size or settings.batch_size, unique_texts=False) for task in work.tasks]
    )


def _notes(sets: Sets) -> tuple[str, ...]:
    notes = []
    if not sets.dev:
        notes.append(UNCHOSEN)
    if not sets.test:
        notes.append(OPTIMISTIC if sets.dev else "There is no test set: nothing was measured.")
    if sets.shared is not None and sets.shared.any:
        counts = [f"{one.name} {len(one.normalised.some):,} of {one.rows:,} rows" for one in sets.shared.sets
                  if len(one.normalised.some)]  # fmt: skip
        notes.append(f"Test sets share sentences with the development sets: {', '.join(counts)}.")
    return tuple(notes)


def _worse(result: RecipeResult) -> list[str]:
    """Sets on which training did harm, or nothing."""
    if result.training.unchanged:
        return []
    return [
        f"{after.name}: {after.main} was {100 * before.value:.2f} before training and is {100 * after.value:.2f} now. "
        "Training did not help here: look at the loss curve, the data and the learning rate."
        for part in ("test", "dev")
        for after, before in result.compared(part)
        if before is not None and after.value <= before.value
    ]


def _cut(training: TrainingResult, length: int) -> list[str]:
    return [
        f"{name}: {count:,} training sequences were longer than {length} tokens and were cut."
        for name, count in training.truncated.items()
        if count
    ]


# --- measuring -------------------------------------------------------------------------------------------------------


def _measure(
    recipe: RecipeName,
    model: Model,
    sets: Sets,
    work: Work,
    chosen: tuple[list[Evaluator], list[Evaluator]],
    options: RecipeOptions,
) -> Measured:
    """Scores of the trained model on dev and test, and the rows where it is most wrong."""
    dev, test = chosen
    found = evaluate(model, dev), evaluate(model, test)
    truncated = _truncated_vectors(model, test or dev, options.matryoshka)
    shown = next((one for one in (*sets.test, *sets.dev) if _can_be_wrong(one, model, work)), None)
    mistakes: list[Mistake] = []
    if shown is not None:
        classifier = None
        if work.softmax is not None and shown.kind == "labelled":
            order = [work.labels.index(label) for label in shown.labels]
            classifier = softmax_classifier(work.softmax, order)
        mistakes = largest_errors(model, shown, _MISTAKES, classifier=classifier)
    return Measured(
        dev=tuple(found[0]),
        test=tuple(found[1]),
        truncated=tuple(truncated),
        labelled=_against_majority(recipe, model, sets, work, found),
        mistakes_of="" if shown is None else shown.name,
        mistakes=tuple(mistakes),
    )


def _against_majority(
    recipe: RecipeName, model: Model, sets: Sets, work: Work, found: tuple[Sequence[Scores], Sequence[Scores]]
) -> AgainstMajority | None:
    """How well labels are told: of the first labelled test set, development set, or else of some training rows."""
    if not work.labels:
        return None
    for chosen, scores in ((sets.test, found[1]), (sets.dev, found[0])):
        for examples, score in zip(chosen, scores, strict=True):
            if examples.kind == "labelled":
                return _compared(examples, score)
    examples = work.tasks[0].examples
    if len(examples) > _SEEN:
        examples = examples.take(np.sort(np.random.default_rng(0).choice(len(examples), _SEEN, replace=False)))
    (score,) = evaluate(model, evaluators(recipe, [examples], work))
    return _compared(examples, score)


def _compared(examples: Examples, score: Scores) -> AgainstMajority:
    assert examples.targets is not None
    _, counts = np.unique(examples.targets, return_counts=True)
    return AgainstMajority(len(examples), score.values["accuracy"], float(counts.max() / len(examples)))


def _truncated_vectors(model: Model, chosen: Sequence[Evaluator], sizes: Sequence[int]) -> list[Scores]:
    """The same with only the first values of the vectors, for Matryoshka models."""
    if not isinstance(model, BiEncoder):
        return []
    found = []
    before = model.truncate_dim
    try:
        for size in sorted(set(sizes), reverse=True):
            model.truncate_dim = size
            scores = evaluate(model, chosen)
            found += [replace(score, name=f"{score.name}, first {size} values") for score in scores]
    finally:
        model.truncate_dim = before
    return found


def _can_be_wrong(examples: Examples, model: Model, work: Work) -> bool:
    """Whether the rows of a set can be shown with a right answer and the model's."""
    if len(examples) < 2:
        return False
    if examples.kind == "scored":
        return isinstance(model, BiEncoder) or not work.labels
    if examples.kind != "labelled" or not work.labels:
        return False
    return set(examples.labels) <= set(work.labels)
