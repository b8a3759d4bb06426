"""One set of vectors, several layouts of an index's dense vectors, and plain faiss beside each.

Enters: rows and queries. Leaves: records of recall (without and with filters), speed in turns with plain faiss, and
what building, saving, opening and holding cost. Opening and memory are measured in processes of their own.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.children import environment
from benchmarks.timing import PAUSE, Ratio, progress
from munjang.index import dense_graph
from munjang.index.dense import FILE, DenseIndex, DenseState

Floats = NDArray[np.float32]
Record = dict[str, Any]
K = 10
SHARES = (1.0, 0.5, 0.05, 0.001)  # of the rows that a filter passes
LAYOUTS: dict[str, dict[str, Any]] = {
    "exact": {"vectors": "float32", "exact_up_to": 1 << 62},
    "graph": {"vectors": "float32", "exact_up_to": 0},
    "int8": {"vectors": "int8", "exact_up_to": 1 << 62},
    "int8 graph": {"vectors": "int8", "exact_up_to": 0},
    "binary": {"vectors": "binary", "exact_up_to": 1 << 62},
}


@dataclass
class Matrix:
    """`Passages` over a matrix: what is measured is the structure, not the database under it."""

    rows: Floats
    generation: int = 1

    @property
    def dimension(self) -> int:
        return int(self.rows.shape[1])

    def last_number(self) -> int:
        return len(self.rows)

    def numbers(self) -> NDArray[np.int64]:
        return np.arange(1, len(self.rows) + 1)

    def vectors(self, numbers: NDArray[np.int64]) -> Floats:
        return np.asarray(self.rows[numbers - 1], dtype=np.float32)

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        for start in range(after, upto, 4096):
            some = np.arange(start + 1, min(start + 4096, upto) + 1)
            yield some, self.vectors(some)

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
        raise NotImplementedError("vectors have no texts here")


@dataclass(frozen=True)
class Plan:
    repeats: int
    singles: int  # queries one at a time, each repetition
    folder: Path


def truth(rows: Floats, queries: Floats, mask: NDArray[np.bool_]) -> Floats:
    """The K-th best score of every query among the allowed rows, by brute force: [q]."""
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    for start in range(0, len(rows), 50_000):
        some = rows[start : start + 50_000][mask[start : start + 50_000]]
        best = -np.sort(-np.concatenate((best, queries @ some.T), axis=1), axis=1)[:, :K]
    return best[:, min(K, int(mask.sum())) - 1]


def measure(layout: str, rows: Floats, queries: Floats, plan: Plan) -> Record:
    """Build, save, open, search."""
    passages = Matrix(rows)
    folder = plan.folder / layout.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    index = DenseIndex(folder, dimension=passages.dimension, **LAYOUTS[layout])
    progress(f"{layout}: building")
    started = time.perf_counter()
    index.refresh(passages)
    followed = time.perf_counter() - started
    index.save(passages, whole=True)
    saved = time.perf_counter() - started
    state = index.refresh(passages)
    record: Record = {
        "layout": layout,
        "rows": len(rows),
        "dimension": passages.dimension,
        "graph": bool(state.main.graph),
    }
    record |= {"follow s": followed, "build and save s": saved, "file MB": (folder / FILE).stat().st_size / 1e6}
    record["recall"] = _recall(state, rows, queries)
    record |= _speed(layout, state, rows, queries, plan)
    record |= _tail_rate(index, rows)
    return record


def _recall(state: DenseState, rows: Floats, queries: Floats) -> dict[str, float]:
    """Share of the answers that are as near as the K-th best; equally near ones count alike."""
    found: dict[str, float] = {}
    for share in SHARES:
        progress(f"recall where {share:.1%} are allowed")
        mask = np.random.default_rng(5).random(len(rows)) < share if share < 1 else np.ones(len(rows), np.bool_)
        if not mask.any():
            mask[0] = True
        scores = state.search(queries, K, allowed=None if share == 1 else mask).scores
        least = truth(rows, queries, mask)[:, None]
        found[f"{share:g}"] = float((scores[:, : min(K, int(mask.sum()))] >= least - 1e-6).mean())
    return found


def _speed(layout: str, state: DenseState, rows: Floats, queries: Floats, plan: Plan) -> Record:
    progress(f"{layout}: building plain faiss")
    theirs = plain(layout, rows)
    ones = queries[: plan.singles]
    sides: dict[str, Callable[[], object]] = {
        "single faiss": lambda: [theirs(one[None]) for one in ones],
        "single": lambda: [state.search(one[None], K) for one in ones],
        "batch faiss": lambda: theirs(queries),
        "batch": lambda: state.search(queries, K),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(plan.repeats + 1):
        for name, call in sides.items():
            progress(f"{layout}: {name}, {number} of {plan.repeats}")
            time.sleep(PAUSE / 4)
            started = time.perf_counter()
            call()
            if number:  # the first round warms up
                seconds[name].append(time.perf_counter() - started)
    return {"seconds": seconds, "singles": len(ones), "batch": len(queries)}


def plain(layout: str, rows: Floats) -> Callable[[Floats], object]:
    """The same structure in faiss alone; bytes and bits without rescoring."""
    faiss: Any = importlib.import_module("faiss")
    size = rows.shape[1]
    if layout == "binary":
        bits = faiss.IndexBinaryFlat(-(-size // 8) * 8)
        bits.add(np.packbits(rows > 0, axis=1))
        return lambda queries: bits.search(np.packbits(queries > 0, axis=1), K)
    eight, product = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index: Any
    if "graph" in layout:
        index = (
            faiss.IndexHNSWFlat(size, dense_graph.LINKS, product)
            if layout == "graph"
            else faiss.IndexHNSWSQ(size, eight, dense_graph.LINKS, product)
        )
        index.hnsw.efConstruction, index.hnsw.efSearch = dense_graph.CONSTRUCTION, dense_graph.SEARCH
        index.keep_max_size_level0 = dense_graph.FILL
    else:
        index = faiss.IndexScalarQuantizer(size, eight, product) if layout == "int8" else faiss.IndexFlatIP(size)
    index.train(rows)
    index.add(rows)
    return lambda queries: index.search(queries, K)


def _tail_rate(index: DenseIndex, rows: Floats) -> Record:
    """A thousand rows more: until they can be found."""
    more = Matrix(np.concatenate((rows, rows[: min(1000, len(rows))])), generation=2)
    started = time.perf_counter()
    index.refresh(more)
    return {"add s": time.perf_counter() - started, "added": len(more.rows) - len(rows)}


def ratio(record: Record, name: str) -> Ratio:
    """Our speed over plain faiss's, round by round."""
    pairs = zip(record["seconds"][f"{name} faiss"], record["seconds"][name], strict=True)
    each = [theirs / ours for theirs, ours in pairs]
    return Ratio(statistics.median(each), min(each), max(each))


def rate(record: Record, name: str) -> float:
    """Queries a second, the median repetition's."""
    count = record["singles"] if name.startswith("single") else record["batch"]
    return float(count / statistics.median(record["seconds"][name]))


def opened(layout: str, vectors: Path, folder: Path) -> Record:
    """Open what `measure` saved, in a process of its own: seconds and memory."""
    command = [sys.executable, "-m", "benchmarks.index_measure", layout, str(vectors), str(folder)]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=3600, check=False)
    if done.returncode:
        raise RuntimeError(f"opening {layout} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    record: Record = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return record


def _resident() -> float:
    """MB that this process holds now."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _open(layout: str, vectors: Path, folder: Path) -> Record:
    passages = Matrix(np.load(vectors, mmap_mode="r"))
    query = np.array(passages.rows[:1])
    index = DenseIndex(folder / layout.replace(" ", "-"), dimension=passages.dimension, **LAYOUTS[layout])
    DenseIndex(folder / "none", dimension=1).refresh(Matrix(np.zeros((1, 1), np.float32)))  # faiss is imported
    before, started = _resident(), time.perf_counter()
    state = index.refresh(passages)
    seconds = time.perf_counter() - started
    state.search(query, K)
    first = time.perf_counter() - started
    return {"open s": seconds, "first answer s": first, "memory MB": _resident() - before}


if __name__ == "__main__":
    print(json.dumps(_open(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
