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
from munjang.cli.progress import Reporter
from munjang.report.tables import shorten, table, width


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


def test_lines_and_bars_share_the_screen() -> None:
    screen = Terminal()
    reporter = Reporter(screen)
    update = reporter.progress(100)
    update(10, None)
    reporter.say("between")
    update(20, None)
    reporter.close()
    assert "20/100" in screen.getvalue()
    assert "between\n" in screen.getvalue()


def test_quiet_leaves_warnings() -> None:
    log = io.StringIO()
    reporter = Reporter(log, quiet=True)
    reporter.progress(10)(5, None)
    reporter.show("status")
    reporter.say("no")
    reporter.warn("yes")
    assert log.getvalue() == "munjang: yes\n"


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
