"""`munjang export`: the arguments arrive, the output teaches, errors come before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

import munjang
from munjang import bundled
from munjang.cli import export as command
from munjang.cli import main
from munjang.exporting import ExportDType, ExportFormat
from support.small_models import bi_encoder, cross_encoder


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    bi_encoder("bert").save(tmp_path / "model")
    return tmp_path / "model"


def test_onnx(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "한글 폴더"
    assert main(["export", str(model), "-o", str(out), "--format", "onnx", "--dtype", "float16"]) == 0
    told = capsys.readouterr()
    assert f"{out}: bi-encoder, onnx, float16, " in told.out
    assert "onnx/model.onnx" in told.out
    assert "graph: input_ids, attention_mask, token_type_ids -> token_embeddings, sentence_embedding" in told.out
    assert "checked: onnx/model.onnx read by onnxruntime" in told.out
    assert "lowest cosine 0.99999" in told.out or "lowest cosine 1.000000" in told.out
    assert f"model: {model}" in told.err
    code = told.out[told.out.index("import numpy") :]
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["vectors"].shape == (2, 32)


def test_settings_arrive(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-length", "20", "--truncate-dim", "8", "--dtype", "float16", "-q", "--json"]
    assert main(["export", str(model), "-o", str(tmp_path / "out"), *options]) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert (result["kind"], result["format"], result["dtype"]) == ("bi-encoder", "sentence-transformers", "float16")
    assert result["checks"][0]["lowest_cosine"] > 0.999
    assert told.err == ""
    again = munjang.load(tmp_path / "out")
    assert (again.dimension, again.max_length) == (8, 20)


def test_bundled_models_by_default_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setattr(bundled, "_FOLDER", tmp_path / "package")
    bi_encoder("bert").save(tmp_path / "package" / "ko-en", dtype="int8")
    cross_encoder("bert").save(tmp_path / "package" / "rerank-ko-en", dtype="int8")
    assert main(["export", "-o", str(tmp_path / "a")]) == 0
    told = capsys.readouterr()
    assert "munjang-ko-en" in told.err
    assert "from sentence_transformers import SentenceTransformer" in told.out
    assert main(["export", "munjang-rerank-ko-en", "-o", str(tmp_path / "b"), "--format", "onnx"]) == 0
    told = capsys.readouterr()
    assert "cross-encoder, onnx, float32" in told.out
    assert "before the activation" in told.out
    assert main(["export", "munjang-rerank-ko-en", "-o", str(tmp_path / "c"), "--truncate-dim", "3"]) == 1
    assert "a cross-encoder makes none" in capsys.readouterr().err


def test_a_folder_is_replaced_only_when_asked(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["export", str(model), "-o", out]) == 0
    assert main(["export", "no-such/model", "-o", out]) == 1  # told before the model is looked for
    assert "--overwrite" in capsys.readouterr().err
    assert main(["export", str(model), "-o", out, "--format", "munjang", "--overwrite"]) == 0
    assert "munjang.load(" in capsys.readouterr().out
    assert (tmp_path / "out" / "model.int8.safetensors").is_file()


def test_wrong_usage(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(model), "-o", str(tmp_path / "out"), "--dtype", "int8"]) == 1
    assert "`onnx` and `munjang` have int8" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        main(["export", str(model)])
    assert "--output" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "munjang export -o ko-en-onnx --format onnx" in capsys.readouterr().out


def test_the_choices_are_those_of_the_library() -> None:
    assert get_args(ExportFormat) == command._FORMATS
    assert get_args(ExportDType) == command._DTYPES
