"""The load: clients over loopback that ask for vectors and compare every one of them with a direct `encode`.

Query clients send one text and pause; bulk clients send one request of many texts after the other. Every client has
texts of its own, so that no two requests in flight hold the same text: joining them would flatter a service that does.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import numpy as np

Array = np.ndarray[Any, Any]
TOLERANCE = 2e-3  # of a cosine, and of every value: float32 of another implementation stays far below


@dataclass(frozen=True)
class Texts:
    """Texts and the vectors that `encode` gives for them."""

    texts: Sequence[str]
    vectors: Array  # float32 [n, dimension]

    def share(self, place: int, of: int) -> Texts:
        """Every `of`-th text from `place` on."""
        return Texts(self.texts[place::of], self.vectors[place::of])


@dataclass
class Seen:
    """What the clients of one phase saw."""

    query_seconds: list[float] = field(default_factory=list)
    bulk_seconds: list[float] = field(default_factory=list)
    texts: int = 0  # answered
    wrong: int = 0  # vectors that are not those of `encode`
    errors: list[str] = field(default_factory=list)
    refused: int = 0
    without_retry_after: int = 0
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        """Texts answered in a second."""
        return self.texts / self.elapsed if self.elapsed else 0.0

    def percentile(self, which: float) -> float:
        """Milliseconds of a query."""
        return float(np.percentile(self.query_seconds, which)) * 1000 if self.query_seconds else float("nan")


@dataclass(frozen=True)
class Mix:
    """Who asks, and how."""

    queries: int  # clients that send one text
    bulks: int  # clients that send many
    batch: int = 32
    pause: float = 1.0  # mean seconds between a query's answer and the client's next query


def run(address: str, pool: Texts, mix: Mix, seconds: float) -> Seen:
    """So many seconds of that mix."""
    return asyncio.run(_run(address, pool, mix, seconds))


async def _run(address: str, pool: Texts, mix: Mix, seconds: float) -> Seen:
    seen, clients = Seen(), mix.queries + mix.bulks
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as http:
        started = time.perf_counter()
        until = started + seconds
        asking = [_client(http, pool.share(n, clients), mix, n, until, seen) for n in range(clients)]
        await asyncio.gather(*asking)
        seen.elapsed = time.perf_counter() - started
    return seen


async def _client(http: httpx.AsyncClient, own: Texts, mix: Mix, number: int, until: float, seen: Seen) -> None:
    random, at = Random(number), 0
    query = number < mix.queries
    size = 1 if query else mix.batch
    if query:
        await asyncio.sleep(random.random() * mix.pause)
    while time.perf_counter() < until:
        rows = [(at + step) % len(own.texts) for step in range(size)]
        at += size
        started = time.perf_counter()
        await ask(http, [own.texts[row] for row in rows], own.vectors[rows], seen)
        (seen.query_seconds if query else seen.bulk_seconds).append(time.perf_counter() - started)
        if query:
            await asyncio.sleep(random.expovariate(1 / mix.pause))


async def ask(http: httpx.AsyncClient, texts: list[str], expected: Array, seen: Seen) -> None:
    """One request; its answer is compared."""
    body = {"model": "model", "input": texts if len(texts) > 1 else texts[0], "encoding_format": "base64"}
    try:
        answer = await http.post("/embeddings", json=body)
    except httpx.HTTPError as error:
        seen.errors.append(f"{type(error).__name__}: {error}")
        return
    if answer.status_code == 429:
        seen.refused += 1
        seen.without_retry_after += "retry-after" not in answer.headers
    elif answer.status_code != 200:
        seen.errors.append(f"{answer.status_code}: {answer.text[:200]}")
    else:
        seen.texts += len(texts)
        seen.wrong += _wrong(answer.json()["data"], expected)


def _wrong(data: list[dict[str, Any]], expected: Array) -> int:
    """How many vectors are missing or differ."""
    if len(data) != len(expected):
        return len(expected)
    rows = np.stack([_row(one["embedding"]) for one in sorted(data, key=lambda one: one["index"])])
    return int((np.abs(rows - expected).max(axis=1) > TOLERANCE).sum())


def _row(given: str | list[float]) -> Array:
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given), "<f4")
    return np.asarray(given, np.float32)


def flood(address: str, pool: Texts, *, rate: float, batch: int, seconds: float) -> Seen:
    """Requests that come at `rate` texts per second whatever the service answers."""
    return asyncio.run(_flood(address, pool, rate, batch, seconds))


async def _flood(address: str, pool: Texts, rate: float, batch: int, seconds: float) -> Seen:
    seen, sent = Seen(), 0
    tasks: set[asyncio.Task[None]] = set()
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as http:
        started = time.perf_counter()
        while (now := time.perf_counter() - started) < seconds:
            while sent < now * rate:
                rows = [(sent + step) % len(pool.texts) for step in range(batch)]
                sent += batch
                task = asyncio.create_task(ask(http, [pool.texts[row] for row in rows], pool.vectors[rows], seen))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        seen.elapsed = time.perf_counter() - started
    return seen
