"""`munjang recommend` with a tiny model: from a file, from a saved folder, with a cross-encoder, and wrong usage."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from munjang.cli import recommend
from munjang.cli.progress import Reporter
from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.tasks.recommend import Recommender
from training.material import bi, cross, sentences

Run = Callable[..., str]
SIZES = ["--chunk-tokens", "16", "--stride", "8"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    bi().save(folder / "bi")
    cross().save(folder / "cross")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], models: Path) -> Run:
    def call(*words: str) -> str:
        parser = argparse.ArgumentParser()
        recommend.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
        args = parser.parse_args(["recommend", *words])
        args.run(args, Reporter(sys.stderr, quiet=args.quiet))
        return capsys.readouterr().out

    return call


@pytest.fixture
def books(tmp_path: Path) -> Path:
    every = sentences(40, 3)
    rows = [{"id": f"책{i}", "text": ". ".join(every[4 * i : 4 * i + 4]), "title": f"제목 {i}"} for i in range(10)]
    path = tmp_path / "books.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def test_a_file_and_a_saved_folder_recommend_the_same(run: Run, books: Path, models: Path) -> None:
    here = ["--model", str(models / "bi"), "--device", "cpu", "--dtype", "float32", *SIZES]
    shelf, out = str(books.parent / "shelf"), str(books.parent / "out.jsonl")
    shown = run(str(books), "--keep", "title", "--like", "책3", "-k", "3", "--save", shelf, *here).splitlines()
    assert shown[0] == "책3"
    records = [json.loads(line) for line in books.read_text(encoding="utf-8").splitlines()]
    model = BiEncoder.load(models / "bi", device="cpu", dtype="float32")
    expected = Recommender.build(records, model, chunk_tokens=16, stride=8).like("책3", 3)
    assert [line.split()[2] for line in shown[1:]] == [hit.id for hit in expected]
    assert [float(line.split()[1]) for line in shown[1:]] == pytest.approx([hit.score for hit in expected], abs=1e-3)
    assert all(f"제목 {line.split()[2][1:]}" in line for line in shown[1:])
    assert run(shelf, "--like", "책3", "--text", "아이들이 잔다", "-k", "3", "-o", out) == ""
    first, second = (json.loads(line) for line in Path(out).read_text(encoding="utf-8").splitlines())
    assert [hit["id"] for hit in first["like"]] == [hit.id for hit in expected]
    assert first["like"][0]["metadata"] == {"title": f"제목 {first['like'][0]['id'][1:]}"}
    assert second["asked"] == "아이들이 잔다"
    with pytest.raises(DataError, match="--overwrite"):
        run(shelf, "--like", "책3", "-o", out)
    with pytest.raises(DataError, match="--overwrite"):
        run(str(books), "--save", shelf, *here)


def test_a_cross_encoder_and_csv(run: Run, books: Path, models: Path) -> None:
    out = books.parent / "out.csv"
    here = ["--model", str(models / "bi"), "--device", "cpu", "--dtype", "float32", *SIZES]
    rerank = ["--reranker", str(models / "cross"), "--shortlist", "6"]
    run(str(books), "--like", "책1", "-k", "4", "-o", str(out), *rerank, *here)
    with open(out, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4"]
    assert "책1" not in {row["id"] for row in rows}
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)


def test_lines_of_a_text_file_are_items(run: Run, tmp_path: Path, models: Path) -> None:
    (tmp_path / "a.txt").write_text("a man reads\n한 남자가 잔다\na man reads at home\n", encoding="utf-8")
    here = ["--model", str(models / "bi"), "--device", "cpu", *SIZES]
    shown = run(str(tmp_path / "a.txt"), "--like", "0", *here).splitlines()
    assert {line.split()[2] for line in shown[1:]} == {"1", "2"}
    with pytest.raises(InputError, match="no item '7'"):
        run(str(tmp_path / "a.txt"), "--like", "7", *here)


@pytest.mark.parametrize(
    "words", [["a.txt"], ["a.txt", "--like", "1", "-o", "o.txt"], ["a.txt", "--like", "1", "-k", "0"]]
)
def test_wrong_usage(run: Run, words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*words)
    assert left.value.code == 2
