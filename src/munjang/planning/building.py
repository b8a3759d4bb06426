"""One small index, built, closed, opened and searched: seconds and bytes of it.

Vectors are generated, so that what is measured is the index and not the model.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.bi_encoder import BiEncoder
from munjang.index.index import Index
from munjang.index.options import IndexOptions, VectorKind
from munjang.planning.memory import peak_memory
from munjang.planning.texts import texts, vectors
from munjang.progress import Progress

_QUERIES = 24
_K = 10


@dataclass(frozen=True)
class Build:
    """What one build took."""

    rows: int  # passages
    tokens: float
    seconds: float
    search: float  # seconds of a query, whose vector is there
    documents: int  # bytes of the database
    derived: int  # bytes of what is searched
    text_bytes: int
    vector_bytes: int
    peak: float | None  # bytes of memory of the process, at most


class Builder:
    """Builds indexes of a model, each in a folder of its own that is removed afterwards."""

    def __init__(self, model: BiEncoder, folder: Path, done: Callable[[int], None]) -> None:
        self._model, self._folder, self._done = model, folder, done
        self.dimension = model.dimension
        self._per_text: dict[int, float] = {}

    def __call__(
        self, kind: VectorKind, rows: int, *, words: int = 8, graph: bool = False, keyword: bool = False
    ) -> Build:
        """An index of so many texts of so many words."""
        given = texts(rows, words, seed=1)
        ready = vectors(rows, self.dimension, seed=1)
        options = IndexOptions(vectors=kind, keyword=keyword, exact_up_to=0 if graph else 1 << 40)
        path = self._folder / "index"
        try:
            with peak_memory() as memory:
                started = time.perf_counter()
                with Index.create(path, self._model, options=options) as index:
                    report = index.add(
                        ({"id": str(number), "text": text} for number, text in enumerate(given)), encode=_Ready(ready)
                    )
                seconds = time.perf_counter() - started
            with Index.open(path, self._model) as index:
                search = _search(index, vectors(_QUERIES, self.dimension, seed=2))
                size: Any = index.describe()["bytes"]
        finally:
            shutil.rmtree(path, ignore_errors=True)
        self._done(1)
        return Build(
            rows=report.passages,
            tokens=rows * self._tokens(words),
            seconds=seconds,
            search=search,
            documents=int(size["documents"]),
            derived=int(size["derived"]),
            text_bytes=sum(len(text.encode()) for text in given),
            vector_bytes=report.passages * (4 * self.dimension if kind == "float32" else 4 + self.dimension),
            peak=memory.peak,
        )

    def _tokens(self, words: int) -> float:
        """Of a text of so many words, whole."""
        if words not in self._per_text:
            self._per_text[words] = float(self._model.tokenizer.count(texts(64, words, seed=1)).mean())
        return self._per_text[words]


class _Ready:
    """Vectors that are there already, handed out in order."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._rows, self._at = rows, 0

    def __call__(self, texts: list[str], *, progress: Progress) -> NDArray[np.float32]:
        places = np.arange(self._at, self._at + len(texts)) % len(self._rows)
        self._at += len(texts)
        return self._rows[places]


def _search(index: Index, queries: NDArray[np.float32]) -> float:
    """Seconds of a query, the middle one's; the first opens files."""
    index.search(queries[0], _K)
    times = []
    for query in queries:
        started = time.perf_counter()
        index.search(query, _K)
        times.append(time.perf_counter() - started)
    return statistics.median(times)
