"""The end of a distillation: RUN/result.json, RUN/model with its card, RUN/index.html, and the `DistillResult`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from munjang.checkpoint.card import model_card
from munjang.checkpoint.cross_card import cross_card
from munjang.checkpoint.cross_writing import form_of
from munjang.cross_encoder import CrossEncoder
from munjang.evaluation import Scores
from munjang.files import atomic_write, disk_errors
from munjang.recipes.card import plain_cell
from munjang.recipes.distilling import measuring, negatives
from munjang.recipes.distilling.defaults import LOSSES
from munjang.recipes.distilling.job import Job
from munjang.recipes.distilling.options import Compared, DistillOptions, DistillResult
from munjang.recipes.distilling.report import write_page
from munjang.recipes.distilling.teachers import called
from munjang.recipes.options import Model
from munjang.recipes.record import device_name, leakage_facts, model_facts, set_facts, versions
from munjang.recipes.running import OPTIMISTIC, UNCHOSEN
from munjang.recipes.stages import Done, Stages
from munjang.recipes.telling import refused_notes
from munjang.students.plans import StudentPlan
from munjang.training import Task, TrainingResult
from munjang.training.run import data_hash

NAME = "result.json"
_FORMAT = 1
_OPTIONS = (
    "student_kind",
    "changes",
    "weights",
    "mlm_epochs",
    "mlm_changes",
    "mlm_translations",
    "objective",
    "cache",
    "storage",
    "leakage",
    "max_length",
    "before",
)
_SAFE = "the stages are whole; make room and run the same command again"
_SHOWN = ("epochs", "max_steps", "batch_size", "learning_rate", "embedding_rate", "warm_up", "schedule", "seed")


def finish(job: Job, stages: Stages, *, tasks: Sequence[Task], model: Model, measured: Done) -> DistillResult:
    """Write what a reader needs, unless it is there already, and answer with it."""
    by_name = {stage.name: stage for stage in stages.done}
    training = _training(by_name["distill"])
    compared = measuring.read(measured.folder)
    notes = _notes(job, by_name, training, compared)
    facts = _facts(job, stages.done, tasks, compared) | {"notes": list(notes)}
    facts |= {"model": model_facts(model), "versions": versions(), "device": device_name(model)}
    facts["record"] = _record(job, tasks, compared)
    folder = job.folder
    text = json.dumps(facts, ensure_ascii=False, indent=2, default=str) + "\n"
    with disk_errors(folder, safe=_SAFE):
        if _read(folder / NAME) != text or not (folder / "model").is_dir() or not (folder / "index.html").is_file():
            facts = json.loads(text)  # as a reader of the file finds it
            (folder / "index.html").unlink(missing_ok=True)  # killed on the way, that of a call before does not stay
            model.save(folder / "model", card=_card(folder, model, facts))
            atomic_write(folder / NAME, text.encode("utf-8", "replace"))
            write_page(folder)
    skipped = tuple(stage.name for stage in stages.done if stage.skipped)
    return DistillResult(model, training, compared, job.sets.leakage, folder, notes, json.loads(text), skipped)


def _training(stage: Done) -> TrainingResult:
    """How the training went, as its stage remembers it."""
    return TrainingResult.from_dict(stage.facts["training"], stage.folder)


def _facts(job: Job, stages: Sequence[Done], tasks: Sequence[Task], compared: Sequence[Compared]) -> dict[str, Any]:
    """Everything but what the loaded model says of itself."""
    by_name = {stage.name: stage for stage in stages}
    settings = json.loads((by_name["distill"].folder / "config.json").read_text(encoding="utf-8"))
    plan = job.options.plan
    return {
        "format": _FORMAT,
        "recipe": "distill",
        "compared": [_compared(one, job) for one in compared],
        "begins": {
            **model_facts(job.student),
            "name": called(job.student.parts.source) or "a model in memory",
            "fingerprint": job.student.fingerprint,
        },
        "plan": None if plan is None else _plan_words(plan),
        "student": dict(by_name["student"].facts),
        "teacher": _taught(job, by_name["teacher"]),
        "negatives": dict(by_name["negatives"].facts) if "negatives" in by_name else None,
        "sources": [
            {
                "name": one.name,
                "kind": one.examples.kind,
                "columns": list(one.examples.columns),
                "rows": len(one.examples),
                "weight": one.weight,
                "rows an epoch": len(task.examples),
                "data": data_hash(one.examples),
            }
            for one, task in zip(job.taken, tasks, strict=True)
        ],
        "sets": [
            {"part": role, "name": one.name, "rows": len(one), "data": data_hash(one)}
            for role, one in job.sets.roles()
            if role != "train"
        ],
        "options": _chosen(job.options),
        "stages": [
            {"name": stage.name, "folder": stage.folder.name, "seconds": round(stage.seconds, 3)} for stage in stages
        ],
        "settings": settings["settings"],
        "objectives": [
            {"name": task["name"], "objective": task["objective"], "with": task["objective_settings"]}
            for task in settings["tasks"]
        ],
        "training": dict(by_name["distill"].facts["training"]),
    }


def _taught(job: Job, stage: Done) -> dict[str, Any]:
    """What the stage `teacher` remembers, with what this call, perhaps another one, says of the teachers."""
    saved: list[dict[str, Any]] = stage.facts["teachers"]
    teachers = [{**one, **now.identity, "name": now.name} for one, now in zip(saved, job.teachers, strict=True)]
    if not job.by_scores:
        teachers = [{**one, "losses": now.teacher.losses} for one, now in zip(teachers, job.teachers, strict=True)]
    return {**stage.facts, "teachers": teachers}


def _chosen(options: DistillOptions) -> dict[str, Any]:
    """What was asked for, but for the settings of the training, which stand beside it, and how the run was watched."""
    found = {name: getattr(options, name) for name in _OPTIONS}
    found |= {"seed": options.seeded, "plan": None if options.plan is None else asdict(options.plan)}
    found["negatives"] = None if options.negatives is None else negatives.described(options.negatives)
    found["sets"] = asdict(options.sets)
    return found


def _compared(one: Compared, job: Job) -> dict[str, Any]:
    names = [teacher.name for teacher in job.teachers]
    teachers = {
        name: None if scores is None else scores.to_dict() for name, scores in zip(names, one.teachers, strict=False)
    }
    before = None if one.before is None else one.before.to_dict()
    return {"part": one.part, "after": one.after.to_dict(), "before": before, "teachers": teachers, "kept": one.kept}


def _record(job: Job, tasks: Sequence[Task], compared: Sequence[Compared]) -> dict[str, Any]:
    """What the sections of a training report are made of."""

    def part(name: str) -> tuple[list[dict[str, object]], list[dict[str, object] | None]]:
        found = [one for one in compared if one.part == name]
        before = [None if one.before is None else one.before.to_dict() for one in found]
        return [one.after.to_dict() for one in found], before

    dev, dev_before = part("dev")
    test, test_before = part("test")
    return {
        "dev": dev,
        "test": test,
        "before": {"dev": dev_before, "test": test_before},
        "sets": [set_facts(role, examples) for role, examples in job.sets.roles()],
        "tasks": [set_facts("task", task.examples) for task in tasks],
        "leakage": leakage_facts(job.sets),
    }


def _notes(
    job: Job, stages: Mapping[str, Done], training: TrainingResult, compared: Sequence[Compared]
) -> tuple[str, ...]:
    """What a reader must know."""
    notes = list(stages["student"].facts["notes"])
    if training.unchanged and training.best is not None:
        value = f"{training.best.metric} {100 * training.best.value:.2f}"
        notes.insert(0, f"Nothing beat the student as it began ({value}), so it is delivered as it began.")
    notes += [
        f"{one.after.name}: {one.after.main} was {100 * one.before.value:.2f} before distilling and is "
        f"{100 * one.after.value:.2f} now. It did not help here: look at the loss curves, the sources and the rate."
        for one in compared
        if one.before is not None and one.after.value < one.before.value
    ]
    leaked = job.sets.leakage
    if leaked is not None and leaked.any:
        done = "were taken out" if job.sets.policy == "remove" else "stayed in"
        notes.append(
            f"Sentences of evaluation sets stand in the sources and {done}. Sentences alone: distillation sees no "
            "label or score of them, but a student that met a sentence may do better on it."
        )
    notes += refused_notes(job.sets)
    if "negatives" in stages:
        mined = stages["negatives"].facts["sources"].items()
        notes += [
            f"{name}: {one['rows'] - one['used']:,} of {one['rows']:,} rows got too few negatives and were left out."
            for name, one in mined
            if one["used"] < one["rows"]
        ]
    length = job.options.max_length or job.student.max_length
    cut = [f"{name} {count:,}" for name, count in training.truncated.items() if count]
    if cut:
        notes.append(f"Training sequences that were longer than {length} tokens were cut: {', '.join(cut)}.")
    for teacher in _taught(job, stages["teacher"])["teachers"]:
        if teacher.get("truncated"):
            longer = f"{teacher['truncated']:,} texts were longer than the teacher reads"
            notes.append(f"{teacher['name']}: {longer} ({teacher['max_length']} tokens) and were cut.")
    if not job.sets.dev:
        notes.append(UNCHOSEN)
    if not job.sets.test:
        notes.append(OPTIMISTIC if job.sets.dev else "There is no test set: nothing was measured.")
    return tuple(notes)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


# --- the card --------------------------------------------------------------------------------------------------------


def _card(folder: Path, model: Model, facts: Mapping[str, Any]) -> str:
    """The plain card of such a model, what was measured, and how it was made."""
    name = f"{folder.resolve().name}/model"
    if isinstance(model, CrossEncoder):
        plain = cross_card(replace(model.parts), name, form_of(model.parts))
    else:
        plain = model_card(model.parts, name)
    licence = (
        "Unknown: fill it in. It follows from the models that taught and that this one was made of, and from the texts "
        "above; look up the licences of all before you publish it."
    )
    parts = [plain.rstrip(), "", "## Measured", "", *_measured_lines(facts), "", "## How it was made", ""]
    return "\n".join([*parts, *_made_lines(facts), "", "## Licence", "", licence, ""])


def _measured_lines(facts: Mapping[str, Any]) -> list[str]:
    if not facts["compared"]:
        return ["Nothing was measured: there was neither a development nor a test set."]
    lines = [
        "| Set | Metric | Before | Student | Teacher | Kept | Rows | Part |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in facts["compared"]:
        after = Scores.from_dict(one["after"])
        best = max((s["values"][s["main"]] for s in one["teachers"].values() if s is not None), default=None)
        cells = (
            plain_cell(after.name),
            after.main,
            "" if one["before"] is None else f"{100 * one['before']['values'][after.main]:.2f}",
            f"{100 * after.value:.2f}",
            "" if best is None else f"{100 * best:.2f}",
            "" if one["kept"] is None else f"{100 * one['kept']:.1f} %",
            f"{after.rows:,}",
            "test" if one["part"] == "test" else "development: chose the model, optimistic",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Times 100. Kept: the student's score as a share of its teacher's."]
    leaked = [one for one in (facts["record"]["leakage"] or {"sets": []})["sets"] if one["normalised"]["some"]]
    if leaked and facts["record"]["leakage"]["policy"] == "report":
        told = (f"{plain_cell(one['name'])} ({one['normalised']['some']:,} of {one['rows']:,} rows)" for one in leaked)
        lines += ["", f"Sentences of these sets stand in the sources, without their labels: {'; '.join(told)}."]
    return lines


def _made_lines(facts: Mapping[str, Any]) -> list[str]:
    teachers = ", ".join(f"`{plain_cell(one['name'])}`" for one in facts["teacher"]["teachers"])
    begins = facts["begins"]["name"]
    lines = [
        f"Distilled with Munjang {facts['versions']['munjang']} from {teachers}; the student began as "
        f"`{plain_cell(begins)}`" + (f", made over: {facts['plan']}." if facts["plan"] else "."),
        "",
        "| Source | Kind | Rows | Weight |",
        "|---|---|---:|---:|",
    ]
    lines += [
        f"| {plain_cell(one['name'])} | {one['kind']} | {one['rows']:,} | {one['weight']:g} |"
        for one in facts["sources"]
    ]
    lines += ["", "What was learned:", ""]
    lines += [f"- {plain_cell(one['name'])}: {one['objective']} {_short(one['with'])}" for one in facts["objectives"]]
    settings = facts["settings"]
    shown = [f"{name} {settings[name]}" for name in _SHOWN if settings[name] is not None]
    return [*lines, "", f"Settings: {', '.join(shown)}."]


def _short(settings: Mapping[str, Any]) -> str:
    """What an objective was made with; of a teacher's losses, those that count."""
    if "teachers" not in settings:
        return ", ".join(f"{name} {value}" for name, value in settings.items())
    found = []
    for number, teacher in enumerate(settings["teachers"], start=1):
        told = ", ".join(f"{name} {teacher[name]:g}" for name in LOSSES if teacher[name])
        found.append(f"teacher {number} ({teacher['width']} values): {told}")
    return "; ".join(found)


def _plan_words(plan: StudentPlan) -> str:
    """A plan as people say it: 3 layers, a vocabulary of 32,000 pieces."""
    found = [] if plan.layers is None else [f"{plan.layers} layers"]
    found += [] if plan.hidden is None else [f"a body {plan.hidden} wide"]
    if plan.vocabulary is not None:
        how = plan.vocabulary
        found.append(
            f"a vocabulary of at most {how.size:,} pieces ({how.kind}, old pieces kept: {how.keep}, first embeddings "
            f"from {how.embeddings})"
        )
    found += [] if plan.dimension is None else [f"vectors of {plan.dimension} values"]
    return ", ".join(found)
