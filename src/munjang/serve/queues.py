"""What waits for the model: requests, the computations they wait for, and the line in which they stand.

Enters: requests whose items are tokenised. Leaves: lists of `Entry` that make one batch. An `Entry` is one computation;
several requests may wait for the same one. A request stands in its line in pieces (a part of a batch each), and the
line serves one piece of every request in turn, so that a long request does not hold up a short one behind it.

Nothing here is locked: the `Batcher` holds its lock around every call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from munjang.text.packing import Batch, Int32, Tokens, pack, starts_of

Array = np.ndarray[Any, Any]
Priority = Literal["query", "bulk"]
State = Literal["waiting", "running", "done", "dropped"]

GATHER_SECONDS = 0.010  # that queries wait for others at most, where every core is busy
GATHER_TOKENS = 96  # so many are worth a batch at once


@dataclass(eq=False)
class Request:
    """One caller's items; `future` is set when the last of their values is there."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    values: Any  # float32 [n, width], or a list of arrays; filled in by the workers
    deadline: float  # on the clock of time.perf_counter
    cancelled: Callable[[], bool] | None = None
    entries: list[Entry] = field(default_factory=list)  # each different one once
    left: int = 0  # computations that are not done
    gone: bool = False
    began: float | None = None  # when the first of its batches did

    def wanted(self) -> bool:
        """Whether anybody still waits for the answer."""
        if not self.gone and (
            time.perf_counter() >= self.deadline or (self.cancelled is not None and self.cancelled())
        ):
            self.gone = True
        return not self.gone


@dataclass(eq=False)
class Entry:
    """One computation: an item's tokens, and who waits for its value, at which places of their answers."""

    key: tuple[Hashable, Hashable]  # kind, item
    ids: Int32  # [tokens]
    segments: Int32 | None
    state: State = "waiting"
    waiters: list[tuple[Request, list[int]]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> Hashable:
        return self.key[0]

    def wanted(self) -> bool:
        return any(request.wanted() for request, _ in self.waiters)


class Line:
    """Requests in turn, each in pieces."""

    def __init__(self) -> None:
        self._requests: deque[deque[list[Entry]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def join(self, entries: Sequence[Entry], piece_tokens: int) -> int:
        """Put a request's computations at the end, cut into pieces of like lengths; how many pieces."""
        pieces = deque(_pieces(entries, piece_tokens))
        self._requests.append(pieces)
        return len(pieces)

    def take(self, budget: int, drop: Callable[[Entry], None]) -> list[Entry]:
        """Computations of one kind for a batch of at most `budget` tokens, one piece of each request in turn.

        A single piece may be larger. What nobody waits for any more is given to `drop` and passed over; empty where
        nothing is left.
        """
        taken: list[Entry] = []
        others: list[deque[list[Entry]]] = []  # their next piece is of another kind
        room = budget
        while self._requests:
            pieces = self._requests.popleft()
            live = _live(pieces, drop)
            if not live:
                continue
            cost = sum(entry.tokens for entry in live)
            if taken and live[0].kind != taken[0].kind:
                others.append(pieces)
                continue
            if taken and cost > room:
                self._requests.appendleft(pieces)
                break
            pieces.popleft()
            for entry in live:
                entry.state = "running"  # at once: it may stand in this line a second time
            taken += live
            room -= cost
            if pieces:
                self._requests.append(pieces)
        self._requests.extendleft(reversed(others))
        return taken


class Gathering:
    """How long queries that find every core busy should wait for others, to go through the model together.

    A batch has to read all weights once: a short text alone takes three times its part of a larger batch. Where cores
    are free that is nobody's loss. Where they are not, it is taken from bulk, and every query slows the next ones down.
    """

    def __init__(self) -> None:
        self._interval = 1.0  # seconds between queries, lately
        self._last = self._since = 0.0
        self._tokens = 0

    def add(self, tokens: int, now: float) -> None:
        """A query has come."""
        self._interval += 0.1 * (min(now - self._last, 1.0) - self._interval)
        self._last = now
        if not self._tokens:
            self._since = now
        self._tokens += tokens

    def taken(self) -> None:
        """Those that waited are being computed."""
        self._tokens = 0

    def left(self, now: float) -> float:
        """Seconds still to wait; none where so few queries come that another is hardly to be expected."""
        if self._interval > 2 * GATHER_SECONDS or self._tokens >= GATHER_TOKENS:
            return 0.0
        return max(0.0, self._since + GATHER_SECONDS - now)


def _live(pieces: deque[list[Entry]], drop: Callable[[Entry], None]) -> list[Entry]:
    """The next piece that somebody waits for, left where it stands; pieces before it are thrown away."""
    while pieces:
        live = []
        for entry in pieces[0]:
            if entry.state != "waiting":
                continue  # it also stood in the other line, or was dropped
            if entry.wanted():
                live.append(entry)
            else:
                drop(entry)
        if live:
            return live
        pieces.popleft()
    return []


def _pieces(entries: Sequence[Entry], piece_tokens: int) -> list[list[Entry]]:
    lengths = np.fromiter((entry.tokens for entry in entries), np.int32, len(entries))
    if int(lengths.sum()) <= piece_tokens:
        return [list(entries)]
    # `pack` cuts by lengths alone: the ids are left out.
    cuts = pack(Tokens(np.zeros(int(lengths.sum()), np.int32), lengths, 0, 0), piece_tokens)
    return [[entries[row] for row in cut.rows] for cut in cuts]


def batch_of(entries: Sequence[Entry]) -> Batch:
    """The packed batch of these computations; its rows are places in `entries`."""
    lengths = np.fromiter((entry.tokens for entry in entries), np.int32, len(entries))
    order = np.argsort(lengths, kind="stable").astype(np.int64, copy=False)  # ascending, as `pack` has it
    ids = np.concatenate([entries[place].ids for place in order])
    segments = None
    if any(entry.segments is not None for entry in entries):
        rows = [entries[place] for place in order]
        segments = np.concatenate(
            [np.zeros(row.tokens, np.int32) if row.segments is None else row.segments for row in rows]
        )
    return Batch(ids, lengths[order], order, segments)


def entries_of(tokens: Tokens, keys: Sequence[tuple[Hashable, Hashable]]) -> list[Entry]:
    """One computation for each row of `tokens`."""
    starts = starts_of(tokens.lengths).tolist()
    found = []
    for key, start, length in zip(keys, starts, tokens.lengths.tolist(), strict=True):
        span = slice(start, start + length)
        found.append(Entry(key, tokens.ids[span], None if tokens.segments is None else tokens.segments[span]))
    return found


def places_of(items: Sequence[Hashable]) -> tuple[list[Hashable], list[list[int]]]:
    """The different items, and at which places each stands."""
    places: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item, []).append(place)
    return list(places), list(places.values())
