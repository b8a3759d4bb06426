"""Vectors of all sentences -> the nearest others of each, window after window: exactly, or by an HNSW graph.

Exact search compares every sentence with every other (`munjang.vectors.top_k`): the best there is, and quick on a GPU
or for some hundred thousand sentences. An HNSW graph (Malkov and Yashunin 2016, by faiss) is built once and asked in
logarithmic time. It is built by one thread, because several would weave another graph every time; and it is saved, so
that a killed search does not build it again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError, MissingExtraError
from munjang.files import atomic_path, disk_errors
from munjang.vectors import normalize, top_k

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[Any]
Search: TypeAlias = Callable[[slice, int], Array]  # rows of the sentences, k -> places int64 [rows, k], -1 for none

EXACT_ON_CPU = 200_000  # sentences up to which a CPU searches exactly unless told otherwise
_LINKS, _BUILD_BREADTH, _SEARCH_BREADTH = 32, 100, 128  # HNSW: edges of a node, candidates while building and asking
_BLOCK = 16_384  # vectors added to the graph at once


def is_approximate(wish: bool | None, count: int, device: torch.device) -> bool:
    """As wished; else exact, except for many sentences on a CPU."""
    return device.type == "cpu" and count > EXACT_ON_CPU if wish is None else wish


def check_vectors(vectors: Array | None, count: int) -> Array:
    """Vectors that can be searched: float [n, d], one for each sentence."""
    if vectors is None:
        raise InputError("semantic candidates need the vectors of all sentences, got None: encode them, or use bm25")
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise InputError(f"vectors must be floats [sentences, d], got {vectors.dtype} {list(vectors.shape)}")
    if len(vectors) != count:
        raise InputError(f"every sentence needs its vector: got {count:,} sentences and {len(vectors):,} vectors")
    return vectors


def exact_search(vectors: Array, device: torch.device) -> Search:
    """Every sentence against all; the sentence itself is among its neighbours."""
    import torch

    corpus: Any = vectors
    memory = 512.0
    if device.type == "cuda":
        memory = 4096.0
        if vectors.nbytes < torch.cuda.mem_get_info(device)[0] / 3:  # there once, instead of once a window
            corpus = torch.from_numpy(np.array(vectors, np.float32)).to(device)

    def search(rows: slice, k: int) -> Array:
        queries = np.ascontiguousarray(vectors[rows])
        return top_k(queries, corpus, k, memory_mb=memory, device=str(device)).indices

    return search


def graph_search(vectors: Array, saved: Path, done: Callable[[int], None]) -> Search:
    """An HNSW graph over the vectors, read from `saved` or built and written there."""
    faiss = _faiss()
    if saved.exists():
        graph = faiss.read_index(str(saved))
        done(len(vectors))
    else:
        graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _BUILD_BREADTH
        with _one_thread(faiss):
            for start in range(0, len(vectors), _BLOCK):
                block = _units(vectors[start : start + _BLOCK])
                broken = np.flatnonzero(~np.isfinite(block).all(axis=1))
                if len(broken):
                    raise InputError(
                        f"vectors must be finite, but row {start + int(broken[0])} is not: encode it again"
                    )
                graph.add(block)
                done(min(_BLOCK, len(vectors) - start))
        _save(faiss, graph, saved)

    def search(rows: slice, k: int) -> Array:
        graph.hnsw.efSearch = max(_SEARCH_BREADTH, 2 * k)
        places: Array = graph.search(_units(vectors[rows]), k)[1]
        return places.astype(np.int64, copy=False)

    return search


def _units(vectors: Array) -> Array:  # float32 [n, d], of length 1: inner products are cosines
    return normalize(np.ascontiguousarray(vectors, np.float32))


def _save(faiss: Any, graph: Any, path: Path) -> None:
    with disk_errors(path, safe="make room and call it again"), atomic_path(path) as temporary:
        faiss.write_index(graph, str(temporary))


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError:
        purpose = (
            "Approximate search (the default on a CPU for more than 200,000 sentences; approximate=False is exact)"
        )
        raise MissingExtraError("faiss-cpu", "search", purpose) from None
