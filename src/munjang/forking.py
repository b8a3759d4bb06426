"""Fork safety: encoding works in a child that was forked after, or while, the parent encoded.

Registered with `os.register_at_fork`. Before a fork, computations in other threads are let finish, so that none of the
native libraries is copied in the middle of one. In the child, OpenMP's threads are gone but its records of them are
not, and the first parallel operation would wait for them forever: so the child has one intra-op thread, as the workers
of torch's DataLoader do. Threads that it starts, such as the workers of bulk encoding, are its own. CUDA does not
survive a fork: `check_device` says so.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Protocol

from munjang.errors import InputError

_PATIENCE = 10.0  # seconds that a fork waits for computations; then it goes ahead
_FEW_THREADS = 256  # remembered without a look at which have ended


class Forked(Protocol):
    """An object that owns locks or caches."""

    def after_fork_in_child(self) -> None: ...


class Computation:
    """Context manager around native work: waits while a fork is under way. Not re-entrant."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._changed = threading.Condition()
        self._active = 0
        self._forks = 0
        self._threads: set[int] = set()  # native ids of threads that have computed
        self._most = _FEW_THREADS

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forks)
            self._active += 1
            self._threads.add(threading.get_native_id())
            if len(self._threads) > self._most:
                self._threads = {thread for thread in self._threads if _exists(thread)}
                self._most = 2 * len(self._threads) + _FEW_THREADS

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._active -= 1
            self._changed.notify_all()

    def hold(self) -> None:
        """Let no computation begin, and wait for those that have begun."""
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: not self._active, _PATIENCE)
        # A thread that has left Python may still be freeing its buffers, with a lock of MKL held.
        deadline = time.monotonic() + 1.0
        while self._ending() and time.monotonic() < deadline:
            time.sleep(0.0005)

    def _ending(self) -> bool:
        running = {thread.native_id for thread in threading.enumerate()}
        return any(thread not in running and _exists(thread) for thread in self._threads)

    def release(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()


def _exists(thread: int) -> bool:
    """Whether the operating system still has the thread; False where there is no /proc, as there is no MKL either."""
    return os.path.exists(f"/proc/self/task/{thread}")


computation = Computation()
_registered: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(thing: Forked) -> None:
    """Call the object's `after_fork_in_child` in every forked child, for as long as the object lives."""
    _registered.add(thing)


def check_device(kind: str) -> None:
    """Raise for CUDA in a child of a process that had used it."""
    torch = sys.modules.get("torch")
    if kind == "cuda" and torch is not None and torch.cuda._is_in_bad_fork():
        raise InputError(
            "the model is on a CUDA device, and CUDA cannot be used in a process that was forked after its parent used "
            "CUDA. Start processes with multiprocessing's 'spawn' or 'forkserver', or load the model in the child "
            "only, or load it with device='cpu'"
        )


def _in_child() -> None:
    computation.reset()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its thread pool is gone as well
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)
    for thing in list(_registered):
        thing.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=computation.hold, after_in_parent=computation.release, after_in_child=_in_child)
