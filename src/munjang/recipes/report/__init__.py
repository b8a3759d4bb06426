"""A run folder -> report.html: one file that opens without a network, and index.html over the stages of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from munjang.errors import DataError
from munjang.files import atomic_write, disk_errors
from munjang.progress import duration
from munjang.recipes.report import sections
from munjang.recipes.report.facts import Facts, read_facts, stage_folders
from munjang.report.html import Section, link, page, paragraph, table

__all__ = ["report_html", "write_overview", "write_report"]

_SAFE = "the run itself is whole; `munjang report` makes it again"
_SECTIONS = (
    sections.summary,
    sections.scores,
    sections.curves,
    sections.leakage,
    sections.mistakes,
    sections.data,
    sections.timing,
    sections.settings,
)


def write_report(folder: str | Path) -> Path:
    """Make report.html of a finished run again from what its folder holds."""
    path = Path(folder) / "report.html"
    text = report_html(read_facts(Path(folder)))
    with disk_errors(path, safe=_SAFE):
        atomic_write(path, text.encode("utf-8", "replace"))
    return path


def write_overview(folder: str | Path) -> Path:
    """Make index.html of a chain: its finished stages and their scores, with links to their reports."""
    stages = [read_facts(stage) for stage in stage_folders(Path(folder))]
    if not stages:
        raise DataError(f"{folder} holds no finished stage of a chain (1-nli, 2-sts...)")
    path = Path(folder) / "index.html"
    with disk_errors(path, safe=_SAFE):
        atomic_write(path, _overview(Path(folder), stages).encode("utf-8", "replace"))
    return path


def report_html(facts: Facts) -> str:
    """The page of one run."""
    recipe = facts.record["recipe"]
    source = Path(str(facts.config["model"]["source"])).name or "a model in memory"
    title = f"{recipe}: {facts.folder.resolve().name}"
    return page(title, f"Munjang training report. Recipe {recipe}, from {source}.", [make(facts) for make in _SECTIONS])


def _overview(folder: Path, stages: list[Facts]) -> str:
    rows = [row for facts in stages for row in _stage_rows(facts)]
    header = ("Stage", "Set", "Before", "After", "Metric", "Steps", "Time")
    told = paragraph("Scores are times 100. Before: the model as the stage got it.", "quiet")
    parts = [Section("Stages", told + table(header, rows, right=(2, 3, 5, 6)))]
    for facts in stages:
        name = facts.folder.name
        notes = Markup().join(paragraph(note, "warn") for note in facts.record["notes"])
        parts.append(Section(name, link(f"{name}/report.html", "The report of this stage") + notes))
    return page(f"chain: {folder.resolve().name}", "Munjang training report. Stages of a chain, in order.", parts)


def _stage_rows(facts: Facts) -> Sequence[tuple[str, ...]]:
    """A row for every score of a stage: of its test sets, or else of its development sets."""
    tested = bool(facts.record["test"])
    part = "test" if tested else "dev"
    took = f"{facts.result['steps']:,}", duration(facts.result["seconds"])
    found = [
        (
            facts.folder.name,
            f"{one['name']} ({'test' if tested else 'dev: chose the model'})",
            "" if before is None else sections.hundred(before["values"][one["main"]]),
            sections.hundred(one["values"][one["main"]]),
            one["main"],
            *took,
        )
        for one, before in zip(facts.record[part], facts.before(part), strict=True)
    ]
    return found or [(facts.folder.name, "nothing measured", "", "", "", *took)]
