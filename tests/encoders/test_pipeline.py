"""The encoding pipeline: order, bounded memory, threads, errors, early ends."""

from __future__ import annotations

import itertools
import random
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.encoders import runtime as pipeline
from munjang.encoders.runtime import (
    CallOptions,
    Plan,
    plan_for,
    run_windows,
    split_windows,
    tokenize_in_thread,
    tokenize_in_turns,
)
from munjang.text.packing import Batch, Tokens


def _tokenise(items: list[list[int]]) -> Tokens:
    lengths = np.array([len(item) for item in items], np.int32)
    ids = np.array([i for item in items for i in item], np.int32)
    return Tokens(ids, lengths, 0, int(lengths.max(initial=0)))


def _compute(batch: Batch) -> torch.Tensor:
    """A row's sum and its length: wrong at once if rows or tokens are mixed up."""
    rows = np.split(batch.ids, np.cumsum(batch.lengths)[:-1])
    return torch.tensor([[float(row.sum()), float(len(row))] for row in rows])


class _Runtime:
    """A device that computes at once."""

    device = torch.device("cpu")

    def __init__(self, compute=_compute) -> None:
        self._compute = compute

    def tokenize(self, items, call, *, by_words=True):
        return _tokenise(items)

    def forward(self, batch, call):
        return self._compute(batch)

    def ensure_finite(self, rows, batches, call):
        return rows, 0


def _run(windows, workers: int, budget: int = 16, compute=_compute, on_done=lambda n: None):
    plan = Plan(window=(8, 10**6), budget=budget, workers=workers)
    return run_windows(_Runtime(compute), windows, CallOptions(), width=2, plan=plan, on_done=on_done)


sequences = st.lists(st.integers(0, 1000), min_size=1, max_size=20)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(sequences, min_size=1, max_size=12), max_size=6), st.integers(1, 3), st.integers(1, 40))
def test_rows_come_back_in_order(windows: list[list[list[int]]], workers: int, budget: int) -> None:
    told: list[int] = []
    results = list(_run(windows, workers, budget, on_done=told.append))
    assert len(results) == len(windows)
    for window, result in zip(windows, results, strict=True):
        assert result.rows.tolist() == [[sum(row), len(row)] for row in window]
        assert result.tokens == sum(map(len, window))
    assert sum(told) == sum(map(len, windows))


def test_at_most_a_few_windows_are_pulled_ahead() -> None:
    pulled = 0

    def windows():
        nonlocal pulled
        for i in range(50):
            pulled += 1
            yield [[i]]

    running = _run(windows(), 2)
    for done in range(1, 20):
        next(running)
        assert pulled <= done + 4
    running.close()


def test_an_error_in_a_worker_reaches_the_caller_and_ends_the_threads() -> None:
    def broken(batch: Batch) -> torch.Tensor:
        raise RuntimeError("the device is on fire")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="on fire"):
        list(_run([[[1, 2], [3] * 20], [[4]]], 2, compute=broken))
    assert threading.active_count() == before


def test_stopping_early_ends_the_threads() -> None:
    before = threading.active_count()
    running = _run([[[i], [i] * 15, [i] * 9] for i in range(100)], 2)
    next(running)
    running.close()
    assert threading.active_count() == before


def test_workers_leave_the_callers_threads_alone() -> None:
    everyone = torch.get_num_threads()
    seen: list[int] = []

    def look(batch: Batch) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        time.sleep(0.01)
        return _compute(batch)

    list(_run([[[1, 2]] * 6], 2, budget=2, compute=look))
    assert set(seen) == {1}, "a worker has one intra-op thread"
    assert torch.get_num_threads() == everyone
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [everyone], "threads started later have the usual number"


def test_one_batch_keeps_the_intra_op_threads() -> None:
    seen: list[str] = []

    def look(batch: Batch) -> torch.Tensor:
        seen.append(threading.current_thread().name)
        return _compute(batch)

    list(_run([[[1, 2]]], 2, compute=look))
    list(_run([[[1, 2]]], 1, compute=look))
    assert seen[0] == threading.current_thread().name
    assert seen[1].startswith("munjang-encode"), "one thread asked for means one, in a worker"


def test_plans_fit_the_device() -> None:
    assert plan_for(torch.device("cpu"), 3).workers == 3
    assert plan_for(torch.device("meta"), 3).workers == 0


@pytest.mark.parametrize("cores", [1, 64])
def test_an_accelerator_gets_its_rows_back_in_order(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU, with a device that computes at once; many cores tokenize in a second thread too."""
    monkeypatch.setattr(pipeline, "cpu_cores", lambda: cores)
    monkeypatch.setattr(pipeline, "_on_cpu", pipeline._on_accelerator)
    windows = [[[i, j] * (j + 1) for j in range(5)] for i in range(7)]
    done: list[int] = []
    for window, result in zip(windows, _run(windows, 0, on_done=done.append), strict=True):
        assert result.rows.tolist() == [[sum(row), len(row)] for row in window]
        assert list(result.items) == window
    assert sum(done) == 35


# --- windows ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30)), st.integers(1, 7), st.integers(1, 40))
def test_windows_hold_every_text_once_within_the_limits(texts: list[str], count: int, characters: int) -> None:
    windows = list(split_windows(iter(texts), len, count, characters))
    assert windows == list(split_windows(texts, len, count, characters)), "a list and an iterator are cut alike"
    assert [text for window in windows for text in window] == texts
    for window in windows:
        assert 1 <= len(window) <= count
        assert len(window) == 1 or sum(map(len, window)) <= characters


def test_windows_are_lazy() -> None:
    assert next(split_windows(itertools.repeat("text"), len, 3, 1000)) == ["text"] * 3


# --- who tokenizes ---------------------------------------------------------------------------------------------------


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
    made = list(tokenize_in_turns(iter(source), _slow("here", seed), _slow("beside", seed + 1)))
    assert [items for _, items in made] == source
    if count:
        assert made[0][0] == "here", "the device starts as soon as it can"
    if count == 25:
        assert {name for name, _ in made} == {"here", "beside"}
    assert [items for _, items in tokenize_in_turns(iter(source), _slow("here", seed), None)] == source
    threaded = list(tokenize_in_thread(iter(source), _slow("thread", seed)))
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

    for done, items in enumerate(tokenize_in_turns(source(), lambda items: items, slow)):
        assert items == [done]
        assert pulled <= done + pipeline.AHEAD + 3


@pytest.mark.parametrize("way", ["thread", "turns", "helper"])
def test_errors_reach_the_caller_and_threads_end(way: str) -> None:
    def broken(items: list[int]) -> list[int]:
        if items == [3]:
            raise ValueError("window 3")
        return items

    before = threading.active_count()
    source = iter([[i] for i in range(9)])
    made = {
        "thread": lambda: tokenize_in_thread(source, broken),
        "turns": lambda: tokenize_in_turns(source, broken, None),
        "helper": lambda: tokenize_in_turns(source, broken, broken),
    }[way]()
    with pytest.raises(ValueError, match="window 3"):
        list(made)
    assert threading.active_count() == before
