"""Rows -> the columns and targets of `Examples`, with a report of every row that is refused.

A damaged row of examples can be left out, unlike a text that is encoded row by row; it is refused, counted under its
reason, and the first ones are kept with their place. Cells of text files are strings; those of JSON, Parquet or objects
in memory may be numbers, None, NaN, numpy scalars or tensors of one number. The string "nan" is a text; a float NaN is
a missing cell and never becomes the text "nan".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.columns import (
    PAIR_LABELS,
    PAIR_SCORES,
    TARGET_ROLES,
    Kind,
    check_kind,
    choose_columns,
    has_numbered_columns,
)  # fmt: skip
from munjang.data.rows import Format, ReadOptions, RowSource, is_missing, open_rows
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.data.examples import Examples
    from munjang.data.labels import LabelMap

Array: TypeAlias = npt.NDArray[Any]
_SHOWN = 20  # refused rows that a report keeps
_LONGEST = 100  # characters of a row that are shown
_USUAL_RANGES = ((0, 1), (-1, 1), (1, 5), (0, 5), (0, 10), (0, 100))


@dataclass(frozen=True)
class Refused:
    """One row that could not be used."""

    place: str  # "sts-train.tsv line 17"
    reason: str  # "score is empty"
    shown: str  # the beginning of the row

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.shown}"


@dataclass(frozen=True)
class Reading:
    """Report of reading examples: rows seen, rows used, and why the others are not."""

    source: str = ""
    rows: int = 0
    used: int = 0
    refused: tuple[Refused, ...] = ()  # the first 20
    refused_counts: dict[str, int] = field(default_factory=dict)  # reason -> number of rows
    notes: tuple[str, ...] = ()  # such as columns that were guessed

    def plus(self, other: Reading) -> Reading:
        """Return both together."""
        return Reading(
            source=", ".join(dict.fromkeys(name for name in (self.source, other.source) if name)),
            rows=self.rows + other.rows,
            used=self.used + other.used,
            refused=(self.refused + other.refused)[:_SHOWN],
            refused_counts=dict(Counter(self.refused_counts) + Counter(other.refused_counts)),
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def refusing(self, counts: Mapping[str, int], *notes: str) -> Reading:
        """Return the report after a later step refused rows: reason -> number of rows."""
        total = dict(Counter(self.refused_counts) + Counter(counts))
        return replace(
            self, used=self.used - sum(counts.values()), refused_counts=total, notes=(*self.notes, *notes)
        )  # fmt: skip

    def taken(self, used: int, count: int) -> Reading:
        """Return the report after some of the rows were selected, which refuses none."""
        if used == count:
            return self
        return replace(self, used=used, notes=(*self.notes, f"{used:,} of {count:,} taken"))

    def __str__(self) -> str:
        line = f"{self.rows:,} rows, {self.used:,} used"
        total = sum(self.refused_counts.values())
        if total:
            most = sorted(self.refused_counts.items(), key=lambda item: -item[1])
            line += f", {total:,} refused: " + ", ".join(f"{reason} ({count:,})" for reason, count in most)
        return "; ".join([line, *self.notes])


class RefusedCell(ValueError):
    """A cell cannot be used; the message is the reason."""


class OutsideCell(RefusedCell):
    """A valid cell outside of the score range or the label map that the caller declared."""

    def __init__(self, reason: str, value: float | str) -> None:
        super().__init__(reason)
        self.value = value


class ReadingCounter:
    """Counts refused rows while a source is read."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._first: list[Refused] = []
        self._counts = Counter[str]()

    def refuse(self, place: str, reason: str, cells: Sequence[object]) -> None:
        self._counts[reason] += 1
        if len(self._first) < _SHOWN:
            shown = " | ".join("" if cell is None else str(cell) for cell in cells).replace("\n", " ")
            self._first.append(Refused(f"{self._source} {place}".lstrip(), reason, _short(shown)))

    def reading(self, rows: int, notes: tuple[str, ...] = ()) -> Reading:
        used = rows - self._counts.total()
        return Reading(self._source, rows, used, tuple(self._first), dict(self._counts), notes)


def read_examples(
    source: str | Path | RowSource,
    *,
    kind: Kind,
    columns: Mapping[str, str | int] | None = None,
    score_range: tuple[float, float] | None = None,
    label_map: LabelMap | None = None,
    any_labels: bool = False,
    drop_outside: bool = False,
    format: Format | None = None,
    encoding: str | None = None,
) -> Examples:
    """Read a file of examples: csv, tsv, jsonl, json or Parquet; plain texts also from txt, one on each line.

    Args:
        source: a path, or what `open_rows` returns for one (with its own format and encoding).
        kind: scored, labelled, pairs, classified, ranked, taught or plain.
        columns: role -> name or number (from 0; the file has no header then) of a column. The roles: a, b, score or
            label; anchor, positive, negative; text, label; query, document, relevance; text, translation, vector.
            Others are guessed from usual names.
        score_range: of the scores in the file, such as (0, 5); by default they must be in 0..1.
        label_map: names in the order of their ids, or a map from what the file has to ids or names; numbers need one.
        any_labels: without a map, take every distinct value as a label, also where they look like scores or texts.
        drop_outside: leave out and count rows outside of `score_range` or `label_map`, which are an error otherwise.

    Returns:
        Examples, whose `reading` reports refused rows and guessed columns.

    Raises:
        DataError: the file cannot be read, or holds no usable row.
        InputError: scores or labels are not what was declared.

    Example:
        >>> pairs = read_examples("pairs.csv", kind="scored", score_range=(0, 5))  # doctest: +SKIP
    """
    if not isinstance(source, RowSource):
        options = ReadOptions(format, encoding, header=not has_numbered_columns(columns))
        source = open_rows(source, options=options)
    return make_examples(
        source, kind=kind, columns=columns, score_range=score_range, label_map=label_map, any_labels=any_labels,
        drop_outside=drop_outside, name=source.short_name,
    )  # fmt: skip


def make_examples(
    source: RowSource,
    *,
    kind: Kind,
    name: str,
    columns: Mapping[str, str | int] | None = None,
    label_map: LabelMap | None = None,
    score_range: tuple[float, float] | None = None,
    any_labels: bool = False,
    drop_outside: bool = True,
) -> Examples:
    """Make examples of rows in one pass; `read_examples` explains the arguments."""
    from munjang.data.examples import Examples
    from munjang.data.labels import infer_labels, read_label_map

    check_kind(kind)
    if score_range is not None and not score_range[0] < score_range[1]:
        raise InputError(f"score_range must be (lowest, highest), got {score_range}")
    if score_range is not None and kind != "scored":
        raise InputError(f"score_range is for examples of kind 'scored', not {kind!r}")
    if label_map is not None and kind not in ("labelled", "classified"):
        raise InputError(f"label_map is for examples of kind 'labelled' or 'classified', not {kind!r}")
    label = source.short_name or "the rows"
    table = source.open()
    if kind != "plain" and not table.has_names:
        raise DataError(f"{source.name}: a txt file has no columns. Expected csv, tsv, jsonl, json or parquet")
    if not table.names:
        raise DataError(f"{label}: there is not a single row")
    chosen = choose_columns(table.names, kind, columns, label)
    labels = None if label_map is None else read_label_map(label_map)
    texts: dict[str, list[str]] = {role: [] for role in chosen.texts}
    text_cells = [(texts[role], table.keys[at], _called(table.names[at], role)) for role, at in chosen.texts.items()]
    target_key = None if chosen.target is None else table.keys[chosen.target]
    target_name = "" if target_key is None else _called(target_key, TARGET_ROLES[kind])
    parse = _target_parser(kind, target_name, score_range, labels, len(texts) - 1 if kind == "pairs" else None)
    counter, count = ReadingCounter(source.short_name), 0
    targets: list[Any] = []
    outside: list[tuple[str, float | str]] = []
    for row in table.read(None):
        count += 1
        try:
            if row.problem:
                raise RefusedCell(row.problem)
            row_texts = [_text_cell(row.values.get(key), called) for _, key, called in text_cells]
            if target_key is not None:
                targets.append(parse(row.values.get(target_key)))
        except RefusedCell as refusal:
            counter.refuse(row.place, str(refusal), list(row.values.values()))
            if isinstance(refusal, OutsideCell):
                outside.append((row.place, refusal.value))
            continue
        for (column, _, _), text in zip(text_cells, row_texts, strict=True):
            column.append(text)
    notes = (*table.notes, *chosen.note, *_unused_note(table.names, kind, chosen.target))
    reading = counter.reading(count, notes)
    if outside and not drop_outside:
        raise InputError(f"{label}: {_outside_message(outside, count, score_range, targets, labels)}")
    if reading.rows == 0:
        raise DataError(f"{label}: there is not a single row")
    if reading.used == 0:
        first = "; ".join(str(refused) for refused in reading.refused[:3])
        raise DataError(f"{label}: not one of its rows can be used ({reading}). The first: {first}")
    if target_key is None:
        return Examples(name, kind, texts, reading=reading)
    if kind == "scored" and score_range is None and not 0 <= min(targets) <= max(targets) <= 1:
        fits = _range_of(targets)
        raise InputError(
            f"{label}: {target_name} holds scores from {min(targets):g} to {max(targets):g}, which are not in 0..1: "
            f"pass their range, such as score_range=({fits}) or --score-range {fits.replace(' ', '')}"
        )
    names: tuple[str, ...] = ()
    if kind in ("labelled", "classified"):
        if labels is None:
            labels = infer_labels(targets, f"{label}: {target_name}", pairs=kind == "labelled", any_labels=any_labels)
            targets = [labels.ids[key] for key in targets]
        names = labels.names
    array = np.stack(targets) if kind in ("pairs", "taught") else np.asarray(targets, np.int64 if names else np.float32)
    groups = None
    if kind == "ranked":  # rows of a query together, queries in the order of their first row
        numbers: dict[str, int] = {}
        groups = np.asarray([numbers.setdefault(query, len(numbers)) for query in texts["query"]], dtype=np.int64)
        order = np.argsort(groups, kind="stable")
        texts = {role: [column[row] for row in order] for role, column in texts.items()}
        array, groups = array[order], groups[order]
    return Examples(name, kind, texts, array, names, groups, reading)


def _target_parser(
    kind: Kind, column: str, score_range: tuple[float, float] | None, labels: Any, size: int | None
) -> Callable[[object], Any]:
    """Return the function that reads a target cell, or raises `RefusedCell`."""
    from munjang.data.labels import label_cell

    def score(value: object) -> float:
        number = _number_cell(value, column)
        if score_range is None or kind == "ranked":
            return number
        low, high = score_range
        if not low <= number <= high:
            raise OutsideCell(f"{column} is outside {low:g}..{high:g}", number)
        return (number - low) / (high - low)

    def label(value: object) -> str | int:
        key = label_cell(value, column, None if labels is None else labels.ids)
        if labels is None:
            return key
        if key not in labels.ids:
            raise OutsideCell(f"{column} is not in the label map", key)
        return int(labels.ids[key])

    def numbers(value: object) -> npt.NDArray[np.float32]:
        nonlocal size
        refuse_missing(plain_value(value), column)
        try:
            array = np.atleast_1d(np.asarray(value, dtype=np.float32))
        except (TypeError, ValueError):
            raise RefusedCell(f"{column} is not a list of numbers") from None
        if array.ndim != 1 or array.size == 0:
            raise RefusedCell(f"{column} is not a list of numbers")
        if size is not None and array.size != size:
            raise RefusedCell(f"{column} does not hold {size} numbers")
        if not np.isfinite(array).all():
            raise RefusedCell(f"{column} holds a number that is not finite")
        size = array.size
        return array

    if kind in ("scored", "ranked"):
        return score
    return label if kind in ("labelled", "classified") else numbers


def _text_cell(value: object, column: str) -> str:
    if isinstance(value, str):
        if not value or value.isspace():
            raise RefusedCell(f"{column} is empty")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise RefusedCell(f"{column} holds half a surrogate pair") from None
        return value if type(value) is str else str(value)
    refuse_missing(plain_value(value), column)
    raise RefusedCell(f"{column} is no text")


def _number_cell(value: object, column: str) -> float:
    value = plain_value(value)
    refuse_missing(value, column)
    if isinstance(value, str) and not value.strip():
        raise RefusedCell(f"{column} is empty")
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # TypeError is caught
    except (TypeError, ValueError):
        raise RefusedCell(f"{column} is not a number") from None
    if isinstance(value, bool):
        raise RefusedCell(f"{column} is not a number")
    if not math.isfinite(number):
        raise RefusedCell(f"{column} is not a finite number")
    return number


def plain_value(value: object) -> object:
    """Return the Python number of a numpy scalar, or of an array or tensor of one number."""
    if value is None or type(value) in (str, int, float):
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", 0) == 0 else value


def refuse_missing(value: object, column: str) -> None:
    """Raise `RefusedCell` for None, NaN and pandas' own marks."""
    if is_missing(value):
        raise RefusedCell(f"{column} is missing")


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Return the first names for a message, and how many more there are."""
    shown = ", ".join(map(_short, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _unused_note(names: Sequence[str], kind: Kind, target: int | None) -> list[str]:
    """Say that pairs count as positives although a column labels or scores them."""
    unused = [name for name in names if name.strip().lower() in (*PAIR_LABELS, *PAIR_SCORES)]
    return (
        [f"not used, every row is a positive: {', '.join(unused)}"]
        if kind == "pairs" and target is None and unused
        else []
    )


def _outside_message(
    outside: Sequence[tuple[str, float | str]], rows: int, score_range: tuple[float, float] | None,
    scores: Sequence[float], labels: Any,
) -> str:  # fmt: skip
    from munjang.data.labels import not_labels

    drop = "drop these rows with drop_outside=True (--drop-outside)"
    if score_range is not None:
        low, high = score_range
        found = [low + (high - low) * score for score in scores] + [float(value) for _, value in outside]
        fits = _range_of(found)
        places = ", ".join(f"{place}: {value}" for place, value in outside[:3]) + ("..." if len(outside) > 3 else "")
        return (
            f"{len(outside):,} of {rows:,} scores are outside the score range {low:g}..{high:g} ({places}). All of "
            f"them fit score_range=({fits}) (--score-range {fits.replace(' ', '')}); or {drop}"
        )
    counts = Counter(str(value) for _, value in outside)
    problem = not_labels(counts, rows, rows_per_label=1)
    advice = f". The column holds {problem}; if these are scores, use kind 'scored' (train sts)" if problem else ""
    shown = some_of([f"{name!r} ({count:,})" for name, count in counts.most_common()], 5)
    return (
        f"{len(outside):,} of {rows:,} labels are not in the label map ({some_of(labels.names)}): {shown}; the first "
        f"in {outside[0][0]}{advice}. Add them to label_map (--labels), or {drop}"
    )


def _range_of(scores: Sequence[float]) -> str:
    """The narrowest usual range that all scores fit, or else their extremes: '0, 5'."""
    low, high = min(scores), max(scores)
    first, last = next((one for one in _USUAL_RANGES if one[0] <= low and high <= one[1]), (low, high))
    return f"{first:g}, {last:g}"


def _called(name: str, role: str) -> str:
    """A column in messages: its name, or its role where it has a number only."""
    return role if name.isdecimal() or not name.strip() else name
