"""The other processes of a run: meeting them, and noticing when one is gone.

Enters: a store of torch's (names and values on one machine, which torchrun or the first process keeps). Leaves: a store
that only the processes of this start share, and `Peers`, which says who is alive.

torchrun keeps one store over all its restarts, so that a name of an earlier start is still there. Its restart count
cannot tell the starts apart by itself: a machine whose processes were only stopped, because another one came or went,
does not count a restart. So the processes agree on a name of their own (`meet`), and everything after that lies under
it.

A collective operation waits for everybody. If a process is killed, its connections close and the others get an error;
if its machine is cut off, or the backend has no connections to close, they would wait for ever. So every process writes
a new number into the store every few seconds, and whoever needs a process that has stopped doing so ends with an error.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from munjang.errors import InputError, TrainingError

if TYPE_CHECKING:  # a torch may have been built without it
    from torch.distributed import Store  # type: ignore[attr-defined]

ARRIVAL = 1800.0  # seconds that the first processes wait for the last one to start
_PATIENCE = 300.0  # seconds without a word after which a process counts as gone
_VARIABLE = "MUNJANG_PEER_TIMEOUT"
_POLL = 0.05  # seconds between two looks into the store
_LEFT = b"left"
_AGAIN = "start the same command again: it goes on from the last checkpoint"


class PeerGoneError(TrainingError):
    """Another process of this run is gone."""


def patience() -> float:
    """Seconds without a word after which a process counts as gone: the environment's, or five minutes."""
    given = os.environ.get(_VARIABLE)
    if given is None:
        return _PATIENCE
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds < math.inf:
        raise InputError(f"{_VARIABLE} must be seconds, 1 or more, got {given!r}")
    return seconds


def meet(store: Store, rank: int, count: int, *, wait: float = ARRIVAL) -> Store:
    """The part of the store that the processes of this start share, and no earlier ones, as soon as all are there.

    Every process says hello with a word that it has just made up. The first lists the words and says the name that all
    are to meet under; who finds their own word in the list knows that it is not an old one.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    own, deadline = secrets.token_hex(8), time.monotonic() + wait
    store.set(f"munjang/hello/{rank}", own)
    name = _invite(store, count, own, deadline) if rank == 0 else _join(store, rank, own, deadline)
    return PrefixStore(name, store)


def _invite(store: Store, count: int, own: str, deadline: float) -> str:
    name = f"munjang/start-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{own}"
    store.set(f"{name}/beat/0", "0")
    listed: dict[int, str] | None = None
    while True:
        words = {rank: _read(store, f"munjang/hello/{rank}") for rank in range(1, count)}
        said = {rank: word for rank, word in words.items() if word is not None}
        if said != listed:
            store.set("munjang/list", json.dumps({"name": name, "words": said}))
            listed = said
        missing = [rank for rank in range(1, count) if not store.check([f"{name}/beat/{rank}"])]
        if not missing:
            store.set(f"{name}/all", "")
            return name
        if time.monotonic() > deadline:
            raise PeerGoneError(f"of {count} processes, {_listed(missing)} did not start: {_AGAIN}")
        time.sleep(_POLL)


def _join(store: Store, rank: int, own: str, deadline: float) -> str:
    while True:
        found = json.loads(_read(store, "munjang/list") or "{}")
        if found.get("words", {}).get(str(rank)) == own:
            name = str(found["name"])
            store.set(f"{name}/beat/{rank}", "0")
            if store.check([f"{name}/all"]):
                return name
        if time.monotonic() > deadline:
            raise PeerGoneError(f"process {rank} found no other process of its run: {_AGAIN}")
        time.sleep(_POLL)


def _read(store: Store, key: str) -> str | None:
    return bytes(store.get(key)).decode() if store.check([key]) else None


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"


class Peers:
    """Who is alive, as the store knows it; a thread of its own keeps saying that this process is."""

    def __init__(self, store: Store, rank: int, count: int, *, timeout: float) -> None:
        self.rank, self.count = rank, count
        self._store, self._timeout = store, timeout
        self._beats = [f"beat/{other}" for other in range(count)]
        self._heard: dict[int, tuple[bytes, float]] = {}  # rank -> its last number, and when it was new
        self._interval = min(5.0, timeout / 10)
        self._grace = min(10.0, timeout / 2)  # for the main thread to end by itself, with an error of its own
        self._runs = 0  # trainings begun so far: all processes begin the same ones
        self._needed = False
        self._turns = 0
        self._ended = threading.Event()
        # A connection of its own: an operation that waits would hold this one's up.
        own = store.clone()  # type: ignore[attr-defined]
        own.set_timeout(timedelta(seconds=timeout))  # an answer takes no longer than a process may be silent
        self._thread = threading.Thread(target=self._live, args=(own,), name="munjang-peers", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Say that this process leaves."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(2 * self._interval)
            with contextlib.suppress(RuntimeError):
                self._store.set(self._beats[self.rank], _LEFT.decode())

    @contextlib.contextmanager
    def needed(self) -> Iterator[None]:
        """While it lasts, nobody can go on without the others; what ends it early here is told to them."""
        self._runs += 1
        self._needed = True
        try:
            yield
        except (KeyboardInterrupt, PeerGoneError):
            raise
        except BaseException as error:
            reason = f"process {self.rank} failed ({type(error).__name__}: {error})"
            with contextlib.suppress(RuntimeError):
                self._store.compare_set(self._failed, "", reason)
            raise
        finally:
            self._needed = False

    @property
    def _failed(self) -> str:
        return f"failed/{self._runs}"

    def await_first(self) -> None:
        """Wait until the first process is here too, however long it works before that, but not if it is gone."""
        self._turns += 1
        key = f"turn/{self._turns}"
        try:
            if self.rank == 0:
                self._store.set(key, "")
                return
            pause, looked = 0.001, time.monotonic()
            while not self._store.check([key]):
                if time.monotonic() - looked > self._interval:
                    looked = time.monotonic()
                    reason = self._gone(self._store)
                    if reason is not None:
                        raise self.error(reason)
                time.sleep(pause)
                pause = min(0.2, pause * 1.5)
        except RuntimeError as error:
            raise self.error(self.known(str(error))) from error

    def known(self, symptom: str) -> str:
        """Why an operation with the others failed, as far as the store says."""
        with contextlib.suppress(RuntimeError):
            reason = self._gone(self._store)
            if reason is not None:
                return reason
        line = re.sub(r"^\[[^]]*\]\s*", "", symptom.strip()).partition("\n")[0].partition(". ")[0]  # without its source
        return f"a process was killed, or its machine is gone ({line[:200]})"

    def error(self, reason: str) -> PeerGoneError:
        return PeerGoneError(f"process {self.rank} of {self.count} cannot go on alone: {reason}; {_AGAIN}")

    def _live(self, store: Store) -> None:
        beat, gone_since = 0, math.inf
        while not self._ended.wait(self._interval):
            beat += 1
            try:
                store.set(self._beats[self.rank], str(beat))
                reason = self._gone(store)
            except RuntimeError as error:
                reason = f"the machine that keeps the processes together does not answer ({str(error)[:200]})"
            if reason is None or not self._needed:
                gone_since = math.inf
                continue
            gone_since = min(gone_since, time.monotonic())
            if time.monotonic() - gone_since >= self._grace and not self._ended.is_set():
                self._leave(reason)

    def _gone(self, store: Store) -> str | None:
        """What is wrong with the others, if anything is."""
        if store.check([self._failed]):
            return bytes(store.get(self._failed)).decode(errors="replace")
        now = time.monotonic()
        for other, value in enumerate(map(bytes, store.multi_get(self._beats))):
            if other == self.rank:
                continue
            if value == _LEFT:
                return f"process {other} has left"
            before, since = self._heard.get(other, (b"", now))
            if value != before:
                self._heard[other] = value, now
            elif now - since > self._timeout:
                return f"process {other} has not been heard of for {now - since:.0f} seconds ({_VARIABLE})"
        return None

    def _leave(self, reason: str) -> None:
        """The main thread waits in an operation that nothing else can end."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"munjang: error: {self.error(reason)}\n")
            sys.stderr.flush()
        os._exit(1)
