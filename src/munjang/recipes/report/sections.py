"""The sections of a training report, each made of the facts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from munjang.progress import duration
from munjang.recipes.report.facts import Facts
from munjang.report.html import Section, Tile, folded, heading, paragraph, table, tiles
from munjang.report.svg import Series, line_chart, smoothed

_PARTS = {"dev": "development: chose the model", "test": "test: reports"}
_POLICIES = {
    "report": "The rows stayed in the training data: the scores of these sets are optimistic.",
    "remove": "These rows were taken out of the training data before training.",
    "refuse": "Training would have been refused, had there been any.",
}


def summary(facts: Facts) -> Section:
    """Whether it worked, and the few numbers that people look for first."""
    result, record = facts.result, facts.record
    part = "test" if record["test"] else "dev"
    compared = [
        (after, before, _doubt(facts, after, before, part))
        for after, before in zip(record[part][:3], facts.before(part)[:3], strict=True)
    ]
    items = [_score_tile(after, before, part, doubt) for after, before, doubt in compared]
    items += [Tile("steps", f"{result['steps']:,}"), Tile("training time", duration(result["seconds"]))]
    said = Markup().join(_verdict(*one) for one in compared) + _loss_told(facts)
    notes = Markup().join(paragraph(note, "warn") for note in record["notes"])
    how = [f"{task['name']} ({task['rows']:,} rows, {task['objective']})" for task in facts.config["tasks"]]
    told = paragraph("Trained on " + "; ".join(how) + ".")
    best = facts.best
    if best is not None and best["step"] > 0:
        told += paragraph(
            f"The model is that of step {best['step']:,}, where {best['metric']} was {hundred(best['value'])}"
            + (", after which patience ran out." if result["stopped_early"] else ".")
        )
    headline = paragraph(record["headline"]) if record.get("headline") else ""  # runs of 0.1.0 have none
    return Section("Summary", headline + tiles(items) + said + told + notes)


def _score_tile(after: Mapping[str, Any], before: Mapping[str, Any] | None, part: str, doubt: str) -> Tile:
    main = after["main"]
    name = f"{after['name']}{'' if part == 'test' else ' (dev)'}: {main} x 100"
    if before is None:
        return Tile(name, hundred(after["values"][main]))
    change = 100 * (after["values"][main] - before["values"][main])
    small = f"{change:+.2f}, was {hundred(before['values'][main])}"
    return Tile(name, hundred(after["values"][main]), small, "down" if change <= 0 else "quiet" if doubt else "up")


def _verdict(after: Mapping[str, Any], before: Mapping[str, Any] | None, doubt: str) -> str:
    """One sentence: better or not, and what speaks against believing it."""
    if before is None:
        return ""
    main = after["main"]
    old, new = before["values"][main], after["values"][main]
    if new <= old:
        return ""  # a note says it already
    rose = f"{main} rose from {hundred(old)} to {hundred(new)}"
    if doubt:
        return paragraph(f"{after['name']}: {rose}, but {doubt}.")
    return paragraph(f"Training helped on {after['name']}: {rose}.", "good")


def _doubt(facts: Facts, after: Mapping[str, Any], before: Mapping[str, Any] | None, part: str) -> str:
    """Why a better score may not mean a better model; empty where nothing is known against it."""
    if before is None:
        return ""
    reasons = []
    if part == "dev":
        reasons.append("this set chose the model, so its score is optimistic")
    bounds = after["intervals"].get(after["main"])
    if bounds and bounds[0] <= before["values"][after["main"]] <= bounds[1]:
        told = f"{hundred(bounds[0])} to {hundred(bounds[1])}"
        reasons.append(f"the old value lies inside the 95 % interval of the new one ({told}): this may be chance")
    leaked = facts.record["leakage"]
    for one in leaked["sets"] if leaked and leaked["policy"] == "report" else []:
        if one["name"] == after["name"] and one["role"] == part and one["normalised"]["some"]:
            share = _part(one["normalised"]["some"], one["rows"])
            reasons.append(f"{share} of its rows share a sentence with the training data")
    return "; and ".join(reasons)


def _loss_told(facts: Facts) -> str:
    """Whether the loss fell: its mean over the first and over the last steps of every task."""
    told = []
    for task in dict.fromkeys(entry["task"] for entry in facts.steps):
        values = [entry["loss"] for entry in facts.steps if entry["task"] == task]
        some = max(1, len(values) // 10)
        first, last = sum(values[:some]) / some, sum(values[-some:]) / some
        if len(values) > 1:
            told.append(f"{task}: {first:.4g} at first, {last:.4g} at last")
    return paragraph("Loss of " + "; ".join(told) + ".") if told else ""


def scores(facts: Facts) -> Section:
    """Every score, and which part its set had."""
    record = facts.record
    rows = [_score_row(one, "test", old) for one, old in zip(record["test"], facts.before("test"), strict=True)]
    rows += [_score_row(one, "test", None) for one in record["truncated"]]
    rows += [_score_row(one, "dev", old) for one, old in zip(record["dev"], facts.before("dev"), strict=True)]
    header = ("Set", "Metric", "Before", "After", "Change", "95 % interval", "Rows", "Part")
    told = "Times 100. Before: the same model, not yet trained."
    if record.get("before") and None in (*facts.before("dev"), *facts.before("test")):
        told += " Nothing stands there where the measure needs a classifier that the training made."
    body = paragraph(told, "quiet") if rows else ""
    body += table(header, rows, right=(2, 3, 4, 5, 6))
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
    before = {one["name"]: one for one in facts.before("dev") if one is not None}
    series = []
    for colour, (name, main) in enumerate(wanted.items()):
        points = [(0, 100 * before[name]["values"][main])] if name in before else []
        points += [
            (entry["step"], 100 * entry["evaluation"][name][main]) for entry in entries if name in entry["evaluation"]
        ]
        marked = best["step"] if best["metric"].startswith(f"{name}/") else None
        series.append(Series(f"{name}, {main}", points, colour=colour, marked=marked))
    title = "Development metric (chose the model; step 0 is before training)" if before else ""
    return heading(title or "Development metric (chose the model)") + line_chart(series, x_name="step", y_name="x 100")


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
    how = (
        "Off by: 1 less the probability that the model gives the right label."
        if isinstance(found["rows"][0]["gold"], str)
        else "Scores are compared by their place among all rows; above 0 the model says 'more alike' than people did."
    )
    body = paragraph(f"Of {found['set']}, the worst first. {how}", "quiet")
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


def _score_row(one: Mapping[str, Any], part: str, before: Mapping[str, Any] | None) -> Sequence[object]:
    old, new = None if before is None else before["values"][one["main"]], one["values"][one["main"]]
    bounds = one["intervals"].get(one["main"])
    shown_bounds = f"{hundred(bounds[0])} to {hundred(bounds[1])}" if bounds else ""
    return (
        one["name"],
        one["main"],
        "" if old is None else hundred(old),
        hundred(new),
        "" if old is None else f"{100 * (new - old):+.2f}",
        shown_bounds,
        f"{one['rows']:,}",
        _PARTS[part],
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
