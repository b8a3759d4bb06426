"""What people read: tables, progress, `munjang info`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.cli import main
from munjang.cli.info import pretty
from munjang.cli.progress import Reporter, duration, progress_line
from munjang.cli.tables import shorten, table, width


@pytest.mark.parametrize(
    ("text", "cells"), [("abc", 3), ("가나", 4), ("ｱ", 1), ("Ａ", 2), ("e\u0301", 1), ("", 0), ("a\u200db", 2)]
)
def test_width(text: str, cells: int) -> None:
    assert width(text) == cells


@given(st.text(max_size=30), st.integers(1, 20))
def test_shortened_texts_fit(text: str, cells: int) -> None:
    short = shorten(text, cells)
    assert width(short) <= cells
    assert not set(short) & set("\n\r\t\x1b\u2028")


def test_shorten() -> None:
    assert shorten("가나다라", 8) == "가나다라"
    assert shorten("가나다라", 7) == "가나다…"
    assert shorten("가나다라", 6) == "가나…"
    assert shorten("한\n글", 9) == "한 글"  # composed, on one line


def test_table() -> None:
    shown = table([["", "점수"], ["가나", "1.5"], ["abc", "10.25"]], right=(1,))
    assert shown.splitlines() == ["       점수", "가나    1.5", "abc   10.25"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_drawn_again() -> None:
    now = [0.0]
    screen = Terminal()
    reporter = Reporter(screen, clock=lambda: now[0])
    update = reporter.progress(100)
    for done in (10, 15, 20):  # the first 10 may have been done by an earlier run
        now[0] += 1.0
        update(done, None)
    reporter.say("end")
    lines = screen.getvalue().split("\r")
    assert lines[-1] == "end\n"
    assert lines[1].strip().endswith("10 of 100 texts")
    assert lines[3].strip().endswith("20 of 100 texts, 5 texts/s, 16 s to go")
    assert "\n" not in "".join(lines[:-1])


def test_a_log_gets_a_line_now_and_then() -> None:
    now = [0.0]
    log = io.StringIO()
    update = Reporter(log, clock=lambda: now[0]).progress(None)
    for second in range(60):
        now[0] = float(second)
        update(second * 10, None)
    assert log.getvalue().splitlines()[0] == "150 texts, 10 texts/s"
    assert len(log.getvalue().splitlines()) == 3


def test_the_speed_is_that_of_the_last_half_minute() -> None:
    now = [0.0]
    log = io.StringIO()
    update = Reporter(log, clock=lambda: now[0]).progress(None)
    for second, done in [(1, 0), (2, 1_000_000), (20, 1_000_018), (40, 1_000_038)]:  # a million by an earlier run
        now[0] = float(second)
        update(done, None)
    assert log.getvalue().splitlines()[-1] == "1,000,038 texts, 1 texts/s"


def test_quiet_leaves_warnings() -> None:
    log = io.StringIO()
    now = [0.0]
    reporter = Reporter(log, quiet=True, clock=lambda: now[0])
    update = reporter.progress(10)
    now[0] = 100.0
    update(5, None)
    reporter.say("no")
    reporter.warn("yes")
    assert log.getvalue() == "munjang: yes\n"


def test_progress_line() -> None:
    assert progress_line(50, 100, rate=10) == "[############............]  50%  50 of 100 texts, 10 texts/s, 5 s to go"
    assert progress_line(100, 100, rate=10).endswith("100 of 100 texts, 10 texts/s")
    assert progress_line(0, 100, rate=0).endswith("0 of 100 texts")
    assert [duration(s) for s in (5, 65, 7265)] == ["5 s", "1 min 05 s", "2 h 01 min"]


def test_info_on_a_model(small: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "m", "--device", "cpu"]) == 0
    assert small.options["name"] == "m"
    assert capsys.readouterr().out.splitlines() == [
        "family      small",
        "dimension   3",
        "parameters  1,234,567",
        "prompts",
        "  질문  query:",
        "notes       a",
    ]
    assert main(["info", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == small.describe()


def test_info_on_this_computer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert "cores usable here" in capsys.readouterr().out
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"]["torch"]


def test_pretty() -> None:
    long = "a sentence that takes a line of its own"
    found = {"none": None, "empty": {}, "yes": True, "list": [1, 2], "items": [{"a": 1, "b": "x"}], "notes": [long]}
    expected = ["none   none", "empty  none", "yes    yes", "list   1, 2", "items", "  - a: 1, b: x", "notes"]
    assert pretty(found).splitlines() == [*expected, f"  - {long}"]
