"""`python -m models.ko_en_0_1 models`: models in, results and a table out; wrong wishes are said first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from making.sets import public_sets
from models.ko_en_0_1.__main__ import main
from munjang.bi_encoder import BiEncoder
from munjang.cross_encoder import CrossEncoder
from recipes.material import tiny_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a tiny bi-encoder and a tiny reranker."""
    folder = tmp_path_factory.mktemp("place")
    public_sets(folder / "data")
    tiny_model(folder)
    bi = BiEncoder.load(folder / "tiny", device="cpu", dtype="float32")
    CrossEncoder.from_body(bi, 1, device="cpu", dtype="float32").save(folder / "rerank")
    return folder


def _arguments(place: Path, output: Path, *more: str) -> list[str]:
    start = ["models", "--data", str(place / "data"), "--output", str(output), "--device", "cpu"]
    return [*start, "--no-intervals", "--quick", "20", *more]


def test_models_a_reranker_and_training_text(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.json"
    sets = ["--only", "KorSTS test", "STSb test", "KorQuAD dev", "KorQuAD dev two-stage"]
    models = ["--model", str(place / "tiny"), "--name", "문장-tiny", "--reranker", str(place / "rerank")]
    (tmp_path / "own.txt").write_text("비가 온다.\nIt is raining.\n", encoding="utf-8")
    (tmp_path / "making.json").write_text(json.dumps({"data": [{"set": "korsts:train"}, {"set": "stsb:train"}]}))
    trained = ["--trained-on", "문장-tiny", str(tmp_path / "making.json"), str(tmp_path / "own.txt")]
    arguments = _arguments(place, output, *models, "--candidates", "10", *trained, *sets)
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "| Set | Metric | 문장-tiny | rerank |" in shown.out
    assert "| KorQuAD dev | recall@1 | 문장-tiny |" in shown.out
    saved = json.loads(output.read_text(encoding="utf-8"))["models"]
    by_name = {model["model"]: model for model in saved.values()}
    assert set(by_name) == {"문장-tiny", "rerank"}
    assert {"KorSTS test, unseen rows", "KorQuAD dev two-stage"} <= set(by_name["문장-tiny"]["sets"])
    assert by_name["문장-tiny"]["about"]["overlap"]["KorSTS test"]["normalised"] >= 3
    assert by_name["문장-tiny"]["about"]["trained on"] == ["korsts:train", "stsb:train", "own.txt"]
    assert str(tmp_path) not in output.read_text(encoding="utf-8")  # the file is for others
    assert set(by_name["rerank"]["sets"]) == {"KorSTS test", "STSb test"}
    assert main(arguments) == 0
    measured = sum(len(model["sets"]) for model in saved.values())
    assert capsys.readouterr().err.count("known from an earlier run") == measured
    assert json.loads(output.read_text(encoding="utf-8"))["models"].keys() == saved.keys()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--model", "a", "--model", "b", "--name", "x"], "got 2 models, 1 names"),
        (["--model", "a/m", "--model", "b/m"], "every model needs a name of its own"),
        (["--model", "a", "--bi", "a"], "--bi goes with --reranker"),
        (["--model", "a", "--reranker", "r", "--bi", "b"], "--bi must be the name of a --model (a), got 'b'"),
        (["--model", "a", "--trained-on", "b", "korsts:train"], "'b' with 1 sets"),
        (["--model", "a", "--trained-on", "a"], "'a' with 0 sets"),
    ],
)
def test_wrong_usage(
    more: list[str], words: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(_arguments(place, tmp_path / "r.json", *more))
    assert stop.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_training_text_that_is_not_there_shows_before_any_work(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["--model", str(place / "tiny"), "--model", str(place / "rerank")]
    arguments = _arguments(place, tmp_path / "r.json", *models, "--trained-on", "rerank", "kornli:train")
    assert main(arguments) == 1
    assert "KorNLI train: there is no kornli/" in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


def test_a_set_that_is_none_is_named(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _arguments(place, tmp_path / "r.json", "--model", str(place / "tiny"), "--only", "KorSTS", "STSb test")
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "there is no set 'KorSTS'; the sets are" in said
    assert "KorSTS test" in said


def test_a_bundled_reranker_is_not_the_one_that_searches(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("munjang.bundled._FOLDER", place)
    monkeypatch.setattr("munjang.bundled._FOLDERS", {"munjang-ko-en": "tiny", "munjang-rerank-ko-en": "rerank"})
    models = ["--model", "munjang-rerank-ko-en", "--model", "munjang-ko-en", "--reranker", "munjang-rerank-ko-en"]
    output = tmp_path / "results.json"
    assert main(_arguments(place, output, *models, "--candidates", "10", "--only", "KorQuAD dev two-stage")) == 0
    saved = json.loads(output.read_text(encoding="utf-8"))["models"].values()
    assert {model["model"]: list(model["sets"]) for model in saved}["munjang-ko-en"] == ["KorQuAD dev two-stage"]
    assert "| KorQuAD dev | recall@1 | munjang-ko-en |" in capsys.readouterr().out


def test_a_reranker_with_labels_is_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bi = BiEncoder.load(place / "tiny", device="cpu", dtype="float32")
    CrossEncoder.from_body(bi, ["no", "yes"], device="cpu", dtype="float32").save(tmp_path / "labels")
    models = ["--model", str(place / "tiny"), "--reranker", str(tmp_path / "labels")]
    assert main(_arguments(place, tmp_path / "r.json", *models)) == 1
    assert "a reranker gives one score" in capsys.readouterr().err
