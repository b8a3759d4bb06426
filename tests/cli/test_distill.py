"""`munjang distill` from files on disk: the table, what goes on, what is refused before anything is computed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import munjang
from munjang.cli import main
from munjang.cli.distill import _WITH
from recipes.distilling.material import parallel, parallel_file, reranker, texts_file
from recipes.material import tiny_model, triplets


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models"))


def written(path: Path, columns: dict[str, list[str]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\t".join(columns) + "\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


QUICK = ["--max-steps", "2", "--batch-size", "8", "--device", "cpu"]


def test_a_bilingual_student(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    dev = written(tmp_path / "dev.tsv", parallel("dev", 40, 50).columns)
    test = written(tmp_path / "test.tsv", parallel("test", 50, 60).columns)
    run = tmp_path / "run"
    command = [
        "distill", "--teacher", str(tiny), "--parallel", f"{file}=2", "--weight", "news=0.5", "--layers", "1",
        "--vocabulary", "200", "--embeddings", "translations", "--objective", "mse,contrastive=0.2",
        "--mlm-epochs", "1", "--dev", str(dev), "--test", str(test), "-o", str(run), "--cache", str(tmp_path / "cache"),
    ]  # fmt: skip
    assert main([*command, *QUICK]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].split()[:4] == ["set", "part", "metric", "before"]
    assert [line.split()[0] for line in lines[1:]] == ["test.tsv", "dev.tsv"]
    assert "4-distill: done in" in said.err
    assert f"model: {run / 'model'}" in said.err
    assert munjang.load(run / "model", device="cpu").dimension == 32
    facts = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert {one["name"]: one["weight"] for one in facts["sources"]} == {"talks": 2.0, "news": 0.5}
    (taught,) = facts["objectives"][0]["with"]["teachers"]
    assert (taught["mse"], taught["contrastive"], taught["cosine"]) == (1.0, 0.2, 0.0)
    page = (run / "index.html").read_text(encoding="utf-8")
    (run / "index.html").unlink()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'index.html'}\n"
    assert (run / "index.html").read_text(encoding="utf-8") == page
    assert main([*command, *QUICK, "-q"]) == 0
    again = capsys.readouterr()
    assert again.out == said.out
    assert all("nothing beat the model as given" in line for line in again.err.splitlines())
    assert list((tmp_path / "cache").iterdir())


def test_a_cross_encoder_teaches(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = reranker(tiny, tmp_path)
    pairs = written(tmp_path / "pairs.tsv", triplets("t", 12).columns)
    run = tmp_path / "run"
    command = ["distill", "--teacher", str(teacher), "--student", str(tiny), "--pairs", str(pairs), "-o", str(run)]
    assert main([*command, "--score-objective", "margin_mse", *QUICK]) == 0
    assert json.loads((run / "result.json").read_text(encoding="utf-8"))["objectives"][0]["objective"] == "MarginMse"
    assert "2-teacher" in capsys.readouterr().err


def test_plain_texts_and_two_teachers(tiny: Path, tmp_path: Path) -> None:
    texts = texts_file(tmp_path / "s.txt", rows=12)
    run = tmp_path / "run"
    command = ["distill", "--teacher", str(tiny), "--teacher", f"{tiny}:relational=0.3", "--texts", str(texts)]
    assert main([*command, "-o", str(run), *QUICK, "-q"]) == 0
    teachers = json.loads((run / "result.json").read_text(encoding="utf-8"))["objectives"][0]["with"]["teachers"]
    assert [(one["mse"], one["relational"]) for one in teachers] == [(1.0, 0.0), (0.0, 0.3)]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "give something to learn over"),
        (["--texts", "s.txt", "--objective", "mse=x"], "expected LOSS or LOSS=WEIGHT"),
        (["--texts", "s.txt", "--objective", "euclid"], "of mse, cosine, contrastive, relational, got 'euclid'"),
        (["--texts", "s.txt", "--weight", "news"], "expected SOURCE=WEIGHT"),
        (["--texts", "s.txt", "--source-columns", "text"], "--source-columns must be ROLE=NAME"),
        (["--texts", "s.txt", "--score-range", "5"], "--score-range must be LOW,HIGH"),
        (["--texts", "s.txt", "--keep", "all"], "--keep is about a new vocabulary: give --vocabulary N too"),
        (["--texts", "s.txt", "--embeddings", "translations"], "--embeddings is about a new vocabulary"),
    ],
)
def test_wrong_usage(more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["distill", "--teacher", "no-such-model", "-o", str(tmp_path / "run"), *more])
    assert left.value.code == 2
    assert words in capsys.readouterr().err


def test_widths_that_differ_name_the_remedy(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["distill", "--teacher", str(tiny), "--texts", "no-such.txt", "--dimension", "16"]
    assert main([*command, "-o", str(tmp_path / "run"), *QUICK]) == 1
    said = capsys.readouterr().err
    assert "makes vectors of 32 values, the student of 16" in said
    assert "--dimension 32" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("folder/model:relational=0.3", ("folder/model", "relational=0.3")),
        ("org/name:mse,cosine=0.5", ("org/name", "mse,cosine=0.5")),
        ("C:/models/one:mse", ("C:/models/one", "mse")),
        ("C:/models/one", None),
        ("org/name", None),
    ],
)
def test_teachers_with_losses_of_their_own(given: str, found: tuple[str, str] | None) -> None:
    match = _WITH.fullmatch(given)
    assert (None if match is None else (match["model"], match["losses"])) == found


def test_help_teaches_without_torch() -> None:
    code = "import sys; from munjang.cli import main\ntry: main(['distill', '--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("munjang distill --teacher") >= 5


def test_embeddings_by_a_guide(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = parallel_file(tmp_path / "p.tsv")
    run = tmp_path / "run"
    command = ["distill", "--teacher", str(tiny), "--parallel", str(file), "--vocabulary", "200", "-o", str(run)]
    assert main([*command, *QUICK, "--embeddings", "guide"]) != 0
    assert "needs guide (--guide)" in capsys.readouterr().err
    assert main([*command, *QUICK, "--guide", str(tiny)]) != 0
    assert "--vocabulary N --embeddings guide" in capsys.readouterr().err
    assert not run.exists()
    assert main([*command, *QUICK, "--embeddings", "guide", "--guide", str(tiny)]) == 0
    report = json.loads((run / "result.json").read_text(encoding="utf-8"))["student"]["report"]
    assert report["guide"]["name"] == tiny.name
    assert report["vocabulary"]["embeddings"]["from translations and the guide"] > 0
