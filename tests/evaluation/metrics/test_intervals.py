"""The quick draws are the slow ones; intervals hold what they say; two models are compared row by row."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.stats

from munjang.errors import InputError
from munjang.evaluation import metrics
from munjang.evaluation.metrics import intervals as module


def slow(metric: object) -> object:
    """The same metric under another name, which has no quick way."""
    return lambda *columns: metric(*columns)  # type: ignore[operator]


def rows(n: int, seed: int = 0, digits: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    gold = np.round(generator.normal(size=n), digits)
    return gold, np.round(gold + generator.normal(size=n), digits)


@pytest.mark.parametrize("metric", [metrics.pearson, metrics.spearman])
@pytest.mark.parametrize("n", [3, 50])
def test_counted_draws_are_the_draws(metric: object, n: int) -> None:
    columns = list(rows(n, digits=0 if n == 3 else 1))
    quick = module._draws(metric, columns, 200, 5)  # type: ignore[arg-type]
    plain = module._draws(slow(metric), columns, 200, 5)  # type: ignore[arg-type]
    assert np.allclose(quick, plain, atol=1e-9, equal_nan=True)
    assert np.isfinite(quick).any()


def test_the_mean_too_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random(40)
    whole = metrics.bootstrap(metrics.mean, values, samples=300)
    assert whole == pytest.approx(metrics.bootstrap(slow(metrics.mean), values, samples=300))  # type: ignore[arg-type]
    monkeypatch.setattr(module, "_CELLS", 100)
    assert metrics.bootstrap(metrics.mean, values, samples=300) == pytest.approx(whole)


def test_spearman_of_a_benchmark_takes_less_than_two_seconds() -> None:
    gold, scores = rows(1379)
    started = time.process_time()
    low, high = metrics.bootstrap(metrics.spearman, gold, scores, samples=1000)
    assert time.process_time() - started < 2
    assert low < metrics.spearman(gold, scores) < high
    assert 0.03 < high - low < 0.12


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    held = 0
    for trial in range(200):
        low, high = metrics.bootstrap(metrics.mean, generator.random(60), samples=300, seed=trial, level=0.9)
        held += low <= 0.5 <= high
    assert 165 <= held <= 195


def test_two_models_on_the_same_rows() -> None:
    gold, scores = rows(300)
    worse = scores + np.random.default_rng(9).normal(size=300) * 2
    gap = metrics.paired_bootstrap(metrics.spearman, (gold, scores), (gold, worse))
    assert gap.value == pytest.approx(metrics.spearman(gold, scores) - metrics.spearman(gold, worse))
    assert 0 < gap.low < gap.value < gap.high
    assert gap.clear
    assert gap.better > 0.99
    same = metrics.paired_bootstrap(metrics.spearman, (gold, scores), (gold, scores))
    assert (same.value, same.low, same.high, same.better) == (0, 0, 0, 0.5)
    assert not same.clear


def test_the_paired_interval_is_that_of_a_plain_loop() -> None:
    gold, scores = rows(40)
    other = np.round(scores + np.random.default_rng(9).normal(size=40), 1)
    gap = metrics.paired_bootstrap(metrics.spearman, (gold, scores), (gold, other), samples=300, seed=7)
    gaps = []
    for draw in np.random.default_rng(7).integers(0, 40, (300, 40)):
        ours, theirs = (scipy.stats.spearmanr(gold[draw], said[draw]).statistic for said in (scores, other))
        gaps.append(ours - theirs)
    assert (gap.low, gap.high) == pytest.approx(np.quantile(gaps, [0.025, 0.975]))
    assert gap.better == pytest.approx(np.mean(np.array(gaps) > 0), abs=1 / 300)
    apart = [metrics.bootstrap(metrics.spearman, gold, said, samples=300, seed=7) for said in (scores, other)]
    assert gap.high - gap.low < sum(high - low for low, high in apart)  # the same rows: much of the chance is shared


def test_a_draw_of_one_class_is_left_out_and_too_many_are_said() -> None:
    low, high = metrics.bootstrap(metrics.roc_auc, [0, 1, 0, 1], [0.1, 0.9, 0.8, 0.3], samples=100)
    assert 0 <= low < high <= 1
    with pytest.raises(InputError, match="too few rows"):
        metrics.bootstrap(metrics.roc_auc, [0, 1], [0.1, 0.9], samples=11)
    with pytest.raises(InputError, match="as many rows"):
        metrics.bootstrap(metrics.pearson, [1, 2], [1])
    with pytest.raises(InputError, match="samples"):
        metrics.bootstrap(metrics.mean, [1, 2], samples=1)


def test_the_same_seed_gives_the_same_interval() -> None:
    gold, scores = rows(50)
    first = metrics.bootstrap(metrics.spearman, gold, scores, seed=4)
    assert metrics.bootstrap(metrics.spearman, gold, scores, seed=4) == first
    assert metrics.bootstrap(metrics.spearman, gold, scores, seed=5) != first
