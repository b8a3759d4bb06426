"""An engine that tries again: what may pass is waited for, longer each time, and reported after the last attempt.

    waits: 0.2, 0.4, 0.8 ... seconds, at most 10, each times a random half to whole

The random part keeps many clients of a server that comes back from calling all at once. Every method of an engine may
be called twice (see engine.py), so a call whose answer was lost is simply made again; only `create` has to look whether
it was the first try that made the index.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from munjang.errors import InputError
from munjang.index.filters import Filter
from munjang.index.remote.address import Address
from munjang.index.remote.engine import Engine, Float32, Scored, StoredDocument, Unreachable

Result = TypeVar("Result")

_FIRST, _LONGEST = 0.2, 10.0  # seconds
_log = logging.getLogger("munjang.index")


class RetryingEngine:
    """An `Engine` around another one."""

    def __init__(self, engine: Engine, address: Address, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._engine = engine
        self._address = address
        self._sleep = sleep
        self.name = engine.name

    @property
    def can_keyword(self) -> bool:
        return self._engine.can_keyword

    @property
    def keyword_reason(self) -> str:
        return self._engine.keyword_reason

    def create(self, header: Mapping[str, Any], dimension: int, similarity: str) -> None:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            try:
                self._engine.create(header, dimension, similarity)
            except InputError:
                if tries == 1 or self._engine.header() != dict(header):  # its name is random, so it is ours or another
                    raise

        self._try(once)

    def header(self) -> dict[str, Any]:
        return self._try(self._engine.header)

    def notes(self) -> dict[str, str]:
        return self._try(self._engine.notes)

    def put_notes(self, notes: Mapping[str, str]) -> None:
        self._try(lambda: self._engine.put_notes(notes))

    def unfit(self, id: str, text: str, metadata: str) -> str | None:
        return self._engine.unfit(id, text, metadata)

    def put(self, documents: Sequence[StoredDocument]) -> None:
        self._try(lambda: self._engine.put(documents))

    def delete(self, ids: Sequence[str]) -> None:
        self._try(lambda: self._engine.delete(ids))

    def versions(self, ids: Sequence[str]) -> dict[str, str]:
        return self._try(lambda: self._engine.versions(ids))

    def get(self, ids: Sequence[str], *, vectors: bool = False) -> dict[str, StoredDocument]:
        return self._try(lambda: self._engine.get(ids, vectors=vectors))

    def count(self) -> tuple[int, int]:
        return self._try(self._engine.count)

    def search(self, vectors: Float32, k: int, filter: Filter | None) -> list[list[Scored]]:
        return self._try(lambda: self._engine.search(vectors, k, filter))

    def keyword(self, queries: Sequence[str], k: int, filter: Filter | None) -> list[list[Scored]]:
        return self._try(lambda: self._engine.keyword(queries, k, filter))

    def scan(self, after: str | None, limit: int, *, vectors: bool = True) -> list[StoredDocument]:
        return self._try(lambda: self._engine.scan(after, limit, vectors=vectors))

    def choose(self, most: int) -> list[str]:
        return self._try(lambda: self._engine.choose(most))

    def ready(self) -> None:
        self._try(self._engine.ready)

    def describe(self) -> dict[str, object]:
        return self._try(self._engine.describe)

    def drop(self) -> None:
        self._try(self._engine.drop)

    def close(self) -> None:
        self._engine.close()

    def _try(self, call: Callable[[], Result]) -> Result:
        attempts = self._address.attempts
        for attempt in range(1, attempts + 1):
            try:
                return call()
            except Unreachable as error:  # noqa: PERF203
                if attempt == attempts:
                    raise Unreachable(
                        f"{error}; it was tried {attempts} times: is the server up? Everything that was acknowledged "
                        "is there; the same call may be made again, nothing comes twice (?attempts=N tries more often)"
                    ) from error
                wait = min(_LONGEST, _FIRST * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                _log.warning("%s; attempt %d of %d in %.1f s", error, attempt + 1, attempts, wait)
                self._sleep(wait)
        raise AssertionError("attempts is at least 1")
