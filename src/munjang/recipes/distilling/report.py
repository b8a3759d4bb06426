"""RUN/index.html of a distillation: student against teacher against before, curves by source, how the student was made.

Made of RUN/result.json and the folder of the stage `distill`; nothing is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from munjang.errors import DataError
from munjang.files import atomic_write, disk_errors
from munjang.progress import duration
from munjang.recipes.report import sections
from munjang.recipes.report.facts import Facts
from munjang.recipes.report.sections import hundred, metric
from munjang.report.html import Section, Tile, folded, heading, page, paragraph, table, tiles
from munjang.training.log import read_log

_SHOWN = 3  # sets that get a tile


def write_page(folder: str | Path) -> Path:
    """Make index.html of a finished distillation again from what its folder holds."""
    path = Path(folder) / "index.html"
    text = page_html(Path(folder))
    with disk_errors(path, safe="the run itself is whole"):
        atomic_write(path, text.encode("utf-8", "replace"))
    return path


def is_distillation(folder: Path) -> bool:
    """Whether a folder holds a finished distillation."""
    try:
        found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("recipe") == "distill"


def page_html(folder: Path) -> str:
    """The page of one run."""
    if not is_distillation(folder):
        raise DataError(f"{folder} holds no finished run of `munjang distill`: run its command to the end")
    found: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    stage = folder / next(one["folder"] for one in found["stages"] if one["name"] == "distill")
    config = json.loads((stage / "config.json").read_text(encoding="utf-8"))
    facts = Facts(stage, config, found["training"], found["record"], read_log(stage / "log.jsonl"))
    teachers = ", ".join(one["name"] for one in found["teacher"]["teachers"])
    begins = found["begins"]["name"]
    parts = [
        _summary(found),
        _scores(found),
        sections.curves(facts),
        _student(found),
        _teachers(found),
        sections.leakage(facts),
        sections.data(facts),
        _timing(found),
        _settings(found),
    ]
    told = f"Munjang distillation report. Taught by {teachers}; the student began as {begins}."
    return page(f"distill: {folder.resolve().name}", told, parts)


def _best_teacher(one: Mapping[str, Any]) -> float | None:
    values: list[float] = [s["values"][s["main"]] for s in one["teachers"].values() if s is not None]
    return max(values, default=None)


def _summary(found: Mapping[str, Any]) -> Section:
    items = []
    for one in found["compared"][:_SHOWN]:
        after = one["after"]
        name = f"{after['name']}{'' if one['part'] == 'test' else ' (dev)'}: {after['main']} x 100"
        value = after["values"][after["main"]]
        change, kind = "", "quiet"
        if one["before"] is not None:
            was = one["before"]["values"][after["main"]]
            change, kind = f"{100 * (value - was):+.2f}, was {hundred(was)}", "up" if value > was else "down"
        items.append(Tile(name, hundred(value), change, kind))
    kept = [one["kept"] for one in found["compared"] if one["kept"] is not None]
    if kept:
        low, high = 100 * min(kept), 100 * max(kept)
        shown = f"{low:.1f} %" if len(kept) == 1 else f"{low:.1f} to {high:.1f} %"
        items.append(Tile("of the teacher's score", shown))
    items.append(Tile("training time", duration(found["training"]["seconds"])))
    said = Markup().join(_verdict(one) for one in found["compared"])
    best = found["training"]["best"]
    if best is not None and best["step"] > 0:
        said += paragraph(f"The student is that of step {best['step']:,}, where {best['metric']} was best.")
    said += Markup().join(paragraph(note, "warn") for note in found["notes"])
    return Section("Summary", tiles(items) + said)


def _verdict(one: Mapping[str, Any]) -> str:
    """One sentence: how far the student came."""
    after, teacher = one["after"], _best_teacher(one)
    value = after["values"][after["main"]]
    if teacher is None:
        return ""
    told = f"{after['name']}: the student reaches {hundred(value)}, its teacher {hundred(teacher)}"
    if one["before"] is not None:
        told += f", the student before {hundred(one['before']['values'][after['main']])}"
    if one["part"] == "dev":
        told += ". This set chose the model, so its score is optimistic"
    rose = one["before"] is None or value > one["before"]["values"][after["main"]]
    return paragraph(told + ".", "good" if one["part"] == "test" and rose and value >= 0.95 * teacher else "")


def _scores(found: Mapping[str, Any]) -> Section:
    if not found["compared"]:
        return Section("Scores", paragraph("Nothing was measured: there was neither a development nor a test set."))
    names = list(found["compared"][0]["teachers"])
    header = ("Set", "Metric", "Before", "Student", "95 % interval", *names, "Kept", "Rows", "Part")
    rows = []
    for one in found["compared"]:
        after, main = one["after"], one["after"]["main"]
        bounds = after["intervals"].get(main)
        taught = [one["teachers"][name] for name in names]
        rows.append(
            (
                after["name"],
                main,
                "" if one["before"] is None else hundred(one["before"]["values"][main]),
                hundred(after["values"][main]),
                f"{hundred(bounds[0])} to {hundred(bounds[1])}" if bounds else "",
                *["" if scores is None else hundred(scores["values"][main]) for scores in taught],
                "" if one["kept"] is None else f"{100 * one['kept']:.1f} %",
                f"{after['rows']:,}",
                "test: reports" if one["part"] == "test" else "development: chose the model",
            )
        )
    body = paragraph(
        "Times 100. Before: the student as it was made, not yet taught. Kept: the student's score as a share of the "
        "best teacher's; nothing stands there where the teacher does not know the language.",
        "quiet",
    )
    body += table(header, rows, right=(2, 3, 4, *range(5, 7 + len(names))))
    body += _both_ways(found)
    for one in found["compared"]:
        after = one["after"]
        others = [(name, metric(name, value)) for name, value in after["values"].items() if name != after["main"]]
        body += folded(f"{after['name']}, other metrics", table(("Metric", "Value"), others, right=(1,)))
        body += Markup().join(paragraph(f"{after['name']}: {note}", "quiet") for note in after["notes"])
    return Section("Scores", body)


def _both_ways(found: Mapping[str, Any]) -> str:
    """Bitext accuracy: the translation found among all, from either side."""
    rows = []
    for one in found["compared"]:
        values = one["after"]["values"]
        ways = [name for name in values if name.startswith("accuracy_")]
        for way in ways:
            teachers = [s["values"].get(way) for s in one["teachers"].values() if s is not None]
            before = "" if one["before"] is None else hundred(one["before"]["values"][way])
            best = max((value for value in teachers if value is not None), default=None)
            shown = "" if best is None else hundred(best)
            rows.append((one["after"]["name"], way.removeprefix("accuracy_"), before, hundred(values[way]), shown))
    if not rows:
        return ""
    told = table(("Set", "Way", "Before", "Student", "Teacher"), rows, right=(2, 3, 4))
    return heading("Accuracy both ways") + told


def _student(found: Mapping[str, Any]) -> Section:
    """Layers, width and vocabulary: what was chosen and how."""
    before, made = found["begins"], found["student"]["model"]
    names = [name for name in made if name != "tokenizer"]
    rows = [(name, _plain(before.get(name)), _plain(made[name])) for name in names]
    tokenizer = made.get("tokenizer") or {}
    rows += [(f"tokenizer: {name}", "", _plain(value)) for name, value in tokenizer.items()]
    body = table(("", "Began as", "Student"), rows)
    if found["plan"]:
        body += paragraph(f"Plan: {found['plan']}", "quiet")
    for name, value in found["student"]["report"].items():
        if name == "vocabulary":
            body += _coverage(value)
            value = {key: one for key, one in value.items() if not key.startswith("coverage")}
        body += _shown(name, value)
    body += Markup().join(paragraph(note) for note in found["student"]["notes"])
    return Section("Student", body)


def _coverage(vocabulary: Mapping[str, Any]) -> str:
    """Words that are unknown and pieces per word, by script, before and after the vocabulary was made over."""
    before, after = vocabulary.get("coverage before") or {}, vocabulary.get("coverage after") or {}
    rows = []
    for script, new in after.items():
        old = before.get(script) or {}
        rates = [_percent(one.get("unknown")) for one in (old, new)]
        pieces = [_plain(one.get("tokens per word")) for one in (old, new)]
        rows.append((script, _plain(new.get("words")), *rates, *pieces))
    header = ("Script", "Words", "Unknown before", "after", "Pieces a word before", "after")
    return heading("words that the vocabulary knows") + table(header, rows, right=(1, 2, 3, 4, 5)) if rows else ""


def _percent(value: Any) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _shown(name: str, value: Any) -> str:
    """Any part of the report on how the student was made, as a table or a line."""
    title = name.replace("_", " ")
    if isinstance(value, Mapping):
        flat = _flat(value)
        return heading(title) + table(("", ""), [(key, _plain(one)) for key, one in flat], right=(1,)) if flat else ""
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        columns = list(dict.fromkeys(key for one in value for key in one))
        rows = [[_plain(one.get(key)) for key in columns] for one in value]
        return heading(title) + table(columns, rows)
    return paragraph(f"{title}: {_plain(value)}")


def _flat(value: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, one in value.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        found += _flat(one, f"{name}, ") if isinstance(one, Mapping) else [(name, one)]
    return found


def _teachers(found: Mapping[str, Any]) -> Section:
    teachers = found["teacher"]["teachers"]
    rows = [[(name, _plain(value)) for name, value in _flat(one)] for one in teachers]
    body = Markup().join(
        heading(one["name"]) + table(("", ""), row, right=(1,)) for one, row in zip(teachers, rows, strict=True)
    )
    if found["negatives"]:
        body += heading("Negatives")
        body += table(
            ("", ""), [(name, _plain(value)) for name, value in _flat(found["negatives"]["sources"])], right=(1,)
        )
    body += heading("Sources")
    sources = [
        (one["name"], one["kind"], f"{one['rows']:,}", f"{one['weight']:g}", f"{one['rows an epoch']:,}")
        for one in found["sources"]
    ]
    body += table(("Source", "Kind", "Rows", "Weight", "Rows in an epoch"), sources, right=(2, 3, 4))
    return Section("Teachers and sources", body)


def _timing(found: Mapping[str, Any]) -> Section:
    rows = [(one["folder"], duration(one["seconds"])) for one in found["stages"]]
    training = found["training"]
    rate = training["tokens"] / training["seconds"] if training["seconds"] else 0.0
    rows += [
        ("device", found["device"]),
        ("steps of the training", f"{training['steps']:,} ({training['epochs']:.2f} epochs)"),
        ("tokens a second", f"{rate:,.0f}"),
    ]
    if training["peak_memory"]:
        rows.append(("highest memory on the GPU", f"{training['peak_memory'] / 2**30:.2f} GiB"))
    return Section("Timing", table(("Stage", "Time"), rows, right=(1,)))


def _settings(found: Mapping[str, Any]) -> Section:
    body = table(("Setting", "Value"), [(name, _plain(value)) for name, value in found["settings"].items()])
    rows = [
        (one["name"], one["objective"], ", ".join(f"{name} {_plain(value)}" for name, value in one["with"].items()))
        for one in found["objectives"]
    ]
    body += heading("Objectives") + table(("Source", "Objective", "With"), rows)
    body += heading("Versions") + table(("", ""), list(found["versions"].items()))
    return Section("Settings", body)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(one) for one in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
