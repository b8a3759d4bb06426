"""Every metric beside scipy's and scikit-learn's, for any input that hypothesis thinks of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.evaluation import metrics

SCORES = st.lists(st.one_of(st.integers(-4, 4), st.floats(-1e6, 1e6, width=32)), min_size=2, max_size=40)
LABELS = st.lists(st.integers(0, 1), min_size=2, max_size=40)
GROUPS = st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 3)), min_size=1, max_size=40)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, on sets without one class
        yield


@settings(deadline=None)
@given(SCORES, st.integers(0, 2**32), st.sampled_from([-1, 0, 2]))
def test_correlations_are_scipys(scores: list[float], seed: int, digits: int) -> None:
    a = np.array(scores, dtype=float)
    generator = np.random.default_rng(seed)
    b = np.round(a * generator.choice([-1, 1]) + generator.normal(size=len(a)) * (1 + np.abs(a).max() / 3), digits)
    assume(np.ptp(a) > 1e-3 and np.ptp(b) > 1e-3)
    assert metrics.pearson(a, b) == pytest.approx(scipy.stats.pearsonr(a, b).statistic, abs=1e-7)
    assert metrics.spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-9)
    assert np.array_equal(metrics.ranks(a), scipy.stats.rankdata(a))


def test_correlation_keeps_its_digits() -> None:
    tiny = np.array([1e-200, 2e-200, 4e-200])
    assert metrics.pearson(tiny, [1, 2, 4]) == pytest.approx(1)
    assert metrics.spearman([1, 2, 3], [3, 2, 1]) == -1


@pytest.mark.parametrize("metric", [metrics.pearson, metrics.spearman])
def test_what_cannot_correlate_is_said(metric: object) -> None:
    for a, b, words in (
        ([1, 1, 1], [1, 2, 3], "constant scores: the first"),
        ([1, 2, 3], [0.5] * 3, "constant scores: the second"),
        ([1], [1], "constant"),
        ([], [], "at least one"),
        ([1, 2], [1, 2, 3], "first 2, second 3"),
        ([1, float("nan")], [1, 2], "finite, got nan in row 1"),
        (["a", "b"], [1, 2], "numbers"),
    ):
        with pytest.raises(InputError, match=words):
            metric(a, b)  # type: ignore[operator]


@settings(deadline=None)
@given(GROUPS)
def test_predictions_are_judged_as_by_sklearn(rows: list[tuple[int, int]]) -> None:
    gold, guess = map(np.array, zip(*rows, strict=True))
    assert metrics.accuracy(gold, guess) == pytest.approx(sklearn.metrics.accuracy_score(gold, guess))
    for average in ("macro", "micro", "weighted"):
        found = metrics.precision_recall_f1(gold, guess, average=average)  # type: ignore[arg-type]
        theirs = sklearn.metrics.precision_recall_fscore_support(gold, guess, average=average, zero_division=0)
        assert (found.precision, found.recall, found.f1) == pytest.approx(theirs[:3])
    assert metrics.f1(gold, guess) == pytest.approx(sklearn.metrics.f1_score(gold, guess, average="macro"))
    two, other = gold > 1, guess > 0
    assert metrics.matthews(two, other) == pytest.approx(sklearn.metrics.matthews_corrcoef(two, other), abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(LABELS, st.integers(0, 2**32), st.sampled_from([1, 8]))
def test_scores_are_judged_as_by_sklearn(labels: list[int], seed: int, digits: int) -> None:
    assume(0 < sum(labels) < len(labels))
    scores = np.round(np.random.default_rng(seed).random(len(labels)), digits)
    assert metrics.average_precision(labels, scores) == pytest.approx(
        sklearn.metrics.average_precision_score(labels, scores)
    )
    assert metrics.roc_auc(labels, scores) == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores))
    assert metrics.brier(labels, scores) == pytest.approx(sklearn.metrics.brier_score_loss(labels, scores))
    # Thresholds by brute force: between, below and above all scores.
    cuts = np.unique(scores)
    cuts = np.concatenate((cuts, [cuts[-1] + 1]))
    told = [np.asarray(scores) >= cut for cut in cuts]
    best = metrics.best_accuracy(labels, scores)
    assert best.value == pytest.approx(max(sklearn.metrics.accuracy_score(labels, guess) for guess in told))
    assert metrics.accuracy(labels, np.asarray(scores) >= best.threshold) == pytest.approx(best.value)
    best = metrics.best_f1(labels, scores)
    assert best.value == pytest.approx(max(sklearn.metrics.f1_score(labels, guess) for guess in told))
    at = sklearn.metrics.precision_recall_fscore_support(labels, np.asarray(scores) >= best.threshold, average="binary")
    assert (best.precision, best.recall, best.value) == pytest.approx(at[:3])


def test_positives_that_were_not_found_count() -> None:
    assert metrics.average_precision([1, 0, 1], [3, 2, 1], positives=4) == pytest.approx((1 + 2 / 3) / 4)
    best = metrics.best_f1([1, 0], [2, 1], positives=3)
    assert (best.recall, best.precision, best.value) == pytest.approx((1 / 3, 1, 0.5))


def test_a_threshold_lies_between_scores_even_where_floats_are_neighbours() -> None:
    low = 0.5
    high = np.nextafter(low, 1)
    best = metrics.best_f1([1, 0], [high, low])
    assert low < best.threshold <= high
    assert metrics.best_accuracy([0, 1, 1], [3, 2, 1]).value == pytest.approx(2 / 3)


def test_calibration() -> None:
    assert metrics.calibration_error([0, 1, 0, 1], [0.5] * 4) == 0
    assert metrics.calibration_error([1, 1], [0.25, 0.75]) == pytest.approx(0.5)
    with pytest.raises(InputError, match=r"0\.\.1"):
        metrics.brier([0, 1], [0.5, 1.5])


def test_one_class_only_is_said() -> None:
    for metric in (metrics.roc_auc, metrics.best_accuracy):
        with pytest.raises(InputError, match="all 1: both classes"):
            metric([1, 1], [0.2, 0.3])
    for metric in (metrics.average_precision, metrics.best_f1):
        with pytest.raises(InputError, match="all 0"):
            metric([0, 0], [0.2, 0.3])
    with pytest.raises(InputError, match="0 or 1"):
        metrics.roc_auc([0, 2], [0.1, 0.2])


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 14), st.integers(0, 3))
def test_rankings_beside_brute_force(ranked: list[int], k: int, missed: int) -> None:
    relevant = sum(grade > 0 for grade in ranked) + missed
    assume(relevant > 0)
    everything = sorted([*ranked, *[1] * missed], reverse=True)
    grades, totals = np.array([ranked]), np.array([relevant])
    top = ranked[:k]
    hits = [i for i, grade in enumerate(top) if grade]
    assert metrics.reciprocal_rank(grades, k)[0] == pytest.approx(1 / (hits[0] + 1) if hits else 0)
    assert metrics.hit_rate(grades, k)[0] == bool(hits)
    assert metrics.precision_at(grades, k)[0] == pytest.approx(len(hits) / k)
    assert metrics.recall_at(grades, totals, k)[0] == pytest.approx(len(hits) / relevant)
    precision = sum((n + 1) / (i + 1) for n, i in enumerate(hits))
    assert metrics.average_precision_at(grades, totals, k)[0] == pytest.approx(precision / min(k, relevant))
    gain = sum(grade / np.log2(i + 2) for i, grade in enumerate(top))
    most = sum(grade / np.log2(i + 2) for i, grade in enumerate(everything[:k]))
    assert metrics.ndcg(grades, [everything], k)[0] == pytest.approx(gain / most)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=2, max_size=15), st.integers(1, 16))
def test_ndcg_with_ties_is_sklearns(rows: list[tuple[int, int]], k: int) -> None:
    grades, scores = zip(*rows, strict=True)
    assume(any(grades))
    theirs = sklearn.metrics.ndcg_score([grades], [scores], k=k)
    assert metrics.tied_ndcg(grades, scores, k) == pytest.approx(theirs)


def test_bad_rankings_are_said() -> None:
    with pytest.raises(InputError, match="k must be"):
        metrics.hit_rate([[1]], 0)
    with pytest.raises(InputError, match="totals must be 1 or more"):
        metrics.recall_at([[1, 1]], [1], 2)
    with pytest.raises(InputError, match="greatest down"):
        metrics.ndcg([[1, 1]], [[1, 2]], 2)
    with pytest.raises(InputError, match="shape"):
        metrics.hit_rate(np.zeros((0, 3)), 1)


@settings(deadline=None)
@given(GROUPS)
def test_groupings_are_compared_as_by_sklearn(rows: list[tuple[int, int]]) -> None:
    gold, found = map(np.array, zip(*rows, strict=True))
    ours = metrics.v_measures(gold, found)
    theirs = sklearn.metrics.homogeneity_completeness_v_measure(gold, found)
    assert (ours.homogeneity, ours.completeness, ours.v_measure) == pytest.approx(theirs, abs=1e-9)
    assert metrics.normalized_mutual_information(gold, found) == pytest.approx(
        sklearn.metrics.normalized_mutual_info_score(gold, found), abs=1e-9
    )
    assert metrics.adjusted_rand_index(gold, found) == pytest.approx(
        sklearn.metrics.adjusted_rand_score(gold, found), abs=1e-9
    )
