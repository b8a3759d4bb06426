"""The way of the data, once: texts -> windows -> token ids (in a thread) -> packed batches -> device -> rows in order.

Enters: an iterator of texts (or pairs) of any length, a function that tokenises a window of them, and a function that
computes one packed batch. Leaves: one float32 array per window, rows in input order. At most three windows are in
memory at a time, so that a stream of any length runs in bounded memory.

Texts are pulled in the caller's thread (a database cursor or a file may not like another one); tokenising runs beside
the device (`preparing.py`). On CUDA the batches of the next window are launched before the last one is waited for. On
the CPU, bulk work runs one worker thread per core, each with one intra-op thread, each taking packed batches: OpenMP
threads inside one matrix product wait for each other, and one busy neighbour halves or quarters them; workers do not. A
call that fits into one batch keeps the intra-op threads instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from munjang import forking
from munjang.forking import check_device, check_generation, computation
from munjang.nn.device import cpu_cores
from munjang.preparing import MANY_CORES, in_a_thread, in_turns
from munjang.text.packing import Batch, Tokens, pack

Item = TypeVar("Item")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Plan:
    """How much goes through at a time; chosen for the device by `plan_for`."""

    window_texts: int  # texts sorted and packed together
    window_characters: int  # the same, for long texts
    budget: int  # tokens in a batch
    workers: int  # CPU threads, each with a batch of its own; 0 where the device is not a CPU


@dataclass(frozen=True)
class Window:
    """The result of one window of inputs."""

    rows: Array  # float32 [n, width], in input order
    tokens: int
    truncated: int
    longest: int


def plan_for(device: torch.device, threads: int) -> Plan:
    """CPU: batches that stay near the caches. CUDA: batches that fill the chip, windows that overlap tokenising."""
    if device.type == "cpu":
        return Plan(window_texts=4096, window_characters=4 << 20, budget=1536, workers=threads)
    check_device(device.type)
    return Plan(window_texts=4096, window_characters=16 << 20, budget=_device_budget(device), workers=0)


def _device_budget(device: torch.device) -> int:
    """Tokens in a batch on a GPU: large ones need fewer launches, small memories smaller batches."""
    if device.type != "cuda":
        return 16_384
    gigabytes = torch.cuda.get_device_properties(device).total_memory / 2**30
    return 131_072 if gigabytes > 40 else 65_536 if gigabytes > 20 else 32_768


class Engine(Generic[Item]):
    """Runs `tokenise` and `compute` over a stream of inputs."""

    def __init__(
        self,
        tokenise: Callable[[Sequence[Item]], Tokens],
        compute: Callable[[Batch], Tensor],  # -> float32 [n, width] on the device
        *,
        width: int,
        device: torch.device,
        plan: Plan,
        beside: Callable[[Sequence[Item]], Tokens] | None = None,  # tokenises natively, without the interpreter
    ) -> None:
        self._tokenise = tokenise
        self._beside = beside
        self._compute = compute
        self._width = width
        self._device = device
        self._cpu = device.type == "cpu"
        self._plan = plan

    def run(self, windows: Iterable[Sequence[Item]], done: Callable[[int], None] | None = None) -> Iterator[Window]:
        """Yield each window's result, in order; `done(n)` is told of every n inputs that are finished."""
        generation = forking.generation()
        report = done or (lambda n: None)
        launched: deque[_OnWorkers | _OnDevice] = deque()
        workers = _Workers(self._plan.workers)
        started: Generator[_OnWorkers | _OnDevice] = (
            self._on_workers(iter(windows), workers, report) if self._cpu else self._on_device(iter(windows), report)
        )
        try:
            for window in started:
                launched.append(window)
                if len(launched) > 1:
                    yield launched.popleft().finish()
                    check_generation(generation)
            while launched:
                yield launched.popleft().finish()
                check_generation(generation)
        finally:
            workers.stop()
            started.close()

    def _prepare(self, items: Sequence[Item]) -> tuple[Tokens, list[Batch]]:
        with computation:
            tokens = self._tokenise(items)
            return tokens, pack(tokens, self._plan.budget)

    def _prepare_beside(self, items: Sequence[Item]) -> tuple[Tokens, list[Batch]]:
        assert self._beside is not None
        tokens = self._beside(items)
        return tokens, pack(tokens, self._plan.budget)

    def _on_workers(
        self, source: Iterator[Sequence[Item]], workers: _Workers, report: Callable[[int], None]
    ) -> Generator[_OnWorkers]:
        """Hand every batch to the workers, window by window."""
        for (tokens, batches), last in in_a_thread(source, self._prepare):
            rows = np.empty((len(tokens.lengths), self._width), np.float32)
            # A single batch keeps torch's intra-op threads, unless one thread was asked for.
            alone = workers.idle and last and len(batches) <= 1 and self._plan.workers > 1
            start = _finished if alone else workers.submit
            yield _OnWorkers(tokens, rows, [start(self._on_cpu, batch, rows, report) for batch in batches])

    def _on_cpu(self, batch: Batch, rows: Array, report: Callable[[int], None]) -> None:
        with computation, torch.inference_mode():
            rows[batch.rows] = self._compute(batch).numpy()
        report(len(batch.rows))

    def _on_device(self, source: Iterator[Sequence[Item]], report: Callable[[int], None]) -> Generator[_OnDevice]:
        """Launch every batch, window by window, and tokenise the next while the device computes."""
        beside = None if self._beside is None or cpu_cores() < MANY_CORES else self._prepare_beside
        for tokens, batches in in_turns(source, self._prepare, beside):
            yield self._start(tokens, batches, report)

    def _start(self, tokens: Tokens, batches: list[Batch], report: Callable[[int], None]) -> _OnDevice:
        """Start a window's batches and the copy back; nothing here waits for the device."""
        count = len(tokens.lengths)
        pinned = self._device.type == "cuda"
        target = torch.empty(count, self._width, dtype=torch.float32, pin_memory=pinned)
        with torch.inference_mode():
            results = [self._compute(batch) for batch in batches]
            if results:
                order = np.concatenate([batch.rows for batch in batches])
                places = torch.from_numpy(np.argsort(order))
                places = (places.pin_memory() if pinned else places).to(self._device, non_blocking=True)
                target.copy_(torch.cat(results).index_select(0, places), non_blocking=pinned)
        event = torch.cuda.Event() if pinned else None
        if event is not None:
            event.record()
        return _OnDevice(tokens, target, event, report)


class _Workers:
    """One thread per core with one intra-op thread each, started when first needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    @property
    def idle(self) -> bool:
        return self._pool is None

    def submit(self, call: Callable[..., None], *arguments: object) -> Future[None]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self._count, thread_name_prefix="munjang-encode", initializer=single_threaded
            )
            # set_num_threads is the calling thread's own, but it also becomes the default of threads to come.
            everyone = torch.get_num_threads()
            ready = threading.Barrier(self._count + 1)
            for _ in range(self._count):
                self._pool.submit(ready.wait)
            ready.wait()
            torch.set_num_threads(everyone)
        return self._pool.submit(call, *arguments)

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def single_threaded() -> None:
    """Give the calling thread one intra-op thread.

    A thread takes over the process's number when it first asks; what was set before that would be overwritten.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


def _finished(call: Callable[..., None], *arguments: object) -> Future[None]:
    call(*arguments)
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _window(tokens: Tokens, rows: Array) -> Window:
    return Window(rows, len(tokens.ids), tokens.truncated, tokens.longest)


@dataclass(frozen=True)
class _OnWorkers:
    """A window whose batches the workers have."""

    tokens: Tokens
    rows: Array
    futures: list[Future[None]]

    def finish(self) -> Window:
        for future in self.futures:
            future.result()
        return _window(self.tokens, self.rows)


@dataclass(frozen=True)
class _OnDevice:
    """A window that the device computes and copies back."""

    tokens: Tokens
    target: Tensor
    event: torch.cuda.Event | None
    report: Callable[[int], None]

    def finish(self) -> Window:
        if self.event is not None:
            self.event.synchronize()
        self.report(len(self.target))
        return _window(self.tokens, self.target.numpy())
