"""`munjang demo`: its arguments, and the whole of it in a process of its own with tiny models."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from munjang import demo
from munjang.cli import demo as command
from munjang.cli.progress import Reporter
from support import small_models

COMMAND = """
import sys
from munjang.cli import demo
from munjang.cli.progress import Reporter
import argparse
parser = argparse.ArgumentParser()
demo.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
args = parser.parse_args(["demo", *sys.argv[1:]])
args.run(args, Reporter(sys.stderr))
"""
SECONDS = 60.0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    return parser


# --- arguments -------------------------------------------------------------------------------------------------------


def given(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> demo.DemoOptions:
    """What the library is called with."""
    calls: list[demo.DemoOptions] = []
    monkeypatch.setattr(demo, "run", lambda options, **_: calls.append(options))
    args = parser().parse_args(["demo", *arguments])
    args.run(args, Reporter(sys.stderr, quiet=True))
    return calls[0]


def test_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert given(monkeypatch) == demo.DemoOptions()
    options = given(
        monkeypatch, "--docs", "a.csv", "b", "--column", "c", "--index", str(tmp_path / "i"), "--port", "9000",
        "--no-browser", "--model", "m", "--reranker", "r", "--device", "cpu",
    )  # fmt: skip
    assert options == demo.DemoOptions(
        docs=("a.csv", "b"), column="c", index=tmp_path / "i", port=9000, browser=False, model="m", reranker="r",
        device="cpu",
    )  # fmt: skip
    assert given(monkeypatch, "--rebuild").rebuild


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_is_none(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parser().parse_args(["demo", "--port", port])
    assert left.value.code == 2
    assert "--port" in capsys.readouterr().err


# --- the whole -------------------------------------------------------------------------------------------------------


class Process:
    """A demo that runs: its lines as they come, its end."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "HF_HUB_OFFLINE": "1", **environment},
            preexec_fn=_hear_interrupts,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        for stream, take in ((self._process.stdout, self._lines.put), (self._process.stderr, self.errors.append)):
            threading.Thread(target=_read, args=(stream, take), daemon=True).start()

    def line(self) -> str:
        try:
            return self._lines.get(timeout=SECONDS)
        except queue.Empty:
            raise AssertionError("".join(self.errors)) from None

    def end(self, number: int = signal.SIGINT) -> int:
        self._process.send_signal(number)
        return self._process.wait(SECONDS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)


def _hear_interrupts() -> None:
    """Tests that run in the background ignore Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _read(stream: Any, take: Any) -> None:
    for line in stream:
        take(line)


@contextlib.contextmanager
def running(*arguments: str, environment: dict[str, str]) -> Iterator[Process]:
    process = Process(*arguments, environment=environment)
    try:
        yield process
    finally:
        process.close()


def ask(address: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    small_models.bi_encoder().save(folder / "bi")
    small_models.cross_encoder().save(folder / "re")
    return folder


def address_of(line: str) -> str:
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)\n", line)
    assert found is not None, line
    return found[1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are other ones there")
def test_the_sample_is_served_and_ctrl_c_ends_it(models: Path, tmp_path: Path) -> None:
    arguments = ("--model", str(models / "bi"), "--reranker", str(models / "re"), "--device", "cpu", "--no-browser")
    environment = {"MUNJANG_CACHE": str(tmp_path)}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(*arguments, "--port", str(port), environment=environment) as process:
            address = address_of(process.line())
            assert int(address.rpartition(":")[2]) > port
            told = [process.line() for _ in range(5)]
            assert [line.split(".")[0].strip() for line in told[1:4]] == ["1", "2", "3"]
            (index,) = ask(address, "/indexes")
            assert (index["name"], index["documents"]) == ("sample", len(demo.documents()))
            body = {"query": "밥이 질게 됐어요", "k": 3, "rerank": True, "filter": {"language": "ko"}}
            hits = ask(address, "/search", body)["hits"]
            assert [hit["metadata"]["language"] for hit in hits] == ["ko"] * 3
            assert {stage["name"] for stage in hits[0]["stages"]} >= {"hybrid", "rerank"}
            with urllib.request.urlopen(address + "/", timeout=SECONDS) as page:
                assert page.headers.get_content_type() == "text/html"
            assert process.end() == 0
            said = "".join(process.errors)
            assert f"port {port} is taken" in said
            assert "Traceback" not in said
    with running(*arguments, "--port", "0", environment=environment) as process:
        address_of(process.line())
        assert process.end(signal.SIGTERM) == 0
        assert "made before" in "".join(process.errors)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are other ones there")
def test_a_kill_while_the_index_is_made_leaves_none(models: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"  # it takes longer to index than to be killed
    long.write_text("".join(f"문장 {number} sentence\n" for number in range(40_000)), encoding="utf-8")
    cache = tmp_path / "cache"
    arguments = ("--docs", str(long), "--model", str(models / "bi"), "--device", "cpu", "--no-browser", "--port", "0")
    with running(*arguments, environment={"MUNJANG_CACHE": str(cache)}) as process:
        made = _first_within(cache / "demo", SECONDS)
        assert made.name.startswith(".docs-")
        process.end(signal.SIGKILL)
    assert [entry.name for entry in (cache / "demo").iterdir()] == [made.name]  # no index under its own name


def _first_within(folder: Path, seconds: float) -> Path:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = list(folder.iterdir()) if folder.is_dir() else []
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"nothing came into {folder} within {seconds} s")
