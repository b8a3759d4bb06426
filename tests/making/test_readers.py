"""Larger cross-encoders learn one half of people's scores each: what they say of pairs, and of the other half."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from making.agreed_run import Run, plan
from making.whole_run import easy_negatives
from models.ko_en_0_1 import agreeing
from models.ko_en_0_1.agreeing import make_agreed
from models.ko_en_0_1.passages import HANGUL
from models.ko_en_0_1.readers import Reading, halves_of, kinds_of, moved, translated_rows
from models.ko_en_0_1.silver import both_ways, either_way, in_other_languages, pairs_of
from models.ko_en_0_1.stage_training import Workshop
from models.ko_en_0_1.voices import read_english
from munjang.data import Examples
from munjang.recipes.stages import Done, open_stages
from munjang.training.run import data_hash

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreeing, "find_negatives", easy_negatives)


def scored(*pairs: tuple[str, str]) -> Examples:
    a, b = zip(*pairs, strict=True)
    return Examples("some", "scored", {"a": list(a), "b": list(b)}, np.zeros(len(pairs), np.float32))


def halves(run: Run) -> np.ndarray:
    return halves_of(run.material.graded(), translated_rows(run.material.sts))


class Says:
    """A reader that says something else of every pair and of every order."""

    def __init__(self, name: str) -> None:
        self.name = name

    def predict(self, pairs: Sequence[tuple[str, str]], *, progress: object = False) -> np.ndarray:
        hashes = (hashlib.blake2b("\0".join((self.name, *pair)).encode(), digest_size=4).digest() for pair in pairs)
        return np.array([int.from_bytes(one, "big") / 2**32 for one in hashes], np.float32)


class Shop(Workshop):
    """A workshop with such readers."""

    def cross(self, folder: Path, length: int, *, labels: object = None) -> Any:
        return Says(folder.parent.name)


NAMES = ("bilingual-1", "bilingual-2", "larger-1", "larger-2")


def read(run: Run, folder: Path, **changes: object) -> tuple[Done, Done]:
    """What comes of labels and of people's scores, where readers say what `said` does."""
    given, material = plan(**changes), run.material
    done = {name: Done(name, folder / name, name, {}, 0.0, skipped=False) for name in NAMES}
    readers = {(name[:-2], int(name[-1])): one for name, one in done.items()}
    with open_stages(folder, "some") as stages:
        shop = Shop(stages, "cpu", 0, False, material.selection)
        reading = Reading(given, material, shop, kinds_of(given, bilingual=run.tiny, larger=run.tiny))
        return reading.labels(run.stage("pairs"), run.stage("voices"), readers), reading.people(readers)


def said(name: str, a: list[str], b: list[str]) -> np.ndarray:
    """What a reader says; the second of a kind reads the other way round."""
    order = (b, a) if name.endswith("2") else (a, b)
    return Says(name).predict(list(zip(*order, strict=True)))


def mean_of(a: list[str], b: list[str]) -> np.ndarray:
    """What all say together of pairs, those who can read them."""
    weights, told = plan().reader_weights, {name: said(name, a, b) for name in NAMES}
    bilingual = told["bilingual-1"] + told["bilingual-2"]
    every = weights["bilingual"] * bilingual + weights["larger"] * (told["larger-1"] + told["larger-2"])
    return np.where(read_english(a, b), every / (2 * sum(weights.values())), bilingual / 2)


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


def without_korean(examples: Examples) -> Examples:
    pairs = zip(*examples.columns.values(), strict=True)
    rows = [row for row, pair in enumerate(pairs) if not any(map(HANGUL.search, pair))]
    assert 0 < len(rows) < len(examples), "the test must be able to fail"
    return examples.take(rows)


@pytest.mark.parametrize(("stage", "half", "seed"), [("larger-1", 1, 0), ("larger-2", 2, 100)])
def test_who_reads_no_korean_learns_none(agreed: Run, stage: str, half: int, seed: int) -> None:
    material = agreed.material
    pairs, labels = agreed.array("pairs", "pairs"), agreed.array("voices", "labels")
    labelled = pairs_of(material.pool(), pairs, labels, name="silver")
    people = material.graded().take(np.flatnonzero(halves(agreed) == half))
    silver, scores = without_korean(labelled), without_korean(people)
    told = agreed.tasks(stage)
    assert told["silver"]["data"] == data_hash(either_way(silver, seed=seed))
    assert told["people"]["data"] == data_hash(both_ways(scores))
    assert list(agreed.tasks("larger-nli")) == ["nli-en"]
    assert set(agreed.tasks("bilingual-nli")) == {"nli-ko", "nli-en"}


# --- what they say ---------------------------------------------------------------------------------------------------


def test_labels_are_those_of_voices_and_readers(agreed: Run, tmp_path: Path) -> None:
    pool, pairs = agreed.material.pool(), agreed.array("pairs", "pairs")
    a, b = ([pool[place] for place in side] for side in pairs.T.tolist())
    assert 0 < read_english(a, b).mean() < 1
    voices = agreed.array("voices", "labels")
    some, none = (read(agreed, tmp_path / str(share), reader_shares=(share,))[0] for share in (0.4, 0.0))
    assert np.allclose(np.load(some.folder / "labels.npy"), 0.6 * voices + 0.4 * mean_of(a, b), atol=1e-5)
    assert np.array_equal(np.load(none.folder / "labels.npy"), voices), "nothing of the readers"


def test_how_much_readers_count_is_what_agrees_best_with_people(agreed: Run, tmp_path: Path) -> None:
    told = read(agreed, tmp_path)[0].facts["agreement"]
    sets, voices = agreed.material.selection, agreed.array("voices", "selection")
    assert len(voices) == sum(map(len, sets))
    ends = np.cumsum([len(one) for one in sets])[:-1]
    wanted: dict[float, list[float]] = {share: [] for share in plan().reader_shares}
    for one, before in zip(sets, np.split(voices, ends), strict=True):
        a, b = one.columns.values()
        for share, found in wanted.items():
            found.append(spearmanr((1 - share) * before + share * mean_of(a, b), one.targets)[0])
            assert told["together"][str(share)][one.name] == pytest.approx(found[-1], abs=1e-3)
        alone = spearmanr(said("bilingual-2", a, b), one.targets)[0]
        assert told["alone"]["bilingual-2"][one.name] == pytest.approx(alone, abs=1e-6)
        assert (one.name in told["alone"]["larger-1"]) == read_english(a, b).all()
    assert told["share"] == max(wanted, key=lambda share: fmean(wanted[share]))


def test_scores_are_doubted_by_who_did_not_learn_them(agreed: Run, tmp_path: Path) -> None:
    material, rows, weights = agreed.material, halves(agreed), plan().reader_weights
    graded = material.graded()
    to_english = {korean: text for text, korean in material.other.items()}
    a, b = ([to_english.get(text, text) for text in side] for side in graded.columns.values())
    assert a != graded.columns["a"], "the test must be able to fail"
    english = read_english(a, b)
    assert 0 < english.mean() < 1
    bilingual, larger = (
        np.where(rows == 1, said(f"{name}-2", a, b), said(f"{name}-1", a, b)) for name in ("bilingual", "larger")
    )
    both = (weights["bilingual"] * bilingual + weights["larger"] * larger) / sum(weights.values())
    other, scores = np.where(english, both, bilingual), np.asarray(graded.targets)
    people = read(agreed, tmp_path, doubt=0.3)[1]
    assert np.allclose(np.load(people.folder / "scores.npy"), 0.7 * scores + 0.3 * other, atol=1e-5)
    assert people.facts["rows"] == len(scores)
    assert people.facts["unread"] == 0
    assert people.facts["agreement"] == pytest.approx(spearmanr(scores, other)[0], abs=1e-5)


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
