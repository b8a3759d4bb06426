"""The command `munjang keywords`."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path

import pytest

import munjang
from munjang.cli import keywords as command
from munjang.cli.progress import Reporter
from munjang.errors import DataError, DataWarning
from support import small_models

TEXT = "Solar panels turn sunlight into electricity. 태양광 패널은 햇빛을 전기로 바꾼다."


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> munjang.BiEncoder:
    model = small_models.bi_encoder()
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", lambda name=None, **options: model)
    return model


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["keywords", *words])
    args.run(args, Reporter(io.StringIO(), quiet=True))


def test_a_text_gives_a_list(capsys: pytest.CaptureFixture[str], model: munjang.BiEncoder) -> None:
    run("--text", TEXT, "--top", "3", "--diversity", "none")
    from munjang.tasks.keywords import keywords

    expected = keywords(TEXT, model, top=3, diversity=None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1].strip() for line in lines] == [keyword.text for keyword in expected]
    assert lines[0].startswith(f"{expected[0].score:.3f}")


def test_texts_of_a_file_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\n비와 바람\n", encoding="utf-8")
    with pytest.warns(DataWarning, match="1 empty"):
        run(str(tmp_path / "texts.txt"), "--top", "2")
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("0  Solar panels")
    assert "(no keywords)" in out
    assert "바람" in out


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text(f'id,본문\n1,"{TEXT}"\n', encoding="utf-8")
    for name in ("out.csv", "out.jsonl"):
        run(str(tmp_path / "texts.csv"), "--column", "본문", "-o", str(tmp_path / name), "--top", "2")
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    record = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert [row["keyword"] for row in rows] == [keyword["text"] for keyword in record["keywords"]]
    start, end = record["keywords"][0]["places"][0]
    assert TEXT[start:end] == record["keywords"][0]["text"]
    assert rows[0]["places"] == f"{start}-{end}"
    with pytest.raises(DataError, match="--overwrite"):
        run(str(tmp_path / "texts.csv"), "--column", "본문", "-o", str(tmp_path / "out.csv"))


def test_given_candidates_and_stdin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tags.txt").write_text("태양광\n\n축구\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode()), encoding="utf-8"))
    run("-", "--candidates", str(tmp_path / "tags.txt"), "--diversity", "max-sum")
    lines = capsys.readouterr().out.splitlines()
    assert {tuple(line.split()[1:]) for line in lines} == {("태양광", "1x"), ("축구", "0x")}
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no candidates"):
        run("--text", TEXT, "--candidates", str(tmp_path / "empty.txt"))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a.txt", "--text", "b"],
        ["--text", "b", "-o", "out.xls"],
        ["--text", "b", "--ngrams", "3-1"],
        ["--text", "b", "--ngrams", "many"],
        ["--text", "b", "--diversity", "none", "--diversity-weight", "0.3"],
    ],
)
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        run(*words)
