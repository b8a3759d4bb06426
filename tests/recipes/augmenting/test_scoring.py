"""Scores of candidate pairs: a plain loop over cross-encoders and orders, and going on after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, ResumeError
from munjang.recipes.augmenting import scoring
from munjang.recipes.augmenting.pairs import CandidatePairs
from munjang.recipes.augmenting.scoring import PairScores, score_candidates
from munjang.recipes.augmenting.sentences import Sentences, collect
from recipes.material import sentences as material


@pytest.fixture
def judges(load: Callable[[], BiEncoder]) -> list[CrossEncoder]:
    found = [CrossEncoder.from_body(load(), seed=seed, device="cpu", dtype="float32") for seed in range(2)]
    for judge in found:  # a new head hardly tells one order from the other: make it decided, and right in the middle
        with torch.no_grad():
            judge.parts.head.out.weight.mul_(3000)
            judge.refresh()
            texts = material(10, 1)
            judge.parts.head.out.bias.sub_(float(judge.predict(list(pairwise(texts)), raw=True).mean()))
        judge.refresh()
    return found


@pytest.fixture
def given() -> tuple[CandidatePairs, Sentences]:
    sentences = collect([], material(30, 0))
    keys = np.sort(np.random.default_rng(0).choice(30 * 29 // 2, 70, replace=False))
    left, right = (side[keys].astype(np.int32) for side in np.triu_indices(30, 1))
    return CandidatePairs(left, right, np.ones(70, np.uint8)), sentences


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "WINDOW", 16)


@pytest.mark.parametrize("both", [True, False])
def test_mean_and_spread_over_models_and_orders(
    judges: list[CrossEncoder], given: tuple[CandidatePairs, Sentences], both: bool, tmp_path: Path
) -> None:
    pairs, sentences = given
    found = score_candidates(pairs, sentences, judges, tmp_path, both_orders=both)
    texts = [(sentences[a], sentences[b]) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)]
    readings = [judge.predict(texts) for judge in judges]
    if both:
        assert np.abs(readings[0] - judges[0].predict([(b, a) for a, b in texts])).max() > 1e-3
        readings += [judge.predict([(b, a) for a, b in texts]) for judge in judges]
    np.testing.assert_allclose(found.scores, np.mean(readings, axis=0), atol=1e-5)
    np.testing.assert_allclose(found.spread, np.std(readings, axis=0), atol=1e-5)
    assert found.scores.dtype == found.spread.dtype == np.float32
    assert len(found) == 70
    assert float(found.spread.max()) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.json", "scores.npy", "spread.npy"]


class Stop(Exception):
    pass


def test_goes_on_after_an_interruption(
    judges: list[CrossEncoder],
    given: tuple[CandidatePairs, Sentences],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs, sentences = given
    whole = score_candidates(pairs, sentences, judges, tmp_path / "whole")
    asked: list[int] = []
    real = CrossEncoder.predict_report

    def counted(self: CrossEncoder, rows: list[tuple[str, str]], **named: object) -> object:
        asked.append(len(rows))
        return real(self, rows, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(CrossEncoder, "predict_report", counted)
    for stop in (16, 48, 70):

        def progress(done: int, total: int | None, stop: int = stop) -> None:
            assert total == 70
            if done == stop:
                raise Stop

        with pytest.raises(Stop):
            score_candidates(pairs, sentences, judges, tmp_path / "broken", progress=progress)
    again = score_candidates(pairs, sentences, judges, tmp_path / "broken")
    assert sum(asked) == 70 * 2 * 2  # every pair once, by two models in two orders
    np.testing.assert_array_equal(again.scores, whole.scores)
    np.testing.assert_array_equal(again.spread, whole.spread)
    read = PairScores.read(tmp_path / "broken")
    np.testing.assert_array_equal(read.scores, whole.scores)


def test_scores_of_something_else_are_not_mixed(
    judges: list[CrossEncoder], given: tuple[CandidatePairs, Sentences], tmp_path: Path
) -> None:
    pairs, sentences = given
    score_candidates(pairs, sentences, judges[:1], tmp_path)
    with pytest.raises(ResumeError, match="other cross-encoders"):
        score_candidates(pairs, sentences, judges[1:], tmp_path)
    fewer = CandidatePairs(pairs.left[:5], pairs.right[:5], pairs.origin[:5])
    with pytest.raises(ResumeError, match="other pairs"):
        score_candidates(fewer, sentences, judges[:1], tmp_path)
    with pytest.raises(ResumeError, match="both orders"):
        score_candidates(pairs, sentences, judges[:1], tmp_path, both_orders=False)


def test_cut_pairs_are_counted(
    judges: list[CrossEncoder], given: tuple[CandidatePairs, Sentences], tmp_path: Path
) -> None:
    pairs, sentences = given
    judges[0].max_length = 8
    found = score_candidates(pairs, sentences, judges[:1], tmp_path)
    texts = [(sentences[a], sentences[b]) for a, b in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)]
    expected = judges[0].predict_report(texts).report.truncated
    assert found.truncated == 2 * expected > 0
    assert score_candidates(pairs, sentences, judges[:1], tmp_path).truncated == found.truncated


def test_models_that_cannot_score(
    load: Callable[[], BiEncoder], judges: list[CrossEncoder], given: tuple[CandidatePairs, Sentences], tmp_path: Path
) -> None:
    pairs, sentences = given
    folder = tmp_path / "none"
    three = CrossEncoder.from_body(load(), ["entailment", "neutral", "contradiction"], device="cpu")
    with pytest.raises(InputError, match=r"one score is needed.*3 labels.*cross_sts"):
        score_candidates(pairs, sentences, [judges[0], three], folder)
    with pytest.raises(InputError, match="at least one"):
        score_candidates(pairs, sentences, [], folder)
    judges[0].parts.activation = "Identity"
    with pytest.raises(InputError, match="ends in Identity"):
        score_candidates(pairs, sentences, judges[:1], folder)
    with pytest.raises(InputError, match="other sentences"):
        score_candidates(pairs, collect([], material(5, 0)), judges[1:], folder)
    empty = CandidatePairs(pairs.left[:0], pairs.right[:0], pairs.origin[:0])
    with pytest.raises(InputError, match="no pairs"):
        score_candidates(empty, sentences, judges[1:], folder)
    assert not folder.exists()
    with pytest.raises(DataError, match="cannot be read"):
        PairScores.read(folder)
