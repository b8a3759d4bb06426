"""The mean over several STS sets, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from evaluation.sample import PAIRS, CrossStub, Stub, scored
from munjang.errors import InputError
from munjang.evaluation import StsEvaluator, StsMeanEvaluator
from munjang.evaluation.metrics import bootstrap, bootstrap_mean, spearman
from munjang.vectors import pairwise_similarity


def _stub() -> Stub:
    random = np.random.default_rng(4)
    return Stub({text: tuple(random.normal(size=2)) for a, b, _ in PAIRS for text in (a, b)})


def test_it_is_the_mean_of_the_sets() -> None:
    stub, whole = _stub(), scored()
    sets = (whole.take(range(7), name="one"), whole.take(range(5, 12), name="two"))
    found = StsMeanEvaluator(sets, "both", bootstrap=200)(stub)  # type: ignore[arg-type]
    wanted = []
    for examples in sets:
        a, b = (np.array([stub.table[text] for text in examples.columns[side]], np.float32) for side in "ab")
        wanted.append(spearmanr(pairwise_similarity(a, b), examples.targets).statistic)
    assert found.value == pytest.approx(np.mean(wanted))
    assert found.rows == 14
    low, high = found.intervals["spearman"]
    assert low <= found.value <= high
    alone = [StsEvaluator(examples)(stub).value for examples in sets]  # type: ignore[arg-type]
    assert found.value == pytest.approx(np.mean(alone))


def test_a_cross_encoder_is_asked_too() -> None:
    found = StsMeanEvaluator((scored(),), "one")(CrossStub())  # type: ignore[arg-type]
    assert found.value == pytest.approx(StsEvaluator(scored())(CrossStub()).value)  # type: ignore[arg-type]


def test_the_interval_of_a_mean_is_narrower_than_that_of_one_set() -> None:
    random = np.random.default_rng(0)
    groups = []
    for _ in range(5):
        gold = random.normal(size=150)
        groups.append((gold, gold + random.normal(size=150)))
    low, high = bootstrap_mean(spearman, groups, samples=400)
    assert low < np.mean([spearman(*group) for group in groups]) < high
    one = bootstrap(spearman, *groups[0], samples=400)
    # Five independent sets: the width falls by about the square root of five.
    assert high - low == pytest.approx((one[1] - one[0]) / np.sqrt(5), rel=0.35)
    with pytest.raises(InputError, match="at least one set"):
        bootstrap_mean(spearman, [])


def test_no_sets_is_an_error() -> None:
    with pytest.raises(InputError, match="at least one set"):
        StsMeanEvaluator((), "none")
