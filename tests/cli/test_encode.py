"""`munjang encode`, in this process, with a small encoder."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.cli import main
from munjang.vectors import read_vectors


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("가나\n\nabc\n", encoding="utf-8")
    return path


def test_a_text_file_becomes_vectors_in_its_order(
    small: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.npy"
    assert main(["encode", str(corpus), "--model", "m", "--output", str(out)]) == 0
    assert np.load(out).tolist() == [[2, 1, 1], [0, 0, 1], [3, 0, 1]]
    written = capsys.readouterr()
    assert written.out == ""
    assert "corpus.txt: 3 texts" in written.err
    assert "3 texts, 1 tokens in 0.1 s" in written.err


def test_options_reach_the_library(small: Any, corpus: Path, tmp_path: Path) -> None:
    loading = ["--model", "m", "--device", "cpu", "--dtype", "float32"]
    limits = ["--threads", "3", "--max-length", "8", "--truncate-dim", "2"]
    more = ["--revision", "r", "--local-files-only", "--no-normalize", "--prompt-name", "query", "--overwrite"]
    assert main(["encode", str(corpus), *loading, *limits, *more, "-o", str(tmp_path / "out.jsonl"), "-q"]) == 0
    expected = {"name": "m", "device": "cpu", "dtype": "float32", "max_length": 8}
    assert small.options == {**expected, "revision": "r", "local_files_only": True}
    assert (small.threads, small.truncate_dim) == (3, 2)
    assert small.calls == [
        {"method": "encode_to", "overwrite": True, "prompt": None, "prompt_name": "query", "normalize": False}
    ]


def test_the_model_comes_from_the_environment(small: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["encode", str(corpus), "-q"]) == 0
    assert small.options["name"] == "munjang-ko-en"
    monkeypatch.setenv("MUNJANG_MODEL", "from-environment")
    assert main(["encode", str(corpus), "-q"]) == 0
    assert small.options["name"] == "from-environment"


def test_which_model_is_told_on_stderr(
    small: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["encode", str(corpus)]) == 0
    assert "model: munjang-ko-en (bundled)\n" in capsys.readouterr().err
    assert main(["encode", str(corpus), "--model", "m"]) == 0
    assert "model: m\n" in capsys.readouterr().err
    monkeypatch.setenv("MUNJANG_MODEL", "from-environment")
    assert main(["encode", str(corpus)]) == 0
    assert "model: from-environment (from MUNJANG_MODEL)\n" in capsys.readouterr().err
    assert main(["encode", str(corpus), "-q"]) == 0
    assert "model:" not in capsys.readouterr().err


def test_texts_that_look_empty_or_missing_are_counted_and_kept(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["가나", "", "NaN", "  ", "😀" * 1000, "❤️" * 1000, "", "abc"]
    path = tmp_path / "rows.csv"
    path.write_text("n,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(rows)), encoding="utf-8")
    assert main(["encode", str(path), "--column", "text", "-q"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["text"] for line in shown.out.splitlines()] == rows
    assert shown.err.count("6 of 8 texts are empty, missing or repetitive") == 1
    for part in ("2 empty (first: text 2)", "1 'NaN' (text 3)", "1 only white space", "2 a few characters repeated"):
        assert part in shown.err


def test_without_output_json_lines_go_to_stdout(
    small: Any, corpus: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["encode", str(corpus)]) == 0
    written = capsysbinary.readouterr()
    lines = [json.loads(line) for line in written.out.decode().splitlines()]
    assert lines == [
        {"text": "가나", "vector": [2.0, 1.0, 1.0]},
        {"text": "", "vector": [0.0, 0.0, 1.0]},
        {"text": "abc", "vector": [3.0, 0.0, 1.0]},
    ]
    assert "가나" in written.out.decode()  # not escaped
    assert "3 texts, 5 tokens in 0.0 s" in written.err.decode()  # the windows' reports, added


def test_truncation_is_reported(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 40 + "\nshort\ny\n")
    assert main(["encode", str(path)]) == 0
    assert "truncated: 1 of 3 to 16 tokens (longest 40)" in capsys.readouterr().err


def test_columns_are_kept_and_files_joined(small: Any, tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(f"id,본문,x\n{number},가{number},z\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    files = [str(tmp_path / "1.csv"), str(tmp_path / "2.csv")]
    assert main(["encode", "--keep", "id", "--keep", "x", *files, "-o", str(out), "-q"]) == 0
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(r["text"], r["id"], r["x"]) for r in records] == [("가1", "1", "z"), ("가2", "2", "z")]


def test_kept_columns_on_stdout(small: Any, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "n": 1}\n{"text": "b", "n": null}\n{"text": "c", "n": [2]}\n')
    assert main(["encode", str(path), "--keep", "n"]) == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(line["text"], line["n"]) for line in lines] == [("a", 1), ("b", None), ("c", [2])]


def test_stdin(small: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("text,id\n가,1\n".encode())))
    assert main(["encode", "-", "--format", "csv"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["text"] == "가"


def test_an_interrupted_output_is_kept_and_gone_on_with(
    small: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["encode", str(corpus), "-o", str(tmp_path / "out.npy")]
    small.fail_after = 2
    assert main(command) == 130
    assert not (tmp_path / "out.npy").exists()
    assert "interrupted; 2 texts are kept beside" in (said := capsys.readouterr().err)
    assert "the same command goes on" in said
    small.fail_after = None
    assert main(command) == 0
    assert "2 were already done" in capsys.readouterr().err
    assert read_vectors(tmp_path / "out.npy").shape == (3, 3)


def test_interrupted_before_anything_was_kept(
    small: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.fail_after = 0
    assert main(["encode", str(corpus), "-o", str(tmp_path / "out.npy")]) == 130
    assert "before anything was written" in capsys.readouterr().err


def test_interrupted_on_stdout(small: Any, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.fail_after = 2
    assert main(["encode", str(corpus)]) == 130
    assert "interrupted after 2 texts" in capsys.readouterr().err


def test_an_interrupted_overwriting_run_goes_on_without_overwrite(
    small: Any, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["encode", str(corpus), "-o", str(tmp_path / "out.npy")]
    assert main(command) == 0
    assert main(command) == 1
    assert "already exists" in capsys.readouterr().err
    small.fail_after = 2
    assert main([*command, "--overwrite"]) == 130
    assert "the same command without --overwrite goes on" in capsys.readouterr().err
    small.fail_after = None
    assert main(command) == 0
    assert "2 were already done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--output", "a.txt"], "--output must end in"),
        (["--output", "a.npy", "--keep", "id"], "--keep needs an output with columns"),
        (["--keep", "text"], "the output has these already"),
        (["--threads", "0"], "must be 1 or more"),
        (["--prompt", "a", "--prompt-name", "b"], "not allowed with"),
    ],
)
def test_wrong_usage(small: Any, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["encode", "corpus.txt", *arguments])
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_errors_come_before_the_model_is_loaded(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('"x"\n' * 10 + "null\n")
    assert main(["encode", str(path), "-o", str(tmp_path / "a.npy")]) == 1
    assert small.options == {}
    told = capsys.readouterr().err
    assert told.startswith(f"munjang: error: {path}, line 11: expected an object")
    assert told.endswith("or a string, got null: None\n")
    assert main(["encode", str(tmp_path / "b.txt")]) == 1
    assert main(["encode", "-", "-"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert main(["encode", str(path), "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_cp949_is_announced_once(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("한국어 문장\n".encode("cp949"))
    assert main(["encode", str(path), "-q"]) == 0
    assert capsys.readouterr().err.count("munjang: warning: ") == 1
