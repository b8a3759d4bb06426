"""Inputs: windows of texts, and progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data.rows import Source, unusual
from munjang.errors import InputError
from munjang.inputs import Rows, as_rows, split_rows


def windows_of(rows: Source, count: int, characters: int) -> list[Rows]:
    return list(split_rows(as_rows(rows, keep=None)[0], count, characters))


@given(st.lists(st.text(max_size=30)), st.integers(1, 7), st.integers(1, 40))
def test_windows_hold_every_text_once_within_the_limits(texts: list[str], count: int, characters: int) -> None:
    windows = windows_of(iter(texts), count, characters)
    assert windows == windows_of(texts, count, characters), "a list and an iterator are cut alike"
    assert [text for window in windows for text in window.texts] == texts
    for window in windows:
        assert 1 <= len(window.texts) <= count
        assert len(window.texts) == 1 or sum(map(len, window.texts)) <= characters


def test_windows_are_lazy() -> None:
    def endless():
        while True:
            yield "text"

    windows = split_rows(as_rows(endless())[0], 3, 1000)
    assert next(windows).texts == ["text"] * 3


@pytest.mark.parametrize("bad", [None, 3, b"bytes", float("nan"), ["nested"]])
def test_what_is_not_a_text_is_named_with_its_position(bad: object) -> None:
    with pytest.raises(InputError, match=r"text 5 must be a string, got "):
        windows_of(["good"] * 5 + [bad], 2, 100)


def test_dicts_become_columns() -> None:
    rows = [{"id": i, "text": str(i), "topic": "x"} for i in range(5)]
    windows = windows_of(rows, 2, 100)
    assert [window.columns for window in windows] == [
        {"id": [0, 1], "topic": ["x", "x"]},
        {"id": [2, 3], "topic": ["x", "x"]},
        {"id": [4], "topic": ["x"]},
    ]
    assert windows[0].after(1).columns == {"id": [1], "topic": ["x"]}
    assert windows[0].after(1).texts == ["1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "id": 1}, {"text": "b"}], "row 1: there is no 'id'"),
        ([{"text": "a", "id": 1}, {"text": "b", "other": 2}], "row 1: there is no 'id'"),
        ([{"text": "a"}, {"text": "b", "id": 1}], "row 1: got 'id' too"),
        ([{"head": "a", "body": "b"}], "which column holds the texts.*'head', 'body'"),
        ([{"text": "a"}, 3], "row 1: expected a dict"),
        (["a", {"text": "b"}], "row 1 is a dict, but the rows before it are texts"),
    ],
)
def test_rows_that_do_not_match_are_named(rows: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        windows_of(rows, 10, 100)


def test_what_is_no_list_of_texts_is_refused() -> None:
    for wrong in (None, 3, b"bytes", {"text": "a"}):
        with pytest.raises(InputError, match="a list of texts"):
            as_rows(wrong)
    assert as_rows("one") == (["one"], 1)
    assert as_rows(iter("ab"))[1] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\u3000", "only white space"),
        ("NaN", "'NaN'"),
        (" null ", "'null'"),
        ("😀" * 1000, "a few characters repeated"),
        ("❤️" * 20, "a few characters repeated"),
        ("ㅋㅋㅋ", None),
        ("!", None),
        ("A nan is a kind of bread.", None),
        ("ha" * 30 + " very funny", None),
    ],
)
def test_texts_that_look_empty_or_missing(text: str, reason: str | None) -> None:
    assert unusual(text) == reason
