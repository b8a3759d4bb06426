"""Results -> Markdown: every study beside the paper's column, mean ± standard deviation over seeds, agreement in order.

Trials that differ in anything but row and seed never meet in one table: another model, batch size, data or precision
makes another table, with a line that says which.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from research.material import Language, columns_of
from research.results import Record, Results
from research.studies import STUDIES, Row, Study

_COMMON = ("language", "model", "random", "batch size", "max length", "precision")
_TITLES: dict[Language, dict[str, str]] = {
    "english": {"dev": "STSb dev", "test": "STSb test"},
    "korean": {"dev": "KorSTS dev", "test": "KorSTS test"},
}


@dataclass(frozen=True)
class Cell:
    """One row's values in one column: seed -> Spearman x 100."""

    by_seed: dict[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.by_seed.values())))

    def __str__(self) -> str:
        if not self.by_seed:
            return "-"
        if len(self.by_seed) == 1:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {np.std(list(self.by_seed.values()), ddof=1):.2f}"


def kendall(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Kendall's tau-b: agreement of two orders, -1..1; equal values count as equal. NaN where one side is constant."""
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    rows, columns = np.triu_indices(len(first), k=1)
    left, right = np.sign(first[rows] - first[columns]), np.sign(second[rows] - second[columns])
    scale = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right) / scale if scale else float("nan")


def tables(results: Results) -> str:
    """All studies of a file of results."""
    records = results.records.values()
    parts = [_table(study, alike) for study in STUDIES.values() for alike in _alike(study, records)]
    return "\n\n".join(parts) if parts else "There are no results yet."


def _alike(study: Study, records: Iterable[Record]) -> list[list[Record]]:
    """Groups of records that may stand in one table: the same in all but row and seed."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        trial = record["trial"]
        if study.name in record["studies"] and any(_is_row(row, trial) for row in study.rows):
            groups.setdefault(json.dumps([trial[name] for name in _COMMON]), []).append(record)
    found = []
    for group in groups.values():
        for wanted in _variants(group):
            fitting = [r for r in group if all(_variant(s) in wanted for s in r["trial"]["stages"])]
            if any(record["trial"]["stages"] for record in fitting) or len(fitting) == len(group):
                found.append(fitting)
    return found


def _variants(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """What the stages were trained with: the sets of variants that belong together."""
    by_stage: dict[str, dict[str, None]] = {}
    both: dict[tuple[str, ...], None] = {}
    for record in records:
        stages = record["trial"]["stages"]
        for stage in stages:
            by_stage.setdefault(stage["stage"], {})[_variant(stage)] = None
        if len(stages) > 1:
            both[tuple(map(_variant, stages))] = None
    return list(both) or list(itertools.product(*by_stage.values()))


def _variant(stage: Record) -> str:
    """What a stage was trained with, but for the objective, which belongs to the row."""
    return json.dumps([stage[name] for name in ("stage", "data", "rows", "hash", "epochs", "learning rate")])


def _is_row(row: Row, trial: Record) -> bool:
    same = trial["kind"] == row.kind and [stage["stage"] for stage in trial["stages"]] == list(row.stages)
    if row.kind == "bi":
        same = same and trial["pooling"] == row.pooling
        same = same and ("nli" not in row.stages or trial["parts"] == list(row.parts))
    return same


def _cell(row: Row, column: str, records: Sequence[Record]) -> Cell:
    found = {}
    for record in records:
        scores = record["result"]["scores"]
        if _is_row(row, record["trial"]) and column in scores:
            found[int(record["trial"]["seed"])] = 100 * float(scores[column]["spearman"])
    return Cell(found)


def _table(study: Study, records: Sequence[Record]) -> str:
    trial = records[0]["trial"]
    language: Language = trial["language"]
    columns = columns_of(language, study.columns)
    cells = {(row, column): _cell(row, column, records) for row in study.rows for column in columns}
    titles = [_TITLES[language].get(column, column) for column in columns]
    papers = [column for column in columns if any(column in row.paper for row in study.rows)]
    named = dict(zip(columns, titles, strict=True))
    head = ["", *titles, *("paper" if len(papers) == 1 else f"paper {named[column]}" for column in papers)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in study.rows:
        values = [str(cells[row, column]) for column in columns]
        published = [f"{row.paper[column]:.2f}" if column in row.paper else "-" for column in papers]
        name = f"{row.block}: {row.name}" if row.block else row.name
        lines.append("| " + " | ".join([name.replace("|", "\\|"), *values, *published]) + " |")
    weights = "random weights" if trial["random"] else "trained weights"
    title = f"### {study.title} ({language.capitalize()}, {trial['model name']}, {weights})"
    agreement = [line for column in papers for line in _agreement(study, column, cells)]
    notes = [_settings(records), *([study.note] if study.note else []), *_shared(columns, titles, records)]
    return "\n\n".join([title, "\n".join(lines), *agreement, " ".join(notes)])


def _agreement(study: Study, column: str, cells: dict[tuple[Row, str], Cell]) -> list[str]:
    """Whether rows of one block come in the paper's order, for all seeds together and for each."""
    lines = []
    for block in dict.fromkeys(row.block for row in study.rows):
        rows = [row for row in study.rows if row.block == block and column in row.paper]
        found = [cells[row, column].by_seed for row in rows]
        if len(rows) < 3 or not all(found):
            continue
        paper = [row.paper[column] for row in rows]
        together = kendall([cells[row, column].mean for row in rows], paper)
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found)))
        each = [kendall([by_seed[seed] for by_seed in found], paper) for seed in seeds]
        spread = f" (single seeds: {min(each):.2f} to {max(each):.2f})" if len(each) > 1 else ""
        words = (block, "" if len(study.columns) == 1 else column)
        where = "".join(f", {word}" for word in words if word)
        lines.append(f"Order of the rows{where}: Kendall's tau with the paper {together:.2f}{spread}.")
    return lines


def _settings(records: Sequence[Record]) -> str:
    """What was trained on what, in words."""
    trial, result = records[0]["trial"], [record["result"] for record in records]
    stages = {stage["stage"]: stage for record in records for stage in record["trial"]["stages"]}
    words = [
        f"{name.upper()}: {stage['data']}, {stage['rows']:,} rows, {_times(stage['epochs'])}, "
        f"learning rate {stage['learning rate']:g}"
        for name, stage in stages.items()
    ]
    seeds = sorted({record["trial"]["seed"] for record in records})
    words.append(f"batches of {trial['batch size']} (the paper: 16), at most {trial['max length']} tokens")
    words.append(f"{trial['precision']}, seeds {', '.join(map(str, seeds))}")
    trained = [one["training seconds"] for one in result if one["steps"]]
    if trained:
        words.append(f"{np.median(trained):.1f} s of training in the median trial")
    words.append(f"on {records[0]['machine']['device']}, torch {records[0]['machine']['torch']}")
    return "; ".join(words) + "."


def _times(epochs: float) -> str:
    return f"{epochs:g} epoch" + ("" if epochs == 1 else "s")


def _shared(columns: Sequence[str], titles: Sequence[str], records: Sequence[Record]) -> list[str]:
    found = {column: line for record in records for column, line in record["result"].get("shared", {}).items()}
    return [f"{title}: {found[column]}." for column, title in zip(columns, titles, strict=True) if column in found]
