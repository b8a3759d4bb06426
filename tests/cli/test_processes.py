"""The command as people run it: a process, pipes, signals, and the real model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

COMMAND = [sys.executable, "-m", "munjang"]
SENTENCES = ["한국어 문장입니다.", "", 'Bare "quotes" here', "It is raining.", "😀"]


@pytest.fixture
def environment(minilm_path: Path) -> dict[str, str]:
    return {**os.environ, "MUNJANG_MODEL": str(minilm_path), "OMP_NUM_THREADS": "1"}


def run(arguments: list[str], environment: dict[str, str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, env=environment, timeout=240)


def test_help_is_quick_and_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom munjang.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit as left: assert left.code == 0\n"
        "heavy = {'torch', 'numpy', 'transformers', 'tokenizers', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for arguments in (["--help"], ["encode", "--help"], ["similarity", "--help"], ["info", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout


def test_wrong_usage_is_2_and_a_missing_file_is_1(environment: dict[str, str]) -> None:
    assert run([], environment).returncode == 2
    assert run(["encode"], environment).returncode == 2
    done = run(["encode", "nothing.txt"], environment)
    assert done.returncode == 1
    assert done.stderr == b"munjang: error: nothing.txt: there is no such file\n"


def test_stdin_to_stdout_and_to_a_file_agree_with_the_library(
    environment: dict[str, str], minilm_path: Path, tmp_path: Path
) -> None:
    import munjang

    content = "\n".join(SENTENCES).encode() + b"\n"
    piped = run(["encode", "-", "--dtype", "float32"], environment, content)
    assert piped.returncode == 0, piped.stderr.decode()
    records = [json.loads(line) for line in piped.stdout.decode().splitlines()]
    assert [record["text"] for record in records] == SENTENCES
    assert b"5 texts" in piped.stderr
    vectors = np.array([record["vector"] for record in records], dtype=np.float32)
    expected = munjang.load(minilm_path, dtype="float32").encode(SENTENCES)
    assert np.allclose(vectors, expected, atol=1e-6)
    saved = run(["encode", "-", "--dtype", "float32", "-o", str(tmp_path / "a.npy"), "-q"], environment, content)
    assert (saved.returncode, saved.stdout) == (0, b"")
    assert (
        saved.stderr.decode()
        == "munjang: warning: stdin: 1 of 5 texts are empty, missing or repetitive: 1 empty (text 2)\n"
    )
    assert np.allclose(np.load(tmp_path / "a.npy"), expected, atol=1e-6)


def test_similarity_and_info(environment: dict[str, str], minilm_path: Path) -> None:
    texts = ["--text", "It is raining", "--text", "Rain is falling", "--text", "The stock market fell"]
    shown = run(["similarity", *texts], environment)
    assert shown.returncode == 0, shown.stderr.decode()
    first = shown.stdout.decode().splitlines()[1].split()[-3:]
    assert float(first[0]) == pytest.approx(1, abs=2e-3)
    assert float(first[1]) > 0.6 > float(first[2])
    described = run(["info", str(minilm_path), "--json"], environment)
    assert described.returncode == 0, described.stderr.decode()
    assert json.loads(described.stdout)["dimension"] == 384
    assert b"384" in run(["info", str(minilm_path)], environment).stdout


def test_a_reader_that_has_had_enough(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"sentence {number}\n" for number in range(300)))  # far more output than a pipe holds
    with subprocess.Popen(
        [*COMMAND, "encode", str(path), "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["text"] == "sentence 0"
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_keeps_what_is_done(environment: dict[str, str], tmp_path: Path) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "a.npy"
    count = 40_000
    path.write_text("".join(f"no {number}\n" for number in range(count)))
    command = ["encode", str(path), "-o", str(out)]
    with subprocess.Popen(
        [*COMMAND, *command],
        stderr=subprocess.PIPE,
        env=environment,
        # Tests that a shell runs in the background ignore Ctrl-C, and their children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        wait_for_rows(tmp_path, process)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert process.wait(timeout=60) == 130
    assert "Traceback" not in said
    assert not out.exists()
    kept = json.loads((tmp_path / "a.npy.progress.json").read_text())["rows"]
    assert f"{kept:,} texts are kept beside" in said
    path.write_text("".join(f"no {number}\n" for number in range(kept + 8)))
    done = run(command, environment)  # a shorter end, so that the test is short
    assert done.returncode == 0, done.stderr.decode()
    assert f"{kept:,} were already done" in done.stderr.decode()
    assert np.load(out, mmap_mode="r").shape == (kept + 8, 384)


def wait_for_rows(folder: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(3600):
        assert process.poll() is None, "it ended before it could be interrupted"
        record = folder / "a.npy.progress.json"
        try:
            if record.exists() and json.loads(record.read_text())["rows"] > 0:
                return
        except json.JSONDecodeError:
            pass  # being written
        time.sleep(0.05)
    raise AssertionError("no row was written within three minutes")
