"""`munjang evaluate`, in this process: usage, tables, files, reruns; with the small encoder and with a real one."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import munjang
from munjang.cli import evaluate
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from munjang.types import EncodeReport

ROWS = [("가나", "가나다", 4.0), ("가", "하늘", 0.5), ("나무", "나무들", 3.0), ("a", "abcdef", 1.0), ("물", "불", 2.0)]


class Small:
    """A bi-encoder's shape, with vectors that can be told in advance."""

    prompts: dict[str, str] = {}  # noqa: RUF012
    dimension = 3
    similarity_name = "cosine"
    dtype = "float32"

    def __init__(self, name: str) -> None:
        self.fingerprint = f"print of {name}"
        self.encoded = 0

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        return self.encode_report(texts).vectors

    def encode_report(self, texts: Iterable[str], *, prompt_name: str | None = None) -> Any:
        texts = list(texts)
        self.encoded += len(texts)
        rows = [(len(text), text.count("가") + text.count("나"), 1.0) for text in texts]
        report = EncodeReport(len(texts), 1, 0, 1, 16, 0.0)
        return type("Encoded", (), {"vectors": np.array(rows, np.float32), "report": report})


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Small]:
    """What `munjang.load` has given in this test, by name."""
    given: dict[str, Small] = {}

    def load(name: str, **_: object) -> Small:
        return given.setdefault(name, Small(name))

    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.setitem(vars(munjang), "load", load)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return given


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    lines = ["문장1\t문장2\t점수", *(f"{a}\t{b}\t{score}" for a, b, score in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


Call = Callable[..., str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command; its stdout."""

    def run(*arguments: str, errors: io.StringIO | None = None) -> str:
        common = argparse.ArgumentParser(add_help=False)
        common.add_argument("--debug", action="store_true")
        parser = argparse.ArgumentParser(prog="munjang")
        evaluate.add(parser.add_subparsers(), common)
        args = parser.parse_args(["evaluate", *arguments])
        capsys.readouterr()
        args.run(args, Reporter(errors or io.StringIO()))
        return capsys.readouterr().out

    return run


def test_a_file_of_ones_own(models: dict[str, Small], pairs: str, call: Call, tmp_path: Path) -> None:
    errors = io.StringIO()
    out = call("./one", "--sts", pairs, "--score-range", "0", "5", "--markdown", str(tmp_path / "t.md"), errors=errors)
    lines = out.splitlines()
    assert lines[0] == "| Set | Metric | one |"
    assert lines[2].startswith("| pairs.tsv | spearman | ")
    assert "±" in lines[2]
    assert (tmp_path / "t.md").read_text(encoding="utf-8") == out
    assert "one: pairs.tsv: spearman" in errors.getvalue()
    assert "±" not in call("./one", "--sts", pairs, "--score-range", "0", "5", "--no-intervals")


def test_columns_by_name_and_by_number(models: dict[str, Small], pairs: str, call: Call, tmp_path: Path) -> None:
    usual = call("m", "--sts", pairs, "--score-range", "0", "5")
    named = ["--columns", "a=문장1", "b=문장2", "score=점수"]
    assert call("m", "--sts", pairs, "--score-range", "0", "5", *named) == usual
    bare = tmp_path / "bare" / "pairs.tsv"
    bare.parent.mkdir()
    bare.write_text("".join(f"{score}\t{a}\t{b}\n" for a, b, score in ROWS), encoding="utf-8")
    numbered = ["--columns", "a=1", "b=2", "score=0"]
    assert call("m", "--sts", str(bare), "--score-range", "0", "5", *numbered) == usual


def test_rows_that_were_refused_stand_below_the_table(models: dict[str, Small], pairs: str, call: Call) -> None:
    with open(pairs, "a", encoding="utf-8") as file:
        file.write("가\t나\t\n")
    out = call("m", "--sts", pairs, "--score-range", "0", "5")
    assert "[1]" in out
    assert "1. pairs.tsv: 6 rows, 5 used, 1 refused" in out


def test_two_models_and_a_rerun(models: dict[str, Small], pairs: str, call: Call, tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    asked = ["--sts", pairs, "--score-range", "0", "5", "--output", str(output)]
    call("x/one", *asked)
    encoded = models["x/one"].encoded
    out = call("x/one", "y/one", *asked)
    assert out.splitlines()[0] == "| Set | Metric | x/one | y/one |"  # the short names would be the same
    assert models["x/one"].encoded == encoded
    assert models["y/one"].encoded
    saved = json.loads(output.read_text(encoding="utf-8"))
    assert {model["fingerprint"] for model in saved["models"].values()} == {"print of x/one", "print of y/one"}
    scores = next(iter(saved["models"].values()))["sets"]["pairs.tsv"]
    assert {"spearman", "pearson", "spearman_dot"} <= set(scores["values"])
    output.write_text("{}")
    with pytest.raises(DataError, match="does not hold results"):
        call("x/one", *asked)


def test_a_suite_names_what_is_not_there(models: dict[str, Small], call: Call, tmp_path: Path) -> None:
    (tmp_path / "korsts").mkdir()
    lines = ["genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"]
    lines += [f"g\tf\ty\t{n}\t{score}\t{a}\t{b}" for n, (a, b, score) in enumerate(ROWS)]
    (tmp_path / "korsts" / "sts-test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    errors = io.StringIO()
    out = call("m", "--suite", "korean", "--data", str(tmp_path), "--only", "sts", errors=errors)
    assert "| KorSTS test | spearman |" in out
    assert "- KLUE-STS dev: " in out
    assert "KLUE-STS dev skipped" in errors.getvalue()
    (tmp_path / "korsts" / "sts-dev.tsv").write_text(
        "\n".join([lines[0], *(f"g\tf\ty\t{n}\t1.0\t{a}\t{b}" for n, (a, b, _) in enumerate(ROWS))]) + "\n", "utf-8"
    )  # constant scores
    output = tmp_path / "results.json"
    asked = ["m", "--suite", "korean", "--data", str(tmp_path), "--only", "sts", "--output", str(output)]
    out = call(*asked, errors=(errors := io.StringIO()))
    assert "| KorSTS test | spearman |" in out
    assert "- KorSTS dev: " in out
    assert "constant" in errors.getvalue()
    left_out = json.loads(output.read_text(encoding="utf-8"))["left_out"]
    assert "constant" in left_out["KorSTS dev"]
    assert "KLUE-STS dev" in left_out
    assert call(*asked) == out
    with pytest.raises(InputError, match=r"nothing could be measured: .*stsb-en-dev\.csv"):
        call("m", "--suite", "english", "--data", str(tmp_path), "--only", "sts")


def test_wrong_usage(models: dict[str, Small], call: Call, pairs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        [],
        ["m"],
        ["m", "--suite", "korean"],
        ["m", "--suite", "korean", "--data", ".", "--sts", pairs],
        ["m", "--suite", "korean", "--data", ".", "--columns", "a=b"],
        ["m", "--sts", pairs, "--columns", "text=b"],
        ["m", "--sts", pairs, "--only", "sts"],
        ["m", "m", "--sts", pairs],
    ):
        with pytest.raises(SystemExit) as left:
            call(*arguments)
        assert left.value.code == 2
    assert models == {}
    told = io.StringIO()
    assert "| munjang-ko-en |" in call("--sts", pairs, "--score-range", "0", "5", errors=told)
    assert "model: munjang-ko-en (bundled)\n" in told.getvalue()
    monkeypatch.setenv("MUNJANG_MODEL", "from-environment")
    assert "from-environment" in call("--sts", pairs, "--score-range", "0", "5")


def test_the_parser_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, munjang.cli.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_cross_encoder_is_loaded_as_one(minilm_path: Path, pairs: str, call: Call, tmp_path: Path) -> None:
    from munjang.encoders import CrossEncoder

    bi = munjang.load(minilm_path, device="cpu", dtype="float32")
    CrossEncoder.from_body(bi, 1).save(tmp_path / "cross")
    asked = ["--sts", pairs, "--score-range", "0", "5", "--device", "cpu", "--dtype", "float32"]
    out = call(str(minilm_path), str(tmp_path / "cross"), *asked, "-o", str(tmp_path / "r.json"))
    assert out.splitlines()[0].endswith("| cross |")
    saved = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["models"].values()
    kinds = {model["model"]: set(model["sets"]["pairs.tsv"]["values"]) for model in saved}
    assert kinds["cross"] == {"spearman", "pearson"}
    assert "spearman_manhattan" in kinds[minilm_path.parent.name]


def test_other_files_of_ones_own(models: dict[str, Small], pairs: str, call: Call, tmp_path: Path) -> None:
    same, triplets, ranked = (tmp_path / name for name in ("same.csv", "triplets.tsv", "ranked.tsv"))
    same.write_text("q1,q2,label\n가,가가,1\n나,나나,1\n가,하늘하늘,0\n나,파도파도,0\n", encoding="utf-8")
    triplets.write_text("anchor\tpositive\tnegative\n가\t가가\t하늘하늘\n나\t나나\t파도\n", encoding="utf-8")
    ranked.write_text(
        "query\tdocument\trelevance\n가\t가가\t1\n가\t하늘\t0\n나\t나나\t1\n나\t파도\t0\n", encoding="utf-8"
    )
    out = call(
        *("run/model", "--sts", pairs, "--score-range", "0,5", "--triplets", str(triplets), "--ranked", str(ranked)),
        *("--same", str(same), "--labels", "different,same", "--no-intervals"),
    )
    lines = out.splitlines()
    assert lines[0] == "| Set | Metric | run |"
    found = {line.split(" | ")[0].strip("| "): line for line in lines[2:]}
    assert {"pairs.tsv", "same.csv", "triplets.tsv", "ranked.tsv"} <= set(found)
    assert "| accuracy | 100.00 |" in found["triplets.tsv"]
    assert "100.00" in found["ranked.tsv"]
    with pytest.raises(SystemExit):
        call("m", "--triplets", str(triplets), "--score-range", "0,5")
    with pytest.raises(SystemExit):
        call("m", "--sts", pairs, "--score-range", "5")


def test_columns_with_commas(models: dict[str, Small], pairs: str, call: Call) -> None:
    usual = call("m", "--sts", pairs, "--score-range", "0", "5")
    assert call("m", "--sts", pairs, "--score-range", "0,5", "--columns", "a=문장1,b=문장2,score=점수") == usual


def test_where_nothing_can_be_written_nothing_is_measured(
    models: dict[str, Small], pairs: str, call: Call, tmp_path: Path
) -> None:
    for option in ("--output", "--markdown"):
        for path, why in ((tmp_path / "no" / "x.json", "there is no folder"), (tmp_path, "it is a folder")):
            with pytest.raises(DataError, match=why):
                call("m", "--sts", pairs, "--score-range", "0,5", option, str(path))
    assert models == {}


def test_scores_outside_the_range_and_scores_for_labels(models: dict[str, Small], pairs: str, call: Call) -> None:
    with pytest.raises(InputError, match=r"2 of 5 scores are outside .*--score-range 0,5.*--drop-outside"):
        call("./one", "--sts", pairs, "--score-range", "0,2", "--columns", "score=점수")
    with pytest.raises(InputError, match="4 of 5 labels are not in the label map"):
        call("./one", "--same", pairs, "--labels", "different,same", "--columns", "label=점수")
    with pytest.raises(InputError, match="real numbers"):
        call("./one", "--nli", pairs, "--columns", "label=점수")
    assert not models
    assert "pairs.tsv" in call("./one", "--sts", pairs, "--score-range", "0,3.5", "--drop-outside")
