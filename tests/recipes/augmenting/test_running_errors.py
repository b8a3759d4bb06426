"""What Augmented SBERT refuses, and that it does so before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from munjang import recipes
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, MissingExtraError
from munjang.recipes import Candidates
from munjang.recipes.augmenting import running
from recipes.augmenting.small import lively, options
from recipes.material import scored

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
Load = Callable[[], BiEncoder]


@pytest.fixture(scope="module")
def tiny(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively(tiny, tmp_path_factory.mktemp("lively"))


@pytest.fixture
def load(tiny: Path) -> Load:
    return lambda: BiEncoder.load(tiny, device="cpu", dtype="float32")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either gold .* or domain .* together with public.*; got neither"),
        ({"domain": ["한 문장", "another"]}, "got domain"),
        ({"public": "gold"}, "got public"),
        ({"gold": "gold", "public": "gold"}, "got gold and public"),
        ({"gold": "gold", "domain": "no-such.txt"}, "no such file of the domain"),
        ({"gold": "gold", "dev": "test", "test": "test"}, "cannot report too"),
    ],
)
def test_neither_way(tiny: Path, tmp_path: Path, given: dict[str, object], message: str) -> None:
    sets = {"gold": scored("gold", 8, 0), "test": scored("test", 8, 3)}
    ready = {name: sets.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises((InputError, DataError), match=message):
        recipes.augmented(tiny, **ready, options=options(tmp_path / "run"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()  # found before anything is computed


def test_wrong_models_and_options(tiny: Path, load: Load, tmp_path: Path) -> None:
    gold = scored("gold", 8, 0)
    cross = CrossEncoder.from_body(load(), ("yes", "no", "perhaps"))
    folder = tmp_path / "run"
    with pytest.raises(InputError, match=r"one score, but .* has 3 outputs"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=cross))
    ranker = CrossEncoder.from_body(load(), 1)
    ranker.parts = replace(ranker.parts, activation="Identity")
    with pytest.raises(InputError, match=r"scores in 0\.\.1, but .* ends in Identity"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=ranker))
    with pytest.raises(InputError, match="got a BiEncoder"):
        recipes.augmented(tiny, gold=gold, options=options(folder, cross_encoder=load()))
    with pytest.raises(InputError, match="trains a bi-encoder, got a CrossEncoder"):
        recipes.augmented(cross, gold=gold, options=options(folder))
    with pytest.raises(InputError, match=r"gold_rows must be 1\.\.8"):
        recipes.augmented(tiny, gold=gold, options=options(folder, gold_rows=9))
    with pytest.raises(InputError, match="there is no gold"):
        recipes.augmented(tiny, public=gold, domain=["a", "b"], options=options(folder, gold_rows=2))
    with pytest.raises(InputError, match="at least two different sentences, got 1"):
        recipes.augmented(tiny, public=gold, domain=["하나", "하나 ", ""], options=options(folder))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"mix": "both"}, "mix must be one of together, then"),
        ({"objective": "angle"}, "objective must be one of cosine, cosent"),
        ({"retrieve_with": "x"}, "retrieve_with must be one of"),
        ({"cross_count": 0}, "cross_count must be a whole number from 1 on, got 0"),
        ({"gold_rows": 1.5}, "gold_rows must be a whole number"),
        ({"bi_changes": {"epoch": 1}}, "changes must be settings"),
        ({"cross_changes": {"seed": 1}}, "the seed of every part follows"),
        ({"leakage": "ignore"}, "leakage must be one of"),
        ({"retriever": "m", "candidates": Candidates(("bm25",)), "blend": 0}, "nothing of these is asked for"),
        ({"cross_encoder": "m", "pretrain": True}, "pretrain would do nothing"),
        ({"cross_encoder": "m", "cross_count": 3}, "cross_count would do nothing"),
        ({"cross_encoder": ["m", "n"], "cross_changes": {"epochs": 2.0}}, "cross_changes would do nothing"),
        ({"cross_objective": "cosine"}, "cross_objective must be one of order, bce, mse"),
        ({"pretrain_changes": {"epochs": 1}}, "the pretraining, which is not asked for"),
        ({"pretrain": True, "pretrain_changes": {"seed": 1}}, "the seed of every part follows"),
        ({"pretrain": True, "pretrain_changes": {"rate": 1}}, "changes must be settings"),
    ],
)
def test_options_are_checked(tmp_path: Path, told: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipes.AugmentOptions(folder=tmp_path, **told)  # type: ignore[arg-type]


def test_approximate_search_without_its_library(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    chosen = options(tmp_path / "run", candidates=Candidates(approximate=True))
    with pytest.raises(MissingExtraError, match=r"munjang\[search\]"):
        recipes.augmented(tiny, gold=scored("gold", 8), options=chosen)
    assert not (tmp_path / "run").exists()


def test_several_processes_are_refused(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one process"):
        recipes.augmented(tiny, gold=scored("gold", 8), options=options(tmp_path / "run"))


def test_a_cross_encoder_that_says_the_same_of_all(tiny: Path, load: Load, tmp_path: Path) -> None:
    cross = CrossEncoder.from_body(load(), 1)
    torch.nn.init.zeros_(list(cross.parts.head.parameters())[-2])
    cross.refresh()
    chosen = options(tmp_path / "run", cross_encoder=cross, baseline=False, retrieve_with="given")
    with pytest.raises(DataError, match=r"gives all .* silver pairs the same score"):
        recipes.augmented(tiny, gold=scored("gold", 12), options=chosen)
