"""The models in the package: found by name, without a network, before folders of that name; said where they lack."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import munjang
from munjang import BiEncoder, CrossEncoder, Threshold, bundled, checkpoint
from munjang.checkpoint import read_bi, read_cross
from munjang.cli import main
from munjang.errors import InputError, ModelError, ModelNotFoundError
from training.material import sentences, tiny_parts

TEXTS = sentences(3)  # Korean and English words that the tiny models know


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation whose models are two tiny ones."""
    folder = tmp_path / "site-packages"
    monkeypatch.setattr(bundled, "_FOLDER", folder)
    for name in ("MUNJANG_MODEL", "MUNJANG_RERANKER"):
        monkeypatch.delenv(name, raising=False)
    bi = BiEncoder(tiny_parts(), device="cpu", dtype="float32")
    bi = bi.with_thresholds({"paraphrase": Threshold(0.8, "paraphrase", "the same", {"F1": 0.9})})
    bi.save(folder / "ko-en", dtype="int8")
    cross = CrossEncoder.from_body(tiny_parts(), 1, device="cpu", dtype="float32")
    cross.with_thresholds({"answer": Threshold(0.5, "answer", "answers")}).save(folder / "rerank-ko-en", dtype="int8")
    return folder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_the_names() -> None:
    assert bundled.NAMES == ("munjang-ko-en", "munjang-rerank-ko-en")
    with pytest.raises(InputError, match="one of munjang-ko-en, munjang-rerank-ko-en, got 'minilm'"):
        bundled.path("minilm")


def test_load_without_an_argument(place: Path, no_network: None) -> None:
    model = munjang.load()
    assert model.encode(TEXTS).shape == (3, 16)
    assert model.parts.source == "munjang-ko-en"
    assert model.thresholds["paraphrase"].value == 0.8
    named = munjang.load("munjang-ko-en", device="cpu", dtype="float32", local_files_only=True)
    exact = BiEncoder(read_bi(place / "ko-en"), device="cpu", dtype="float32")
    np.testing.assert_array_equal(named.encode(TEXTS), exact.encode(TEXTS))


def test_rerankers(place: Path, no_network: None) -> None:
    for model in (
        munjang.load_reranker(),
        munjang.load_reranker("munjang-rerank-ko-en"),
        munjang.load_cross_encoder("munjang-rerank-ko-en"),
    ):
        assert [one.text for one in model.rank(TEXTS[1], TEXTS[1:])]
        assert (model.parts.source, model.thresholds["answer"].value) == ("munjang-rerank-ko-en", 0.5)


def test_one_is_not_taken_for_the_other(place: Path) -> None:
    with pytest.raises(InputError, match=r"is a cross-encoder.*munjang\.load_reranker"):
        munjang.load("munjang-rerank-ko-en")
    with pytest.raises(InputError, match=r"is a bi-encoder.*munjang\.load loads it"):
        munjang.load_reranker("munjang-ko-en")
    with pytest.raises(InputError, match="has no revisions, got revision='main'"):
        munjang.load("munjang-ko-en", revision="main")


def test_the_name_wins_over_a_folder_and_a_path_means_the_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    BiEncoder(tiny_parts(24), device="cpu").save("munjang-ko-en")
    assert munjang.load("munjang-ko-en").dimension == 16
    assert munjang.load("./munjang-ko-en").dimension == 24
    assert munjang.load(Path("munjang-ko-en")).dimension == 24
    assert munjang.load(Path("munjang-ko-en")).parts.source == "munjang-ko-en"  # the path, as it was given
    assert checkpoint.resolve("munjang-ko-en") == place / "ko-en"


def test_an_installation_without_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None) -> None:
    monkeypatch.setattr(bundled, "_FOLDER", tmp_path)
    for load in (munjang.load, munjang.load_reranker, lambda: munjang.load_cross_encoder("munjang-rerank-ko-en")):
        with pytest.raises(ModelNotFoundError, match=r"lacks the files of its model munjang-.*install munjang"):
            load()


def test_recipes_take_the_names(place: Path, no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from munjang.recipes.config import model_given
    from munjang.recipes.models import bi_encoder
    from munjang.recipes.options import RecipeOptions

    monkeypatch.chdir(tmp_path)
    (tmp_path / "munjang-ko-en").mkdir()
    ready = bi_encoder("munjang-ko-en", RecipeOptions(device="cpu"))
    assert ready.model.thresholds
    assert model_given("munjang-ko-en", ready.model)["path"] == "munjang-ko-en"
    assert model_given(ready.model, ready.model)["path"] == "munjang-ko-en"


def test_new_heads_on_the_bundled_body(place: Path) -> None:
    parts = read_cross(checkpoint.resolve("munjang-ko-en"), labels=["no", "yes"])
    assert parts.labels == ("no", "yes")
    assert not parts.thresholds


# --- the command line ------------------------------------------------------------------------------------------------


def test_commands_take_the_bundled_models(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert main(["encode", str(tmp_path / "texts.txt"), "-o", str(tmp_path / "v.npy"), "--device", "cpu"]) == 0
    assert "model: munjang-ko-en (bundled)\n" in capsys.readouterr().err
    assert np.load(tmp_path / "v.npy").shape == (3, 16)
    assert main(["similarity", "--text", TEXTS[0], "--text", TEXTS[1], "--device", "cpu"]) == 0
    assert "model: munjang-ko-en (bundled)\n" in capsys.readouterr().err
    documents = ["score", "--query", TEXTS[1], "--documents", str(tmp_path / "texts.txt"), "--device", "cpu"]
    assert main(documents) == 0
    said = capsys.readouterr()
    assert "model: munjang-rerank-ko-en (bundled)\n" in said.err
    assert len(said.out.splitlines()) == 3
    pairs = "".join(f"{TEXTS[0]}\t{text}\t{score}\n" for text, score in zip(TEXTS, (1, 0, 0.5), strict=True))
    (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + pairs, encoding="utf-8")
    assert main(["evaluate", "--sts", str(tmp_path / "pairs.tsv"), "--device", "cpu", "--no-intervals"]) == 0
    assert "| munjang-ko-en |" in capsys.readouterr().out


def test_info_lists_them(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model by default"] == "munjang-ko-en"
    one, two = (found["bundled models"][name] for name in bundled.NAMES)
    assert (one["kind"], one["dimension"], one["thresholds"]) == ("bi-encoder", 16, {"paraphrase": "0.8: the same"})
    assert (two["kind"], two["labels"], two["thresholds"]) == ("cross-encoder", ["score"], {"answer": "0.5: answers"})
    assert one["size"].endswith(" MB")
    assert {"parquet", "hf", "onnx"} <= found["extras"].keys()
    assert main(["info"]) == 0
    assert "munjang-rerank-ko-en" in capsys.readouterr().out


def test_info_of_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in zip(bundled.NAMES, (None, "cross-encoder"), strict=True):
        assert main(["info", name, "--json", "--device", "cpu"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["source"], found.get("kind")) == (name, kind)
        assert "model.int8.safetensors" in found["files"]
        assert found["thresholds"]


def test_info_says_what_cannot_be_used(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "ko-en" / "config.json").unlink()
    weights = place / "rerank-ko-en" / "model.int8.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    assert main(["info", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["bundled models"]
    assert "lacks the files of its model munjang-ko-en" in found["munjang-ko-en"]
    assert "cut off or damaged" in found["munjang-rerank-ko-en"]
    assert main(["encode", "-", "--device", "cpu"]) == 1
    assert "lacks the files of its model munjang-ko-en" in capsys.readouterr().err


def test_the_name_costs_no_torch() -> None:
    code = "import munjang.bundled, sys; assert munjang.bundled.NAMES; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# --- the real ones ---------------------------------------------------------------------------------------------------


def _there(name: str) -> bool:
    try:
        return bool(bundled.path(name))
    except ModelError:
        return False


@pytest.mark.parametrize("name", bundled.NAMES)
def test_the_bundled_files_are_whole(name: str) -> None:
    if not _there(name):
        pytest.skip(f"{name} is not in this copy of the repository")
    folder = bundled.path(name)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 40e6
    if name == bundled.BI_ENCODER:
        vectors = munjang.load(device="cpu").encode(["안녕하세요", "Hello", "주가가 크게 올랐다"])
        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    else:
        best = munjang.load_reranker(device="cpu").rank("오늘 날씨", ["주가가 올랐다", "오늘은 비가 온다"])[0]
        assert best.index == 1
