"""When two texts count as the same; leaked sentences, counted as brute force counts them, shown, removable."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import Examples, leakage, load_dataset, without
from munjang.data.overlaps import normalise, same_key
from munjang.errors import InputError


def pairs(name: str, *rows: tuple[str, str]) -> Examples:
    columns = {"anchor": [a for a, _ in rows], "positive": [b for _, b in rows]}
    return Examples(name, "pairs", columns)


TRAIN = pairs("train", ("비가 온다.", "날이 흐리다"), ("It's raining!", "wet"), ("눈이 온다", "춥다"))


def test_what_was_seen_is_counted_shown_and_removable() -> None:
    test = pairs(
        "test",
        ("비가온다", "처음 보는 문장"),  # one side, normalised only
        ("날이 흐리다", "비가 온다."),  # a whole pair, mirrored
        ("눈이 온다", "wet"),  # both sides, but from two rows
        ("new", "newer"),
    )
    found = leakage([TRAIN], [test])
    one = found.sets[0]
    assert found.any
    assert (one.rows, one.sentences) == (4, 8)
    assert one.exact.some.tolist() == [1, 2]
    assert one.normalised.some.tolist() == [0, 1, 2]
    assert one.normalised.every.tolist() == [1, 2]
    assert one.normalised.whole.tolist() == [1]
    assert (one.exact.sentences, one.normalised.sentences) == (4, 4)
    assert one.examples[0] == "비가온다"
    assert str(found) == (
        "test: 3 of 4 rows share a sentence with the training data (2 exactly), 2 with every side seen,"
        " 1 as whole rows; 4 of 8 sentences; such as '비가온다'"
    )
    clean = without(test, one.normalised.some)
    assert clean.columns["anchor"] == ["new"]
    assert clean.reading.refused_counts == {"occurs in training and in evaluation": 3}
    assert not leakage([TRAIN], [clean]).any
    assert found.train[0].some.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"rows must be 0\.\.3, got 4"):
        without(test, [4])


def test_nothing_seen_is_said_too() -> None:
    found = leakage([TRAIN], [pairs("a", ("x", "y")), pairs("b", ("비가 온다", "y"))])
    assert str(found.sets[0]) == "a: no sentence of 1 rows occurs in the training data"
    assert [len(one.normalised.some) for one in found.sets] == [0, 1]
    assert not leakage([], [TRAIN]).any
    assert leakage([TRAIN], []).sets == ()


def test_kinds_may_differ() -> None:
    single = Examples("films", "classified", {"text": ["wet", "dry"]}, np.array([0, 1]), ("no", "yes"))
    one = leakage([TRAIN], [single]).sets[0]
    assert one.normalised.some.tolist() == one.normalised.every.tolist() == [0]
    assert one.normalised.whole.tolist() == []  # never a row of its own in training
    assert leakage([single], [single]).sets[0].normalised.whole.tolist() == [0, 1]
    triplets = Examples("t", "pairs", {"anchor": ["p"], "positive": ["q"], "negative": ["wet"]})
    assert leakage([triplets], [pairs("e", ("wet", "p"))]).sets[0].normalised.whole.tolist() == [0]


_TEXT = st.sampled_from(["가", "가.", "나", "나 다", "나다", "A", "a!", "b", "?", "!"])
_ROWS = st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=12)


@given(train=_ROWS, test=_ROWS)
def test_against_brute_force(train: list[tuple[str, str]], test: list[tuple[str, str]]) -> None:
    found = leakage([pairs("train", *train)], [pairs("test", *test)])
    for overlap, key in ((found.sets[0].exact, str), (found.sets[0].normalised, normalise)):
        seen = {key(text) for row in train for text in row}
        whole = {frozenset(map(key, row)) for row in train}
        sides = [[key(text) in seen for text in row] for row in test]
        assert overlap.some.tolist() == [place for place, side in enumerate(sides) if any(side)]
        assert overlap.every.tolist() == [place for place, side in enumerate(sides) if all(side)]
        assert overlap.whole.tolist() == [place for place, row in enumerate(test) if frozenset(map(key, row)) in whole]
        assert overlap.sentences == len({key(text) for row in test for text in row if key(text) in seen})
    held = {normalise(text) for row in test for text in row}
    touched = [place for place, row in enumerate(train) if any(normalise(text) in held for text in row)]
    assert found.train[0].some.tolist() == touched
    kept = without(pairs("train", *train), found.train[0].some)
    assert not leakage([kept], [pairs("test", *test)]).any


def test_the_time_grows_with_the_rows_and_not_with_their_square() -> None:
    def seconds(count: int) -> float:
        many = pairs("many", *((f"문장 {place} 입니다.", f"sentence {place}!") for place in range(count)))
        start = time.process_time()
        leakage([many], [many])
        return time.process_time() - start

    seconds(1000)
    assert seconds(40_000) < 40 * max(seconds(4_000), 0.01)  # 10 times the rows; the square would be 100 times


@pytest.mark.data
def test_the_overlap_of_the_official_splits(data_path: Path) -> None:
    """Exactly, and normalised: with the training split alone, and with SNLI, which trains beside it."""

    def rows(train: list[tuple[str, str]], name: str) -> tuple[int, int]:
        sets = [load_dataset(known, split, data_path) for known, split in train]
        one = leakage(sets, [load_dataset(name, "test", data_path)]).sets[0]
        return len(one.exact.some), len(one.normalised.some)

    assert rows([("korsts", "train")], "korsts") == (166, 170)
    assert rows([("stsb", "train")], "stsb") == (249, 250)
    assert rows([("stsb", "train"), ("snli", "dev"), ("snli", "test")], "stsb") == (262, 265)
    parakqc = [load_dataset("parakqc", "test", data_path)]
    assert leakage(parakqc, [load_dataset("klue-sts", "dev", data_path)]).sets[0].normalised.sentences == 264


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
