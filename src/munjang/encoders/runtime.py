"""`Runtime`: a model's weights on one device in one precision, and the encoding pipeline over it.

windows of inputs -> token ids (in a thread) -> packed batches -> device -> rows in input order

A runtime only reads, so threads may share it. A batch that does not fit into the device's memory is halved until it
does. Rows that are not finite in a lower precision are computed again in float32.

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
import copy
import functools
import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from munjang import forking
from munjang.checkpoint import BiParts, CrossParts
from munjang.errors import InputError, ModelError
from munjang.nn.device import cpu_cores
from munjang.nn.encoder import Encoder
from munjang.nn.heads import apply_heads
from munjang.nn.packed import Packed, check_ids, padding_of, to_packed
from munjang.text.packing import Batch, Tokens, pack

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]
Item = TypeVar("Item")

AHEAD = 2  # windows that may be tokenized before they are computed
MANY_CORES = 8  # from here on a second tokenizing thread beside the caller's pays


@dataclass(frozen=True)
class CallOptions:
    """Options of one call. Calls may share a batch where all but `prompt` and `normalize` are equal."""

    prompt: str = ""  # put before every text
    prompt_tokens: int = 0  # leading tokens that pooling leaves out
    dimension: int | None = None  # keep the first values of every vector; None: all
    normalize: bool = False
    every_token: bool = False  # the hidden state of every token instead of a vector per text


class Runtime(ABC, Generic[Item]):
    """Weights on a device: tokenize items, compute batches."""

    def __init__(self, parts: BiParts | CrossParts, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype if _fits(parts.body, dtype) else torch.float32
        self._parts = parts
        self._config = parts.body.config
        self._body = self._place(parts.body, self.dtype)
        self._float32: Runtime[Item] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def tokenize(self, items: Sequence[Item], call: CallOptions, *, by_words: bool = True) -> Tokens:
        """Tokenize items; `by_words=False` bypasses the word table, for use in a second thread."""

    @abstractmethod
    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        """Compute the rows of a batch from the body's output [total, hidden]; rows of padding may follow."""

    @abstractmethod
    def _segments(self, batch: Batch) -> Any:
        """Return the segment ids that the body takes, or None."""

    def forward(self, batch: Batch, call: CallOptions) -> Tensor:
        """Compute a batch.

        Returns:
            On the device, float32 [n, width] in the order of the batch, or [total tokens, hidden] for `every_token`.
        """
        segments = self._segments(batch)
        if self._config.family != "static":
            check_ids(batch.ids, batch.lengths, self._config, segments)
        try:
            # On the CPU, every new batch size costs memory: sizes are rounded up.
            rounds = self.device.type == "cpu" and isinstance(self._body, Encoder)
            packed = to_packed(
                batch.ids,
                batch.lengths,
                self.device,
                segments=segments,
                prompt_tokens=call.prompt_tokens,
                padding=padding_of(len(batch.ids)) if rounds else 0,
            )
            hidden: Tensor = self._body(packed)  # [total, hidden]
            if call.every_token:
                return hidden[: len(batch.ids)].float()
            return self._outputs(hidden, packed, call)[: len(batch.lengths)].contiguous()
        except torch.OutOfMemoryError:
            if len(batch.lengths) == 1:
                raise
        # Outside the except block nothing refers to the tensors of the failed attempt any more.
        return torch.cat([self.forward(half, call) for half in _halves(batch)])

    def ensure_finite(self, rows: Array, batches: Sequence[Batch], call: CallOptions) -> tuple[Array, int]:
        """Replace rows that are not finite by their values in float32.

        Args:
            rows: [n, width]; row `batch.rows[i]` belongs to sequence i of a batch. For `every_token`, the rows of one
                batch.
            batches: The batches that the rows came from.
            call: The options that they were computed with.

        Returns:
            The rows, and how many were computed again.

        Raises:
            ModelError: Values are not finite in float32 either.
        """
        # One sum of squares is cheap; only where it is not finite are all values examined.
        if np.isfinite(np.vdot(rows, rows)) or np.isfinite(rows).all():
            return rows, 0
        rows, count = rows.copy(), 0
        for batch in batches if self.dtype != torch.float32 else ():
            places = slice(None) if call.every_token else batch.rows
            bad = np.asarray(~np.isfinite(rows[places]).all(axis=1))
            if bad.any():
                with torch.inference_mode():
                    exact = self._in_float32().forward(batch, call).cpu().numpy()
                rows[places] = np.where(bad[:, None], exact, rows[places])
                count += int(bad.sum())
        bad = np.asarray(~np.isfinite(rows).all(axis=1))
        if bad.any():
            raise ModelError(
                f"{int(bad.sum()):,} of {len(rows):,} results of {self._parts.source or 'the model'} are not finite "
                "even in float32: the model's weights are damaged"
            )
        return rows, count

    def _in_float32(self) -> Runtime[Item]:
        with self._lock:
            if self._float32 is None:
                self._float32 = type(self)(self._parts, self.device, torch.float32)
            return self._float32

    def _place(self, module: Any, dtype: torch.dtype | None = None) -> Any:
        """Return the module in evaluation mode on the device: itself where it is there, a copy otherwise."""
        if self.device.type != "cpu" or self.dtype != torch.float32:
            module = copy.deepcopy(module).to(device=self.device, dtype=dtype)
        return module.eval()


class BiRuntime(Runtime[str]):
    """Texts to vectors: body, pooling, heads."""

    def __init__(self, parts: BiParts, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(parts, device, dtype)
        self._tokenizer, self._pooling = parts.tokenizer, parts.pooling
        self._heads: nn.ModuleList = self._place(parts.heads)

    def tokenize(self, items: Sequence[str], call: CallOptions, *, by_words: bool = True) -> Tokens:
        texts = [call.prompt + text for text in items] if call.prompt else items
        return self._tokenizer.encode(texts, by_words=by_words)

    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        return apply_heads(self._heads, self._pooling(hidden, packed), call.dimension)

    def _segments(self, batch: Batch) -> Any:
        return None


class CrossRuntime(Runtime[Pair]):
    """Pairs to logits: body, classifier head. The head computes in float32."""

    def __init__(self, parts: CrossParts, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(parts, device, dtype)
        self._pairs, self._head = parts, self._place(parts.head)

    def tokenize(self, items: Sequence[Pair], call: CallOptions, *, by_words: bool = True) -> Tokens:
        return self._pairs.tokenise([pair[0] for pair in items], [pair[1] for pair in items], by_words=by_words)

    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        logits: Tensor = self._head(hidden, packed)  # float32 [n, labels]
        return logits

    def _segments(self, batch: Batch) -> Any:
        return batch.segments


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.lengths) // 2
    cut = int(batch.lengths[:middle].sum())
    first, second = (None, None) if batch.segments is None else (batch.segments[:cut], batch.segments[cut:])
    return (
        Batch(batch.ids[:cut], batch.lengths[:middle], batch.rows[:middle], first),
        Batch(batch.ids[cut:], batch.lengths[middle:], batch.rows[middle:], second),
    )


def _fits(body: nn.Module, dtype: torch.dtype) -> bool:
    """Whether every weight is finite in that precision (float16 ends at 65,504)."""
    if dtype != torch.float16:
        return True
    largest = [parameter.detach().abs().max().float() for parameter in body.parameters() if parameter.numel()]
    # One comparison for all of them, because each waits for the device. NaN compares false.
    return not largest or bool(torch.stack(largest).max() <= torch.finfo(dtype).max)


# --- the pipeline ----------------------------------------------------------------------------------------------------


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


# A window whose computation has started, and a function that waits for it and returns its rows.
Launched: TypeAlias = tuple[Prepared[Item], Callable[[], Array]]


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

    def finish(prepared: Prepared[Item], wait: Callable[[], Array]) -> Window[Item]:
        rows, recomputed = runtime.ensure_finite(wait(), prepared.batches, call)
        tokens = prepared.tokens
        return Window(prepared.items, rows, len(tokens.ids), tokens.truncated, tokens.longest, recomputed)

    process = os.getpid()
    on_device = _on_cpu if runtime.device.type == "cpu" else _on_accelerator
    running: Launched[Item] | None = None  # one window stays behind, so that the device works while the caller does
    with contextlib.closing(on_device(runtime, iter(windows), call, width, plan, on_done)) as stream:
        for launched in itertools.chain(stream, (None,)):
            if running is not None:
                yield finish(*running)
                if os.getpid() != process:
                    raise InputError(
                        "this stream was started before the process was forked, and its threads did not survive that; "
                        "start it again in the child"
                    )
            running = launched


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
) -> Generator[Launched[Item]]:
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
            yield prepared, functools.partial(_collect, rows, futures)


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
) -> Generator[Launched[Item]]:
    """Launch every batch of a window and the copy back; tokenize the next window meanwhile."""
    prepare = functools.partial(_prepare, runtime, call, plan)
    beside = functools.partial(prepare, by_words=False) if cpu_cores() >= MANY_CORES else None
    for prepared in tokenize_in_turns(source, prepare, beside):
        yield prepared, _launch(runtime, prepared, call, width, on_done)


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
