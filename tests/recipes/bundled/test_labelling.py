"""The larger English model among the labellers: what its labels count for, which pairs it reads, what hangs on it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import ModelError
from munjang.evaluation.metrics import spearman
from munjang.recipes.bundled import teaching
from munjang.recipes.bundled.cards import card
from munjang.recipes.bundled.facts import read_making
from munjang.recipes.bundled.labelling import both_ways, read_silver, with_english
from munjang.recipes.bundled.making import BiMade
from munjang.recipes.bundled.material import read_material
from munjang.recipes.bundled.results import read_results
from munjang.recipes.bundled.silver import Labeller
from munjang.training.run import data_hash
from recipes.bundled.conftest import Whole
from recipes.bundled.results import results_file
from recipes.bundled.whole_run import BI_STAGES, ENGLISH, Second, bi_plan, make, skipped

pytestmark = pytest.mark.usefixtures("quiet")
PLACE = BI_STAGES.index("pairs") + 1
STAGES = (*BI_STAGES[:PLACE], *ENGLISH, *BI_STAGES[PLACE:])
AFTER = ("labeller-1-silver", "labeller-1-sts", "labeller-2-silver", "labeller-2-sts", "labels", "final", "finish")
SHARE = st.floats(0, 1, width=32)


# --- one label of several --------------------------------------------------------------------------------------------


def one_label(scores: list[float], larger: float, near: float, weight: float) -> float:
    """The larger one counts for two of the others; where nobody said anything, the cosine is the label."""
    said = list(scores) if math.isnan(larger) else [*scores, larger, larger]
    return near if not said else (1 - weight) * sum(said) / len(said) + weight * near


@given(st.data(), st.integers(0, 12), st.integers(0, 3), st.floats(0, 1))
def test_labels_are_those_of_a_plain_loop(data: st.DataObject, count: int, labellers: int, weight: float) -> None:
    scores = [data.draw(arrays(np.float32, count, elements=SHARE)) for _ in range(labellers)]
    larger = data.draw(arrays(np.float32, count, elements=SHARE | st.just(math.nan)))
    near = data.draw(arrays(np.float32, count, elements=SHARE))
    before = larger.copy()
    found = with_english(scores, larger, near, weight)
    assert (found.dtype, found.shape) == (np.float32, (count,))
    wanted = [
        one_label([float(one[row]) for one in scores], float(larger[row]), float(near[row]), weight)
        for row in range(count)
    ]
    assert np.allclose(found, wanted, atol=1e-6)
    assert np.array_equal(larger, before, equal_nan=True), "what was given stays as it was"


def test_some_labels_by_hand() -> None:
    said = [np.array([0.2, 0.2], np.float32), np.array([0.6, 0.6], np.float32)]
    larger, near = np.array([1.0, np.nan], np.float32), np.array([0.5, 0.5], np.float32)
    assert with_english(said, larger, near, 0.0) == pytest.approx([0.7, 0.4])
    assert with_english(said, larger, near, 0.2) == pytest.approx([0.66, 0.42])
    assert with_english([], larger, near, 0.2) == pytest.approx([0.9, 0.5])
    assert with_english([], np.full(2, np.nan, np.float32), near, 0.2).tolist() == [0.5, 0.5]
    assert with_english(said, larger, near, 1.0).tolist() == [0.5, 0.5]


def test_pairs_in_both_orders() -> None:
    columns = {"a": ["비가 온다.", "A cat"], "b": ["It rains.", "한 고양이"]}
    pairs = Examples("ours", "scored", columns, np.array([0.25, 1.0], np.float32))
    found = both_ways(pairs)
    assert (found.name, found.kind, len(found)) == ("ours", "scored", 4)
    assert found.columns == {"a": columns["a"] + columns["b"], "b": columns["b"] + columns["a"]}
    assert np.asarray(found.targets).tolist() == [0.25, 1.0, 0.25, 1.0]
    assert pairs.columns == {"a": ["비가 온다.", "A cat"], "b": ["It rains.", "한 고양이"]}


# --- a run with a larger model ---------------------------------------------------------------------------------------


def tasks_of(made: BiMade, stage: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((made.stages[stage].folder / "config.json").read_text("utf-8"))["tasks"]
    return found


def array_of(made: BiMade, stage: str, name: str) -> np.ndarray:
    found: np.ndarray = np.load(made.stages[stage].folder / f"{name}.npy")
    return found


def english_rows(whole: Whole) -> np.ndarray:
    """bool [pairs]: no Hangul on either side."""
    pool = read_material(whole.data, bi_plan()).pool()
    korean = [any("가" <= letter <= "힣" for letter in text) for text in pool]
    return np.array([not (korean[a] or korean[b]) for a, b in array_of(whole.made, "pairs", "pairs").tolist()])


def test_a_larger_model_adds_its_stages_and_repeats_what_they_lead_to(with_larger: Whole) -> None:
    made = with_larger.made
    assert tuple(made.stages) == STAGES
    assert tuple(name for name in STAGES if name not in skipped(made)) == (*ENGLISH, *AFTER)
    folders = {path.name for path in with_larger.folder.iterdir() if path.is_dir()}
    assert folders >= {f"{place}-{name}" for place, name in enumerate(STAGES, start=1)}
    assert made.folder == with_larger.folder / "20-finish/model"


def test_it_learns_english_nli_then_english_scores_in_both_orders(with_larger: Whole) -> None:
    made, material = with_larger.made, read_material(with_larger.data, bi_plan())
    (nli,) = tasks_of(made, "english-nli")
    assert (nli["data"], nli["objective"], nli["batch_size"]) == (data_hash(material.nli["en"]), "CrossEntropy", 8)
    (sts,) = tasks_of(made, "english-sts")
    wanted = both_ways(material.scored("stsb"))
    assert (sts["data"], sts["objective"], sts["rows"]) == (data_hash(wanted), "CrossScore", len(wanted))
    chosen = made.stages["english-sts"].facts["last"]["evaluation"]["selection"]
    assert set(chosen) == {"STSb dev", "mean"}, "it reads no Korean"
    model = CrossEncoder.load(made.stages["english-sts"].folder / "model", device="cpu")
    assert model.max_length == 48


def test_it_labels_english_pairs_and_no_others(with_larger: Whole) -> None:
    made, material, rows = with_larger.made, read_material(with_larger.data, bi_plan()), english_rows(with_larger)
    pool, pairs = material.pool(), array_of(made, "pairs", "pairs")
    assert 20 < rows.sum() < len(rows) - 20, "the test must be able to fail"
    scores = array_of(made, "english", "scores")
    assert (scores.dtype, scores.shape) == (np.float32, (len(pairs),))
    assert np.array_equal(~np.isnan(scores), rows)
    model = CrossEncoder.load(made.stages["english-sts"].folder / "model", device="cpu", max_length=48)
    told = model.predict([(pool[a], pool[b]) for a, b in pairs[rows].tolist()])
    assert np.allclose(scores[rows], told, atol=1e-4)
    facts = made.stages["english"].facts
    assert facts["pairs"] == rows.sum()
    dev = material.selection[-1]
    agreement = spearman(np.asarray(dev.targets), model.predict(list(zip(*dev.columns.values(), strict=True))))
    assert facts["agreement"] == {"STSb dev": pytest.approx(agreement, abs=1e-6)}


def test_first_labels_of_korean_pairs_do_not_hang_on_it(with_larger: Whole) -> None:
    made, rows = with_larger.made, english_rows(with_larger)
    before, first = array_of(made, "pairs", "labels"), array_of(made, "english", "labels")
    assert np.array_equal(first[~rows], before[~rows])
    scores = array_of(made, "english", "scores")
    assert np.allclose(first[rows], 0.99 * scores[rows] + 0.01 * before[rows], atol=1e-6)
    assert not np.allclose(first[rows], before[rows], atol=1e-3)
    wanted = read_silver(
        read_material(with_larger.data, bi_plan()), made.stages["pairs"], made.stages["english"], seed=0
    )
    for number in (1, 2):
        (silver,) = tasks_of(made, f"labeller-{number}-silver")
        assert silver["data"] == data_hash(wanted), "what both labellers learn"


def test_without_it_the_labellers_learn_the_cosines(whole: Whole) -> None:
    pairs = whole.made.stages["pairs"]
    wanted = read_silver(read_material(whole.data, bi_plan()), pairs, pairs, seed=0)
    gold = both_ways(read_material(whole.data, bi_plan()).scored())
    for number in (1, 2):
        (silver,) = tasks_of(whole.made, f"labeller-{number}-silver")
        assert silver["data"] == data_hash(wanted)
        (sts,) = tasks_of(whole.made, f"labeller-{number}-sts")
        assert (sts["data"], sts["rows"]) == (data_hash(gold), len(gold)), "in either order"


@pytest.mark.parametrize("which", ["whole", "with_larger"])
def test_last_labels_are_those_of_all_together(which: str, request: pytest.FixtureRequest) -> None:
    run: Whole = request.getfixturevalue(which)
    made, material, rows = run.made, read_material(run.data, bi_plan()), english_rows(run)
    pool, pairs = material.pool(), array_of(made, "pairs", "pairs")
    read = [[(pool[a], pool[b]) for a, b in pairs.tolist()], [(pool[b], pool[a]) for a, b in pairs.tolist()]]
    said = []
    for number, asked in enumerate(read, start=1):
        folder = made.stages[f"labeller-{number}-sts"].folder / "model"
        said.append(CrossEncoder.load(folder, device="cpu", max_length=48).predict(asked))
    multi = BiEncoder.load(made.stages["multi"].folder / "model", device="cpu", max_length=48)
    near = Labeller(multi, [], material.scored(), cosine_weight=1.0).scale(array_of(made, "pairs", "cosines"))
    mean = (said[0] + said[1]) / 2
    if which == "with_larger":
        scores = array_of(made, "english", "scores")
        mean[rows] = (mean[rows] + scores[rows]) / 2
    assert np.allclose(array_of(made, "labels", "labels"), 0.99 * mean + 0.01 * near, atol=1e-4)
    inputs = json.loads((made.stages["labels"].folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["english"] == (made.stages["english"].digest if which == "with_larger" else None)


def test_what_is_told_of_the_making(whole: Whole, with_larger: Whole, tmp_path: Path) -> None:
    results = read_results(results_file(tmp_path / "results.json"))
    for run, larger in ((whole, False), (with_larger, True)):
        making = read_making(run.folder / "making.json")
        names = [one["name"] for one in making.rows("teachers")]
        assert len(names) == 2 + larger
        assert ("all-mpnet-base-v2" in names) == larger
        assert ("--larger MPNET" in making.content["command"]) == larger
        assert [one["name"] for one in making.rows("stages")] == list(STAGES if larger else BI_STAGES)
        for language, words in (("en", "labels English pairs"), ("ko", "영어 쌍에 점수를 붙임")):
            text = card(making, results, language)  # type: ignore[arg-type]
            assert ("all-mpnet-base-v2" in text) == (words in text) == larger


# --- a second call ---------------------------------------------------------------------------------------------------


def test_the_same_call_again_does_nothing(with_larger: Whole) -> None:
    given = with_larger.folder, with_larger.tiny, with_larger.data
    again = make(*given, larger=with_larger.tiny, second=Second(fails=True))
    assert tuple(skipped(again)) == STAGES


def test_another_larger_model_repeats_what_hangs_on_it_and_nothing_before(with_larger: Whole, tmp_path: Path) -> None:
    other = BiEncoder.load(with_larger.tiny, device="cpu")
    with torch.no_grad():
        other.parts.body.embeddings.word.weight.mul_(1.5)
    other.refresh()
    other.save(tmp_path / "other")
    run = tmp_path / "run"
    shutil.copytree(with_larger.folder, run)
    made = make(run, with_larger.tiny, with_larger.data, larger=tmp_path / "other")
    assert tuple(made.stages) == STAGES
    assert tuple(name for name in STAGES if name not in skipped(made)) == (*ENGLISH, *AFTER)
    rows = english_rows(with_larger)
    before, after = (array_of(one, "english", "labels") for one in (with_larger.made, made))
    assert np.array_equal(before[~rows], after[~rows])
    assert not np.array_equal(before[rows], after[rows])


def test_left_out_again_it_is_the_run_without_it(whole: Whole, with_larger: Whole, tmp_path: Path) -> None:
    shutil.copytree(with_larger.folder, tmp_path / "run")
    made = make(tmp_path / "run", whole.tiny, whole.data)
    assert {name: one.digest for name, one in made.stages.items()} == {
        name: one.digest for name, one in whole.made.stages.items()
    }
    assert set(skipped(made)) >= {*BI_STAGES[:PLACE], "labeller-1-nli", "labeller-2-nli"}


def test_a_teacher_without_whole_words_is_refused_first(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "whole_words", lambda tokenizer: [])
    with pytest.raises(ModelError, match="expected an English teacher whose vocabulary has whole words, got none in"):
        make(tmp_path / "run", whole.tiny, whole.data, second=Second(fails=True))
    assert not [path for path in (tmp_path / "run").iterdir() if path.is_dir()]
