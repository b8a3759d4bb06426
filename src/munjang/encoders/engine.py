"""Encoding pipeline: windows of inputs -> token ids (in a thread) -> packed batches -> device -> rows in input order.

`plan_for` chooses the tokens of a batch and the size of a window. At most a few windows are in memory at a time, so
that a stream of any length runs in bounded memory. Inputs are pulled in the caller's thread (a database cursor or a
file may not work in another one).

- On CUDA, kernels are launched without waiting: the caller's thread tokenizes the next window while the device works.
  A second thread would only take the interpreter away from it, except on machines with many cores, where a native
  tokenizer runs beside it on every window that it gets to first.
- On the CPU, one thread tokenizes, and bulk work runs one worker thread per core, each with one intra-op thread and
  its batch: OpenMP threads inside one matrix product wait for each other, and a busy neighbour halves or quarters their
  speed. A call that fits into one batch keeps the intra-op threads instead.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from munjang import forking
from munjang.encoders.runtime import CallOptions, Runtime
from munjang.nn.device import cpu_cores
from munjang.text.packing import Batch, Tokens, pack

Item = TypeVar("Item")
Array = np.ndarray[Any, Any]

AHEAD = 2  # windows that may be tokenized before they are computed
MANY_CORES = 8  # from here on a second tokenizing thread beside the caller's pays


class Plan(NamedTuple):
    """How much is processed at a time."""

    window: tuple[int, int]  # inputs, and characters, that are sorted and packed together
    budget: int  # tokens in a batch
    workers: int  # CPU threads, each with its batch; 0 on other devices


@dataclass(frozen=True)
class Window(Generic[Item]):
    """The results of one window of inputs."""

    items: Sequence[Item]
    rows: Array  # float32 [n, width], in input order
    tokens: int
    truncated: int
    longest: int
    recomputed: int  # rows that were not finite in the runtime's precision


@dataclass(frozen=True)
class Prepared(Generic[Item]):
    """A tokenized window."""

    items: Sequence[Item]
    tokens: Tokens
    batches: list[Batch]


def plan_for(device: torch.device, threads: int) -> Plan:
    """Choose sizes for a device. CPU: batches that stay near the caches. CUDA: batches that fill the chip."""
    if device.type == "cpu":
        return Plan(window=(4096, 4 << 20), budget=1536, workers=threads)
    forking.check_device(device.type)
    budget = 16_384
    if device.type == "cuda":
        gigabytes = torch.cuda.get_device_properties(device).total_memory / 2**30
        budget = 131_072 if gigabytes > 40 else 65_536 if gigabytes > 20 else 32_768
    return Plan(window=(4096, 16 << 20), budget=budget, workers=0)


def split_windows(
    items: Iterable[Item], length: Callable[[Item], int], max_items: int, max_characters: int
) -> Iterator[list[Item]]:
    """Cut inputs into windows of limited count and characters; an input beyond the limit is a window by itself."""
    if isinstance(items, list | tuple):
        start = 0
        while start < len(items):
            window = list(items[start : start + max_items])
            if sum(map(length, window)) > max_characters:
                sums = itertools.accumulate(map(length, window))
                window = window[: max(1, sum(total <= max_characters for total in sums))]
            yield window
            start += len(window)
        return
    window, characters = [], 0
    for item in items:
        size = length(item)
        if window and (len(window) >= max_items or characters + size > max_characters):
            yield window
            window, characters = [], 0
        window.append(item)
        characters += size
    if window:
        yield window


def run_windows(
    runtime: Runtime[Item],
    windows: Iterable[Sequence[Item]],
    call: CallOptions,
    *,
    width: int,
    plan: Plan,
    on_done: Callable[[int], None] = lambda n: None,
) -> Iterator[Window[Item]]:
    """Run windows of inputs through a model.

    Args:
        runtime: The model on its device.
        windows: Inputs, window by window; pulled in the caller's thread.
        call: Options of the call.
        width: Values in a row of the result.
        plan: Sizes of batches, and CPU workers.
        on_done: Called with the number of inputs that were finished, from any thread.

    Yields:
        The results of every window, in order.
    """
    generation = forking.generation()
    on_device = _on_cpu if runtime.device.type == "cpu" else _on_accelerator
    running: _Launched[Item] | None = None  # one window stays behind, so that the device works while the caller does
    with contextlib.closing(on_device(runtime, iter(windows), call, width, plan, on_done)) as launched:
        for window in launched:
            if running is not None:
                yield running.finish(runtime, call)
                forking.check_generation(generation)
            running = window
        if running is not None:
            yield running.finish(runtime, call)
            forking.check_generation(generation)


@dataclass(frozen=True)
class _Launched(Generic[Item]):
    """A window whose computation has started."""

    prepared: Prepared[Item]
    wait: Callable[[], Array]  # block until it is finished, return its rows

    def finish(self, runtime: Runtime[Item], call: CallOptions) -> Window[Item]:
        rows, recomputed = runtime.ensure_finite(self.wait(), self.prepared.batches, call)
        tokens = self.prepared.tokens
        return Window(self.prepared.items, rows, len(tokens.ids), tokens.truncated, tokens.longest, recomputed)


def _prepare(
    runtime: Runtime[Item], call: CallOptions, plan: Plan, items: Sequence[Item], *, by_words: bool = True
) -> Prepared[Item]:
    with forking.computation:
        tokens = runtime.tokenize(items, call, by_words=by_words)
        return Prepared(items, tokens, pack(tokens, plan.budget))


# --- CPU -------------------------------------------------------------------------------------------------------------


def _on_cpu(
    runtime: Runtime[Item],
    source: Iterator[Sequence[Item]],
    call: CallOptions,
    width: int,
    plan: Plan,
    on_done: Callable[[int], None],
) -> Generator[_Launched[Item]]:
    """Tokenize in a thread; hand every batch to the workers."""

    def compute(batch: Batch, rows: Array) -> None:
        with forking.computation, torch.inference_mode():
            rows[batch.rows] = runtime.forward(batch, call).numpy()
        on_done(len(batch.rows))

    with _Workers(plan.workers) as workers:
        for prepared, last in tokenize_in_thread(source, functools.partial(_prepare, runtime, call, plan)):
            rows = np.empty((len(prepared.tokens.lengths), width), np.float32)
            futures: list[Future[None]] = []
            # A single batch keeps torch's intra-op threads, unless one thread was asked for.
            alone = not workers.started and last and len(prepared.batches) <= 1 and plan.workers > 1
            for batch in prepared.batches:
                if alone:
                    compute(batch, rows)
                else:
                    futures.append(workers.submit(compute, batch, rows))
            yield _Launched(prepared, functools.partial(_collect, rows, futures))


def _collect(rows: Array, futures: list[Future[None]]) -> Array:
    for future in futures:
        future.result()
    return rows


def tokenize_in_thread(
    source: Iterator[Sequence[Item]], prepare: Callable[[Sequence[Item]], Prepared[Item]]
) -> Iterator[tuple[Prepared[Item], bool]]:
    """Prepare windows in a thread, a few ahead; yield each with whether it is the last.

    A single window is prepared in the caller's thread: a query should not wait for a thread to start.
    """
    first, second = next(source, None), next(source, None)
    if first is None:
        return
    if second is None:
        yield prepare(first), True
        return
    source = itertools.chain((first, second), source)
    waiting: deque[Future[Prepared[Item]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="munjang-tokenize") as reader:
        try:
            while True:
                while len(waiting) < AHEAD and (items := next(source, None)) is not None:
                    waiting.append(reader.submit(prepare, items))
                if not waiting:
                    return
                prepared = waiting.popleft()
                yield prepared.result(), not waiting
        finally:
            for future in waiting:
                future.cancel()


class _Workers:
    """One thread per core with one intra-op thread each, started at the first `submit`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=error is not None)

    @property
    def started(self) -> bool:
        return self._pool is not None

    def submit(self, call: Callable[..., None], *arguments: object) -> Future[None]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                self._count, thread_name_prefix="munjang-encode", initializer=use_one_thread
            )
            # set_num_threads applies to the calling thread, but also becomes the default of later threads: restore it
            # when all workers have run their initializer.
            default = torch.get_num_threads()
            ready = threading.Barrier(self._count + 1)
            for _ in range(self._count):
                self._pool.submit(ready.wait)
            ready.wait()
            torch.set_num_threads(default)
        return self._pool.submit(call, *arguments)


def use_one_thread() -> None:
    """Give the calling thread one intra-op thread."""
    torch.get_num_threads()  # the first query copies the process's setting, overwriting an earlier one
    torch.set_num_threads(1)


# --- CUDA and other devices ------------------------------------------------------------------------------------------


def _on_accelerator(
    runtime: Runtime[Item],
    source: Iterator[Sequence[Item]],
    call: CallOptions,
    width: int,
    plan: Plan,
    on_done: Callable[[int], None],
) -> Generator[_Launched[Item]]:
    """Launch every batch of a window and the copy back; tokenize the next window meanwhile."""
    prepare = functools.partial(_prepare, runtime, call, plan)
    beside = functools.partial(prepare, by_words=False) if cpu_cores() >= MANY_CORES else None
    for prepared in tokenize_in_turns(source, prepare, beside):
        yield _Launched(prepared, _launch(runtime, prepared, call, width, on_done))


def _launch(
    runtime: Runtime[Item], prepared: Prepared[Item], call: CallOptions, width: int, on_done: Callable[[int], None]
) -> Callable[[], Array]:
    """Start a window's batches and the copy to the host without waiting; return a function that waits for its rows."""
    count = len(prepared.tokens.lengths)
    pinned = runtime.device.type == "cuda"
    target = torch.empty(count, width, dtype=torch.float32, pin_memory=pinned)
    with torch.inference_mode():
        results = [runtime.forward(batch, call) for batch in prepared.batches]
        if results:
            order = np.concatenate([batch.rows for batch in prepared.batches])
            places = torch.from_numpy(np.argsort(order))
            places = (places.pin_memory() if pinned else places).to(runtime.device, non_blocking=True)
            target.copy_(torch.cat(results).index_select(0, places), non_blocking=pinned)
    event = torch.cuda.Event() if pinned else None
    if event is not None:
        event.record()

    def wait() -> Array:
        if event is not None:
            event.synchronize()
        on_done(count)
        return target.numpy()

    return wait


def tokenize_in_turns(
    source: Iterator[Sequence[Item]],
    prepare: Callable[[Sequence[Item]], Prepared[Item]],
    beside: Callable[[Sequence[Item]], Prepared[Item]] | None,
) -> Iterator[Prepared[Item]]:
    """Prepare windows in the caller's thread; with `beside`, a thread prepares every window that it is free for.

    The caller's thread takes the first window, so that the device starts as soon as possible.
    """
    if beside is None:
        yield from map(prepare, source)
        return
    ready: deque[Future[Prepared[Item]]] = deque()
    other: Future[Prepared[Item]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="munjang-tokenize") as helper:
        try:
            while (mine := next(source, None)) is not None:
                place = len(ready)
                if (other is None or other.done()) and (theirs := next(source, None)) is not None:
                    other = helper.submit(beside, theirs)
                    ready.append(other)
                finished: Future[Prepared[Item]] = Future()
                finished.set_result(prepare(mine))
                ready.insert(place, finished)
                while ready and (ready[0].done() or len(ready) > AHEAD + 1):
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            if other is not None:
                other.cancel()
