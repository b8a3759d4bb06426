"""Larger cross-encoders learn one half of people's scores each: what they say of pairs, and of the other half."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import spearmanr

from munjang.data import Examples
from munjang.recipes.bundled import agreeing
from munjang.recipes.bundled.agreeing import make_agreed
from munjang.recipes.bundled.passages import HANGUL
from munjang.recipes.bundled.readers import halves_of, kinds_of, moved, translated_rows
from munjang.recipes.bundled.silver import both_ways, either_way, in_other_languages, pairs_of
from munjang.recipes.bundled.voices import read_english
from munjang.training.run import data_hash
from recipes.bundled.agreed_run import Run, plan
from recipes.bundled.whole_run import easy_negatives

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreeing, "find_negatives", easy_negatives)


def scored(*pairs: tuple[str, str]) -> Examples:
    a, b = zip(*pairs, strict=True)
    return Examples("some", "scored", {"a": list(a), "b": list(b)}, np.zeros(len(pairs), np.float32))


def halves(run: Run) -> np.ndarray:
    return halves_of(run.material.graded(), translated_rows(run.material.sts))


def said(run: Run, stage: str, a: list[str], b: list[str]) -> np.ndarray:
    """What a reader says; the second of a kind reads the other way round."""
    order = (b, a) if stage.endswith("2") else (a, b)
    return run.cross(stage).predict(list(zip(*order, strict=True)))


# --- halves ----------------------------------------------------------------------------------------------------------


def test_a_pair_is_in_one_half_however_it_is_written() -> None:
    some = [(f"Sentence {number}", f"Another {number}") for number in range(400)]
    half = halves_of(scored(*some), {})
    assert set(half.tolist()) == {1, 2}
    assert 150 < (half == 1).sum() < 250
    assert np.array_equal(half, halves_of(scored(*((b, a) for a, b in some)), {}))
    assert np.array_equal(half, halves_of(scored(*((f"{a}!", b.lower()) for a, b in some)), {}))
    korean = {f"문장 {number}": a for number, (a, _) in enumerate(some)}
    assert np.array_equal(half, halves_of(scored(*((ko, b) for ko, (_, b) in zip(korean, some, strict=True))), korean))


def test_rows_of_korsts_are_those_of_stsb() -> None:
    korean, english = scored(("하나", "둘"), ("셋", "넷")), scored(("one", "two"), ("three", "four"))
    found = translated_rows({"korsts": korean, "stsb": english})
    assert found == {"하나": "one", "둘": "two", "셋": "three", "넷": "four"}
    assert translated_rows({"korsts": korean, "stsb": scored(("one", "two"))}) == {}, "not row by row"


# --- what readers learn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "half", "seed"), [("bilingual-1", 1, 0), ("bilingual-2", 2, 100)])
def test_a_reader_learns_its_half_and_the_labels_of_the_voices(agreed: Run, stage: str, half: int, seed: int) -> None:
    material, rows = agreed.material, halves(agreed)
    people = material.graded().take(np.flatnonzero(rows == half))
    assert 0 < len(people) < len(rows)
    told = agreed.tasks(stage)
    assert told["people"]["data"] == data_hash(both_ways(people))
    pairs, labels = agreed.array("pairs", "pairs"), agreed.array("voices", "labels")
    labelled = pairs_of(material.pool(), pairs, labels, name="silver")
    turned = either_way(in_other_languages(labelled, material.other, seed=seed, share=plan().korean), seed=seed)
    assert told["silver"]["data"] == data_hash(turned)


@pytest.mark.parametrize(("stage", "half", "seed"), [("larger-1", 1, 0), ("larger-2", 2, 100)])
def test_who_reads_no_korean_learns_none(agreed: Run, stage: str, half: int, seed: int) -> None:
    material = agreed.material
    pairs, labels = agreed.array("pairs", "pairs"), agreed.array("voices", "labels")
    labelled = pairs_of(material.pool(), pairs, labels, name="silver")
    people = material.graded().take(np.flatnonzero(halves(agreed) == half))
    told = agreed.tasks(stage)
    for name, one, turn in (("silver", labelled, either_way), ("people", people, both_ways)):
        rows = [row for row, pair in enumerate(zip(*one.columns.values(), strict=True))
                if not any(map(HANGUL.search, pair))]  # fmt: skip
        assert 0 < len(rows) < len(one), "the test must be able to fail"
        wanted = turn(one.take(rows), seed=seed) if turn is either_way else turn(one.take(rows))  # type: ignore[operator]
        assert told[name]["data"] == data_hash(wanted)
    assert list(agreed.tasks("larger-nli")) == ["nli-en"]
    assert set(agreed.tasks("bilingual-nli")) == {"nli-ko", "nli-en"}


# --- what they say ---------------------------------------------------------------------------------------------------


def labels_of(run: Run, folder: Path, *shares: float) -> np.ndarray:
    """The labels where readers may count for so much."""
    shutil.copytree(run.folder, folder)
    made = make_agreed(replace(run.given, folder=folder, plan=plan(reader_shares=shares)))
    found: np.ndarray = np.load(next(one for one in made.stages if one.name == "labels").folder / "labels.npy")
    return found


def test_labels_are_those_of_voices_and_readers(agreed: Run, tmp_path: Path) -> None:
    pool, pairs = agreed.material.pool(), agreed.array("pairs", "pairs")
    a, b = ([pool[place] for place in side] for side in pairs.T.tolist())
    weights, english = plan().reader_weights, read_english(a, b)
    assert 0 < english.mean() < 1
    told = {name: said(agreed, name, a, b) for name in ("bilingual-1", "bilingual-2", "larger-1", "larger-2")}
    bilingual = told["bilingual-1"] + told["bilingual-2"]
    every = weights["bilingual"] * bilingual + weights["larger"] * (told["larger-1"] + told["larger-2"])
    mean = np.where(english, every / (2 * sum(weights.values())), bilingual / 2)
    voices = agreed.array("voices", "labels")
    assert np.allclose(labels_of(agreed, tmp_path / "some", 0.4), 0.6 * voices + 0.4 * mean, atol=5e-3)
    assert np.allclose(labels_of(agreed, tmp_path / "none", 0.0), voices), "nothing of the readers"
    assert np.abs(mean - voices).max() > 0.1, "the test must be able to fail"


def test_how_much_readers_count_is_what_agrees_best_with_people(agreed: Run) -> None:
    told = agreed.stage("labels").facts["agreement"]
    assert set(map(float, told["together"])) == set(plan().reader_shares)
    means = {float(share): fmean(values.values()) for share, values in told["together"].items()}
    assert means[told["share"]] == max(means.values())
    assert told["together"]["0.0"] == pytest.approx(agreed.stage("voices").facts["agreement"]["together"], abs=1e-6)
    for one in agreed.material.selection:
        a, b = one.columns.values()
        wanted = spearmanr(said(agreed, "bilingual-2", a, b), one.targets)[0]
        assert told["alone"]["bilingual-2"][one.name] == pytest.approx(wanted, abs=5e-3)


def test_scores_are_doubted_by_who_did_not_learn_them(agreed: Run) -> None:
    material, rows, weights = agreed.material, halves(agreed), plan().reader_weights
    graded, told = material.graded(), agreed.array("people", "scores")
    to_english = {korean: text for text, korean in material.other.items()}
    a, b = ([to_english.get(text, text) for text in side] for side in graded.columns.values())
    assert a != graded.columns["a"], "the test must be able to fail"
    english = read_english(a, b)
    assert 0 < english.mean() < 1
    bilingual, larger = (
        np.where(rows == 1, said(agreed, f"{name}-2", a, b), said(agreed, f"{name}-1", a, b))
        for name in ("bilingual", "larger")
    )
    both = (weights["bilingual"] * bilingual + weights["larger"] * larger) / sum(weights.values())
    other = np.where(english, both, bilingual)
    scores = np.asarray(graded.targets)
    assert np.allclose(told, (scores + other) / 2, atol=5e-3)
    facts = agreed.stage("people").facts
    assert facts["rows"] == len(told)
    assert facts["unread"] == 0
    assert facts["agreement"] == pytest.approx(spearmanr(scores, other)[0], abs=1e-2)


def test_scores_that_nobody_can_read_stay_as_people_gave_them(agreed: Run, tmp_path: Path) -> None:
    shutil.copytree(agreed.folder, tmp_path / "run")
    made = make_agreed(replace(agreed.given, folder=tmp_path / "run", bilingual=None))
    people = next(one for one in made.stages if one.name == "people")
    told, graded = np.load(people.folder / "scores.npy"), agreed.material.graded()
    same = np.isclose(told, np.asarray(graded.targets), atol=1e-6)
    assert 0 < people.facts["unread"] <= same.sum() < len(told)
    assert np.isfinite(told).all()
    assert [one.name for one in made.stages if "bilingual" in one.name] == []


def test_what_is_not_said_changes_nothing() -> None:
    scores, told = np.array([0.2, 0.4], np.float32), np.array([np.nan, 0.8], np.float32)
    assert moved(scores, told, 0.25) == pytest.approx([0.2, 0.5])


def test_readers_are_made_of_the_models_that_were_given() -> None:
    given = plan()
    assert [kind.name for kind in kinds_of(given, bilingual="one", larger="two")] == ["bilingual", "larger"]
    assert [(kind.name, kind.english) for kind in kinds_of(given, bilingual=None, larger="two")] == [("larger", True)]
    assert kinds_of(given, bilingual=None, larger=None) == []
