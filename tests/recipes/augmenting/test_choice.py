"""Which model Augmented SBERT delivers: the development set chooses; else a test set that shows clear harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from munjang.evaluation import Scores
from munjang.evaluation.metrics import Difference
from munjang.recipes.augmenting.result import Gain, Trained, choose


def trained(name: str, dev: float | None, *, unchanged: bool = False) -> Trained:
    scores = () if dev is None else (Scores("dev", {"spearman": dev}, "spearman", 10),)
    return Trained(name, Path(name), (), scores, 10, 1.0, unchanged=unchanged)


def gain(baseline: float, augmented: float, *, clear: bool, untrained: float | None = None) -> Gain:
    value = augmented - baseline
    room = abs(value) * (0.5 if clear else 2)
    difference = Difference(value, value - room, value + room, 0.0)
    return Gain("test", "test", "spearman", 10, baseline, augmented, difference, untrained)


@pytest.mark.parametrize(
    ("without", "with_silver", "unchanged", "delivered"),
    [
        (0.7, 0.8, False, "augmented"),
        (0.8, 0.7, False, "labelled"),
        (0.8, 0.8, False, "labelled"),
        (0.8, 0.7, True, "given"),
        (0.7, 0.8, True, "augmented"),
    ],
)
def test_the_development_set_chooses(without: float, with_silver: float, unchanged: bool, delivered: str) -> None:
    against = [gain(0.5, 0.9, clear=True) if delivered != "augmented" else gain(0.9, 0.5, clear=True)]
    choice = choose(trained("bi", with_silver), trained("baseline", without, unchanged=unchanged), against)
    assert choice.delivered == delivered  # whatever the test set says
    assert not choice.by_test
    assert f"{100 * without:.2f}" in str(choice)


def test_without_a_development_set_only_clear_harm_on_the_test_set_counts() -> None:
    bi, baseline = trained("bi", None), trained("baseline", None)
    assert choose(bi, baseline, []).delivered == "augmented"
    assert choose(bi, baseline, [gain(0.8, 0.7, clear=False)]).delivered == "augmented"
    harm = choose(bi, baseline, [gain(0.8, 0.7, clear=True, untrained=0.6)])
    assert (harm.delivered, harm.by_test) == ("labelled", True)
    both = choose(bi, baseline, [gain(0.8, 0.7, clear=True, untrained=0.9)])
    assert (both.delivered, both.by_test) == ("given", True)
    assert choose(bi, None, []).delivered == "augmented"
