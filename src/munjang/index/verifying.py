"""Is an index whole? The database, every row of it, and the derived structures against brute force on a sample."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError, MissingExtraError
from munjang.index.codes import Codec
from munjang.index.derived import Derived, Session
from munjang.index.documents import title_of, titled
from munjang.index.keyword import KeywordIndex
from munjang.index.state import Numbers, State
from munjang.index.store import Store
from munjang.progress import Progress, track
from munjang.types import Similarity
from munjang.vectors import similarity as similarity_of

_SAMPLE = 20  # passages that the derived structures are asked for
_BEST = 10
_RECALL = 0.95  # of the sample's neighbours, where the search is approximate
_SHOWN = 20  # problems that are listed


@dataclass(frozen=True)
class VerifyReport:
    """What was looked at, and what is wrong with it."""

    documents: int
    passages: int
    problems: tuple[str, ...]  # in words; none where all is well
    recall: float | None  # of the nearest neighbours of a sample against brute force; None where nothing was searched
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        line = f"{self.documents:,} documents, {self.passages:,} passages in {self.seconds:.1f} s: "
        return line + ("all is well" if self.ok else "; ".join(self.problems))


@dataclass
class _Findings:
    problems: list[str] = field(default_factory=list)
    documents: int = 0
    passages: int = 0
    recall: float | None = None

    def add(self, problem: str) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(problem)


def verify(
    store: Store, derived: Derived, codec: Codec, similarity: Similarity, *, progress: Progress = False
) -> VerifyReport:
    """Read everything once. What is wrong stands in the report; nothing is changed."""
    started = time.perf_counter()
    found = _Findings()
    try:
        with store.reading() as state:
            _check_database(state, found)
            if not found.problems:
                found.documents, found.passages = state.count(), len(state.numbers())
                with track(progress, found.passages + found.documents) as done:
                    _check_documents(state, found, done)
                    _check_vectors(state, codec, found, done)
        if not found.problems and found.passages:
            with derived.session(dense=True, keyword=False) as session:
                found.recall = _check_dense(session, similarity, found)
            _check_keywords(derived, found)
    except (DataError, sqlite3.Error) as error:
        found.add(str(error))
    return VerifyReport(
        found.documents, found.passages, tuple(found.problems), found.recall, time.perf_counter() - started
    )


def _check_database(state: State, found: _Findings) -> None:
    for (line,) in state.connection.execute(f"PRAGMA integrity_check({_SHOWN})"):
        if line != "ok":
            found.add(f"the database is damaged: {line}")
    if found.problems:
        return
    for words, query in (
        ("passages without a document", "passages WHERE document NOT IN (SELECT row FROM documents)"),
        ("passages without a vector", "passages WHERE number NOT IN (SELECT number FROM vectors)"),
        ("vectors without a passage", "vectors WHERE number NOT IN (SELECT number FROM passages)"),
        ("removed passages that are there", "removals WHERE number IN (SELECT number FROM passages)"),
    ):
        (count,) = state.connection.execute(f"SELECT count(*) FROM {query}").fetchone()
        if count:
            found.add(f"{count:,} {words}")


def _check_documents(state: State, found: _Findings, done: Callable[[int], None]) -> None:
    spans = state.connection.execute("SELECT document, number, start, stop FROM passages ORDER BY document, number")
    span = spans.fetchone()
    for row, id, text in state.connection.execute("SELECT row, id, text FROM documents ORDER BY row"):
        while span is not None and span[0] <= row:
            if not 0 <= span[2] < span[3] <= len(text):
                found.add(
                    f"passage {span[1]} of document {id!r} is [{span[2]}:{span[3]}] of a text of {len(text)} characters"
                )
            span = spans.fetchone()
        done(1)


def _check_vectors(state: State, codec: Codec, found: _Findings, done: Callable[[int], None]) -> None:
    query = "SELECT count(*) FROM vectors WHERE length(vector) != ?"
    (wrong,) = state.connection.execute(query, (codec.size,)).fetchone()
    if wrong:
        found.add(f"{wrong:,} vectors are not of {codec.size} bytes ({codec.kind}, {codec.dimension} dimensions)")
        return
    for numbers, vectors in state.stream_vectors(0, state.last_number()):
        broken = numbers[~np.isfinite(vectors).all(axis=1)]
        if broken.size:
            found.add(f"the vectors of {broken.size:,} passages are not finite, the first of passage {broken[0]}")
        done(len(numbers))


def _sample(state: State) -> Numbers:
    numbers = state.numbers()
    generator = np.random.default_rng(state.generation)
    return np.sort(generator.choice(numbers, min(_SAMPLE, len(numbers)), replace=False))


def _check_dense(session: Session, similarity: Similarity, found: _Findings) -> float:
    """The nearest neighbours of a sample, as the index finds them and as comparing with all vectors does."""
    state, dense = session.state, session.dense
    assert dense is not None
    queries = state.vectors(_sample(state))
    k = min(_BEST, len(state.numbers()))
    best = np.full((len(queries), 0), -np.inf, np.float32)
    for _, vectors in state.stream_vectors(0, state.last_number()):
        scores = similarity_of(queries, vectors, similarity).astype(np.float32)
        best = -np.sort(-np.concatenate([best, scores], axis=1), axis=1)[:, :k]
    answer = dense.search(queries, k)
    if (answer.numbers < 0).any():
        found.add(f"the search for vectors finds fewer than {k} passages")
        return 0.0
    return _compare(state, answer.numbers, answer.scores, queries, best, similarity, found)


def _compare(
    state: State,
    numbers: Numbers,
    scores: NDArray[np.float32],
    queries: NDArray[np.float32],
    best: NDArray[np.float32],
    similarity: Similarity,
    found: _Findings,
) -> float:
    """Each score that was found must be true, and as good as brute force's of the same rank."""
    true = np.stack(
        [
            similarity_of(query[None], state.vectors(row), similarity)[0]
            for query, row in zip(queries, numbers, strict=True)
        ]
    )
    slack = 1e-4 * max(1.0, float(np.abs(best).max()))
    if np.abs(true - scores).max() > slack:
        found.add("the search for vectors gives scores that the stored vectors do not have")
    recall = float((true >= best[:, -1:] - slack).mean())
    if recall < _RECALL:
        found.add(f"the search for vectors finds {recall:.0%} of the nearest passages of a sample")
    return recall


@dataclass(frozen=True)
class _Some:
    """A few passages of a state, as `Passages`."""

    state: State
    some: Numbers
    generation: int
    dimension: int

    def last_number(self) -> int:
        return int(self.some[-1])

    def numbers(self) -> Numbers:
        return self.some

    def vectors(self, numbers: Numbers) -> NDArray[np.float32]:
        return self.state.vectors(numbers)

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[Numbers, NDArray[np.float32]]]:
        kept = self.some[(self.some > after) & (self.some <= upto)]
        yield kept, self.state.vectors(kept)

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[Numbers, list[str]]]:
        kept = self.some[(self.some > after) & (self.some <= upto)]
        found = self.state.passages(kept.tolist(), whole=False)
        title = self.state.title
        documents = (found[number] for number in kept.tolist())
        yield kept, [titled(title_of(document.metadata, title), passage.text) for document, passage in documents]


def _check_keywords(derived: Derived, found: _Findings) -> None:
    """A passage that finds itself among a sample by its own words must find itself in the index."""
    if not derived.has_keywords:
        return
    try:
        with derived.session(dense=False, keyword=True) as session, tempfile.TemporaryDirectory() as folder:
            state, keyword = session.state, session.keyword
            assert keyword is not None
            sample = _sample(state)
            some = _Some(state, sample, state.generation, state.dimension)
            apart = KeywordIndex(Path(folder))
            apart.refresh(some)
            (_, texts) = next(some.stream_texts(0, some.last_number()))
            lost = 0
            for number, text in zip(sample.tolist(), texts, strict=True):
                alone = apart.search([text], 1, allowed=sample == number)
                here = keyword.search([text], 1, allowed=state.numbers() == number)
                lost += int(alone.numbers[0, 0]) != int(here.numbers[0, 0])
            if lost:
                found.add(f"the search for words does not find {lost} of {len(sample)} passages of a sample")
    except MissingExtraError:
        return
