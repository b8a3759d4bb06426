"""Scores of models -> a Markdown table.

Rows are sets, columns are models; values are times 100 with two decimals, with half the width of the bootstrap interval
behind them. What a reader must know (texts cut, a set capped or skipped) stands below as numbered notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from munjang.errors import InputError
from munjang.evaluation.scores import Scores


@dataclass(frozen=True)
class Column:
    """One model's scores, by the name of the set; and the sets that it could not be asked about, with the reason."""

    model: str
    scores: Mapping[str, Scores] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    sets: tuple[str, ...] = ()  # their order; by default the scores first

    @property
    def order(self) -> tuple[str, ...]:
        return self.sets or (*self.scores, *self.skipped)


def markdown(columns: Sequence[Column], *, absent: Mapping[str, str] | None = None) -> str:
    """One table of several models; `absent`: sets that are not there at all, with the reason."""
    if not columns:
        raise InputError("expected at least one model's scores, got none")
    names = list(dict.fromkeys(name for column in columns for name in column.order))
    notes: list[str] = []
    lines = [
        _line(["Set", "Metric", *(column.model for column in columns)]),
        _line(["---", "---", *("---:" for _ in columns)]),
    ]
    for name in names:
        mains = dict.fromkeys(column.scores[name].main for column in columns if name in column.scores)
        cells = [_cell(column, name, notes) for column in columns]
        lines.append(_line([name, " / ".join(mains) or "-", *cells]))
    lines.extend(_averages(columns, names))
    if notes:
        lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, start=1))]
    if absent:
        lines += ["", "Skipped:", "", *(f"- {name}: {reason}" for name, reason in absent.items())]
    return "\n".join(lines) + "\n"


def _cell(column: Column, name: str, notes: list[str]) -> str:
    if name not in column.scores:
        return "-" + _mark(notes, name, [column.skipped[name]] if name in column.skipped else [])
    scores = column.scores[name]
    shown = f"{100 * scores.value:.2f}"
    if scores.main in scores.intervals:
        low, high = scores.intervals[scores.main]
        shown += f" ± {50 * (high - low):.2f}"
    return shown + _mark(notes, name, scores.notes)


def _mark(notes: list[str], name: str, found: Sequence[str]) -> str:
    """The number of a value's notes, which stand together; the same notes keep their number."""
    if not found:
        return ""
    note = f"{name}: {'; '.join(found)}"
    if note not in notes:
        notes.append(note)
    return f" [{notes.index(note) + 1}]"


def _averages(columns: Sequence[Column], names: Sequence[str]) -> list[str]:
    """The mean over the sets that every model has, where there are several."""
    shared = [name for name in names if all(name in column.scores for column in columns)]
    if len(shared) < 2:
        return []
    means = [sum(column.scores[name].value for name in shared) / len(shared) for column in columns]
    return [_line([f"**Mean of {len(shared)}**", "", *(f"**{100 * value:.2f}**" for value in means)])]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
