"""Filters against plain Python, in both forms; what they refuse; and their speed over many documents."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.index.columns import Columns
from munjang.index.filters import All, Any_, Comparison, Filter, Not, as_filter, parse
from munjang.index.index import Index

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SCALARS = st.one_of(
    st.sampled_from(["news", "가나", "다라", "2020-01-01", "2021-05-05", "1", "true"]),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, 2.5, float(2**60)]),
    st.sampled_from([2**60, 2**60 + 1, -(2**63), 2**63 - 1]),
    st.booleans(),
)
VALUES = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=3))
METADATA = st.dictionaries(st.sampled_from(["a", "b", "이름"]), VALUES, max_size=3)


def kind(value: object) -> str:
    return {str: "text", bool: "boolean"}.get(type(value), "number")


def entries(metadata: Mapping[str, Any], field: str) -> list[Any]:
    value = metadata.get(field)
    return value if isinstance(value, list) else [] if value is None else [value]


def same(one: object, other: object) -> bool:
    return kind(one) == kind(other) and one == other


def comparisons() -> st.SearchStrategy[dict[str, Any]]:
    fields = st.sampled_from(["a", "b", "이름"])
    ranges = st.tuples(st.sampled_from(sorted(OPERATORS)), SCALARS.filter(lambda value: not isinstance(value, bool)))
    signs = st.one_of(
        st.tuples(st.sampled_from(["=", "!="]), SCALARS),
        st.tuples(st.sampled_from(["in", "not in"]), st.lists(SCALARS, min_size=1, max_size=3)),
        st.tuples(st.just("exists"), st.booleans()),
        ranges,
    )
    return st.builds(lambda field, one: {field: {one[0]: one[1]}}, fields, signs)


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=5,
)


def holds(condition: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """The meaning of a filter, one document at a time."""
    for name, wanted in condition.items():
        if name == "and":
            found = all(holds(part, metadata) for part in wanted)
        elif name == "or":
            found = any(holds(part, metadata) for part in wanted)
        elif name == "not":
            found = not holds(wanted, metadata)
        else:
            found = all(meets(entries(metadata, name), sign, value) for sign, value in wanted.items())
        if not found:
            return False
    return True


def meets(values: list[Any], sign: str, wanted: Any) -> bool:
    if sign == "exists":
        return bool(values) == wanted
    if sign in OPERATORS:
        return any(kind(value) == kind(wanted) and OPERATORS[sign](value, wanted) for value in values)
    several = wanted if sign in ("in", "not in") else [wanted]
    found = any(same(value, one) for value in values for one in several)
    return found == (sign in ("=", "in"))


class FakeState:
    """As much of a state as filters read; every document has one passage."""

    def __init__(self, documents: dict[int, tuple[int, dict[str, Any]]], generation: int) -> None:
        import numpy as np

        from munjang.index.state import Layout

        rows = np.array(sorted(documents), dtype=np.int64)
        self._documents = documents
        self.generation = generation
        self.layout = Layout(generation, len(rows), rows * 10, rows)

    def changed_metadata(self, since: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for row in sorted(self._documents):
            generation, metadata = self._documents[row]
            if generation > since:
                yield row, metadata


STEPS = st.lists(
    st.tuples(st.dictionaries(st.integers(1, 12), METADATA, max_size=5), st.sets(st.integers(1, 12), max_size=3)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, conditions=st.lists(CONDITIONS, min_size=1, max_size=3))
def test_filters_are_what_they_mean(steps: list[Any], conditions: list[dict[str, Any]]) -> None:
    """Also while documents are written and removed: the columns are carried from commit to commit."""
    documents: dict[int, tuple[int, dict[str, Any]]] = {}
    columns = Columns()
    for generation, (written, removed) in enumerate(steps, start=1):
        documents |= {row: (generation, metadata) for row, metadata in written.items()}
        documents = {row: one for row, one in documents.items() if row not in removed}
        state = FakeState(dict(documents), generation)
        for condition in conditions:
            try:
                mask = Filter.from_dict(condition).mask(state, columns)  # type: ignore[arg-type]
            except InputError as error:
                if "no document has the field" in str(error) or "compares with" in str(error):
                    continue
                raise
            expected = [holds(condition, documents[row][1]) for row in sorted(documents)]
            assert mask.tolist() == expected


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("category=news", {"category": "news"}),
        ("category == 'big news'", {"category": "big news"}),
        ('"a field"="it\\"s"', {"a field": 'it"s'}),
        ("year>=2020 and year<2024", {"year": {">=": 2020, "<": 2024}}),
        ("tag in a,b", {"tag": ["a", "b"]}),
        ("tag IN (a, 'b c')", {"tag": {"in": ["a", "b c"]}}),
        ("tag not in a , b", {"tag": {"not in": ["a", "b"]}}),
        ("not tag=a or x!=b", {"or": [{"not": {"tag": "a"}}, {"x": {"!=": "b"}}]}),
        ("a=x and (b=y or c=z)", {"and": [{"a": "x"}, {"or": [{"b": "y"}, {"c": "z"}]}]}),
        ("분류=소식 and 날짜>='2024-01-01'", {"분류": "소식", "날짜": {">=": "2024-01-01"}}),
        ("x exists", {"x": {"exists": True}}),
        ("not x exists", {"not": {"x": {"exists": True}}}),
        ("a=and", {"a": "and"}),
    ],
)
def test_the_text_form_is_the_dict_form(text: str, same_as: dict[str, Any]) -> None:
    assert shape(parse(text)) == shape(Filter.from_dict(same_as))


def shape(given: Filter) -> Any:
    if isinstance(given, Comparison):
        return (
            given.field,
            given.sign,
            [value.number if value.number is not None else value.meanings[0] for value in given.values],
        )
    if isinstance(given, Not):
        return "not", shape(given.part)
    assert isinstance(given, All | Any_)
    return type(given).__name__, [shape(part) for part in given.parts]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the text is empty"),
        ("year", "expected =, !=, .* after 'year' at character 5 of 'year', but the text ends"),
        ("year>=", "expected a value at character 7"),
        ("(a=1", r"expected '\)'"),
        ("a=1 b=2", "expected 'and', 'or' or the end at character 5 .* but there is 'b'"),
        ("a='x", "a quote must be closed"),
        ("a ! b", "stands before '='"),
        ("and a=1", "expected =, !="),
        ("tag in", "expected a value"),
        ("=5", "expected the name of a field at character 1"),
    ],
)
def test_texts_that_are_no_filter(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"year": {"~": 5}}, "'year' is compared by one of"),
        ({"year": {">=": None}}, "'year' can be compared with"),
        ({"year": {"in": "abc"}}, "'in' of 'year' needs a list"),
        ({"and": {"a": 1}}, "'and' needs a list of dicts"),
        ({"or": []}, "'or' needs a list"),
        ({"not": "x"}, "expected a dict"),
        ({"a": {"exists": 1}}, "'exists' of 'a' is True or False"),
        ({5: 1}, "named by a text"),
        ({"a": {}}, "says nothing"),
        ({"a": float("nan")}, "can be compared with"),
        ({"a": {"<": True}}, "compared|needs a number"),
    ],
)
def test_dicts_that_are_no_filter(given_: Any, said: str, tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model) as index:
        index.add([{"text": "비", "a": 1, "year": 2}])
        with pytest.raises(InputError, match=said):
            index.search("비", filter=given_)


def _nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"a": 1}
    for _ in range(levels):
        found = {"not": found}
    return found


def _cyclic() -> dict[str, Any]:
    found: dict[str, Any] = {"a": []}
    found["a"].append(found["a"])
    return found


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ("=" * 4_000_000, "100,000 characters"),
        ("'" * 4_000_000, "100,000 characters"),
        ("'" * 99_999, "quote must be closed"),
        ("a=1" + " " * 90_000 + "!", "stands before"),
        ("(" * 500, "32 levels"),
        ("not " * 2000 + "a=1", "32 levels"),
        ("a=1 and " * 501 + "a=1", "500 conditions"),
        ("a in " + ",".join(["1"] * 10_001), "10,000 values"),
        ("a=1e999", "range of a float"),
        ("a>-1e999", "range of a float"),
        ("a=1" + "0" * 400, "range of a float"),
        ("a in 1," + "9" * 5000, "range of a float"),
        (_nested(33), "32 levels"),
        (_nested(5000), "32 levels"),
        ({"not": {"not": {"a": [[[[1]]]]}}}, "can be compared with"),
        ({"or": [{"a": 1}] * 501}, "500 conditions"),
        ({"a": list(range(10_001))}, "10,000 values"),
        ({"a": {"not in": tuple(range(10_001))}}, "10,000 values"),
        ({"or": [{"a": list(range(6000))}] * 2}, "10,000 values"),
        ({str(number): {} for number in range(20_000)}, "entries"),
        ({"x" * 200_000: 1}, "100,000 characters"),
        ({"a": "x" * 200_000}, "100,000 characters"),
        ({"a": ["x" * 30_000] * 4}, "100,000 characters"),
        ({"a": 10**400}, "range of a float"),
        ({"a": {">": 10**5000}}, "range of a float"),
        ({"a": [1, -(10**400)]}, "range of a float"),
        ({"a": float("inf")}, "range of a float"),
        (_cyclic(), "can be compared with|values"),
    ],
)
def test_filters_beyond_the_limits(given_: Any, said: str) -> None:
    """An InputError of a few hundred characters, at once, whatever was given."""
    started = time.perf_counter()
    with pytest.raises(InputError, match=said) as told:
        as_filter(given_)
    assert len(str(told.value)) < 500
    assert time.perf_counter() - started < 2  # milliseconds on a quiet core


@pytest.mark.parametrize(
    "text",
    [
        "a in " + ",".join(["'word'"] * 10_000),
        " or ".join(["a=1"] * 500),
        "a='" + "\\'" * 49_000 + "'",
        "a=" + "1" * 90_000 + "x",  # no number, and no time is spent on finding that out
        "(" * 31 + "a=1" + ")" * 31,
        "a=0" + "0" * 390 + "7",
        " " * 90_000 + "a=1",
    ],
)
def test_large_filters_within_the_limits_are_read_in_linear_time(text: str) -> None:
    best = min(_seconds(lambda: parse(text)) for _ in range(3))
    assert best < 1  # about 20 ms on a quiet core


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("n", list(range(0, 20_000, 2))),
        ("f", [number + 0.5 for number in range(9999)]),
        ("t", [f"t{number}" for number in range(9999)]),
    ],
)
def test_long_lists_are_one_pass_over_the_documents(field: str, wanted: list[Any]) -> None:
    documents = {row: (1, {"n": row, "f": row + 0.5, "t": f"t{row}"}) for row in range(1, 50_001)}
    state, columns = FakeState(documents, 1), Columns()
    condition, among = Filter.from_dict({field: {"in": wanted}}), set(wanted)
    mask = condition.mask(state, columns)  # type: ignore[arg-type]
    assert mask.tolist() == [one[field] in among for _, one in documents.values()]
    best = min(_seconds(lambda: condition.mask(state, columns)) for _ in range(3))  # type: ignore[arg-type]
    assert best < 0.3  # about 5 ms on a quiet core; a pass for each value takes a second


def test_nothing_is_no_filter() -> None:
    assert as_filter(None) is None
    assert as_filter({}) is None


def test_words_without_quotes_mean_numbers_and_texts(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model) as index:
        index.add(
            [
                {"id": "n", "text": "비", "code": 7, "flag": True, "page": "12"},
                {"id": "t", "text": "비", "code": "7", "flag": "true", "page": "9"},
            ]
        )
        assert set(index.search("비", filter="code=7").ids) == {"n", "t"}
        assert index.search("비", filter="code='7'").ids == ["t"]
        assert index.search("비", filter={"code": 7}).ids == ["n"]
        assert set(index.search("비", filter="flag=true").ids) == {"n", "t"}
        assert index.search("비", filter={"flag": True}).ids == ["n"]
        with pytest.raises(InputError, match=r"'page' > .* are texts; in quotes a number is a text"):
            index.search("비", filter="page>10")
        assert index.search("비", filter="page>'5'").ids == ["t"]


def test_a_filter_over_many_documents_takes_milliseconds() -> None:
    documents = {
        row: (1, {"category": f"c{row % 50}", "year": 2000 + row % 30, "tags": [f"t{row % 7}", f"t{row % 11}"]})
        for row in range(1, 100_001)
    }
    state, columns = FakeState(documents, 1), Columns()
    condition = parse("category in c1,c2,c3 and year>=2010 and not tags=t3")
    first = condition.mask(state, columns)  # type: ignore[arg-type]
    best = min(_seconds(lambda: condition.mask(state, columns)) for _ in range(5))  # type: ignore[arg-type]
    assert first.sum() == sum(
        one["category"] in ("c1", "c2", "c3") and one["year"] >= 2010 and "t3" not in one["tags"]
        for _, one in documents.values()
    )
    assert best < 0.05  # about 4 ms on a quiet core


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
