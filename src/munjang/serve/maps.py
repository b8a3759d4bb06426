"""Maps of indexes: made in the background, one at a time, kept in memory and beside the index.

Enters: an index. Leaves: the points of its documents in the plane, with clusters and their names. A map belongs to one
commit of its index. `derived/map.json` keeps it for the next start; like everything in that folder it can be made
again. While a new map is made after a change, the last one is given out and says that it is stale.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.errors import MunjangError
from munjang.files import atomic_write
from munjang.index.sampling import Sample
from munjang.index.schema import DERIVED
from munjang.serve.errors import NotFound, Unavailable
from munjang.serve.indexes import Shelved
from munjang.tasks.cluster import Clustering, ClusterOptions, cluster
from munjang.tasks.projection import project

VERSION = 1
_FILE = "map.json"
_TEXT = 160  # characters that are shown of a text
_MOST_CLUSTERS = 24
_log = logging.getLogger("munjang.serve")


@dataclass(frozen=True)
class IndexMap:
    """The documents of an index in the plane."""

    points: list[list[float]]  # [n][2]
    ids: list[str]
    texts: list[str]  # their beginnings
    clusters: list[int]  # of each, -1 for none
    names: dict[str, str]  # of the clusters, by number
    method: str  # umap, tsne or pca
    documents: int  # of the index; there are fewer points where it is large
    generation: int
    built_at: str
    stale: bool = False  # the index has changed since

    def place(self, ids: list[str], scores: list[float]) -> tuple[float, float]:
        """Where something stands that is so near to these documents: the mean of their places, by nearness."""
        where = {id: number for number, id in enumerate(self.ids)}
        found = [(where[id], score) for id, score in zip(ids, scores, strict=True) if id in where]
        if not found:
            raise NotFound("no document near this query is on the map: it shows a part of the index only")
        best = max(score for _, score in found)
        spread = max(1e-6, best - min(score for _, score in found))
        weights = np.exp([4.0 * (score - best) / spread for _, score in found])
        points = np.array([self.points[number] for number, _ in found])  # [n, 2]
        x, y = (weights[:, None] * points).sum(axis=0) / weights.sum()
        return float(x), float(y)


@dataclass(frozen=True)
class Building:
    """A map that is being made."""

    progress: float  # 0..1, roughly
    stage: str


class Maps:
    """The maps of all indexes, and the one thread that makes them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ready: dict[str, IndexMap] = {}
        self._building: dict[str, Building] = {}
        self._failed: dict[str, tuple[int, str]] = {}  # generation and why
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # one map at a time
        self._closed = False

    def of(self, shelved: Shelved) -> IndexMap | Building:
        """The map, or how far it is; asking for one that is not there has it made.

        It reads the disk: call it in a thread.
        """
        generation = shelved.generation()
        with self._lock:
            ready = self._ready.get(shelved.name)
            if ready is not None and ready.generation == generation:
                return ready
            failed = self._failed.get(shelved.name)
            if failed is not None and failed[0] == generation:
                raise Unavailable(f"the map could not be made: {failed[1]}")
            if ready is None:
                ready = _read(shelved.index.path, generation)
                if ready is not None:
                    self._ready[shelved.name] = ready
                    return ready
            if shelved.name not in self._building and not self._closed:
                self._building[shelved.name] = Building(0.0, "waiting")
                threading.Thread(target=self._make, args=(shelved,), name="munjang-map", daemon=True).start()
            return replace(ready, stale=True) if ready is not None else self._building[shelved.name]

    def close(self) -> None:
        """Begin no more maps; one that is being made is derived, and ends with the process."""
        self._closed = True

    def _make(self, shelved: Shelved) -> None:
        generation = -1
        try:
            with self._turn:
                generation = shelved.generation()
                made = build(shelved.index.sample(self._most), lambda *told: self._tell(shelved.name, *told))
                with self._lock:
                    self._ready[shelved.name] = made
                _write(shelved.index.path, made)
        except Exception as error:
            if self._closed:
                return
            said = str(error) if isinstance(error, MunjangError) else "a fault, which the log has"
            _log.error("the map of index %s could not be made", shelved.name, exc_info=error)
            with self._lock:
                self._failed[shelved.name] = (generation, said)
        finally:
            with self._lock:
                self._building.pop(shelved.name, None)

    def _tell(self, name: str, progress: float, stage: str) -> None:
        with self._lock:
            self._building[name] = Building(progress, stage)


def build(sample: Sample, tell: Callable[[float, str], None]) -> IndexMap:
    """The map of documents with their vectors."""
    tell(0.1, "clustering")
    clusters = _clusters(sample)
    tell(0.4, "projecting")
    points, method = _points(sample)
    tell(0.95, "writing")
    names = {} if clusters is None else {str(one.number): ", ".join(one.keywords[:3]) for one in clusters}
    return IndexMap(
        points=np.round(points.astype(np.float64), 4).tolist(),
        ids=sample.ids,
        texts=[_short(text) for text in sample.texts],
        clusters=[-1] * len(sample) if clusters is None else clusters.labels.tolist(),
        names=names,
        method=method,
        documents=sample.documents,
        generation=sample.generation,
        built_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def _clusters(sample: Sample) -> Clustering | None:
    if len(sample) < 2:
        return None
    # Not the k of the best silhouette: that is often 2, and a map wants regions that can be named.
    k = min(_MOST_CLUSTERS, max(2, math.isqrt(len(sample) // 4)))
    return cluster(sample.vectors, method="kmeans", k=k, options=ClusterOptions(texts=sample.texts))


def _points(sample: Sample) -> tuple[NDArray[Any], str]:
    if len(sample) < 3:  # too few for any projection: side by side
        return np.array([[float(place), 0.0] for place in range(len(sample))]).reshape(-1, 2), "pca"
    # t-SNE before UMAP: that compiles itself for tens of seconds, in which the service would answer haltingly.
    tsne = importlib.util.find_spec("sklearn") is not None
    return project(sample.vectors, method="tsne" if tsne else "auto", seed=0)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _TEXT else words[: _TEXT - 1] + "…"


def _write(folder: Path | str, made: IndexMap) -> None:
    """Keep the map for the next start; where that fails, it is made again then. An address has no place for it."""
    if not isinstance(folder, Path):
        return
    content = {"version": VERSION, **asdict(made)}
    with contextlib.suppress(OSError):
        (folder / DERIVED).mkdir(exist_ok=True)
        atomic_write(folder / DERIVED / _FILE, json.dumps(content, ensure_ascii=False).encode())


def _read(folder: Path | str, generation: int) -> IndexMap | None:
    """The map that an earlier run kept, if it is whole and of this commit."""
    if not isinstance(folder, Path):
        return None
    try:
        content = json.loads((folder / DERIVED / _FILE).read_bytes())
        if content.pop("version") != VERSION or content["generation"] != generation:
            return None
        found = IndexMap(**content)
        count = len(found.ids)
        whole = count == len(found.texts) == len(found.clusters) == len(found.points)
        return found if whole and np.array(found.points, np.float64).reshape(-1, 2).shape[0] == count else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
