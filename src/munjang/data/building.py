"""Rows of cells -> columns of texts and an array of targets, with an account of every row that was refused.

Enters: Records (the names of the columns, and the rows with their numbers) and what is wanted of them. Leaves: Built,
the parts of an Examples. Everything that reads examples, from files or from dicts, goes through here, so that a
missing cell means the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.cells import (
    LabelMap,
    Labels,
    all_labels,
    found_labels,
    label_cell,
    not_labels,
    number_cell,
    numbers_cell,
    score_cell,
    text_cell,
)
from munjang.data.kinds import PAIR_LABELS, PAIR_SCORES, TARGET_ROLES, Chosen, Kind, check_kind, choose_columns
from munjang.data.reading import Counting, Outside, Reading, Refusal, some_of
from munjang.errors import DataError, InputError

Array: TypeAlias = npt.NDArray[Any]


class Broken(NamedTuple):
    """A row whose cells cannot be told apart."""

    reason: str
    cells: Sequence[object]


@dataclass(frozen=True)
class Records:
    """A table: the names of its columns, and its rows, which can be gone through once."""

    source: str  # what messages call it
    unit: str  # what its rows are counted in: "line", "row", "item"
    names: tuple[str, ...]
    rows: Iterator[tuple[int, Sequence[object] | Broken]]  # number from 1, a cell for every name
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return self.source or "the rows"


@dataclass(frozen=True)
class Wanted:
    """What is to be made of a table."""

    kind: Kind
    columns: Mapping[str, str | int] | None = None  # role -> name or number of a column
    label_map: LabelMap | None = None
    score_range: tuple[float, float] | None = None
    any_labels: bool = False  # without a map: take every distinct value as a label, numbers too
    # Leave out rows outside of score_range or label_map. Callers who declare these themselves must ask for it; for the
    # readers of known formats they are part of the format.
    drop_outside: bool = True

    def __post_init__(self) -> None:
        check_kind(self.kind)
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise InputError(f"score_range must be (lowest, highest), got {self.score_range}")
        if self.score_range is not None and self.kind != "scored":
            raise InputError(f"score_range belongs to examples of kind 'scored', not {self.kind!r}")
        if self.label_map is not None and self.kind not in ("labelled", "classified"):
            raise InputError(f"label_map belongs to examples of kind 'labelled' or 'classified', not {self.kind!r}")


@dataclass(frozen=True)
class Built:
    """The parts of an Examples."""

    columns: dict[str, list[str]]
    targets: Array | None
    labels: tuple[str, ...]
    groups: Array | None
    reading: Reading


def records_of_dicts(rows: Iterable[Mapping[str, object]], name: str) -> Records:
    """Records of any iterable of mappings; the first one names the columns."""
    found = iter(rows)
    first = next(found, None)
    if first is None:
        raise DataError(f"{name or 'the rows'}: there is not a single row")
    names = tuple(str(key) for key in _mapping(first, 1))

    def cells() -> Iterator[tuple[int, Sequence[object]]]:
        for number, row in enumerate(chain([first], found), start=1):
            mapping = _mapping(row, number)
            yield number, [mapping.get(column) for column in names]

    return Records(name, "row", names, cells())


def build(records: Records, wanted: Wanted) -> Built:
    """Go through the rows once; DataError where none of them can be used."""
    chosen = choose_columns(records.names, wanted.kind, wanted.columns, records.where)
    counting = Counting(records.source, records.unit)
    columns: dict[str, list[str]] = {role: [] for role in chosen.texts}
    targets = _targets(records, wanted, chosen)
    places = [(columns[role], place, _called(records.names[place], role)) for role, place in chosen.texts.items()]
    rows = 0
    outside: list[tuple[int, float | str]] = []
    for number, cells in records.rows:
        rows += 1
        if isinstance(cells, Broken):
            counting.refuse(number, cells.reason, cells.cells)
            continue
        try:
            texts = [text_cell(cells[position], called) for _, position, called in places]
            targets.add(cells)
        except Refusal as refusal:
            counting.refuse(number, str(refusal), cells)
            if isinstance(refusal, Outside):
                outside.append((number, refusal.value))
            continue
        for (column, _, _), text in zip(places, texts, strict=True):
            column.append(text)
    reading = counting.reading(rows, (*records.notes, *chosen.note, *_unused(records.names, wanted.kind, chosen)))
    if outside and not wanted.drop_outside:
        raise InputError(_outside_message(records, wanted, targets, outside, rows))
    _refuse_nothing_left(records, reading)
    array, labels = targets.finished()
    groups = None
    if wanted.kind == "ranked":
        columns, array, groups = _grouped(columns, array)
    return Built(columns, array, labels, groups, reading)


class _Targets:
    """Gathers what is known about the rows; this one knows nothing."""

    def __init__(self, position: int, column: str) -> None:
        self._position = position
        self._column = column

    def add(self, cells: Sequence[object]) -> None:
        """Take the target of one row, or raise a Refusal."""

    def finished(self) -> tuple[Array | None, tuple[str, ...]]:
        return None, ()


class _Scores(_Targets):
    """Numbers brought to 0..1."""

    def __init__(self, position: int, column: str, score_range: tuple[float, float] | None, *, where: str = "") -> None:
        super().__init__(position, column)
        self._range = score_range
        self._where = f"{where}: " if where else ""
        self._found: list[float] = []

    def add(self, cells: Sequence[object]) -> None:
        self._found.append(score_cell(cells[self._position], self._column, self._range))

    def extremes(self) -> list[float]:
        """The lowest and the highest score inside the range, as in the file."""
        low, high = self._range or (0.0, 1.0)
        return [low + (high - low) * score for score in (min(self._found), max(self._found))] if self._found else []

    def finished(self) -> tuple[Array | None, tuple[str, ...]]:
        low, high = min(self._found), max(self._found)
        if self._range is None and not 0 <= low <= high <= 1:
            fits = _range_of([low, high])
            raise InputError(
                f"{self._where}{self._column} holds scores from {low:g} to {high:g}, which are not in 0..1: pass their "
                f"range, such as score_range=({fits}) or --score-range {fits.replace(' ', '')} on the command line"
            )
        return np.asarray(self._found, dtype=np.float32), ()


class _Relevances(_Targets):
    """Numbers as they are."""

    def __init__(self, position: int, column: str) -> None:
        super().__init__(position, column)
        self._found: list[float] = []

    def add(self, cells: Sequence[object]) -> None:
        self._found.append(number_cell(cells[self._position], self._column))

    def finished(self) -> tuple[Array | None, tuple[str, ...]]:
        return np.asarray(self._found, dtype=np.float32), ()


class _LabelIds(_Targets):
    """Labels as numbers; where no map is given, the names are gathered first."""

    def __init__(self, position: int, column: str, labels: Labels | None, wanted: Wanted, where: str) -> None:
        super().__init__(position, column)
        self._labels = labels
        self._wanted = wanted
        self._where = f"{where}: {column}"
        self._ids: list[int] = []
        self._keys: list[str] = []

    def add(self, cells: Sequence[object]) -> None:
        if self._labels is None:
            self._keys.append(label_cell(cells[self._position], self._column))
        else:
            self._ids.append(self._labels.find(cells[self._position], self._column))

    def finished(self) -> tuple[Array | None, tuple[str, ...]]:
        labels = self._labels
        if labels is None and self._wanted.any_labels:
            labels = all_labels(self._keys)
        elif labels is None:
            labels = found_labels(self._keys, self._where, pairs=self._wanted.kind == "labelled")
        ids = self._ids or [labels.ids[key] for key in self._keys]
        return np.asarray(ids, dtype=np.int64), labels.names


class _Lists(_Targets):
    """Lists of numbers, all of one size."""

    def __init__(self, position: int, column: str, size: int | None) -> None:
        super().__init__(position, column)
        self._size = size
        self._found: list[npt.NDArray[np.float32]] = []

    def add(self, cells: Sequence[object]) -> None:
        numbers = numbers_cell(cells[self._position], self._column, self._size)
        self._size = numbers.size
        self._found.append(numbers)

    def finished(self) -> tuple[Array | None, tuple[str, ...]]:
        return np.stack(self._found), ()


def _targets(records: Records, wanted: Wanted, chosen: Chosen) -> _Targets:
    position = chosen.target
    if position is None:
        return _Targets(0, "")
    column = _called(records.names[position], TARGET_ROLES[wanted.kind])
    if wanted.kind == "scored":
        return _Scores(position, column, wanted.score_range, where=records.where)
    if wanted.kind == "ranked":
        return _Relevances(position, column)
    if wanted.kind in ("labelled", "classified"):
        labels = None if wanted.label_map is None else Labels.of(wanted.label_map)
        return _LabelIds(position, column, labels, wanted, records.where)
    return _Lists(position, column, len(chosen.texts) - 1 if wanted.kind == "pairs" else None)


def _unused(names: Sequence[str], kind: Kind, chosen: Chosen) -> list[str]:
    """Say that pairs are taken for positives although a column labels or scores them."""
    if kind != "pairs" or chosen.target is not None:
        return []
    unused = [name for name in names if name.strip().lower() in (*PAIR_LABELS, *PAIR_SCORES)]
    return [f"not used, every row is a positive: {', '.join(unused)}"] if unused else []


def _outside_message(
    records: Records, wanted: Wanted, targets: _Targets, outside: Sequence[tuple[int, float | str]], rows: int
) -> str:
    """What to say of rows outside of the score range or the label map."""
    drop = "drop these rows with drop_outside=True (--drop-outside)"
    places = ", ".join(f"{records.unit} {number}: {value}" for number, value in outside[:3])
    if isinstance(targets, _Scores) and wanted.score_range is not None:
        low, high = wanted.score_range
        fits = _range_of([*targets.extremes(), *(float(value) for _, value in outside)])
        return (
            f"{records.where}: {len(outside):,} of {rows:,} scores are outside the score range {low:g}..{high:g} "
            f"({places}{'...' if len(outside) > 3 else ''}). All of them fit score_range=({fits}) "
            f"(--score-range {fits.replace(' ', '')}); or {drop}"
        )
    labels = Labels.of(wanted.label_map) if wanted.label_map is not None else Labels((), {})
    counts = Counter(str(value) for _, value in outside)
    problem = not_labels(counts, rows, rows_per_label=1)
    scores = f". The column holds {problem}; if these are scores, use kind 'scored' (train sts)" if problem else ""
    return (
        f"{records.where}: {len(outside):,} of {rows:,} labels are not in the label map ({some_of(labels.names)}): "
        + some_of([f"{name!r} ({count:,})" for name, count in counts.most_common()], 5)
        + f"; the first in {records.unit} {outside[0][0]}{scores}. Add them to label_map (--labels), or {drop}"
    )


def _range_of(scores: Sequence[float]) -> str:
    """The narrowest usual scale that all scores fit, or else their own extremes: '0, 5'."""
    low, high = min(scores), max(scores)
    usual = [(0, 1), (-1, 1), (1, 5), (0, 5), (0, 10), (0, 100)]
    first, last = next((one for one in usual if one[0] <= low and high <= one[1]), (low, high))
    return f"{first:g}, {last:g}"


def _refuse_nothing_left(records: Records, reading: Reading) -> None:
    if reading.rows == 0:
        raise DataError(f"{records.where}: there is not a single row")
    if reading.used == 0:
        first = "; ".join(str(refused) for refused in reading.refused[:3])
        raise DataError(f"{records.where}: not one of its rows can be used ({reading}). The first: {first}")


def _grouped(columns: dict[str, list[str]], targets: Array | None) -> tuple[dict[str, list[str]], Array | None, Array]:
    """Rows of the same query together, queries in the order in which they first came."""
    numbers: dict[str, int] = {}
    groups = np.asarray([numbers.setdefault(query, len(numbers)) for query in columns["query"]], dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    moved = {role: [texts[row] for row in order] for role, texts in columns.items()}
    return moved, None if targets is None else targets[order], groups[order]


def _called(name: str, role: str) -> str:
    """What a column is called in messages: its name, or its role where it has a number only."""
    return role if name.isdecimal() or not name.strip() else name


def _mapping(row: object, number: int) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        raise InputError(f"row {number}: expected a dict of column -> value, got {type(row).__name__}")
    return row
