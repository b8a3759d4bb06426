"""Who is called when work comes, and queries that gather while every core is busy."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.serve import queues
from munjang.serve.answers import Answer
from munjang.serve.batching import Batcher, BatcherOptions
from munjang.serve.queues import GATHER_SECONDS, GATHER_TOKENS, Gathering
from munjang.text.fast_words import from_lists
from munjang.text.packing import Batch, Tokens


class Held:
    """A text's tokens are its characters, its value is their sum; texts that begin with B wait for the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.batches: list[list[str]] = []

    def characters(self, items: Sequence[str]) -> int:
        return sum(map(len, items))

    def tokenise(self, items: Sequence[str]) -> Tokens:
        ids, lengths = from_lists([[ord(letter) for letter in item] for item in items])
        return Tokens(ids, lengths, 0, 0)

    def empty(self, count: int, kind: Hashable) -> Any:
        return np.full((count, 1), np.nan, np.float32)

    def compute(self, batch: Batch, kind: Hashable) -> Sequence[np.ndarray[Any, Any]]:
        rows = np.split(batch.ids, np.cumsum(batch.lengths)[:-1])
        texts = ["".join(map(chr, row)) for row in rows]
        self.batches.append(texts)
        if any(text.startswith("B") for text in texts):
            assert self.gate.wait(20)
        return [np.array([sum(map(ord, text))], np.float32) for text in texts]


async def until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_rare_queries_wait_for_nobody() -> None:
    gathering = Gathering()
    for second in range(1, 20):
        gathering.add(5, float(second))
        assert gathering.left(float(second)) == 0
        gathering.taken()


def frequent(gathering: Gathering, *, until_s: float, gap: float = 0.005) -> None:
    for step in range(200, 0, -1):
        gathering.add(1, until_s - step * gap)
        gathering.taken()


def test_frequent_queries_wait_from_the_first_that_stands_there() -> None:
    gathering = Gathering()
    frequent(gathering, until_s=100.0)
    gathering.add(5, 100.0)
    gathering.add(5, 100.0 + GATHER_SECONDS / 2)  # does not put the first one off
    assert gathering.left(100.0 + GATHER_SECONDS / 2) == pytest.approx(GATHER_SECONDS / 2)
    assert gathering.left(100.0 + GATHER_SECONDS) == pytest.approx(0, abs=1e-9)
    gathering.add(GATHER_TOKENS, 100.0 + GATHER_SECONDS / 2)
    assert gathering.left(100.0 + GATHER_SECONDS / 2) == 0  # enough for a batch
    gathering.taken()
    gathering.add(5, 100.1)
    assert gathering.left(100.1) == pytest.approx(GATHER_SECONDS)
    gathering.taken()
    gathering.add(5, 110.0)
    assert gathering.left(110.0) == 0  # after a long silence another is not to be expected


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 50), st.booleans()), max_size=60), st.floats(0, 2))
def test_nobody_waits_longer_than_the_limit(steps: list[tuple[float, int, bool]], later: float) -> None:
    gathering, now = Gathering(), 50.0
    for gap, tokens, taken in steps:
        now += gap
        gathering.add(tokens, now)
        assert 0 <= gathering.left(now) <= GATHER_SECONDS
        if taken:
            gathering.taken()
    assert 0 <= gathering.left(now + later) <= max(0.0, GATHER_SECONDS - later) + 1e-9


def ask_while_busy(work: Held, batcher: Batcher, texts: Sequence[str], gap: float) -> list[Answer]:
    """Queries that come one after the other while the only worker for everything is held up."""

    async def ask() -> list[Answer]:
        bulk = asyncio.create_task(batcher.submit(["Bulk"], priority="bulk"))
        await until(lambda: ["Bulk"] in work.batches)
        tasks = []
        for text in texts:
            tasks.append(asyncio.create_task(batcher.submit([text])))
            await asyncio.sleep(gap)
        answers = await asyncio.gather(*tasks)  # although the other worker is still busy
        assert not bulk.done()
        work.gate.set()
        await bulk
        return list(answers)

    try:
        return asyncio.run(ask())
    finally:
        work.gate.set()
        batcher.close(5)


def test_queries_gather_while_every_worker_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "GATHER_SECONDS", 0.3)
    work, texts = Held(), [f"질문 {n}" for n in range(30)]
    batcher = Batcher(work, BatcherOptions(max_tokens=1000, max_queue_tokens=10_000, express=True))
    answers = ask_while_busy(work, batcher, texts, 0.004)
    assert [answer.values.tolist() for answer in answers] == [[[float(sum(map(ord, text)))]] for text in texts]
    assert len(work.batches) - 1 < len(texts) / 2  # alone they would be thirty


def test_queries_that_come_seldom_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "GATHER_SECONDS", 0.01)
    work = Held()
    batcher = Batcher(work, BatcherOptions(max_tokens=1000, max_queue_tokens=10_000, express=True))
    ask_while_busy(work, batcher, ["one", "둘", "three"], 0.1)
    assert sorted(work.batches[1:]) == sorted([["one"], ["둘"], ["three"]])


def test_only_as_many_workers_are_called_as_there_is_work_for(monkeypatch: pytest.MonkeyPatch) -> None:
    work, called = Held(), []
    batcher = Batcher(work, BatcherOptions(max_tokens=8, max_queue_tokens=10_000, workers=3, express=True))
    notify, notify_urgent = batcher._ready.notify, batcher._urgent.notify
    monkeypatch.setattr(batcher._ready, "notify", lambda count=1: (called.append(("any", count)), notify(count)))
    monkeypatch.setattr(batcher._urgent, "notify", lambda: (called.append(("express", 1)), notify_urgent()))
    try:
        asyncio.run(until(lambda: batcher._asleep))

        asyncio.run(batcher.submit(["query"]))
        assert called == [("express", 1), ("any", 0)]

        called.clear()
        asyncio.run(until(lambda: batcher._asleep))
        asyncio.run(batcher.submit(["1", "2"], priority="bulk"))  # fits into one piece
        assert called == [("any", 1)]
    finally:
        monkeypatch.undo()
        batcher.close(5)


def test_closing_does_not_leave_the_worker_for_queries_asleep() -> None:
    work = Held()
    batcher = Batcher(work, BatcherOptions(max_tokens=8, max_queue_tokens=10_000, express=True))

    async def ask() -> None:
        tasks = [asyncio.create_task(batcher.submit([f"Bulk {n}"], priority="bulk")) for n in range(3)]
        await until(lambda: batcher.stats().waiting_requests == 3)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close, 20))
        await asyncio.sleep(0.05)  # it has been called, has found only bulk, and sleeps again
        work.gate.set()
        await asyncio.gather(*tasks)
        started = time.monotonic()
        await closing
        assert time.monotonic() - started < 5

    asyncio.run(ask())
