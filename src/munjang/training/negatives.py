"""Pairs (anchor, positive) -> the same with hard negatives: texts that a model takes for near and that are not.

    texts, each once -> vectors -> for every anchor its nearest texts of a corpus -> without those that may be true
    -> the first of what is left (or some of it at random)

A text never becomes a negative of an anchor that it is a known positive of, in any row and either way round, nor of
itself. What scores nearly as high as the positive is probably a positive that nobody marked, and is left out
(Moreira et al. 2024, NV-Retriever: 'positive-aware' mining). Neighbours are exact, and the similarities of all texts
with all are never held: rows are worked through in windows, and of a window only the nearest candidates are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from munjang.data.columns import numbered
from munjang.data.examples import Examples
from munjang.data.overlaps import same_key
from munjang.data.reading import Reading
from munjang.errors import InputError
from munjang.progress import Progress, track
from munjang.vectors import pairwise_similarity, top_k

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder, CrossEncoder

Array = np.ndarray[Any, Any]
WINDOW = 4_000_000  # candidates (rows x nearest texts) held at once
TOO_FEW = "too few negatives"


@dataclass(frozen=True)
class NegativeMining:
    """What makes a good negative. Scores are the model's own similarity, or the cross-encoder's where there is one."""

    corpus: Sequence[str] | None = None  # where to look for negatives; None: the positives, and known negatives
    negatives_per_row: int = 1
    range_min: int = 0  # leave out the so many nearest; known positives and the anchor are not counted
    range_max: int = 100  # look at so many of the nearest
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None  # a candidate may score at most positive - margin
    relative_margin: float | None = 0.05  # at most positive - margin * |positive|
    sampling: Literal["top", "random"] = "top"  # the nearest of what is left, or any of it
    seed: int = 0
    cross_encoder: CrossEncoder | None = None  # judges candidates again; their order stays the model's
    keep_scores: bool = False  # the cross-encoder's scores become the targets of the result, for MarginMSE
    asymmetric: bool = False  # anchors are queries and positives documents: use the model's prompts for them
    memory_mb: float = 256  # for the search for neighbours
    # (anchor, text) that are known not to belong together, such as contradictions: no margin leaves them out
    known_negatives: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        if self.negatives_per_row < 1:
            raise InputError(f"negatives_per_row must be 1 or more, got {self.negatives_per_row}")
        if not 0 <= self.range_min < self.range_max:
            raise InputError(
                f"range_min must be 0 or more and below range_max, got {self.range_min} and {self.range_max}"
            )
        if self.range_max - self.range_min < self.negatives_per_row:
            raise InputError(
                f"a range of {self.range_max - self.range_min} candidates ({self.range_min}..{self.range_max}) cannot"
                f" give {self.negatives_per_row} negatives: raise range_max"
            )
        for name in ("absolute_margin", "relative_margin"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"{name} must be 0 or more, got {value}")
        if self.max_score is not None and self.min_score is not None and not self.min_score < self.max_score:
            raise InputError(f"min_score must be below max_score, got {self.min_score} and {self.max_score}")
        if self.sampling not in ("top", "random"):
            raise InputError(f"sampling must be 'top' or 'random', got {self.sampling!r}")
        if self.cross_encoder is not None and len(self.cross_encoder.labels) != 1:
            raise InputError(
                "the cross-encoder must give one score to a pair, but it has the labels"
                f" {', '.join(self.cross_encoder.labels)}"
            )
        if self.keep_scores and self.cross_encoder is None:
            raise InputError("keep_scores keeps the scores of a cross-encoder: give one")


@dataclass(frozen=True)
class MiningReport:
    """What mining looked at and why candidates were left out; counts of candidates are over all rows."""

    rows: int
    used: int  # rows that got all their negatives; the others are not in the result
    anchors: int  # different ones
    corpus: int  # different texts
    candidates: int = 0  # that stood in the range
    known: int = 0  # before that: known positives, and anchors themselves
    false_negatives: int = 0  # too near to the positive
    above: int = 0  # max_score
    below: int = 0  # min_score
    positive_score: float = 0.0  # mean over the rows that are used
    negative_score: float = 0.0
    seconds: float = 0.0

    @property
    def too_few(self) -> int:
        """Rows that did not get all their negatives."""
        return self.rows - self.used

    def __str__(self) -> str:
        line = (
            f"{self.rows:,} rows, {self.used:,} with negatives from {self.corpus:,} texts in {self.seconds:.1f} s;"
            f" mean score of positives {self.positive_score:.3f}, of negatives {self.negative_score:.3f}"
        )
        if self.too_few:
            line += f"; {self.too_few:,} rows left out: {TOO_FEW}"
        reasons = [
            (self.known, "known positives"),
            (self.false_negatives, "probably positives"),
            (self.above, "above max_score"),
            (self.below, "below min_score"),
        ]
        told = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        return line + (f"; of {self.candidates + self.known:,} candidates, left out: {told}" if told else "")


def mine_negatives(
    pairs: Examples, model: BiEncoder, *, settings: NegativeMining | None = None, progress: Progress = False
) -> tuple[Examples, MiningReport]:
    """Find hard negatives for every pair: examples with the columns negative, negative_2... behind the positive.

    Rows that do not get all their negatives are left out, and counted in the report and in the examples' `reading`.
    The same texts, model and settings give the same negatives.
    """
    settings = settings or NegativeMining()
    _check(pairs)
    started = time.perf_counter()
    texts = _Texts.of(pairs, settings)
    space = _Space.of(texts, model, asymmetric=settings.asymmetric, progress=progress)
    report = MiningReport(rows=len(pairs), used=0, anchors=len(np.unique(texts.anchor)), corpus=texts.corpus)
    positives = _positive_scores(texts, space, settings)
    chosen = np.full((len(pairs), settings.negatives_per_row), -1, np.int64)
    scores = np.zeros((len(pairs), settings.negatives_per_row), np.float32)
    with track(progress, len(pairs)) as done:
        for rows in _windows(texts, settings.range_max):
            found = _nearest(texts, space, rows, settings)
            fits, counts = _fitting(found, positives[rows], settings)
            report = _plus(report, found, counts)
            picked, enough = _pick(fits, rows, settings)
            chosen[rows[enough]] = np.take_along_axis(found.documents, picked, axis=1)[enough]
            scores[rows[enough]] = np.take_along_axis(found.scores, picked, axis=1)[enough]
            done(len(rows))
    kept = np.flatnonzero(chosen[:, 0] >= 0)
    report = replace(report, used=len(kept), seconds=time.perf_counter() - started)
    if not len(kept):
        raise InputError(f"not a single row has {settings.negatives_per_row} negatives: widen the filters. {report}")
    report = replace(report, positive_score=float(positives[kept].mean()), negative_score=float(scores[kept].mean()))
    targets = np.column_stack([positives, scores])[kept] if settings.keep_scores else None
    return _result(pairs, texts, kept, chosen[kept], targets), report


@dataclass(frozen=True)
class _Texts:
    """Every text once, and where each row finds its own."""

    anchors: list[str]  # different anchors
    documents: list[str]  # different texts: the corpus, then positives that are not in it
    corpus: int  # how many of the documents may become negatives
    anchor: Array  # int64 [n]: the row's anchor
    positive: Array  # int64 [n]: the row's positive, a document
    excluded: Array  # int64, ascending: anchor * documents + document, where the two are no negatives of each other
    barred: Array  # int64 [anchors]: how many of the corpus are excluded for each anchor
    wrong: Array  # int64, ascending: the same keys for known negatives

    @classmethod
    def of(cls, pairs: Examples, settings: NegativeMining) -> _Texts:
        positives = pairs.columns["positive"]
        documents, anchors = _Once(), _Once()
        if settings.corpus is None:
            documents.add([*positives, *(text for _, text in settings.known_negatives)])
        else:
            documents.add(settings.corpus)
        corpus = len(documents.texts)
        if not corpus:
            raise InputError("the corpus to find negatives in is empty")
        positive, anchor = documents.add(positives), anchors.add(pairs.columns["anchor"])
        width = len(documents.texts)
        as_document = documents.places_of(anchors)[anchor]  # the anchor's own text among the documents, or -1
        as_anchor = anchors.places_of(documents)[positive]  # the positive's own text among the anchors, or -1
        both = [(anchor, positive), (anchor, as_document), (as_anchor, as_document)]  # the last: a pair turned round
        keys = [(first * width + second)[(first >= 0) & (second >= 0)] for first, second in both]
        excluded = np.unique(np.concatenate(keys))
        inside = excluded[excluded % width < corpus] // width
        barred = np.bincount(inside, minlength=len(anchors.texts))
        known = [
            (anchors.places.get(same_key(a), -1), documents.places.get(same_key(b), -1))
            for a, b in settings.known_negatives
        ]
        wrong = np.unique(np.array([a * width + b for a, b in known if a >= 0 and b >= 0], np.int64))
        return cls(anchors.texts, documents.texts, corpus, anchor, positive, excluded, barred, wrong)

    def are_excluded(self, anchors: Array, documents: Array) -> Array:  # [q], [q, k] -> bool [q, k]
        return _among(anchors[:, None] * len(self.documents) + documents, self.excluded)

    def are_wrong(self, anchors: Array, documents: Array) -> Array:  # [q], [q, k] -> bool [q, k]
        return _among(anchors[:, None] * len(self.documents) + documents, self.wrong)


def _among(keys: Array, ascending: Array) -> Array:  # bool, in the shape of the keys
    if not len(ascending):
        return np.zeros(keys.shape, np.bool_)
    places = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    same: Array = ascending[places] == keys
    return same


class _Once:
    """Different texts, in the order in which they came; what differs only in case, width and spaces is the same."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: dict[str, int] = {}

    def add(self, texts: Iterable[str]) -> Array:  # int64 [n]: where each text stands
        found = []
        for text in texts:
            place = self.places.setdefault(same_key(text), len(self.texts))
            if place == len(self.texts):
                self.texts.append(text)
            found.append(place)
        return np.array(found, np.int64)

    def places_of(self, others: _Once) -> Array:  # int64 [others]: where each of the others stands here, or -1
        return np.array([self.places.get(key, -1) for key in others.places], np.int64)


@dataclass(frozen=True)
class _Space:
    """The vectors of all texts."""

    model: BiEncoder
    anchors: Array  # float32 [anchors, d]
    documents: Array  # float32 [documents, d]

    @classmethod
    def of(cls, texts: _Texts, model: BiEncoder, *, asymmetric: bool, progress: Progress) -> _Space:
        if asymmetric:
            anchors = model.encode_query(texts.anchors, progress=progress)
            return cls(model, anchors, model.encode_document(texts.documents, progress=progress))
        once = _Once()
        documents, asked = once.add(texts.documents), once.add(texts.anchors)
        vectors = model.encode(once.texts, progress=progress)
        return cls(model, vectors[asked], vectors[documents])


@dataclass(frozen=True)
class _Found:
    """The nearest of the corpus for some rows, the best first."""

    documents: Array  # int64 [rows, k]
    scores: Array  # float32 [rows, k]: of the model, or of the cross-encoder
    inside: Array  # bool [rows, k]: stands in the range, and is neither a known positive nor the anchor
    wrong: Array  # bool [rows, k]: a known negative
    known: int  # candidates that are one of those


def _nearest(texts: _Texts, space: _Space, rows: Array, settings: NegativeMining) -> _Found:
    """Search once for each anchor of these rows."""
    anchors, place = np.unique(texts.anchor[rows], return_inverse=True)
    k = min(texts.corpus, settings.range_max + int(texts.barred[anchors].max()))
    model = space.model
    near = top_k(
        space.anchors[anchors],
        space.documents[: texts.corpus],
        k,
        kind=model.similarity_name,
        memory_mb=settings.memory_mb,
        device=str(model.device),
    )
    allowed = ~texts.are_excluded(anchors, near.indices)
    rank = np.cumsum(allowed, axis=1)  # from 1, among those allowed
    inside = allowed & (rank > settings.range_min) & (rank <= settings.range_max)
    scores = near.scores
    if settings.cross_encoder is not None:
        lines, columns = np.nonzero(inside)
        asked = (texts.anchors[anchor] for anchor in anchors[lines].tolist())
        answers = (texts.documents[document] for document in near.indices[lines, columns].tolist())
        scores = np.zeros_like(near.scores)
        scores[lines, columns] = settings.cross_encoder.predict(list(zip(asked, answers, strict=True)))
    known = int((~allowed & (rank < settings.range_max)).sum(axis=1)[place].sum())
    wrong = texts.are_wrong(anchors, near.indices)
    return _Found(near.indices[place], scores[place], inside[place], wrong[place], known)


def _positive_scores(texts: _Texts, space: _Space, settings: NegativeMining) -> Array:  # float32 [n]
    if settings.cross_encoder is not None:
        ids = zip(texts.anchor.tolist(), texts.positive.tolist(), strict=True)
        return settings.cross_encoder.predict([(texts.anchors[a], texts.documents[p]) for a, p in ids])
    found = np.empty(len(texts.anchor), np.float32)
    for start in range(0, len(found), 65_536):
        part = slice(start, start + 65_536)
        left, right = space.anchors[texts.anchor[part]], space.documents[texts.positive[part]]
        found[part] = pairwise_similarity(left, right, space.model.similarity_name)
    return found


def _fitting(found: _Found, positives: Array, settings: NegativeMining) -> tuple[Array, dict[str, int]]:
    """Which candidates pass the filters, bool [rows, k], and how many fell to each."""
    fits, counts = found.inside, {"false_negatives": 0, "above": 0, "below": 0}
    own, scores = positives[:, None], found.scores
    filters: list[tuple[str, Array]] = []
    if settings.absolute_margin is not None:
        filters.append(("false_negatives", found.wrong | (scores <= own - settings.absolute_margin)))
    if settings.relative_margin is not None:
        filters.append(("false_negatives", found.wrong | (scores <= own - settings.relative_margin * np.abs(own))))
    if settings.max_score is not None:
        filters.append(("above", scores <= settings.max_score))
    if settings.min_score is not None:
        filters.append(("below", scores >= settings.min_score))
    for name, passes in filters:
        counts[name] += int((fits & ~passes).sum())
        fits = fits & passes
    return fits, counts


def _pick(fits: Array, rows: Array, settings: NegativeMining) -> tuple[Array, Array]:
    """Columns of the negatives, int64 [rows, negatives], and which rows have enough of them."""
    wanted = settings.negatives_per_row
    enough = fits.sum(axis=1) >= wanted
    picked = np.zeros((len(fits), wanted), np.int64)
    if settings.sampling == "top":
        width = min(wanted, fits.shape[1])
        picked[:, :width] = np.argsort(~fits, axis=1, kind="stable")[:, :width]
        return picked, enough
    for line in np.flatnonzero(enough).tolist():
        # A generator for each row: what it gives does not depend on how rows fall into windows.
        generator = np.random.default_rng([settings.seed, int(rows[line])])
        picked[line] = np.sort(generator.choice(np.flatnonzero(fits[line]), wanted, replace=False))
    return picked, enough


def _windows(texts: _Texts, nearest: int) -> Iterator[Array]:
    """Rows, those of one anchor together, in runs that look at no more than WINDOW candidates, or of one row."""
    order = np.argsort(texts.anchor, kind="stable")
    widths = np.minimum(texts.corpus, nearest + texts.barred[texts.anchor[order]]).tolist()
    start, widest = 0, 0
    for place, width in enumerate(widths):
        widest = max(widest, width)
        if place > start and (place + 1 - start) * widest > WINDOW:
            yield order[start:place]
            start, widest = place, width
    yield order[start:]


def _plus(report: MiningReport, found: _Found, counts: dict[str, int]) -> MiningReport:
    return replace(
        report,
        candidates=report.candidates + int(found.inside.sum()),
        known=report.known + found.known,
        false_negatives=report.false_negatives + counts["false_negatives"],
        above=report.above + counts["above"],
        below=report.below + counts["below"],
    )


def _result(pairs: Examples, texts: _Texts, kept: Array, chosen: Array, targets: Array | None) -> Examples:
    taken = pairs.take(kept)
    names = numbered("negative", chosen.shape[1])
    negatives = {
        name: [texts.documents[document] for document in chosen[:, column].tolist()]
        for column, name in enumerate(names)
    }
    reading = pairs.reading if pairs.reading.rows else Reading(pairs.name, len(pairs), len(pairs))
    left_out = {TOO_FEW: len(pairs) - len(kept)} if len(kept) < len(pairs) else {}
    return replace(
        taken,
        columns={**taken.columns, **negatives},
        targets=targets,
        reading=reading.refusing(left_out),
    )


def _check(pairs: Examples) -> None:
    if pairs.kind != "pairs":
        raise InputError(
            f"negatives are mined for examples of kind 'pairs' (anchor, positive), got kind {pairs.kind!r}; "
            "take the positives of others with nli_pairs, labelled_to_pairs or scored_to_pairs of munjang.data"
        )
    if len(pairs.columns) > 2:
        raise InputError(f"these pairs have negatives already ({', '.join(list(pairs.columns)[2:])})")
    if pairs.targets is not None:
        raise InputError("these pairs have a teacher's scores, which would not fit the new columns: leave them out")
    if not len(pairs):
        raise InputError("there are no pairs to mine negatives for")
