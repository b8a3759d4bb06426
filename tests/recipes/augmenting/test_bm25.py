"""BM25 beside a loop that follows the formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.recipes.augmenting import bm25
from munjang.recipes.augmenting.bm25 import BM25, analyse


def plain(query: str, texts: list[str], k1: float = 1.5, b: float = 0.75) -> list[float]:
    documents = [analyse(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in analyse(query):
            df = sum(word in other for other in documents)
            idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
            times = document.count(word)
            score += idf * times * (k1 + 1) / (times + k1 * (1 - b + b * len(document) / mean)) if times else 0.0
        scores.append(score)
    return scores


def test_words() -> None:
    assert analyse("서울에서 BERT는 3월") == ["서울", "울에", "에서", "bert", "는", "3", "월"]
    assert analyse("Don't stop: snake_case ＡＢＣ!") == ["don", "t", "stop", "snake", "case", "abc"]
    assert analyse("ÉCOLE école Straße") == ["école", "école", "strasse"]
    assert analyse(" ... ") == []
    assert analyse("\u1109\u1165\u110b\u116e\u11af") == ["서울"]  # letters apart are put together


WORDS = st.sampled_from(["the", "man", "dog", "walks", "서울에서", "서울은", "비가", "온다", "나", "2024", "!"])
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=12)


@given(TEXTS, st.integers(1, 8), st.sampled_from([0, 1, 32]))
@settings(max_examples=150, deadline=None)
def test_as_the_formula_says(texts: list[str], k: int, long: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "_LONG", long)  # also where every list is a long one
        index = BM25.of(texts)
        found = index.nearest(slice(0, len(texts)), k)
    for row, text in enumerate(texts):
        expected = plain(text, texts)
        assert index.scores(text) == pytest.approx(expected)
        sharing = sum(score > 0 for score in expected)
        places = found[row][found[row] >= 0].tolist()
        assert len(set(places)) == len(places) == min(k, sharing)
        best = sorted(expected, reverse=True)[: len(places)]
        assert [expected[place] for place in places] == pytest.approx(best)


def test_long_lists_are_pruned_exactly() -> None:
    """Words as they are spread in texts: few everywhere, many rare."""
    generator = np.random.default_rng(0)
    chance = 1 / np.arange(1, 400)
    words = generator.choice(399, size=(1500, 9), p=chance / chance.sum())
    texts = [" ".join(f"w{word}" for word in row[: generator.integers(3, 10)]) for row in words]
    index = BM25.of(texts)
    found = index.nearest(slice(100, 400), 6)
    for line, row in enumerate(range(100, 400)):
        scores = index.scores(texts[row])
        best = np.sort(scores)[::-1][:6]
        np.testing.assert_allclose(scores[found[line]], best, rtol=1e-9)


def test_equal_scores_go_to_the_earlier() -> None:
    texts = ["비가 온다", "x", "비가 온다", "비가 온다"]
    assert BM25.of(texts).nearest(slice(2, 3), 2).tolist() == [[0, 2]]


def test_nothing_to_share() -> None:
    index = BM25.of(["...", "!", "가"])
    assert index.nearest(slice(0, 3), 2).tolist() == [[-1, -1], [-1, -1], [2, -1]]
    assert BM25.of([]).nearest(slice(0, 0), 2).shape == (0, 2)
