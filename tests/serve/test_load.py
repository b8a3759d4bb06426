"""The load generator of the benchmark: it must see what a service does wrong, and cost little."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import serve_load  # noqa: E402
from benchmarks.serve import Direct  # noqa: E402
from benchmarks.serve_load import Mix, Texts, flood, run  # noqa: E402

TEXTS = [f"{'비가 온다' if n % 2 else 'It is raining'} {n}" for n in range(64)]
POOL = Texts(TEXTS, np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32))
VECTORS = dict(zip(TEXTS, POOL.vectors, strict=True))

Answering = Callable[[list[str]], tuple[int, bytes, str]]  # status, body, more headers; status 0 hangs up


def right(texts: list[str], *, packed: bool = True) -> tuple[int, bytes, str]:
    rows = [VECTORS[text] for text in texts]
    data = [
        {"index": place, "embedding": base64.b64encode(row.tobytes()).decode() if packed else row.tolist()}
        for place, row in enumerate(rows)
    ]
    return 200, json.dumps({"data": data[::-1]}).encode(), ""  # the index counts, not the order


@contextmanager
def service(answering: Answering) -> Iterator[str]:
    """A service in a thread that answers as it is told."""
    loop, address, ready = asyncio.new_event_loop(), [], threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.split("content-length: ")[1].split("\r\n")[0])
                given = json.loads(await reader.readexactly(size))["input"]
                status, body, more = answering([given] if isinstance(given, str) else given)
                if not status:
                    break
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address.append(server.sockets[0].getsockname()[1])
        ready.set()

    def work() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.run_forever()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{address[0]}/v1"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@pytest.mark.parametrize("packed", [True, False])
def test_right_answers_are_counted(packed: bool) -> None:
    asked: list[list[str]] = []

    def answering(texts: list[str]) -> tuple[int, bytes, str]:
        asked.append(texts)
        return right(texts, packed=packed)

    with service(answering) as address:
        seen = run(address, POOL, Mix(3, 1, 8, 0.01), 0.5)
    assert not seen.errors
    assert seen.wrong == seen.refused == 0
    assert seen.texts == sum(map(len, asked)) == len(seen.query_seconds) + 8 * len(seen.bulk_seconds)
    assert {len(texts) for texts in asked} == {1, 8}
    assert 0.5 <= seen.elapsed < 5
    assert seen.rate == seen.texts / seen.elapsed
    assert 0 < seen.cpu < seen.elapsed * 2
    assert seen.percentile(50) <= seen.percentile(99)


def test_no_two_clients_send_the_same_text() -> None:
    by_client = [serve_load._requests("http://127.0.0.1:1/v1", POOL, n, 4, 8) for n in range(4)]
    rows = [{int(row) for asked in plan for row in asked.rows} for plan in by_client]
    assert sum(map(len, rows)) == len(set().union(*rows)) == 64


def test_swapped_wrong_and_missing_vectors_are_found() -> None:
    def swapped(texts: list[str]) -> tuple[int, bytes, str]:
        return right([texts[1], texts[0], *texts[2:]])

    def nothing_is(texts: list[str]) -> tuple[int, bytes, str]:
        data = [{"index": place, "embedding": [float("nan")] * 8} for place in range(len(texts))]
        return 200, json.dumps({"data": data}).encode(), ""

    for answering, wrong in ((swapped, 2), (lambda texts: right(texts[1:]), 8), (nothing_is, 8)):
        with service(answering) as address:
            seen = run(address, POOL, Mix(0, 1, 8), 0.1)
        assert seen.wrong == wrong * len(seen.bulk_seconds) > 0


def test_refusals_and_errors_are_apart() -> None:
    answers: list[tuple[int, bytes, str]] = [(429, b"{}", "Retry-After: 1\r\n"), (429, b"{}", ""), (500, b"broken", "")]
    answers += [(0, b"", "")]  # hangs up
    given = iter(answers * 1000)
    with service(lambda texts: next(given)) as address:
        seen = run(address, POOL, Mix(1, 0, 1, 0.001), 0.3)
    rounds = len(seen.query_seconds) // 4
    assert rounds > 2
    assert 2 * rounds <= seen.refused <= 2 * rounds + 2
    assert rounds <= seen.without_retry_after <= rounds + 1
    assert any(error.startswith("500: broken") for error in seen.errors)
    assert any("IncompleteRead" in error or "Connection" in error for error in seen.errors)
    assert seen.texts == 0


def test_an_answer_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_load, "PATIENCE", 0.2)
    with service(lambda texts: (200, b"", "")) as address:
        monkeypatch.setattr(serve_load.Wire, "ask", _never)
        seen = run(address, POOL, Mix(1, 1, 4, 0.01), 0.1)
    assert seen.errors == ["a request was never answered"] * 2


async def _never(self: serve_load.Wire, request: bytes) -> tuple[int, bytes, bytes]:
    await asyncio.sleep(60)
    raise AssertionError


def test_a_flood_comes_at_its_rate() -> None:
    with service(right) as address:
        seen = flood(address, POOL, rate=400, batch=4, seconds=1.0)
    assert not seen.errors
    assert seen.wrong == 0
    assert 300 <= seen.texts <= 420


def test_calls_of_encode_in_the_same_requests() -> None:
    direct = Direct(rate=500, per_cpu=250, one=0.01, batch=0.1)
    assert direct.rate_of(10, 1, 32) == pytest.approx(42 / 0.2)
    assert direct.rate_of(0, 1, 32) == pytest.approx(320)
