"""`python -m benchmarks.serve_mixed`: memory and response times of `munjang serve` under a mixed load.

Build an index of the bundled sample corpus, serve it, and let a few clients send requests one after the other: `/embed`
with 8 texts of random length, searches with and without reranking, and adds of 2 documents. Print the resident memory
after the warm-up and at the end, and the median and 99th percentile of each kind of request. Requests are seeded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil

from benchmarks import corpora
from benchmarks.serve_load import Wire

Body = dict[str, Any]
CLIENTS = {"embed": 2, "search": 2, "rerank": 2, "add": 2}  # by kind of request
EMBEDDED = 8  # texts in a request


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "sample") as (process, address):
        asyncio.run(load(address, options.clients, options.warmup, options.seed))
        warm = _mebibytes(process)
        seconds, errors = asyncio.run(load(address, options.clients, options.seconds, options.seed + 1))
        end = _mebibytes(process)
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            print(f"CPU of the service: {times.user + times.system:,.0f} s")
    print(f"memory: {warm:,.0f} MiB after {options.warmup:g} s, {end:,.0f} MiB after {options.seconds:g} s more")
    print(f"growth: {end / warm - 1:+.1%}")
    print("| request | count | per second | p50 ms | p99 ms | max ms |\n|---|---:|---:|---:|---:|---:|")
    for kind, taken in seconds.items():
        if taken:
            p50, p99, most = np.percentile(taken, [50, 99, 100]) * 1000
            rate = len(taken) / options.seconds
            print(f"| {kind} | {len(taken):,} | {rate:,.1f} | {p50:,.0f} | {p99:,.0f} | {most:,.0f} |")
    print("\n".join(f"error: {error}" for error in errors[:5]) or "no errors")
    return 1 if errors else 0


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[psutil.Process, str]]:
    """`munjang serve` over an index of the sample corpus, as the process and its address."""
    import munjang

    munjang.demo.build_index(folder, munjang.load(device="cpu")).close()
    command = [sys.executable, "-m", "munjang", "serve", str(folder), "--port", "0", "--device", "cpu"]
    with open(folder.parent / "log.txt", "w+b") as log:
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"})
        try:
            yield psutil.Process(process.pid), _address(process, folder.parent / "log.txt")
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < until:
        lines = log.read_text(encoding="utf-8").splitlines()
        ready = [word for line in lines if "the page" in line for word in line.split() if word.startswith("http://")]
        if ready:
            return ready[0]
        time.sleep(0.2)
    raise RuntimeError(f"the service did not start: {log.read_text(encoding='utf-8')[-2000:]}")


async def load(
    address: str, clients: dict[str, int], length: float, seed: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Response times in seconds by kind of request, and errors."""
    seconds: dict[str, list[float]] = {kind: [] for kind in clients}
    errors: list[str] = []
    until = time.perf_counter() + length

    async def client(kind: str, random: Random) -> None:
        wire = Wire(address)
        words = corpora.texts("koen", 500, seed=random.randrange(1 << 30))
        while (started := time.perf_counter()) < until:
            path, body = REQUESTS[kind](random, words)
            try:
                status, _, answer = await wire.ask(_request(address, path, body))
            except (OSError, EOFError) as error:
                wire.close()
                errors.append(f"{kind}: {type(error).__name__}: {error}")
                continue
            if status == 200:
                seconds[kind].append(time.perf_counter() - started)
            else:
                errors.append(f"{kind}: {status}: {answer[:200].decode(errors='replace')}")
        wire.close()

    numbers = itertools.count(seed * 1000)
    await asyncio.gather(*(client(kind, Random(next(numbers))) for kind in clients for _ in range(clients[kind])))
    return seconds, errors


def text_of(random: Random, sentences: Sequence[str]) -> str:
    """1 to 12 sentences, mostly few, so that almost every request has another number of tokens."""
    return " ".join(random.choices(sentences, k=1 + int(12 * random.random() ** 3)))


def _embed(random: Random, sentences: Sequence[str]) -> tuple[str, Body]:
    return "/embed", {"inputs": [text_of(random, sentences) for _ in range(EMBEDDED)]}


def _search(random: Random, sentences: Sequence[str]) -> tuple[str, Body]:
    mode = random.choice(["semantic", "hybrid"])
    return "/search", {"query": random.choice(sentences), "mode": mode, "rerank": False}


def _rerank(random: Random, sentences: Sequence[str]) -> tuple[str, Body]:
    return "/search", {"query": random.choice(sentences), "rerank": True}


def _add(random: Random, sentences: Sequence[str]) -> tuple[str, Body]:
    documents = [{"id": f"added-{random.getrandbits(64)}", "text": text_of(random, sentences)} for _ in range(2)]
    return "/documents/sample", {"documents": documents}


REQUESTS: dict[str, Callable[[Random, Sequence[str]], tuple[str, Body]]] = {
    "embed": _embed,
    "search": _search,
    "rerank": _rerank,
    "add": _add,
}


def _request(address: str, path: str, body: Body) -> bytes:
    content = json.dumps(body, ensure_ascii=False).encode()
    host = address.removeprefix("http://")
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _mebibytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def _clients(given: str) -> dict[str, int]:
    found = {kind: int(count) for kind, _, count in (one.partition("=") for one in given.split(","))}
    if set(found) - set(REQUESTS):
        raise argparse.ArgumentTypeError(f"expected KIND=N,... with {', '.join(REQUESTS)}, got {given!r}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="length of the measured load (default: 300)")
    parser.add_argument("--warmup", type=float, default=30.0, help="seconds of load before it (default: 30)")
    parser.add_argument("--clients", type=_clients, default=CLIENTS, help="such as embed=2,rerank=1 (default: 2 each)")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
