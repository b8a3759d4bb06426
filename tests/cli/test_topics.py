"""The command `munjang topics`."""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path

import pytest

import munjang
from munjang.cli import topics as command
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError

SAMPLE = Path(__file__).parents[2] / "docs" / "samples" / "themes.csv"


@pytest.fixture(scope="module")
def minilm(minilm_path: Path) -> munjang.BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


@pytest.fixture(autouse=True)
def _loads(monkeypatch: pytest.MonkeyPatch, minilm: munjang.BiEncoder) -> None:
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", lambda name=None, **options: minilm)


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["topics", *words])
    args.run(args, Reporter(io.StringIO(), quiet=True))


def test_a_table_a_tree_and_periods(capsys: pytest.CaptureFixture[str]) -> None:
    run(str(SAMPLE), "--column", "text", "-k", "6", "--tree", "--dates", "date", "--bins", "4")
    table, tree, timeline = capsys.readouterr().out.rstrip().split("\n\n")
    rows = table.splitlines()
    assert len(rows) == 7
    assert "rain" in table
    assert tree.count("─ ") == 10  # six topics and five merges, of which one is the top
    assert len(timeline.splitlines()) == 5
    assert sum(int(count) for line in timeline.splitlines()[1:] for count in line.split()[1:]) == 84
    assert timeline.splitlines()[1].startswith("2024-01-0")


def test_a_folder_and_new_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "topics"
    run(str(SAMPLE), "--column", "text", "-k", "6", "--dates", "date", "--bins", "month", "-o", str(folder))
    with open(folder / "documents.csv", encoding="utf-8-sig", newline="") as file:
        documents = list(csv.DictReader(file))
    with open(folder / "timeline.csv", encoding="utf-8-sig", newline="") as file:
        assert sum(int(row["texts"]) for row in csv.DictReader(file)) == 84
    assert len(documents) == 84
    (tmp_path / "new.txt").write_text("Heavy rain and strong wind tonight\nThe bank raised rates\n", encoding="utf-8")
    capsys.readouterr()
    run(str(tmp_path / "new.txt"), "--use", str(folder))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "rain" in lines[1].split("Heavy")[0]
    run(str(tmp_path / "new.txt"), "--use", str(folder), "-o", str(tmp_path / "new.jsonl"))
    records = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text(encoding="utf-8").splitlines()]
    same = next(row for row in documents if row["text"].startswith("Heavy rain and strong wind"))
    assert records[0]["topic"] == int(same["topic"])
    with pytest.raises(DataError, match="--overwrite"):
        run(str(SAMPLE), "--column", "text", "-k", "6", "-o", str(folder))
    run(str(SAMPLE), "--column", "text", "-k", "5", "-o", str(folder), "--overwrite")
    assert len(json.loads((folder / "topics.json").read_text(encoding="utf-8"))["topics"]) == 5


def test_a_table_of_documents(tmp_path: Path) -> None:
    run(str(SAMPLE), "--column", "text", "--method", "hdbscan", "--min-size", "4", "-o", str(tmp_path / "out.csv"))
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 84
    assert {row["name"] == "" for row in rows if row["topic"] == "-1"} <= {True}


def test_errors_come_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("하나\n", encoding="utf-8")
    with pytest.raises(InputError, match="at least 2 texts"):
        run(str(tmp_path / "one.txt"))
    (tmp_path / "bad.csv").write_text("text,day\na,2024-01-01\nb,soon\n", encoding="utf-8")
    with pytest.raises(InputError, match="date 1 must be like"):
        run(str(tmp_path / "bad.csv"), "--column", "text", "--dates", "day")


@pytest.mark.parametrize("words", [["--use", "x", "-k", "3"], ["--use", "x", "-o", "folder"], ["--bins", "week"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        run("texts.txt", *words)
