"""A finished reranker learns what it and cosines say together: labels are the mean they claim, and what it keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from making.agreed_run import AGREED, READ, STAGES, Run, plan
from making.conftest import Whole
from making.whole_run import bi_plan, easy_negatives, other_model, skipped
from models.ko_en_0_1 import agreeing
from models.ko_en_0_1.agreeing import make_agreed, pairs_with
from models.ko_en_0_1.calibrating import uncalibrated
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.reranker import RerankMade
from models.ko_en_0_1.settings import Schedule
from models.ko_en_0_1.silver import (
    both_ways,
    cosines_of,
    either_way,
    in_other_languages,
    known_pairs,
    pairs_of,
)
from models.ko_en_0_1.stage_training import Selection
from models.ko_en_0_1.teaching import PROMPT, read_passages
from models.ko_en_0_1.voices import Cosine, together
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.errors import DataError, InputError
from munjang.training.run import data_hash

PAIRS = [("비가 온다", "눈이 온다"), ("It rains", "It snows"), ("A cat sleeps", "고양이가 잔다"), ("A dog", "A wolf")]
A, B = (list(side) for side in zip(*PAIRS, strict=True))

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreeing, "find_negatives", easy_negatives)


# --- labels ----------------------------------------------------------------------------------------------------------


class Says:
    """Says what it was given, and remembers what it was asked."""

    def __init__(self, name: str, weight: float, values: Sequence[float], *, english: bool = False) -> None:
        self.name, self.weight, self.values, self.english = name, weight, list(values), english
        self.asked: list[tuple[str, str]] = []

    def says(self, a: Sequence[str], b: Sequence[str], *, progress: object = False) -> np.ndarray:
        pairs = list(zip(a, b, strict=True))
        self.asked += pairs
        return np.array([self.values[PAIRS.index(pair)] for pair in pairs], np.float32)


def test_a_label_is_the_weighted_mean_of_who_can_read_the_pair() -> None:
    one, two = Says("one", 1.0, [0.1, 0.2, 0.3, 0.4]), Says("two", 3.0, [0.9, 0.8, 0.7, 0.6])
    three = Says("three", 4.0, [0, 0.5, 0, 1.0], english=True)
    labels, said = together([one, two, three], A, B)
    assert three.asked == [PAIRS[1], PAIRS[3]], "one Korean text is enough to be left out"
    wanted = [0.7, (0.2 + 2.4 + 2) / 8, 0.6, (0.4 + 1.8 + 4) / 8]
    assert np.allclose(labels, wanted, atol=1e-6)
    assert np.allclose(said["two"], two.values)
    assert np.isnan(said["three"]).tolist() == [True, False, True, False]


def test_no_english_pair_asks_no_english_model() -> None:
    english = Says("english", 1.0, [], english=True)
    labels, _ = together([Says("one", 1.0, [0.3, 0, 0.8, 0]), english], [A[0], A[2]], [B[0], B[2]])
    assert english.asked == []
    assert np.allclose(labels, [0.3, 0.8])


def test_of_what_nobody_can_read_nothing_is_said() -> None:
    labels, said = together([Says("one", 1.0, [0, 0.3, 0, 0.6], english=True)], A, B)
    assert np.isnan(labels).tolist() == np.isnan(said["one"]).tolist() == [True, False, True, False]
    assert np.allclose(labels[1::2], [0.3, 0.6])


@pytest.mark.parametrize("prompt", ["", PROMPT])
def test_cosines_are_brought_to_the_scale_of_people(
    load: Callable[[], BiEncoder], whole: Whole, tmp_path: Path, prompt: str
) -> None:
    model = BiEncoder.load(other_model(whole.tiny, tmp_path / "other"), device="cpu")
    people = read_material(whole.data, bi_plan()).scored()

    def cosines(a: Sequence[str], b: Sequence[str]) -> np.ndarray:
        return cosines_of(model, [prompt + text for text in a], [prompt + text for text in b])

    near = cosines(*people.columns.values())
    people = replace(people, targets=(near - near.min()) / np.ptp(near) * 0.5 + 0.2)
    factor, shift = np.polyfit(near, np.asarray(people.targets), 1)
    wanted = np.clip(shift + factor * cosines(A, B), 0, 1)
    assert np.allclose(Cosine("one", 1.0, model, people, prompt=prompt).says(A, B), wanted, atol=1e-4)
    assert np.ptp(wanted) > 1e-3, "the test must be able to fail"


def test_pairs_are_those_of_the_rows_and_some_at_random() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.array([3, 17, 40])
    judged, none = np.isin(np.arange(60), rows), np.zeros(60, bool)
    found = pairs_with(judged, none, vectors, plan(random_pairs=0.0), seed=0, device="cpu")
    wanted = {
        (min(row, other), max(row, other))
        for row in rows.tolist()
        for other in np.argsort(-(vectors @ vectors[row]), kind="stable").tolist()[1:4]
    }
    assert set(map(tuple, found.tolist())) == wanted
    more = pairs_with(judged, none, vectors, plan(random_pairs=1.0), seed=0, device="cpu")
    assert wanted < set(map(tuple, more.tolist()))
    assert (more[:, 0] < more[:, 1]).all()
    assert len(np.unique(more, axis=0)) == len(more)
    one = np.array([False, True, False])
    few = pairs_with(one, one, vectors[:3], plan(random_pairs=0.0), seed=0, device="cpu")
    assert few.tolist() == [[0, 1], [1, 2]]


def test_what_is_there_in_both_languages_is_paired_with_its_kind() -> None:
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    translated, judged = np.arange(60) % 3 == 0, np.arange(60) == 30
    given = plan(neighbours=1, translated_neighbours=5, other_neighbours=2, random_pairs=0.0)
    found = set(map(tuple, pairs_with(judged, translated, vectors, given, seed=0, device="cpu").tolist()))
    near = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")
    wanted = {tuple(sorted((30, int(near[30, 1]))))}
    for row in np.flatnonzero(translated).tolist():
        kind = [other for other in near[row].tolist() if translated[other] and other != row]
        wanted |= {(min(row, other), max(row, other)) for other in kind[: 5 if judged[row] else 2]}
    assert found == wanted


# --- the reranker that it begins as ----------------------------------------------------------------------------------


def test_scores_are_as_before_they_became_probabilities(agreed: Run, reranked: tuple[Path, RerankMade]) -> None:
    finished = CrossEncoder.load(agreed.reranker, device="cpu", dtype="float32")
    before = uncalibrated(finished)
    mean = next(one for one in reranked[1].stages if one.name == "mean").folder / "model"
    wanted = CrossEncoder.load(mean, device="cpu", dtype="float32").predict(PAIRS)
    assert np.allclose(before.predict(PAIRS), wanted, atol=0.02), "but for int8 weights and the numbers' four places"
    assert not np.allclose(finished.predict(PAIRS), wanted, atol=0.02), "the test must be able to fail"
    assert before.thresholds == {}
    assert "answer" in finished.thresholds
    again = uncalibrated(before)
    assert np.array_equal(again.predict(PAIRS), before.predict(PAIRS)), "nothing tells of a calibration"


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_the_stages_one_after_another(agreed: Run) -> None:
    assert tuple(one.name for one in agreed.made.stages) == STAGES
    assert set(agreed.made.facts["selection"]) == {"float32", "int8"}
    model = CrossEncoder.load(agreed.made.folder, device="cpu")
    assert "answer" in model.thresholds
    assert not np.allclose(model.predict(PAIRS), CrossEncoder.load(agreed.reranker, device="cpu").predict(PAIRS))


def test_every_pair_has_a_sentence_that_people_scored_or_two_translations(agreed: Run) -> None:
    material = agreed.material
    pool, scored = material.pool(), set(material.scored().texts())
    pairs = agreed.array("pairs", "pairs")
    assert len(pairs) == agreed.stage("pairs").facts["pairs"] > 20
    texts = [(pool[a], pool[b]) for a, b in pairs.tolist()]
    near = [pair for pair in texts if scored & set(pair) or set(pair) <= material.other.keys()]
    assert len(near) > 0.8 * len(texts), "but for some at random"
    both = [pair for pair in texts if set(pair) <= material.other.keys()]
    assert agreed.stage("pairs").facts["in both languages"] == len(both) > 5
    known = known_pairs([*material.sts.values(), *material.selection, *material.evaluation])
    assert not known & known_pairs([pairs_of(pool, pairs, np.zeros(len(pairs), np.float32), name="all")])


def test_labels_are_what_all_say_together(agreed: Run) -> None:
    labels = agreed.array("voices", "labels")
    pool, people, weights = agreed.material.pool(), agreed.material.scored(), plan().weights
    a, b = pairs_of(pool, agreed.array("pairs", "pairs"), labels, name="silver").columns.values()
    tiny = BiEncoder.load(agreed.tiny, device="cpu", max_length=64)
    own = sum(agreed.cross("begun").predict(list(zip(*pair, strict=True))) for pair in ((a, b), (b, a))) / 2
    voices = [
        (weights["cosine"], Cosine("", 1.0, BiEncoder.load(agreed.bi, device="cpu"), people)),
        (weights["bilingual"], Cosine("", 1.0, tiny, people, prompt=PROMPT)),
    ]
    total = weights["own"] * own + sum(weight * voice.says(a, b) for weight, voice in voices)
    count = weights["own"] + weights["cosine"] + weights["bilingual"]
    korean = np.array([any("가" <= letter <= "힣" for letter in "".join(pair)) for pair in zip(a, b, strict=True)])
    assert 0 < korean.mean() < 1, "the test must be able to fail"
    assert np.allclose(labels[korean], (total / count)[korean], atol=5e-3)
    english = total + weights["larger"] * Cosine("", 1.0, tiny, agreed.material.sts["stsb"]).says(a, b)
    assert np.allclose(labels[~korean], (english / (count + weights["larger"]))[~korean], atol=5e-3)


def test_how_far_they_agree_with_people_is_told(agreed: Run) -> None:
    found = agreed.stage("voices").facts["agreement"]
    assert set(found["alone"]) == {"own", "cosine", "bilingual"}
    for one in agreed.material.selection:
        orders = one.columns.values(), reversed(one.columns.values())
        told = sum(agreed.cross("begun").predict(list(zip(*order, strict=True))) for order in orders)
        assert found["alone"]["own"][one.name] == pytest.approx(spearmanr(told, one.targets)[0], abs=5e-3)
        assert found["together"][one.name] != found["alone"]["own"][one.name]


def test_what_it_says_of_passages_is_kept(agreed: Run) -> None:
    rest, held = (read_passages(agreed.stage("passages"), name) for name in ("passages", "held"))
    negatives, kept = agreed.array("passages", "negatives"), agreed.array("passages", "kept")
    assert negatives.shape == (len(rest.queries), 2)
    every = [
        (query, rest.passages[place])
        for number, query in enumerate(rest.queries)
        for place in (rest.answers[number], *negatives[number].tolist())
    ]
    assert np.allclose(kept, agreed.cross("begun").predict(every), atol=5e-3)
    assert not {text for _, text in every} & set(held.passages)


def test_all_are_learned_by_every_training_in_its_own_order(agreed: Run) -> None:
    one, two = agreed.tasks("agreed"), agreed.tasks("agreed-2")
    assert one["kept"]["data"] == two["kept"]["data"]
    doubted = replace(agreed.material.graded(), targets=agreed.array("people", "scores"))
    assert one["people"]["data"] == two["people"]["data"] == data_hash(both_ways(doubted))
    assert one["silver"]["data"] != two["silver"]["data"]
    assert {name: (task["objective"], task["rows"], task["share"]) for name, task in one.items()} == {
        "silver": ("CrossScore", agreed.stage("pairs").facts["pairs"], 0.5),
        "kept": ("CrossScore", len(agreed.array("passages", "kept")), 0.3),
        "people": ("CrossScore", 2 * len(agreed.material.graded()), 0.2),
    }
    before, after = (agreed.cross(name).predict(PAIRS) for name in ("begun", "agreed"))
    assert not np.allclose(before, after, atol=1e-4)


def test_the_mean_of_their_weights_goes_on(agreed: Run) -> None:
    one, two, mean = (
        agreed.cross(name).parts.head.out.weight.detach().numpy() for name in ("agreed", "agreed-2", "mean")
    )
    assert not np.allclose(one, two)
    assert np.allclose(mean, (one + two) / 2, atol=1e-6)
    begun, merged = (agreed.cross(name).parts.head.out.weight.detach().numpy() for name in ("begun", "merged"))
    share = agreed.stage("merged").facts["share"]
    assert np.allclose(merged, (1 - share) * begun + share * mean, atol=1e-6)
    inputs = json.loads((agreed.stage("finish").folder / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["model"] == agreed.stage("merged").digest


def test_it_goes_as_far_as_the_selection_sets_let_it(agreed: Run, tmp_path: Path) -> None:
    told = agreed.stage("merged").facts
    scores = {float(share): value for share, value in told["scores"].items()}
    assert tuple(scores) == plan().merged_shares
    assert told["share"] == max(share for share, value in scores.items() if value >= max(scores.values()) - 0.0005)
    chooses = Selection(agreed.material.selection)
    assert scores[1.0] == pytest.approx(chooses(agreed.cross("mean")).value, abs=5e-3)
    shutil.copytree(agreed.folder, tmp_path / "run")
    made = make_agreed(replace(agreed.given, folder=tmp_path / "run", plan=plan(merged_shares=(0.25,))))
    assert next(one for one in made.stages if one.name == "merged").facts["share"] == 0.25


def test_what_was_made_before_is_told_too(agreed: Run, reranked: tuple[Path, RerankMade]) -> None:
    making, before = read_making(agreed.folder / "making.json"), read_making(reranked[0] / "making.json")
    assert making.content["command"] == (
        f"{before.content['command']}; python -m models.ko_en_0_1 agree-ko-en --data DIR --bilingual E5 --larger MPNET "
        "--reranker RERANKER --bi MODEL --output runs/agree-ko-en"
    )
    names = [one["name"] for one in making.rows("stages")]
    assert names == [one.name for one in reranked[1].stages] + [f"agree: {name}" for name in STAGES]
    teachers = [one["name"] for one in making.rows("teachers")]
    assert teachers == [one["name"] for one in before.rows("teachers")] + ["multilingual-e5-small", "all-mpnet-base-v2"]
    assert making.rows("data") == before.rows("data")
    assert [one["value"] for one in making.rows("selection")] == list(agreed.made.facts["selection"]["int8"].values())


def test_the_same_call_again_does_nothing(agreed: Run) -> None:
    again = make_agreed(agreed.given)
    assert tuple(skipped(again)) == STAGES
    assert again.facts == agreed.made.facts


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({"neighbours": 2}, ("pairs", "voices", *READ, *AGREED)),
        ({"other_neighbours": 2}, ("pairs", "voices", *READ, *AGREED)),
        ({"weights": plan().weights | {"own": 2.0}}, ("voices", *READ, *AGREED)),
        ({"larger_nli": Schedule(5, 1e-3)}, ("larger-nli", *READ[2:], *AGREED)),
        ({"bilingual": Schedule(5, 1e-3)}, ("bilingual-1", "bilingual-2", "labels", "people", *AGREED)),
        ({"reader_weights": {"bilingual": 3.0, "larger": 1.0}}, ("labels", "people", *AGREED)),
        ({"reader_shares": (0.4,)}, ("labels", *AGREED)),
        ({"doubt": 0.2}, ("people", *AGREED)),
        ({"questions": 50}, ("passages", *AGREED)),
        ({"korean": 0.9}, (*READ, *AGREED)),
        ({"agreed": Schedule(5, 1e-3)}, AGREED),
        ({"merged_shares": (0.3,)}, ("merged", "finish")),  # no share that it chooses from
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_change_repeats_what_depends_on_it(
    agreed: Run, tmp_path: Path, change: dict[str, Any], repeated: tuple[str, ...]
) -> None:
    shutil.copytree(agreed.folder, tmp_path / "run")
    made = make_agreed(replace(agreed.given, folder=tmp_path / "run", plan=plan(**change)))
    assert tuple(name for name in STAGES if name not in skipped(made)) == repeated


def test_without_larger_models_the_reranker_and_the_bi_encoder_speak(agreed: Run, tmp_path: Path) -> None:
    given = replace(agreed.given, folder=tmp_path / "run", bilingual=None, larger=None, making=None)
    made = make_agreed(replace(given, plan=plan(agreements=1)))
    wanted = (*STAGES[:4], "agreed", "merged", "finish")
    assert tuple(one.name for one in made.stages) == wanted, "nobody doubts people, and one training has no mean"
    voices = next(one for one in made.stages if one.name == "voices")
    assert set(voices.facts["agreement"]["alone"]) == {"own", "cosine"}
    making = read_making(tmp_path / "run" / "making.json")
    wanted = (
        "python -m models.ko_en_0_1 agree-ko-en --data DIR --reranker RERANKER --bi MODEL --output runs/agree-ko-en"
    )
    assert making.content["command"] == wanted
    assert making.rows("teachers") == []


def test_a_making_that_is_not_there_is_said_before_anything_is_done(agreed: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        make_agreed(replace(agreed.given, folder=tmp_path / "run", making=tmp_path / "none.json"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": -1}, "seed must be at least 0"), ({"plan": plan(agreements=0)}, "agreements must be 1")],
)
def test_what_cannot_be_is_said_before_anything_is_done(
    agreed: Run, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        make_agreed(replace(agreed.given, folder=tmp_path / "run", **change))
    assert not (tmp_path / "run").exists()


def test_pairs_are_learned_in_either_language_and_order(agreed: Run) -> None:
    material, pairs = agreed.material, agreed.array("pairs", "pairs")
    labelled = pairs_of(material.pool(), pairs, agreed.array("labels", "labels"), name="silver")
    for stage, seed in (("agreed", 0), ("agreed-2", 100)):
        turned = in_other_languages(labelled, material.other, seed=seed, share=0.7)
        assert turned.columns != labelled.columns, "the test must be able to fail"
        assert agreed.tasks(stage)["silver"]["data"] == data_hash(either_way(turned, seed=seed))


def test_a_teacher_that_taught_before_is_named_once(agreed: Run, tmp_path: Path) -> None:
    shutil.copytree(agreed.folder, tmp_path / "run")
    content = json.loads((agreed.given.making or Path()).read_text("utf-8"))
    taught = {"name": "multilingual-e5-small", "licence": "MIT", "use": "teaches", "source": "a hub"}
    content["teachers"].append(taught)
    (tmp_path / "making.json").write_text(json.dumps(content), encoding="utf-8")
    make_agreed(replace(agreed.given, folder=tmp_path / "run", making=tmp_path / "making.json"))
    told = read_making(tmp_path / "run" / "making.json").rows("teachers")
    assert told[:-1] == content["teachers"], "as it was told before"
    assert told[-1]["name"] == "all-mpnet-base-v2"
