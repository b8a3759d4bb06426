"""The micro-batcher: requests of many clients in, one packed batch after the other through the model, answers out.

    submit -> tokenise (once) -> admit or refuse -> line of queries / line of bulk -> batch by tokens -> answer

While one batch runs, the next one gathers, and it starts when a worker is free; nothing waits for a clock but queries
that come close together while every core is busy (`queues.Gathering`). Queries go before bulk, but bulk gets at least
every fourth batch of a worker. Whole requests are admitted or refused (`Overloaded`, with the time after which to try
again). What nobody waits for any more, because the client went away or its time is up, is passed over. The same item in
several requests at once is computed once.

On a CPU there is one worker per core with one intra-op thread each, as in `encoders.runtime`, and one more that takes
nothing but queries: the operating system gives a thread that has slept its turn at once, so that a query does not wait
for the bulk batches that are running. On other devices two workers take turns: one gathers while the other computes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

import numpy as np
import torch

from munjang.encoders.runtime import use_one_thread
from munjang.serve.answers import Answer, Stats, Timing
from munjang.serve.errors import DeadlinePassed, Overloaded, TooLarge, Unready
from munjang.serve.queues import Entry, Gathering, Line, Priority, Request, batch_of, entries_of, places_of
from munjang.text.packing import Batch, Tokens

Array = np.ndarray[Any, Any]

BULK_SHARE = 4  # of so many batches of a worker at least one is bulk, where there is bulk
QUERY_TOKENS = 256  # a request of so many tokens at most counts as a query, unless it says otherwise
INLINE_CHARACTERS = 2048  # so many are tokenised at once; more in a thread, so that the event loop goes on


class Work(Protocol):
    """What a model does for a batcher. `kind` is what all items of one batch must have in common."""

    def characters(self, items: Sequence[Any]) -> int: ...

    def tokenise(self, items: Sequence[Any]) -> Tokens: ...

    def compute(
        self, batch: Batch, kind: Hashable
    ) -> Sequence[Array] | Array:  # a value for each row of the batch, in order
        ...

    def empty(self, count: int, kind: Hashable) -> Any:  # where `count` values are put: an array or a list
        ...


@dataclass(frozen=True)
class BatcherOptions:
    """How much goes through at a time, and how much may wait."""

    max_tokens: int  # in one batch
    max_queue_tokens: int  # waiting
    max_request_tokens: int | None = None
    workers: int = 1
    express: bool = False  # a further worker for queries alone
    intra_op: bool = False  # let the workers keep torch's intra-op threads


@dataclass(frozen=True)
class _Prepared:
    entries: list[Entry]
    places: list[list[int]]  # where each stands in the answer
    tokens: int
    truncated: int


class Batcher:
    """One model's queue and workers; `submit` is called from any event loop."""

    def __init__(self, compute: Work, options: BatcherOptions, *, name: str = "model") -> None:
        self._does = compute
        self._options = options
        self._name = name
        lock = threading.RLock()
        self._ready = threading.Condition(lock)  # workers sleep here
        self._urgent = threading.Condition(lock)  # and here the one for queries alone
        self._asleep = False  # whether that one sleeps and nobody has called it
        self._queries, self._bulk, self._gathering = Line(), Line(), Gathering()
        self._inflight: dict[tuple[Hashable, Hashable], Entry] = {}
        self._stats = Stats()
        self._waiting = 0  # tokens in the lines
        self._reserved = 0  # tokens, by estimate, of what is being tokenised
        self._preparing = 0  # requests that are being tokenised
        self._open = 0  # requests that were admitted and are not answered
        self._speed = 0.0  # tokens per second of one worker, lately
        self._busy: set[int] = set()  # workers that compute, by their thread; the one for queries does not count
        self._closing = False
        self._tokenisers = ThreadPoolExecutor(1, thread_name_prefix=f"munjang-tokenise-{name}")
        self._threads = self._start()

    # --- asking ------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        items: Sequence[Any],
        *,
        kind: Hashable = None,
        priority: Priority | None = None,
        deadline: float | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Answer:
        """The values of the items.

        priority: by default small requests are queries and others bulk. deadline: seconds from now, after which
        `DeadlinePassed` is raised. cancelled: asked before each batch; once it is true, what is left is not computed.
        A task that is cancelled while it waits here gives up its place, too.
        """
        started = time.perf_counter()
        until = started + deadline if deadline is not None else float("inf")
        estimate = self._reserve(items)
        loop = asyncio.get_running_loop()
        try:
            prepared = await self._prepare(items, kind, loop)
            tokenised = time.perf_counter()
            request = Request(loop, loop.create_future(), self._does.empty(len(items), kind), until, cancelled)
            self._admit(request, prepared, priority)
        finally:
            self._unreserve(estimate)
        try:
            await asyncio.wait_for(request.future, None if deadline is None else max(0.0, until - tokenised))
        except asyncio.TimeoutError:
            raise DeadlinePassed(f"the request was not done within its {deadline:g} s: the service is busy") from None
        finally:
            self._leave(request)
        ended = time.perf_counter()
        began = ended if request.began is None else max(request.began, tokenised)
        timing = Timing(tokenised - started, began - tokenised, ended - began)
        return Answer(request.values, timing, prepared.tokens, prepared.truncated)

    def stats(self) -> Stats:
        """What was done and what waits."""
        with self._ready:
            return replace(self._stats, waiting_tokens=self._waiting, waiting_requests=self._open)

    def retry_after(self) -> float:
        """Seconds until what waits now will be done, by the speed of the last batches."""
        speed = self._speed * self._options.workers
        return min(60.0, max(1.0, (self._waiting + self._reserved) / speed)) if speed else 1.0

    def close(self, timeout: float | None = None) -> None:
        """Take no more requests, finish those that were admitted, and end; after `timeout` seconds give up on them."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._ready:
            self._closing = True
            self._wake_all()
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        with self._ready:
            left = list(self._inflight.values())
            for entry in left:
                self._drop(entry)
        self._fail(left, Unready("the service has ended"))
        self._tokenisers.shutdown(wait=False, cancel_futures=True)

    # --- admitting ---------------------------------------------------------------------------------------------------

    def _reserve(self, items: Sequence[Any]) -> int:
        """Refuse what will not fit before time is spent on tokenising it; the estimate is a low one."""
        estimate = self._does.characters(items) // 4 + 2 * len(items)
        with self._ready:
            if self._closing:
                raise Unready("the service is ending and takes no more requests")
            ahead = self._waiting + self._reserved
            if ahead and ahead + estimate > self._options.max_queue_tokens:
                self._refuse()
            self._reserved += estimate
            self._preparing += 1
        return estimate

    def _unreserve(self, estimate: int) -> None:
        with self._ready:
            self._reserved -= estimate
            self._preparing -= 1
            if self._closing:
                self._wake_all()

    def _refuse(self) -> NoReturn:
        self._stats = replace(self._stats, refused=self._stats.refused + 1)
        raise Overloaded(self.retry_after())

    async def _prepare(self, items: Sequence[Any], kind: Hashable, loop: asyncio.AbstractEventLoop) -> _Prepared:
        if self._does.characters(items) <= INLINE_CHARACTERS:
            return self._tokenised(items, kind)
        return await loop.run_in_executor(self._tokenisers, self._tokenised, items, kind)

    def _tokenised(self, items: Sequence[Any], kind: Hashable) -> _Prepared:
        different, places = places_of(items)
        tokens = self._does.tokenise(different)
        counts = np.fromiter(map(len, places), np.int64, len(places))
        total = int((tokens.lengths * counts).sum())
        truncated = tokens.truncated
        if truncated and len(different) < len(items):
            truncated = int(counts[self._cut(different, tokens)].sum())
        return _Prepared(entries_of(tokens, [(kind, item) for item in different]), places, total, truncated)

    def _cut(self, items: Sequence[Any], tokens: Tokens) -> list[int]:
        """Which items were cut. A text that was cut is as long as the longest one; one of that length may be whole."""
        full = np.flatnonzero(tokens.lengths == tokens.lengths.max()).tolist()
        if len(full) == tokens.truncated:
            return full
        return [place for place in full if self._does.tokenise([items[place]]).truncated]

    def _admit(self, request: Request, prepared: _Prepared, priority: Priority | None) -> None:
        """Put the whole request in line, or refuse it."""
        limit = self._options.max_request_tokens
        if limit is not None and prepared.tokens > limit:
            raise TooLarge(
                f"a request may have {limit:,} tokens, this one has {prepared.tokens:,}: send it in parts",
                limit="tokens",
            )
        urgent = priority == "query" or (priority is None and prepared.tokens <= QUERY_TOKENS)
        with self._ready:
            found = [self._inflight.get(entry.key, entry) for entry in prepared.entries]
            fresh = [entry for entry, own in zip(found, prepared.entries, strict=True) if entry is own]
            cost = sum(entry.tokens for entry in fresh)
            most = self._options.max_queue_tokens
            if cost > most:
                raise TooLarge(
                    f"{most:,} tokens may wait, and the request has {cost:,} alone: send it in parts",
                    limit="queue_tokens",
                )
            if self._waiting + cost > most:
                self._refuse()
            self._open += 1
            self._stats = replace(
                self._stats,
                requests=self._stats.requests + 1,
                joined=self._stats.joined + len(found) - len(fresh),
                truncated=self._stats.truncated + prepared.truncated,
            )
            for entry, places in zip(found, prepared.places, strict=True):
                entry.waiters.append((request, places))
            request.entries, request.left = found, len(found)
            self._inflight.update((entry.key, entry) for entry in fresh)
            self._waiting += cost
            self._stand(found if urgent else fresh, urgent=urgent)
            if not found:
                request.future.set_result(None)

    def _stand(self, entries: Sequence[Entry], *, urgent: bool) -> None:
        """A query also takes along what waits in the line of bulk already: whichever line comes first computes it."""
        waiting = [entry for entry in entries if entry.state == "waiting"]
        by_kind: dict[Hashable, list[Entry]] = {}
        for entry in waiting:
            by_kind.setdefault(entry.kind, []).append(entry)
        if urgent and waiting:
            self._gathering.add(sum(entry.tokens for entry in waiting), time.perf_counter())
        line, most = self._queries if urgent else self._bulk, max(1, self._options.max_tokens // 4)
        self._wake(sum(line.join(same, most) for same in by_kind.values()), urgent=urgent)

    def _wake(self, pieces: int, *, urgent: bool) -> None:
        """Call no more workers than there is work for: those that find none have cost the others the interpreter."""
        if pieces and urgent and self._asleep:
            self._asleep = False
            self._urgent.notify()
            pieces -= 1
        self._ready.notify(pieces)

    def _wake_all(self) -> None:
        self._ready.notify_all()
        self._urgent.notify_all()

    def _leave(self, request: Request) -> None:
        """The request is answered, or nobody waits for it: what only it waited for is not computed."""
        with self._ready:
            self._open -= 1
            request.gone = True
            if request.left:
                for entry in request.entries:
                    if entry.state == "waiting" and not entry.wanted():
                        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        if entry.state == "waiting":
            self._waiting -= entry.tokens
            self._stats = replace(self._stats, dropped=self._stats.dropped + 1)
        entry.state = "dropped"
        if self._inflight.get(entry.key) is entry:
            del self._inflight[entry.key]

    # --- working -----------------------------------------------------------------------------------------------------

    def _start(self) -> list[threading.Thread]:
        express = [False] * self._options.workers + [True] * self._options.express
        everyone = torch.get_num_threads()
        ready = threading.Barrier(len(express) + 1)
        threads = [
            threading.Thread(target=self._run, args=(one, ready), name=f"munjang-{self._name}-{place}", daemon=True)
            for place, one in enumerate(express)
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        torch.set_num_threads(everyone)  # what a thread sets for itself becomes the default of threads to come
        return threads

    def _run(self, express: bool, ready: threading.Barrier) -> None:
        if not self._options.intra_op:
            use_one_thread()
        ready.wait()
        passed = 0  # batches of queries since the last of bulk
        while (found := self._next(express, passed)) is not None:
            entries, urgent = found
            passed = passed + 1 if urgent else 0
            self._compute(entries)

    def _next(self, express: bool, passed: int) -> tuple[list[Entry], bool] | None:
        """The next batch and whether it is of queries; None when the batcher is closed and all is done."""
        me = threading.get_ident()
        with self._ready:
            self._busy.discard(me)
            while True:
                urgent = bool(self._queries) and (express or not self._bulk or passed < BULK_SHARE - 1)
                if urgent and express and (wait := self._patience()):
                    self._urgent.wait(wait)
                elif urgent or (self._bulk and not express):
                    line = self._queries if urgent else self._bulk
                    if urgent:
                        self._gathering.taken()
                    if entries := line.take(self._share(), self._drop):
                        self._begin(entries)
                        if not express:
                            self._busy.add(me)
                        return entries, urgent
                elif self._closing and not self._preparing and not (self._queries or self._bulk):
                    self._wake_all()  # the others leave, too
                    return None
                else:
                    self._asleep = self._asleep or express
                    (self._urgent if express else self._ready).wait()

    def _patience(self) -> float:
        """Seconds that queries should wait for others before they are computed beside workers that are all busy."""
        crowded = len(self._busy) >= self._options.workers and not self._closing
        return self._gathering.left(time.perf_counter()) if crowded else 0.0

    def _share(self) -> int:
        """Tokens for the next batch: where little waits, the workers that are free share it."""
        most, free = self._options.max_tokens, self._options.workers - len(self._busy)
        return min(most, max(most // 4, -(-self._waiting // max(1, free))))

    def _begin(self, entries: Sequence[Entry]) -> None:
        now = time.perf_counter()
        for entry in entries:
            self._waiting -= entry.tokens
            for request, _ in entry.waiters:
                request.began = request.began or now

    def _compute(self, entries: Sequence[Entry]) -> None:
        """Compute a batch; where that fails, item by item, so that one bad item does not fail its neighbours."""
        started = time.perf_counter()
        batch = batch_of(entries)
        try:
            rows = self._does.compute(batch, entries[0].kind)
        except Exception as error:
            if len(entries) == 1:
                self._fail(entries, error)
            else:
                for entry in entries:
                    self._compute([entry])
            return
        seconds = time.perf_counter() - started
        self._finish([entries[place] for place in batch.rows.tolist()], rows, len(batch.ids) / max(seconds, 1e-9))

    def _finish(self, entries: Sequence[Entry], rows: Sequence[Array] | Array, speed: float) -> None:
        with self._ready:
            self._speed = 0.8 * self._speed + 0.2 * speed if self._speed else speed
            self._stats = replace(
                self._stats,
                batches=self._stats.batches + 1,
                items=self._stats.items + len(entries),
                tokens=self._stats.tokens + sum(entry.tokens for entry in entries),
            )
            self._settle(entries)
        # Nobody can join any more, so the waiters are final and the values can be put down without the lock.
        for entry, row in zip(entries, rows, strict=True):
            for request, places in entry.waiters:
                for place in places:
                    request.values[place] = row
        self._count_down(entries)

    def _settle(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.state = "done"
            if self._inflight.get(entry.key) is entry:
                del self._inflight[entry.key]

    def _count_down(self, entries: Sequence[Entry]) -> None:
        complete = []
        with self._ready:
            for entry in entries:
                for request, _ in entry.waiters:
                    request.left -= 1
                    if not request.left:
                        complete.append(request)
        for request in complete:
            _tell(request, None)

    def _fail(self, entries: Sequence[Entry], error: Exception) -> None:
        with self._ready:
            self._settle(entries)
        for request in {request for entry in entries for request, _ in entry.waiters}:
            _tell(request, error)


def _tell(request: Request, error: Exception | None) -> None:
    """Set the request's future in its own event loop."""

    def now() -> None:
        if request.future.done():
            return
        if error is None:
            request.future.set_result(None)
        else:
            request.future.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
        request.loop.call_soon_threadsafe(now)
