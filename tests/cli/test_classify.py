"""`munjang classify` with a tiny model: train, test, classify, without training, and wrong usage."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from munjang.cli import classify, main
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from munjang.tasks.classifier import Classifier
from training.material import WHERE, WHO, bi

DOES = {"음악": ["plays the guitar", "기타를 친다"], "food": ["eats noodles", "국수를 먹는다"]}
ROWS = [
    (f"{who} {do} {where}".strip(), label)
    for label, does in DOES.items()
    for do in does
    for who in WHO
    for where in WHERE
]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    bi().save(path)
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> str:
        parser = argparse.ArgumentParser()
        classify.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
        args = parser.parse_args(["classify", *words])
        args.run(args, Reporter(sys.stderr, quiet=args.quiet))
        return capsys.readouterr().out

    return call


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    order = np.random.default_rng(0).permutation(len(ROWS))
    for name, part in (("train", order[:60]), ("held", order[60:])):
        with open(tmp_path / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "topic"), *(ROWS[i] for i in part)])
    (tmp_path / "new.txt").write_text("아이들이 기타를 친다\na man eats noodles\n", encoding="utf-8")
    return tmp_path


def test_train_test_and_classify(run: Run, labelled: Path, model: str) -> None:
    here = ["--model", model, "--device", "cpu", "--dtype", "float32", "--label-column", "topic"]
    folder = str(labelled / "topics")
    assert run("train", str(labelled / "train.csv"), "-o", folder, *here) == ""
    told = run("test", str(labelled / "held.csv"), "--classifier", folder, "--label-column", "topic")
    lines = told.splitlines()
    assert lines[0].split() == ["label", "precision", "recall", "F1", "rows"]
    assert [line.split()[0] for line in lines[1:3]] == ["food", "음악"]
    accuracy = float(told.split("accuracy ")[1].split()[0])
    texts, labels = zip(*csv.reader(open(labelled / "held.csv", encoding="utf-8")), strict=True)  # noqa: SIM115
    classifier = Classifier.load(folder)
    assert accuracy == pytest.approx(classifier.evaluate(texts[1:], labels[1:]).scores.values["accuracy"], abs=1e-4)
    new = str(labelled / "new.txt")
    shown = [line.split("\t") for line in run(new, "--classifier", folder).splitlines()]
    expected = classifier.probabilities(["아이들이 기타를 친다", "a man eats noodles"])
    assert [cells[0] for cells in shown] == [classifier.labels[place] for place in expected.argmax(axis=1)]
    assert np.allclose([float(cells[1]) for cells in shown], expected.max(axis=1), atol=1e-3)
    for suffix in ("csv", "jsonl"):
        run(new, "--classifier", folder, "-o", str(labelled / f"out.{suffix}"))
    with open(labelled / "out.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    found = [json.loads(line) for line in (labelled / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in rows] == [row["label"] for row in found] == [cells[0] for cells in shown]
    assert float(rows[0]["food"]) == found[0]["probabilities"]["food"]
    with pytest.raises(DataError, match="--overwrite"):
        run(new, "--classifier", folder, "-o", str(labelled / "out.csv"))
    with pytest.raises(DataError, match="--overwrite"):
        run("train", str(labelled / "train.csv"), "-o", folder, *here)


def test_labels_alone_from_stdin(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("기타를 친다\n국수를 먹는다\n".encode())))
    here = ["--model", model, "--device", "cpu", "--dtype", "float32"]
    shown = run("-", "--label", "음악=기타를 친다", "--label", "food=국수를 먹는다", *here)
    assert [line.split("\t")[0] for line in shown.splitlines()] == ["음악", "food"]


def test_several_labels_and_fine_tuning(run: Run, tmp_path: Path, model: str) -> None:
    rows = [{"text": text, "tags": [label, *(["child"] if "child" in text else [])]} for text, label in ROWS]
    lines = [json.dumps(row, ensure_ascii=False) for row in [*rows, {"text": "perhaps", "tags": []}]]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    here = ["--model", model, "--device", "cpu", "--dtype", "float32", "--label-column", "tags", "--several"]
    run("train", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "c"), "--fine-tune", "--pairs", "40", *here)
    (tmp_path / "new.txt").write_text("one child eats noodles\n")
    shown = run(str(tmp_path / "new.txt"), "--classifier", str(tmp_path / "c"), "--threshold", "0.01")
    assert set(shown.strip().split("\t")[::2]) <= {"음악", "food", "child"}
    assert "food" in shown
    assert Classifier.load(tmp_path / "c").own_body


@pytest.mark.parametrize(
    "words",
    [
        ["a.txt"],
        ["a.txt", "b.txt", "--labels", "x,y"],
        ["a.txt", "--labels", "x,y", "--classifier", "c"],
        ["train", "a.csv"],
        ["train", "a.csv", "-o", "c", "--labels", "x,y"],
        ["test", "a.csv", "--classifier", "c", "-o", "o.csv"],
        ["a.txt", "--classifier", "c", "-o", "o.txt"],
        ["a.txt", "--classifier", "c", "--threshold", "2"],
    ],
)
def test_wrong_usage(run: Run, words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*words)
    assert left.value.code == 2


def test_rows_that_cannot_be_learned_are_told_before_a_model_is_loaded(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\na,x\nb,x\n")
    (tmp_path / "no.jsonl").write_text('{"text": "a", "label": null}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    away = ["--model", "not/there", "-o"]
    with pytest.raises(InputError, match="all 2 rows"):
        run("train", str(tmp_path / "one.csv"), *away, str(tmp_path / "c"))
    with pytest.raises(InputError, match="is no classifier"):
        run("train", str(tmp_path / "one.csv"), *away, str(tmp_path / "full"))
    with pytest.raises(DataError, match="row 0: 'label' must be a text"):
        run("train", str(tmp_path / "no.jsonl"), *away, str(tmp_path / "c"))
    with pytest.raises(DataError, match="no column 'topic'"):
        run("train", str(tmp_path / "one.csv"), "--label-column", "topic", *away, str(tmp_path / "c"))


def test_accuracy_stands_beside_the_most_frequent_label(
    labelled: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ["--model", model, "--device", "cpu", "--label-column", "topic"]
    assert main(["classify", "train", str(labelled / "train.csv"), "-o", str(labelled / "topics"), *here]) == 0
    first, *_, last = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("model:")]
    assert "accuracy" in first
    assert "most frequent label" in first
    assert "chance" not in first
    assert last.endswith(str(labelled / "topics"))
    known = Classifier.load(labelled / "topics").calibration
    assert known is not None
    assert known.against_majority is not None
    assert known.against_majority.accuracy > known.against_majority.majority


@pytest.mark.parametrize("head", ["logistic", "prototype"])
def test_arbitrary_labels_are_at_chance(
    head: str, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = np.random.default_rng(3).permutation(np.arange(len(ROWS)) % 3)
    with open(tmp_path / "t.csv", "w", encoding="utf-8", newline="") as file:
        rows = [(text, "abc"[label]) for (text, _), label in zip(ROWS, labels, strict=True)]
        csv.writer(file).writerows([("text", "label"), *rows])
    arguments = [str(tmp_path / "t.csv"), "-o", str(tmp_path / "c"), "--model", model, "--device", "cpu", "-q"]
    assert main(["classify", "train", *arguments, "--head", head]) == 0
    first = capsys.readouterr().err.splitlines()[0]  # also where -q leaves the rest out
    assert "at chance" in first
    assert "accuracy" in first


def test_scores_and_texts_are_no_labels(run: Run, tmp_path: Path, model: str) -> None:
    rows = [(f"글 {i}", f"{i % 7 / 2}", i % 7 * 30, f"본문 {i}") for i in range(40)]
    with open(tmp_path / "rows.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "score", "topic", "body"), *rows])
    away = ["--model", "not/there", "-o", str(tmp_path / "c")]
    with pytest.raises(InputError, match=r"real numbers: 7 distinct.*--any-labels"):
        run("train", str(tmp_path / "rows.csv"), "--column", "text", "--label-column", "score", *away)
    with pytest.raises(InputError, match="as many different values as rows"):
        run("train", str(tmp_path / "rows.csv"), "--column", "text", "--label-column", "body", *away)
    with pytest.raises(InputError, match="any_labels"):
        Classifier.fit([row[0] for row in rows], [row[1] for row in rows], None)  # type: ignore[arg-type]
    here = ["--model", model, "--device", "cpu", "-q", "-o", str(tmp_path / "c")]
    run("train", str(tmp_path / "rows.csv"), "--column", "text", "--label-column", "score", "--any-labels", *here)
    assert len(Classifier.load(tmp_path / "c").labels) == 7
    run("train", str(tmp_path / "rows.csv"), "--column", "text", "--label-column", "topic", *here, "--overwrite")
