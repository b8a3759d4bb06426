"""Scores of candidate pairs -> which pairs become silver: the certain ones, balanced, not too many.

In this order:
1. certain: of each tenth of the score range, the share with the least spread. By tenths, because cross-encoders differ
   most in the middle: a limit for all would leave pairs that are clearly alike or clearly not.
2. balance: "gold" keeps a pair of score s with probability min(1, gold(s) / silver(s)), by the densities of both (KDE
   sampling of the paper); "uniform" thins crowded twentieths of the range to a common height: as high as `largest`
   allows, or else the median of those that are not empty. Pairs that only the strategy kde found are a pool that was
   drawn to be thinned: they are balanced to gold whatever is chosen for the others.
3. largest: a random subset.

The same seed keeps the same pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError
from munjang.recipes.augmenting.density import estimate
from munjang.recipes.augmenting.pairs import ORIGINS

Array: TypeAlias = npt.NDArray[Any]
Balance = Literal["none", "gold", "uniform"]

TENTHS, TWENTIETHS = 10, 20
_CERTAIN, _KDE, _BALANCE, _LARGEST = range(4)  # each step has random numbers of its own


@dataclass(frozen=True)
class Sampling:
    """Which of the scored pairs are kept."""

    balance: Balance = "none"
    certain: float | None = None  # the share of each tenth of the score range that is kept, the most certain first
    largest: int | None = None  # at most so many pairs
    seed: int = 0

    def __post_init__(self) -> None:
        if self.balance not in get_args(Balance):
            raise InputError(f"balance must be one of {', '.join(get_args(Balance))}; got {self.balance!r}")
        if self.certain is not None and not 0 < self.certain <= 1:
            raise InputError(f"certain must be above 0 and at most 1 (a share of the pairs), got {self.certain}")
        if self.largest is not None and self.largest < 1:
            raise InputError(f"largest must be at least 1, got {self.largest}")


@dataclass(frozen=True, eq=False)
class Sampled:
    """What was kept, and how many pairs fell to each step."""

    mask: Array  # bool [m]
    counts: dict[str, int]  # candidates, uncertain, balanced away, above the largest number, kept

    def __len__(self) -> int:
        return self.counts["kept"]


def sample(
    scores: Array,
    spread: Array,
    gold_scores: Array | None,
    plan: Sampling,
    *,
    origin: Array | None = None,
    kde_pairs: int | None = None,
) -> Sampled:
    """Choose among pairs with these scores, 0..1 [m].

    gold_scores: [g], of the labelled pairs, where balance is "gold" or some pairs are of the KDE pool. origin: uint8
    [m] of the candidates; without it there is no KDE pool. kde_pairs: at most so many are kept of that pool.
    """
    values = np.asarray(scores, np.float32)
    _check(values, spread, origin)
    pool = np.zeros(len(values), np.bool_) if origin is None else np.asarray(origin) == ORIGINS["kde"]
    if (plan.balance == "gold" or pool.any()) and (gold_scores is None or not len(gold_scores)):
        why = "balance 'gold'" if plan.balance == "gold" else "the strategy kde"
        raise InputError(f"{why} needs the scores of labelled pairs to balance to, got none")
    mask = np.ones(len(values), np.bool_)
    counts = {"candidates": len(values)}
    if plan.certain is not None and plan.certain < 1:
        mask &= _certain(values, np.asarray(spread), plan.certain, _generator(plan, _CERTAIN))
    counts["uncertain"] = int((~mask).sum())
    balanced = _balanced(values, mask, pool, gold_scores, plan)
    if kde_pairs is not None:
        balanced = _less(balanced, pool, kde_pairs, _generator(plan, _KDE))
    counts["balanced away"] = int((mask & ~balanced).sum())
    mask = balanced
    if plan.largest is not None:
        mask = _less(balanced, balanced, plan.largest, _generator(plan, _LARGEST))
    counts["above the largest number"] = int((balanced & ~mask).sum())
    counts["kept"] = int(mask.sum())
    return Sampled(mask, counts)


def _balanced(values: Array, mask: Array, pool: Array, gold_scores: Array | None, plan: Sampling) -> Array:
    """The mask after balancing: the KDE pool to gold, the others as the plan says."""
    result = mask.copy()
    draws = _generator(plan, _BALANCE).random(len(values))
    to_gold = [mask] if plan.balance == "gold" else [mask & pool]
    for rows in to_gold:
        if rows.any() and gold_scores is not None:
            result[rows] = draws[rows] < _chance(values[rows], gold_scores)
    if plan.balance == "uniform":
        others = mask & ~pool
        result[others] = _level(values[others], draws[others], plan.largest)
    return result


def _chance(silver: Array, gold: Array) -> Array:  # float64 [m]
    """The probability to be kept: min(1, gold(s) / silver(s)), the densities by KDE."""
    wanted, there = estimate(gold)(silver), estimate(silver)(silver)
    return np.minimum(1.0, wanted / np.maximum(there, np.finfo(np.float64).tiny))


def _level(values: Array, draws: Array, largest: int | None) -> Array:  # bool [m]
    """In each twentieth of the range the pairs with the lowest draws, up to the common height."""
    bins = bin_of(values, TWENTIETHS)
    counts = np.bincount(bins, minlength=TWENTIETHS)
    if not counts.any():
        return np.zeros(0, np.bool_)
    height = int(np.median(counts[counts > 0])) if largest is None else _height(counts, largest)
    return _first(bins, draws, np.full(TWENTIETHS, height))


def _height(counts: Array, largest: int) -> int:
    """The greatest height at which the bins together hold no more than `largest`."""
    low, high = 0, int(counts.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(counts, middle).sum()) <= largest:
            low = middle
        else:
            high = middle - 1
    return max(1, low)


def _certain(values: Array, spread: Array, share: float, generator: np.random.Generator) -> Array:  # bool [m]
    bins = bin_of(values, TENTHS)
    kept = np.ceil(np.bincount(bins, minlength=TENTHS) * share).astype(np.int64)
    # Equal spreads in random order: the pairs stand in the order of their sentences, which must not decide.
    order = np.lexsort((generator.random(len(values)), spread))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    return _first(bins, ranks, kept)


def _first(bins: Array, ranks: Array, kept: Array) -> Array:  # [m], [m], [bins] -> bool [m]
    """In each bin the `kept` with the lowest rank."""
    order = np.lexsort((ranks, bins))
    starts = np.concatenate([[0], np.cumsum(np.bincount(bins, minlength=len(kept)))])
    place = np.arange(len(bins)) - starts[bins[order]]
    chosen = np.zeros(len(bins), np.bool_)
    chosen[order] = place < kept[bins[order]]
    return chosen


def _less(mask: Array, among: Array, largest: int, generator: np.random.Generator) -> Array:
    """The mask with at most `largest` rows of `among`, chosen at random."""
    rows = np.flatnonzero(mask & among)
    if len(rows) <= largest:
        return mask
    result = mask.copy()
    result[generator.choice(rows, len(rows) - largest, replace=False)] = False
    return result


def bin_of(values: Array, bins: int) -> Array:  # int64 [m]
    """Which of equal parts of 0..1 a score falls into; 1 belongs to the last."""
    places: Array = np.minimum((np.asarray(values, np.float64) * bins).astype(np.int64), bins - 1)
    return places


def _generator(plan: Sampling, step: int) -> np.random.Generator:
    return np.random.default_rng([plan.seed, step])


def _check(values: Array, spread: Array, origin: Array | None) -> None:
    if values.ndim != 1 or not len(values):
        raise InputError(f"scores must be [m], at least one; got shape {list(values.shape)}")
    for name, other in (("spread", spread), ("origin", origin)):
        if other is not None and np.shape(other) != values.shape:
            raise InputError(f"{name} must be as long as the scores ({len(values):,}), got {list(np.shape(other))}")
    if not (values.min() >= 0 and values.max() <= 1):
        raise InputError(f"scores must be in 0..1, got {values.min():g}..{values.max():g}")
