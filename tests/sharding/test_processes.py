"""The engine `processes` as people run it: child processes, kills, Ctrl-C, a full disk, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from munjang.cli import main
from munjang.errors import DataError
from munjang.sharding import Reading, ShardOptions, ShardResult, encode_shards
from munjang.sharding.processes import Processes
from support.sharded import once_under_way, outputs, rows, write_jsonl, write_parquet

COMMAND = [sys.executable, "-m", "munjang", "encode"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of several windows of 4,096 rows, so that a kill finds it half done; and small ones."""
    folder = tmp_path_factory.mktemp("shards") / "in"
    write_jsonl(folder / "큰 조각.jsonl", ({"id": n, "text": f"빵 {n}"} for n in range(8300)))
    write_parquet(folder / "b.parquet", rows(40, "b"))
    for number in range(4):
        write_jsonl(folder / f"작은-{number}.jsonl.gz", [*rows(20, str(number)), {"id": 1}])
    return folder


def encode(shards: Path, out: Path, model: Path, *, progress: Any = False, **given: Any) -> ShardResult:
    options = ShardOptions(engine="processes", format="npy", reading=Reading(column="text"), **given)
    return encode_shards(shards, out, model=model, options=options, progress=progress)


@pytest.fixture(scope="module")
def plain(shards: Path, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an unbroken run by one worker with one thread makes."""
    out = tmp_path_factory.mktemp("plain") / "out"
    result = encode(shards, out, model_folder, workers=1, threads=1)
    assert (result.encoded, result.rows, result.rejected) == (6, 8420, 4)
    return outputs(out)


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "munjang.sharding.child" in child.cmdline()]


def test_a_worker_killed_in_the_middle_of_a_shard(
    shards: Path, plain: dict[str, bytes], model_folder: Path, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill() -> None:  # what is written of the large shard is gone on with
        for child in children():
            child.send_signal(signal.SIGKILL)
            killed.append(child.pid)

    with once_under_way(tmp_path / "out", kill):
        result = encode(shards, tmp_path / "out", model_folder, workers=2, threads=2)
    assert killed
    assert result.ok
    assert outputs(tmp_path / "out") == plain  # two workers with two threads each, and killed: the same bytes
    assert not children()


def start(shards: Path, out: Path, model: Path, **popen: Any) -> subprocess.Popen[bytes]:
    arguments = [str(shards), "--engine", "processes", "--workers", "2", "--model", str(model)]
    return subprocess.Popen(
        [*COMMAND, *arguments, "--column", "text", "--output-format", "npy", "-o", str(out)],
        stderr=subprocess.PIPE,
        **popen,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < end
        time.sleep(0.02)


def done_in(out: Path) -> int:
    try:
        return (out / "_munjang" / "manifest.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_command_killed_or_interrupted_and_run_again(
    how: signal.Signals,
    shards: Path,
    plain: dict[str, bytes],
    model_folder: Path,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    out = tmp_path / "out"

    def own_group() -> None:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with start(shards, out, model_folder, env=environment, preexec_fn=own_group) as process:
        wait_for(lambda: done_in(out) >= 1, process)
        workers = psutil.Process(process.pid).children()
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # Ctrl-C reaches the workers too
        else:
            process.send_signal(how)
        said = process.stderr.read().decode() if process.stderr else ""
        status = process.wait(timeout=60)
    _, left = psutil.wait_procs(workers, timeout=20)
    assert not left
    assert status == (130 if how == signal.SIGINT else -9)
    if how == signal.SIGINT:
        assert "Traceback" not in said
        assert "the same command goes on" in said
    finished = done_in(out)
    assert 1 <= finished < 6
    assert all(plain[name] == data for name, data in outputs(out).items() if name != "_rejects.jsonl")
    if how == signal.SIGKILL:
        result = encode(shards, out, model_folder, workers=1)
        assert (result.encoded, result.skipped) == (6 - finished, finished)
        assert outputs(out) == plain


def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(
    shards: Path, plain: dict[str, bytes], model_folder: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    import resource

    def small_files() -> None:  # the large shard is 1.1 MB of vectors
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))

    out = tmp_path / "out"
    with start(shards, out, model_folder, env=environment, preexec_fn=small_files) as process:
        said = process.stderr.read().decode() if process.stderr else ""
        assert process.wait(timeout=90) == 1
    assert "the disk is full" in said
    assert "run it again to go on" in said
    finished = done_in(out)
    assert encode(shards, out, model_folder, workers=1).encoded == 6 - finished
    assert outputs(out) == plain


def test_the_command_line(
    jobs: Any, shards: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, job = str(tmp_path / "out"), ["--engine", "processes", "--model", str(model_folder), "--workers", "1"]
    inputs = [str(shards / "작은-*.gz"), str(shards / "b.parquet")]
    assert main(["encode", *inputs, *job, "--column", "text", "--keep", "id", "-o", out]) == 0
    said = capsys.readouterr().err
    assert "5 of 5 shards, 120 rows" in said
    assert "set aside: 4 rows" in said
    assert "_rejects.jsonl" in said
    assert len(json.loads((tmp_path / "out" / "_rejects.jsonl").read_text().splitlines()[0])) == 3
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("no json")
    write_jsonl(tmp_path / "in" / "b.jsonl", rows(2))
    assert main(["encode", str(tmp_path / "in"), *job, "-o", str(tmp_path / "second")]) == 1
    said = capsys.readouterr().err
    assert "failed: a.jsonl: a.jsonl: none of its 1 rows can be used" in said
    assert "1 of 2 shards failed, the others are done" in said
    assert list(outputs(tmp_path / "second")) == ["b.jsonl.parquet"]


def test_wrong_usage(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = ["--engine", "processes"]
    for arguments, words in [
        (["--workers", "2", "-o", "x.npy"], "--workers needs --engine"),
        (["-o", "x.npy"], "--engine processes encodes folders"),
        (engine, "either --output FOLDER or --into INDEX"),
        ([*engine, "-o", "x", "--into", "y"], "either --output FOLDER or --into INDEX"),
        ([*engine, "-o", "x", "--format", "csv"], "shards are parquet or jsonl"),
        ([*engine, "-o", "x", "--id-column", "id"], "are for --into"),
    ]:
        with pytest.raises(SystemExit) as left:
            main(["encode", str(shards), *arguments])
        assert left.value.code == 2
        assert words in capsys.readouterr().err


def test_a_worker_that_cannot_even_start_says_why(
    shards: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "munjang.sharding.processes._environment", lambda: {"PYTHONPATH": "/nowhere", "PYTHONHOME": "/"}
    )
    with pytest.raises(DataError, match="workers were lost one after another"):
        encode(shards, tmp_path / "out", model_folder, workers=1)


def test_threads_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    from munjang.sharding import running

    monkeypatch.setattr("munjang.nn.device.cpu_cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    sizes = {workers: running.local_size(ShardOptions(workers=workers), None) for workers in (None, 1, 2, 3, 8, 16)}
    assert sizes == {None: (8, 1, 0), 1: (1, 8, 0), 2: (2, 4, 0), 3: (3, 2, 0), 8: (8, 1, 0), 16: (16, 1, 0)}
    assert running.local_size(ShardOptions(workers=2, threads=3), None) == (2, 3, 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert running.local_size(ShardOptions(), None) == (4, 2, 4)
    assert running.local_size(ShardOptions(), "cuda:1") == (8, 1, 0)
    assert running.local_size(ShardOptions(), "cpu") == (8, 1, 0)


def test_each_worker_has_a_gpu_of_its_own() -> None:
    from munjang.sharding.messages import Plan, Prompting
    from munjang.sharding.options import ModelSource

    nothing = Prompting(None, None, None)
    plan = Plan("1", ModelSource("m"), "f", Reading(), 1, "npy", nothing, None, "", "")
    team = Processes(plan, 5, 2)
    assert [team._own_plan(number).model.device for number in range(5)] == ["cuda:0", "cuda:1"] * 2 + ["cuda:0"]
    assert Processes(plan, 5, 0)._own_plan(3).model.device is None
