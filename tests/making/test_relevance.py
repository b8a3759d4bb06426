"""Graded lists of the reranker: who asks, among which passages, what the larger model says of them, what is learned."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from making.conftest import Whole, alone
from making.results import results_file
from making.whole_run import (
    GRADED_STAGES,
    RERANK_STAGES,
    Second,
    bi_plan,
    easy_negatives,
    options,
    rerank,
    skipped,
)
from models.ko_en_0_1 import relevance, reranker
from models.ko_en_0_1.cards import card
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.passages import Questions, Unit
from models.ko_en_0_1.relevance import graded, graded_lists, languages_of, queries_of
from models.ko_en_0_1.reranker import RerankMade
from models.ko_en_0_1.results import read_results
from models.ko_en_0_1.teaching import MakeOptions, read_passages
from munjang.bi_encoder import BiEncoder
from munjang.errors import InputError
from munjang.recipes.stages import Done
from munjang.training.losses import list_net
from munjang.training.objectives import CrossKl
from munjang.training.objectives.base import Given
from munjang.training.run import data_hash
from recipes.material import sentences

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
HANGUL = re.compile(r"[가-힣]")


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker, "find_negatives", easy_negatives)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- queries ---------------------------------------------------------------------------------------------------------


def units(count: int) -> list[Unit]:
    return [Unit((f"the cat number{i} sleeps at home.", f" 고양이 번호{i} 집에서 잠을 잔다. ")) for i in range(count)]


def test_queries_say_the_same_in_two_languages_half_of_them_whole() -> None:
    english, korean = queries_of(units(400), [], count=300, generator=random())
    assert len(english) == len(korean) == 300
    sides = [{unit.versions[language].strip() for unit in units(400)} for language in (0, 1)]
    whole = 0
    for a, b in zip(english, korean, strict=True):
        assert not HANGUL.search(a), "what the larger model reads is English"
        assert HANGUL.search(b)
        numbers = [re.search(r"(?:number|번호)(\d+)", text) for text in (a, b)]
        assert len({one[1] for one in numbers if one}) <= 1, "of one sentence"
        assert (a in sides[0]) == (b in sides[1])
        whole += a in sides[0]
    assert len(set(english) & sides[0]) == whole, "each once"
    assert 110 < whole < 190
    assert (english, korean) == queries_of(units(400), [], count=300, generator=random())
    assert english != queries_of(units(400), [], count=300, generator=random(1))[0]


def test_sentences_too_short_to_ask_in_either_language_are_left_out() -> None:
    short = [Unit(("the cat sleeps", "고양이가 집에서 잠을 잔다")), Unit(("the cat sleeps at home", "고양이가 잔다"))]
    english, _ = queries_of([*short, *units(3)], [], count=10, generator=random())
    assert len(english) == 3


@given(st.sets(st.integers(0, 29)), st.sampled_from([0, 1]))
def test_no_sentence_of_a_held_passage_asks(held: set[int], language: int) -> None:
    every = units(30)
    passages = [
        f"무엇이 앞에 있다. {every[one].versions[language].strip()} And something stands behind." for one in held
    ]
    passages.append(
        "the cat number7 sleeps at work. 고양이 번호7 집에서 잠을 깬다."
    )  # begins alike, says another thing
    asked = queries_of(every, passages, count=100, generator=random(len(held)))
    assert len(asked[0]) == 30 - len(held)
    found = {int(one) for side in asked for text in side for one in re.findall(r"(?:number|번호)(\d+)", text)}
    assert not found & held


# --- candidates ------------------------------------------------------------------------------------------------------


def cosines(model: BiEncoder, queries: list[str], passages: list[str]) -> np.ndarray:
    found: np.ndarray = model.encode(queries, normalize=True) @ model.encode(passages, normalize=True).T
    return found


@pytest.mark.parametrize("count", [9, 12, 45, 120])
def test_candidates_are_the_nearest_some_of_the_next_and_any(load: Callable[[], BiEncoder], count: int) -> None:
    model, passages = load(), sentences(count, 1)
    asked = [f"{text.split('.')[0]}?" for text in sentences(25, 2)] + passages[:5]
    places, scores = graded(model, asked, passages, generator=random())
    assert (places.dtype, places.shape) == (np.int64, (30, 8))
    assert (scores.dtype, scores.shape) == (np.float32, (30, 8))
    every = cosines(model, asked, passages)
    assert np.allclose(scores, np.take_along_axis(every, places, axis=1), atol=1e-5)
    far = 0
    same = [text.lower().rstrip("?.") for text in passages]
    for row, query in enumerate(asked):
        found = places[row].tolist()
        others = [place for place, text in enumerate(same) if text != query.lower().rstrip("?.")]
        assert set(found) <= set(others), "no query stands beside itself"
        assert len(set(found)) == 8
        order = np.sort(every[row, others])[::-1]
        got = every[row, found]
        assert got.max() > order[0] - 1e-5, "the very nearest"
        near = order[min(40, len(order) - 1)]
        assert (got > near - 1e-5).sum() >= 5, "and four of the next 40"
        far += int((got < near - 1e-5).sum())
    if count == 120:
        assert 30 < far <= 90, "and up to three of all"


def test_the_place_in_a_list_tells_nothing(load: Callable[[], BiEncoder]) -> None:
    queries = [f"{text.split('.')[0]}?" for text in sentences(200, 3)]
    _, scores = graded(load(), queries, sentences(60, 1), generator=random())
    best = np.bincount(scores.argmax(axis=1), minlength=8)
    assert best.min() > 8
    assert best.max() < 50


def test_candidates_hang_on_the_seed(load: Callable[[], BiEncoder]) -> None:
    model, asked, passages = load(), sentences(10, 2), sentences(60, 1)
    one, same, other = (graded(model, asked, passages, generator=random(seed)) for seed in (0, 0, 1))
    assert np.array_equal(one[0], same[0])
    assert np.array_equal(one[1], same[1])
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize(("asked", "passages"), [(3, 8), (0, 20)])
def test_too_little_is_said(load: Callable[[], BiEncoder], asked: int, passages: int) -> None:
    with pytest.raises(InputError, match=rf"expected more than 8 passages .* got {passages} and {asked}: give more"):
        graded(load(), sentences(asked, 2), sentences(passages, 1), generator=random())


# --- languages and examples ------------------------------------------------------------------------------------------


def test_most_lists_are_in_one_language() -> None:
    found = languages_of(4_000, random())
    assert (found.dtype, found.shape, set(found.ravel().tolist())) == (np.int8, (4_000, 2), {0, 1})
    assert np.mean(found[:, 0] == found[:, 1]) == pytest.approx(0.7, abs=0.03)
    for query in (0, 1):
        mine = found[found[:, 0] == query]
        assert len(mine) == pytest.approx(2_000, abs=150)
        assert np.mean(mine[:, 1] == query) == pytest.approx(0.7, abs=0.04), "whatever the query's language"


def test_lists_by_hand(tmp_path: Path) -> None:
    queries = {"en": ["rain?", "snow?"], "ko": ["비?", "눈?"]}
    (tmp_path / "queries.json").write_text(json.dumps(queries), "utf-8")
    np.save(tmp_path / "passages.npy", np.array([[0, 1, 2], [2, 0, 1]]))
    np.save(tmp_path / "scores.npy", np.array([[0.5, 0.25, -0.1], [0.0, 1.0, 0.2]], np.float32))
    np.save(tmp_path / "languages.npy", np.array([[0, 1], [1, 0]], np.int8))
    passages = ["It rains.", "비가 온다.", "홀로.", "It snows.", "눈이 온다.", "The sun.", "해."]
    done = Done("relevance", tmp_path, "", {}, 0.0, skipped=False)
    found = graded_lists(done, Questions([], passages, [], [0, 0, 1, 2, 2, 3, 3]), temperature=0.05)
    assert (found.name, found.kind) == ("relevance", "pairs")
    assert found.columns == {
        "anchor": ["rain?", "눈?"],
        "positive": ["비가 온다.", "The sun."],
        "negative": ["눈이 온다.", "It rains."],
        "negative_2": ["해.", "It snows."],
    }
    assert np.allclose(np.asarray(found.targets), [[10, 5, -2], [0, 20, 4]], atol=1e-4)


def test_what_is_learned_is_the_list_whatever_its_order() -> None:
    """ListNet but for a constant, of the softmax over cosine / temperature."""
    targets = torch.from_numpy(random().normal(size=(5, 8)) * 5)
    logits = torch.from_numpy(random(1).normal(size=(5, 8))).requires_grad_()
    loss = CrossKl()(list(logits.split(1, dim=1)), Given(targets))
    wanted = list_net(logits.reshape(-1), targets.reshape(-1), torch.arange(5).repeat_interleave(8))
    ours, theirs = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (loss, wanted))
    assert torch.allclose(ours, theirs, atol=1e-8)
    turned = CrossKl()(list(logits.flip(1).split(1, dim=1)), Given(targets.flip(1)))
    assert loss.item() == pytest.approx(turned.item())


# --- a whole run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    folder: Path
    made: RerankMade
    given: MakeOptions  # of the bi-encoder

    def stage(self, name: str) -> Done:
        return next(one for one in self.made.stages if one.name == name)

    def array(self, name: str) -> np.ndarray:
        found: np.ndarray = np.load(self.stage("relevance").folder / f"{name}.npy")
        return found

    @property
    def queries(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads((self.stage("relevance").folder / "queries.json").read_text("utf-8"))
        return found

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        told = json.loads((self.stage("main").folder / "config.json").read_text("utf-8"))["tasks"]
        return {task["name"]: task for task in told}


@pytest.fixture(scope="module")
def run(with_larger: Whole, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("graded") / "run"
    bi = options(with_larger.folder, with_larger.tiny, with_larger.data, larger=with_larger.tiny)
    with alone(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reranker, "find_negatives", easy_negatives)
        return Run(folder, rerank(folder, bi), bi)


def test_a_larger_model_adds_the_stage(run: Run) -> None:
    assert tuple(one.name for one in run.made.stages) == GRADED_STAGES
    assert run.made.folder == run.folder / "6-finish/model"
    assert run.stage("relevance").facts["lists"] == len(run.queries["en"]) == len(run.queries["ko"]) == 50


def test_scores_are_the_larger_models_cosines_in_english(run: Run, with_larger: Whole) -> None:
    twins = read_passages(with_larger.made.stages["passages"]).twins()
    model = BiEncoder.load(with_larger.tiny, device="cpu")
    every = cosines(model, run.queries["en"], [english for english, _ in twins])
    places, scores = run.array("passages"), run.array("scores")
    assert places.shape == scores.shape == (50, 8)
    assert np.allclose(scores, np.take_along_axis(every, places, axis=1), atol=1e-4)
    assert np.ptp(scores) > 0.05, "the test must be able to fail"


def test_nothing_that_is_held_out_is_learned(run: Run, with_larger: Whole) -> None:
    stage = with_larger.made.stages["passages"]
    held = read_passages(stage, "held").passages
    lists = graded_lists(run.stage("relevance"), read_passages(stage), temperature=1.0)
    assert not set(lists.texts()) & set(held)
    translated = read_material(with_larger.data, bi_plan()).units()[0]
    hidden = [unit for unit in translated if any(unit.versions[0].strip() in text for text in held)]
    assert 3 < len(hidden) < len(translated) - 50
    asked = {*run.queries["en"], *run.queries["ko"]}
    assert not asked & {text.strip() for unit in hidden for text in unit.versions}
    assert asked & {text.strip() for unit in translated for text in unit.versions}, "whole sentences are among them"


def test_a_list_is_in_one_language(run: Run, with_larger: Whole) -> None:
    lists = graded_lists(run.stage("relevance"), read_passages(with_larger.made.stages["passages"]), temperature=1.0)
    told = [[bool(HANGUL.search(text)) for text in row] for row in zip(*lists.columns.values(), strict=True)]
    assert all(len(set(passages)) == 1 for _, *passages in told)
    assert [[anchor, passages[0]] for anchor, *passages in told] == run.array("languages").astype(bool).tolist()
    assert len({(anchor, passages[0]) for anchor, *passages in told}) == 4


def test_main_learns_it(run: Run, with_larger: Whole) -> None:
    questions = read_passages(with_larger.made.stages["passages"])
    lists = graded_lists(run.stage("relevance"), questions, temperature=0.05)
    task = run.tasks["relevance"]
    assert (task["data"], task["objective"], task["rows"]) == (data_hash(lists), "CrossKl", 50)
    assert (task["share"], task["batch_size"]) == (0.2, 4)
    assert lists.targets is not None
    assert np.allclose(lists.targets * 0.05, run.array("scores"), atol=1e-6)
    assert set(run.tasks) == {"passages", "sts", "silver", "relevance"}
    log = (run.stage("main").folder / "log.jsonl").read_text("utf-8")
    assert '"relevance' in log, "steps were taken"


def test_without_a_larger_model_there_is_no_such_part(reranked: tuple[Path, RerankMade]) -> None:
    folder, made = reranked
    main = next(one for one in made.stages if one.name == "main")
    config = json.loads((main.folder / "config.json").read_text("utf-8"))
    assert {task["name"] for task in config["tasks"]} == {"passages", "sts", "silver"}
    inputs = json.loads((main.folder / "stage.json").read_text("utf-8"))["inputs"]
    assert (inputs["relevance"], set(inputs["parts"])) == (None, {"passages", "sts", "silver"})
    assert not list(folder.glob("*-relevance"))


def test_what_is_told_of_the_larger_model(run: Run, with_larger: Whole, tmp_path: Path) -> None:
    results = read_results(results_file(tmp_path / "results.json"))
    uses = {
        "en": "learns Korean, then labels pairs; graded relevance",
        "ko": "한국어를 익힌 뒤 쌍에 점수를 붙임; 관련도를 가르침",
    }
    for folder, both in ((run.folder, True), (with_larger.folder, False)):
        making = read_making(folder / "making.json")
        (larger,) = [one for one in making.rows("teachers") if one["name"] == "all-mpnet-base-v2"]
        assert (larger["use"] == uses) == both
        for language, use in uses.items():
            text = card(making, results, language)  # type: ignore[arg-type]
            assert use.split(";")[0] in text
            assert (use in text) == both


# --- a second call ---------------------------------------------------------------------------------------------------


def test_the_same_call_again_does_nothing(run: Run) -> None:
    again = rerank(run.folder, replace(run.given, second=Second(fails=True)))
    assert tuple(skipped(again)) == GRADED_STAGES
    assert again.facts == run.made.facts


def test_made_again_it_is_the_same(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    before = run.stage("relevance").digest
    shutil.rmtree(tmp_path / "run/2-relevance")
    again = rerank(tmp_path / "run", run.given)
    assert skipped(again) == ["negatives", "main", "main-2", "mean", "finish"]
    assert again.stages[1].digest == before


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({"relevance": 40}, ("relevance", "main", "main-2", "mean", "finish")),
        ({"relevance_temperature": 0.1}, ("main", "main-2", "mean", "finish")),
        ({"max_length": 60}, ("finish",)),
        ({"relevance": 0}, ("main", "main-2", "mean", "finish")),
    ],
    ids=["lists", "temperature", "length", "none"],
)
def test_a_change_repeats_what_depends_on_it(
    run: Run, tmp_path: Path, change: dict[str, Any], repeated: tuple[str, ...]
) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    made = rerank(tmp_path / "run", run.given, **change)
    names = RERANK_STAGES if change.get("relevance") == 0 else GRADED_STAGES
    assert tuple(one.name for one in made.stages) == names
    assert tuple(name for name in names if name not in skipped(made)) == repeated


def test_the_key_holds_all_that_it_hangs_on(run: Run, with_larger: Whole) -> None:
    told = json.loads((run.stage("relevance").folder / "stage.json").read_text("utf-8"))["inputs"]
    material = read_material(with_larger.data, bi_plan())
    assert told["larger"] == BiEncoder.load(with_larger.tiny, device="cpu").fingerprint
    assert told["passages"] == with_larger.made.stages["passages"].digest
    assert told["translations"] == data_hash(material.translations)
    assert (told["count"], told["seed"], told["candidates"]) == (50, 0, [1, 4, 3, 40])
    assert (told["queries"], told["same language"]) == ([4, 0.5], 0.7)
    assert relevance._CANDIDATES == 8
