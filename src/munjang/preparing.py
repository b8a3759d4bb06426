"""Who tokenises: windows of inputs in, token ids and packed batches out, in order, a few windows ahead and no more.

- `in_a_thread`: for computing on the CPU, whose operations leave the interpreter free while they run.
- `in_turns`: for a GPU. Its kernels are launched without waiting, so the caller's thread can tokenise while the device
  computes; a tokenising thread would only take the interpreter away from the launching one. On machines with many
  cores a second, native tokenizer works beside on every window that it gets to first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

AHEAD = 2  # windows that may be ready before they are asked for
MANY_CORES = 8  # from here on native tokenising beside the caller's is worth its latency


def in_a_thread(
    source: Iterator[Sequence[Item]], prepare: Callable[[Sequence[Item]], Made]
) -> Iterator[tuple[Made, bool]]:
    """One window is prepared while another computes; with each comes whether it is the last.

    The source is pulled in the caller's thread. A single window needs no thread: a query should not wait for one.
    """
    first, second = next(source, None), next(source, None)
    if first is None:
        return
    if second is None:
        yield prepare(first), True
        return
    source = chain((first, second), source)
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="munjang-tokenise") as reader:
        try:
            while True:
                while len(waiting) < AHEAD and (items := next(source, None)) is not None:
                    waiting.append(reader.submit(prepare, items))
                if not waiting:
                    return
                made = waiting.popleft()
                yield made.result(), not waiting
        finally:
            for future in waiting:
                future.cancel()


def in_turns(
    source: Iterator[Sequence[Item]],
    prepare: Callable[[Sequence[Item]], Made],
    beside: Callable[[Sequence[Item]], Made] | None,
) -> Iterator[Made]:
    """Prepare in the caller's thread; with `beside`, a thread prepares every window that it is free for.

    The caller's thread takes the first window, so that the device starts as soon as it can.
    """
    if beside is None:
        yield from map(prepare, source)
        return
    ready: deque[Future[Made]] = deque()
    other: Future[Made] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="munjang-tokenise") as helper:
        try:
            while (mine := next(source, None)) is not None:
                place = len(ready)
                if (other is None or other.done()) and (theirs := next(source, None)) is not None:
                    other = helper.submit(beside, theirs)
                    ready.append(other)
                ready.insert(place, _Now(prepare(mine)))
                while ready and (ready[0].done() or len(ready) > AHEAD + 1):
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            if other is not None:
                other.cancel()


class _Now(Future[Made]):
    """A result that is there already."""

    def __init__(self, value: Made) -> None:
        super().__init__()
        self.set_result(value)
