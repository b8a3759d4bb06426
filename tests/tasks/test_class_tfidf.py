"""Class-TF-IDF beside the formula computed densely with scikit-learn's counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from munjang.errors import InputError
from munjang.tasks.candidates import topic_words
from munjang.tasks.class_tfidf import ClassTerms, class_tfidf, class_words

WORDS = ["비", "바람", "rain", "wind", "금리", "bank", "골"]


def dense(terms: ClassTerms) -> dict[tuple[int, str], float]:
    return {
        (label, word.text): word.weight for label in terms.classes for word in terms.top(label, len(terms.vocabulary))
    }


@given(st.lists(st.tuples(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), st.integers(0, 3)), min_size=1))
def test_weights_are_those_of_the_formula(rows: list[tuple[list[str], int]]) -> None:
    found = dense(class_tfidf([words for words, _ in rows], [label for _, label in rows]))
    classes = sorted({label for _, label in rows})
    joined = [" ".join(word for words, of in rows for word in words if of == label) for label in classes]
    counter = CountVectorizer(token_pattern=r"\S+")
    counts = counter.fit_transform(joined).toarray().astype(float)  # [classes, words]
    mean = counts.sum() / len(classes)
    weights = counts / counts.sum(axis=1, keepdims=True) * np.log(1 + mean / counts.sum(axis=0))
    expected = {
        (label, str(word)): weights[row, column]
        for row, label in enumerate(classes)
        for column, word in enumerate(counter.get_feature_names_out())
        if counts[row, column]
    }
    assert found == pytest.approx(expected)


def test_a_stream_gives_the_same_as_a_list() -> None:
    rows, labels = [["비", "rain"], ["bank"], ["비"]], [0, 1, 0]
    assert dense(class_tfidf(iter(rows), iter(labels))) == dense(class_tfidf(rows, labels))


def test_words_that_weigh_the_same_come_in_the_order_of_the_texts() -> None:
    terms = class_tfidf([["zebra", "apple"], ["은행"]], [0, 1])
    assert [word.text for word in terms.top(0, 2)] == ["zebra", "apple"]


def test_class_words_leaves_out_texts_without_a_class_and_words_that_say_nothing() -> None:
    texts = ["은행이 금리를 올렸다", "The bank raised the rates", "축구 경기에서 골을 넣었다", "nonsense here"]
    found = class_words(texts, np.array([0, 0, 1, -1]), top=10)
    assert set(found) == {0, 1}
    assert {word.text for word in found[0]} == {"은행", "금리", "bank", "raised", "rates"}
    assert {word.text for word in found[1]} == {"축구", "경기", "골"}


def test_a_class_whose_texts_have_no_words_has_none() -> None:
    assert class_words(["the of", "bank"], [0, 1])[0] == ()


def test_topic_words_join_jamo_and_fold_case() -> None:
    apart = "\u1112\u1161\u11ab\u1100\u1173\u11af Rain"
    assert list(topic_words([apart])) == [["한글", "rain"]]


@pytest.mark.parametrize(
    ("words", "labels", "message"),
    [
        ([["a"], ["b"]], [0], "the labels end at 1"),
        ([["a"]], [0, 1], "the texts end at 1"),
        (["a text"], [0], "must be a list of words"),
    ],
)
def test_errors_say_what_is_wrong(words: list[list[str]], labels: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        class_tfidf(words, labels)
