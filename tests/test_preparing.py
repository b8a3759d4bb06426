"""Preparing windows: in order, whoever does it, a few ahead and no more."""

from __future__ import annotations

import random
import threading
import time

import pytest

from munjang.preparing import AHEAD, in_a_thread, in_turns


def _slow(name: str, seed: int):
    delays = random.Random(seed)

    def prepare(items: list[int]) -> tuple[str, list[int]]:
        time.sleep(delays.random() * 0.004)
        return name, items

    return prepare


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [0, 1, 2, 3, 25])
def test_windows_come_in_order_whoever_prepares_them(count: int, seed: int) -> None:
    source = [[i] for i in range(count)]
    made = list(in_turns(iter(source), _slow("here", seed), _slow("beside", seed + 1)))
    assert [items for _, items in made] == source
    if count:
        assert made[0][0] == "here", "the device starts as soon as it can"
    if count == 25:
        assert {name for name, _ in made} == {"here", "beside"}
    assert [items for _, items in in_turns(iter(source), _slow("here", seed), None)] == source
    threaded = list(in_a_thread(iter(source), _slow("thread", seed)))
    assert [items for (_, items), _ in threaded] == source
    assert [last for _, last in threaded] == [i == count - 1 for i in range(count)]


def test_a_slow_helper_is_waited_for_and_little_is_pulled_ahead() -> None:
    pulled = 0

    def source():
        nonlocal pulled
        for i in range(30):
            pulled += 1
            yield [i]

    def slow(items: list[int]) -> list[int]:
        time.sleep(0.02)
        return items

    for done, items in enumerate(in_turns(source(), lambda items: items, slow)):
        assert items == [done]
        assert pulled <= done + AHEAD + 3


@pytest.mark.parametrize("way", ["thread", "turns", "helper"])
def test_errors_reach_the_caller_and_threads_end(way: str) -> None:
    def broken(items: list[int]) -> list[int]:
        if items == [3]:
            raise ValueError("window 3")
        return items

    before = threading.active_count()
    source = iter([[i] for i in range(9)])
    made = {
        "thread": lambda: in_a_thread(source, broken),
        "turns": lambda: in_turns(source, broken, None),
        "helper": lambda: in_turns(source, broken, broken),
    }[way]()
    with pytest.raises(ValueError, match="window 3"):
        list(made)
    assert threading.active_count() == before
