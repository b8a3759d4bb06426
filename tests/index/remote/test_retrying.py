"""Retries: what may pass is tried again, never more often than asked; what will not is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from munjang.errors import DataError, InputError
from munjang.index.remote.address import parse
from munjang.index.remote.engine import Unreachable
from munjang.index.remote.retrying import RetryingEngine


class _Flaky:
    """An engine that fails so many times, and one whose first answer to `create` is lost."""

    name, can_keyword, keyword_reason = "flaky", True, ""

    def __init__(self, failures: int, error: type[Exception] = Unreachable) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0
        self.made: dict[str, Any] | None = None

    def count(self) -> tuple[int, int]:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error("no answer")
        return 3, 4

    def create(self, header: Mapping[str, Any], dimension: int, similarity: str) -> None:
        self.calls += 1
        if self.made is not None:
            raise InputError("there is one already")
        self.made = dict(header)
        if self.calls <= self.failures:
            raise Unreachable("the answer was lost")

    def header(self) -> dict[str, Any]:
        assert self.made is not None
        return self.made


def _retrying(engine: _Flaky, attempts: int) -> tuple[RetryingEngine, list[float]]:
    waits: list[float] = []
    address = parse(f"milvus://kim:geheim@h/i?attempts={attempts}")
    return RetryingEngine(engine, address, sleep=waits.append), waits  # type: ignore[arg-type]


def test_what_passes_is_waited_for_longer_each_time() -> None:
    engine, waits = _retrying(_Flaky(8), 9)
    assert engine.count() == (3, 4)
    assert len(waits) == 8
    for place, wait in enumerate(waits):
        whole = min(10.0, 0.2 * 2**place)
        assert whole / 2 <= wait <= whole


def test_after_the_last_attempt_the_error_says_what_to_do() -> None:
    flaky = _Flaky(99)
    engine, waits = _retrying(flaky, 3)
    with pytest.raises(DataError, match="no answer; it was tried 3 times") as told:
        engine.count()
    assert (flaky.calls, len(waits)) == (3, 2)
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize("error", [InputError, DataError, RuntimeError])
def test_what_does_not_pass_is_told_at_once(error: type[Exception]) -> None:
    flaky = _Flaky(1, error)
    engine, waits = _retrying(flaky, 5)
    with pytest.raises(error):
        engine.count()
    assert (flaky.calls, waits) == (1, [])


def test_a_creation_whose_answer_was_lost_is_ours() -> None:
    engine, _ = _retrying(_Flaky(1), 5)
    engine.create({"name": "abc"}, 3, "cosine")
    other = _Flaky(0)
    other.made = {"name": "of somebody else"}
    engine, _ = _retrying(other, 5)
    with pytest.raises(InputError, match="already"):
        engine.create({"name": "abc"}, 3, "cosine")
