"""`cluster`: texts or vectors -> groups that belong together, each with a representative and its keywords.

    kmeans         k groups by direction; without k, as many as the silhouette finds (`cluster_choice`)
    communities    groups about a central text, everything in them at least as near to it as the threshold
    agglomerative  the nearest groups joined until k are left, or none is as near as the threshold (scikit-learn)
    hdbscan        dense regions of any shape; what lies between them is in none (scikit-learn)

All compare by the cosine. Groups are numbered from the largest on; of equal ones that whose first row comes first is
first (communities: as `communities` orders them).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError, MissingExtraError
from munjang.progress import Progress
from munjang.tasks.cluster_sklearn import Linkage, agglomerative, hdbscan
from munjang.tasks.neighbours_input import TextsOrVectors, material_of, model_for, texts_of, threshold_for

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.tasks.neighbours_tiles import UnitRows

Numbers = npt.NDArray[np.int64]
Method = Literal["kmeans", "communities", "agglomerative", "hdbscan"]

_TAKES = {
    "kmeans": {"k"},
    "communities": {"threshold", "min_size"},
    "agglomerative": {"k", "threshold"},
    "hdbscan": {"min_size"},
}
_MIN_SIZE = {"communities": 10, "hdbscan": 5}  # as sentence-transformers and scikit-learn have them


@dataclass(frozen=True)
class ClusterOptions:
    """What is seldom changed."""

    seed: int = 0  # of k-means and of samples
    device: str | None = None  # where to compare vectors; by default that of the model, or where they lie
    memory_mb: float = 64  # besides vectors and result; not for agglomerative, which holds all distances
    most_k: int | None = None  # the largest k to try where none is given
    max_steps: int = 100  # of k-means
    linkage: Linkage = "average"  # of agglomerative
    keywords: int = 5  # words per cluster, where texts are given
    texts: Sequence[str] | None = None  # of ready vectors, for representatives and keywords


@dataclass(frozen=True)
class Representative:
    """The row that stands for a cluster."""

    index: int
    text: str | None  # where texts were given


@dataclass(frozen=True, eq=False)
class Cluster:
    """A group of rows."""

    number: int  # its label
    members: Numbers  # rows, ascending; of a community its centre first, then by falling similarity to it
    representative: Representative  # nearest to the mean of the members; of a community its centre
    keywords: tuple[str, ...]  # words that set it apart from the others; none for vectors without texts
    cohesion: float  # the mean cosine of the members to their mean

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(frozen=True, eq=False)
class Clustering:
    """What `cluster` found."""

    labels: Numbers  # [n], the number of every row's cluster; -1 for none
    clusters: tuple[Cluster, ...]
    method: Method
    threshold: float | None
    silhouettes: dict[int, float]  # by k, where k was chosen
    seconds: float  # without encoding

    @property
    def k(self) -> int:
        """How many clusters there are."""
        return len(self.clusters)

    def __len__(self) -> int:
        return len(self.clusters)

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.clusters)

    def __getitem__(self, number: int) -> Cluster:
        return self.clusters[number]


def cluster(
    data: TextsOrVectors,
    model: BiEncoder | None = None,
    *,
    method: Method = "kmeans",
    k: int | None = None,
    threshold: float | None = None,
    min_size: int | None = None,
    options: ClusterOptions | None = None,
    progress: Progress = False,
) -> Clustering:
    """Group texts, or vectors [n, d], that belong together.

    Texts are encoded by the model, the bundled one where none is given. The threshold is a cosine; without it, the one
    that was measured for the model ('cluster'). min_size: of communities (default 10) and HDBSCAN (default 5).
    """
    options = options or ClusterOptions()
    texts = texts_of(data, "cluster")
    given = {"k": k, "threshold": threshold, "min_size": min_size}
    _check(method, given, len(data) if texts is None else len(texts))  # type: ignore[arg-type]
    named = _texts_beside(data, texts, options)
    model = model_for(texts, model)
    if method == "communities" or (method == "agglomerative" and k is None):
        threshold = threshold_for(threshold, model, measured="cluster", task=f"cluster(method={method!r})")
    material = material_of(data, texts, model, progress=progress)
    started = time.perf_counter()
    from munjang.tasks.neighbours_tiles import UnitRows

    device = options.device or (str(model.device) if model is not None and model.device.type == "cuda" else None)
    rows = UnitRows(material.vectors, device=device, memory_mb=max(options.memory_mb, 256))
    size = min_size if min_size is not None else _MIN_SIZE.get(method, 1)
    found = _FINDERS[method](rows, _Job(k, threshold, size, options, progress))
    labels = np.full(rows.count, -1, np.int64)
    for number, members in enumerate(found.groups):
        labels[members] = number
    clusters = _described(rows, found, labels, named, options.keywords)
    seconds = time.perf_counter() - started
    return Clustering(labels, clusters, method, threshold, found.silhouettes, seconds)


def _check(method: Method, given: dict[str, float | None], rows: int) -> None:
    if method not in get_args(Method):
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    for name, value in given.items():
        if value is not None and name not in _TAKES[method]:
            raise InputError(f"method {method!r} takes no {name}; it takes {', '.join(sorted(_TAKES[method]))}")
    k, min_size = given["k"], given["min_size"]
    if k is not None and (isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= rows):
        raise InputError(f"k must be 1..{rows:,} (the rows), got {k!r}")
    if k is not None and given["threshold"] is not None:
        raise InputError("pass k or threshold, not both: each says when to stop joining")
    if min_size is not None and (not isinstance(min_size, int | np.integer) or min_size < 1):
        raise InputError(f"min_size must be a whole number, 1 or more, got {min_size!r}")


def _texts_beside(data: TextsOrVectors, texts: Sequence[str] | None, options: ClusterOptions) -> Sequence[str] | None:
    """The texts that were given, or those that belong to the vectors that were given."""
    if options.texts is None or texts is not None:
        return texts
    rows = len(data)  # type: ignore[arg-type]
    if len(options.texts) != rows:
        raise InputError(f"every vector needs its text: got {rows:,} vectors and {len(options.texts):,} texts")
    return options.texts


# --- the methods -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    k: int | None
    threshold: float | None
    min_size: int
    options: ClusterOptions
    progress: Progress


@dataclass(frozen=True, eq=False)
class _Groups:
    groups: list[Numbers]  # in the order of their numbers
    centres: list[int] | None = None  # rows, where the method has them
    silhouettes: dict[int, float] = field(default_factory=dict)


def _by_kmeans(rows: UnitRows, job: _Job) -> _Groups:
    from munjang.tasks.cluster_choice import choose_k
    from munjang.tasks.cluster_kmeans import k_means

    k, silhouettes, options = job.k, {}, job.options
    if k is None and rows.count < 3:
        k = rows.count
    if k is None:
        choice = choose_k(rows, most=options.most_k, seed=options.seed, progress=job.progress)
        k, silhouettes = choice.k, choice.silhouettes
    found = k_means(rows, k, seed=options.seed, max_steps=options.max_steps, progress=job.progress)
    return _Groups(_groups_of(found.labels), None, silhouettes)


def _by_communities(rows: UnitRows, job: _Job) -> _Groups:
    from munjang.tasks.communities import communities_of

    assert job.threshold is not None
    memory = job.options.memory_mb
    found = communities_of(rows, job.threshold, min_size=job.min_size, memory_mb=memory, progress=job.progress)
    return _Groups(found, [int(members[0]) for members in found])


def _by_joining(rows: UnitRows, job: _Job) -> _Groups:
    return _Groups(_groups_of(agglomerative(rows, k=job.k, threshold=job.threshold, linkage=job.options.linkage)))


def _by_density(rows: UnitRows, job: _Job) -> _Groups:
    return _Groups(_groups_of(hdbscan(rows, min_size=job.min_size)))


_FINDERS: dict[str, Callable[[UnitRows, _Job], _Groups]] = {
    "kmeans": _by_kmeans,
    "communities": _by_communities,
    "agglomerative": _by_joining,
    "hdbscan": _by_density,
}


def _groups_of(labels: Numbers) -> list[Numbers]:
    """The rows of every label but -1, the largest group first, of equal ones that with the first row."""
    order = np.argsort(labels, kind="stable")
    order = order[np.searchsorted(labels[order], 0) :]
    groups = [group for group in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(group)]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


# --- what is told of each --------------------------------------------------------------------------------------------


def _described(
    rows: UnitRows, found: _Groups, labels: Numbers, texts: Sequence[str] | None, top: int
) -> tuple[Cluster, ...]:
    from munjang.tasks.representatives import representatives

    told = representatives(rows, labels)
    words = _keywords(texts, labels, top)
    nearest = told.nearest.tolist() if found.centres is None else found.centres
    return tuple(
        Cluster(
            number,
            members,
            Representative(nearest[number], None if texts is None else texts[nearest[number]]),
            words.get(number, ()),
            float(told.cohesion[number]),
        )
        for number, members in enumerate(found.groups)
    )


def _keywords(texts: Sequence[str] | None, labels: Numbers, top: int) -> dict[int, tuple[str, ...]]:
    if texts is None or top < 1 or not (labels >= 0).any():
        return {}
    from munjang.tasks.class_tfidf import class_words

    try:
        found = class_words(texts, labels, top=top)
    except MissingExtraError:  # Korean without its analyser: words as they stand, particles and all
        found = class_words(texts, labels, top=top, language="en")
    return {number: tuple(word.text for word in words) for number, words in found.items()}
