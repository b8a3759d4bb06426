"""Exported folders: what others read from them, what is checked, and what a failure leaves behind."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import munjang
from munjang.checkpoint import read_word_vectors
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError, MissingExtraError, ModelError
from munjang.exporting import DTYPES, ExportOptions, checking, export, usage, writing
from munjang.exporting.checking import PAIRS, SENTENCES
from munjang.nn.heads import Dense, Normalize
from support.small_models import TEXTS, bi_encoder, cross_encoder

_PAIRS = [(a, b) for a in TEXTS[:4] for b in TEXTS[3:]]


@pytest.fixture(autouse=True)
def warnings_are_expected() -> Any:
    """Every text here that is long is cut."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", munjang.errors.TruncationWarning)
        yield


def _theirs(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.float().encode(TEXTS, show_progress_bar=False))


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-5), ("float16", 0.02)])
def test_sentence_transformers_reads_it(dtype: Any, near: float, tmp_path: Path) -> None:
    model = bi_encoder("bert", None, Dense(32, 24), Normalize())
    exported = export(model, tmp_path / "m", ExportOptions(dtype=dtype))
    assert (exported.kind, exported.format, exported.dtype) == ("bi-encoder", "sentence-transformers", dtype)
    np.testing.assert_allclose(_theirs(tmp_path / "m"), model.encode(TEXTS), atol=near)
    assert exported.files["model.safetensors"] == (tmp_path / "m" / "model.safetensors").stat().st_size
    assert exported.lowest_cosine is not None
    assert exported.lowest_cosine > 1 - near
    assert "# m\n" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", ["bert", "roberta", "mpnet"])
def test_the_folder_of_an_onnx_export_is_an_ordinary_one(case: str, tmp_path: Path) -> None:
    model = bi_encoder(case, None, Normalize())
    exported = export(model, tmp_path / "m", ExportOptions("onnx"))
    np.testing.assert_allclose(_theirs(tmp_path / "m"), model.encode(TEXTS), atol=1e-5)
    np.testing.assert_allclose(munjang.load(tmp_path / "m", dtype="float32").encode(TEXTS), model.encode(TEXTS))
    names = ["input_ids", "attention_mask", *["token_type_ids"] * (case == "bert")]
    assert list(exported.inputs) == names
    assert json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())["model_input_names"] == names
    assert [check.file for check in exported.checks] == ["model.safetensors", "onnx/model.onnx"]
    assert exported.checks[1].reader.startswith("onnxruntime ")
    assert exported.unchecked == ()
    assert exported.largest_difference is not None
    assert exported.largest_difference < 1e-5
    assert sorted(exported.files) == sorted(
        path.relative_to(tmp_path / "m").as_posix() for path in (tmp_path / "m").rglob("*") if path.is_file()
    )


def test_transformers_makes_the_inputs_of_the_graph(tmp_path: Path) -> None:
    """What its tokenizer gives goes into the graph as it is."""
    import onnxruntime
    from transformers import AutoTokenizer

    model = bi_encoder("bert")
    export(model, tmp_path / "m", ExportOptions("onnx"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m", local_files_only=True)
    feed = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="np")
    session = onnxruntime.InferenceSession(str(tmp_path / "m" / "onnx" / "model.onnx"))
    found = session.run(["sentence_embedding"], {key: value.astype(np.int64) for key, value in feed.items()})[0]
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("labels", [1, 3])
def test_a_cross_encoder(labels: int, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    model = cross_encoder("bert", labels)
    exported = export(model, tmp_path / "m", ExportOptions("onnx"))
    assert (exported.kind, exported.lowest_cosine, exported.outputs) == ("cross-encoder", None, ("logits",))
    assert [check.texts for check in exported.checks] == [len(PAIRS)] * 2
    theirs = Theirs(str(tmp_path / "m"), device="cpu", local_files_only=True)
    scores = theirs.predict([list(pair) for pair in _PAIRS], show_progress_bar=False)
    np.testing.assert_allclose(scores, model.predict(_PAIRS, raw=labels > 1), atol=1e-5)


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity", "Tanh"])
def test_scores_are_compared_after_the_activation(activation: Any, tmp_path: Path) -> None:
    model = cross_encoder("roberta", 1)
    model.parts.activation = activation
    with torch.no_grad():
        model.parts.head.out.weight.mul_(4)
    exported = export(model, tmp_path / "m", ExportOptions("onnx", "float16"))
    largest = float(np.abs(model.predict(PAIRS)).max())
    assert (largest > 1) == (activation == "Identity")
    for check in exported.checks:
        assert check.limit == pytest.approx(0.02 * max(1.0, largest), rel=1e-4)
        assert check.largest_difference <= check.limit


def test_compact(tmp_path: Path) -> None:
    for model in (bi_encoder("bert"), cross_encoder("bert")):
        exported = export(model, tmp_path / "m", ExportOptions("munjang", overwrite=True))
        assert exported.dtype == "int8"
        assert "model.int8.safetensors" in exported.files
        assert exported.checks[0].file == "model.int8.safetensors"
        assert exported.largest_difference is not None
        assert 0 < exported.largest_difference < exported.checks[0].limit


def test_int8_onnx_keeps_the_weights_of_a_compact_model(tmp_path: Path) -> None:
    """What was int8 once is the same int8 again: the graph loses nothing more."""
    import onnx
    import safetensors.torch

    export(bi_encoder("bert"), tmp_path / "a", ExportOptions("munjang"))
    saved = safetensors.torch.load_file(tmp_path / "a" / "model.int8.safetensors")
    export(munjang.load(tmp_path / "a"), tmp_path / "b", ExportOptions("onnx", "int8"))
    graph = onnx.load(str(tmp_path / "b" / "onnx" / "model.onnx")).graph
    arrays = {weight.name: onnx.numpy_helper.to_array(weight) for weight in graph.initializer}
    for ours, theirs in (
        ("layers.0.mlp.up.weight", "encoder.layer.0.intermediate.dense.weight"),
        ("layers.2.attention.key.weight", "encoder.layer.2.attention.self.key.weight"),
    ):
        np.testing.assert_array_equal(arrays[ours].T, saved[theirs].numpy())
        np.testing.assert_array_equal(arrays[f"{ours}.scale"], saved[f"{theirs}.scale"].numpy())


@pytest.mark.parametrize("dtype", DTYPES["onnx"])
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_the_snippet_runs(kind: str, dtype: Any, tmp_path: Path) -> None:
    model: BiEncoder | CrossEncoder
    model = bi_encoder("electra", None, Normalize()) if kind == "bi" else cross_encoder("electra")
    exported = export(model, tmp_path / "m", ExportOptions("onnx", dtype))
    code = usage(exported, model)
    found: dict[str, Any] = {}
    exec(code, found)
    near = {"float32": 1e-5, "float16": 0.01, "int8": 0.2}[dtype]
    if isinstance(model, BiEncoder):
        np.testing.assert_allclose(found["vectors"], model.encode(["비가 온다", "It is raining"]), atol=near)
    else:
        expected = model.predict([("비가 온다", "It is raining"), ("비가 온다", "빵을 굽는다")])
        np.testing.assert_allclose(found["scores"][:, 0], expected, atol=near)
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert code.replace(str(tmp_path) + "/", "") in card


def test_the_snippet_puts_the_default_prompt_before_texts(tmp_path: Path) -> None:
    model = bi_encoder("bert", None, Normalize())
    model.parts.prompts, model.parts.default_prompt_name = {"query": "비 "}, "query"
    exported = export(model, tmp_path / "m", ExportOptions("onnx"))
    found: dict[str, Any] = {}
    exec(usage(exported, model), found)
    np.testing.assert_allclose(found["vectors"], model.encode(["비가 온다", "It is raining"]), atol=1e-5)


@pytest.mark.parametrize("options", [ExportOptions(), ExportOptions("munjang")])
def test_snippets_of_the_other_formats_run(options: ExportOptions, tmp_path: Path) -> None:
    for model in (bi_encoder("bert"), cross_encoder("bert")):
        exported = export(model, tmp_path / "m", replace(options, overwrite=True))
        found: dict[str, Any] = {}
        exec(usage(exported, model), found)
        result = found["vectors"] if isinstance(model, BiEncoder) else found["scores"]
        assert len(result) == 2


def test_dimension_and_length_of_the_model_as_it_is(tmp_path: Path) -> None:
    """Settings that were changed after loading go with it; the model itself stays as it was."""
    model = bi_encoder("bert")
    model.truncate_dim, model.max_length = 9, 12
    exported = export(model, tmp_path / "m", ExportOptions("onnx"))
    assert exported.checks[1].largest_difference < 1e-5
    again = munjang.load(tmp_path / "m", dtype="float32")
    assert (again.dimension, again.max_length) == (9, 12)
    assert model.parts.truncate_dim is None


@pytest.mark.parametrize("format", ["onnx", "sentence-transformers"])
def test_a_failed_check_leaves_nothing(format: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bi_encoder("bert")
    export(model, tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()}
    if format == "onnx":
        real = writing.bi_encoder_graph

        def wrong(parts: Any, dtype: Any) -> Any:
            graph = real(parts, dtype)
            graph.arrays["layers.1.mlp.down.weight"] = graph.arrays["layers.1.mlp.down.weight"] * 1.1
            return graph

        monkeypatch.setattr(writing, "bi_encoder_graph", wrong)
    else:
        real_read = checking.read_bi

        def damaged(folder: Path) -> Any:
            parts = real_read(folder)
            with torch.no_grad():
                parts.body.layers[1].mlp.down.bias.fill_(float("nan"))  # type: ignore[union-attr, index]
            return parts

        monkeypatch.setattr(checking, "read_bi", damaged)
    for name in ("new", "old"):
        with pytest.raises(ModelError, match=r"not finite|too far from the model"):
            export(model, tmp_path / name, ExportOptions(format, overwrite=True))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()} == before


def test_without_onnxruntime_the_graph_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    exported = export(bi_encoder("bert"), tmp_path / "m", ExportOptions("onnx"))
    assert [check.file for check in exported.checks] == ["model.safetensors"]
    assert "onnxruntime is not installed" in exported.unchecked[0]


def test_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[onnx\]"):
        export(bi_encoder("bert"), tmp_path / "m", ExportOptions("onnx"))
    assert list(tmp_path.iterdir()) == []
    export(bi_encoder("bert"), tmp_path / "m")  # needs none


def test_models_without_a_graph(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("비 1 2 3\nrain 2 3 4\n빵 3 1 0\n", encoding="utf-8")
    static = BiEncoder(read_word_vectors(tmp_path / "words.txt"))
    with pytest.raises(ModelError, match=r"static model cannot be exported to ONNX.*bert, roberta.*modernbert"):
        export(static, tmp_path / "m", ExportOptions("onnx"))
    assert not (tmp_path / "m").exists()
    assert export(static, tmp_path / "m").checks[0].largest_difference < 1e-6
    assert export(static, tmp_path / "m", ExportOptions(dtype="float16", overwrite=True)).dtype == "float16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tflite",), "format must be one of sentence-transformers, onnx, munjang, got 'tflite'"),
        (("onnx", "int4"), "dtype must be one of float32, float16, int8, got 'int4'"),
        (("sentence-transformers", "int8"), "takes dtype float32 or float16, got int8"),
        (("munjang", "float16"), "takes dtype int8, got float16"),
    ],
)
def test_options_that_are_refused(arguments: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ExportOptions(*arguments)


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    model = bi_encoder("bert")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "메모.txt").write_text("내 것", encoding="utf-8")
    with pytest.raises(InputError, match="not empty"):
        export(model, tmp_path / "notes")
    with pytest.raises(InputError, match="is not a model"):
        export(model, tmp_path / "notes", ExportOptions(overwrite=True))
    with pytest.raises(InputError, match="is a file"):
        export(model, tmp_path / "notes" / "메모.txt")
    assert (tmp_path / "notes" / "메모.txt").read_text(encoding="utf-8") == "내 것"
    (tmp_path / "empty").mkdir()
    assert export(model, tmp_path / "empty", ExportOptions(card="# 내 카드\n")).folder == tmp_path / "empty"
    assert (tmp_path / "empty" / "README.md").read_text(encoding="utf-8") == "# 내 카드\n"


def test_an_export_over_another_leaves_no_old_graph(tmp_path: Path) -> None:
    model = bi_encoder("bert")
    export(model, tmp_path / "m", ExportOptions("onnx"))
    exported = export(model, tmp_path / "m", ExportOptions("munjang", overwrite=True))
    found = {path.relative_to(tmp_path / "m").as_posix() for path in (tmp_path / "m").rglob("*") if path.is_file()}
    assert found == set(exported.files)
    assert not any("onnx" in name or name == "model.safetensors" for name in found)


def test_the_sentences_of_the_check_differ_in_length() -> None:
    lengths = bi_encoder("bert", max_length=64).tokenizer.encode(list(SENTENCES)).lengths
    assert (len(set(lengths.tolist())) > 6, int(lengths.max())) == (True, 64)
    assert any("가" <= character <= "힣" for character in "".join(SENTENCES))


def test_the_real_model(minilm_path: Path, tmp_path: Path) -> None:
    model = munjang.load(minilm_path, device="cpu", dtype="float32")
    exported = export(model, tmp_path / "m", ExportOptions("onnx", "int8"))
    assert exported.files["onnx/model.onnx"] < 24_000_000
    assert exported.lowest_cosine is not None
    assert 0.95 < exported.lowest_cosine < 0.9999
