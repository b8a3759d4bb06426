"""The engine: order, bounded memory, threads, errors, early ends."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.engine import Engine, Plan, plan_for
from munjang.text.packing import Batch, Tokens


def _tokenise(items: list[list[int]]) -> Tokens:
    lengths = np.array([len(item) for item in items], np.int32)
    ids = np.array([i for item in items for i in item], np.int32)
    return Tokens(ids, lengths, 0, int(lengths.max(initial=0)))


def _compute(batch: Batch) -> torch.Tensor:
    """A row's sum and its length: wrong at once if rows or tokens are mixed up."""
    rows = np.split(batch.ids, np.cumsum(batch.lengths)[:-1])
    return torch.tensor([[float(row.sum()), float(len(row))] for row in rows])


def _engine(workers: int, budget: int = 16, compute=_compute) -> Engine[list[int]]:
    plan = Plan(window_texts=8, window_characters=10**6, budget=budget, workers=workers)
    return Engine(_tokenise, compute, width=2, device=torch.device("cpu"), plan=plan)


sequences = st.lists(st.integers(0, 1000), min_size=1, max_size=20)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(sequences, min_size=1, max_size=12), max_size=6), st.integers(1, 3), st.integers(1, 40))
def test_rows_come_back_in_order(windows: list[list[list[int]]], workers: int, budget: int) -> None:
    told: list[int] = []
    results = list(_engine(workers, budget).run(windows, told.append))
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

    running = _engine(2).run(windows())
    for done in range(1, 20):
        next(running)
        assert pulled <= done + 4
    running.close()


def test_an_error_in_a_worker_reaches_the_caller_and_ends_the_threads() -> None:
    def broken(batch: Batch) -> torch.Tensor:
        raise RuntimeError("the device is on fire")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="on fire"):
        list(_engine(2, compute=broken).run([[[1, 2], [3] * 20], [[4]]]))
    assert threading.active_count() == before


def test_stopping_early_ends_the_threads() -> None:
    before = threading.active_count()
    running = _engine(2).run([[[i], [i] * 15, [i] * 9] for i in range(100)])
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

    list(_engine(2, budget=2, compute=look).run([[[1, 2]] * 6]))
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

    list(_engine(2, compute=look).run([[[1, 2]]]))
    list(_engine(1, compute=look).run([[[1, 2]]]))
    assert seen[0] == threading.current_thread().name
    assert seen[1].startswith("munjang-encode"), "one thread asked for means one, in a worker"


def test_plans_fit_the_device() -> None:
    assert plan_for(torch.device("cpu"), 3).workers == 3
    assert plan_for(torch.device("meta"), 3).workers == 0


def test_what_is_not_a_cpu_gets_its_rows_back_in_order_too() -> None:
    """The way of a GPU, with a device that computes at once."""
    plan = Plan(window_texts=8, window_characters=10**6, budget=16, workers=0)
    windows = [[[i, j] * (j + 1) for j in range(5)] for i in range(7)]
    for beside in (None, _tokenise):
        engine = Engine(_tokenise, _compute, width=2, device=torch.device("cpu"), plan=plan, beside=beside)
        engine._cpu = False
        told: list[int] = []
        for window, result in zip(windows, engine.run(windows, told.append), strict=True):
            assert result.rows.tolist() == [[sum(row), len(row)] for row in window]
        assert sum(told) == 35
