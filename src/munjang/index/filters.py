"""Which documents a search may find: a condition on their metadata, as a dict, as a text, and as a mask.

    {"category": "news", "year": {">=": 2020, "<": 2024}, "tag": {"in": ["a", "b"]}, "not": {"draft": True}}
    category=news and year>=2020 and year<2024 and tag in a,b and not draft=true

A condition holds for a document when its value, or one value of its list, meets it. A document without the field meets
none but `!=`, `not in` and `{"exists": False}`. Texts equal texts, numbers numbers, booleans booleans; texts are in the
order of their code points. A condition that no value of the field could meet, because all are of another kind, is an
error, as is a field that no document has. In the text form a word without quotes may mean a text, a number or a truth
value.

Filters come from strangers: their length, nesting, conditions and values are limited, and both forms are read in linear
time. A number must lie within the range of a float.
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from munjang.errors import InputError, brief
from munjang.index.columns import Column, Columns, Kind, Mask, Range
from munjang.index.state import State

_LARGEST = int(np.finfo(np.float64).max)
Sign = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "exists"]

MAX_CHARACTERS = 100_000  # of a text, or of all names and texts in a dict
MAX_DEPTH = 32  # brackets and `not`, or dicts in dicts
MAX_CONDITIONS = 500  # each is a pass over all documents
MAX_VALUES = 10_000  # in all lists together


@dataclass(frozen=True)
class Value:
    """What a field is compared with: one value, or what a word without quotes may mean."""

    text: str | None = None
    number: int | float | None = None
    boolean: bool | None = None

    @classmethod
    def of(cls, given: object, field: str) -> Value:
        given = given.item() if isinstance(given, np.generic) else given
        if isinstance(given, str):
            return cls(text=given)
        if isinstance(given, bool):
            return cls(boolean=given)
        if isinstance(given, int | float) and given == given:
            return cls(number=_in_range(given, field))
        raise InputError(
            f"filter: {brief(field)} can be compared with a text, a number, True or False, got "
            f"{type(given).__name__}: {brief(given)}"
        )

    @property
    def kinds(self) -> set[Kind]:
        meant: dict[Kind, object] = {"text": self.text, "number": self.number, "boolean": self.boolean}
        return {kind for kind, value in meant.items() if value is not None}

    @property
    def meanings(self) -> list[str | int | float | bool]:
        return [value for value in (self.text, self.number, self.boolean) if value is not None]


class Filter(ABC):
    """A condition on documents; `from_dict` and `parse` make one."""

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Filter:
        """The dict form. Its entries must all hold."""
        _check_dict(given)
        return _from_dict(given)

    def mask(self, state: State, columns: Columns) -> Mask:
        """Which of the passages of `state.numbers()` belong to documents that meet the condition: [n]."""
        layout = state.layout
        found, names = columns.of(state, self.fields())
        if not names and not len(layout.rows):
            return np.zeros(0, np.bool_)  # an empty index has no fields, and that is no mistake of the filter
        self.check_names(names)
        documents = self.documents(found)
        return documents[layout.positions]

    def check_names(self, names: Set[str]) -> None:
        """Raise where it looks at a field that no document has."""
        unknown = sorted(set(self.fields()) - names)
        if unknown:
            there = ", ".join(map(brief, sorted(names)[:30])) or "none"
            raise InputError(f"filter: no document has the field {brief(unknown[0])}; the fields are: {there}")

    @abstractmethod
    def fields(self) -> Iterator[str]:
        """The names of all fields that it looks at."""

    @abstractmethod
    def documents(self, columns: Mapping[str, Column]) -> Mask:
        """Which documents meet it."""


@dataclass(frozen=True)
class Comparison(Filter):
    """One field against one value, or several for `in`; `exists` has True or False."""

    field: str
    sign: Sign
    values: tuple[Value, ...]

    def fields(self) -> Iterator[str]:
        yield self.field

    def documents(self, columns: Mapping[str, Column]) -> Mask:
        column = columns[self.field]
        if self.sign == "exists":
            return column.exists() if self.values[0].boolean else ~column.exists()
        self._check(column)
        if self.sign in get_args(Range):
            return self._ordered(column)
        found = column.equal([meaning for value in self.values for meaning in value.meanings])
        return found if self.sign in ("=", "in") else ~found

    def _ordered(self, column: Column) -> Mask:
        value = self.values[0]
        limit = value.number if value.number is not None else value.text
        assert limit is not None  # `_check` saw to it
        return column.ordered(cast(Range, self.sign), limit)

    def _check(self, column: Column) -> None:
        """Raise where the kinds of the field's values and of what they are compared with cannot meet."""
        there = column.present
        meant = {kind for value in self.values for kind in value.kinds}
        if self.sign in get_args(Range):
            meant = {"number"} if "number" in meant else meant - {"boolean"}
            if not meant:
                raise InputError(f"filter: {brief(self.field)} {self.sign} needs a number or a text, got true or false")
        if there and meant and not there & meant:
            hint = "; in quotes a number is a text" if meant == {"number"} and there == {"text"} else ""
            raise InputError(
                f"filter: {brief(self.field)} {self.sign} {self._shown()} compares with a {_words(meant)}, but the "
                f"values of {brief(self.field)} are {_words(there, plural=True)}{hint}"
            )

    def _shown(self) -> str:
        return ", ".join(brief(value.meanings[0]) for value in self.values[:3])


@dataclass(frozen=True)
class All(Filter):
    """Every part must hold."""

    parts: tuple[Filter, ...]

    def fields(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.fields()

    def documents(self, columns: Mapping[str, Column]) -> Mask:
        return functools.reduce(np.logical_and, (part.documents(columns) for part in self.parts))


@dataclass(frozen=True)
class Any_(Filter):
    """One part must hold."""

    parts: tuple[Filter, ...]

    def fields(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.fields()

    def documents(self, columns: Mapping[str, Column]) -> Mask:
        return functools.reduce(np.logical_or, (part.documents(columns) for part in self.parts))


@dataclass(frozen=True)
class Not(Filter):
    """The part must not hold."""

    part: Filter

    def fields(self) -> Iterator[str]:
        yield from self.part.fields()

    def documents(self, columns: Mapping[str, Column]) -> Mask:
        return ~self.part.documents(columns)


def as_filter(given: Filter | Mapping[str, Any] | str | None) -> Filter | None:
    """A filter from whatever a caller has: a dict, a text, a Filter, nothing."""
    if given is None or isinstance(given, Filter):
        return given
    if isinstance(given, str):
        return parse(given)
    if isinstance(given, Mapping):
        return Filter.from_dict(given) if given else None
    raise InputError(f"filter must be a dict, a text or None, got {type(given).__name__}")


def _in_range(number: int | float, field: str) -> int | float:
    if math.isfinite(number) if isinstance(number, float) else abs(number) <= _LARGEST:
        return number
    raise InputError(
        f"filter: {brief(field)} is compared with {brief(number)}, a number beyond the range of a float (1.8e308); a "
        "text needs quotes"
    )


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise InputError(
            f"filter: expected at most {most:,} {what}, got {count:,}: make it shorter, or search in parts"
        )


def _words(kinds: set[Kind], *, plural: bool = False) -> str:
    names: dict[Kind, str] = {"number": "number", "text": "text", "boolean": "truth value"}
    if plural:
        return " and ".join(sorted(names[kind] + "s" for kind in kinds))
    return " or a ".join(sorted(names[kind] for kind in kinds))


# --- the dict form ----------------------------------------------------------------------------------------------------


def _check_dict(given: object) -> None:
    """Raise where it is larger than a filter may be, before anything is made of it."""
    characters = conditions = values = 0
    waiting: list[tuple[object, int]] = [(given, 1)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, str):
            characters += len(part)
        elif isinstance(part, Mapping):
            _check("levels of dicts", depth, MAX_DEPTH)
            _check("entries in a dict", len(part), MAX_VALUES)
            for name, wanted in part.items():
                waiting += [(name, depth), (wanted, depth + 1)]
                conditions += name not in ("and", "or") and not isinstance(wanted, Mapping)
        elif isinstance(part, list | tuple | set | frozenset):
            values += len(part)
            _check("values in lists", values, MAX_VALUES)
            waiting += [(value, depth) for value in part]
        _check("characters", characters, MAX_CHARACTERS)
        _check("conditions", conditions, MAX_CONDITIONS)


def _from_dict(given: object) -> Filter:
    if not isinstance(given, Mapping) or not given:
        raise InputError(f'filter: expected a dict such as {{"category": "news"}}, got {brief(given)}')
    parts: list[Filter] = []
    for name, wanted in given.items():
        if not isinstance(name, str):
            raise InputError(f"filter: a field must be named by a text, got {brief(name)}")
        if name in ("and", "or"):
            if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
                raise InputError(f"filter: {name!r} needs a list of dicts, got {brief(wanted)}")
            inner = tuple(_from_dict(one) for one in wanted)
            parts.append(All(inner) if name == "and" else Any_(inner))
        elif name == "not":
            parts.append(Not(_from_dict(wanted)))
        elif isinstance(wanted, Mapping):
            parts.extend(_comparison(name, sign, value) for sign, value in wanted.items())
        else:
            parts.append(_comparison(name, "in" if isinstance(wanted, list | tuple | set) else "=", wanted))
    if not parts:
        raise InputError(f"filter: {brief(given)} says nothing")
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _comparison(field: str, sign: object, wanted: object) -> Filter:
    sign = "=" if sign == "==" else sign
    if sign not in get_args(Sign):
        raise InputError(f"filter: {brief(field)} is compared by one of {', '.join(get_args(Sign))}, got {brief(sign)}")
    if sign in ("=", "!=") and wanted is None:
        return Comparison(field, "exists", (Value(boolean=sign == "!="),))
    if sign == "exists":
        if not isinstance(wanted, bool):
            raise InputError(f"filter: 'exists' of {brief(field)} is True or False, got {brief(wanted)}")
        return Comparison(field, "exists", (Value(boolean=wanted),))
    if sign in ("in", "not in"):
        if not isinstance(wanted, list | tuple | set | frozenset):
            raise InputError(f"filter: {sign!r} of {brief(field)} needs a list, got {brief(wanted)}")
        return Comparison(field, sign, tuple(Value.of(one, field) for one in wanted))
    return Comparison(field, cast(Sign, sign), (Value.of(wanted, field),))


# --- the text form ----------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*") | (?P<sign><=|>=|!=|==|=|<|>) | (?P<mark>[(),])
        | (?P<word>[^\s=<>!(),'"]+) )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")  # each digit in one way only: linear
_LONGEST_INTEGER = 400  # digits; more are beyond the range of a float, and int() refuses 4,301
Token = tuple[str, str, int]  # kind, text, where it begins


def parse(text: str) -> Filter:
    """The text form: `category=news and year>=2020 and not (tag in a,b)`. Names and values with spaces in quotes."""
    return _Parser(text).whole()


class _Parser:
    """Recursive descent: or < and < not < comparison."""

    def __init__(self, text: str) -> None:
        _check("characters", len(text), MAX_CHARACTERS)
        self._text = text
        self._depth = self._conditions = self._count = 0
        self._tokens = list(_tokens(text))
        self._at = 0

    def whole(self) -> Filter:
        if len(self._tokens) == 1:
            raise InputError("filter: the text is empty; write for example: category=news and year>=2020")
        found = self._either()
        if self._kind != "end":
            raise self._error("'and', 'or' or the end")
        return found

    def _either(self) -> Filter:
        parts = [self._both()]
        while self._word("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Any_(tuple(parts))

    def _both(self) -> Filter:
        parts = [self._one()]
        while self._word("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self) -> Filter:
        negated = self._word("not")
        if not negated and not self._mark("("):
            return self._compared()
        self._depth += 1
        _check("levels of brackets and 'not'", self._depth, MAX_DEPTH)
        found = Not(self._one()) if negated else self._either()
        if not negated and not self._mark(")"):
            raise self._error("')'")
        self._depth -= 1
        return found

    def _compared(self) -> Filter:
        if self._kind not in ("word", "quoted"):
            raise self._error("the name of a field")
        self._conditions += 1
        _check("conditions", self._conditions, MAX_CONDITIONS)
        field = _unquoted(self._next()) if self._kind == "quoted" else self._next()
        if self._kind == "sign":
            sign = self._next()
            return Comparison(field, cast(Sign, "=" if sign == "==" else sign), (self._value(field),))
        if self._word("exists"):
            return Comparison(field, "exists", (Value(boolean=True),))
        negated = self._word("not")
        if not self._word("in"):
            raise self._error(f"=, !=, <, <=, >, >=, in, not in or exists after {brief(field)}")
        return Comparison(field, "not in" if negated else "in", tuple(self._values(field)))

    def _values(self, field: str) -> list[Value]:
        bracket = self._mark("(")
        values = [self._value(field)]
        while self._mark(","):
            values.append(self._value(field))
        self._count += len(values)
        _check("values in lists", self._count, MAX_VALUES)
        if bracket and not self._mark(")"):
            raise self._error("',' or ')'")
        return values

    def _value(self, field: str) -> Value:
        if self._kind == "quoted":
            return Value(text=_unquoted(self._next()))
        if self._kind != "word":
            raise self._error("a value")
        word = self._next()
        number: int | float | None = None
        if _NUMBER.fullmatch(word):
            number = float(word) if set(word) & set(".eE") or len(word) > _LONGEST_INTEGER else int(word)
            number = _in_range(number, field)
        truth = {"true": True, "false": False}.get(word.lower())
        return Value(text=word, number=number, boolean=truth)

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _word(self, wanted: str) -> bool:
        kind, text, _ = self._tokens[self._at]
        found = kind == "word" and text.lower() == wanted
        self._at += found
        return found

    def _mark(self, wanted: str) -> bool:
        found = self._tokens[self._at][:2] == ("mark", wanted)
        self._at += found
        return found

    def _error(self, expected: str) -> InputError:
        kind, text, place = self._tokens[self._at]
        came = "the text ends" if kind == "end" else f"there is {brief(text)}"
        return InputError(f"filter: expected {expected} at character {place + 1} of {brief(self._text)}, but {came}")


def _tokens(text: str) -> Iterator[Token]:
    place = 0
    while match := _TOKEN.match(text, place):
        kind = match.lastgroup or ""
        yield kind, match.group(kind), match.start(kind)
        place = match.end()
    rest = text[place:].lstrip()
    if rest:
        raise InputError(
            f"filter: cannot read {rest[:10]!r} at character {len(text) - len(rest) + 1} of {brief(text)}; a quote "
            "must be closed, and '!' stands before '='"
        )
    yield "end", "", len(text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
