"""RUN/result.json -> RUN/index.html: did the silver pairs help, what are they like, how long did everything take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from munjang.errors import DataError
from munjang.files import atomic_write, disk_errors
from munjang.progress import duration
from munjang.recipes.report.sections import hundred
from munjang.report.html import Section, Tile, folded, heading, link, page, paragraph, table, tiles
from munjang.report.svg import Bars, histogram_chart

_TITLES = {
    "baseline": "the bi-encoder on the labelled pairs alone",
    "vectors": "vectors of all sentences",
    "candidates": "pairs that nobody labelled",
    "pretrain": "the cross-encoder learns the cosines of the bi-encoder",
    "cross": "the cross-encoder on the labelled pairs",
    "scores": "what the cross-encoder says of the candidates",
    "labels": "its scores, blended with the cosines of the bi-encoder",
    "silver": "which of them are kept",
    "bi-silver": "the bi-encoder on the silver pairs",
    "bi": "the bi-encoder with the silver pairs",
    "compare": "both bi-encoders on the same rows",
}


def write_augmented_report(folder: str | Path) -> Path:
    """Make index.html of a finished run of `augmented` (again)."""
    path = Path(folder) / "index.html"
    text = augmented_html(read_result(Path(folder)), title=f"augmented: {Path(folder).resolve().name}")
    with disk_errors(path, safe="the run itself is whole; `munjang report` makes it again"):
        atomic_write(path, text.encode("utf-8", "replace"))
    return path


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a finished run; an error where there is none."""
    try:
        found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder} holds no finished run of `munjang augment` ({error}); run its command to the end"
        ) from error
    if not isinstance(found, dict) or found.get("recipe") != "augmented":
        raise DataError(f"{folder}/result.json is not that of `munjang augment`")
    return found


def training_folders(folder: Path) -> list[Path]:
    """The trainings of a finished run of `augmented`, in order; none where the folder holds something else."""
    try:
        found = read_result(folder)
    except DataError:
        return []
    return [folder / one["folder"] for one in found["trainings"]]


def augmented_html(result: Mapping[str, Any], *, title: str) -> str:
    """The page."""
    parts = [_summary(result), _silver(result), _agreement(result), _samples(result), _trainings(result),
             _stages(result), _data(result), _settings(result)]  # fmt: skip
    start = _start(str(result["model"]["name"]))
    ways = {"gold": "few labelled pairs", "public": "no labelled pairs in the domain, public ones from elsewhere"}
    return page(title, f"Munjang report. Augmented SBERT from {start}: {ways[result['scenario']]}.", parts)


def _start(name: str) -> str:
    """The last part of a path; the last two where that is only `model`, as in the folder of a run."""
    parts = Path(name).parts
    return "/".join(parts[-2:] if parts[-1:] == ("model",) else parts[-1:])


def _summary(result: Mapping[str, Any]) -> Section:
    items = [_tile(gain) for gain in result["gains"]]
    silver = result["silver"]
    items += [Tile("silver pairs", f"{silver['rows']:,}")]
    items += [Tile("time", duration(sum(one["seconds"] for one in result["stages"])))]
    told = Markup().join(
        paragraph(f"The silver pairs helped on {gain['name']}: {_change(gain)}.", "good")
        for gain in result["gains"]
        if gain["clear"] and gain["difference"]["value"] > 0
    )
    if result["gains"]:
        told += paragraph(
            "Without: the same bi-encoder, trained in the same way on the labelled pairs alone. The interval is that "
            "of the difference on the same rows (paired bootstrap, 1,000 draws); one that holds 0 may be chance.",
            "quiet",
        )
    notes = Markup().join(paragraph(note, "warn") for note in result["notes"])
    headline = paragraph(f"This run {result['headline']}.") if result.get("headline") else ""  # 0.1.0 has none
    return Section("Did it help?", headline + tiles(items) + told + notes)


def _tile(gain: Mapping[str, Any]) -> Tile:
    value = gain["difference"]["value"]
    kind = "down" if value <= 0 else "up" if gain["clear"] else "quiet"
    name = f"{gain['name']}{' (dev)' if gain['part'] == 'dev' else ''}: {gain['metric']} x 100, without and with silver"
    return Tile(name, f"{hundred(gain['baseline'])} → {hundred(gain['augmented'])}", _interval(gain), kind)


def _interval(gain: Mapping[str, Any]) -> str:
    gap = gain["difference"]
    return f"{100 * gap['value']:+.2f} [{100 * gap['low']:+.2f}, {100 * gap['high']:+.2f}]"


def _change(gain: Mapping[str, Any]) -> str:
    return f"{gain['metric']} rose from {hundred(gain['baseline'])} to {hundred(gain['augmented'])} ({_interval(gain)})"


def _silver(result: Mapping[str, Any]) -> Section:
    silver = result["silver"]
    name = "gold" if result["scenario"] == "gold" else "public"
    body = paragraph(
        f"{silver['sentences']:,} sentences, {silver['candidates']:,} candidate pairs, {silver['rows']:,} kept."
    )
    body += link(silver["path"], "silver.tsv: every pair with its score, spread and origin")
    body += heading(f"Scores of the silver pairs beside {name}")
    bars = [Bars(name, silver["labelled_histogram"], 0), Bars("silver", silver["histogram"], 1)]
    body += histogram_chart(bars, silver["edges"], x_name="score", y_name="per cent of the pairs")
    rows = [(origin, f"{silver['found'].get(origin, 0):,}", f"{silver['origins'].get(origin, 0):,}")
            for origin in {**silver["found"], **silver["origins"]}]  # fmt: skip
    body += heading("Where they are from") + table(("Found by", "Candidates", "Silver"), rows, right=(1, 2))
    steps = [(name, f"{count:,}") for name, count in silver["steps"].items()]
    return Section("Silver pairs", body + folded("How they were chosen", table(("Step", "Pairs"), steps, right=(1,))))


def _agreement(result: Mapping[str, Any]) -> Section:
    silver = result["silver"]
    found, cross, title = silver["agreement"], silver.get("cross_agreement", {}), "How good the labels are"
    if not found:
        told = "Not known: there are no labelled pairs that the cross-encoder did not learn from. Give --dev."
        return Section(title, paragraph(told))
    rows = [
        (name, f"{one['pairs']:,}", _maybe(cross.get(name, one)["spearman"]), _maybe(one["spearman"]),
         _maybe(one["pearson"]), f"{one['mean_difference']:.3f}")
        for name, one in found.items()
    ]  # fmt: skip
    told = (
        "What silver pairs get as labels, beside the labels of pairs that the cross-encoder did not learn from (a "
        "development set chose it): correlations times 100, and the mean difference on the scale 0..1."
    )
    header = ("Set", "Pairs", "Cross-encoder alone: Spearman", "Labels: Spearman", "Pearson", "Mean difference")
    body = paragraph(told) + table(header, rows, right=(1, 2, 3, 4, 5))
    if silver.get("blend_tried"):
        tried = [(weight, hundred(value), "chosen" if float(weight) == silver["blend"] else "")
                 for weight, value in silver["blend_tried"].items()]  # fmt: skip
        told = f"The cosines of the bi-encoder count {silver['blend']:g} in the labels. On the development sets:"
        body += paragraph(told) + table(("Weight of the cosines", "Spearman", ""), tried, right=(0, 1))
    return Section(title, body)


def _maybe(value: float | None) -> str:
    return "constant" if value is None else hundred(value)


def _samples(result: Mapping[str, Any]) -> Section:
    body = ""
    for name, rows in result["silver"]["samples"].items():
        cells = [
            (row["a"], row["b"], f"{row['score']:.2f}", "" if row["spread"] is None else f"{row['spread']:.3f}",
             row["origin"])
            for row in rows
        ]  # fmt: skip
        header = ("Sentence", "Sentence", "Score", "Spread", "Found by")
        body += heading(name) + table(header, cells, right=(2, 3)) if cells else ""
    return Section("Silver pairs to look at", body)


def _trainings(result: Mapping[str, Any]) -> Section:
    rows = [
        (one["name"], score["name"], part, hundred(score["values"][score["main"]]), score["main"])
        for one in result["trainings"]
        for part, key in (("test", "test"), ("dev: chose the model", "dev"))
        for score in one[key]
    ]
    body = table(("Training", "Set", "Part", "x 100", "Metric"), rows, right=(3,))
    for one in result["trainings"]:
        body += link(f"{one['folder']}/report.html", f"{one['name']}: {_told(one['name'])}")
        body += folded("Notes", Markup().join(paragraph(note, "warn") for note in one["notes"]))
    return Section("Trainings", body)


def _told(name: str) -> str:
    return _TITLES.get(name) or _TITLES.get(name.partition("-")[0], name)


def _stages(result: Mapping[str, Any]) -> Section:
    rows = [(one["folder"], _told(one["name"]), duration(one["seconds"])) for one in result["stages"]]
    return Section("Stages", table(("Folder", "What", "Time"), rows, right=(2,)))


def _data(result: Mapping[str, Any]) -> Section:
    """What the run was made of: sets by name, rows and hash, files of plain sentences."""
    found: Mapping[str, Any] = result.get("data", {})
    rows = [
        (role, one["name"], f"{one.get('rows', one.get('texts', 0)):,}", one.get("hash", ""))
        for role, sets in found.items()
        if isinstance(sets, list)
        for one in sets
    ]
    return Section("Data", table(("Part", "Name", "Rows", "Hash"), rows, right=(2,)))


def _settings(result: Mapping[str, Any]) -> Section:
    rows: Sequence[tuple[str, str]] = [
        (name, json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value))
        for name, value in {"model": result["model"]["name"], **result["options"]}.items()
        if value not in (None, {}, [])
    ]
    return Section("Settings", table(("Option", "Value"), rows))
