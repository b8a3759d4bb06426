"""`munjang plan`: a table, JSON, and errors before minutes are spent."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from munjang.cli import plan
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError
from munjang.planning import add_rates, read_rates
from planning.material import rates


def call(*arguments: str) -> str:
    """Run the command; what it said on stderr."""
    parser = argparse.ArgumentParser()
    plan.add(parser.add_subparsers(), argparse.ArgumentParser(add_help=False))
    args = parser.parse_args(["plan", *arguments])
    said = io.StringIO()
    args.run(args, Reporter(said))
    return said.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rates.json"
    add_rates(path, rates(model="나의 모델", device="cpu", device_name="eight cores"))
    add_rates(path, rates())
    return str(path)


def test_table(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    prices = ("--price-gpu-hour", "2", "--price-disk-gb-month", "0.1")
    call("--rows", "100M", "--tokens", "30", "--gpus", "8", "--rate", file, *prices)
    out = capsys.readouterr().out
    assert out.startswith("100M rows of 30 tokens; float32, 256 dimensions\n")
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert "8.52 min" in lines["encode"]
    assert "102 GB" in lines["encode"]
    assert "8 x 한 GPU; 196K rows/s" in lines["encode"]
    assert "writing 3.61 h, keywords 11.1 h, graph 11.1 h" in lines["build the index"]
    assert "6.98 ms" in lines["search"]
    assert "through a graph" in lines["search"]
    assert "money: 2.27 to encode (1.1 hours), 27.0" in out
    assert "\nassumed:\n- rates of my-model on 한 GPU, measured 2026-01-02" in out
    assert "\nnote:\n- one process needs" in out


def test_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = ("--vectors", "int8", "--dimension", "64")
    call("--rows", "1.5k", "--tokens", "300", "--model", "나의 모델", *kept, "--rate", file, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["workload"]["rows"] == 1500
    assert found["passages"] == 1500 * 6
    assert found["money"] == {"encoding": None, "disk_month": None, "first_month": None}
    assert found["disk"]["structures"] == pytest.approx(9000 * (64 + 8) + 9000 * 96 * 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "many", "--tokens", "30"], "--rows must be a number such as 5000, 250k"),
        (["--rows", "10", "--tokens", "0"], "tokens must be 1 to"),
        (["--rows", "10", "--tokens", "nan"], "tokens must be 1 to"),
        (["--rows", "10", "--tokens", "3", "--price-gpu-hour", "-2"], "the price gpu_hour must be 0 or more"),
        (["--rows", "10", "--tokens", "3", "--dimension", "999"], "dimension must be 1 to 256"),
        (["--rows", "10", "--tokens", "3", "--model", "unknown"], "unknown was not measured"),
        (["--rows", "10", "--tokens", "3", "--gpus", "2", "--model", "나의 모델"], "was not measured on a GPU"),
        (["--rows", "10", "--tokens", "3", "--measure", "--measure-rows", "5"], "rows to measure with must be"),
        (["--measure", "--seconds", "-1"], "seconds must be"),
    ],
)
def test_nonsense(file: str, arguments: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call(*arguments, "--rate", file)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --rows N --tokens T, or --measure"),
        (["--rows", "10"], "--rows and --tokens belong together"),
        (["--rows", "10", "--tokens", "3", "--seconds", "1"], "say how to --measure"),
        (["--rows", "10", "--tokens", "3", "--gpus", "0"], "must be 1 or more"),
        (["--rows", "10", "--tokens", "3", "--vectors", "int4"], "invalid choice: 'int4'"),
    ],
)
def test_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        call(*arguments)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_files_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="munjang plan --measure measures this machine"):
        call("--rows", "10", "--tokens", "3", "--rate", str(tmp_path / "none.json"))
    other = tmp_path / "other.json"
    other.write_text('{"my": "notes"}', encoding="utf-8")
    with pytest.raises(DataError, match="is no file of rates"):
        call("--measure", "--rate", str(other))  # before the model is loaded
    assert other.read_text(encoding="utf-8") == '{"my": "notes"}'
    with pytest.raises(InputError, match="there is no folder"):
        call("--measure", "--rate", str(tmp_path / "deep" / "rates.json"))


def test_measure_then_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command hands on what it was told, keeps the rates, and plans with them (measuring: test_measuring.py)."""
    asked: list[Any] = []

    def measured(model: Any, name: str, *, options: Any, progress: Any) -> Any:
        asked.extend((model, name, options))
        progress(1, 2)
        return rates(model=name, load=7.5)

    monkeypatch.setattr("munjang.planning.measuring.measure", measured)
    monkeypatch.setattr("munjang.cli.plan.load_model", lambda args, reporter: "the model")
    path = str(tmp_path / "rates.json")
    how = ("--measure", "--model", "mine", "--seconds", "2", "--measure-rows", "20k")
    said = call(*how, "--rate", path, "--rows", "1B", "--tokens", "30")
    assert asked[:2] == ["the model", "mine"]
    assert (asked[2].seconds, asked[2].rows) == (2.0, 20_000)
    assert [one.model for one in read_rates(Path(path))] == ["mine"]
    assert f"24,450 texts of 30 tokens a second; kept in {path}" in said
    assert "munjang: the machine was busy (load 7.5 on 8 cores)" in said
    assert capsys.readouterr().out.startswith("1B rows of 30 tokens")
