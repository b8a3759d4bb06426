"""Cross-encoders that teach: bi-encoders and smaller cross-encoders; negatives, scores, objectives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import InputError
from munjang.recipes import DistillOptions, Teacher, distill
from munjang.recipes.distilling import targets
from munjang.students import StudentPlan, VocabularyPlan
from munjang.training import NegativeMining
from recipes.distilling.material import parallel, reranker
from recipes.material import scored, triplets

Load = Callable[[], BiEncoder]
MINING = NegativeMining(negatives_per_row=2, relative_margin=None)


@pytest.fixture(scope="module")
def teacher(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reranker(tiny, tmp_path_factory.mktemp("cross"))


def quick(folder: Path, **more: object) -> DistillOptions:
    given: dict[str, object] = {"device": "cpu", "changes": {"max_steps": 2, "batch_size": 8}, "negatives": MINING}
    return DistillOptions(folder, **given | more)  # type: ignore[arg-type]


def logits(teacher: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    return CrossEncoder.load(teacher, device="cpu").predict(pairs, raw=True)


def test_a_bi_encoder_learns_from_scores_of_negatives_it_found(
    tiny: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "PAIRS", 16)
    run = tmp_path / "run"
    source = parallel("p", 0, 20)
    result = distill(tiny, teacher, source, test=parallel("t", 50, 60), options=quick(run))
    assert isinstance(result.model, BiEncoder)
    assert [path.name for path in sorted(run.glob("[0-9]-*"))] == [
        "1-student", "2-negatives", "3-teacher", "4-distill", "5-measure",
    ]  # fmt: skip
    found = (run / "2-negatives" / "pairs-1.jsonl").read_text(encoding="utf-8")
    assert found.count("negative_2") == found.count("\n") == 20
    scores = np.load(run / "3-teacher" / "scores-1.npy")
    assert scores.shape == (20, 3)
    pairs = list(zip(source.columns["anchor"], source.columns["positive"], strict=True))
    assert np.abs(scores[:, 0] - logits(teacher, pairs)).max() < 1e-5
    assert result.facts["objectives"][0]["objective"] == "Kl"
    again = distill(tiny, teacher, source, test=parallel("t", 50, 60), options=quick(run))
    assert again.skipped == ("student", "negatives", "teacher", "distill", "measure")
    margins = quick(run, objective="margin_mse")
    other = distill(tiny, teacher, source, test=parallel("t", 50, 60), options=margins)
    assert other.skipped == ("student", "negatives", "teacher")
    assert other.facts["objectives"][0]["objective"] == "MarginMse"


def test_scored_pairs_get_the_teachers_scores(tiny: Path, teacher: Path, tmp_path: Path) -> None:
    source = scored("pairs", 16)
    result = distill(tiny, teacher, source, options=quick(tmp_path / "bi", weights={"pairs": 1.5}))
    assert result.facts["objectives"][0]["objective"] == "CoSent"
    assert result.facts["sources"][0]["rows an epoch"] == 24
    scores = np.load(tmp_path / "bi" / "2-teacher" / "scores-1.npy")
    pairs = list(zip(source.columns["a"], source.columns["b"], strict=True))
    assert np.abs(scores - logits(teacher, pairs)).max() < 1e-5
    cross = distill(None, teacher, source, options=quick(tmp_path / "cross", plan=StudentPlan(layers=1)))
    assert isinstance(cross.model, CrossEncoder)
    assert cross.facts["objectives"][0] == {"name": "pairs", "objective": "CrossScore", "with": {"loss": "bce"}}


def test_a_smaller_cross_encoder_comes_nearer_to_its_teacher(teacher: Path, tmp_path: Path) -> None:
    source = triplets("t", 16)
    run = tmp_path / "run"
    changes = {"epochs": 20, "batch_size": 8, "learning_rate": 1e-3, "dropout": 0.0}
    options = quick(run, plan=StudentPlan(layers=1), changes=changes)
    result = distill(None, teacher, source, test=triplets("test", 8, 50), options=options)
    assert result.facts["objectives"][0]["objective"] == "CrossKl"
    columns = list(source.columns.values())
    pairs = [(text, other[row]) for row, text in enumerate(columns[0]) for other in columns[1:]]
    wanted = logits(teacher, pairs).reshape(-1, 2)
    before = logits(run / "1-student" / "model", pairs).reshape(-1, 2)
    after = logits(run / "model", pairs).reshape(-1, 2)

    def off(found: np.ndarray) -> float:
        return float(np.abs((found[:, 0] - found[:, 1]) - (wanted[:, 0] - wanted[:, 1])).mean())

    assert len(CrossEncoder.load(run / "model", device="cpu").parts.body.config.steps) == 1
    assert off(after) < 0.8 * off(before)
    assert "Distilled with Munjang" in (run / "model" / "README.md").read_text(encoding="utf-8")
    assert result.compared[0].teacher is not None


def test_a_body_becomes_a_cross_encoder_where_that_is_asked_for(tiny: Path, teacher: Path, tmp_path: Path) -> None:
    result = distill(tiny, teacher, triplets("t", 8), options=quick(tmp_path / "run", student_kind="cross"))
    assert isinstance(result.model, CrossEncoder)


def test_scoring_goes_on_behind_the_last_whole_block(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "PAIRS", 4)
    model = CrossEncoder.load(teacher, device="cpu", dtype="float32")
    pairs = [(f"질문 {number}", f"answer {number}") for number in range(10)]
    path = tmp_path / "pairs.npy"
    whole, _ = targets._score(tmp_path / "whole.npy", pairs, model, progress=False)
    seen: list[int] = []
    predict = model.predict_report

    def counted(some: list[tuple[str, str]], raw: bool) -> object:
        seen.append(len(some))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return predict(some, raw=raw)

    monkeypatch.setattr(model, "predict_report", counted)
    with pytest.raises(KeyboardInterrupt):
        targets._score(path, pairs, model, progress=False)
    again, _ = targets._score(path, pairs, model, progress=False)
    assert again.tolist() == whole.tolist()
    assert seen == [4, 4, 2, 2]
    targets._score(path, pairs, model, progress=False)
    assert seen == [4, 4, 2, 2]


def test_a_test_set_that_such_a_student_cannot_have_shows_before_a_pair_is_scored(
    teacher: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="measured on pairs with negatives"):
        distill(None, teacher, triplets("t"), test=parallel("x", 50, 60), options=quick(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_cross_encoder_with_another_vocabulary_keeps_no_setting_that_is_no_longer_true(
    tiny: Path, teacher: Path, tmp_path: Path
) -> None:
    model = CrossEncoder.load(teacher, device="cpu")
    gone = model.tokenizer.backend.get_vocab_size() - 1  # the id of a piece that a new vocabulary has not
    model.parts.hf_config = {**model.parts.hf_config, "bos_token_id": gone}
    plan = StudentPlan(vocabulary=VocabularyPlan(60, keep="none", min_count=1))
    result = distill(model, teacher, triplets("t", 12), options=quick(tmp_path / "run", plan=plan))
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == result.model.tokenizer.vocab_size <= 60
    assert "bos_token_id" not in config


def test_errors(tiny: Path, load: Load, teacher: Path, tmp_path: Path) -> None:
    options = quick(tmp_path / "run")
    plain = Examples("texts", "plain", {"text": ["one"]})
    labels = CrossEncoder.from_body(load(), ["yes", "no"], device="cpu")
    cases = [
        (tiny, teacher, plain, options, "a cross-encoder scores pairs, but texts holds single texts"),
        (None, teacher, parallel("p"), options, "p has no negatives, and a student that is a cross-encoder"),
        (tiny, [teacher, tiny], parallel("p"), options, "which teaches alone"),
        (tiny, labels, parallel("p"), options, "must give one score to a pair"),
        (teacher, tiny, parallel("p"), options, "a cross-encoder learns from a cross-encoder"),
        (tiny, teacher, triplets("t"), quick(tmp_path, objective="bce"), "must be one of kl, margin_mse, got 'bce'"),
        (None, teacher, triplets("t"), quick(tmp_path, plan=StudentPlan(dimension=8)), "a cross-encoder makes none"),
        (None, teacher, triplets("t"), quick(tmp_path, mlm_epochs=1), "has no such stage"),
        (teacher, teacher, triplets("t"), quick(tmp_path, student_kind="bi"), "student_kind='bi' was asked for"),
        (tiny, Teacher(teacher, cosine=1.0), triplets("t"), options, "cosine is learned from vectors"),
        (tiny, Teacher(teacher, prompt="q: "), triplets("t"), options, "prompt is put before texts"),
    ]
    for student, teachers, source, chosen, words in cases:
        with pytest.raises(InputError, match=words):
            distill(student, teachers, source, options=chosen)  # type: ignore[arg-type]
