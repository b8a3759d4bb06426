"""Thresholds: the best that a search over every step finds, on the data that calibrates and no other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score

from making.sets import public_sets
from making.whole_data import data_folder
from models.ko_en_0_1 import calibrating
from models.ko_en_0_1.calibrating import (
    JudgedPairs,
    answer_threshold,
    calibrate_bi,
    calibrate_reranker,
    cluster_threshold,
    common_threshold,
    first_hits,
    parakqc_parts,
    paraphrase_threshold,
    question_parts,
)
from models.ko_en_0_1.communities import communities, pair_scores, similarity_matrix
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.settings import BiPlan
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples, load_dataset
from munjang.errors import InputError
from munjang.evaluation.encoding import Vectors
from munjang.vectors import normalize
from recipes.material import ranked, sentences


def _judged(name: str, seed: int, count: int = 60, shift: float = 0.0, missed: int = 0) -> JudgedPairs:
    random = np.random.default_rng(seed)
    same = random.random(count) < 0.4
    same[0] = True
    scores = np.clip(0.4 + shift + 0.3 * same + 0.15 * random.normal(size=count), -1, 1).astype(np.float32)
    return JudgedPairs(name, "ko", same, scores, int(same.sum()) + missed, count)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), shift=st.floats(-0.2, 0.2), missed=st.integers(0, 5))
def test_the_common_threshold_is_the_best_of_all_steps(seed: int, shift: float, missed: int) -> None:
    sets = [_judged("one", seed), _judged("두 번째", seed + 1, shift=shift, missed=missed)]

    def f1(one: JudgedPairs, threshold: float) -> float:
        taken = one.scores >= threshold
        return 2 * int((one.same & taken).sum()) / (int(taken.sum()) + one.positives)

    chosen = common_threshold(sets)
    best = max(np.mean([f1(one, step / 1000) for one in sets]) for step in range(-1000, 1001))
    assert np.mean([f1(one, chosen.value) for one in sets]) == pytest.approx(best)
    for one in sets:
        assert chosen.f1[one.name] == pytest.approx(f1(one, chosen.value))
        assert chosen.own_f1[one.name] >= chosen.f1[one.name] - 1e-12
    if not missed:
        assert chosen.f1["one"] == pytest.approx(f1_score(sets[0].same, sets[0].scores >= chosen.value))


def test_a_threshold_says_what_it_was_measured_on() -> None:
    found = paraphrase_threshold([_judged("하나", 1), _judged("two", 2)])
    assert found.task == "paraphrase"
    assert found.value == round(found.value, 3)
    sets = found.measured["sets"]
    assert isinstance(sets, list)
    assert [one["set"] for one in sets] == ["하나", "two"]
    assert all(0 <= one[key] <= 1 for one in sets for key in ("f1", "precision", "recall", "best f1"))
    assert found.measured["f1"] == pytest.approx(np.mean([one["f1"] for one in sets]), abs=1e-4)
    json.dumps(asdict(found))  # fit for munjang.json
    with pytest.raises(InputError, match="at least one set"):
        common_threshold([])
    with pytest.raises(InputError, match="none: expected pairs"):
        common_threshold([JudgedPairs("none", "ko", np.zeros(3, bool), np.zeros(3), 0, 3)])


def test_the_cluster_threshold_is_the_best_of_all_steps() -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 5)
    vectors = (random.normal(size=(12, 16))[groups] + 0.5 * random.normal(size=(60, 16))).astype(np.float32)
    found = cluster_threshold(vectors, groups, name="ours")
    cosines = similarity_matrix(normalize(vectors))
    scores = {step: pair_scores(groups, communities(cosines, step / 100)).f1 for step in range(11, 101)}
    assert scores[round(100 * found.value)] == pytest.approx(max(scores.values()))
    assert found.value == max(step for step, score in scores.items() if score == max(scores.values())) / 100
    (one,) = found.measured["sets"]  # type: ignore[misc]
    assert one["f1"] == pytest.approx(max(scores.values()), abs=1e-4)
    assert (one["rows"], one["groups"]) == (60, 12)


def test_parakqc_is_cut_by_whole_groups(tmp_path: Path) -> None:
    examples = load_dataset("parakqc", "test", public_sets(tmp_path))
    calibrating, judged = parakqc_parts(examples)
    assert (len(calibrating), len(judged)) == (60, 140)  # 6 and 14 of 20 groups
    assert calibrating.targets is not None
    assert judged.targets is not None
    assert not set(calibrating.targets.tolist()) & set(judged.targets.tolist())
    assert calibrating.columns["text"] == examples.columns["text"][:60]
    with pytest.raises(InputError, match="at least 4 groups"):
        parakqc_parts(_one_group(examples))


def _one_group(examples: Examples) -> Examples:
    return Examples("few", "classified", {"text": examples.columns["text"][:10]}, np.zeros(10, np.int64), ("group 0",))


def test_a_bi_encoder_gets_both_thresholds(tmp_path: Path, load: Callable[[], BiEncoder]) -> None:
    data, model = data_folder(tmp_path), load()
    said: list[str] = []
    found = calibrate_bi(model, data, tell=said.append)
    assert set(found) == {"paraphrase", "cluster"}
    assert found == calibrate_bi(model, data)  # nothing in it hangs on the day
    sets = found["paraphrase"].measured["sets"]
    assert [one["set"] for one in sets] == [  # type: ignore[attr-defined]
        "Question pair train, held out",
        "ParaKQC test, first 3 groups",
        "KorSTS dev",
        "STSb dev",
    ]
    assert len(said) == 2
    kept = model.with_thresholds(found)
    kept.save(tmp_path / "kept")
    again = BiEncoder.load(tmp_path / "kept", device="cpu")
    assert again.thresholds["cluster"].value == found["cluster"].value
    assert json.loads(json.dumps(asdict(again.thresholds["paraphrase"]))) == json.loads(
        json.dumps(asdict(found["paraphrase"]))
    )


def test_a_bi_encoder_is_calibrated_by_what_it_did_not_learn_from(
    tmp_path: Path, load: Callable[[], BiEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, seen = data_folder(tmp_path), set()
    real = calibrating.encode

    def noted(model: BiEncoder, texts: Sequence[str]) -> Vectors:
        seen.update(texts)
        return real(model, texts)

    monkeypatch.setattr(calibrating, "encode", noted)
    calibrate_bi(load(), data)
    _, questions = question_parts(load_dataset("question-pair", "train", data))
    groups, _ = parakqc_parts(load_dataset("parakqc", "test", data))
    dev = [load_dataset(name, "dev", data) for name in ("korsts", "stsb")]
    assert seen == {text for one in (questions, groups, *dev) for text in one.texts()}
    material = read_material(data, BiPlan())
    for held, learned in ((questions, material.questions), *zip(dev, material.sts.values(), strict=False)):
        rows, others = (set(zip(*one.columns.values(), strict=True)) for one in (held, learned))
        assert not rows & others


# --- the reranker ----------------------------------------------------------------------------------------------------


def test_first_hits_with_and_without_the_answer() -> None:
    scores = np.array([0.9, 0.5, 0.2, 0.3, 0.8, 0.4, 0.6])
    relevant = np.array([True, False, False, True, False, False, True])
    groups = np.array([0, 0, 0, 1, 1, 2, 3])
    top, right, answerable = first_hits(scores, relevant, groups)
    assert top.tolist() == [0.9, 0.5, 0.8, 0.8, 0.4, 0.6]
    assert right.tolist() == [True, False, False, False, False, True]
    assert answerable.tolist() == [True, False, True, False, False, True]
    tied = first_hits(np.array([0.7, 0.7]), np.array([True, False]), np.array([0, 0]))
    assert tied[1].tolist() == [False, False]  # equal scores are no answer


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 0.999), st.booleans()), min_size=2, max_size=30))
def test_no_answer_threshold_has_a_better_balance(questions: list[tuple[float, bool]]) -> None:
    top, answerable = (np.array(column) for column in zip(*questions, strict=True))
    both = 0 < answerable.sum() < len(top)
    every = [balanced_accuracy_score(answerable, top >= step) for step in [*top, 2.0]] if both else []
    if not both:
        with pytest.raises(InputError, match="of one kind"):
            answer_threshold(top, answerable)
    elif max(every) <= 0.5:
        with pytest.raises(InputError, match="does not tell them apart"):
            answer_threshold(top, answerable)
    elif np.diff(np.unique(top)).min() > 2e-3:  # it is rounded to four digits
        found = answer_threshold(top, answerable)
        assert balanced_accuracy_score(answerable, top >= found) == pytest.approx(max(every))


def test_the_answer_threshold_does_not_hang_on_how_many_there_are() -> None:
    random = np.random.default_rng(1)
    top = 1 / (1 + np.exp(-np.concatenate([random.normal(1, 1, 500), random.normal(-1, 1, 500)])))
    answerable = np.arange(1000) < 500
    found = answer_threshold(top, answerable)
    assert found == pytest.approx(0.5, abs=0.1)
    often = np.concatenate([np.arange(1000), *[np.arange(500, 1000)] * 9])
    assert answer_threshold(top[often], answerable[often]) == found


def _trained(load: Callable[[], BiEncoder]) -> CrossEncoder:
    """A cross-encoder that has learned that answers begin with 'answer:'."""
    from munjang.recipes import RecipeOptions, cross_rank

    model = CrossEncoder.from_body(load(), 1, seed=1, device="cpu", dtype="float32")
    changes = {"epochs": 30, "batch_size": 16, "learning_rate": 3e-3}
    return cross_rank(model, ranked("ours", 20, seed=5), options=RecipeOptions(changes=changes)).model  # type: ignore[return-value]


def test_a_reranker_becomes_probabilities_with_a_threshold(tmp_path: Path, load: Callable[[], BiEncoder]) -> None:
    model = _trained(load)
    held_out = ranked("held out", 40, seed=900)
    before = model.predict([("비가 오나요?", "answer: 비가 온다")])
    found = calibrate_reranker(model, held_out)
    assert np.array_equal(model.predict([("비가 오나요?", "answer: 비가 온다")]), before)  # the given one stays
    threshold = found.thresholds["answer"]
    assert 0 < threshold.value < 1
    (one,) = threshold.measured["sets"]  # type: ignore[misc]
    assert (one["queries"], one["rows"]) == (20, 60)  # the half that did not fit
    assert one["relevant share"] == pytest.approx(1 / 3, abs=1e-3)
    assert one["precision"] > 0.9  # it tells them apart, so the answers it gives are right
    assert one["refused without an answer"] > 0.9
    assert one["calibration error"] < 0.2
    assert found.thresholds == calibrate_reranker(model, held_out).thresholds
    found.save(tmp_path / "kept")
    again = CrossEncoder.load(tmp_path / "kept", device="cpu", dtype="float32")
    pairs = [(text, f"answer: {text}") for text in sentences(4, 3)]
    assert np.allclose(again.predict(pairs), found.predict(pairs), atol=1e-6)
    assert again.thresholds["answer"].value == threshold.value
    assert np.array_equal(np.argsort(found.predict(pairs)), np.argsort(model.predict(pairs)))


def _lists(sizes: list[tuple[int, int]]) -> Examples:
    """Queries with so many relevant and so many other documents."""
    relevant = [one for good, wrong in sizes for one in [1.0] * good + [0.0] * wrong]
    groups = np.repeat(np.arange(len(sizes)), [good + wrong for good, wrong in sizes])
    columns = {"query": [f"질문 {group}" for group in groups], "document": [f"doc {row}" for row in range(len(groups))]}
    return Examples("lists", "ranked", columns, np.array(relevant, np.float32), groups=groups)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)).filter(any), min_size=1, max_size=8), st.integers(0, 9))
def test_as_many_relevant_as_not_of_every_query(sizes: list[tuple[int, int]], seed: int) -> None:
    examples = _lists([*sizes, (1, 3)])
    found = calibrating._even(examples, seed)
    assert found.targets is not None
    assert found.groups is not None
    for query, (good, wrong) in enumerate(sizes):
        targets = found.targets[np.array(found.columns["query"]) == f"질문 {query}"]
        assert Counter(targets.tolist()) == Counter({one: min(good, wrong) for one in (0.0, 1.0) if min(good, wrong)})
    assert len(set(found.columns["document"])) == len(found)
    assert examples.targets is not None
    for document, target in zip(found.columns["document"], found.targets, strict=True):
        assert examples.targets[int(document.split()[1])] == target
    assert (np.diff(found.groups) >= 0).all(), "the rows of a query stay together"
    assert calibrating._even(examples, seed).columns == found.columns


def test_which_of_the_wrong_ones_hangs_on_the_seed() -> None:
    examples = _lists([(1, 9)] * 10)
    assert calibrating._even(examples, 0).columns != calibrating._even(examples, 1).columns


def test_lists_of_many_wrong_documents_do_not_lower_the_probability(load: Callable[[], BiEncoder]) -> None:
    """The fit is over as many of either: three times the wrong documents leave it as it was."""
    model, few = _trained(load), ranked("held out", 40, seed=900)
    many = few.take(np.array([row for row in range(len(few)) for _ in range(1 if few.targets[row] > 0 else 3)]))  # type: ignore[index]
    found = [calibrate_reranker(model, one) for one in (few, many)]
    fits = [one.thresholds["answer"].measured["platt"] for one in found]
    assert fits[0]["rows"] == fits[1]["rows"] == 40  # type: ignore[index]
    pair = [("비가 오나요?", "answer: 비가 온다")]
    assert found[1].predict(pair) == pytest.approx(found[0].predict(pair), abs=0.05)


def test_a_reranker_needs_lists(load: Callable[[], BiEncoder]) -> None:
    model = CrossEncoder.from_body(load(), 1, device="cpu", dtype="float32")
    with pytest.raises(InputError, match="expected examples of kind ranked"):
        calibrate_reranker(model, Examples("p", "plain", {"text": ["하나", "two"]}))
