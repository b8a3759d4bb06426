"""Rows -> the columns and targets of `Examples`, with a report of every row that is refused.

A damaged row of examples can be left out, unlike a text that is encoded row by row; it is refused, counted under its
reason, and the first ones are kept with their place. Cells of text files are strings; those of JSON, Parquet or objects
in memory may be numbers, None, NaN, numpy scalars or tensors of one number. The string "nan" is a text; a float NaN is
a missing cell and never becomes the text "nan".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.columns import (
    PAIR_LABELS,
    PAIR_SCORES,
    ROLES,
    Kind,
    check_kind,
    choose_columns,
    has_numbered_columns,
    shortened,
    some_of,
)  # fmt: skip
from munjang.data.rows import Format, ReadOptions, RowSource, Source, check_characters, is_missing, open_rows
from munjang.errors import DataError, InputError

if TYPE_CHECKING:
    from munjang.data.examples import Examples

Array: TypeAlias = npt.NDArray[Any]
LabelMap = Mapping[str, int] | Mapping[int, str] | Mapping[str, str] | Mapping[int, int] | Sequence[str]
NLI_LABELS = ("entailment", "neutral", "contradiction")  # the order of SNLI and KLUE
_NO_GOLD = ("-", "-1")  # SNLI's marks for pairs on which the annotators did not agree
_MANY_CLASSES = 10  # from here on, a class needs several rows
_MANY_NUMBERS = 50  # different whole numbers with gaps are scores or ids
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_SHOWN = 20  # refused rows that a report keeps
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
        return self.plus(Reading(used=-sum(counts.values()), refused_counts=dict(counts), notes=notes))

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
    """A cell cannot be used; the message is the reason.

    outside: a valid value, but not of the score range or the label map that the caller declared.
    """

    def __init__(self, reason: str, outside: float | str | None = None) -> None:
        super().__init__(reason)
        self.outside = outside


class ReadingCounter:
    """Counts refused rows while a source is read."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._first: list[Refused] = []
        self._counts: Counter[str] = Counter()

    def refuse(self, place: str, reason: str, cells: Collection[object]) -> None:
        """Count a row that cannot be used."""
        self._counts[reason] += 1
        if len(self._first) < _SHOWN:
            shown = " | ".join("" if cell is None else str(cell) for cell in cells).replace("\n", " ")
            self._first.append(Refused(f"{self._source} {place}".lstrip(), reason, shortened(shown)))

    def reading(self, rows: int, notes: tuple[str, ...] = ()) -> Reading:
        """Return the report on this number of rows, refused ones included."""
        used = rows - self._counts.total()
        return Reading(self._source, rows, used, tuple(self._first), dict(self._counts), notes)


def read_examples(
    source: Source | RowSource,
    *,
    kind: Kind,
    columns: Mapping[str, str | int] | None = None,
    score_range: tuple[float, float] | None = None,
    label_map: LabelMap | None = None,
    any_labels: bool = False,
    drop_outside: bool = False,
    format: Format | None = None,
    encoding: str | None = None,
    name: str | None = None,
) -> Examples:
    """Read a file of examples: csv, tsv, jsonl, json or Parquet; plain texts also from txt, one on each line.

    Args:
        source: a path, anything else that `open_rows` takes, or what it returns (with its own format and encoding).
        kind: scored, labelled, pairs, classified, ranked, taught or plain.
        columns: role -> name or number (from 0; the file has no header then) of a column. The roles: a, b, score or
            label; anchor, positive, negative; text, label; query, document, relevance; text, translation, vector.
            Others are guessed from usual names.
        score_range: of the scores in the file, such as (0, 5); by default they must be in 0..1.
        label_map: names in the order of their ids, or a map from what the file has to ids or names; numbers need one.
        any_labels: without a map, take every distinct value as a label, also where they look like scores or texts.
        drop_outside: leave out and count rows outside of `score_range` or `label_map`, which are an error otherwise.
        format, encoding: of a path; default: from its suffix, detected.
        name: of the examples; default: that of the file.

    Returns:
        Examples, whose `reading` reports refused rows and guessed columns.

    Raises:
        DataError: the file cannot be read, or holds no usable row.
        InputError: scores or labels are not as declared.

    Example:
        >>> pairs = read_examples("pairs.csv", kind="scored", score_range=(0, 5))  # doctest: +SKIP
    """
    from munjang.data.examples import Examples

    check_kind(kind)
    if score_range is not None and not score_range[0] < score_range[1]:
        raise InputError(f"score_range must be (lowest, highest), got {score_range}")
    if score_range is not None and kind != "scored":
        raise InputError(f"score_range is for examples of kind 'scored', not {kind!r}")
    if label_map is not None and kind not in ("labelled", "classified"):
        raise InputError(f"label_map is for examples of kind 'labelled' or 'classified', not {kind!r}")
    if not isinstance(source, RowSource):
        options = ReadOptions(format, encoding, header=not has_numbered_columns(columns))
        source = open_rows(source, options=options, name=name or "")
    label = source.short_name or "the rows"
    table = source.open()
    if kind != "plain" and not table.has_names:
        raise DataError(f"{source.name}: a txt file has no columns. Expected csv, tsv, jsonl, json or parquet")
    if not table.names:
        raise DataError(f"{label}: there is not a single row")
    chosen = choose_columns(table.names, kind, columns, label)
    labels = None if label_map is None else read_label_map(label_map)
    texts: dict[str, list[str]] = {role: [] for role in chosen.texts}
    cells = [(texts[role], table.keys[at], _called(table.names[at], role)) for role, at in chosen.texts.items()]
    target_key, target_name, targets = "", "", []
    if chosen.target is not None:
        target_key = table.keys[chosen.target]
        target_name = _called(target_key, ROLES[kind].target or "")
    size = len(chosen.texts) - 1 if kind == "pairs" else None
    parse = _target_parser(kind, target_name, score_range, labels, size)
    counter, count = ReadingCounter(source.short_name), 0
    outside: list[tuple[str, float | str]] = []
    for row in table.read(None):
        count += 1
        try:
            if row.problem:
                raise RefusedCell(row.problem)
            row_texts = [_text_cell(row.values.get(key), called) for _, key, called in cells]
            if chosen.target is not None:
                targets.append(parse(_present(row.values.get(target_key), target_name)))
        except RefusedCell as refusal:
            counter.refuse(row.place, str(refusal), row.values.values())
            if refusal.outside is not None:
                outside.append((row.place, refusal.outside))
            continue
        for (column, _, _), text in zip(cells, row_texts, strict=True):
            column.append(text)
    unused = [name for name in table.names if name.strip().lower() in (*PAIR_LABELS, *PAIR_SCORES)]
    notes = (*table.notes, *chosen.note)
    if kind == "pairs" and chosen.target is None and unused:
        notes += (f"not used, every row is a positive: {', '.join(unused)}",)
    reading = counter.reading(count, notes)
    if outside and (not drop_outside or (kind == "scored" and score_range is None)):
        raise InputError(f"{label}: {_outside_message(outside, count, score_range, targets, labels)}")
    if reading.used == 0:
        first = "; ".join(map(str, reading.refused[:3]))
        problem = f"not one of its rows can be used ({reading}). The first: {first}"
        raise DataError(f"{label}: {problem if count else 'there is not a single row'}")
    if kind in ("labelled", "classified") and labels is None:
        labels = infer_labels(targets, f"{label}: {target_name}", pairs=kind == "labelled", any_labels=any_labels)
        targets = [labels.ids[key] for key in targets]
    array = None if chosen.target is None else np.asarray(targets, np.float32 if labels is None else np.int64)
    groups = None
    if kind == "ranked":  # rows of a query together, queries in the order of their first row
        numbers: dict[str, int] = {}
        groups = np.asarray([numbers.setdefault(query, len(numbers)) for query in texts["query"]], dtype=np.int64)
        order = np.argsort(groups, kind="stable")
        texts = {role: [column[row] for row in order] for role, column in texts.items()}
        array, groups = np.asarray(array)[order], groups[order]
    name = source.short_name if name is None else name
    return Examples(name, kind, texts, array, () if labels is None else labels.names, groups, reading)


def _target_parser(
    kind: Kind, column: str, score_range: tuple[float, float] | None, labels: Labels | None, size: int | None
) -> Callable[[object], Any]:
    """Return the function that reads a target that is present, or raises `RefusedCell`."""

    def score(value: object) -> float:
        if isinstance(value, str) and not value.strip():
            raise RefusedCell(f"{column} is empty")
        try:
            number = float(str(value) if isinstance(value, bool) else value)  # type: ignore[arg-type]  # it is caught
        except (TypeError, ValueError):
            raise RefusedCell(f"{column} is not a number") from None
        if not math.isfinite(number):
            raise RefusedCell(f"{column} is not a finite number")
        if kind == "ranked":
            return number
        low, high = score_range or (0.0, 1.0)
        if not low <= number <= high:
            raise RefusedCell(f"{column} is outside {low:g}..{high:g}", number)
        return (number - low) / (high - low)

    def label(value: object) -> str | int:
        if not isinstance(value, str | int | float):
            raise RefusedCell(f"{column} is neither a name nor a number")
        key = label_key(value)
        if not key:
            raise RefusedCell(f"{column} is empty")
        if labels is not None and key in labels.ids:
            return labels.ids[key]
        if key in _NO_GOLD:
            raise RefusedCell(f"{column} is {key}: no gold label")
        if labels is not None:
            raise RefusedCell(f"{column} is not in the label map", key)
        return key

    def numbers(value: object) -> npt.NDArray[np.float32]:
        nonlocal size
        try:
            array = np.atleast_1d(np.asarray(value, dtype=np.float32))
        except (TypeError, ValueError):
            array = np.zeros(0, np.float32)
        if array.ndim != 1 or array.size == 0:
            raise RefusedCell(f"{column} is not a list of numbers")
        if size is not None and array.size != size:
            raise RefusedCell(f"{column} does not hold {size} numbers")
        if not np.isfinite(array).all():
            raise RefusedCell(f"{column} holds a number that is not finite")
        size = array.size
        return array

    if kind in ("labelled", "classified"):
        return label
    return score if kind in ("scored", "ranked") else numbers


def _text_cell(value: object, column: str) -> str:
    if not isinstance(value, str):
        _present(value, column)
        raise RefusedCell(f"{column} is no text")
    if not value or value.isspace():
        raise RefusedCell(f"{column} is empty")
    try:
        check_characters(value)
    except DataError:
        raise RefusedCell(f"{column} holds half a surrogate pair") from None
    return str(value)


def plain_value(value: object) -> object:
    """Return the Python number of a numpy scalar, or of an array or tensor of one number."""
    if value is None or type(value) in (str, int, float):
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", 0) == 0 else value


def _present(value: object, column: str) -> object:
    """Return the plain value of a cell; None, NaN and pandas' own marks are refused."""
    value = plain_value(value)
    if is_missing(value):
        raise RefusedCell(f"{column} is missing")
    return value


def _outside_message(
    outside: Sequence[tuple[str, float | str]], rows: int, score_range: tuple[float, float] | None,
    scores: Sequence[float], labels: Labels | None,
) -> str:  # fmt: skip
    drop = "or drop these rows with drop_outside=True (--drop-outside)"
    if labels is None:
        low, high = score_range or (0.0, 1.0)
        every = [low + (high - low) * score for score in scores] + [float(value) for _, value in outside]
        lowest, highest = min(every), max(every)
        usual = ((first, last) for first, last in _USUAL_RANGES if first <= lowest and highest <= last)
        first, last = next(usual, (lowest, highest))
        places = ", ".join(f"{place}: {value}" for place, value in outside[:3]) + ("..." if len(outside) > 3 else "")
        return (
            f"{len(outside):,} of {rows:,} scores are outside the score range {low:g}..{high:g} ({places}). All of "
            f"them fit score_range=({first:g}, {last:g}) (--score-range {first:g},{last:g}): pass it"
            + ("" if score_range is None else f", {drop}")
        )
    counts = Counter(str(value) for _, value in outside)
    problem = not_labels(counts, rows, rows_per_label=1)
    advice = f". The column holds {problem}; if these are scores, use kind 'scored' (train sts)" if problem else ""
    shown = some_of([f"{name!r} ({count:,})" for name, count in counts.most_common()], 5)
    return (
        f"{len(outside):,} of {rows:,} labels are not in the label map ({some_of(labels.names)}): {shown}; the first "
        f"in {outside[0][0]}{advice}. Add them to label_map (--labels), {drop}"
    )


def _called(name: str, role: str) -> str:
    """A column in messages: its name, or its role where it has a number only."""
    return role if name.isdecimal() or not name.strip() else name


class Labels(NamedTuple):
    """Label names by id, and the id of every spelling in the data."""

    names: tuple[str, ...]
    ids: dict[str, int]


def read_label_map(label_map: LabelMap) -> Labels:
    """Read names in the order of their ids, or a map from what the data has to an id or to a name."""
    if isinstance(label_map, str) or not label_map:
        raise InputError(f"label_map must be names, or a map such as {{'entailment': 0}}; got {label_map!r}")
    if not isinstance(label_map, Mapping):
        names = tuple(map(str, label_map))
        ids = {label_key(name): at for at, name in enumerate(names)}
        if len(ids) != len(names):
            raise InputError(f"label names must differ from each other, got {', '.join(names)}")
        return Labels(names, {str(at): at for at in range(len(names))} | ids)
    values = list(label_map.values())
    if all(isinstance(value, str) for value in values):
        names = tuple(dict.fromkeys(map(str, values)))
        return Labels(names, {label_key(key): names.index(str(value)) for key, value in label_map.items()})
    by_id: dict[int, str] = {}
    for key, value in label_map.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(f"label_map must map to numbers only, or to names only; {key!r} maps to {value!r}")
        by_id.setdefault(int(value), label_key(key))
    if sorted(by_id) != list(range(len(by_id))):
        raise InputError(f"label_map must use the ids 0..{len(by_id) - 1} without gaps, got {sorted(by_id)}")
    ids = {label_key(key): int(value) for key, value in label_map.items()}
    return Labels(tuple(by_id[at] for at in range(len(by_id))), ids)


def label_key(value: object) -> str:
    """Return one spelling for the string, the integer and the whole float: '1', '1.0', 1, 1.0."""
    value = plain_value(value)
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value.strip())
        return str(int(whole[1])) if whole else value.strip()
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    return str(value)


def infer_labels(keys: Sequence[str], column: str, *, pairs: bool, any_labels: bool) -> Labels:
    """Make labels of the values of a column: NLI's three in their order, other names in alphabetical order.

    Raises:
        InputError: the values look like scores, ids or texts, or are numbers, whose meaning is unknown; `any_labels`
            takes them all the same.
    """
    names = sorted(set(keys))
    if not any_labels:
        problem = not_labels(names, len(keys), rows_per_label=4 if pairs else 2)
        if problem:
            scores = "; for scores use kind 'scored', or `munjang train sts` with --columns score=NAME"
            raise InputError(
                f"{column} holds {problem}, so it is probably not a column of labels. Name another column "
                f"(columns={{'label': NAME}}, --columns label=NAME){scores if pairs else ''}; or take every distinct "
                "value as a label with any_labels=True (--any-labels)"
            )
        numbers = [name for name in names if name.lstrip("-").isdecimal()]
        if numbers:
            raise InputError(
                f"{column} holds numbers ({', '.join(numbers[:5])}) without names: pass label_map, either the names in "
                "the order of their numbers or a map such as {'entailment': 0}; on the command line --labels NAME,NAME "
                "in their order, such as --labels different,same"
            )
    if set(names) <= set(NLI_LABELS):
        return read_label_map(NLI_LABELS)
    return Labels(tuple(names), {name: place for place, name in enumerate(names)})


def not_labels(names: Collection[str], rows: int, *, rows_per_label: int) -> str:
    """Describe distinct values that look like scores, ids or texts; an empty string where they look like labels."""
    numbers = [float(name) for name in names if _NUMBER.fullmatch(name)]
    shown = f"{len(names):,} distinct values in {rows:,} rows ({some_of(sorted(names), 5)})"
    if 2 * len(numbers) > len(names):
        if not all(number.is_integer() for number in numbers):
            return f"real numbers: {shown}"
        gaps = max(numbers) - min(numbers) + 1 > len(numbers)
        if gaps and len(numbers) > _MANY_NUMBERS:
            return f"many different numbers: {shown}"
    if len(names) >= _MANY_CLASSES and rows < rows_per_label * len(names):
        return f"nearly as many different values as rows: {shown}"
    return ""
