"""The micro-batcher over a model whose values can be told in advance and whose batches can be held up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.serve.batching import BULK_SHARE, Batcher, BatcherOptions
from munjang.serve.errors import DeadlinePassed, Overloaded, TooLarge, Unready
from munjang.text.fast_words import from_lists
from munjang.text.packing import Batch, Tokens

MAX_LENGTH = 40


class Letters:
    """A text's tokens are its characters; its value is (their sum, their number). `gate` holds batches up."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)
        self.batches: list[list[str]] = []
        self.poison: str | None = None

    def characters(self, items: Sequence[str]) -> int:
        return sum(map(len, items))

    def tokenise(self, items: Sequence[str]) -> Tokens:
        rows = [[ord(letter) for letter in item[:MAX_LENGTH]] or [0] for item in items]
        ids, lengths = from_lists(rows)
        return Tokens(ids, lengths, sum(len(item) > MAX_LENGTH for item in items), max(map(len, items), default=0))

    def empty(self, count: int, kind: Hashable) -> Any:
        return np.full((count, 2), np.nan, np.float32)

    def compute(self, batch: Batch, kind: Hashable) -> Sequence[np.ndarray[Any, Any]]:
        rows = np.split(batch.ids, np.cumsum(batch.lengths)[:-1])
        texts = ["".join(map(chr, row)) for row in rows]
        self.batches.append(texts)
        self.started.release()
        assert self.gate.wait(20)
        if self.poison in texts:
            raise RuntimeError(f"cannot compute {self.poison}")
        return [value_of(text, kind) for text in texts]


def value_of(text: str, kind: Hashable = None) -> np.ndarray[Any, Any]:
    ids = [ord(letter) for letter in text[:MAX_LENGTH]] or [0]
    return np.array([sum(ids) + 1000 * hash(kind) if kind else sum(ids), len(ids)], np.float32)


@contextmanager
def open_batcher(work: Letters, **options: Any) -> Iterator[Batcher]:
    batcher = Batcher(work, BatcherOptions(**({"max_tokens": 64, "max_queue_tokens": 100_000} | options)))
    try:
        yield batcher
    finally:
        work.gate.set()
        batcher.close(5)


async def until(condition: Any) -> None:
    """Wait until something is so, or fail."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


words = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7A3, exclude_categories=("Cs",)), max_size=60)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(st.lists(words, max_size=12), st.sampled_from([None, "query", "bulk"])), max_size=12),
    st.integers(1, 200),
    st.integers(1, 3),
)
def test_every_answer_is_its_own(requests: list[tuple[list[str], Any]], budget: int, workers: int) -> None:
    work = Letters()

    async def ask_all(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(*(batcher.submit(items, priority=priority) for items, priority in requests))

    with open_batcher(work, max_tokens=budget, workers=workers, express=workers > 1) as batcher:
        answers = asyncio.run(ask_all(batcher))
        stats = batcher.stats()
    for (items, _), answer in zip(requests, answers, strict=True):
        expected = np.stack([value_of(item) for item in items]) if items else np.zeros((0, 2))
        np.testing.assert_array_equal(answer.values, expected)
        assert answer.tokens == sum(max(1, min(len(item), MAX_LENGTH)) for item in items)
        assert answer.truncated == sum(len(item) > MAX_LENGTH for item in items)
    for batch in work.batches:
        largest = max(max(1, len(text)) for text in batch)
        assert sum(max(1, len(text)) for text in batch) <= max(budget, largest)
    assert stats.waiting_tokens == stats.waiting_requests == 0
    assert stats.items == sum(map(len, work.batches))


def test_no_batch_waits_for_a_clock_and_the_next_gathers_while_one_runs() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        first = asyncio.create_task(batcher.submit(["첫째"]))
        await until(lambda: len(work.batches) == 1)
        rest = [asyncio.create_task(batcher.submit([f"문장 {n}"])) for n in range(5)]
        await until(lambda: batcher.stats().waiting_requests == 6)
        work.gate.set()
        await asyncio.gather(first, *rest)

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))
    assert work.batches[0] == ["첫째"]
    assert sorted(work.batches[1]) == [f"문장 {n}" for n in range(5)]
    assert len(work.batches) == 2


def test_queries_before_bulk_and_bulk_has_its_share() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        tasks = [asyncio.create_task(batcher.submit(["blocker"]))]
        await until(lambda: len(work.batches) == 1)
        tasks += [asyncio.create_task(batcher.submit([f"b{n}" + "x" * 14], priority="bulk")) for n in range(3)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(batcher.submit([f"q{n}" + "y" * 14], priority="query")) for n in range(8)]
        await until(lambda: batcher.stats().waiting_requests == 12)
        work.gate.set()
        await asyncio.gather(*tasks)

    with open_batcher(work, max_tokens=16) as batcher:
        asyncio.run(ask(batcher))
    order = "".join(batch[0][0] for batch in work.batches[1:])
    assert len(order) == 11
    assert order.startswith("q")
    first_bulk = order.index("b")
    assert first_bulk <= BULK_SHARE - 1  # the blocker was a query, too
    assert "q" in order[first_bulk:]  # queries still came before the rest of bulk
    assert order.count("b", 0, 2 * BULK_SHARE) >= 2


def test_bulk_requests_take_turns() -> None:
    work = Letters()
    finished: list[str] = []

    async def one(batcher: Batcher, name: str, count: int) -> None:
        await batcher.submit([f"{name}{n:02}" + "." * 13 for n in range(count)], priority="bulk")
        finished.append(name)

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        tasks = [asyncio.create_task(one(batcher, "long", 40))]
        await until(lambda: len(work.batches) == 1)
        tasks.append(asyncio.create_task(one(batcher, "short", 2)))
        await until(lambda: batcher.stats().waiting_requests == 2)
        work.gate.set()
        await asyncio.gather(*tasks)

    with open_batcher(work, max_tokens=40) as batcher:
        asyncio.run(ask(batcher))
    assert finished == ["short", "long"]


def test_a_query_does_not_wait_for_running_bulk() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        bulk = asyncio.create_task(batcher.submit(["bulk" * 9] * 1, priority="bulk"))
        await until(lambda: len(work.batches) == 1)
        query = asyncio.create_task(batcher.submit(["query"]))
        await until(lambda: ["query"] in work.batches)  # it began although the only other worker is busy
        work.gate.set()
        await asyncio.gather(bulk, query)

    with open_batcher(work, express=True) as batcher:
        asyncio.run(ask(batcher))


def test_whole_requests_are_admitted_or_refused() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = asyncio.create_task(batcher.submit(["running"]))
        await until(lambda: len(work.batches) == 1)
        waiting = asyncio.create_task(batcher.submit([f"{n}" * 10 for n in range(9)]))
        await until(lambda: batcher.stats().waiting_tokens == 90)
        with pytest.raises(Overloaded) as refusal:
            await batcher.submit(["a" * 8, "b" * 8])
        assert refusal.value.retry_after >= 1
        assert refusal.value.headers["Retry-After"].isdigit()
        assert batcher.stats().waiting_tokens == 90  # no part of it is in line
        small = asyncio.create_task(batcher.submit(["c" * 8]))
        await until(lambda: batcher.stats().waiting_tokens == 98)
        work.gate.set()
        await asyncio.gather(running, waiting, small)

    with open_batcher(work, max_queue_tokens=100) as batcher:
        with pytest.raises(TooLarge, match="100 tokens may wait"):  # trying again would not help
            asyncio.run(batcher.submit([chr(65 + n) * 30 for n in range(5)]))
        asyncio.run(ask(batcher))
        assert batcher.stats().refused >= 1


def test_a_request_has_its_own_limit() -> None:
    with open_batcher(Letters(), max_request_tokens=50) as batcher:
        with pytest.raises(TooLarge, match="may have 50 tokens, this one has 60"):
            asyncio.run(batcher.submit(["a" * 30, "b" * 30]))
        assert asyncio.run(batcher.submit(["a" * 30, "b" * 20])).tokens == 50


def test_the_deadline_passes_and_what_waited_is_not_computed() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = asyncio.create_task(batcher.submit(["running"]))
        await until(lambda: len(work.batches) == 1)
        started = time.perf_counter()
        with pytest.raises(DeadlinePassed, match=r"0\.05 s"):
            await batcher.submit(["too late"], deadline=0.05)
        assert time.perf_counter() - started < 2
        assert batcher.stats().waiting_tokens == 0
        work.gate.set()
        await running
        await batcher.submit(["after"])

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))
        assert batcher.stats().dropped == 1
    assert ["too late"] not in work.batches


@pytest.mark.parametrize("how", ["task", "asked"])
def test_what_a_client_that_went_away_waited_for_is_not_computed(how: str) -> None:
    work = Letters()
    gone = threading.Event()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = asyncio.create_task(batcher.submit(["running"]))
        await until(lambda: len(work.batches) == 1)
        leaver = asyncio.create_task(batcher.submit(["leaver", "both"], cancelled=gone.is_set, deadline=1))
        stayer = asyncio.create_task(batcher.submit(["both"]))
        await until(lambda: batcher.stats().waiting_requests == 3)
        if how == "task":
            leaver.cancel()
        else:
            gone.set()
        await asyncio.sleep(0.02)
        work.gate.set()
        await running
        np.testing.assert_array_equal((await stayer).values, [value_of("both")])
        with pytest.raises((asyncio.CancelledError, DeadlinePassed)):
            await leaver

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))
    computed = [text for batch in work.batches for text in batch]
    assert "leaver" not in computed
    assert computed.count("both") == 1


def test_the_same_item_in_flight_is_computed_once() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = [asyncio.create_task(batcher.submit(["같은 문장", "같은 문장"]))]
        await until(lambda: len(work.batches) == 1)
        running += [asyncio.create_task(batcher.submit(["같은 문장"])) for _ in range(3)]
        running.append(asyncio.create_task(batcher.submit(["다른 문장", "같은 문장"], priority="bulk")))
        running.append(asyncio.create_task(batcher.submit(["다른 문장"], priority="query")))
        await until(lambda: batcher.stats().waiting_requests == 6)
        work.gate.set()
        for answer in await asyncio.gather(*running[:4]):
            np.testing.assert_array_equal(answer.values, [value_of("같은 문장")] * len(answer.values))
        mixed = await running[4]
        np.testing.assert_array_equal(mixed.values, [value_of("다른 문장"), value_of("같은 문장")])
        await running[5]
        again = await batcher.submit(["같은 문장"])  # nothing is in flight any more: it is computed anew
        np.testing.assert_array_equal(again.values, [value_of("같은 문장")])

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))
        assert batcher.stats().joined == 5
    everything = [text for batch in work.batches for text in batch]
    assert everything.count("같은 문장") == 2
    assert everything.count("다른 문장") == 1


def test_different_kinds_are_never_in_one_batch() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = asyncio.create_task(batcher.submit(["running"]))
        await until(lambda: len(work.batches) == 1)
        tasks = [asyncio.create_task(batcher.submit([f"t{n}", "same"], kind=n % 2 + 1)) for n in range(6)]
        await until(lambda: batcher.stats().waiting_requests == 7)
        work.gate.set()
        await running
        for number, answer in enumerate(await asyncio.gather(*tasks)):
            kind = number % 2 + 1
            np.testing.assert_array_equal(answer.values, [value_of(f"t{number}", kind), value_of("same", kind)])

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))


def test_one_bad_item_fails_its_own_request_alone() -> None:
    work = Letters()
    work.poison = "poison"

    async def ask(batcher: Batcher) -> None:
        work.gate.clear()
        running = asyncio.create_task(batcher.submit(["running"]))
        await until(lambda: len(work.batches) == 1)
        bad = asyncio.create_task(batcher.submit(["good too", "poison"]))
        good = asyncio.create_task(batcher.submit(["good", "good too"]))
        await until(lambda: batcher.stats().waiting_requests == 3)
        work.gate.set()
        await running
        with pytest.raises(RuntimeError, match="cannot compute poison"):
            await bad
        np.testing.assert_array_equal((await good).values, [value_of("good"), value_of("good too")])

    with open_batcher(work) as batcher:
        asyncio.run(ask(batcher))
        assert batcher.stats().waiting_requests == 0


def test_closing_finishes_what_was_admitted_and_takes_no_more() -> None:
    work = Letters()
    batcher = Batcher(work, BatcherOptions(max_tokens=8, max_queue_tokens=1000, workers=2, express=True))

    async def ask() -> None:
        work.gate.clear()
        tasks = [asyncio.create_task(batcher.submit([f"text {n}", f"글 {n}"])) for n in range(6)]
        await until(lambda: batcher.stats().waiting_requests == 6)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.02)
        with pytest.raises(Unready, match="ending"):
            await batcher.submit(["late"])
        work.gate.set()
        for number, answer in enumerate(await asyncio.gather(*tasks)):
            np.testing.assert_array_equal(answer.values, [value_of(f"text {number}"), value_of(f"글 {number}")])
        await closing

    asyncio.run(ask())


def test_closing_gives_up_after_its_time() -> None:
    work = Letters()
    batcher = Batcher(work, BatcherOptions(max_tokens=8, max_queue_tokens=1000))

    async def ask() -> None:
        work.gate.clear()
        tasks = [asyncio.create_task(batcher.submit([name])) for name in ("running", "waiting")]
        await until(lambda: batcher.stats().waiting_requests == 2)
        await asyncio.to_thread(batcher.close, 0.05)
        for task in tasks:
            with pytest.raises(Unready, match="ended"):
                await task

    asyncio.run(ask())
    work.gate.set()


def test_the_time_is_told_in_its_parts() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> Any:
        work.gate.clear()
        first = asyncio.create_task(batcher.submit(["first"]))
        await until(lambda: len(work.batches) == 1)
        second = asyncio.create_task(batcher.submit(["second"]))
        await asyncio.sleep(0.1)
        work.gate.set()
        return (await first).timing, (await second).timing

    with open_batcher(work) as batcher:
        first, second = asyncio.run(ask(batcher))
    assert first.compute >= 0.09
    assert first.queue < 0.09
    assert second.queue >= 0.08
    assert second.compute < 0.09
    assert min(first.tokenise, second.tokenise) >= 0


def test_memory_stays_flat_when_twice_as_much_comes_as_can_be_done() -> None:
    work = Letters()

    async def ask(batcher: Batcher) -> int:
        refused = 0

        async def client(number: int) -> int:
            lost = 0
            for turn in range(20):
                try:
                    await batcher.submit([f"{number} {turn} {n}" for n in range(10)])
                except Overloaded:
                    lost += 1
                    await asyncio.sleep(0.001)
                assert batcher.stats().waiting_tokens <= 200
            return lost

        for lost in await asyncio.gather(*(client(n) for n in range(20))):
            refused += lost
        return refused

    with open_batcher(work, max_queue_tokens=200) as batcher:
        assert asyncio.run(ask(batcher)) > 0
        assert not batcher._inflight
