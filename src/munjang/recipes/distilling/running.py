"""Distillation from its arguments to its result: everything checked first, then stage after stage.

    RUN/1-teacher    the teachers' vectors of every text (or their scores of every pair)
    RUN/2-student    the student, made by the plan
    RUN/3-warm-up    where asked for: the masked-language-model warm-up
    RUN/4-distill    the training, with its log and checkpoints
    RUN/5-measure    student before, student after, teachers, on every set
    RUN/model        the student with its card        RUN/index.html, RUN/result.json    what happened

A cross-encoder teaches in another order: the student comes first, because it finds the negatives (stage `negatives`)
that the teacher scores. A stage is done once: after a kill the same call goes on in the broken stage, and changed
inputs repeat the stages that depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.recipes.defaults import evaluate_every
from munjang.recipes.distilling import defaults, making, measuring, negatives, targets, taught
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.options import (
    DistillOptions,
    DistillResult,
    GivenSource,
    GivenTeacher,
    Teacher,
    as_teachers,
)
from munjang.recipes.distilling.record import finish
from munjang.recipes.distilling.sources import Taken, read_sources
from munjang.recipes.distilling.teachers import (
    check_length,
    check_widths,
    load_guide,
    load_student,
    load_teachers,
    student_width,
)
from munjang.recipes.models import body_size
from munjang.recipes.options import GivenModel, GivenSets, Model
from munjang.recipes.sets import Kinds, check_leakage, read_sets
from munjang.recipes.stages import Done, Made, Stages, check_run_folder, open_stages
from munjang.recipes.telling import tell_sets
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.processes import Processes
from munjang.training.run import data_hash, identity_of
from munjang.training.state import check_evaluators
from munjang.training.trainee import has_new_head, precision_for

_KINDS = Kinds(("plain", "pairs", "scored"), ("scored", "pairs", "labelled", "ranked"))


def distill(
    student: GivenModel | None,
    teachers: GivenTeacher | Teacher | Sequence[GivenTeacher | Teacher],
    sources: GivenSource | Sequence[GivenSource],
    *,
    dev: GivenSets = None,
    test: GivenSets = None,
    options: DistillOptions,
) -> DistillResult:
    """Teach a student what its teachers know: another language, in fewer layers, with another vocabulary.

    student: the model that the student begins as (None: the teacher's own), made over by `options.plan`. teachers: one
    or several models. sources: translations, plain texts, or pairs for a cross-encoder that teaches. dev: chooses the
    best student; test: reports. The same call goes on where a killed one stopped.
    """
    check_run_folder(options.folder, "distill")
    job = prepare(student, teachers, sources, dev=dev, test=test, options=options)
    with open_stages(options.folder, "distill", progress=options.progress) as stages:
        return _run(job, stages)


def prepare(
    given: GivenModel | None,
    teachers: GivenTeacher | Teacher | Sequence[GivenTeacher | Teacher],
    sources: GivenSource | Sequence[GivenSource],
    *,
    dev: GivenSets,
    test: GivenSets,
    options: DistillOptions,
) -> Job:
    """Load the models and compare their widths, then read the data: all that can be wrong shows before a text is
    encoded."""
    loaded = load_teachers(as_teachers(teachers), options)
    begins = load_student(given, loaded, options)
    guide = load_guide(options)
    if Processes.find(begins.device).count > 1:
        raise InputError("distillation runs in one process: start the command without torchrun or accelerate launch")
    if isinstance(begins, BiEncoder) and not isinstance(loaded[0].model, CrossEncoder):
        check_widths(loaded, student_width(begins, options.plan))
    taken = read_sources(sources, options)
    sets = read_sets([one.examples for one in taken], dev, test, kinds=_KINDS, options=options.sets)
    tell_sets(options.progress, sets)
    sets = check_leakage(sets, options.leakage)
    taken = [Taken(examples, one.weight) for examples, one in zip(sets.train, taken, strict=True)]
    job = Job(begins, loaded, taken, sets, options, guide)
    taught.check_sources(job)
    making.check_plan(options.plan, begins, taken)
    check_length(begins, options.max_length)
    measuring.test_evaluators(job)
    settings = settings_for(job, begins, [len(one.rows(options.seeded)) for one in taken])
    check_evaluators(measuring.dev_evaluators(job), settings.metric)
    precision_for(begins.device, settings.precision)
    if options.mlm_epochs:
        if isinstance(begins, CrossEncoder):
            raise InputError("mlm_epochs warms up a bi-encoder's body; a cross-encoder student has no such stage")
        objectives.MaskedWords().meet(begins)  # raises where there is no mask, or no body that can learn by it
        _check_warm_up(job, _masked_settings(job, begins))
    return job


def _check_warm_up(job: Job, settings: TrainingSettings) -> None:
    """Refuse numbers of the stage `warm-up` that training would refuse, before the stages ahead of it are done."""
    precision_for(job.student.device, settings.precision)
    rows = [len(task.examples) for task in taught.masked_tasks(job)]
    settings.warm_up_steps(settings.step_count(sum(-(-count // settings.batch_size) for count in rows)))


def _run(job: Job, stages: Stages) -> DistillResult:
    taken = job.taken
    if job.by_scores:
        made = stages.run("student", making.stage_inputs(job), lambda folder: making.make(folder, job))
        if any(map(negatives.needs_negatives, taken)):
            taken = _with_negatives(job, stages, made)
        teacher = stages.run(
            "teacher", _teacher_inputs(job, taken), lambda folder: targets.make_scores(folder, job, taken)
        )
        tasks = taught.score_tasks(job, taken, teacher.folder)
    else:
        teacher = stages.run("teacher", _teacher_inputs(job, taken), lambda folder: targets.make_targets(folder, job))
        made = stages.run("student", making.stage_inputs(job), lambda folder: making.make(folder, job))
        tasks = taught.vector_tasks(job, teacher.folder)
    begun = _warm_up(job, stages, made) if job.options.mlm_epochs else made
    settings = settings_for(job, _load(begun, job), [len(task.examples) for task in tasks])
    trained = _distill(job, stages, tasks, settings=settings, after=(begun, teacher), taken=taken)
    inputs = {
        "student": trained.digest,
        "before": made.digest if job.options.before else None,
        "teachers": [one.identity for one in job.teachers] if job.options.before else [],
        "sets": [[one.name, data_hash(one)] for one in job.sets.evaluation],
        "max_length": job.options.max_length,
    }
    after = _load(trained, job)
    measured = stages.run(
        "measure",
        inputs,
        lambda folder: measuring.make(folder, job, _load(made, job) if job.options.before else None, after),
    )
    return finish(job, stages, tasks=tasks, model=after, measured=measured)


def _teacher_inputs(job: Job, taken: Sequence[Taken]) -> dict[str, object]:
    found: dict[str, object] = {
        "teachers": [one.identity for one in job.teachers],
        "sources": [[one.name, data_hash(one.examples)] for one in taken],
    }
    if not job.by_scores:  # targets lie there as often as training takes them
        found |= {"weights": [one.weight for one in taken], "seed": job.options.seeded, "storage": job.options.storage}
    return found


def _with_negatives(job: Job, stages: Stages, made: Done) -> Sequence[Taken]:
    sources = [[one.name, data_hash(one.examples)] for one in job.taken]
    inputs = {"student": made.digest, "sources": sources, **negatives.stage_inputs(job)}

    def make(folder: Path) -> Made:
        model = _load(made, job)
        assert isinstance(model, BiEncoder)
        return negatives.make(folder, job, model)

    return negatives.read(stages.run("negatives", inputs, make), job.taken)


def _warm_up(job: Job, stages: Stages, made: Done) -> Done:
    """The masked-language-model warm-up: the body learns the words of all sources before it is taught."""
    tasks = taught.masked_tasks(job)
    model = _load(made, job)
    settings = _masked_settings(job, model)
    inputs = {
        "student": made.digest,
        "texts": [data_hash(task.examples) for task in tasks],
        "settings": _identity(settings),
        "max_length": job.options.max_length,
    }
    return stages.run("warm-up", inputs, lambda folder: _train(folder, model, tasks, settings, progress=_progress(job)))


def _distill(
    job: Job,
    stages: Stages,
    tasks: Sequence[Task],
    *,
    settings: TrainingSettings,
    after: tuple[Done, Done],
    taken: Sequence[Taken],
) -> Done:
    begun, teacher = after
    dev = measuring.dev_evaluators(job)
    inputs = {
        "student": begun.digest,
        "teacher": teacher.digest,
        # Translations too: a teacher's vectors, of the first column alone, do not tell of them.
        "sources": [[one.name, one.weight, data_hash(one.examples)] for one in taken],
        "objectives": [[type(task.objective).__name__, task.objective.settings()] for task in tasks],
        "settings": _identity(settings),
        "seed": job.options.seeded,
        "dev": [[one.name, data_hash(one)] for one in job.sets.dev],
        "max_length": job.options.max_length,
    }

    def make(folder: Path) -> Made:
        # A student that knows as much already stays as it is; a new head says nothing yet.
        start = None if job.options.before and not has_new_head(job.student) else ()
        student = _load(begun, job)
        return _train(folder, student, tasks, settings, evaluators=dev, start=start, progress=_progress(job))

    return stages.run("distill", inputs, make)


def _train(
    folder: Path, model: Model, tasks: Sequence[Task], settings: TrainingSettings, *, progress: Progress, **more: Any
) -> Made:
    result = train(model, tasks, settings, folder=folder, progress=progress, **more)
    made = ["model", "config.json", "result.json", "log.jsonl"]
    return Made(made, {"training": result.as_dict(), "device": str(model.device)})


def settings_for(job: Job, model: Model, rows: Sequence[int]) -> TrainingSettings:
    """The settings as given, or the defaults for this way of distilling with the changes that were asked for.

    rows: of every task; they decide how many epochs there are, and how often the student is measured.
    """
    options = job.options
    if options.settings is not None:
        settings = replace(options.settings, seed=options.seeded)
    else:
        default = (
            defaults.CROSS_STUDENT if job.cross_student else defaults.SCORES if job.by_scores else defaults.VECTORS
        )
        settings = TrainingSettings(
            epochs=default.epochs_large if sum(rows) >= defaults.ROWS_FOR_FEW_EPOCHS else default.epochs,
            batch_size=default.batch_size,
            learning_rate=default.learning_rates[body_size(model)],
            warm_up=defaults.WARM_UP,
            betas=(0.9, 0.999) if job.by_scores else defaults.BETAS,
        )
        settings = replace(settings, **_with_embeddings(job, settings, options.changes))
    per_epoch = sum(-(-count // settings.batch_size) for count in rows)
    chosen = options.settings is not None or "evaluate_every" in options.changes or settings.max_steps is not None
    if not chosen:
        settings = replace(settings, evaluate_every=evaluate_every(per_epoch, settings.epochs))
    settings.warm_up_steps(settings.step_count(per_epoch))  # too long a warm-up shows now
    return settings


def _masked_settings(job: Job, model: Model) -> TrainingSettings:
    """The settings of the masked-language-model warm-up."""
    default = defaults.MASKED
    settings = TrainingSettings(
        epochs=job.options.mlm_epochs,
        batch_size=default.batch_size,
        learning_rate=default.learning_rates[body_size(model)],
        warm_up=defaults.WARM_UP,
        betas=defaults.BETAS,
    )
    return replace(settings, **_with_embeddings(job, settings, job.options.mlm_changes))


def _with_embeddings(job: Job, settings: TrainingSettings, changes: Mapping[str, object]) -> dict[str, Any]:
    """The changes, and a higher rate for the embeddings of a new vocabulary where none was asked for."""
    found: dict[str, Any] = {**changes, "seed": job.options.seeded}
    if job.options.plan is not None and job.options.plan.vocabulary is not None and "embedding_rate" not in changes:
        rate = float(str(changes.get("learning_rate", settings.learning_rate)))
        found["embedding_rate"] = float(f"{min(defaults.EMBEDDING_FACTOR * rate, 0.5):.6g}")
    return found


def _identity(settings: TrainingSettings) -> str:
    """A hash of the settings that decide where a run ends."""
    return identity_of({"settings": settings.as_dict(), "model": {}})


def _progress(job: Job) -> Progress:
    return job.options.progress


def _load(stage: Done, job: Job) -> Model:
    """The model that a stage left."""
    load = CrossEncoder.load if job.cross_student else BiEncoder.load
    return load(stage.folder / "model", device=job.options.device, max_length=job.options.max_length)
