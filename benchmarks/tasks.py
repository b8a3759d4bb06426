"""Mining and communities beside sentence-transformers' own functions, from the same ready vectors; clustering alone.

    python -m benchmarks.tasks mining --rows 100000 [--vectors corpus.npy]
    python -m benchmarks.tasks communities --rows 50000 --threshold 0.75 --min-size 10
    python -m benchmarks.tasks mining --rows 1000000 --device cuda --alone --threshold 0.8
    python -m benchmarks.tasks clustering --rows 10000 --device cuda --model MODEL

Every run is a process of its own, and the sides take turns, so that what slows the machine down slows both down. A run
first does a small job of the same kind, untimed; then come the seconds, and the most memory that the job took above
what the process had with the vectors loaded. The answers of both sides are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import environment
from benchmarks.machine import describe
from benchmarks.page import Table
from benchmarks.probe import memory
from benchmarks.timing import progress

OURS, THEIRS = "Munjang", "sentence-transformers"
MAX_PAIRS, TOP_K = 500_000, 100  # sentence-transformers' defaults
ROUNDING = 2e-6  # by so much two float32 products of the same rows may differ


def main(argv: list[str] | None = None) -> int:
    """Measure one job and print a table."""
    args = _parser().parse_args(argv)
    if args.child:
        print(json.dumps(_child(args)))
        return 0
    for name, value in describe(args.device).items():
        print(f"{name}: {value}")
    with tempfile.TemporaryDirectory() as folder:
        if args.job == "clustering":
            _print_clustering(_run(args, OURS, Path(folder)))
            return 0
        args.vectors = str(_vectors(args, Path(folder)))
        sides = [OURS] if args.alone else [THEIRS, OURS]
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for number in range(args.repeats):
            for side in sides:
                progress(f"round {number + 1} of {args.repeats}: {side}")
                runs[side].append(_run(args, side, Path(folder)))
        progress("")
        print(_table(args, runs).text())
        if not args.alone:
            same = _same_pairs(Path(folder)) if args.job == "mining" else _same_communities(Path(folder))
            print("\n" + same)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("job", choices=["mining", "communities", "clustering"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384, help="of generated vectors")
    parser.add_argument("--vectors", help="a .npy file; its first --rows rows are taken (default: generated)")
    parser.add_argument("--threshold", type=float, help="communities: default 0.75; mining: all pairs above it instead")
    parser.add_argument("--min-size", type=int, default=10, help="of communities")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--alone", action="store_true", help="only our side")
    parser.add_argument("--model", help="clustering: what encodes the texts (default: the bundled one)")
    parser.add_argument("--k", type=int, help="clustering: the number of clusters (default: chosen)")
    parser.add_argument("--child", choices=[OURS, THEIRS], help=argparse.SUPPRESS)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    return parser


def _vectors(args: argparse.Namespace, folder: Path) -> Path:
    """A file of vectors at length 1: given, or about 20 near each of many centres, some nearer and some less."""
    if args.vectors:
        found = np.load(args.vectors, mmap_mode="r")[: args.rows]
        if len(found) < args.rows:
            raise SystemExit(f"{args.vectors} has {len(found):,} rows, {args.rows:,} were asked for")
        vectors = np.array(found, np.float32)
    else:
        vectors = generated(args.rows, args.dimension)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    np.save(folder / "vectors.npy", vectors)
    return folder / "vectors.npy"


def generated(rows: int, dimension: int) -> np.ndarray[Any, Any]:
    """Rows about centres, in blocks, float32 [rows, dimension]."""
    generator = np.random.default_rng(20)
    centres = generator.standard_normal((max(1, rows // 20), dimension), dtype=np.float32)
    vectors = np.empty((rows, dimension), np.float32)
    for start in range(0, rows, 65_536):
        count = min(65_536, rows - start)
        near = centres[generator.integers(len(centres), size=count)]
        spread = 0.3 + 0.7 * generator.random((count, 1), dtype=np.float32)
        vectors[start : start + count] = near + spread * generator.standard_normal((count, dimension), np.float32)
    return vectors


def _run(args: argparse.Namespace, side: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.tasks", args.job, "--child", side]
    command += ["--answer", str(folder / f"{side}.npz"), "--rows", str(args.rows), "--device", args.device]
    command += ["--min-size", str(args.min_size)]
    for name in ("vectors", "threshold", "model", "k"):
        if getattr(args, name) is not None:
            command += [f"--{name}", str(getattr(args, name))]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return found


# --- in the child ----------------------------------------------------------------------------------------------------


def _child(args: argparse.Namespace) -> dict[str, float]:
    if args.job == "clustering":
        return _clustering(args)
    vectors = np.load(args.vectors)
    work = {
        ("mining", OURS): _mine_ours,
        ("mining", THEIRS): _mine_theirs,
        ("communities", OURS): _communities_ours,
        ("communities", THEIRS): _communities_theirs,
    }[args.job, args.child]
    work(vectors[:5000], args)
    _forget_peak()
    before, started, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    answer = work(vectors, args)
    seconds, busy, peak = time.perf_counter() - started, time.process_time() - cpu, memory("VmHWM")
    found = {
        "seconds": seconds,
        "cpu_s": busy,
        "extra_mb": peak - before,
        "answers": float(len(next(iter(answer.values())))),
    }
    if args.device.startswith("cuda"):
        import torch

        found["device_mb"] = torch.cuda.max_memory_allocated() / (1 << 20)
    np.savez(args.answer, **answer)
    return found


def _forget_peak() -> None:
    """Let the high-water mark begin anew, where the system can; else it holds the small job's, which is lower."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _mine_ours(vectors: np.ndarray[Any, Any], args: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    from munjang.tasks.paraphrases import MiningOptions, mine_paraphrases

    options = MiningOptions(device=args.device, most_pairs=1 << 62)
    limits: dict[str, Any] = {"top": MAX_PAIRS, "per_text": TOP_K}
    if args.threshold is not None:
        limits = {"threshold": args.threshold}
    found = mine_paraphrases(vectors, options=options, **limits)
    return {"scores": found.scores, "pairs": found.pairs}


def _mine_theirs(vectors: np.ndarray[Any, Any], args: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    import torch
    from sentence_transformers.util import paraphrase_mining_embeddings

    found = paraphrase_mining_embeddings(torch.from_numpy(vectors).to(args.device))
    if args.threshold is not None:
        found = [pair for pair in found if pair[0] >= args.threshold]
    scores, left, right = (np.array(column) for column in zip(*found, strict=True))
    return {"scores": scores.astype(np.float32), "pairs": np.stack([left, right], axis=1).astype(np.int64)}


def _communities_ours(vectors: np.ndarray[Any, Any], args: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    from munjang.tasks.communities import communities

    found = communities(vectors, _threshold(args), min_size=args.min_size, device=args.device)
    return _flat([each.tolist() for each in found])


def _communities_theirs(vectors: np.ndarray[Any, Any], args: argparse.Namespace) -> dict[str, np.ndarray[Any, Any]]:
    import torch
    from sentence_transformers.util import community_detection

    rows = torch.from_numpy(vectors).to(args.device)
    return _flat(community_detection(rows, threshold=_threshold(args), min_community_size=args.min_size))


def _threshold(args: argparse.Namespace) -> float:
    return 0.75 if args.threshold is None else float(args.threshold)


def _flat(found: list[list[int]]) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "sizes": np.array([len(each) for each in found], np.int64),
        "members": np.array([row for each in found for row in each], np.int64),
    }


def _clustering(args: argparse.Namespace) -> dict[str, float]:
    """Texts to clusters: encoded, then grouped; the second of two runs, when everything is loaded and compiled."""
    import munjang
    from benchmarks import corpora
    from munjang.tasks.cluster import ClusterOptions, cluster

    texts = corpora.texts("koen", args.rows)
    model = munjang.load(args.model, device=args.device) if args.model else munjang.load(device=args.device)
    found = {}
    for _ in range(2):
        started = time.perf_counter()
        vectors = model.encode(texts)
        encoded = time.perf_counter()
        groups = cluster(vectors, k=args.k, options=ClusterOptions(device=args.device))
        ended = time.perf_counter()
        found = {"encode_s": encoded - started, "cluster_s": ended - encoded, "k": float(groups.k)}
    return {**found, "texts": float(args.rows)}


# --- what is told ----------------------------------------------------------------------------------------------------


def _table(args: argparse.Namespace, runs: dict[str, list[dict[str, float]]]) -> Table:
    middle = {
        side: {key: statistics.median(run[key] for run in found) for key in found[0]} for side, found in runs.items()
    }
    columns = (
        "side",
        "seconds",
        "CPU seconds",
        "extra MB",
        "answers",
        *(("device MB",) if "device_mb" in middle[OURS] else ()),
    )
    rows = [
        (
            side,
            f"{found['seconds']:.2f}",
            f"{found['cpu_s']:.2f}",
            f"{found['extra_mb']:,.0f}",
            f"{found['answers']:,.0f}",
        )
        + ((f"{found['device_mb']:,.0f}",) if "device_mb" in found else ())
        for side, found in middle.items()
    ]
    if THEIRS in runs:
        faster, cheaper, smaller = (
            [b[key] / max(a[key], 1e-9) for a, b in zip(runs[OURS], runs[THEIRS], strict=True)]
            for key in ("seconds", "cpu_s", "extra_mb")
        )
        spread = f" ({min(faster):.1f}-{max(faster):.1f})"
        middles = [f"{statistics.median(each):.1f}" for each in (faster, cheaper, smaller)]
        rows.append((f"{THEIRS} / {OURS}", middles[0] + spread, *middles[1:], ""))
    return Table(f"{args.job}, {args.rows:,} rows", columns, [tuple(row) for row in rows])


def _same_pairs(folder: Path) -> str:
    ours, theirs = (np.load(folder / f"{side}.npz") for side in (OURS, THEIRS))
    one, other = ({tuple(pair) for pair in found["pairs"].tolist()} for found in (ours, theirs))
    scores = {tuple(pair): score for found in (ours, theirs) for pair, score in _scored(found)}
    last = min(ours["scores"].min(), theirs["scores"].min())
    apart = [pair for pair in one ^ other if scores[pair] > last + ROUNDING]
    return (
        f"pairs: {len(one):,} and {len(other):,}, {len(one & other):,} the same; {len(one ^ other):,} in one answer"
        f" only, {len(apart):,} of them above the last score by more than rounding"
    )


def _scored(found: Any) -> list[tuple[list[int], float]]:
    return list(zip(found["pairs"].tolist(), found["scores"].tolist(), strict=True))


def _same_communities(folder: Path) -> str:
    ours, theirs = (np.load(folder / f"{side}.npz") for side in (OURS, THEIRS))
    one, other = (
        [part.tolist() for part in np.split(found["members"], np.cumsum(found["sizes"])[:-1]) if len(part)]
        for found in (ours, theirs)
    )
    same = sum(a == b for a, b in zip(one, other, strict=False))
    as_sets = len({frozenset(each) for each in one} & {frozenset(each) for each in other})
    return (
        f"communities: {len(one):,} and {len(other):,}; {same:,} the same in place and order of members,"
        f" {as_sets:,} the same as sets"
    )


def _print_clustering(found: dict[str, float]) -> None:
    total = found["encode_s"] + found["cluster_s"]
    print(
        f"\n{found['texts']:,.0f} texts: encoded in {found['encode_s']:.3f} s, grouped into {found['k']:.0f} clusters"
        f" in {found['cluster_s']:.3f} s, together {total:.3f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
