"""`munjang train` and `munjang report`: arguments to recipes, the table on stdout, words on stderr."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from munjang.cli import report, train
from munjang.cli.options import model_name
from munjang.cli.progress import Reporter
from munjang.data import Examples
from munjang.errors import DataError, InputError, ModelWarning
from recipes.material import nli, scored, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::munjang.errors.LeakageWarning")
QUICK = ["--device", "cpu", "--max-steps", "2", "-q"]


def command(*arguments: object) -> str:
    """Run a command line as `munjang` does, and give what it said on stderr."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true")
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    for one in (train, report):
        one.add(commands, common)
    args = parser.parse_args([str(argument) for argument in arguments])
    said = StringIO()
    args.run(args, Reporter(said))
    return said.getvalue()


def written(path: Path, examples: Examples, scale: float = 5.0) -> Path:
    rows = [examples.row(place) for place in range(len(examples))]
    target = "score" if examples.kind == "scored" else "label"
    lines = [f"문장1\t문장2\t{target}"]
    for row in rows:
        value = float(str(row["score"])) * scale if target == "score" else row["label"]
        lines.append(f"{row['a']}\t{row['b']}\t{value}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "sts": written(tmp_path / "sts.tsv", scored("s")),
        "sts-dev": written(tmp_path / "sts-dev.tsv", scored("s", 8, 50)),
        "sts-test": written(tmp_path / "sts-test.tsv", scored("s", 8, 90)),
        "nli": written(tmp_path / "nli.tsv", nli("n", 6)),
        "nli-dev": written(tmp_path / "nli-dev.tsv", nli("n", 6, 50)),
    }


def test_a_recipe_from_files_to_a_table(
    files: dict[str, Path],
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    said = command(
        "train", "sts", "--model", tiny, "--train", files["sts"], "--dev", files["sts-dev"],
        "--test", files["sts-test"], "--score-range", "0,5", "--columns", "a=문장1,b=문장2",
        "--objective", "cosent", "--matryoshka", "16,8",
        "--learning-rate", "1e-3", "--warm-up", "0.2", "--seed", "3", "--max-length", "24", "-o", run, *QUICK,
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert re.split(r" {2,}", lines[0]) == [
        *("recipe", "set", "part", "metric", "before", "after x 100", "95 % interval", "rows")
    ]
    number = r"-?\d+\.\d\d"
    assert re.match(rf"sts +sts-test\.tsv +test +spearman +{number} +{number} +{number} to {number} +8$", lines[1])
    assert re.match(r"sts +sts-dev\.tsv +dev, chose the model +spearman", lines[2])
    assert f"report: {run / 'report.html'}" in said
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    settings = config["settings"]
    assert (settings["learning_rate"], settings["warm_up"], settings["seed"]) == (1e-3, 0.2, 3)
    assert config["model"]["max_length"] == 24
    assert config["tasks"][0]["objective_settings"]["inner"] == "CoSent"
    again = command("train", "--config", run / "recipe.json", "--output", tmp_path / "again", "-q")
    assert f"model: {tmp_path / 'again' / 'model'}" in again
    one, two = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "again"))
    assert one == two
    (run / "report.html").unlink()
    command("report", run)
    assert capsys.readouterr().out.strip().endswith(str(run / "report.html"))
    assert (run / "report.html").is_file()


def test_a_chain_with_values_for_one_stage(
    files: dict[str, Path],
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "chain"
    with pytest.warns(ModelWarning, match="the head is new"):
        command(
            "train", "chain", "cross-nli,cross-sts", "--model", tiny, "--train", f"cross-nli={files['nli']}",
            "--dev", f"cross-nli={files['nli-dev']}", "--train", f"cross-sts={files['sts']}", "--score-range", "0,5",
            "--objective", "cross-sts=mse", "--batch-size", "8", "--batch-size", "2=4", "-o", run, *QUICK,
        )  # fmt: skip
    capsys.readouterr()
    first, second = (json.loads((run / name / "config.json").read_text()) for name in ("1-cross_nli", "2-cross_sts"))
    assert (first["settings"]["batch_size"], second["settings"]["batch_size"]) == (8, 4)
    assert second["tasks"][0]["objective_settings"] == {"loss": "mse"}
    assert (run / "index.html").is_file()
    command("report", run)
    assert capsys.readouterr().out.strip() == str(run / "index.html")


def test_lora_and_nli_choices(files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command("train", "nli", "--model", tiny, "--train", files["nli"], "--dev", files["nli-dev"], "--lora", "2",
            "--concatenation", "|u-v|,u*v", "-o", run, *QUICK)  # fmt: skip
    recipe = json.loads((run / "recipe.json").read_text(encoding="utf-8"))
    assert recipe["options"]["lora"]["rank"] == 2
    assert recipe["options"]["lora"]["alpha"] == 4
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert config["tasks"][0]["objective_settings"]["parts"] == ["|u-v|", "u*v"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train"], "give a recipe"),
        (["train", "sts", "--train", "x"], "--output"),
        (["train", "sts", "--train", "x", "-o", "r", "--objective", "softmax"], "invalid choice"),
        (["train", "sts", "--train", "x", "-o", "r", "--batch-size", "0"], "must be 1 or more"),
        (["train", "sts", "--train", "x", "-o", "r", "--model", "m", "--columns", "a"], "ROLE=NAME"),
        (["train", "sts", "--train", "x", "-o", "r", "--model", "m", "--score-range", "5"], "LOW,HIGH"),
        (["train", "sts", "--train", "x", "-o", "r", "--model", "m", "--matryoshka", "a"], "whole numbers"),
        (["train", "chain", "nli,stss", "--train", "x", "-o", "r"], "got stss"),
        (["train", "chain", "nli,sts", "--train", "x", "-o", "r"], "expected STAGE=VALUE"),
        (["train", "chain", "nli,sts", "--train", "nli=x", "-o", "r"], "stage sts has no training set"),
        (["train", "chain", "nli", "--train", "nli=x", "-o", "r", "--epochs", "nli=often"], "--epochs"),
        (["train", "chain", "nli", "--train", "nli=x", "-o", "r", "--schedule", "steep"], "--schedule must be one of"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command(*arguments)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("variable", [None, "mine"])
def test_the_bundled_model_is_the_default(
    variable: str | None, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def stop(model: str, *_: object, **__: object) -> None:
        trained.append(model)
        raise KeyboardInterrupt

    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    if variable is not None:
        monkeypatch.setenv("MUNJANG_MODEL", variable)
    for name in ("sts", "chain"):
        monkeypatch.setattr(f"munjang.recipes.{name}", stop)
    with pytest.raises(KeyboardInterrupt):
        command("train", "sts", "--train", files["sts"], "-o", tmp_path / "r")
    with pytest.raises(KeyboardInterrupt):
        command("train", "chain", "sts", "--train", f"sts={files['sts']}", "-o", tmp_path / "r")
    assert trained == [variable or "munjang-ko-en"] * 2


def test_errors_say_what_to_do(files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="say in which folder these lie"):
        command("train", "sts", "--model", tiny, "--train", "korsts", "-o", tmp_path / "r")
    with pytest.raises(DataError, match=r"nothing\.tsv: there is no such file, and it is no name of a public set"):
        command("train", "sts", "--model", tiny, "--train", "nothing.tsv", "-o", tmp_path / "r")
    with pytest.raises(DataError, match=r"has no config\.json"):
        command("report", tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        command("report", tmp_path / "nothing")


def test_help_shows_the_defaults_and_does_not_import_torch() -> None:
    code = (
        "import argparse, sys\nfrom munjang.cli import train\n"
        "parser = argparse.ArgumentParser()\ncommands = parser.add_subparsers()\n"
        "train.add(commands, argparse.ArgumentParser(add_help=False))\n"
        "try: parser.parse_args(['train', 'sts', '--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    assert "learning rate 0.0001 small, 2e-05 base, 1e-05 large" in shown
    assert "cosine, cosent, angle" in shown


@pytest.mark.data
def test_public_sets_by_name(
    data_path: Path,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command("train", "sts", "--model", tiny, "--data", data_path, "--train", "korsts", "--dev", "korsts",
            "--test", "korsts", "--test", "stsb:test", "-o", tmp_path / "run", *QUICK)  # fmt: skip
    shown = capsys.readouterr().out
    assert re.search(r"KorSTS test +test +spearman .* 1,379\n", shown)
    assert re.search(r"STSb test +test +spearman .* 1,379\n", shown)
    record = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    found = {one["name"]: one["normalised"]["some"] for one in record["leakage"]["sets"]}
    assert found["KorSTS test"] >= 150


def test_a_run_folder_is_no_model(files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    """Forgetting /model is the usual slip."""
    run, chain = tmp_path / "run", tmp_path / "chain"
    command("train", "sts", "--model", tiny, "--train", files["sts"], "--score-range", "0,5", "-o", run, *QUICK)
    with pytest.raises(InputError, match=rf"is the folder of a training run; its model is {run / 'model'}"):
        command("train", "sts", "--model", run, "--train", files["sts"], "-o", tmp_path / "r", *QUICK)
    (chain / "2-sts" / "model").mkdir(parents=True)
    (chain / "recipe.json").write_text("{}")
    with pytest.raises(InputError, match=rf"its model is {chain / '2-sts' / 'model'}"):
        model_name(str(chain))
    assert model_name(str(run / "model")) == str(run / "model")
    assert model_name("jhgan/ko-sroberta-multitask") == "jhgan/ko-sroberta-multitask"


def test_matryoshka_sizes_and_refused_rows_are_told(
    files: dict[str, Path],
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open(files["sts"], "a", encoding="utf-8") as file:
        file.write("한 남자가\t국수를 먹는다\t\n")
    said = command("train", "sts", "--model", tiny, "--train", files["sts"], "--test", files["sts-test"], "--no-before",
                   "--matryoshka", "16", "--score-range", "0,5", "-o", tmp_path / "run", *QUICK)  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"sts +sts-test\.tsv, first 16 values +test +spearman", lines[2])
    assert "note: sts.tsv (train): 1 of 25 rows were not used: score is empty (1); the first is sts.tsv line 26" in said
    assert not (tmp_path / "run" / "before.json").exists()


@pytest.mark.parametrize("recipe", ["nli", "cross-nli", "chain"])
def test_scores_are_no_labels(recipe: str, files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    data = ["--train", files["sts"]] if recipe != "chain" else ["--train", f"nli={files['sts']}"]
    stages = ["nli"] if recipe == "chain" else []
    base = ["train", recipe, *stages, "--model", tiny, *data, "--columns", "a=문장1,b=문장2,label=score", *QUICK]
    with pytest.raises(InputError, match=r"real numbers.*score=NAME.*--any-labels"):
        command(*base, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_that_look_like_scores_when_asked_for(files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    base = ["train", "nli", "--model", tiny, "--train", files["sts"], "--columns", "a=문장1,b=문장2,label=score"]
    command(*base, "--any-labels", "-o", run, *QUICK)
    saved = json.loads((run / "recipe.json").read_text(encoding="utf-8"))["options"]["sets"]
    assert saved["any_labels"] is True
    command("train", "--config", run / "recipe.json", "-o", tmp_path / "again", "-q")


def test_scores_outside_the_range(files: dict[str, Path], tiny: Path, tmp_path: Path) -> None:
    base = ["train", "sts", "--model", tiny, "--train", files["sts"], "--score-range", "0,1", *QUICK]
    columns = ["--columns", "a=문장1,b=문장2,score=score"]
    with pytest.raises(InputError, match=r"of 24 scores are outside .*--score-range 0,5.*--drop-outside"):
        command(*base, *columns, "-o", tmp_path / "run")
    said = command(*base, *columns, "--drop-outside", "-o", tmp_path / "run")
    assert re.search(r"\d+ of 24 rows were not used: score is outside 0\.\.1", said)


def test_the_rows_of_nli_are_counted_as_contrastive_uses_them(
    files: dict[str, Path], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--device", "cpu", "--epochs", "1", "--batch-size", "4"]
    sets = ["--train", files["nli"], "--dev", files["nli-dev"], "--columns", "a=문장1,b=문장2"]
    said = command("train", "contrastive", "--model", tiny, *sets, "-o", tmp_path / "run", *quick)
    shown = capsys.readouterr().err
    assert "train nli.tsv: 18 rows, 12 used, 6 refused: neutral (6)" in shown
    assert "12 of anchor / positive / negative made of them" in shown
    assert "contrastive: 3 steps, 12 rows" in said
    assert "dev nli-dev.tsv: 18 rows, 12 used" in shown  # an entailment and a contradiction make a triplet
    assert "nli.tsv (train): 6 of 18 rows were not used: neutral (6)" in said
    command("train", "nli", "--model", tiny, *sets, "-o", tmp_path / "nli", *quick)
    assert "train nli.tsv: 18 rows, 18 used" in capsys.readouterr().err
