"""When two texts count as the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data.overlaps import normalise, same_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("한 소녀가 머리를 빗는다.", "한소녀가 머리를 빗는다"),
        ("ＡＢＣ 123", "abc123"),
        ("It's 5 o'clock!", "its 5 oclock"),
        (unicodedata.normalize("NFD", "한글"), "한글"),
        ("zero\u200bwidth", "zero width"),
        ("STRASSE", "straße"),
    ],
)
def test_spaces_punctuation_case_and_width_do_not_count(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


def test_meaning_counts() -> None:
    assert normalise("비가 온다") != normalise("눈이 온다")
    assert normalise("?!") == "?!" != normalise("...")  # nothing but punctuation is compared as it is
    assert normalise("   ") == ""


def test_duplicates_are_told_apart_by_punctuation_but_not_by_spaces_or_case() -> None:
    assert same_key("밥  먹었어?\n") == same_key("밥 먹었어?")
    assert same_key("밥 먹었어?") != same_key("밥 먹었어.")
    assert same_key("Ｃat") == same_key("cAT")


@given(st.text(max_size=30))
def test_normalising_again_changes_nothing(text: str) -> None:
    assert same_key(same_key(text)) == same_key(text)
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(max_size=20))
def test_the_weaker_key_decides_for_the_stronger(text: str) -> None:
    assert normalise(same_key(text)) == normalise(text)


@given(st.text(max_size=20), st.sampled_from([".", " ", "\t", "…", "·", "?", "「"]))
def test_marks_anywhere_do_not_count(text: str, mark: str) -> None:
    if any(unicodedata.category(letter)[0] == "L" for letter in text):
        assert normalise(mark + text + mark) == normalise(text)
