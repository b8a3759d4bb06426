"""The load: clients over loopback that ask for vectors; every vector is compared with a direct `encode` afterwards.

Query clients send one text and pause; bulk clients send one request of many texts after the other. Every client has
texts of its own, so that no two requests in flight hold the same text: joining them would flatter a service that does.

The clients share the machine with the service, so they must cost little: requests are written before the clock runs,
a connection speaks just enough HTTP/1.1, and answers go to a temporary file and are read when the run is over. What
the clients took of the processor is told all the same (`Seen.cpu`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import Any
from urllib.parse import urlsplit

import numpy as np

Array = np.ndarray[Any, Any]
TOLERANCE = 2e-3  # of every value: float32 of another implementation stays far below
PATIENCE = 120.0  # seconds after the end of the run, until which every answer must be there
STALE = 4.0  # seconds: services hang up on connections that are quiet for 5 (uvicorn's default)


@dataclass(frozen=True)
class Texts:
    """Texts and the vectors that `encode` gives for them."""

    texts: Sequence[str]
    vectors: Array  # float32 [n, dimension]


@dataclass
class Seen:
    """What the clients of one phase saw."""

    query_seconds: list[float] = field(default_factory=list)
    bulk_seconds: list[float] = field(default_factory=list)
    texts: int = 0  # answered
    wrong: int = 0  # vectors that are missing, or are not those of `encode`
    errors: list[str] = field(default_factory=list)
    refused: int = 0
    without_retry_after: int = 0
    elapsed: float = 0.0
    cpu: float = 0.0  # seconds of processor that the clients took

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


@dataclass(frozen=True)
class Asked:
    """A request as it goes over the wire, and which texts it holds."""

    request: bytes
    rows: Array  # int64 [n]


class Answers:
    """Bodies of answers, in a file until the run is over."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `wrong`)
        self._kept: list[tuple[Array, int]] = []  # rows, bytes

    def keep(self, asked: Asked, body: bytes) -> None:
        self._file.write(body)
        self._kept.append((asked.rows, len(body)))

    def wrong(self, vectors: Array) -> int:
        """Vectors that are missing or differ; the answers are gone afterwards."""
        self._file.seek(0)
        with self._file:
            return sum(_wrong(self._file.read(size), vectors[rows]) for rows, size in self._kept)


class Wire:
    """A connection that is kept open."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, headers in small letters, body."""
        if self._streams is None or time.perf_counter() - self._used > STALE:
            self.close()
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, found, size = head.partition(b"\r\ncontent-length:")
        if not found:
            raise ConnectionError("an answer without Content-Length")
        body = await reader.readexactly(int(size.split(b"\r\n", 1)[0]))
        self._used = time.perf_counter()
        if b"\r\nconnection: close" in head:
            self.close()
        return int(head[9:12]), head, body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def run(address: str, pool: Texts, mix: Mix, seconds: float) -> Seen:
    """So many seconds of that mix."""
    clients = mix.queries + mix.bulks
    plans = [_requests(address, pool, n, clients, 1 if n < mix.queries else mix.batch) for n in range(clients)]
    answers = Answers()
    seen = asyncio.run(_run(address, plans, mix, seconds, answers))
    seen.wrong = answers.wrong(pool.vectors)
    return seen


async def _run(address: str, plans: Sequence[list[Asked]], mix: Mix, seconds: float, answers: Answers) -> Seen:
    seen, started, cpu = Seen(), time.perf_counter(), time.process_time()
    until = started + seconds
    asking = [_client(Wire(address), plan, mix, n, until, (seen, answers)) for n, plan in enumerate(plans)]
    await _within(seconds + PATIENCE, asking, seen)
    seen.elapsed, seen.cpu = time.perf_counter() - started, time.process_time() - cpu
    return seen


async def _within(seconds: float, work: Sequence[Coroutine[Any, Any, None]], seen: Seen) -> None:
    """Wait for all; what is not answered by then is an error, not a wait without end."""
    tasks = [asyncio.ensure_future(one) for one in work]
    done, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
        seen.errors.append("a request was never answered")
    for task in done:
        task.result()


async def _client(
    wire: Wire, plan: list[Asked], mix: Mix, number: int, until: float, into: tuple[Seen, Answers]
) -> None:
    random, query, seen = Random(number), number < mix.queries, into[0]
    if query:
        await asyncio.sleep(random.random() * mix.pause)
    for asked in cycle(plan):
        started = time.perf_counter()
        if started >= until:
            break
        await ask(wire, asked, *into)
        (seen.query_seconds if query else seen.bulk_seconds).append(time.perf_counter() - started)
        if query:
            # Not beyond the end: a client that sleeps there would stretch the time by which texts are divided.
            await asyncio.sleep(min(random.expovariate(1 / mix.pause), max(0.0, until - time.perf_counter())))
    wire.close()


def _requests(address: str, pool: Texts, place: int, of: int, size: int) -> list[Asked]:
    """The requests of one client, over every `of`-th text from `place` on."""
    own = np.arange(place, len(pool.texts), of)
    starts = range(0, max(1, len(own) - size + 1), size)
    return [_asked(address, pool, own[start : start + size]) for start in starts]


def _asked(address: str, pool: Texts, rows: Array) -> Asked:
    parts, texts = urlsplit(address), [pool.texts[row] for row in rows.tolist()]
    body = json.dumps(
        {"model": "model", "input": texts if len(texts) > 1 else texts[0], "encoding_format": "base64"},
        ensure_ascii=False,
    ).encode()
    head = f"POST {parts.path}/embeddings HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    return Asked(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, rows)


async def ask(wire: Wire, asked: Asked, seen: Seen, answers: Answers) -> None:
    """One request; its answer is kept."""
    try:
        status, head, body = await wire.ask(asked.request)
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        wire.close()
        seen.errors.append(f"{type(error).__name__}: {error}")
        return
    if status == 429:
        seen.refused += 1
        seen.without_retry_after += b"\r\nretry-after:" not in head
    elif status != 200:
        seen.errors.append(f"{status}: {body[:200].decode(errors='replace')}")
    else:
        seen.texts += len(asked.rows)
        answers.keep(asked, body)


def _wrong(body: bytes, expected: Array) -> int:
    """How many vectors are missing or differ."""
    data = json.loads(body)["data"]
    if len(data) != len(expected):
        return len(expected)
    rows = [_row(one["embedding"]) for one in sorted(data, key=lambda one: one["index"])]
    if any(row.shape != expected[0].shape for row in rows):
        return len(expected)
    return int((~(np.abs(np.stack(rows) - expected).max(axis=1) <= TOLERANCE)).sum())  # NaN is wrong, too


def _row(given: str | list[float]) -> Array:
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given), "<f4")
    return np.asarray(given, np.float32)


def flood(address: str, pool: Texts, *, rate: float, batch: int, seconds: float) -> Seen:
    """Requests that come at `rate` texts per second whatever the service answers."""
    plan, answers = _requests(address, pool, 0, 1, batch), Answers()
    seen = asyncio.run(_flood(address, plan, rate / batch, seconds, answers))
    seen.wrong = answers.wrong(pool.vectors)
    return seen


async def _flood(address: str, plan: list[Asked], rate: float, seconds: float, answers: Answers) -> Seen:
    seen, sent = Seen(), 0
    free: list[Wire] = []
    requests: Iterator[Asked] = cycle(plan)

    async def one(asked: Asked) -> None:
        wire = free.pop() if free else Wire(address)
        await ask(wire, asked, seen, answers)
        free.append(wire)

    tasks: set[asyncio.Future[None]] = set()
    started, cpu = time.perf_counter(), time.process_time()
    while (now := time.perf_counter() - started) < seconds:
        while sent < now * rate:
            sent += 1
            task = asyncio.ensure_future(one(next(requests)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.01)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        seen.errors += ["a request was never answered"] * len(late)
    seen.elapsed, seen.cpu = time.perf_counter() - started, time.process_time() - cpu
    for wire in free:
        wire.close()
    return seen
