"""`python -m benchmarks.sharding`: a job of many shards by one worker and by several, on this machine.

    python -m benchmarks.sharding --rows 40000 --shards 8 --workers 2 --repeats 3

Every worker has one CPU thread, so that two workers have twice the cores of one. The sides take turns. A run is a whole
job, with the start of the processes and the loading of the model; "encoding" counts from the moment the first shard is
under way, which is what a job of hours looks like. Beside it stands what the machine itself gives: bare matrix
products in as many processes, without Munjang; no job can do better than that. The
outputs of all runs must be the same bytes. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import corpora
from benchmarks.machine import describe
from benchmarks.page import Table
from benchmarks.timing import progress
from munjang.sharding import JobProgress, ModelSource, ShardOptions, encode_shards

# One thread, products of the sizes that a small model has; prints products per second.
_BARE = """
import time, torch
torch.set_num_threads(1)
a, b, c = torch.randn(1500, 384), torch.randn(384, 1536), torch.randn(1536, 384)
count, started = 0, time.perf_counter()
while time.perf_counter() - started < 5:
    torch.nn.functional.gelu(a @ b) @ c
    count += 1
print(count / (time.perf_counter() - started))
"""


@dataclass(frozen=True)
class Run:
    """One job."""

    seconds: float  # of the whole job
    encoding: float  # of it, since the first shard was under way
    digest: str  # of all outputs


def main(argv: list[str] | None = None) -> int:
    """Measure and print a table."""
    args = _parser().parse_args(argv)
    for name, value in describe(args.device or "cpu").items():
        print(f"{name}: {value}")
    runs: dict[int, list[Run]] = {1: [], args.workers: []}
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_shards(folder / "in", args)
        for turn in range(args.repeats):
            bare.append(_products(args.workers) / _products(1))
            for workers in runs:
                progress(f"round {turn + 1} of {args.repeats}: {workers} workers")
                runs[workers].append(_run(args, folder, workers))
        progress("")
    digests = {run.digest for some in runs.values() for run in some}
    print(_table(args, runs).text())
    print(f"\nbare matrix products in {args.workers} processes: {_ratios(bare)} times one")
    print(
        "\nthe outputs of all runs are "
        + ("the same bytes" if len(digests) == 1 else f"of {len(digests)} kinds: WRONG")
    )
    return 0 if len(digests) == 1 else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="beside one")
    parser.add_argument("--corpus", choices=list(corpora.MAKERS), default="koen")
    parser.add_argument("--model", help="default: the bundled one")
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def _write_shards(folder: Path, args: argparse.Namespace) -> None:
    """Shards of the same size: the last one to end must not decide."""
    folder.mkdir()
    texts = corpora.texts(args.corpus, args.rows)
    each = -(-len(texts) // args.shards)
    for number in range(args.shards):
        some = texts[number * each : (number + 1) * each]
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in some)
        (folder / f"part-{number:03}.jsonl").write_text("".join(lines), encoding="utf-8")


def _run(args: argparse.Namespace, folder: Path, workers: int) -> Run:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    began: list[float] = []

    def under_way(now: JobProgress) -> None:
        if not began:
            began.append(time.perf_counter())

    options = ShardOptions(workers=workers, threads=1, format="npy")
    source = ModelSource(args.model, device=args.device, dtype=args.dtype)
    started = time.perf_counter()
    result = encode_shards(folder / "in", out, model=source, options=options, progress=under_way)
    ended = time.perf_counter()
    if not result.ok or result.rows != args.rows:
        raise SystemExit(f"the job is not whole: {result}")
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(out.glob("*.npy")):
        digest.update(path.read_bytes())
    return Run(ended - started, ended - began[0], digest.hexdigest())


def _products(processes: int) -> float:
    """Matrix products per second of so many processes at once."""
    command = [sys.executable, "-c", _BARE]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(processes)]
    return sum(float(child.communicate(timeout=300)[0]) for child in children)


def _table(args: argparse.Namespace, runs: dict[int, list[Run]]) -> Table:
    columns = ("workers", "whole job s", "rows/s", "times one", "encoding s", "rows/s encoding", "times one encoding")
    table = Table(
        f"{args.rows:,} rows in {args.shards} shards",
        columns,
        note="medians; times one: the median of the ratios within a round, the lowest and the highest in brackets.",
    )
    for workers, some in runs.items():
        whole = statistics.median(run.seconds for run in some)
        encoding = statistics.median(run.encoding for run in some)
        rounds = list(zip(runs[1], some, strict=True))
        table.rows.append(
            (
                str(workers),
                f"{whole:.1f}",
                f"{args.rows / whole:,.0f}",
                _ratios([one.seconds / more.seconds for one, more in rounds]),
                f"{encoding:.1f}",
                f"{args.rows / encoding:,.0f}",
                _ratios([one.encoding / more.encoding for one, more in rounds]),
            )
        )
    return table


def _ratios(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
