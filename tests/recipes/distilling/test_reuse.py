"""What a second call on a run folder takes from the first: nothing that another input has made, and no foreign run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from munjang.data import Examples
from munjang.errors import DataError, InputError
from munjang.recipes import DistillOptions, Teacher, distill
from munjang.recipes.distilling import record, targets
from munjang.training import NegativeMining, Task, TrainingSettings, objectives, train
from munjang.training.run import data_hash
from munjang.vectors import similarity
from recipes.distilling.material import parallel, reranker
from recipes.material import scored

Load = Callable[[], BiEncoder]


def quick(folder: Path, **more: object) -> DistillOptions:
    given: dict[str, object] = {"device": "cpu", "changes": {"max_steps": 2, "batch_size": 8}}
    return DistillOptions(folder, **given | more)  # type: ignore[arg-type]


def test_other_translations_of_the_same_texts_are_learned_anew(tiny: Path, tmp_path: Path) -> None:
    """The teacher's vectors are the same, so that nothing but the texts themselves tells."""
    first = parallel("p", 0, 20)
    mended = replace(first, columns={**first.columns, "positive": first.columns["positive"][::-1]})
    one = distill(tiny, tiny, first, options=quick(tmp_path / "run"))
    two = distill(tiny, tiny, mended, options=quick(tmp_path / "run"))
    assert two.skipped == ("student",)
    assert two.facts["teacher"]["teachers"][0]["encoded"] == 0
    assert two.model.fingerprint != one.model.fingerprint
    assert two.model.fingerprint == distill(tiny, tiny, mended, options=quick(tmp_path / "new")).model.fingerprint


def test_prompts_of_the_student_are_what_they_are_now(load: Load, tiny: Path, tmp_path: Path) -> None:
    """They are saved with the student, but no fingerprint of its vectors tells of them."""
    options = quick(tmp_path / "run")
    distill(load(), tiny, parallel("p", 0, 10), options=options)
    model = load()
    model.parts = replace(model.parts, prompts={"query": "질문: "})
    again = distill(model, tiny, parallel("p", 0, 10), options=options)
    assert again.skipped == ("teacher",)
    assert BiEncoder.load(tmp_path / "run" / "model", device="cpu").prompts == {"query": "질문: "}


def test_the_folder_of_another_run_is_left_alone(tiny: Path, load: Load, tmp_path: Path) -> None:
    run = tmp_path / "trained"
    settings = TrainingSettings(max_steps=1)
    train(load(), [Task(parallel("p", 0, 10), objectives.Ranking())], settings, folder=run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for folder in (run, tiny):
        with pytest.raises(InputError, match="choose another run folder"):
            distill(tiny, tiny, parallel("p", 0, 10), options=quick(folder))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    killed = tmp_path / "killed"  # after the model was saved, before result.json was
    distill(tiny, tiny, parallel("p", 0, 10), options=quick(killed))
    (killed / "result.json").unlink()
    distill(tiny, tiny, parallel("p", 0, 10), options=quick(killed))
    assert (killed / "result.json").is_file()


def test_a_page_of_the_run_before_does_not_stay(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between result.json and index.html of a second, changed call."""
    run = tmp_path / "run"
    distill(tiny, tiny, parallel("first", 0, 10), options=quick(run))
    old = (run / "index.html").read_text(encoding="utf-8")

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(record, "write_page", killed)
        with pytest.raises(KeyboardInterrupt):
            distill(tiny, tiny, parallel("second", 0, 12), options=quick(run))
    distill(tiny, tiny, parallel("second", 0, 12), options=quick(run))
    page = (run / "index.html").read_text(encoding="utf-8")
    assert "second" in page
    assert page != old


def test_what_the_report_says_of_a_teacher_is_of_this_call(tiny: Path, tmp_path: Path) -> None:
    distill(tiny, Teacher(tiny, mse=1), parallel("p", 0, 10), options=quick(tmp_path / "run"))
    again = distill(tiny, Teacher(tiny, cosine=0.5), parallel("p", 0, 10), options=quick(tmp_path / "run"))
    assert again.skipped == ("teacher", "student")
    assert again.facts["teacher"]["teachers"][0]["losses"] == {"cosine": 0.5}


def test_the_result_says_what_it_was_made_of(tiny: Path, load: Load, tmp_path: Path) -> None:
    source, test = parallel("p", 0, 10), parallel("t", 50, 60)
    options = quick(tmp_path / "run", leakage="refuse", seed=3, mlm_epochs=1.0, mlm_changes={"max_steps": 1})
    distill(tiny, Teacher(tiny, prompt="글: "), source, test=test, options=options)
    facts = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    fingerprint = load().fingerprint
    assert facts["begins"]["fingerprint"] == fingerprint
    (teacher,) = facts["teacher"]["teachers"]
    assert (teacher["fingerprint"], teacher["prompt"]) == (fingerprint, "글: ")
    assert facts["sources"][0]["data"] == data_hash(source)
    assert facts["sets"] == [{"part": "test", "name": "t", "rows": 10, "data": data_hash(test)}]
    chosen = facts["options"]
    assert (chosen["leakage"], chosen["seed"], chosen["mlm_epochs"], chosen["storage"]) == ("refuse", 3, 1.0, "float32")
    assert chosen["mlm_changes"] == {"max_steps": 1}


def test_texts_that_were_cut_are_counted_whoever_encoded_them(tiny: Path, tmp_path: Path) -> None:
    long = Examples(
        "l", "plain", {"text": [f"{'책을 읽는다 ' * 60}{number}" for number in range(5)] + ["짧다", "short"]}
    )
    told = []
    for name in ("a", "b"):
        result = distill(tiny, tiny, long, options=quick(tmp_path / name, cache=tmp_path / "cache"))
        (teacher,) = result.facts["teacher"]["teachers"]
        told.append((teacher["truncated"], teacher["max_length"]))
        assert any("5 texts were longer than the teacher reads (64 tokens)" in note for note in result.notes)
    assert told == [(5, 64)] * 2


def test_pairs_that_were_cut_are_counted_in_blocks_that_were_there_too(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "PAIRS", 4)
    model = CrossEncoder.load(reranker(tiny, tmp_path), device="cpu", dtype="float32")
    pairs = [(f"질문 {number}", "책을 읽는다 " * (60 if number % 2 else 1)) for number in range(10)]
    path = tmp_path / "pairs.npy"
    whole, cut = targets._score(tmp_path / "whole.npy", pairs, model, progress=False)
    assert cut == 5

    def interrupt(done: int, total: int | None) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        targets._score(path, pairs, model, progress=interrupt)
    for _ in range(2):  # after two blocks, and after all
        again, cut = targets._score(path, pairs, model, progress=False)
        assert cut == 5
        np.testing.assert_array_equal(again, whole)


def test_rows_without_enough_negatives_are_told_of(tiny: Path, load: Load, tmp_path: Path) -> None:
    source = parallel("p", 0, 20)
    vectors = load().encode(source.columns["anchor"]), load().encode(source.columns["positive"])
    second = np.sort(similarity(*vectors, "cosine"), axis=1)[:, 1]  # of every anchor, the second lowest
    corpus = source.columns["positive"]
    mining = NegativeMining(corpus, 2, relative_margin=None, max_score=float(np.median(second)))
    result = distill(tiny, reranker(tiny, tmp_path), source, options=quick(tmp_path / "run", negatives=mining))
    used = result.facts["negatives"]["sources"]["p"]["used"]
    assert 0 < used < 20, "of this model some rows have enough, and some not"
    (one,) = result.facts["sources"]
    assert (one["rows"], one["rows an epoch"]) == (20, used)
    assert any(f"{20 - used} of 20 rows" in note for note in result.notes)
    saved = (tmp_path / "run" / "2-negatives" / "stage.json").read_text(encoding="utf-8")
    assert source.columns["positive"][0] not in saved, "a corpus may be large: its hash is what counts"


def test_negatives_that_were_edited_by_hand(tiny: Path, tmp_path: Path) -> None:
    teacher, source = reranker(tiny, tmp_path), parallel("p", 0, 12)
    mining = NegativeMining(negatives_per_row=1, relative_margin=None)
    options = quick(tmp_path / "run", negatives=mining)
    distill(tiny, teacher, source, options=options)
    file = tmp_path / "run" / "2-negatives" / "pairs-1.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    other = {**json.loads(lines[0]), "negative": "전혀 다른 글"}
    file.write_text("\n".join([json.dumps(other, ensure_ascii=False), *lines[1:6]]) + "\n\n", encoding="utf-8")
    again = distill(tiny, teacher, source, options=options)
    assert again.skipped == ("student", "negatives")
    assert np.load(tmp_path / "run" / "3-teacher" / "scores-1.npy").shape == (6, 2)
    for wrong in ("not json", '["a", "b"]', '{"anchor": "하나"}'):
        file.write_text("\n".join([lines[0], wrong]) + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=r"pairs-1\.jsonl, line 2: expected"):
            distill(tiny, teacher, source, options=options)


def test_a_run_that_lost_the_config_of_its_training(tiny: Path, tmp_path: Path) -> None:
    first = distill(tiny, tiny, scored_texts(), options=quick(tmp_path / "run"))
    (tmp_path / "run" / "3-distill" / "config.json").unlink()
    again = distill(tiny, tiny, scored_texts(), options=quick(tmp_path / "run"))
    assert again.skipped[:2] == ("teacher", "student")
    assert again.model.fingerprint == first.model.fingerprint


def scored_texts() -> Examples:
    return Examples("texts", "plain", {"text": list(scored("s", 10).texts())})
