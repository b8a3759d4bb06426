"""Heads and their calibration against scikit-learn, scipy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier

from munjang.errors import InputError, MunjangWarning
from munjang.nn.calibration import softmax
from munjang.tasks.classifier_fitting import Logistic, Prototype, choose, fit_head, fit_scale, judge, splits
from munjang.tasks.classifier_heads import (
    LinearFitting,
    fit_prototypes,
    left_out_cosines,
    row_weights,
    unit,
)
from munjang.tasks.classifier_labels import Targets


def clouds(rows: int = 120, classes: int = 3, *, seed: int = 0, spread: float = 1.0) -> tuple[np.ndarray, Targets]:
    """Gaussian clouds, unlike in size, around centres far from the origin."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, 8)) + 5
    share = np.arange(1, classes + 1) / sum(range(1, classes + 1))
    labels = np.concatenate([np.arange(classes).repeat(2), random.choice(classes, rows - 2 * classes, p=share)])
    vectors = (centres[labels] + spread * random.normal(size=(rows, 8))).astype(np.float32)
    return vectors, Targets(tuple("abcdefgh"[:classes]), labels.astype(np.int64))


def prepared(vectors: np.ndarray) -> np.ndarray:
    rows = vectors - vectors.mean(axis=0)
    return rows / np.sqrt((rows**2).sum(axis=1).mean())


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("c", [0.3, 10.0])
def test_the_linear_head_is_scikit_learns(c: float, balanced: bool) -> None:
    vectors, targets = clouds()
    ours = softmax(LinearFitting(vectors, targets, balanced=balanced).fit(c).scores(vectors))
    peer = LogisticRegression(C=c, tol=1e-8, max_iter=5000, class_weight="balanced" if balanced else None)
    theirs = peer.fit(prepared(vectors), targets.values).predict_proba(prepared(vectors))
    assert np.abs(ours - theirs).max() < 1e-3


def test_two_labels_are_scikit_learns_with_twice_the_c() -> None:
    vectors, targets = clouds(60, 2)
    ours = softmax(LinearFitting(vectors, targets).fit(1.0).scores(vectors))
    peer = LogisticRegression(C=2.0, tol=1e-8, max_iter=5000).fit(prepared(vectors), targets.values)
    assert np.abs(ours - peer.predict_proba(prepared(vectors))).max() < 1e-3


def test_several_labels_are_one_regression_each() -> None:
    vectors, single = clouds(150)
    values = single.values[:, None] == np.arange(3)
    values[::7, 0] = True
    values[::5] = False
    targets = Targets(single.names, values)
    scores = LinearFitting(vectors, targets).fit(3.0).scores(vectors)
    peer = OneVsRestClassifier(LogisticRegression(C=3.0, tol=1e-8, max_iter=5000)).fit(prepared(vectors), values)
    assert np.abs(1 / (1 + np.exp(-scores)) - peer.predict_proba(prepared(vectors))).max() < 1e-3


def test_a_path_of_cs_ends_where_each_alone_ends() -> None:
    vectors, targets = clouds()
    path = LinearFitting(vectors, targets)
    path.fit(0.1)
    along = path.fit(100.0).scores(vectors)
    alone = LinearFitting(vectors, targets).fit(100.0).scores(vectors)
    assert np.abs(softmax(along) - softmax(alone)).max() < 1e-2


def test_balanced_weights_let_every_label_count_the_same() -> None:
    _, targets = clouds()
    weights = row_weights(targets, balanced=True)
    sums = [weights[targets.values == label].sum() for label in range(3)]
    assert np.allclose(sums, len(targets) / 3)
    assert np.isclose(weights.mean(), 1)


def test_cosines_without_the_row_itself_by_brute_force() -> None:
    vectors, targets = clouds(30)
    lonely = Targets((*targets.names, "z"), np.append(targets.values, 3))
    vectors = np.concatenate([vectors, vectors[:1] * -1])
    cosines, told = left_out_cosines(vectors, lonely)
    assert told.tolist() == [True] * 30 + [False]
    for row in range(30):
        rest = np.arange(31) != row
        others = fit_prototypes(vectors[rest], lonely.take(rest), centre=vectors.mean(axis=0))
        expected = others.scores(vectors[row : row + 1])[0]
        assert np.allclose(cosines[row], expected, atol=1e-5)


def test_prototypes_of_several_labels() -> None:
    vectors = np.eye(3, dtype=np.float32)
    targets = Targets(("a", "b"), np.array([[True, False], [True, True], [False, False]]))
    head = fit_prototypes(vectors, targets, centre=np.zeros(3, np.float32))
    assert np.allclose(head.prototypes, [[0.5**0.5, 0.5**0.5, 0], [0, 1, 0]])
    assert np.allclose(unit(np.zeros((1, 3), np.float32)), 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 20), st.integers(2, 5))
def test_the_scale_is_the_one_with_the_least_loss(seed: int, true: float, classes: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(200, classes)).astype(np.float32)
    p = softmax(scores.astype(np.float64) * true)
    labels = np.array([random.choice(classes, p=row) for row in p])
    targets = Targets(tuple("abcde"[:classes]), labels)
    share = 1 / 202
    smooth = np.full(scores.shape, share / (classes - 1))
    smooth[np.arange(200), labels] = 1 - share

    def loss(logarithm: float) -> float:
        return float(-(smooth * np.log(softmax(np.exp(logarithm) * scores.astype(np.float64)) + 1e-300)).sum())

    found = fit_scale(scores, targets, np.ones(200, np.float32))
    best = minimize_scalar(loss, bounds=(np.log(1e-4), np.log(1e4)), method="bounded", options={"xatol": 1e-8})
    assert loss(np.log(found)) <= best.fun + 1e-6 * abs(best.fun)


def test_perfect_rows_do_not_drive_the_scale_to_infinity() -> None:
    scores = np.array([[1, -1], [-1, 1]] * 4, np.float32)
    found = fit_scale(scores, Targets(("a", "b"), np.array([0, 1] * 4)), np.ones(8, np.float32))
    assert found == pytest.approx(np.log(9) / 2, rel=1e-6)  # p = 1 - 1 / 10


@pytest.mark.parametrize("head", [Logistic(), Logistic(balanced=True), Prototype()])
def test_probabilities_hold_on_texts_that_were_never_seen(head: Logistic | Prototype) -> None:
    vectors, targets = clouds(1500, 4, spread=1.6)
    train, test = np.arange(1500) < 300, np.arange(1500) >= 300
    choice = choose(vectors[train], targets.take(train), head)
    fitted = fit_head(vectors[train], targets.take(train), head, c=choice.c)
    said = choice.scaling.probabilities(fitted.scores(vectors[test]), multilabel=False)
    loss, error = judge(said, targets.take(test))
    assert np.allclose(said.sum(axis=1), 1, atol=1e-5)
    assert loss == pytest.approx(log_loss(targets.values[test], said, labels=range(4)), rel=1e-4)
    assert choice.scaling.calibration is not None
    assert choice.scaling.calibration.log_loss_after <= choice.scaling.calibration.log_loss_before + 1e-4
    if (
        isinstance(head, Logistic) and not head.balanced
    ):  # a balanced head and cosines do not know how frequent labels are
        assert error < 0.06
        assert choice.scaling.calibration.error_after == pytest.approx(error, abs=0.06)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(0, 99))
def test_every_label_stays_known_when_rows_are_held_out(labels: list[int], seed: int) -> None:
    names, values = np.unique(labels, return_inverse=True)
    targets = Targets(tuple(map(str, names)), values.reshape(-1))
    parts = splits(targets, seed=seed)
    for held in parts:
        assert set(targets.values[held]) <= set(targets.values[~held])
    assert sum(held.astype(int) for held in parts).max() == 1 if parts else True
    assert all(np.array_equal(a, b) for a, b in zip(parts, splits(targets, seed=seed), strict=True))


def test_one_row_per_label_says_that_nothing_is_calibrated() -> None:
    vectors, targets = clouds(6, 3)
    one = np.array([0, 2, 4])
    for head in (Logistic(), Prototype()):
        with pytest.warns(MunjangWarning, match="not calibrated"):
            choice = choose(vectors[one], targets.take(one), head)
        assert choice.scaling.calibration is None


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_a_c_that_is_none(wrong: float) -> None:
    with pytest.raises(InputError, match="c must be above 0"):
        Logistic(c=wrong)
