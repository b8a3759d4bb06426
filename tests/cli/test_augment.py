"""`munjang augment`: both ways from files to the table, the report again, wrong usage, help without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from munjang.cli import main
from munjang.cli.options import model_name
from munjang.data import Examples
from munjang.errors import InputError
from recipes.augmenting.small import check_rules, lively
from recipes.material import scored, sentences, tiny_model

QUICK = ["--device", "cpu", "--max-steps", "2", "--batch-size", "8", "--learning-rate", "1e-3",
         "--cross-max-steps", "2", "--cross-batch-size", "8", "--cross-learning-rate", "1e-3"]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return lively(tiny_model(folder), folder)


def written(path: Path, examples: Examples) -> Path:
    """A file as people have them: columns in Korean, scores 0..5."""
    lines = ["문장1\t문장2\t점수"]
    for a, b, score in zip(examples.columns["a"], examples.columns["b"], examples.targets, strict=True):  # type: ignore[arg-type]
        lines.append(f"{a}\t{b}\t{5 * score:.3f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    plain = tmp_path / "sentences.txt"
    plain.write_text("\n".join(sentences(30, 7)) + "\n\n", encoding="utf-8")
    sets = {"gold": scored("gold", 24, 0), "dev": scored("dev", 12, 50), "test": scored("test", 16, 90)}
    return {"domain": plain, **{name: written(tmp_path / f"{name}.tsv", one) for name, one in sets.items()}}


def command(*arguments: object) -> int:
    return main(["augment", *(str(argument) for argument in arguments), "--score-range", "0,5"])


def test_few_gold_pairs(
    files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    arguments = (
        "--model", model, "--gold", files["gold"], "--gold-rows", 16, "--domain", files["domain"],
        "--dev", files["dev"], "--test", files["test"], "-o", run, "--strategy", "semantic,bm25", "--top-k", 3,
        "--balance", "uniform", "--largest", 50, "--certain", 0.9, "--exact", "--seed", 3, *QUICK,
    )  # fmt: skip
    assert command(*arguments) == 0
    out, said = capsys.readouterr()
    head, row = out.splitlines()
    assert re.split(r" {2,}", head) == [
        *("set", "part", "metric", "untrained", "without silver", "with silver", "difference", "95 % interval", "rows")
    ]
    number = r"[-+]?\d+\.\d\d"
    assert re.match(rf"test\.tsv +test +spearman( +{number}){{4}} +{number} to {number} +16$", row)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert f"{100 * result['gains'][0]['augmented']:.2f}" in row
    assert f"report: {run / 'index.html'}" in said
    assert f"model: {run / 'model'}" in said
    assert sum(result["silver"]["labelled_histogram"]) == 16
    assert 0 < result["silver"]["rows"] <= 50
    options = result["options"]
    assert (options["seed"], options["candidates"]["seed"], options["sampling"]["seed"]) == (3, 3, 3)
    assert options["candidates"]["approximate"] is False
    gold, dev, test = scored("gold", 24, 0), scored("dev", 12, 50), scored("test", 16, 90)
    allowed = {*gold.texts(), *sentences(30, 7)}
    check_rules(run / result["silver"]["path"], labelled=[], evaluation=[dev, test], allowed=allowed)

    assert command(*arguments) == 0  # again: the same table, nothing done
    again, said = capsys.readouterr()
    assert again == out
    saved = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert all(stage["skipped"] for stage in saved["stages"])

    page = (run / "index.html").read_text(encoding="utf-8")
    for path in (run / "index.html", run / "8-bi" / "report.html"):
        path.unlink()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "index.html")
    assert (run / "index.html").read_text(encoding="utf-8") == page
    assert (run / "8-bi" / "report.html").is_file()


def test_no_gold_pairs(files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = (
        "--model", model, "--public", files["gold"], "--domain", files["domain"], "--test", files["test"],
        "-o", run, "--strategy", "random,kde", "--pairs", 40, "--pretrain", "--cross-count", 2, "--mix", "then",
        "--objective", "cosent", "--retrieve-with", "given", "--no-baseline", *QUICK,
    )  # fmt: skip
    assert command(*arguments) == 0
    out, said = capsys.readouterr()
    assert re.match(r"test\.tsv +test +spearman +-?\d+\.\d\d +16$", out.splitlines()[1])  # nothing to compare with
    assert "note: There is no baseline" in said
    stages = [stage["folder"] for stage in json.loads((run / "result.json").read_text(encoding="utf-8"))["stages"]]
    assert stages == ["1-vectors", "2-candidates", "3-pretrain", "4-cross-1", "5-cross-2", "6-scores", "7-silver",
                      "8-bi-silver", "9-bi"]  # fmt: skip


def test_a_given_blend(files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = ("--model", model, "--gold", files["gold"], "--domain", files["domain"], "--test", files["test"],
                 "--strategy", "random", "--pairs", 30, "-o", run, *QUICK)  # fmt: skip
    assert command(*arguments, "--blend", 0.3) == 0
    assert "the bi-encoder's cosines count 0.3 in the labels" in capsys.readouterr().err
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert (result["options"]["blend"], result["silver"]["blend"], result["silver"]["blend_tried"]) == (0.3, 0.3, {})
    assert [stage["folder"] for stage in result["stages"]] == [
        *("1-baseline", "2-vectors", "3-candidates", "4-cross", "5-scores", "6-labels", "7-silver", "8-bi", "9-compare")
    ]
    scores, labels = (np.load(run / name / "scores.npy") for name in ("5-scores", "6-labels"))
    assert scores.shape == labels.shape == (30,)
    assert not np.allclose(scores, labels, atol=1e-3)
    assert command(*arguments, "--blend", "0.30") == 0
    stages = json.loads((run / "result.json").read_text(encoding="utf-8"))["stages"]
    assert all(stage["skipped"] for stage in stages)
    assert command(*arguments, "--blend", 0.6) == 0  # the cross-encoder stays
    stages = json.loads((run / "result.json").read_text(encoding="utf-8"))["stages"]
    assert [stage["name"] for stage in stages if not stage["skipped"]] == ["labels", "silver", "bi", "compare"]
    assert command(*arguments, "-o", tmp_path / "auto") == 0  # without --dev nothing is blended
    stages = json.loads((tmp_path / "auto" / "result.json").read_text(encoding="utf-8"))["stages"]
    assert "labels" not in {stage["name"] for stage in stages}


def test_a_ready_cross_encoder(
    files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from munjang.encoders import BiEncoder, CrossEncoder

    ready = tmp_path / "ready"
    CrossEncoder.from_body(BiEncoder.load(model, device="cpu"), 1).save(ready)
    run = tmp_path / "run"
    quick = [part for part in QUICK if not part.startswith("--cross")]
    del quick[quick.index("1e-3") + 1 :]  # the values of the cross-encoder's options
    done = command("--model", model, "--gold", files["gold"], "--dev", files["dev"], "--cross-encoder", ready,
                   "--columns", "a=문장1,b=문장2,score=점수", "--leakage", "remove", "-o", run, *quick)  # fmt: skip
    out, said = capsys.readouterr()
    assert done == 0, said
    assert "dev, chose the models" in out
    assert set(json.loads((run / "result.json").read_text())["silver"]["agreement"]) == {
        "dev.tsv (dev)",
        "gold: gold.tsv",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gold", "x.tsv", "--strategy", "tfidf"], "--strategy must be of semantic, bm25, random, kde"),
        (["--gold", "x.tsv", "--strategy", ","], "--strategy must be of"),
        (["--gold", "x.tsv", "--columns", "a"], "--columns must be ROLE=NAME"),
        (["--gold", "x.tsv", "--approximate", "--exact"], "not allowed with"),
        (["--gold", "x.tsv", "--gold-rows", "0"], "must be 1 or more"),
        (
            ["--gold", "x.tsv", "--pairs", "9"],
            "--pairs is for the strategies random and kde, and --strategy is semantic",
        ),
        (["--gold", "x.tsv", "--strategy", "bm25", "--exact"], "are for the strategy semantic, and --strategy is bm25"),
        (["--gold", "x.tsv", "--domain-column", "본문"], "there is no --domain"),
        (["--gold", "x.tsv", "--blend", "half"], "--blend: expected auto or a number below 1, got 'half'"),
        (["--gold", "x.tsv", "--blend", "0,5"], "expected auto or a number below 1, got '0,5'"),
        (["--gold", "x.tsv", "--cross-objective", "cosine"], "invalid choice: 'cosine'"),
        (
            ["--gold", "x.tsv", "--cross-encoder", "c", "--cross-max-steps", "3", "--cross-count", "2", "--pretrain"],
            "so --cross-max-steps, --cross-count, --pretrain would do nothing; to train one from it, give it as",
        ),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command("--model", "m", "-o", "never-made", *arguments)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_errors_in_one_line(
    files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, bare = tmp_path / "run", tmp_path / "bare.tsv"
    bare.write_text(files["gold"].read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    for arguments, message in (
        (("--model", model, "--domain", files["domain"]), "together with public"),
        (("--model", model, "--gold", "korst"), "did you mean korsts"),
        (("--model", model, "--gold", files["gold"], "--domain", "korsts"), "in which folder these lie"),
        (("--model", model, "--gold", files["gold"], "--certain", 2), "certain must be above 0"),
        (("--model", model, "--gold", files["gold"], "--blend", 1), "blend must be 'auto' or a number from 0"),
        (("--model", model, "--gold", files["gold"], "--blend", -0.1), "got -0.1"),
        (("--model", model, "--gold", files["gold"], "--blend", "nan"), "got nan"),
        (
            ("--model", model, "--gold", files["gold"], "--strategy", "bm25", "--retriever", model),
            "retriever would do nothing",
        ),
        (("--model", model, "--gold", bare), "If these are not names, as the file has no header: name all"),
    ):
        assert command(*arguments, "-o", run) == 1
        (line,) = capsys.readouterr().err.splitlines()[-1:]
        assert line.startswith("munjang: error: ")
        assert message in line
    assert not run.exists()


def test_the_bundled_model_is_the_default(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[object] = []

    def stop(model: object, **_: object) -> None:
        trained.append(model)
        raise KeyboardInterrupt

    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setattr("munjang.recipes.augmenting.running.augmented", stop)
    assert command("--gold", files["gold"], "-o", tmp_path / "run") == 130
    assert trained == ["munjang-ko-en"]
    assert "model: munjang-ko-en (bundled)" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(
    files: dict[str, Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from munjang.recipes.augmenting import labelling

    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(labelling, "score_candidates", pressed)
    run = tmp_path / "run"
    assert command("--model", model, "--gold", files["gold"], "-o", run, "-q", *QUICK) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"munjang: interrupted: finished stages are in {run}; the same command goes on from there"


def test_help_teaches_and_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom munjang.cli import main\n"
        "try:\n    main(['augment', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'tokenizers'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in (
        "--gold mine.tsv",
        "--public korsts",
        "--cross-encoder RERANKER",
        "silver.tsv may be edited",
        "(semantic)",
    ):
        assert word in done.stdout


@pytest.mark.parametrize("file", ["recipe.json", "result.json"])
def test_a_run_folder_is_no_model(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("{}", encoding="utf-8")
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match=r"is the folder of a training run; its model is .*model"):
        model_name(str(tmp_path))
