"""Progress: functions, bars on a terminal, lines in a log, and how durations read."""

from __future__ import annotations

import io
import threading
import time

import pytest

from munjang.progress import ProgressBar, duration, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_function_gets_the_count_and_the_total() -> None:
    calls: list[tuple[int, int | None]] = []
    with track(lambda done, total: calls.append((done, total)), 5) as advance:
        advance(2)
        advance(0)
        advance(3)
    assert calls == [(2, 5), (5, 5)]


def test_threads_count_together() -> None:
    last = 0

    def report(done: int, total: int | None) -> None:
        nonlocal last
        last = done

    with track(report, None) as advance:
        threads = [threading.Thread(target=lambda: [advance(1) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert last == 2000


def test_a_terminal_gets_a_bar_and_a_log_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Terminal(), "4/4"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stderr", stream)
        with track(True, 4, unit="rows") as advance:
            advance(4)
        assert expected in stream.getvalue()
        assert bool(stream.getvalue()) == bool(expected)


def test_lines_at_intervals_with_the_recent_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = io.StringIO()
    bar = ProgressBar(stream=log, log_interval=15.0)
    # A million texts were done by an earlier run: they do not count as speed for long.
    for second, done in [(1, 0), (2, 1_000_000), (20, 1_000_018), (40, 1_000_038)]:
        now[0] = float(second)
        bar.update(done, 1_000_138)
    lines = log.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[-1] == "1,000,038 of 1,000,138 texts (100%), 1 texts/s, 1 min 40 s left"


def test_a_cleared_bar_is_drawn_again() -> None:
    screen = Terminal()
    bar = ProgressBar(stream=screen, keep=False)
    bar.update(1, 10)
    bar.clear()
    screen.write("a line\n")
    bar.update(10, 10)
    bar.close()
    bar.close()
    assert "a line\n" in screen.getvalue()
    assert "0/10" in screen.getvalue().split("a line")[0]
    assert "10/10" in screen.getvalue().split("a line")[1]


def test_durations() -> None:
    assert [duration(value) for value in (0.04, 9.9, 42, 59.7, 185, 7_800)] == [
        "0.0 s", "9.9 s", "42 s", "1 min 00 s", "3 min 05 s", "2 h 10 min",
    ]  # fmt: skip
