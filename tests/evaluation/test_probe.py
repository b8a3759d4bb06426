"""The linear probe: scikit-learn's optimum, folds that are fair, a test split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from evaluation.sample import Stub, topics
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import ProbeEvaluator, fit_probe
from munjang.evaluation.probe import choose_c, fold_of


def rows(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, 20)) / 2
    labels = generator.integers(0, classes, n)
    return (centres[labels] + generator.normal(size=(n, 20)) * 0.7 + 3).astype(np.float32), labels


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("c", [0.05, 1.0])
def test_the_same_classifier_as_sklearns(classes: int, c: float) -> None:
    vectors, labels = rows(600, classes)
    test, gold = rows(800, classes)
    ours = fit_probe(vectors, labels * 3, c=c)  # any numbers may be labels
    scaled = (vectors - ours.mean) / ours.spread
    theirs = LogisticRegression(C=c, max_iter=2000, tol=1e-8).fit(scaled, labels)
    expected = theirs.predict_proba((test - ours.mean) / ours.spread)
    logits = ours.logits(test)
    # Two classes: scikit-learn has one row of weights, we have two, with half the strength each.
    if classes > 2:
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert np.abs(probabilities - expected).max() < 2e-3
    assert np.mean(ours.predict(test) // 3 == theirs.predict((test - ours.mean) / ours.spread)) > 0.99
    assert abs(np.mean(ours.predict(test) // 3 == gold) - np.mean(expected.argmax(axis=1) == gold)) < 0.01


def test_constant_dimensions_and_bad_input() -> None:
    vectors, labels = rows(50, 2)
    vectors[:, 3] = 7
    assert np.isfinite(fit_probe(vectors, labels).weight).all()
    with pytest.raises(InputError, match="one class only"):
        fit_probe(vectors, labels * 0)
    with pytest.raises(InputError, match="c must be above 0"):
        fit_probe(vectors, labels, c=0)
    with pytest.raises(InputError, match="50 and 49"):
        fit_probe(vectors, labels[1:])


def test_noise_asks_for_a_strong_l2() -> None:
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(120, 80)).astype(np.float32)
    labels = (vectors[:, 0] + generator.normal(size=120) > 0).astype(int)
    assert choose_c(vectors, labels) < 10


@given(st.lists(st.integers(0, 3), min_size=4, max_size=60), st.integers(2, 4), st.integers(0, 9))
def test_folds_are_even(labels: list[int], folds: int, seed: int) -> None:
    fold = fold_of(np.array(labels), folds, seed=seed)
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for label in set(labels):
        inside = np.bincount(fold[np.array(labels) == label], minlength=folds)
        assert inside.max() - inside.min() <= 1


def test_topics_are_learnt_by_folds_and_from_a_split(model: BiEncoder) -> None:
    folds = ProbeEvaluator(topics(), folds=4, c=1.0, bootstrap=20)(model)
    assert folds.value > 0.7
    assert folds.notes == ("4 folds",)
    assert folds.rows == 24
    even, odd = topics().take(np.arange(0, 24, 2)), topics("odd").take(np.arange(1, 24, 2))
    split = ProbeEvaluator(even, odd)(model)
    assert (split.name, split.rows) == ("odd", 12)
    assert split.value > 0.6
    low, high = folds.intervals["accuracy"]
    assert low <= folds.value <= high


def test_what_the_probe_has_seen_is_not_what_it_is_judged_on() -> None:
    """Random labels: a probe that saw its test rows would know them."""
    generator = np.random.default_rng(0)
    texts = [f"t{i}" for i in range(200)]
    stub = Stub({text: generator.normal(size=60) for text in texts}, dimension=60)
    examples = Examples("noise", "classified", {"text": texts}, generator.integers(0, 2, 200), ("a", "b"))
    assert ProbeEvaluator(examples, folds=5, c=10.0)(stub).value < 0.65  # type: ignore[arg-type]


def test_other_labels_in_the_test_split_are_said() -> None:
    other = Examples("other", "classified", {"text": ["a", "b"]}, np.array([0, 1]), ("x", "y"))
    with pytest.raises(InputError, match=r"other: train and test must have the same labels, got food.* and x, y"):
        ProbeEvaluator(topics(), other)
    with pytest.raises(InputError, match=r"folds must be 2\.\.24"):
        ProbeEvaluator(topics(), folds=25)
