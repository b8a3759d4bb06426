"""Texts or vectors -> a picture of them in the plane: near what is alike, coloured by cluster, as HTML or PNG.

    texts -> vectors -> points [n, 2] (`projection.py`) -> Map -> one HTML page (`map_html.py`) or PNG (`map_png.py`)

Distances on a map are only good nearby: two clusters that lie far apart need not be less alike than two that lie near.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from munjang.data.rows import read_texts
from munjang.errors import DataError, InputError
from munjang.files import atomic_write, disk_errors
from munjang.progress import Progress
from munjang.tasks.class_tfidf import class_words
from munjang.tasks.cluster import ClusterOptions, cluster
from munjang.tasks.projection import Method, check_vectors, choose_method, project

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder

Array = np.ndarray[Any, Any]
Theme = Literal["auto", "light", "dark"]
_MADE_BY = {"umap": "UMAP", "tsne": "t-SNE", "pca": "PCA"}


@runtime_checkable
class Labelled(Protocol):
    """What `cluster` and `topics` return: a label for every row."""

    @property
    def labels(self) -> Array: ...


Labels = Sequence[int] | Sequence[str] | Array | Labelled | Literal["clusters"] | None


@dataclass(frozen=True, eq=False)
class Map:
    """Points in the plane and what they stand for."""

    points: Array  # float32 [n, 2]
    labels: Array | None  # int64 [n], -1 for none
    names: Mapping[int, str]  # of the labels
    texts: tuple[str, ...] | None
    method: str  # umap, tsne or pca
    seed: int
    seconds: float

    def html(self, path: str | Path, *, title: str = "Map of texts", theme: Theme = "auto") -> Path:
        """Write one page that works offline: hover, zoom, clusters switched on and off, light and dark."""
        from munjang.tasks.map_html import page

        if theme not in ("auto", "light", "dark"):
            raise InputError(f"theme must be auto, light or dark, got {theme!r}")
        note = f"{len(self.points):,} texts · {_MADE_BY[self.method]}"
        filled = page(self.points, self.texts, self.labels, self.names, title=title, note=note, theme=theme)
        return _write(path, filled)

    def png(self, path: str | Path, *, title: str = "", dark: bool = False) -> Path:
        """Write a picture of 1500 x 1125 pixels."""
        from munjang.tasks.map_png import draw

        return _write(path, draw(self.points, self.labels, self.names, title=title, dark=dark))


def text_map(
    given: Sequence[str] | Array,
    model: BiEncoder | None = None,
    *,
    vectors: Array | None = None,
    labels: Labels = None,
    method: Method = "auto",
    seed: int = 0,
    progress: Progress = False,
) -> Map:
    """The map of texts, or of vectors [n, d]. `vectors`: those of the texts, where they are ready.

    labels: one for every row (numbers or words), what `cluster` or `topics` returned, or 'clusters' to find some here.
    Numbers get the words that set their texts apart as names. method: 'auto' is UMAP where it is installed, else t-SNE,
    else PCA.
    """
    started = time.perf_counter()
    is_vectors = isinstance(given, np.ndarray) and given.dtype.kind not in "OUT"
    ready: Any = given if is_vectors else vectors
    texts = None if is_vectors else tuple(read_texts(given))
    count = len(given if texts is None else texts)
    if vectors is not None and (len(vectors) != count or texts is None):
        raise InputError(f"vectors must be those of the texts, one each: got {len(vectors):,} for {count:,} rows")
    if not count:
        raise InputError("there is nothing to map: no texts")
    choose_method(method, count)
    numbers, names = (None, {}) if labels is None or isinstance(labels, str) else _read_labels(labels, count)
    rows = check_vectors(_encode(texts or (), model, progress) if ready is None else ready)
    if isinstance(labels, str):
        numbers = _clusters(labels, rows, seed)
    if numbers is not None and not names and texts is not None:
        names = {label: name_of(words) for label, words in class_words(texts, numbers, top=3).items()}
    points, used = project(rows, method=method, seed=seed)
    return Map(points, numbers, names, texts, used, seed, time.perf_counter() - started)


def name_of(words: Sequence[Any]) -> str:
    """The first three words of a class, as its name."""
    return ", ".join(word.text for word in words[:3])


def _encode(texts: Sequence[str], model: BiEncoder | None, progress: Progress) -> Array:
    if model is None:
        from munjang.loading import load

        model = load()
    return model.encode_document(texts, progress=progress)


def _clusters(labels: str, rows: Array, seed: int) -> Array:
    if labels != "clusters":
        raise InputError(f"labels must be 'clusters', or a label for every row, got the text {labels!r}")
    return cluster(rows, method="kmeans", options=ClusterOptions(seed=seed)).labels


def _read_labels(labels: Any, count: int) -> tuple[Array, dict[int, str]]:
    """Numbers for the labels and their names; words are numbered in the order of the alphabet."""
    names: dict[int, str] = {}
    if isinstance(labels, Labelled):
        names = {int(topic.number): str(topic.name) for topic in getattr(labels, "topics", ())}
        labels = labels.labels
    values = list(labels)
    if len(values) != count:
        raise InputError(f"every row needs a label: got {len(values):,} labels for {count:,} rows")
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64), names
    wrong = next((number for number, value in enumerate(values) if not isinstance(value, str)), None)
    if wrong is not None:
        raise InputError(f"labels must be all numbers or all words, got {values[wrong]!r} for row {wrong}")
    found = sorted({value for value in values if value.strip()})  # an empty cell is no label
    number = {value: place for place, value in enumerate(found)}
    return np.array([number.get(value, -1) for value in values], dtype=np.int64), {v: k for k, v in number.items()}


def _write(path: str | Path, data: bytes) -> Path:
    target = Path(path).expanduser()
    if not target.parent.is_dir():
        raise DataError(f"{target} cannot be written: there is no folder {target.parent}")
    with disk_errors(target, safe="what was there is as it was"):
        atomic_write(target, data)
    return target
