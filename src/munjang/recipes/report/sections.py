"""The sections of a training report, each made of the facts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from munjang.recipes.report.facts import Facts
from munjang.recipes.report.page import Section, folded, heading, paragraph, table, tiles
from munjang.recipes.report.svg import Series, line_chart, smoothed

_PARTS = {"dev": "development: chose the model", "test": "test: reports"}
_POLICIES = {
    "report": "The rows stayed in the training data: the scores of these sets are optimistic.",
    "remove": "These rows were taken out of the training data before training.",
    "refuse": "Training would have been refused, had there been any.",
}


def summary(facts: Facts) -> Section:
    """The few numbers that people look for first."""
    result, record = facts.result, facts.record
    items = [(f"{one['name']}: {one['main']}", hundred(one["values"][one["main"]])) for one in record["test"][:3]]
    if not items:
        items = [
            (f"{one['name']}: {one['main']} (dev)", hundred(one["values"][one["main"]])) for one in record["dev"][:3]
        ]
    items += [("steps", f"{result['steps']:,}"), ("training time", duration(result["seconds"]))]
    notes = "".join(paragraph(note, "warn") for note in record["notes"])
    how = [f"{task['name']} ({task['rows']:,} rows, {task['objective']})" for task in facts.config["tasks"]]
    told = paragraph("Trained on " + "; ".join(how) + ".")
    best = facts.best
    if best is not None:
        told += paragraph(
            f"The model is that of step {best['step']:,}, where {best['metric']} was {hundred(best['value'])}"
            + (", after which patience ran out." if result["stopped_early"] else ".")
        )
    return Section("Summary", tiles(items) + told + notes)


def scores(facts: Facts) -> Section:
    """Every score, and which part its set had."""
    record = facts.record
    rows = [_score_row(one, "test") for one in record["test"]]
    rows += [_score_row(one, "test") for one in record["truncated"]]
    rows += [_score_row(one, "dev") for one in record["dev"]]
    body = table(("Set", "Part", "Metric", "x 100", "95 % interval", "Rows"), rows, right=(3, 5))
    for one in (*record["test"], *record["dev"]):
        others = [(name, metric(name, value)) for name, value in one["values"].items() if name != one["main"]]
        body += folded(f"{one['name']}, other metrics", table(("Metric", "Value"), others, right=(1,)))
        for note in one["notes"]:
            body += paragraph(f"{one['name']}: {note}", "quiet")
    return Section("Scores", body or paragraph("Nothing was measured: there was neither a development nor a test set."))


def curves(facts: Facts) -> Section:
    """Loss, learning rate and the metric that chose the model, by step."""
    return Section(
        "Curves",
        heading("Loss")
        + _losses(facts)
        + heading("Learning rate")
        + line_chart(
            [Series("learning rate", [(entry["step"], entry["rate"]) for entry in facts.steps], colour=2)],
            x_name="step",
            y_name="learning rate",
        )
        + _metrics(facts),
    )


def _losses(facts: Facts) -> str:
    series: list[Series] = []
    by_task: dict[str, list[tuple[float, float]]] = {}
    for entry in facts.steps:
        by_task.setdefault(entry["task"], []).append((entry["step"], entry["loss"]))
    for colour, (name, points) in enumerate(by_task.items()):
        window = max(1, len(points) // 40)
        means = smoothed([value for _, value in points], window)
        if window > 1:
            series.append(Series(name, points, faint=True, colour=colour))
        series.append(Series(name, [(x, y) for (x, _), y in zip(points, means, strict=True)], colour=colour))
    return line_chart(series, x_name="step", y_name="loss")


def _metrics(facts: Facts) -> str:
    entries, best = facts.evaluations, facts.best
    if not entries or best is None:
        return ""
    wanted = {one["name"]: one["main"] for one in facts.record["dev"]}
    series = []
    for colour, (name, main) in enumerate(wanted.items()):
        points = [
            (entry["step"], 100 * entry["evaluation"][name][main]) for entry in entries if name in entry["evaluation"]
        ]
        marked = best["step"] if best["metric"].startswith(f"{name}/") else None
        series.append(Series(f"{name}, {main}", points, colour=colour, marked=marked))
    return heading("Development metric (chose the model)") + line_chart(series, x_name="step", y_name="x 100")


def leakage(facts: Facts) -> Section:
    """What training and evaluation share."""
    found = facts.record["leakage"]
    if found is None:
        return Section("Leakage", paragraph("There is no evaluation set to compare the training data with."))
    shared = [one for one in found["sets"] if one["normalised"]["some"]]
    body = paragraph(
        "Sentences of the evaluation sets that stand in the training data, compared exactly and without case, spaces "
        "and punctuation."
    )
    body += table(
        ("Evaluation set", "Part", "Rows", "Share a sentence", "of these exactly", "Every side seen", "Whole rows"),
        [
            (one["name"], one["role"], f"{one['rows']:,}", _part(one["normalised"]["some"], one["rows"]),
             f"{one['exact']['some']:,}", f"{one['normalised']['every']:,}", f"{one['normalised']['whole']:,}")
            for one in found["sets"]
        ],
        right=(2, 3, 4, 5, 6),
    )  # fmt: skip
    if not shared:
        return Section("Leakage", body + paragraph("No sentence is shared.", "good"))
    body += paragraph(_POLICIES[found["policy"]], "warn")
    body += table(
        ("Training set", "Rows", "Hold an evaluation sentence"),
        [(one["name"], f"{one['rows']:,}", _part(one["shared"], one["rows"])) for one in found["train"]],
        right=(1, 2),
    )
    body += heading("Such as")
    body += table(("Set", "Text"), [(one["name"], text) for one in shared for text in one["examples"]])
    return Section("Leakage", body)


def data(facts: Facts) -> Section:
    """Every set: rows, where from, and what was refused and why."""
    record = facts.record
    sets = record["sets"] + [one for one in record["tasks"] if _is_made(one, record["sets"])]
    body = table(
        ("Set", "Part", "Kind", "Rows seen", "Rows used", "From"),
        [
            (one["name"], "trained as" if one["role"] == "task" else one["role"], one["kind"],
             f"{one['seen']:,}" if one["seen"] else "", f"{one['rows']:,}", one["source"])
            for one in sets
        ],
        right=(3, 4),
    )  # fmt: skip
    reasons = [(one["name"], reason, f"{count:,}") for one in sets for reason, count in one["refused_counts"].items()]
    if reasons:
        body += heading("Rows that were not used, and why") + table(("Set", "Reason", "Rows"), reasons, right=(2,))
    refused = [(row["place"], row["reason"], row["shown"]) for one in record["sets"] for row in one["refused"]]
    if refused:
        body += heading("The first of them") + table(("Place", "Reason", "Row"), refused[:40])
    for one in record["sets"]:
        for note in one["notes"]:
            body += paragraph(f"{one['name']}: {note}", "quiet")
    cut = [(name, f"{count:,}") for name, count in facts.result["truncated"].items()]
    body += heading(f"Cut at {facts.config['model']['max_length']} tokens")
    body += table(("Training data", "Sequences cut"), cut, right=(1,))
    return Section("Data", body)


def mistakes(facts: Facts) -> Section:
    """The rows where the model is farthest from the truth."""
    found = facts.record["mistakes"]
    if not found["rows"]:
        return Section("Largest errors", "")
    body = paragraph(f"Of {found['set']}, the worst first. Scores are compared by their place among all rows.", "quiet")
    rows = [
        (
            *[str(text) for text in one["texts"]],
            shown(one["gold"]),
            shown(one["predicted"]),
            f"{one['difference']:+.2f}",
        )
        for one in found["rows"]
    ]
    names = [f"Text {place}" for place in range(1, len(found["rows"][0]["texts"]) + 1)]
    count = len(names)
    header = (*names, "Right", "Model", "Off by")
    return Section("Largest errors", body + table(header, rows, right=(count, count + 1, count + 2)))


def timing(facts: Facts) -> Section:
    """How long it took and what it took."""
    result = facts.result
    rate = result["tokens"] / result["seconds"] if result["seconds"] else 0.0
    rows = [
        ("Device", facts.record["device"]),
        ("Steps", f"{result['steps']:,} ({result['epochs']:.2f} epochs)"),
        ("Time in training, without evaluating and saving", duration(result["seconds"])),
        ("Rows", f"{result['rows']:,}"),
        ("Tokens", f"{result['tokens']:,}"),
        ("Tokens a second", f"{rate:,.0f}"),
        (
            "Highest memory on the GPU",
            f"{result['peak_memory'] / 2**30:.2f} GiB" if result["peak_memory"] else "no GPU",
        ),
    ]
    if result["resumed_from"] is not None:
        rows.append(("Went on from step", f"{result['resumed_from']:,}"))
    return Section("Timing", table(("", ""), rows, right=(1,)))


def settings(facts: Facts) -> Section:
    """What decided the run, and how to repeat it."""
    chosen: Mapping[str, Any] = facts.config["settings"]
    body = paragraph("munjang train --config recipe.json --output ANOTHER-FOLDER repeats this run.", "quiet")
    body += table(("Setting", "Value"), [(name, "" if value is None else value) for name, value in chosen.items()])
    objectives = [
        (task["name"], task["objective"], _pairs(task["objective_settings"])) for task in facts.config["tasks"]
    ]
    body += heading("Objectives") + table(("Data", "Objective", "With"), objectives)
    body += heading("Model") + table(("", ""), [(name, _plain(value)) for name, value in facts.record["model"].items()])
    body += heading("Versions") + table(("", ""), list(facts.record["versions"].items()))
    return Section("Settings", body)


# --- words -----------------------------------------------------------------------------------------------------------


def _score_row(one: Mapping[str, Any], part: str) -> Sequence[object]:
    bounds = one["intervals"].get(one["main"])
    shown_bounds = f"{hundred(bounds[0])} to {hundred(bounds[1])}" if bounds else ""
    return (
        one["name"],
        _PARTS[part],
        one["main"],
        hundred(one["values"][one["main"]]),
        shown_bounds,
        f"{one['rows']:,}",
    )


def _is_made(task: Mapping[str, Any], sets: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a task's data is something else than the set that was read."""
    return not any(task["name"] == one["name"] and task["kind"] == one["kind"] and task["rows"] == one["rows"]
                   for one in sets if one["role"] == "train")  # fmt: skip


def hundred(value: float) -> str:
    return f"{100 * value:.2f}"


def metric(name: str, value: float) -> str:
    """Thresholds are no shares: they are shown as they are."""
    return f"{value:.4f}" if "threshold" in name else hundred(value)


def shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _part(count: int, total: int) -> str:
    return f"{count:,} ({100 * count / total:.1f} %)" if total else f"{count:,}"


def _pairs(found: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in found.items())


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else "" if value is None else str(value)
    )
