"""What a recipe says of its outcome: whether the model is better than the one that was given, and what is delivered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import munjang
from munjang import recipes
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.evaluation.metrics import AgainstMajority
from munjang.recipes import RecipeOptions
from recipes.material import nli, scored, sentences

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]
CHANGES = {"max_steps": 6, "batch_size": 8, "learning_rate": 2e-2, "evaluate_every": 2, "dropout": 0.0}


def options(folder: Path | None = None, **more: object) -> RecipeOptions:
    return RecipeOptions(folder=folder, device="cpu", **{"changes": CHANGES, **more})  # type: ignore[arg-type]


def as_the_model_says(model: BiEncoder, name: str, seed: int, count: int = 16) -> Examples:
    """Pairs whose scores are the model's own cosines: nothing can do better on them."""
    a, b = sentences(count, seed), sentences(count, seed + 1000)
    cosines = (model.encode(a, normalize=True) * model.encode(b, normalize=True)).sum(axis=1)
    return Examples(name, "scored", {"a": a, "b": b}, np.clip(cosines, 0, 1).astype(np.float32))


def test_a_model_that_only_got_worse_is_delivered_as_it_was(load: Load, tmp_path: Path) -> None:
    given = load()
    before = given.encode(sentences(3, 5))
    dev, test = (as_the_model_says(given, name, seed) for name, seed in (("dev", 50), ("test", 90)))
    train = as_the_model_says(given, "train", 0, 24)
    assert train.targets is not None
    harmful = replace(train, targets=1 - train.targets)
    result = recipes.sts(load(), harmful, dev, test, options=options(tmp_path))
    assert result.training.unchanged
    first = str(result).splitlines()[0]
    assert "nothing beat the model as given" in first
    assert "unchanged" in first
    found = munjang.load(tmp_path / "model", device="cpu", dtype="float32").encode(sentences(3, 5))
    np.testing.assert_array_equal(found, before)
    assert first in json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["headline"]
    for page in ("report.html", "model/README.md"):
        assert "nothing beat the model as given" in (tmp_path / page).read_text(encoding="utf-8")
    again = recipes.sts(load(), harmful, dev, test, options=options(tmp_path))
    assert again.headline == result.headline

    left_out = recipes.sts(load(), harmful, dev, test, options=options(before=False))
    assert not left_out.training.unchanged


def test_without_a_development_set_harm_on_the_test_set_is_said_first(load: Load) -> None:
    given = load()
    test = as_the_model_says(given, "test", 90)
    train = as_the_model_says(given, "train", 0, 24)
    assert train.targets is not None
    result = recipes.sts(given, replace(train, targets=1 - train.targets), test=test, options=options())
    first = str(result).splitlines()[0]
    assert "worse than before training" in first
    assert "test: spearman 100.00 -> " in first


def test_a_gain_is_said_beside_the_start(load: Load) -> None:
    result = recipes.sts(load(), scored("same", 16, 3), scored("dev", 16, 3), options=options(leakage="report"))
    assert not result.training.unchanged
    assert f"{100 * result.training.start:.2f} -> " in result.headline  # type: ignore[operator]


def shuffled(name: str, seed: int) -> Examples:
    """Labels that have nothing to do with the texts."""
    found = nli(name, 16, seed)
    assert found.targets is not None
    return replace(found, targets=np.random.default_rng(seed).permutation(found.targets))


@pytest.mark.parametrize("recipe", ["nli", "cross_nli"])
def test_learning_at_chance_is_said_first(recipe: str, tiny: Path) -> None:
    train, dev, test = (shuffled(name, seed) for name, seed in (("train", 0), ("dev", 50), ("test", 90)))
    chosen = options(changes={"max_steps": 3, "learning_rate": 1e-5})
    result = getattr(recipes, recipe)(tiny, train, dev, test, options=chosen)
    assert result.labelled is not None
    assert result.labelled.rows == len(test)
    assert result.labelled.majority == pytest.approx(1 / 3)
    assert "at chance" in str(result).splitlines()[0]
    assert "33.33" in str(result).splitlines()[0]
    without = getattr(recipes, recipe)(tiny, train, options=chosen)  # the training rows then show it
    assert without.labelled.rows == len(train)
    assert "at chance" in str(without).splitlines()[0]


def test_labels_that_were_learned(tiny: Path) -> None:
    train = nli("train", 12)
    chosen = options(changes={"epochs": 60, "batch_size": 12, "learning_rate": 2e-3, "dropout": 0.0})
    result = recipes.cross_nli(tiny, train, options=chosen)
    assert result.labelled is not None
    assert result.labelled.accuracy > 0.9
    assert "chance" not in str(result).splitlines()[0]


@pytest.mark.parametrize(
    ("rows", "right", "majority", "p", "chance"),
    [
        (10, 10, 0.5, 0.5**10, False),
        (10, 5, 0.5, 0.623046875, True),
        (100, 60, 0.5, 0.02844397, True),
        (3_000, 1_080, 1 / 3, 0.0011001, True),  # significant, and hardly better than guessing
        (100_000, 40_000, 1 / 3, 0.0, False),
        (5, 5, 1.0, 1.0, False),  # one label only: nothing could be better
        (5, 0, 0.4, 1.0, True),
    ],
)
def test_the_binomial_test(rows: int, right: int, majority: float, p: float, chance: bool) -> None:
    compared = AgainstMajority(rows, right / rows, majority)
    assert compared.p_value == pytest.approx(p, abs=1e-6)
    assert compared.at_chance == chance


def test_a_chain_goes_on_from_a_trained_head(tiny: Path) -> None:
    """The second stage's start is a trained cross-encoder, and a candidate; the first one's is not."""
    torch.manual_seed(0)
    stage = {"train": scored("train", 16), "dev": scored("dev", 8, 50), "options": options()}
    found = recipes.chain(tiny, [recipes.Stage("cross_sts", **stage), recipes.Stage("cross_sts", **stage)])  # type: ignore[arg-type]
    assert [one.training.start is None for one in found.stages] == [True, False]
