"""Work that would hold up the event loop, in threads: so many at once, so many waiting, the rest refused.

Enters: a call. Leaves: what it returns, awaited. A caller who stops waiting leaves the call running: a place is free
again when it has really ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from munjang.serve.errors import Overloaded, Unready

Result = TypeVar("Result")


class Threads:
    """A pool of threads with a short queue."""

    def __init__(self, name: str, workers: int, *, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=f"munjang-{name}")
        self._room = workers + waiting
        self._left: set[Future[Any]] = set()  # running and waiting
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], Result]) -> Result:
        """The call's result; `Overloaded` where too many wait already."""
        with self._lock:
            if len(self._left) >= self._room:
                raise Overloaded(1.0)
            try:
                future: Future[Result] = self._pool.submit(call)
            except RuntimeError:
                raise Unready("the service is ending") from None
            self._left.add(future)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._left.discard(future)

    def close(self, timeout: float) -> bool:
        """Take nothing more and finish what was accepted; whether that was done in time."""
        self._pool.shutdown(wait=False)
        until = time.monotonic() + timeout
        with self._lock:
            left = list(self._left)
        wait(left, max(0.0, until - time.monotonic()))
        return all(future.done() for future in left)
