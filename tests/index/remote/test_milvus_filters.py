"""Metadata and filters as Milvus reads them: without a server, the expression is read as Milvus would."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.index.columns import columns_of
from munjang.index.filters import Filter, as_filter
from munjang.index.remote.milvus_filters import LONGEST_LIMIT, expression, facets

NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), -(2**53) - 1, 0.0, -0.0, 0.5, 5e-324, 2**63 - 1, -(2**63)]),
)
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=6), st.sampled_from(["가", "가나", "a", "ab", '"', "\\", "a" * 200, "a" * 201])
)
VALUES = st.one_of(NUMBERS, TEXTS, st.booleans())
SIGNS = ["=", "!=", "<", "<=", ">", ">="]


def holds(text: str, row: dict[str, Any]) -> bool:
    """An expression, read by Python's rules, which are Milvus' here: strings by code points, missing is false."""
    names = {"facets": _Row(row), "json_contains_any": lambda there, asked: bool(set(there) & set(asked)), "count": 1}
    asked = re.sub(r"exists facets\[(\"\w+\")\]", r"(\1 in row)", text)
    return bool(eval(asked, {"__builtins__": {}}, {**names, "row": row}))


class _Missing(tuple[()]):
    """A field that is not there: no comparison holds."""

    def _no(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _no  # type: ignore[assignment]


class _Row:
    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row

    def __getitem__(self, key: str) -> Any:
        return self._row.get(key, _Missing())


def right(filter: Filter, metadata: dict[str, Any]) -> bool:
    """What an index in a folder says."""
    return bool(filter.documents(columns_of([metadata]))[0])


@given(st.one_of(VALUES, st.lists(VALUES, max_size=4)), st.sampled_from(SIGNS), VALUES)
def test_a_comparison_holds_as_in_a_folder(value: Any, sign: str, asked: Any) -> None:
    filter = Filter.from_dict({"field": {sign: asked}})
    stored = json.loads(json.dumps(facets({"field": value})))
    try:
        expected = right(filter, {"field": value})
    except InputError:  # kinds that cannot meet: refused before an engine is asked
        return
    if isinstance(asked, str) and sign not in ("=", "!=") and len(asked.encode()) > LONGEST_LIMIT:
        with pytest.raises(InputError, match="at most 200"):
            expression(filter)
        return
    assert holds(expression(filter), stored) == expected


@given(st.lists(NUMBERS, min_size=2, max_size=2))
def test_numbers_keep_their_order(pair: list[Any]) -> None:
    one, other = (facets({"x": value}) for value in pair)
    key = next(name for name in one if name.endswith("n"))
    assert (one[key] < other[key], one[key] == other[key]) == (pair[0] < pair[1], pair[0] == pair[1])


@given(st.lists(st.text(CHARACTERS), min_size=2, max_size=2))
def test_texts_keep_their_order(pair: list[str]) -> None:
    one, other = (facets({"x": value}) for value in pair)
    key = next(name for name in one if name.endswith("t"))
    if max(len(text.encode()) for text in pair) <= LONGEST_LIMIT:
        assert (one[key] < other[key]) == (pair[0] < pair[1])


@pytest.mark.parametrize(
    ("filter", "metadata", "expected"),
    [
        ({"a": 1}, {"a": [3, 1]}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": {"in": []}}, {"a": 1}, False),
        ({"a": {"not in": []}}, {"a": 1}, True),
        ({"a": {"exists": True}}, {"a": None}, False),
        ({"a": {"exists": True}}, {"a": []}, False),
        ({"a": None}, {"b": 1}, True),
        ({"a": {"!=": "서울"}}, {"b": 1}, True),
        ({"not": {"or": [{"a": 1}, {"b": "x"}]}}, {"a": 2, "b": "y"}, True),
        ("a=1 and (b=x or c exists)", {"a": 1, "c": "무엇"}, True),
        ("a > 1", {"a": [0, 2]}, True),
        ("a < 가", {"a": ["나", "ㄱ"]}, True),
    ],
)
def test_conditions_that_are_joined(filter: Any, metadata: dict[str, Any], expected: bool) -> None:
    asked = as_filter(filter)
    assert asked is not None
    assert holds(expression(asked), facets(metadata)) is expected


def test_nothing_that_a_person_wrote_stands_in_an_expression() -> None:
    nasty = '"] or count >= 0 or json_contains_any(facets["'
    asked = as_filter({nasty: {"in": [nasty, "\\", "\n", "한글"]}, "or": [{"a": {">": nasty}}, {nasty: None}]})
    assert asked is not None
    text = expression(asked)
    assert nasty not in text
    assert re.fullmatch(r'[\w\[\]()", <>=~]+', text)
    assert set(re.findall(r'"([^"]*)"', text)) == set(re.findall(r'"(\w+)"', text))


def test_what_cannot_be_ordered_is_refused() -> None:
    with pytest.raises(InputError, match="needs a number or a text"):
        expression(Filter.from_dict({"a": {">": True}}))
