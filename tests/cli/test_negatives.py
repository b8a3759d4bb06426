"""`munjang negatives`, in this process, with a small encoder."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import munjang
from munjang.cli import negatives
from munjang.cli.progress import Reporter
from munjang.data import read_examples

ROWS = [(f"질문 {'가' * i}", f"답 {'가' * (i % 3)}{'x' * i}") for i in range(8)]


def main(arguments: list[str]) -> None:
    """The command alone, as the parser of all commands runs it."""
    parser = argparse.ArgumentParser()
    negatives.add(parser.add_subparsers(required=True), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["negatives", *arguments])
    args.run(args, Reporter(sys.stderr, quiet=args.quiet))


@pytest.fixture
def pairs(small: Any, tmp_path: Path) -> str:
    small.device = torch.device("cpu")
    path = tmp_path / "pairs.tsv"
    lines = ["anchor\tpositive", *(f"{a}\t{p}" for a, p in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


class Judge:
    labels = ("score",)

    def predict(self, asked: list[tuple[str, str]], **_: object) -> np.ndarray:
        return np.array([0.9 if (a, b) in ROWS else 0.25 for a, b in asked], np.float32)


def test_triplets_that_can_be_read_again(pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("jsonl", "csv"):
        output = tmp_path / f"triplets.{suffix}"
        main([pairs, "-o", str(output), "-n", "2", "--no-relative-margin"])
        found = read_examples(output, kind="pairs")
        assert list(found.columns) == ["anchor", "positive", "negative", "negative_2"]
        assert list(zip(found.columns["anchor"], found.columns["positive"], strict=True)) == ROWS
        answers = {p for _, p in ROWS}
        for i, (_, positive) in enumerate(ROWS):
            chosen = {str(found.row(i)[name]) for name in ("negative", "negative_2")}
            assert len(chosen) == 2
            assert chosen <= answers - {positive}
    said = capsys.readouterr().err
    assert "8 rows, 8 used" in said
    assert "8 with negatives from 8 texts" in said


def test_a_corpus_and_named_columns(small: Any, pairs: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.csv").write_text("id,본문\n1,다른 글\n2,또 다른 글\n", encoding="utf-8")
    table = Path(pairs).read_text(encoding="utf-8").replace("anchor\tpositive", "q1\tq2")
    Path(pairs).write_text(table, encoding="utf-8")
    options = ["--corpus", str(tmp_path / "corpus.csv"), "--corpus-column", "본문", "--no-relative-margin"]
    output = tmp_path / "t.jsonl"
    main([pairs, "--anchor", "q1", "--positive", "q2", "-o", str(output), "--asymmetric", "-q", *options])
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {row["negative"] for row in rows} <= {"다른 글", "또 다른 글"}
    assert [call["prompt_name"] for call in small.calls] == ["query", "document"]


def test_without_a_header_the_first_two_columns(pairs: str, tmp_path: Path) -> None:
    lines = Path(pairs).read_text(encoding="utf-8").splitlines()[1:]
    Path(pairs).write_text("\n".join(lines), encoding="utf-8")
    output = tmp_path / "t.jsonl"
    main([pairs, "--no-header", "-o", str(output), "--no-relative-margin"])
    assert json.loads(output.read_text(encoding="utf-8").splitlines()[3])["anchor"] == ROWS[3][0]


def test_a_cross_encoder_and_its_scores(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str, **_: object) -> Judge:
        loaded.append(name)
        return Judge()

    monkeypatch.setitem(vars(munjang), "load_cross_encoder", load)
    for suffix in ("jsonl", "csv"):
        main([pairs, "-o", str(tmp_path / f"t.{suffix}"), "--cross-encoder", "judge", "--scores", "-q"])
    assert loaded == ["judge", "judge"]
    first = json.loads((tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["scores"] == [0.9, 0.25]
    with (tmp_path / "t.csv").open(encoding="utf-8-sig", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["score_positive"], row["score_negative"]) == ("0.9", "0.25")


def test_what_is_refused(small: Any, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([pairs], [pairs, "-o", "x.parquet"], [pairs, "-o", str(tmp_path / "x.csv"), "--scores"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
    output = tmp_path / "t.jsonl"
    output.write_text("mine")
    with pytest.raises(munjang.errors.DataError, match="--overwrite"):
        main([pairs, "-o", str(output)])
    assert small.options == {}  # said before any model was loaded
    with pytest.raises(munjang.errors.InputError, match="not a single row"):
        main([pairs, "-o", str(output), "--overwrite", "--min-score", "5"])
    assert output.read_text() == "mine"
    assert not list(tmp_path.glob("*.tmp"))


NLI = [
    ("비가 온다", "날씨가 궂다", "entailment"),
    ("비가 온다", "우산을 샀다", "neutral"),
    ("비가 온다", "하늘이 맑다", "contradiction"),
    ("눈이 온다", "겨울 날씨이다", "entailment"),
    ("눈이 온다", "덥고 습하다", "contradiction"),
]


def table(path: Path, header: str, rows: list[tuple[str, str, str]]) -> str:
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return str(path)


def mined(arguments: list[str], tmp_path: Path) -> list[dict[str, str]]:
    main([*arguments, "-o", str(tmp_path / "t.jsonl"), "--overwrite"])
    return [json.loads(line) for line in (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()]


def test_entailments_are_positives_and_contradictions_negatives(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.device = torch.device("cpu")
    path = table(tmp_path / "nli.tsv", "전제\t가설\t라벨", NLI)
    rows = mined([path], tmp_path)
    assert [(row["anchor"], row["positive"]) for row in rows] == [(a, b) for a, b, label in NLI if label[0] == "e"]
    # Both score above the positives, so that the margin would leave out any other text.
    assert [row["negative"] for row in rows] == ["하늘이 맑다", "덥고 습하다"]
    said = capsys.readouterr().err
    assert "5 rows, 2 used, 3 refused: contradiction (2), neutral (1)" in said
    assert "columns guessed: anchor = 전제, positive = 가설; positives by column 라벨" in said
    every = mined([path, "--all-positive", "--no-relative-margin"], tmp_path)
    assert len(every) == 5


@pytest.mark.parametrize(
    ("header", "values", "options", "kept"),
    [
        ("question1\tquestion2\tis_duplicate", "10010", ["--positive-label", "1"], [0, 3]),
        ("question1\tquestion2\tis_duplicate", "10010", ["--positive-label", "0"], [1, 2, 4]),
        ("sentence1\tsentence2\tscore", ["4.5", "1", "5.0", "3.9", "4"], ["--threshold", "4"], [0, 2, 4]),
        ("sentence1\tsentence2\tlabel", ["4.5", "1", "5.0", "3.9", "4"], ["--threshold", "4"], [0, 2, 4]),
        ("sentence1\tsentence2\tmine", ["a", "b", "a", "c", "b"],
         ["--label-column", "mine", "--positive-label", "a,c"], [0, 2, 3]),
        ("anchor\tpositive\trelevance", "01201", ["--threshold", "1"], [1, 2, 4]),
    ],
)  # fmt: skip
def test_labels_and_scores_say_which_rows_are_positives(
    header: str, values: Any, options: list[str], kept: list[int], small: Any, tmp_path: Path
) -> None:
    small.device = torch.device("cpu")
    rows = [(a, b, value) for (a, b), value in zip(ROWS, values, strict=False)]
    path = table(tmp_path / "x.tsv", header, rows)
    found = mined([path, "--no-relative-margin", *options], tmp_path)
    assert [(row["anchor"], row["positive"]) for row in found] == [ROWS[place] for place in kept]
    assert not {row["negative"] for row in found} & {""}
    if "--label-column" not in options:
        with pytest.raises(munjang.errors.InputError, match=r"--positive-label.*--threshold.*--all-positive"):
            mined([path], tmp_path)


def test_columns_that_do_not_fit_the_question(small: Any, pairs: str, tmp_path: Path) -> None:
    nli = table(tmp_path / "nli.tsv", "premise\thypothesis\tlabel", NLI)
    for arguments, message in (
        ([pairs, "--positive-label", "same"], "--label-column"),
        ([pairs, "--threshold", "3"], "--label-column"),
        ([nli, "--threshold", "3"], "holds no scores"),
        ([nli, "--positive-label", "same"], "entailment, neutral, contradiction"),
        ([nli, "--label-column", "x"], "no column 'x'"),
    ):
        with pytest.raises((munjang.errors.InputError, munjang.errors.DataError), match=message):
            mined(arguments, tmp_path)
    assert small.options == {}  # said before any model was loaded
