"""Who does which shard, and what becomes of it. The engine only carries messages; every decision falls here.

A shard whose worker dies is given to another one, a bounded number of times; then it is failed and the rest goes on. A
worker that dies is replaced. Workers that die one after another without finishing anything end the job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import NoReturn

from munjang.errors import DataError
from munjang.sharding.filling import Filler
from munjang.sharding.manifest import Book
from munjang.sharding.messages import (
    Advanced,
    Began,
    Block,
    Done,
    Event,
    Failed,
    Lost,
    Ready,
    Rejects,
    Skipped,
    Stopped,
    Task,
    Team,
)
from munjang.sharding.progress import Tracker
from munjang.sharding.results import FailedShard
from munjang.sharding.shards import Shard

_TICK = 0.5  # seconds to wait for something to happen
_MOST_LOSSES = 20  # of workers in a row: then it is not the shards


class Scheduler:
    """Runs one job to its end."""

    def __init__(self, team: Team, book: Book, tracker: Tracker, *, attempts: int, start_seconds: float) -> None:
        self._team = team
        self._book = book
        self._tracker = tracker
        self._attempts = attempts
        self._start_seconds = start_seconds
        self._waiting: deque[Shard] = deque()
        self._tried: dict[str, int] = {}
        self._running: dict[int, Shard] = {}
        self._idle: set[int] = set()
        self._alive: set[int] = set()
        self._losses = 0  # of workers, since a shard was last done
        self._false_starts = 0  # of them, those that had no shard yet
        self._outputs: Mapping[str, str] = {}
        self._filler: Filler | None = None
        self.failed: list[FailedShard] = []
        self.done: list[Done] = []

    def run(self, shards: list[Shard], *, outputs: Mapping[str, str], filler: Filler | None) -> None:
        """Do all shards. outputs: where each one's file goes; filler: puts rows into an index instead."""
        self._outputs, self._filler = outputs, filler
        # The largest first: at the end nobody waits long for the last one.
        self._waiting = deque(sorted(shards, key=lambda shard: (-shard.size, shard.name)))
        for number in range(self._team.size):
            self._team.start(number)
        since = time.monotonic()
        while self._waiting or self._running:
            self._give_out()
            for number, event in self._team.events(_TICK):
                self._handle(number, event)
            since = time.monotonic() if self._alive else since
            if time.monotonic() - since > self._start_seconds:
                raise DataError(
                    f"no worker has started for {self._start_seconds:,.0f} s: is there room for one with the CPUs, "
                    "the GPU and the memory that it needs?"
                )

    def _give_out(self) -> None:
        while self._idle and self._waiting:
            number, shard = self._idle.pop(), self._waiting.popleft()
            known = self._book.known(shard) if self._filler is None else self._filler.known(shard)
            self._running[number] = shard
            self._team.give(number, Task(shard, known, self._book.precision))

    def _handle(self, number: int, event: Event) -> None:
        if isinstance(event, Ready):
            self._alive.add(number)
            self._idle.add(number)
        elif isinstance(event, Lost):
            self._lost(number, event.reason)
        elif isinstance(event, Stopped):
            self._stop(event.reason)
        elif isinstance(event, Done | Skipped | Failed):
            self._ended(number, self._running.pop(number), event)
        elif number in self._running:  # after a failure its threads may still tell of a batch
            self._going_on(self._running[number], event)

    def _going_on(self, shard: Shard, event: Began | Advanced | Rejects | Block) -> None:
        if isinstance(event, Began):
            self._book.begin(shard)
            self._tracker.began(shard.name, event.rows)
            if self._filler is not None:
                self._filler.begin(shard)
        elif isinstance(event, Advanced):
            self._tracker.advanced(shard.name, event.rows)
        elif isinstance(event, Rejects):
            self._book.reject(shard, event.rows)
            self._tracker.rejected(shard.name, len(event.rows))
        elif self._filler is not None:
            self._filler.add(shard, event)

    def _ended(self, number: int, shard: Shard, event: Done | Skipped | Failed) -> None:
        self._idle.add(number)
        if isinstance(event, Failed):
            self._try_again(shard, event.reason, final=not event.again)
            return
        self._losses = self._false_starts = 0
        if isinstance(event, Skipped):
            self._tracker.ended(shard.name, "skipped")
            return
        if self._filler is None:
            self._book.publish(shard, event, output=self._outputs[shard.name])
        else:
            self._filler.finish(shard, event)
        self.done.append(event)
        self._tracker.ended(shard.name, "done", rows=event.rows, rejected=event.rejected)

    def _lost(self, number: int, reason: str) -> None:
        self._alive.discard(number)
        self._idle.discard(number)
        self._losses += 1
        shard = self._running.pop(number, None)
        if shard is not None:
            self._try_again(shard, reason, final=False)
        else:
            self._false_starts += 1
        most = max(_MOST_LOSSES, self._attempts * (self._team.size + 4))
        if self._losses > most or self._false_starts > self._attempts * self._team.size:
            self._stop(f"{self._losses} workers were lost one after another, the last: {reason}")
        if self._waiting:
            self._team.start(number)

    def _try_again(self, shard: Shard, reason: str, *, final: bool) -> None:
        self._book.forget(shard)
        tried = self._tried[shard.name] = self._tried.get(shard.name, 0) + 1
        if not final and tried < self._attempts:
            self._tracker.stopped(shard.name)
            self._waiting.appendleft(shard)
            return
        times = f"tried {tried} times, the last: " if tried > 1 else ""
        self.failed.append(FailedShard(shard.name, times + reason))
        self._tracker.ended(shard.name, "failed")

    def _stop(self, reason: str) -> NoReturn:
        done = len(self.done)
        raise DataError(f"{reason}; {done:,} shards were done by this run and are safe, run it again to go on")
