"""`python -m benchmarks.remote ADDRESS`: generated texts into an index on a server (or in a folder), then searched.

    texts -> encoded -> ADDRESS -> searched -> rates, recall@10 against brute force, memory of this process

    python -m benchmarks.remote milvus://localhost:19530/bench --rows 1000000
    python -m benchmarks.remote postgresql://me@localhost/db?index=bench --rows 100000 --model FOLDER

Brute force goes along: while vectors are made, the best scores of every query are kept, so that a million rows need no
more memory than ten thousand. The index must be new; it is dropped at the end, unless `--keep`. Nothing here passes or
fails: it measures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import munjang
from benchmarks import corpora, machine, models
from munjang.index.index import Index
from munjang.index.remote.index import RemoteIndex
from munjang.progress import Progress

K = 10
TOLERANCE = 1e-4  # of a score: engines sum up in another order
SAMPLES = 40  # looks at the memory
Floats = NDArray[np.float32]


class BruteForce:
    """The best scores of every query over all vectors that pass, without keeping them."""

    def __init__(self, model: munjang.BiEncoder, queries: Floats) -> None:
        self._model = model
        self._queries = queries  # [q, d]
        self.best = np.full((len(queries), K), -np.inf, np.float32)
        self.seconds = 0.0

    def __call__(self, texts: list[str], *, progress: Progress) -> NDArray[Any]:
        """What `Index.add` encodes with."""
        vectors = self._model.encode_document(texts, progress=progress)
        started = time.perf_counter()
        for first in range(0, len(vectors), 4_096):
            scores = self._model.similarity(self._queries, vectors[first : first + 4_096])
            joined = np.concatenate([self.best, np.asarray(scores, np.float32)], axis=1)
            self.best = -np.sort(-joined, axis=1)[:, :K]
        self.seconds += time.perf_counter() - started
        return vectors


class Memory:
    """What this process holds, over the time of adding."""

    def __init__(self, rows: int) -> None:
        self._every = max(1, rows // SAMPLES)
        self._next = 0
        self.samples: list[tuple[int, float]] = []  # documents, MB

    def look(self, done: int, total: int | None) -> None:
        if done >= self._next:
            self.samples.append((done, resident()))
            self._next = done + self._every
            print(f"\r{done:,} documents, {self.samples[-1][1]:,.0f} MB here ", end="", flush=True)

    def growth(self) -> float:
        """MB between the greatest of the second quarter, when everything is in use, and of the last."""
        count = len(self.samples)
        second = [size for _, size in self.samples[count // 4 : count // 2]]
        last = [size for _, size in self.samples[-max(1, count // 4) :]]
        return max(last) - max(second) if second else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    options = _parser().parse_args(arguments)
    facts = machine.describe("cpu")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    model = munjang.load(str(options.model or models.minilm()))
    if options.averaged:
        model = models.averaged(model, Path(tempfile.mkdtemp()) / "averaged")
    asked = corpora.texts(options.corpus, options.queries, seed=7)
    queries = np.asarray(model.encode_query(asked), np.float32)
    with Index.create(options.address, model) as index:
        try:
            record = measure(index, queries, options.rows, options.corpus)
        finally:
            if isinstance(index, RemoteIndex) and not options.keep:
                index.drop()
    print("\n" + "\n".join(f"{name}: {value}" for name, value in record.items()))
    if options.json:
        options.json.write_text(json.dumps({"machine": facts, "record": record}, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(index: Index, queries: Floats, rows: int, corpus: str) -> dict[str, Any]:
    """Fill the index, search in it, compare with brute force."""
    brute, memory = BruteForce(index.model, queries), Memory(rows)
    started = time.perf_counter()
    report = index.add(documents(rows, corpus), encode=brute, progress=memory.look, commit_every=2_048)
    seconds = time.perf_counter() - started - brute.seconds
    alone = rate_of_encoding(index.model, corpus)
    singles, found = [], []
    for query in queries:
        began = time.perf_counter()
        found.append([hit.score for hit in index.search(query, K, mode="semantic")])
        singles.append(time.perf_counter() - began)
    began = time.perf_counter()
    index.search_many(queries, K, mode="semantic")
    together = time.perf_counter() - began
    return {
        "rows": report.added,
        "dimension": index.dimension,
        "seconds to add": round(seconds, 1),
        "rows/s added": round(rows / seconds),
        "rows/s of encoding alone": round(alone),
        f"recall@{K}": round(recall(found, brute.best), 4),
        "ms of a search, median": round(1000 * statistics.median(singles), 1),
        "ms of a search, 95 %": round(1000 * float(np.quantile(singles, 0.95)), 1),
        "searches/s in a batch": round(len(queries) / together, 1),
        "memory here, MB": [round(size) for _, size in memory.samples],
        "memory growth, MB": round(memory.growth(), 1),
        "count": index.count,
        "what": {key: value for key, value in index.describe().items() if key not in ("path", "fingerprint")},
    }


def documents(rows: int, corpus: str) -> Iterator[dict[str, Any]]:
    """Generated documents, without end in memory."""
    for number, text in enumerate(itertools.islice(corpora.stream(corpus), rows)):
        yield {"id": number, "text": text, "year": 1990 + number % 36}


def recall(found: Sequence[Sequence[float]], best: Floats) -> float:
    """The share of answers that are as near as the K-th best by brute force."""
    right = [sum(score >= limit - TOLERANCE for score in own) for own, limit in zip(found, best[:, -1], strict=True)]
    return sum(right) / best.size


def rate_of_encoding(model: munjang.BiEncoder, corpus: str) -> float:
    """Texts per second where nothing is written."""
    texts = list(itertools.islice(corpora.stream(corpus, seed=3), 2_048))
    began = time.perf_counter()
    model.encode_document(texts)
    return len(texts) / (time.perf_counter() - began)


def resident() -> float:
    """MB that this process holds now."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("address", help="of a new index: milvus://..., postgresql://..., or a folder")
    parser.add_argument("--rows", type=int, default=1_000_000, help="documents (%(default)s)")
    parser.add_argument("--queries", type=int, default=200, help="searches (%(default)s)")
    parser.add_argument("--corpus", choices=list(corpora.MAKERS), default="koen", help="what is written (%(default)s)")
    parser.add_argument("--model", type=Path, help="a folder; without it all-MiniLM-L6-v2")
    parser.add_argument(
        "--averaged", action="store_true", help="its word embeddings alone: the server is measured, not the encoder"
    )
    parser.add_argument("--keep", action="store_true", help="leave the index there")
    parser.add_argument("--json", type=Path, help="write everything there")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
