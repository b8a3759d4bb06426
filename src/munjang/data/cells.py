"""One cell of a table -> a text, a score or a label, or a Refusal that says why not.

Cells come from text files (always strings), from JSON, Parquet or dicts (numbers, None, NaN, numpy scalars, tensors
of one number). The string "nan" in a file is a text like any other; a float NaN is what pandas makes of an empty
cell, and counts as missing: it never becomes the text "nan".
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from munjang.data.reading import Outside, Refusal, some_of
from munjang.errors import InputError

NLI_LABELS = ("entailment", "neutral", "contradiction")  # the order of SNLI and KLUE
_NO_GOLD = ("-", "-1")  # SNLI's marks for pairs on which the annotators did not agree
_MANY_CLASSES = 10  # from here on, a class needs several rows to be taken for one
_MANY_NUMBERS = 50  # different whole numbers with gaps: scores or ids
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)

LabelMap = Mapping[str, int] | Mapping[int, str] | Mapping[str, str] | Mapping[int, int] | Sequence[str]


def text_cell(value: object, column: str) -> str:
    """The text, as it is, or a Refusal."""
    if isinstance(value, str):
        if not value or value.isspace():
            raise Refusal(f"{column} is empty")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Refusal(f"{column} holds half a surrogate pair") from None
        return value if type(value) is str else str(value)
    _refuse_missing(_plain(value), column)
    raise Refusal(f"{column} is no text")


def score_cell(value: object, column: str, score_range: tuple[float, float] | None) -> float:
    """The number, brought from its range to 0..1; as it is where no range is given."""
    number = number_cell(value, column)
    if score_range is None:
        return number
    low, high = score_range
    if not low <= number <= high:
        raise Outside(f"{column} is outside {low:g}..{high:g}", number)
    return (number - low) / (high - low)


def number_cell(value: object, column: str) -> float:
    """A finite number, or a Refusal."""
    value = _plain(value)
    if isinstance(value, str):
        if not value.strip():
            raise Refusal(f"{column} is empty")
        try:
            number = float(value)
        except ValueError:
            raise Refusal(f"{column} is not a number") from None
    else:
        _refuse_missing(value, column)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Refusal(f"{column} is not a number")
        number = float(value)
    if not math.isfinite(number):
        raise Refusal(f"{column} is not a finite number")
    return number


def numbers_cell(value: object, column: str, size: int | None) -> npt.NDArray[np.float32]:
    """A list of finite numbers, of the given size where there is one."""
    _refuse_missing(_plain(value), column)
    try:
        numbers = np.atleast_1d(np.asarray(value, dtype=np.float32))
    except (TypeError, ValueError):
        raise Refusal(f"{column} is not a list of numbers") from None
    if numbers.ndim != 1 or numbers.size == 0:
        raise Refusal(f"{column} is not a list of numbers")
    if size is not None and numbers.size != size:
        raise Refusal(f"{column} does not hold {size} numbers")
    if not np.isfinite(numbers).all():
        raise Refusal(f"{column} holds a number that is not finite")
    return numbers


@dataclass(frozen=True)
class Labels:
    """The names of the labels by id, and the id of every spelling that data may use."""

    names: tuple[str, ...]
    ids: dict[str, int]

    @classmethod
    def of(cls, given: LabelMap) -> Labels:
        """From names in the order of their ids, or a map from what stands in the data to an id or to a name."""
        if isinstance(given, str) or not given:
            raise InputError(f"label_map must be names, or a map such as {{'entailment': 0}}; got {given!r}")
        if not isinstance(given, Mapping):
            names = tuple(str(name) for name in given)
            if len({label_key(name) for name in names}) != len(names):
                raise InputError(f"label names must differ from each other, got {', '.join(names)}")
            spelled = {str(place): place for place in range(len(names))}
            return cls(names, {**spelled, **{label_key(name): place for place, name in enumerate(names)}})
        values = list(given.values())
        if all(isinstance(value, str) for value in values):
            named = list(dict.fromkeys(str(value) for value in values))
            return cls(tuple(named), {label_key(key): named.index(str(value)) for key, value in given.items()})
        return cls._numbered({label_key(key): value for key, value in given.items()})

    @classmethod
    def _numbered(cls, given: Mapping[str, object]) -> Labels:
        ids: dict[str, int] = {}
        names: dict[int, str] = {}
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise InputError(f"label_map must lead to numbers only, or to names only; {key!r} leads to {value!r}")
            ids[key] = int(value)
            names.setdefault(int(value), key)
        if sorted(names) != list(range(len(names))):
            raise InputError(f"label_map must use the ids 0..{len(names) - 1} without gaps, got {sorted(names)}")
        return cls(tuple(names[place] for place in range(len(names))), ids)

    def find(self, value: object, column: str) -> int:
        """The id of a cell's label, or a Refusal."""
        key = label_cell(value, column, known=self.ids)
        if key not in self.ids:
            raise Outside(f"{column} is not in the label map", key)
        return self.ids[key]


def label_cell(value: object, column: str, *, known: Mapping[str, int] | None = None) -> str:
    """What a label is called in the data; a row without a gold label is refused, unless its mark is a known label."""
    plain = _plain(value)
    _refuse_missing(plain, column)
    if not isinstance(plain, (str, int, float)):
        raise Refusal(f"{column} is neither a name nor a number")
    key = label_key(plain)
    if not key:
        raise Refusal(f"{column} is empty")
    if key in _NO_GOLD and not (known and key in known):
        raise Refusal(f"{column} is {key}: no gold label")
    return key


def label_key(value: object) -> str:
    """One spelling for the string, the integer and the whole float: '1', '1.0', 1, 1.0."""
    value = _plain(value)
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value.strip())
        return str(int(whole[1])) if whole else value.strip()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def found_labels(keys: Sequence[str], column: str, *, pairs: bool) -> Labels:
    """Labels where no map was given: names in alphabetical order, or NLI's three; numbers have no meaning alone."""
    names = sorted(set(keys))
    problem = not_labels(names, len(keys), rows_per_label=4 if pairs else 2)
    if problem:
        scores = (
            "; for scores use examples of kind 'scored', or `munjang train sts` with --columns score=NAME"
            if pairs
            else ""
        )
        raise InputError(
            f"{column} holds {problem}, so it is probably not a column of labels. Name another column"
            f" (columns={{'label': NAME}}, --columns label=NAME){scores}; or take every distinct value as a label with"
            " any_labels=True (--any-labels)"
        )
    numbers = [name for name in names if name.lstrip("-").isdecimal()]
    if numbers:
        raise InputError(
            f"{column} holds numbers ({', '.join(numbers[:5])}), and nothing says what they mean:"
            " pass label_map, either the names in the order of their numbers or a map such as {'entailment': 0}; on the"
            " command line --labels NAME,NAME in their order, such as --labels different,same"
        )
    return all_labels(names)


def all_labels(keys: Collection[str]) -> Labels:
    """Every distinct value as a label."""
    names = sorted(set(keys))
    if set(names) <= set(NLI_LABELS):
        return Labels.of(NLI_LABELS)
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


def _plain(value: object) -> object:
    """A numpy scalar, or an array or tensor of one number, as the Python number it holds."""
    if value is None or isinstance(value, (str, int, float)):
        return value.item() if isinstance(value, np.generic) else value
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        plain: object = item()
        return plain
    return value


def _refuse_missing(value: object, column: str) -> None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise Refusal(f"{column} is missing")
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' own marks
        raise Refusal(f"{column} is missing")
