"""A `Filter` -> a condition in SQL on `d.fields`, with its parameters apart: no value ever becomes part of a statement.

`fields` holds every value in a list (see postgres_schema.py), so a comparison asks whether one of the list meets it.
Equality is containment, which the GIN index answers; ranges are JSON paths, in which a number is only ever compared
with a number and a text with a text, by code points. A condition is never NULL, so NOT means what it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from munjang.errors import InputError
from munjang.index.columns import Range
from munjang.index.filters import All, Any_, Comparison, Filter, Not, Value
from munjang.text.fast_words import LONE_SURROGATE

Condition = tuple[str, list[Any]]  # SQL with %s, and what stands in their places
_FALSE: Condition = ("false", [])


def condition(filter: Filter) -> Condition:
    """The SQL of a filter."""
    if isinstance(filter, Comparison):
        return _comparison(filter)
    if isinstance(filter, Not):
        return _not(condition(filter.part))
    if isinstance(filter, All | Any_):
        word = " AND " if isinstance(filter, All) else " OR "
        parts = [condition(part) for part in filter.parts]
        return "(" + word.join(text for text, _ in parts) + ")", [value for _, values in parts for value in values]
    raise InputError(f"filter: PostgreSQL cannot be asked for a {type(filter).__name__}")


def normal(metadata: Mapping[str, Any]) -> str:
    """Metadata as `fields` holds it: JSON in which every value is a list, and what is missing is not there."""
    found = {name: value if isinstance(value, list) else [value] for name, value in metadata.items()}
    kept = {name: [_exact(one) for one in values if one is not None] for name, values in found.items()}
    return json.dumps({name: values for name, values in kept.items() if values}, ensure_ascii=False)


def _exact(value: Any) -> Any:
    """A whole float as an integer: its shortest digits are not those of its value beyond 2**53."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _comparison(asked: Comparison) -> Condition:
    if not _storable(asked.field):
        return ("true", []) if asked.sign in ("!=", "not in") or _absence(asked) else _FALSE
    if asked.sign == "exists":
        found: Condition = ("coalesce(d.fields -> %s::text, 'null') <> 'null'", [asked.field])
        return _not(found) if _absence(asked) else found
    if asked.sign in get_args(Range):
        return _ordered(asked.field, asked.sign, asked.values[0])
    meanings = [meaning for value in asked.values for meaning in value.meanings if _storable(meaning)]
    if not meanings:
        equal = _FALSE
    else:
        equal = (
            "(" + " OR ".join(["d.fields @> %s::jsonb"] * len(meanings)) + ")",
            [json.dumps({asked.field: [_exact(one)]}, ensure_ascii=False) for one in meanings],
        )
    return equal if asked.sign in ("=", "in") else _not(equal)


def _absence(asked: Comparison) -> bool:
    return asked.sign == "exists" and not asked.values[0].boolean


def _not(part: Condition) -> Condition:
    return f"NOT {part[0]}", part[1]


def _ordered(field: str, sign: str, value: Value) -> Condition:
    """One value of the list on that side; a number before a text where a word may mean both."""
    limit = value.number if value.number is not None else value.text
    if isinstance(limit, str) and not _storable(limit):
        raise InputError(f"filter: {field!r} {sign} {limit!r:.60} has a character that PostgreSQL cannot compare with")
    kind = "string" if isinstance(limit, str) else "number"
    return _path(f'$[*] ? (@.type() == "{kind}" && @ {sign} $x)', field, {"x": _exact(limit)})


def _path(path: str, field: str, values: Mapping[str, Any]) -> Condition:
    asked = json.dumps(values, ensure_ascii=False)
    text = "coalesce(jsonb_path_exists(d.fields -> %s::text, %s::jsonpath, %s::jsonb), false)"
    return text, [field, path, asked]


def _storable(value: object) -> bool:
    """Whether PostgreSQL could hold it at all: it has no NUL."""
    return not isinstance(value, str) or storable_text(value)


def storable_text(text: str) -> bool:
    """Whether a text can stand in PostgreSQL: the character NUL cannot."""
    return "\0" not in text and LONE_SURROGATE.search(text) is None
