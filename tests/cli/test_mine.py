"""`munjang mine`, in this process, with an encoder whose vectors can be told."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import munjang
from munjang.cli import mine
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from munjang.tasks.paraphrases import mine_paraphrases
from support.word_encoder import WordEncoder, measured

TEXTS = [
    "환불은 어떻게 하나요?",
    "How do I get a refund?",
    "환불은 어떻게 받나요?",
    "배송은 얼마나 걸리나요?",
    "How do I get my refund?",
    "배송은 보통 얼마나 걸리나요?",
    "환불은 어떻게 하나요?",
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
    mine.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["mine", *arguments])
    args.run(args, Reporter(sys.stderr, quiet=args.quiet))


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_of_the_best(words: WordEncoder, corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(corpus, "--top", "2")
    shown = capsys.readouterr()
    header, first, second = shown.out.splitlines()
    assert header.split() == ["score", "row", "row", "text", "text"]
    assert first.split()[:3] == ["1.0000", "0", "6"]
    expected = mine_paraphrases(words.encode(TEXTS), top=2)
    assert float(second.split()[0]) == pytest.approx(float(expected.scores[1]), abs=6e-5)
    assert "2 pairs of 7 texts" in shown.err
    run(corpus, "-q")  # all 21 pairs would be shown but one
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 21
    assert not shown.err


def test_all_pairs_are_written_as_they_are_found(words: WordEncoder, corpus: str, tmp_path: Path) -> None:
    expected = mine_paraphrases(words.encode(TEXTS), threshold=0.5)
    run(corpus, "--threshold", "0.5", "-o", str(tmp_path / "pairs.csv"))
    rows = read_csv(tmp_path / "pairs.csv")
    assert {(int(row["left"]), int(row["right"])) for row in rows} == {(pair.left, pair.right) for pair in expected}
    for row in rows:
        assert row["left_text"] == TEXTS[int(row["left"])]
        assert row["right_text"] == TEXTS[int(row["right"])]
    run(corpus, "--threshold", "0.5", "--top", "3", "-o", str(tmp_path / "pairs.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["left"], line["right"]) for line in lines] == [(pair.left, pair.right) for pair in expected][:3]
    assert np.allclose([line["score"] for line in lines], expected.scores[:3], rtol=1e-6)
    run(corpus, "--threshold", "0.5", "--per-text", "1", "-o", str(tmp_path / "few.csv"))
    assert 0 < len(read_csv(tmp_path / "few.csv")) <= len(rows)
    assert not list(tmp_path.glob("*.tmp"))


def test_the_models_threshold(words: WordEncoder, corpus: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no measured threshold for 'paraphrase'"):
        run(corpus, "-o", str(tmp_path / "pairs.csv"))
    assert not (tmp_path / "pairs.csv").exists()
    words.thresholds = measured("paraphrase", 0.99)
    run(corpus, "-o", str(tmp_path / "pairs.csv"))
    assert [(row["left"], row["right"]) for row in read_csv(tmp_path / "pairs.csv")] == [("0", "6")]


def test_groups(words: WordEncoder, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(corpus, "--groups", "--threshold", "0.6")
    shown = capsys.readouterr()
    assert shown.out.startswith("0  3 texts\n")
    assert "3 groups; 3 of 7 texts remain" in shown.err
    run(corpus, "--groups", "--threshold", "0.6", "--top", "1")
    assert "and 2 more groups" in capsys.readouterr().out
    run(corpus, "--groups", "--threshold", "0.6", "-o", str(tmp_path / "groups.csv"))
    rows = read_csv(tmp_path / "groups.csv")
    assert [(row["group"], row["row"], row["kept"]) for row in rows[:3]] == [
        ("0", "0", "1"),
        ("0", "2", "0"),
        ("0", "6", "0"),
    ]
    assert all(row["text"] == TEXTS[int(row["row"])] for row in rows)


def test_ready_vectors(words: WordEncoder, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "v.npy", words.encode(TEXTS))
    words.encoded.clear()
    run(corpus, "--vectors", str(tmp_path / "v.npy"), "--top", "1")
    run(corpus, "--vectors", str(tmp_path / "v.npy"), "--threshold", "0.9", "-o", str(tmp_path / "p.csv"))
    run(corpus, "--vectors", str(tmp_path / "v.npy"), "--groups", "--threshold", "0.9")
    assert not words.encoded
    assert "환불은" in capsys.readouterr().out
    assert len(read_csv(tmp_path / "p.csv")) == 1


@pytest.mark.usefixtures("words")
def test_bad_usage(corpus: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(corpus, "-o", str(tmp_path / "pairs.npy"))
    with pytest.raises(SystemExit):
        run(corpus, "--groups", "--per-text", "3")
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(DataError, match="there already"):
        run(corpus, "--top", "1", "-o", str(tmp_path / "there.csv"))
    (tmp_path / "one.txt").write_text("하나\n", encoding="utf-8")
    with pytest.raises(InputError, match="pairs need two or more"):
        run(str(tmp_path / "one.txt"))
