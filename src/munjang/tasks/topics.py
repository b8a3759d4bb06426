"""Texts -> the topics in them: what they are called, which texts belong to them, how they join, how they change.

    texts -> vectors -> fewer dimensions -> clusters -> class-TF-IDF words -> Topics     (the method of BERTopic)

Clusters are found among reduced vectors, because distances tell more there; a topic's own vector is the mean of its
texts' unit vectors in the model's space, so that new texts are assigned by a product, without the reduction. Topics are
numbered by size, the largest 0; a text without a topic has -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from munjang.data.rows import read_texts
from munjang.errors import InputError
from munjang.progress import Progress
from munjang.tasks import topics_saving
from munjang.tasks.candidates import Language, check_choices
from munjang.tasks.class_tfidf import Word, class_words
from munjang.tasks.cluster import ClusterOptions, cluster
from munjang.tasks.model_reference import ModelReference
from munjang.tasks.projection import check_vectors, pca, umap
from munjang.tasks.topics_parts import Assigned, Representative, Topic
from munjang.tasks.topics_time import Bins, Date, Period, periods
from munjang.tasks.topics_tree import Merge, merges_of, tree_text
from munjang.vectors import normalize

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder

Array = np.ndarray[Any, Any]
Method = Literal["kmeans", "hdbscan"]
_LEAST = 0.01  # share of a topic's own texts that lie farther from it than a new text may (hdbscan)


@dataclass(frozen=True)
class TopicOptions:
    """What is seldom changed."""

    reduce: Literal["pca", "umap"] | None = "pca"  # before clustering
    dimensions: int | None = None  # after it; None: 50 of PCA, 5 of UMAP
    min_size: int | None = None  # texts of the smallest topic of hdbscan; None: one in a hundred, at least 5
    words: int = 10  # kept for each topic
    representatives: int = 3
    language: Language = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices((1, 1), self.language)
        if self.reduce not in ("pca", "umap", None):
            raise InputError(f"reduce must be pca, umap or None, got {self.reduce!r}")
        for name in ("dimensions", "min_size", "words", "representatives"):
            value = getattr(self, name)
            least = 2 if name == "min_size" else 1
            if value is not None and value < least:
                raise InputError(f"{name} must be {least} or more, got {value}")


_USUAL = TopicOptions()


@dataclass(frozen=True, eq=False)
class Topics:
    """What `topics` found. `save` and `load` keep it; texts themselves are not kept but for the representatives."""

    topics: tuple[Topic, ...]
    vectors: Array  # float32 [topics, dimension], unit rows
    floors: Array  # float32 [topics]: a new text below it has no topic; -1 for k-means, which leaves none out
    labels: Array  # int64 [n], of the texts it was made from
    similarities: Array  # float32 [n], cosines with the own topic's vector; of a text without one, the nearest's
    method: Method
    language: Language
    reference: ModelReference | None  # None: made from ready vectors
    _model: BiEncoder | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.topics)

    def assign(self, given: Sequence[str] | Array, *, progress: Progress = False) -> Assigned:
        """The topic of each new text, or vector [n, d]: the one whose vector is nearest; -1 where none is near."""
        if isinstance(given, np.ndarray) and given.dtype.kind not in "OUT":
            rows = given
        else:
            rows = self.model.encode_document(read_texts(given), progress=progress)
        if not len(rows):
            return Assigned(np.zeros(0, np.int64), np.zeros(0, np.float32))
        rows = check_vectors(rows)
        if rows.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"vectors must have {self.vectors.shape[1]} dimensions, as the topics do, got {rows.shape[1]}"
            )
        return _nearest(rows, self.vectors, self.floors)

    @property
    def model(self) -> BiEncoder:
        """The model that made it: the one given, else the one it names, which must still be the same."""
        if self._model is not None:
            return self._model
        if self.reference is None:
            raise InputError(
                "these topics were made from vectors: assign takes vectors, or pass a model with with_model"
            )
        model = self.reference.load("topics")
        object.__setattr__(self, "_model", model)
        return model

    def with_model(self, model: BiEncoder) -> Topics:
        """The same with this model, which must be the one that was used."""
        if self.reference is not None:
            self.reference.check(model, "topics")
        return replace(self, _model=model)

    def hierarchy(self) -> list[Merge]:
        """How the topics join, nearest first (average linkage over cosine distances)."""
        return merges_of(self.vectors, [topic.words for topic in self.topics], [topic.size for topic in self.topics])

    def tree(self) -> str:
        """The hierarchy as text."""
        return tree_text(self.hierarchy(), [topic.name for topic in self.topics], [topic.size for topic in self.topics])

    def over_time(
        self, texts: Sequence[str], dates: Sequence[Date], *, bins: Bins = 10, top: int = 5
    ) -> tuple[Period, ...]:
        """Counts and words of every topic in every period. texts: those it was made from, in the same order."""
        return periods(texts, self.labels.tolist(), dates, bins=bins, top=top, language=self.language)

    def save(self, folder: str | Path) -> None:
        """Write to a folder: topics.json, which people can read, and the vectors. Whole or not at all."""
        facts = {
            "method": self.method,
            "language": self.language,
            "model": None if self.reference is None else self.reference.as_dict(),
            "topics": [topic.as_dict() for topic in self.topics],
        }
        topics_saving.save(folder, facts, {name: getattr(self, name) for name in topics_saving.ARRAYS})

    @classmethod
    def load(cls, folder: str | Path, model: BiEncoder | None = None) -> Topics:
        """Read what `save` wrote. model: for `assign`; by default loaded by its name when it is needed."""
        found = topics_saving.load(folder)
        reference = None if found.model is None else ModelReference.from_dict(found.model)
        loaded = cls(
            topics=found.topics,
            vectors=found.arrays["vectors"],
            floors=found.arrays["floors"],
            labels=found.arrays["labels"],
            similarities=found.arrays["similarities"],
            method=found.method,  # type: ignore[arg-type]
            language=found.language,  # type: ignore[arg-type]
            reference=reference,
        )
        return loaded if model is None else loaded.with_model(model)


def topics(
    texts: Sequence[str],
    model: BiEncoder | None = None,
    *,
    k: int | None = None,
    method: Method = "kmeans",
    vectors: Array | None = None,
    options: TopicOptions = _USUAL,
    progress: Progress = False,
) -> Topics:
    """Find the topics of texts. `vectors`: those of the texts, where they are ready; then no model is needed.

    k: how many ('kmeans'); None chooses by silhouette. 'hdbscan' finds their number itself and leaves texts that lie
    between topics without one (extra `tasks`).
    """
    given = read_texts(texts)
    _check(given, k, method, vectors)
    if vectors is None and model is None:
        from munjang.loading import load

        model = load()
    if vectors is None:
        assert model is not None
        vectors = model.encode_document(given, progress=progress)
    rows = check_vectors(vectors)
    unit = normalize(np.asarray(rows, dtype=np.float32))
    labels = _by_size(_cluster(_reduced(unit, options), k, method, options))
    centres = _centres(unit, labels)
    own = _own(unit, labels, centres)
    words = _words(given, labels, own, options)
    found = tuple(
        Topic(number, int((labels == number).sum()), words[number], _nearby(given, labels, own, number, options))
        for number in range(len(centres))
    )
    floors = np.full(len(centres), -1, dtype=np.float32)
    if method == "hdbscan":
        floors = np.array([np.quantile(own[labels == number], _LEAST) for number in range(len(centres))], np.float32)
    reference = None if model is None else ModelReference.of(model)
    return Topics(found, centres, floors, labels, own, method, options.language, reference, model)


def _check(texts: Sequence[str], k: int | None, method: str, vectors: Array | None) -> None:
    if method not in get_args(Method):
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    if len(texts) < 2:
        raise InputError(f"topics need at least 2 texts, got {len(texts)}")
    if k is not None and method == "hdbscan":
        raise InputError("hdbscan finds the number of topics itself: leave k out, or take method='kmeans'")
    if k is not None and not 1 <= k <= len(texts):
        raise InputError(f"k must be 1..{len(texts):,} (the texts), got {k}")
    if vectors is not None and len(vectors) != len(texts):
        raise InputError(f"vectors must be those of the texts: got {len(vectors):,} for {len(texts):,} texts")


def _reduced(unit: Array, options: TopicOptions) -> Array:
    """Fewer dimensions, where there are more than asked for."""
    if options.reduce is None:
        return unit
    dimensions = options.dimensions or (50 if options.reduce == "pca" else 5)
    if dimensions >= min(unit.shape):
        return unit
    if options.reduce == "umap":
        return _lifted(umap(unit, dimensions, seed=options.seed, spread=0.0))
    return pca(unit, dimensions)


def _lifted(points: Array) -> Array:
    """Points whose plain distances matter, put on a sphere so large that cosines order them as those distances do.

    UMAP's coordinates mean something by their distances, clustering compares by directions: one coordinate more, the
    same for all, joins the two.
    """
    centred = points - points.mean(axis=0)
    height = 3 * max(float(np.linalg.norm(centred, axis=1).max()), 1e-6)
    return np.column_stack([centred, np.full(len(points), height, dtype=np.float32)])


def _cluster(rows: Array, k: int | None, method: Method, options: TopicOptions) -> Array:
    how = ClusterOptions(seed=options.seed)
    if method == "kmeans":
        return cluster(rows, method="kmeans", k=k, options=how).labels
    least = min(options.min_size or max(5, len(rows) // 100), len(rows))
    return cluster(rows, method="hdbscan", min_size=least, options=how).labels


def _by_size(labels: Array) -> Array:
    """The same clusters, numbered by size; of equal ones the one that begins earlier comes first."""
    found, first, counts = np.unique(labels, return_index=True, return_counts=True)
    order = [row for row in np.lexsort((first, -counts)) if found[row] >= 0]
    out = np.full(len(labels), -1, dtype=np.int64)
    for number, row in enumerate(order):
        out[labels == found[row]] = number
    return out


def _centres(unit: Array, labels: Array) -> Array:
    count = int(labels.max()) + 1
    sums = np.zeros((count, unit.shape[1]), dtype=np.float32)
    np.add.at(sums, labels[labels >= 0], unit[labels >= 0])
    return normalize(sums)


def _own(unit: Array, labels: Array, centres: Array) -> Array:
    """The cosine of every row with its topic's vector; of one without a topic, with the nearest's."""
    if not len(centres):
        return np.zeros(len(unit), dtype=np.float32)
    out = np.einsum("nd,nd->n", unit, centres[np.maximum(labels, 0)])
    none = np.flatnonzero(labels < 0)
    if len(none):
        out[none] = _nearest(unit[none], centres, np.full(len(centres), -1, np.float32)).similarities
    return np.asarray(out, dtype=np.float32)


def _words(texts: Sequence[str], labels: Array, own: Array, options: TopicOptions) -> dict[int, tuple[Word, ...]]:
    """The words of every topic; among those that weigh the same, those of its most typical texts."""
    order = np.argsort(-own, kind="stable").tolist()
    return class_words([texts[row] for row in order], labels[order], top=options.words, language=options.language)


def _nearest(rows: Array, centres: Array, floors: Array, *, block: int = 8_192) -> Assigned:
    labels = np.full(len(rows), -1, dtype=np.int64)
    best = np.zeros(len(rows), dtype=np.float32)
    for start in range(0, len(rows) if len(centres) else 0, block):
        cosines = normalize(np.asarray(rows[start : start + block], dtype=np.float32)) @ centres.T
        nearest = cosines.argmax(axis=1)
        best[start : start + block] = cosines.max(axis=1)
        near = best[start : start + block] >= floors[nearest]
        labels[start : start + block] = np.where(near, nearest, -1)
    return Assigned(labels, best)


def _nearby(
    texts: Sequence[str], labels: Array, own: Array, number: int, options: TopicOptions
) -> tuple[Representative, ...]:
    members = np.flatnonzero(labels == number)
    order = members[np.argsort(-own[members], kind="stable")][: options.representatives]
    return tuple(Representative(int(row), texts[row], float(own[row])) for row in order)
