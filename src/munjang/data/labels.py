"""Labels as data sets write them -> label ids, and the signs that a column does not hold labels."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from munjang.data.reading import RefusedCell, plain_value, refuse_missing, some_of
from munjang.errors import InputError

LabelMap = Mapping[str, int] | Mapping[int, str] | Mapping[str, str] | Mapping[int, int] | Sequence[str]
NLI_LABELS = ("entailment", "neutral", "contradiction")  # the order of SNLI and KLUE
_NO_GOLD = ("-", "-1")  # SNLI's marks for pairs on which the annotators did not agree
_MANY_CLASSES = 10  # from here on, a class needs several rows
_MANY_NUMBERS = 50  # different whole numbers with gaps are scores or ids
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


class Labels(NamedTuple):
    """Label names by id, and the id of every spelling in the data."""

    names: tuple[str, ...]
    ids: dict[str, int]


def read_label_map(label_map: LabelMap) -> Labels:
    """Read names in the order of their ids, or a map from what the data has to an id or to a name."""
    if isinstance(label_map, str) or not label_map:
        raise InputError(f"label_map must be names, or a map such as {{'entailment': 0}}; got {label_map!r}")
    if not isinstance(label_map, Mapping):
        names = tuple(str(name) for name in label_map)
        if len({label_key(name) for name in names}) != len(names):
            raise InputError(f"label names must differ from each other, got {', '.join(names)}")
        ids = {str(place): place for place in range(len(names))}
        return Labels(names, ids | {label_key(name): place for place, name in enumerate(names)})
    values = list(label_map.values())
    if all(isinstance(value, str) for value in values):
        names = tuple(dict.fromkeys(map(str, values)))
        return Labels(names, {label_key(key): names.index(str(value)) for key, value in label_map.items()})
    ids = {}
    by_id: dict[int, str] = {}
    for key, value in label_map.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(f"label_map must map to numbers only, or to names only; {key!r} maps to {value!r}")
        ids[label_key(key)] = int(value)
        by_id.setdefault(int(value), label_key(key))
    if sorted(by_id) != list(range(len(by_id))):
        raise InputError(f"label_map must use the ids 0..{len(by_id) - 1} without gaps, got {sorted(by_id)}")
    return Labels(tuple(by_id[place] for place in range(len(by_id))), ids)


def label_cell(value: object, column: str, known: Mapping[str, int] | None = None) -> str:
    """Return the key of a cell's label; a row without a gold label is refused unless its mark is a known label."""
    plain = plain_value(value)
    refuse_missing(plain, column)
    if not isinstance(plain, str | int | float):
        raise RefusedCell(f"{column} is neither a name nor a number")
    key = label_key(plain)
    if not key:
        raise RefusedCell(f"{column} is empty")
    if key in _NO_GOLD and not (known and key in known):
        raise RefusedCell(f"{column} is {key}: no gold label")
    return key


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
