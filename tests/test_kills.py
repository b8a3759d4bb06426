"""Kill -9 at any step of every call that writes something durable: one test per output, through the public door."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from safetensors.numpy import load_file, save_file

import munjang
from munjang.errors import ModelError
from recipes.material import sentences, tiny_model
from support import kill_work
from support.kills import KillServer, killed_anywhere, killed_until_done

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9")
ABSENT = "absent"
TEXTS = ["a man reads a book at home.", "집에서 국수를 먹는다"]


@pytest.fixture(scope="module")
def server() -> Iterator[KillServer]:
    with KillServer() as server:
        yield server


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tiny`, `other` (the same with other weights) and `cross`."""
    folder = tmp_path_factory.mktemp("models")
    tiny = tiny_model(folder)
    shutil.copytree(tiny, folder / "other")
    weights = {name: 3 * tensor for name, tensor in load_file(tiny / "model.safetensors").items()}
    save_file(weights, folder / "other" / "model.safetensors", metadata={"format": "pt"})
    for name, seed in (("cross", 3), ("other-cross", 4)):
        model = kill_work.load(str(folder / "other"))
        munjang.CrossEncoder.from_body(model, 1, seed=seed, device="cpu", dtype="float32").save(folder / name)
    return folder


@pytest.fixture
def before(models: Path, tmp_path: Path) -> Path:
    """The folder that a call works in: links to the models, and what the test adds."""
    folder = tmp_path / "before"
    folder.mkdir()
    for entry in models.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def vectors(folder: Path) -> Any:
    """What a saved model makes of two texts; ABSENT where there is none."""
    try:
        return kill_work.load(str(folder)).encode(TEXTS).round(4).tolist()
    except ModelError:
        assert not folder.exists()
        return ABSENT


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ABSENT


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["save_model", "save_compact_model", "export_model", "export_onnx"])
@pytest.mark.parametrize("replaced", [True, False])
def test_a_saved_model(server: KillServer, before: Path, call: str, replaced: bool) -> None:
    if replaced:
        kill_work.load(str(before / "tiny")).save(before / "model")
    killed_anywhere(server, call, before, lambda folder: vectors(folder / "model"), count=8 if replaced else 4)


def test_a_saved_cross_encoder(server: KillServer, before: Path) -> None:
    def scores(folder: Path) -> Any:
        model = munjang.load_cross_encoder(str(folder / "model"), device="cpu", dtype="float32")
        return model.predict([(TEXTS[0], TEXTS[1])]).round(4).tolist()

    munjang.load_cross_encoder(str(before / "other-cross"), device="cpu").save(before / "model")
    killed_anywhere(server, "save_cross_encoder", before, scores)


def test_a_saved_classifier(server: KillServer, before: Path) -> None:
    def labels(folder: Path) -> Any:
        return munjang.Classifier.load(folder / "classes", device="cpu").labels

    munjang.Classifier.zero_shot(["a man", "집에서"], kill_work.load(str(before / "tiny"))).save(before / "classes")
    killed_anywhere(server, "save_classifier", before, labels)


def test_a_saved_recommender(server: KillServer, before: Path) -> None:
    def items(folder: Path) -> Any:
        recommender = munjang.Recommender.load(folder / "items", device="cpu")
        return [[one.id, round(one.score, 4)] for one in recommender.like_text(TEXTS[0], 5)]

    model = kill_work.load(str(before / "tiny"))
    munjang.Recommender.build(kill_work.documents(20, 40, 2020), model, chunk_tokens=32, stride=16).save(
        before / "items"
    )
    killed_anywhere(server, "save_recommender", before, items)


# --- index -----------------------------------------------------------------------------------------------------------


# With keywords every process loads the morphological analyser, which takes a second or two.
KEYWORDS = [pytest.param(False, id="vectors"), pytest.param(True, id="keywords", marks=pytest.mark.slow)]


@pytest.fixture(params=KEYWORDS)
def index(before: Path, request: pytest.FixtureRequest) -> Path:
    options = munjang.IndexOptions(keyword=request.param)
    with munjang.Index.create(before / "index", kill_work.load(str(before / "tiny")), options=options) as index:
        index.add(kill_work.documents(0, 10, 2020))
        index.delete(["9"])
    return before


def documents(folder: Path) -> Any:
    """The documents of an index that passes its own check and finds each of them."""
    if not folder.exists():
        return ABSENT
    with munjang.Index.open(folder, kill_work.load(str(folder.parent / "tiny"))) as index:
        report = index.verify()
        assert report.ok, report.problems
        stored = {document.id: (document.text, dict(document.metadata)) for document in index.documents()}
        assert {hit.id for hit in index.search(TEXTS[0], 100)} == stored.keys()
        if index.options.keyword:
            assert {hit.id for hit in index.search(TEXTS[0], 100, mode="keyword")} <= stored.keys()
        return stored


@pytest.mark.parametrize("call", ["add_documents", "delete_documents", "compact_index"])
def test_a_changed_index(server: KillServer, index: Path, call: str, request: pytest.FixtureRequest) -> None:
    count = 12 if "vectors" in request.node.name else 4
    killed_anywhere(server, call, index, lambda folder: documents(folder / "index"), count=count)


def test_a_reencoded_index(server: KillServer, index: Path, request: pytest.FixtureRequest) -> None:
    """Old or new, the index is whole and searched with one model."""

    def found(folder: Path) -> Any:
        for name in ("tiny", "other"):
            with (
                contextlib.suppress(ModelError),
                munjang.Index.open(folder / "index", kill_work.load(str(folder / name))) as opened,
            ):
                report = opened.verify()
                assert report.ok, report.problems
                hits = opened.search(TEXTS[0], 100, mode="semantic")
                return name, sorted((hit.id, round(hit.score, 4)) for hit in hits)
        raise AssertionError("made by neither model")

    count = 14 if "vectors" in request.node.name else 4
    killed_anywhere(server, "reencode_index", index, found, count=count)


@pytest.mark.parametrize("index", [False], indirect=True)
def test_an_exported_index(server: KillServer, index: Path) -> None:
    def exported(folder: Path) -> Any:
        path = folder / "index.parquet"
        return pyarrow.parquet.read_table(path).to_pylist() if path.exists() else ABSENT

    killed_anywhere(server, "export_index", index, exported, count=6)


@pytest.mark.parametrize("index", [False], indirect=True)
def test_a_copied_index(server: KillServer, index: Path) -> None:
    """A broken copy is not promised to open; the same command completes it, and the source is untouched."""
    source = documents(index / "index")
    killed_until_done(server, "copy_index", index, lambda folder: documents(folder / "copy"))
    assert documents(index.with_name("killed") / "index") == source
    assert documents(index.with_name("killed") / "copy") == source


# --- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "jsonl", "parquet"])
def test_encoded_vectors(server: KillServer, before: Path, suffix: str) -> None:
    killed_until_done(server, f"encode_{suffix}", before, lambda folder: file_hash(folder / f"vectors.{suffix}"))
    assert not list(before.with_name("killed").glob(f"vectors.{suffix}.*")), "something was left beside the file"


@pytest.mark.parametrize("suffix", ["npy", "jsonl", "parquet"])
def test_encoding_resumes(server: KillServer, before: Path, suffix: str) -> None:
    """Rows that were written before the kill are not encoded again."""
    steps = server.run(f"encode_{suffix}", Path(shutil.copytree(before, before.with_name("whole"), symlinks=True)))
    assert server.run(f"encode_{suffix}", before, kill_at=steps // 2) == 0
    model = kill_work.load(str(before / "tiny"))
    assert 0 < model.encode_to(kill_work.MANY_TEXTS, before / f"vectors.{suffix}").skipped < len(kill_work.MANY_TEXTS)


# --- training and recipes --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::munjang.errors.MunjangWarning")
@pytest.mark.parametrize("call", ["train", "augment", "distill_vectors", "distill_scores"])
def test_a_recipe(server: KillServer, before: Path, call: str) -> None:
    def outcome(folder: Path) -> Any:
        silver = [file_hash(path) for path in sorted(folder.rglob("silver.tsv"))]
        return vectors(folder / "run" / "model"), silver

    killed_until_done(server, call, before, outcome)


# --- files of commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("cluster", "keywords", "topics") else name
        for name in kill_work.OUTPUTS
    ],
)
def test_the_output_of_a_command(server: KillServer, before: Path, name: str) -> None:
    (before / "texts.txt").write_text("\n".join(kill_work.TEXTS[:40]), encoding="utf-8")
    for file, columns in (
        ("pairs.csv", ("sentence1", "sentence2")),
        ("triplets.csv", ("anchor", "positive", "negative")),
    ):
        rows = zip(*(sentences(12, seed) for seed, _ in enumerate(columns)), strict=True)
        with open(before / file, "w", encoding="utf-8", newline="") as opened:
            csv.writer(opened).writerows([columns, *rows])

    def written(folder: Path) -> Any:
        path = folder / kill_work.OUTPUTS[name]
        if name != "evaluate" or not path.exists():
            return file_hash(path)
        return without_times(json.loads(path.read_text(encoding="utf-8")))

    killed_anywhere(server, f"write_{name}", before, written, count=4)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if "second" not in key and "path" not in key}
    return [without_times(entry) for entry in value] if isinstance(value, list) else value
