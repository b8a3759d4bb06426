"""`munjang cluster`, in this process, with an encoder whose vectors can be told."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import munjang
from munjang.cli import cluster
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from support.word_encoder import WordEncoder, measured

TEXTS = [
    "오늘 서울 날씨 비",
    "refund order payment please",
    "내일 부산 날씨 비",
    "refund payment for my order",
    "주말 날씨 비 소식",
    "order refund and payment question",
    '쉼표, 그리고 "따옴표" 날씨 비',
]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    encoder = WordEncoder()
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", lambda name=None, **options: encoder)
    return encoder


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return str(tmp_path / "texts.txt")


def run(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    cluster.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["cluster", *arguments])
    args.run(args, Reporter(sys.stderr, quiet=args.quiet))


@pytest.mark.usefixtures("words")
def test_a_table_and_a_file(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(corpus, "--k", "2", "-o", str(tmp_path / "labels.csv"))
    shown = capsys.readouterr()
    header, first, second = shown.out.splitlines()
    assert header.split() == ["size", "cohesion", "keywords", "representative"]
    assert first.split()[:2] == ["0", "4"]
    assert "날씨" in first
    assert second.split()[:2] == ["1", "3"]
    assert "refund" in second
    assert "2 clusters of 7 of 7 texts" in shown.err
    with (tmp_path / "labels.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == TEXTS
    assert [row["cluster"] for row in rows] == ["0", "1", "0", "1", "0", "1", "0"]
    assert sum(row["representative"] == "1" for row in rows) == 2
    run(corpus, "--k", "2", "-q", "-o", str(tmp_path / "labels.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["cluster"] for line in lines] == [0, 1, 0, 1, 0, 1, 0]
    assert [line["row"] for line in lines] == list(range(7))
    assert not capsys.readouterr().err


def test_methods_and_thresholds(
    words: WordEncoder, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("communities", "agglomerative"):
        run(corpus, "--method", method, "--threshold", "0.3", *(["--min-size", "2"] if method[0] == "c" else []))
        assert capsys.readouterr().out.splitlines()[1].split()[1] == "4"
    with pytest.raises(InputError, match="no measured threshold for 'cluster'"):
        run(corpus, "--method", "communities")
    words.thresholds = measured("cluster", 0.3)
    run(corpus, "--method", "communities", "--min-size", "4", "-o", str(tmp_path / "l.jsonl"))
    labels = [json.loads(line)["cluster"] for line in (tmp_path / "l.jsonl").read_text("utf-8").splitlines()]
    assert labels == [0, -1, 0, -1, 0, -1, 0]


def test_ready_vectors_need_no_model(
    words: WordEncoder, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "v.npy", words.encode(TEXTS))
    words.encoded.clear()
    run(corpus, "--k", "2", "--vectors", str(tmp_path / "v.npy"))
    assert not words.encoded
    assert "날씨" in capsys.readouterr().out
    np.save(tmp_path / "v.npy", np.ones((3, 2)))
    with pytest.raises(DataError, match=r"each of the 7 texts, got shape \(3, 2\)"):
        run(corpus, "--vectors", str(tmp_path / "v.npy"))
    (tmp_path / "v.npy").write_text("not an array")
    with pytest.raises(DataError, match=r"no \.npy file"):
        run(corpus, "--vectors", str(tmp_path / "v.npy"))
    with pytest.raises(DataError, match="does not exist"):
        run(corpus, "--vectors", str(tmp_path / "none.npy"))


@pytest.mark.usefixtures("words")
def test_bad_usage_is_told_before_anything_is_read(corpus: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(corpus, "-o", str(tmp_path / "labels.txt"))
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(DataError, match="there already"):
        run(corpus, "--k", "2", "-o", str(tmp_path / "there.csv"))
    assert (tmp_path / "there.csv").read_text() == "mine"
    run(corpus, "--k", "2", "-o", str(tmp_path / "there.csv"), "--overwrite")
    assert (tmp_path / "there.csv").read_text(encoding="utf-8-sig").startswith("row,")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="no texts"):
        run(str(tmp_path / "empty.txt"))
    with pytest.raises(InputError, match=r"k must be 1\.\.7"):
        run(corpus, "--k", "8")
