"""The rules, beside a plain comparison of texts; and pairs on disk."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data.examples import Examples
from munjang.data.overlaps import normalise, same_key
from munjang.errors import DataError, InputError
from munjang.recipes.augmenting.pairs import ORIGINS, CandidatePairs, PairFilter, origin_counts, origin_name
from munjang.recipes.augmenting.sentences import collect

WORDS = ["a man", "A  MAN", "a man.", "the dog", "the dog!", "비가 온다", "비가온다", "눈이 온다", "눈이 온다.", "x"]
ROWS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)), max_size=5)


def scored(rows: list[tuple[str, str]], name: str = "set") -> Examples:
    return Examples(
        name, "scored", {"a": [a for a, _ in rows], "b": [b for _, b in rows]}, np.zeros(len(rows), np.float32)
    )


def pair(one: str, other: str, key: object) -> frozenset[str]:
    return frozenset((key(one), key(other)))  # type: ignore[operator]


@given(ROWS, ROWS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=10))
def test_rules_as_texts_say(known: list[tuple[str, str]], forbidden: list[tuple[str, str]], texts: list[str]) -> None:
    sentences = collect([], texts)
    rules = PairFilter(sentences, known=[scored(known)], forbidden=[scored(forbidden)])
    count = len(sentences)
    left, right = (np.array(side) for side in zip(*product(range(count), repeat=2), strict=True))
    allowed = rules.allowed(left, right)
    gold = {pair(a, b, same_key) for a, b in known}
    evaluation = {pair(a, b, normalise) for a, b in forbidden}
    barred = np.zeros(count, np.int64)
    for one, other, fits in zip(left.tolist(), right.tolist(), allowed.tolist(), strict=True):
        a, b = sentences[one], sentences[other]
        expected = one != other and pair(a, b, same_key) not in gold and pair(a, b, normalise) not in evaluation
        assert fits == expected
        barred[one] += not fits and one != other
    assert (rules.barred() >= barred).all()
    keys = rules.keys(left, right)
    assert (keys == rules.keys(right, left)).all()
    low, high = rules.sides(keys)
    assert (low == np.minimum(left, right)).all()
    assert (high == np.maximum(left, right)).all()


def test_evaluation_of_any_kind_and_several_columns() -> None:
    sentences = collect([], ["질문", "정답", "오답", "다른 것"])
    triplets = Examples("t", "pairs", {"anchor": ["질문"], "positive": ["정답!"], "negative": ["오답"]})
    single = Examples("c", "classified", {"text": ["다른 것"]}, np.array([0]), ("x",))
    rules = PairFilter(sentences, forbidden=[triplets, single])
    left, right = np.array([0, 0, 1, 0, 2]), np.array([1, 2, 2, 3, 3])
    assert rules.allowed(left, right).tolist() == [False, False, False, True, True]


def test_hash_changes_with_every_rule() -> None:
    sentences = collect([], WORDS)
    gold, test = [scored([("a man", "the dog")])], [scored([("x", "the dog")])]
    hashes = {
        PairFilter(sentences).hash,
        PairFilter(sentences, known=gold).hash,
        PairFilter(sentences, forbidden=gold).hash,
        PairFilter(sentences, known=gold, forbidden=test).hash,
        PairFilter(collect([], WORDS[:-1]), known=gold, forbidden=test).hash,
    }
    assert len(hashes) == 5
    assert PairFilter(sentences, known=gold).hash == PairFilter(collect([], WORDS), known=gold).hash


def test_large_numbers_fit() -> None:
    rules = PairFilter(collect([], ["a", "b"]))
    rules.count = 3_000_000_000  # as many sentences as there may be, without making them
    left, right = np.array([2_999_999_998]), np.array([2_999_999_999])
    assert rules.keys(left, right)[0] > 0
    assert [int(side[0]) for side in rules.sides(rules.keys(right, left))] == [2_999_999_998, 2_999_999_999]


def test_origins_have_names() -> None:
    assert origin_name(ORIGINS["semantic"] | ORIGINS["bm25"]) == "bm25+semantic"
    assert origin_counts(np.array([1, 3, 3, 8], np.uint8)) == {"bm25+semantic": 2, "kde": 1, "semantic": 1}


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"left\.npy is not there"):
        CandidatePairs.read(tmp_path)
    for name, length in (("left", 2), ("right", 2), ("origin", 3)):
        np.save(tmp_path / f"{name}.npy", np.zeros(length, np.int32))
    with pytest.raises(DataError, match="one length"):
        CandidatePairs.read(tmp_path)
    (tmp_path / "left.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="damaged"):
        CandidatePairs.read(tmp_path)


def test_too_many_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.recipes.augmenting.pairs.MOST", 1)
    with pytest.raises(InputError, match="at most 1 sentences"):
        PairFilter(collect([], ["a", "b"]))
