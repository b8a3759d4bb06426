"""`munjang score`, in this process, with a small scorer; and `munjang info` of a real cross-encoder."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import munjang
from munjang.cli import main
from munjang.encoders import Predicted, Ranked
from munjang.types import EncodeReport


@dataclass
class SmallScorer:
    """The score is the share of b's characters that a has; windows are of two pairs."""

    labels: tuple[str, ...] = ("score",)
    options: dict[str, object] = field(default_factory=dict)
    threads: int = 1

    def score(self, a: str, b: str) -> float:
        return sum(c in a for c in b) / max(1, len(b))

    def predict_stream(self, pairs: Iterable[tuple[str, str]], *, raw: bool, progress: Any) -> Iterator[Predicted]:
        self.options["raw"] = raw
        pairs = iter(pairs)
        while window := list(islice(pairs, 2)):
            scores = np.array([self.score(a, b) for a, b in window], np.float32)
            if len(self.labels) == 2:
                scores = np.stack([1 - scores, scores], axis=1)
            cut = sum(len(a) + len(b) > 16 for a, b in window)
            yield Predicted(scores, EncodeReport(len(window), 1, cut, 20, 16, 0.1))

    def rank(self, query: str, documents: list[str], top_k: int | None, *, progress: Any) -> list[Ranked]:
        found = [Ranked(i, self.score(query, text), text) for i, text in enumerate(documents)]
        return sorted(found, key=lambda r: -r.score)[:top_k]


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> SmallScorer:
    small = SmallScorer()

    def load(name: str, **options: object) -> SmallScorer:
        small.options |= {"name": name, **options}
        return small

    monkeypatch.delenv("MUNJANG_RERANKER", raising=False)
    monkeypatch.setitem(vars(munjang), "load_cross_encoder", load)
    return small


ROWS = [("가나", "가"), ("abc", "ax"), ('그는 "네"라고', "네"), ("x", ""), ("", "y")]
SCORES = [1.0, 0.5, 1.0, 0.0, 0.0]


def files(folder: Path) -> dict[str, str]:
    (folder / "p.tsv").write_text("id\ta\tb\n" + "".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(ROWS)), "utf-8")
    with (folder / "p.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("b", "a"), *((b, a) for a, b in ROWS)])
    lines = [json.dumps({"premise": a, "hypothesis": b}, ensure_ascii=False) for a, b in ROWS]
    (folder / "p.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "bare.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ROWS), encoding="utf-8")
    return {kind: str(folder / f"p.{kind}") for kind in ("tsv", "csv", "jsonl")} | {"bare": str(folder / "bare.tsv")}


def test_a_score_per_line(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = files(tmp_path)
    for arguments in (
        [found["tsv"]],
        [found["csv"]],
        [found["jsonl"]],  # premise and hypothesis are guessed, as by `munjang train`
        [found["jsonl"], "--columns", "a=premise,b=hypothesis"],
        [found["bare"], "--columns", "a=0,b=1"],
        [found["bare"], "--no-header"],
    ):
        assert main(["score", *arguments, "--model", "m"]) == 0
        shown = capsys.readouterr()
        rows = [line.split("\t") for line in shown.out.splitlines()]
        assert [float(score) for score, _, _ in rows] == SCORES
        assert [(a, b) for _, a, b in rows] == ROWS
    assert (scorer.options["name"], scorer.options["raw"]) == ("m", False)


@pytest.mark.parametrize("names", [("question", "answer"), ("문장1", "문장2"), ("query", "document"), ("q1", "q2")])
def test_columns_are_guessed_as_for_training(
    names: tuple[str, str], scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text(f"id,{names[0]},label,{names[1]}\n1,가나,0.5,가\n", encoding="utf-8")
    assert main(["score", str(tmp_path / "p.csv"), "--model", "m"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "1\t가나\t가\n"
    assert ("columns guessed" in shown.err) == (names != ("query", "document"))  # these are what they are called


def test_columns_that_cannot_be_guessed(
    scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, told in (("x,y\n1,2\n", "--columns"), ("a,b\n1\n", "line 2"), ("", "not a single row")):
        (tmp_path / "p.csv").write_text(content, encoding="utf-8")
        assert main(["score", str(tmp_path / "p.csv"), "--model", "m"]) == 1
        assert told in capsys.readouterr().err
    assert "name" not in scorer.options  # before a model was loaded


def test_a_text_of_several_lines_stays_on_its_line(
    scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"a": "ab\ncd\te", "b": "a"}), encoding="utf-8")
    assert main(["score", str(tmp_path / "p.jsonl"), "--model", "m"]) == 0
    assert capsys.readouterr().out == "1\tab cd e\ta\n"


def test_into_files(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = files(tmp_path)["tsv"]
    for suffix in ("csv", "jsonl"):
        assert main(["score", source, "--model", "m", "-o", str(tmp_path / f"o.{suffix}"), "--raw"]) == 0
    assert scorer.options["raw"] is True
    with (tmp_path / "o.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["a"], row["b"], float(row["score"])) for row in rows] == [
        (a, b, score) for (a, b), score in zip(ROWS, SCORES, strict=True)
    ]
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines[1] == {"a": "abc", "b": "ax", "score": 0.5}
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1].endswith(str(tmp_path / "o.jsonl"))


def test_labels(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scorer.labels = ("no", "yes")
    source = files(tmp_path)["tsv"]
    assert main(["score", source, "--model", "m"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "yes\t1\t가나\t가"
    assert main(["score", source, "--model", "m", "-o", str(tmp_path / "o.jsonl")]) == 0
    last = json.loads((tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last == {"a": "", "b": "y", "label": "no", "scores": {"no": 1.0, "yes": 0.0}}
    assert main(["score", source, "--model", "m", "-o", str(tmp_path / "o.csv")]) == 0
    assert (tmp_path / "o.csv").read_text(encoding="utf-8-sig").splitlines()[0] == "a,b,label,no,yes"


def test_what_was_cut_is_said(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.tsv").write_text("a\tb\n" + "x" * 20 + "\ty\nx\ty\n", encoding="utf-8")
    assert main(["score", str(tmp_path / "p.tsv"), "--model", "m"]) == 0
    assert "truncated: 1 of 2 pairs" in capsys.readouterr().err


def test_ranking(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.txt").write_text("xyz\n가나\n가x\n", encoding="utf-8")
    arguments = ["score", "--query", "가나다", "--documents", str(tmp_path / "d.txt"), "--model", "m"]
    assert main([*arguments, "--top", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["1.0000", "1", "가나"], ["0.5000", "2", "가x"]]
    for suffix in ("csv", "jsonl"):
        assert main([*arguments, "-o", str(tmp_path / f"o.{suffix}")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["row"] for row in rows] == [1, 2, 0]
    assert (tmp_path / "o.csv").read_text(encoding="utf-8-sig").splitlines()[1] == "1,1,1,가나"


def test_what_is_refused(scorer: SmallScorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = files(tmp_path)["tsv"]
    for arguments in (
        [],
        ["--query", "q"],
        [source, "--query", "q", "--documents", source],
        [source, "--top", "3"],
        [source, "--column", "a"],
        [source, "--truncate-dim", "3"],
        ["--query", "q", "--documents", source, "--raw"],
        [source, "-o", "x.npy"],
        [source, "--columns", "a,b"],
    ):
        with pytest.raises(SystemExit) as left:
            main(["score", *arguments, "--model", "m"])
        assert left.value.code == 2
    capsys.readouterr()
    assert main(["score", source, "--model", "m", "--columns", "a=a,b=c"]) == 1
    assert "no column 'c'" in capsys.readouterr().err
    assert "name" not in scorer.options  # said before any model was loaded
    (tmp_path / "n.jsonl").write_text('{"a": "x", "b": null}\n', encoding="utf-8")
    assert main(["score", str(tmp_path / "n.jsonl"), "--model", "m"]) == 1
    assert "line 1: expected a text in 'b'" in capsys.readouterr().err


def test_the_bundled_reranker_is_the_default(
    scorer: SmallScorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = files(tmp_path)["tsv"]
    assert main(["score", source]) == 0
    assert scorer.options["name"] == "munjang-rerank-ko-en"
    assert "model: munjang-rerank-ko-en (bundled)\n" in capsys.readouterr().err
    monkeypatch.setenv("MUNJANG_RERANKER", "mine")
    assert main(["score", source]) == 0
    assert scorer.options["name"] == "mine"


def test_info_of_a_cross_encoder(minilm_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from munjang.checkpoint import read_bi

    model = munjang.CrossEncoder.from_body(read_bi(minilm_path), ["no", "yes"], device="cpu", dtype="float32")
    model.save(tmp_path / "m")
    assert main(["info", str(tmp_path / "m"), "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["labels"], found["max length"]) == ("cross-encoder", ["no", "yes"], 256)
    assert "model.safetensors" in found["files"]
    pairs = tmp_path / "p.tsv"
    pairs.write_text("a\tb\n비가 온다\tIt is raining\n", encoding="utf-8")
    assert main(["score", str(pairs), "--model", str(tmp_path / "m"), "--device", "cpu", "--threads", "1"]) == 0
    label, score, *texts = capsys.readouterr().out.rstrip("\n").split("\t")
    assert texts == ["비가 온다", "It is raining"]
    assert label in ("no", "yes")
    assert 0.5 <= float(score) <= 1
