"""Texts of a dictionary: which entries they begin with, their forms and shares, what decides them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.ko_en_0_1.definitions import definition_texts
from munjang.data import Examples

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=20)
FORMS = ("words", "entry", *range(2, 9))  # a number: a passage of so many entries


def dictionary(entries: list[tuple[str, str]]) -> Examples:
    """Words with their number in front, so that a text tells which entry it begins with."""
    words = [f"w{number}-{word}" for number, (word, _) in enumerate(entries)]
    return Examples("ours", "pairs", {"anchor": words, "positive": [meaning for _, meaning in entries]})


def numbered(count: int) -> Examples:
    return dictionary([("word", f"meaning {number}") for number in range(count)])


def place_of(text: str) -> int:
    found = re.match(r"w(\d+)-", text)
    assert found, text
    return int(found[1])


def written(known: Examples, place: int, form: int | str) -> str:
    """The text of a form that begins with an entry; a passage ends where the dictionary does."""
    words, meanings = known.columns.values()
    if form == "words":
        return words[place]
    last = place + (form if isinstance(form, int) else 1)
    return ". ".join(
        f"{word}: {meaning}" for word, meaning in zip(words[place:last], meanings[place:last], strict=True)
    )


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), max_size=30), st.integers(0, 40), st.integers(0, 9))
def test_each_text_begins_with_another_entry_in_the_dictionarys_order(
    entries: list[tuple[str, str]], count: int, seed: int
) -> None:
    known = dictionary(entries)
    found = definition_texts(known, count=count, seed=seed)
    assert len(found) == min(count, len(entries)), "so many, or all"
    places = [place_of(text) for text in found]
    assert places == sorted(set(places))
    for place, text in zip(places, found, strict=True):
        assert text in [written(known, place, form) for form in FORMS]
    assert found == definition_texts(known, count=count, seed=seed)


def test_the_forms_have_their_shares_and_passages_their_lengths() -> None:
    known = numbered(4_000)
    found = definition_texts(known, count=4_000, seed=0)
    by_text = {written(known, place, form): form for place in range(3_990) for form in FORMS}
    counts = Counter(by_text[text] for text in found[:3_990])  # the last ones have fewer entries after them
    shares = {form: count / 3_990 for form, count in counts.items()}
    assert shares["words"] == pytest.approx(0.25, abs=0.02)
    assert shares["entry"] == pytest.approx(0.35, abs=0.02)
    for entries in range(2, 9):
        assert shares[entries] == pytest.approx(0.4 / 7, abs=0.012), "each length as likely as any other"


def test_a_passage_holds_the_entries_after_its_first() -> None:
    known = numbered(40)
    passages = [text for text in definition_texts(known, count=40, seed=0) if text.count(". ") > 0]
    assert len(passages) > 5
    for text in passages:
        parts, first = text.split(". "), place_of(text)
        assert parts == [f"w{place}-word: meaning {place}" for place in range(first, first + len(parts))]


def test_some_entries_are_from_everywhere() -> None:
    places = [place_of(text) for text in definition_texts(numbered(2_000), count=500, seed=0)]
    assert np.histogram(places, bins=4, range=(0, 2_000))[0].min() > 95


def test_seeds() -> None:
    known = numbered(200)
    for count in (50, 200):
        one, same, other = (definition_texts(known, count=count, seed=seed) for seed in (3, 3, 4))
        assert one == same
        assert one != other
    some, others = ({place_of(text) for text in definition_texts(known, count=50, seed=seed)} for seed in (3, 4))
    assert some != others, "other entries too"


def test_nothing_of_nothing() -> None:
    assert definition_texts(dictionary([]), count=5, seed=0) == []
    assert definition_texts(numbered(5), count=0, seed=0) == []
