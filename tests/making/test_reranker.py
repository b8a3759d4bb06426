"""`munjang-rerank-ko-en` made on small data: negatives, held-out questions, probabilities, what is repeated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import munjang
from making.conftest import Whole
from making.results import results_file
from making.whole_run import (
    BI_STAGES,
    RERANK_STAGES,
    Second,
    bi_plan,
    easy_negatives,
    make,
    options,
    rerank,
    skipped,
)
from models.ko_en.everyday import everyday_lists, read_questions
from models.ko_en_0_1 import reranker
from models.ko_en_0_1.cards import card
from models.ko_en_0_1.facts import read_making
from models.ko_en_0_1.material import read_material
from models.ko_en_0_1.passages import Questions, joined
from models.ko_en_0_1.reranker import RerankMade, find_negatives, first_of, ranked
from models.ko_en_0_1.results import read_results
from models.ko_en_0_1.settings import Schedule
from models.ko_en_0_1.silver import both_ways
from models.ko_en_0_1.teaching import read_passages
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.training.run import data_hash
from munjang.types import Threshold
from recipes.material import sentences

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


@pytest.fixture(autouse=True)
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong passages that a tiny model learns to tell; `find_negatives` itself is imported above as it is."""
    monkeypatch.setattr(reranker, "find_negatives", easy_negatives)


def folder_of(made: RerankMade, stage: str) -> Path:
    return next(one.folder for one in made.stages if one.name == stage)


def config_of(made: RerankMade, stage: str) -> dict[str, Any]:
    return {"tasks": _tasks(folder_of(made, stage))}


def _tasks(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "config.json").read_text("utf-8"))["tasks"]
    return found


# --- negatives -------------------------------------------------------------------------------------------------------


def some_questions(passages: int, questions: int = 12, *, twins: bool = False) -> Questions:
    """twins: every second passage says the same as the one before it, and has its number."""
    texts = sentences(passages, 1)
    if twins:
        texts = [texts[place] if place % 2 == 0 else f"{texts[place - 1]} 다시." for place in range(passages)]
    answers = [number % passages for number in range(questions)]
    asked = [f"{texts[place].split('.')[0]}?" for place in answers]
    return Questions(asked, texts, answers, [place // (1 + twins) for place in range(passages)])


@pytest.mark.parametrize(("passages", "count"), [(60, 7), (60, 2), (60, 1), (9, 7)])
def test_negatives_are_near_and_never_the_answer(load: Callable[[], BiEncoder], passages: int, count: int) -> None:
    model, given = load(), some_questions(passages)
    found = find_negatives(model, given, count, seed=0)
    assert found.shape == (12, count)
    cosines = model.encode(given.queries, normalize=True) @ model.encode(given.passages, normalize=True).T
    for row, answer in enumerate(given.answers):
        order = [place for place in np.argsort(-cosines[row], kind="stable").tolist() if place != answer]
        assert answer not in found[row]
        assert len(set(found[row].tolist())) == count, "each once, where there are enough"
        assert found[row, : count // 2].tolist() == order[: count // 2], "the very nearest"
        assert set(found[row].tolist()) <= set(order[:40])


def test_negatives_hang_on_the_seed_and_on_nothing_else(load: Callable[[], BiEncoder]) -> None:
    model, given = load(), some_questions(60)
    one, same, other = (find_negatives(model, given, 7, seed) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_few_passages_come_again(load: Callable[[], BiEncoder]) -> None:
    found = find_negatives(load(), some_questions(4), 7, seed=0)
    for row, answer in zip(found.tolist(), some_questions(4).answers, strict=True):
        assert set(row) == {0, 1, 2, 3} - {answer}


@pytest.mark.parametrize(("passages", "count"), [(60, 7), (10, 7), (4, 7)])
def test_twins_are_no_negatives(load: Callable[[], BiEncoder], passages: int, count: int) -> None:
    model, given = load(), some_questions(passages, twins=True)
    apart = find_negatives(model, replace(given, groups=list(range(passages))), count, seed=0)
    assert any(answer ^ 1 in row for row, answer in zip(apart.tolist(), given.answers, strict=True)), "they are near"
    cosines = model.encode(given.queries, normalize=True) @ model.encode(given.passages, normalize=True).T
    for row, answer in enumerate(given.answers):
        found = find_negatives(model, given, count, seed=0)[row].tolist()
        assert not {answer, answer ^ 1} & set(found)
        order = [place for place in np.argsort(-cosines[row], kind="stable").tolist() if place // 2 != answer // 2]
        assert found[: min(count // 2, len(order))] == order[: count // 2]
        assert len(set(found)) == min(count, passages - 2)


def test_without_a_wrong_passage_there_are_no_negatives(load: Callable[[], BiEncoder]) -> None:
    with pytest.raises(InputError, match=r"expected passages that do not answer '.*', got 2, all of one group"):
        find_negatives(load(), some_questions(2, 2, twins=True), 3, seed=0)


def test_lists_as_judged_pairs(load: Callable[[], BiEncoder]) -> None:
    columns = {"anchor": ["비?", "rain?"], "positive": ["비가", "it rains"], "negative": ["눈", "snow"]}
    lists = Examples("ours", "pairs", columns | {"negative_2": ["해", "sun"]})
    found = ranked(lists)
    assert found.columns["query"] == ["비?"] * 3 + ["rain?"] * 3
    assert found.columns["document"] == ["비가", "눈", "해", "it rains", "snow", "sun"]
    assert found.targets is not None
    assert found.targets.tolist() == [1, 0, 0, 1, 0, 0]
    assert found.groups is not None
    assert found.groups.tolist() == [0, 0, 0, 1, 1, 1]
    model = CrossEncoder.from_body(load(), 1, seed=2, device="cpu", dtype="float32")
    scores = model.predict(list(zip(*found.columns.values(), strict=True)))
    right = [scores[:3].argmax() == 0, scores[3:].argmax() == 0]
    assert first_of(model, lists) == np.mean(right)


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_the_reranker_that_comes_out(reranked: tuple[Path, RerankMade], whole: Whole) -> None:
    folder, made = reranked
    assert tuple(one.name for one in made.stages) == RERANK_STAGES
    assert made.folder == folder / "5-finish/model"
    assert (made.folder / "model.int8.safetensors").is_file()
    model = munjang.load_reranker(made.folder, device="cpu", dtype="float32")
    answer = model.thresholds["answer"]
    assert 0 < answer.value < 1
    (told,) = answer.measured["sets"]  # type: ignore[misc]
    questions = read_passages(whole.made.stages["passages"], "held")
    half = len(questions.queries) // 2
    assert (told["queries"], told["rows"]) == (half, 4 * half)  # of those that are held out
    pairs = [(questions.queries[row], questions.passages[questions.answers[row]]) for row in range(20)]
    exact = CrossEncoder.load(folder / "5-finish/float32", device="cpu", dtype="float32")
    scores = model.predict(pairs)
    assert ((scores > 0) & (scores < 1)).all()
    assert np.allclose(scores, exact.predict(pairs), atol=1e-3), "the same weights, written in full"
    selection = made.facts["selection"]
    assert set(selection) == {"float32", "int8"}
    assert selection["int8"]["first of its list"] > 0.6, "of four, so that chance is 0.25"
    assert {"KorSTS dev", "KLUE-STS slice", "STSb dev"} < set(selection["int8"])


def test_everyday_questions_calibrate_it(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = tmp_path / "run", []

    def calibrate(model: CrossEncoder, examples: Examples) -> CrossEncoder:
        seen.append(examples)
        return model.with_thresholds({"answer": Threshold(0.5, "answer", "answers")})

    monkeypatch.setattr(reranker, "calibrate_reranker", calibrate)
    shutil.copytree(reranked[0], run)
    given = options(whole.folder, whole.tiny, whole.data)
    made = rerank(run, given, everyday=2)
    assert skipped(made) == list(RERANK_STAGES[:-1])
    wanted = everyday_lists(BiEncoder.load(whole.made.folder, device="cpu"), 2)
    assert (seen[0].name, seen[0].columns) == ("Everyday questions", wanted.columns)
    assert len(set(seen[0].columns["query"])) == len(read_questions())
    assert skipped(rerank(run, given, everyday=2)) == list(RERANK_STAGES)


def test_it_learns_from_questions_that_are_not_held_out(reranked: tuple[Path, RerankMade], whole: Whole) -> None:
    _, made = reranked
    main = {task["name"]: task for task in config_of(made, "main")["tasks"]}
    stage = whole.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    negatives = np.load(folder_of(made, "negatives") / "passages.npy")
    assert negatives.shape == (len(rest.queries), 3)
    columns = {"anchor": rest.queries, "positive": [rest.passages[place] for place in rest.answers]}
    for role, places in zip(("negative", "negative_2", "negative_3"), negatives.T.tolist(), strict=True):
        columns[role] = [rest.passages[place] for place in places]
    learned = Examples("passages", "pairs", columns)
    assert main["passages"]["data"] == data_hash(learned)
    assert not set(learned.texts()) & set(held.passages)
    assert {name: task["share"] for name, task in main.items()} == {"passages": 0.7, "sts": 0.1, "silver": 0.2}
    assert main["silver"]["rows"] == whole.made.stages["pairs"].facts["pairs"]
    gold = read_material(whole.data, bi_plan()).graded()
    assert (main["sts"]["rows"], main["sts"]["data"]) == (2 * len(gold), data_hash(both_ways(gold))), "either order"
    silver = next(task for task in _tasks(whole.made.stages["final"].folder) if task["name"] == "silver")
    assert main["silver"]["data"] == silver["data"], "what the bi-encoder learned from"


def test_wrong_passages_are_near_by_the_last_training(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noted(model: BiEncoder, *given: Any, **more: Any) -> np.ndarray:
        seen.append(model.fingerprint)
        return easy_negatives(model, *given, **more)

    monkeypatch.setattr(reranker, "find_negatives", noted)
    shutil.copytree(reranked[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run/1-negatives")
    made = rerank(tmp_path / "run", options(whole.folder, whole.tiny, whole.data))
    assert skipped(made) == list(RERANK_STAGES[1:])
    models = {
        name: BiEncoder.load(whole.made.stages[name].folder / "model", device="cpu", max_length=64).fingerprint
        for name in ("multi", "final", "merged")
    }
    assert len(set(models.values())) == 3
    assert seen == [models["multi"]] * 2, "for questions to learn from and for those held out"
    inputs = json.loads((folder_of(made, "negatives") / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["model"] == whole.made.stages["multi"].digest


def test_of_one_training_there_is_no_mean(reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(reranked[0], tmp_path / "run")
    made = rerank(tmp_path / "run", options(whole.folder, whole.tiny, whole.data), mains=1)
    assert [one.name for one in made.stages] == ["negatives", "main", "finish"]
    assert skipped(made) == ["negatives", "main"]
    inputs = json.loads((folder_of(made, "finish") / "stage.json").read_text("utf-8"))["inputs"]
    assert inputs["model"] == made.stages[1].digest


def test_held_out_questions_are_asked_among_all_passages(reranked: tuple[Path, RerankMade], whole: Whole) -> None:
    stage = whole.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    both = joined([held, Questions([], rest.passages, [], rest.groups)])
    assert len(both.passages) == len(held.passages) + len(rest.passages)
    negatives = np.load(folder_of(reranked[1], "negatives") / "held.npy")
    assert np.array_equal(negatives, easy_negatives(None, both, 3, 0))  # type: ignore[arg-type]
    assert negatives.max() >= len(held.passages), "passages that stood in training are among them"


def test_saved_again_the_weights_stay_the_same(reranked: tuple[Path, RerankMade], tmp_path: Path) -> None:
    _, made = reranked
    CrossEncoder.load(made.folder, device="cpu").save(tmp_path / "again", dtype="int8")
    trained = CrossEncoder.load(folder_of(made, "mean") / "model", device="cpu")
    trained.save(tmp_path / "once", dtype="int8")
    name = "model.int8.safetensors"
    shipped = (made.folder / name).read_bytes()
    assert (tmp_path / "again" / name).read_bytes() == shipped
    once, now = load_file(tmp_path / "once" / name), load_file(made.folder / name)
    body = [key for key in once if not key.startswith("classifier")]
    assert 10 < len(body) < len(once)
    assert all(torch.equal(once[key], now[key]) for key in body)


def test_the_threshold_is_that_of_the_weights_that_are_shipped(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path
) -> None:
    """Calibrated again, on the same lists and with weights rounded once, it comes out the same."""
    _, made = reranked
    trained = CrossEncoder.load(folder_of(made, "mean") / "model", device="cpu", max_length=64)
    trained.save(tmp_path / "whole", dtype="int8")
    stage = whole.made.stages["passages"]
    rest, held = read_passages(stage), read_passages(stage, "held")
    both = joined([held, Questions([], rest.passages, [], rest.groups)])
    places = np.load(folder_of(made, "negatives") / "held.npy")
    columns = {"anchor": both.queries, "positive": [both.passages[place] for place in both.answers]}
    for number in range(3):
        columns["negative" if not number else f"negative_{number + 1}"] = [
            both.passages[place] for place in places[:, number].tolist()
        ]
    lists = ranked(Examples("held", "pairs", columns))
    wanted = reranker.calibrate_reranker(CrossEncoder.load(tmp_path / "whole", device="cpu"), lists)
    assert CrossEncoder.load(made.folder, device="cpu").thresholds == wanted.thresholds


def test_the_facts_of_the_making(reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path) -> None:
    folder, made = reranked
    making, bi = read_making(folder / "making.json"), read_making(whole.folder / "making.json")
    assert (making.name, making.is_cross) == ("munjang-rerank-ko-en", True)
    assert [one["name"] for one in making.rows("stages")] == list(RERANK_STAGES)
    assert making.rows("data") == bi.rows("data")
    selection = {one["set"]: (one["metric"], one["value"]) for one in making.rows("selection")}
    assert selection["KorSTS dev"] == ("spearman", made.facts["selection"]["int8"]["KorSTS dev"])
    assert selection["first of its list"][0] == "accuracy"
    assert "dimension" not in making.content["model"]
    results = read_results(results_file(tmp_path / "results.json"))
    for language in ("en", "ko"):
        assert "| negatives |" in card(making, results, language)  # type: ignore[arg-type]


def test_the_same_call_again_does_nothing(reranked: tuple[Path, RerankMade], whole: Whole) -> None:
    folder, made = reranked
    again = rerank(folder, options(whole.folder, whole.tiny, whole.data, second=Second(fails=True)))
    assert tuple(skipped(again)) == RERANK_STAGES
    assert again.facts == made.facts


@pytest.mark.parametrize(
    ("change", "repeated"),
    [
        ({"max_length": 60}, ("finish",)),
        ({"main": Schedule(18, 3e-3, head_rate=3e-3)}, RERANK_STAGES[1:]),
        ({"negatives": 2}, RERANK_STAGES),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_change_repeats_what_depends_on_it(
    reranked: tuple[Path, RerankMade],
    whole: Whole,
    tmp_path: Path,
    change: dict[str, object],
    repeated: tuple[str, ...],
) -> None:
    shutil.copytree(reranked[0], tmp_path / "run")
    made = rerank(tmp_path / "run", options(whole.folder, whole.tiny, whole.data), **change)
    assert tuple(name for name in RERANK_STAGES if name not in skipped(made)) == repeated


def test_positions_that_are_never_read_do_not_travel(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path
) -> None:
    shutil.copytree(reranked[0], tmp_path / "run")
    made = rerank(tmp_path / "run", options(whole.folder, whole.tiny, whole.data), max_length=60)
    for folder in (made.folder, made.folder.parent / "float32"):
        model = CrossEncoder.load(folder, device="cpu")
        assert model.max_length == model.parts.body.max_positions == 60
    before = CrossEncoder.load(folder_of(made, "mean") / "model", device="cpu")
    assert before.parts.body.max_positions == 64


def test_another_bi_encoder_is_another_reranker(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path
) -> None:
    """What is missing of the bi-encoder's run is made first."""
    shutil.copytree(reranked[0], tmp_path / "run")
    shutil.copytree(whole.folder, tmp_path / "bi")
    changed = options(tmp_path / "bi", whole.tiny, whole.data, plan=bi_plan(multi=Schedule(8, 1e-3)))
    made = rerank(tmp_path / "run", changed)
    assert "negatives" not in skipped(made)
    bi = make(tmp_path / "bi", whole.tiny, whole.data, plan=changed.plan)
    assert tuple(skipped(bi)) == BI_STAGES


def test_the_same_seed_gives_the_same_reranker(reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path) -> None:
    again = rerank(tmp_path / "run", options(whole.folder, whole.tiny, whole.data))
    assert [one.digest for one in again.stages] == [one.digest for one in reranked[1].stages]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_reranker_that_learned_nothing_is_no_model(
    reranked: tuple[Path, RerankMade], whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores that do not rise with relevance are no probabilities: an error that says so, and nothing to ship."""
    real = reranker.calibrate_reranker

    def turned_round(model: CrossEncoder, examples: Examples) -> CrossEncoder:
        with torch.no_grad():
            model.parts.head.out.weight.neg_()
            model.parts.head.out.bias.neg_()
        model.refresh()
        return real(model, examples)

    run = tmp_path / "run"
    shutil.copytree(reranked[0], run)
    shutil.rmtree(run / "5-finish")
    given = options(whole.folder, whole.tiny, whole.data)
    with monkeypatch.context() as patch:
        patch.setattr(reranker, "calibrate_reranker", turned_round)
        with pytest.raises(InputError) as error:
            rerank(run, given)
    said = str(error.value)
    assert "pairs of 'held' its scores cannot become probabilities" in said
    assert "scores do not rise with the labels" in said
    assert "Give `main` more steps" in said
    assert not (run / "5-finish/stage.json").exists()
    assert not (run / "5-finish/float32").exists()
    assert skipped(rerank(run, given)) == list(RERANK_STAGES[:-1]), "what was trained is kept"


def test_without_a_labeller_there_is_nothing_to_begin_as(whole: Whole, tmp_path: Path) -> None:
    given = options(tmp_path / "bi", whole.tiny, whole.data, plan=bi_plan(labellers=0), second=Second(fails=True))
    with pytest.raises(InputError, match="labellers must be at least 1, got 0"):
        rerank(tmp_path / "run", given)
    assert not (tmp_path / "bi").exists()


def test_a_run_of_the_other_model_is_not_written_over(whole: Whole) -> None:
    with pytest.raises(InputError, match="holds something else than a run of 'bundled reranker'"):
        rerank(whole.folder, replace(options(whole.folder, whole.tiny, whole.data), second=Second(fails=True)))
