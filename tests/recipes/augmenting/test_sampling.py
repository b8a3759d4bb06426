"""Densities beside scipy's, and which pairs are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gaussian_kde

from munjang.errors import InputError
from munjang.recipes.augmenting.density import LEAST, estimate
from munjang.recipes.augmenting.sampling import Sampling, bin_of, sample
from munjang.recipes.augmenting.silver import histogram

GRID = np.linspace(0, 1, 401)


def beta(a: float, b: float, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).beta(a, b, count).astype(np.float32)


@pytest.mark.parametrize("count", [5, 40, 3000])
def test_density_as_scipy_has_it_away_from_the_borders(count: int) -> None:
    scores = 0.5 + 0.05 * np.random.default_rng(1).normal(size=count)
    found, expected = estimate(scores), gaussian_kde(scores)
    assert found.bandwidth == pytest.approx(float(np.sqrt(expected.covariance[0, 0])), rel=1e-9)
    np.testing.assert_allclose(found(GRID), expected(GRID), atol=2e-3 * expected(GRID).max())


@pytest.mark.parametrize(
    "scores", [beta(0.5, 0.5, 800), beta(1, 9, 50), np.zeros(30), np.ones(1), np.array([0.0, 1.0])]
)
def test_density_with_mirrored_borders(scores: np.ndarray) -> None:
    found = estimate(scores)
    points = np.concatenate([scores, -scores, 2 - scores]).astype(np.float64)
    distance = (GRID[:, None] - points) / found.bandwidth
    expected = np.exp(-0.5 * distance**2).sum(axis=1) / len(scores) / found.bandwidth / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found(GRID), expected, rtol=0, atol=5e-3 * expected.max())
    assert np.trapezoid(found(np.linspace(0, 1, 20_001)), dx=1 / 20_000) == pytest.approx(1, abs=1e-3)


def test_equal_scores_have_the_least_bandwidth() -> None:
    assert estimate([0.5]).bandwidth == estimate([0.5, 0.5, 0.5]).bandwidth == LEAST


@pytest.mark.parametrize("scores", [[], [[0.1]], [1.5], [-0.1, 0.5], [float("nan")]])
def test_scores_that_have_no_density(scores: list[object]) -> None:
    with pytest.raises(InputError, match="scores"):
        estimate(scores)  # type: ignore[arg-type]


def test_bandwidth_as_given() -> None:
    scores = 0.5 + 0.02 * np.random.default_rng(1).normal(size=200)
    expected = gaussian_kde(scores, bw_method=0.05 / scores.std(ddof=1))
    np.testing.assert_allclose(estimate(scores, bandwidth=0.05)(GRID), expected(GRID), atol=1e-3 * expected(GRID).max())
    with pytest.raises(InputError, match="bandwidth must be"):
        estimate(scores, bandwidth=0.5)


def distance(scores: np.ndarray, gold: np.ndarray) -> float:
    one, other = np.array(histogram(scores)) / len(scores), np.array(histogram(gold)) / len(gold)
    return float(np.abs(one - other).sum() / 2)


@pytest.mark.parametrize("gold", [beta(2, 2, 1000, 1), beta(2, 2, 12, 2), np.array([0.5, 0.6], np.float32)])
def test_gold_balance_moves_silver_towards_gold(gold: np.ndarray) -> None:
    silver = beta(0.6, 4, 40_000)
    found = sample(silver, np.zeros_like(silver), gold, Sampling(balance="gold"))
    smooth = estimate(gold)
    target = np.random.default_rng(0).choice(GRID, 20_000, p=smooth(GRID) / smooth(GRID).sum())
    assert distance(silver[found.mask], target) < 0.8 * distance(silver, target)
    assert found.counts["kept"] == len(found) == found.mask.sum() > 0
    # The share kept at each score is what the paper says.
    chance = np.minimum(1, smooth(silver) / estimate(silver)(silver))
    for number in range(20):
        inside = bin_of(silver, 20) == number
        if inside.sum() > 500:
            assert found.mask[inside].mean() == pytest.approx(chance[inside].mean(), abs=0.08)


def test_same_distribution_keeps_most() -> None:
    silver = beta(2, 5, 5000)
    assert len(sample(silver, silver, beta(2, 5, 5000, 1), Sampling(balance="gold"))) > 0.9 * 5000


def test_uniform_balance_levels_the_crowded_bins() -> None:
    silver = beta(1, 5, 20_000)
    before = np.array(histogram(silver))
    found = sample(silver, silver, None, Sampling(balance="uniform"))
    after = np.array(histogram(silver[found.mask]))
    height = int(np.median(before[before > 0]))
    assert (after == np.minimum(before, height)).all()


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=80), st.integers(1, 100))
def test_uniform_is_as_high_as_the_largest_number_allows(scores: list[float], largest: int) -> None:
    values = np.array(scores, np.float32)
    plan = Sampling(balance="uniform", largest=largest)
    after = np.array(histogram(values[sample(values, values, None, plan).mask]))
    before = np.array(histogram(values))
    assert after.sum() <= largest
    assert (after <= before).all()
    if largest >= 20:  # one of every bin fits, so nothing is left to chance
        assert after.max() <= after[after < before].min(initial=after.max())
        assert after.sum() == min(len(values), after.sum())
        one_higher = np.minimum(before, after.max() + 1).sum()
        assert (after == before).all() or one_higher > largest


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=60),
    st.floats(0.05, 1),
    st.integers(0, 3),
)
def test_certain_keeps_the_share_with_the_least_spread(rows: list[tuple[float, int]], share: float, seed: int) -> None:
    scores, spread = (np.array(column, np.float32) for column in zip(*rows, strict=True))
    found = sample(scores, spread, None, Sampling(certain=share, seed=seed))
    bins = bin_of(scores, 10)
    for number in range(10):
        kept, dropped = spread[(bins == number) & found.mask], spread[(bins == number) & ~found.mask]
        assert len(kept) == np.ceil((len(kept) + len(dropped)) * (share if share < 1 else 1))
        if len(kept) and len(dropped):
            assert kept.max() <= dropped.min()
    assert found.counts["uncertain"] == int((~found.mask).sum())


def test_equal_spreads_are_chosen_at_random() -> None:
    scores, spread = np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32)
    kept = np.flatnonzero(sample(scores, spread, None, Sampling(certain=0.5)).mask)
    assert len(kept) == 500
    assert 400 < kept.mean() < 600


def test_the_kde_pool_alone_is_thinned() -> None:
    generator = np.random.default_rng(0)
    scores, gold = beta(0.5, 6, 9000), beta(3, 3, 500)
    origin = generator.choice(np.array([1, 8, 9], np.uint8), 9000)  # semantic, kde, both
    found = sample(scores, scores, gold, Sampling(), origin=origin)
    pool = origin == 8
    assert found.mask[~pool].all()
    assert 0 < found.mask[pool].mean() < 0.7
    assert distance(scores[pool & found.mask], gold) < distance(scores[pool], gold)
    few = sample(scores, scores, gold, Sampling(), origin=origin, kde_pairs=100)
    assert int(few.mask[pool].sum()) == 100
    assert few.mask[~pool].all()
    assert (found.mask | ~few.mask).all()
    level = sample(scores, scores, gold, Sampling(balance="uniform"), origin=origin)
    assert (level.mask[pool] == found.mask[pool]).all()
    assert not level.mask[~pool].all()


def test_counts_add_up_and_the_seed_decides() -> None:
    scores, spread = beta(1, 3, 5000), beta(1, 1, 5000, 1)
    plan = Sampling("gold", 0.8, 700, seed=3)
    found = sample(scores, spread, beta(2, 2, 100), plan)
    assert found.counts["kept"] == 700
    counts = dict(found.counts)
    assert counts.pop("candidates") == sum(counts.values()) == 5000
    again = sample(scores, spread, beta(2, 2, 100), plan)
    assert (again.mask == found.mask).all()
    other = sample(scores, spread, beta(2, 2, 100), Sampling("gold", 0.8, 700, seed=4))
    assert (other.mask != found.mask).any()


def test_what_cannot_be_sampled() -> None:
    scores = np.array([0.1, 0.9], np.float32)
    for wrong, message in (
        ({"balance": "even"}, "none, gold, uniform"),
        ({"certain": 0.0}, "certain must be"),
        ({"certain": 1.1}, "certain must be"),
        ({"largest": 0}, "largest must be"),
    ):
        with pytest.raises(InputError, match=message):
            Sampling(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="balance 'gold' needs"):
        sample(scores, scores, None, Sampling(balance="gold"))
    with pytest.raises(InputError, match="strategy kde needs"):
        sample(scores, scores, None, Sampling(), origin=np.array([1, 8], np.uint8))
    with pytest.raises(InputError, match="spread must be as long"):
        sample(scores, scores[:1], None, Sampling())
    with pytest.raises(InputError, match=r"0\.\.1"):
        sample(scores * 5, scores, None, Sampling())
    with pytest.raises(InputError, match="at least one"):
        sample(scores[:0], scores[:0], None, Sampling())
