"""Vectors of the living passages -> the nearest ones to a query: exact up to a size, through a graph beyond it.

    dense_metric.py   how vectors are compared
    dense_rows.py     rows in memory as floats, bytes or bits -> candidates
    dense_graph.py    HNSW over rows -> candidates without a scan
    dense_search.py   candidates -> the answer, proven where it can be
    dense_build.py    passages -> rows, rows <-> the arrays of a file
    dense_file.py     arrays <-> a file that is whole or not used

A state is a large main part, what was removed from it, and a small tail of what came after it. Following a new
generation of the index reads only the new vectors. States are never changed: a search keeps the one it began with
while another thread follows.

The file holds a main part. It is written by the one process that may write, when enough has come together, and it is
no source of truth: missing, damaged, foreign or newer, the rows are read from the index instead.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from munjang.errors import InputError, MunjangWarning
from munjang.index import dense_build, dense_file
from munjang.index.dense_build import FORMAT, empty_part
from munjang.index.dense_file import Header, Unusable
from munjang.index.dense_metric import Floats, Mask, Metric, Rows
from munjang.index.dense_rows import FloatRows, merged
from munjang.index.dense_search import Part, search_part
from munjang.index.options import VectorKind
from munjang.index.passages import Found, Passages
from munjang.progress import Progress, track
from munjang.types import Similarity

FILE = "dense.vectors"
SMALL = 2_000  # so many vectors are read from the index in no time: less is no reason for a file, or for a new one
SHARE = 5  # a flat main part is made anew when more than a fifth has changed
GRAPH_SHARE = 50  # a graph is grown when the tail, which is scanned, is a fiftieth of it


@dataclass(frozen=True)
class DenseState:
    """The vectors of one generation of an index, to be searched by any number of threads."""

    metric: Metric
    passages: Passages
    main: Part
    tail: Part  # float rows with numbers beyond `covered`; none of them removed
    covered: int  # the main part holds what there was up to this number
    upto: int
    generation: int

    @property
    def count(self) -> int:
        return self.main.living + len(self.tail.numbers)

    def search(self, queries: NDArray[np.floating], k: int, *, allowed: Mask | None = None) -> Found:
        """The k passages with the nearest vectors for every query [q, d] (or one, [d]), best first.

        `allowed` [n] says for each of `passages.numbers()` whether it may be found. Equal scores go to the lower
        number. Where there are fewer than k, the rest is -1 with a score of -inf.
        """
        asked = self.metric.prepare(_checked(queries, self.metric.dimension))
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        if allowed is not None and (allowed.shape != (self.count,) or allowed.dtype != np.bool_):
            raise InputError(
                f"allowed must be one bool for each of the {self.count} passages, got {allowed.dtype} "
                f"{allowed.shape}: make it from the numbers of the same state of the index"
            )
        found = self._search(self.main, asked, int(k), None if allowed is None else allowed[: self.main.living])
        if len(self.tail.numbers):
            late = None if allowed is None else allowed[self.main.living :]
            found = merged(found, self._search(self.tail, asked, int(k), late), int(k))
        scores, numbers = self.metric.scores(found[0]), found[1]
        missing = int(k) - scores.shape[1]
        if missing:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
            numbers = np.pad(numbers, ((0, 0), (0, missing)), constant_values=-1)
        return Found(scores=scores, numbers=numbers)

    def _search(self, part: Part, queries: Floats, k: int, allowed: Mask | None) -> tuple[Floats, Rows]:
        return search_part(part, queries, k, allowed=allowed, fetch=self._fetch)

    def _fetch(self, numbers: Rows) -> Floats:
        return self.metric.prepare(self.passages.vectors(numbers))


class DenseIndex:
    """Nearest vectors of an index, kept up with it by `refresh`. For any number of threads."""

    def __init__(
        self,
        folder: Path,
        *,
        dimension: int,
        similarity: Similarity = "cosine",
        vectors: VectorKind = "float32",
        exact_up_to: int = 200_000,
        identity: str = "",
    ) -> None:
        """`identity` is the index's own, if it has one: a file with another is not used."""
        for name, value, choices in (
            ("similarity", similarity, get_args(Similarity)),
            ("vectors", vectors, get_args(VectorKind)),
        ):
            if value not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if dimension < 1 or exact_up_to < 0:
            raise InputError(
                f"dimension must be at least 1 and exact_up_to at least 0, got {dimension} and {exact_up_to}"
            )
        self._path, self._kind, self._exact_up_to = folder / FILE, vectors, exact_up_to
        self._metric = Metric(similarity, dimension)
        self._facts: Header = {"format": FORMAT, "dimension": dimension, "vectors": vectors, "similarity": similarity}
        self._facts["identity"] = identity
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._state: DenseState | None = None
        self._is_file_bad = self._warned = False

    def refresh(self, passages: Passages) -> DenseState:
        """Follow the index to a state of it, and return that: a thread that searches with a mask searches this one."""
        if passages.dimension != self._metric.dimension:
            raise InputError(f"vectors must have {self._metric.dimension} dimensions, got {passages.dimension}")
        with self._lock:
            old = self._state
            if old is not None and old.generation == passages.generation:
                state = replace(old, passages=passages)
            else:
                state = self._followed(self._base(old, passages), passages)
            if old is None or passages.generation >= old.generation:
                self._state = state
        self._warn_of_size(state.count)
        return state

    def search(
        self,
        queries: NDArray[np.floating],
        k: int,
        *,
        allowed: Mask | None = None,
        passages: Passages | None = None,
    ) -> Found:
        """`DenseState.search` in the state that was followed to last.

        Bytes and bits are rescored with vectors from the passages that were followed to; where those can no longer
        be read (their transaction is over), `passages` gives others of the same generation.
        """
        state = self._state
        if state is None:
            raise InputError("there is nothing to search yet: call refresh(passages) first")
        if passages is not None:
            if passages.generation != state.generation:
                raise InputError(
                    f"passages must be of generation {state.generation}, which was followed to last, "
                    f"got {passages.generation}: call refresh(passages) and search what it returns"
                )
            state = replace(state, passages=passages)
        return state.search(queries, k, allowed=allowed)

    def save(self, passages: Passages, *, progress: Progress = False, whole: bool = False) -> None:
        """Write the file where enough has changed since the last, or always (`whole`); for the one who may write.

        Beyond `exact_up_to` this builds or grows the graph, which takes a while: `progress` tells.
        """
        with self._saving:
            state = self.refresh(passages)
            if not (whole or self._is_worth_it(state)):
                return
            part = self._merged(state, progress)
            facts = {**self._facts, "upto": passages.last_number(), "generation": passages.generation}
            with self._lock:  # the graph serves also where the disk is full
                if self._state is not None and self._state.generation == state.generation:
                    self._state = replace(self._state, main=part, tail=empty_part(self._metric), covered=state.upto)
            dense_build.written(self._path, part, facts)
            self._is_file_bad = False

    def _loaded(self, passages: Passages) -> DenseState:
        """What the file holds, or nothing."""
        part, upto = empty_part(self._metric), 0
        try:
            part, upto = dense_build.loaded(self._path, self._metric, self._facts, passages)
        except Unusable:
            self._is_file_bad = self._path.exists()
        tail = empty_part(self._metric)
        return DenseState(self._metric, passages, part, tail, covered=upto, upto=upto, generation=-1)

    def _base(self, old: DenseState | None, passages: Passages) -> DenseState:
        """Where to start from: what is in memory, unless the tail is long and the writer has merged it by now."""
        if old is None:
            return self._loaded(passages)
        if self._wants_graph(old.count) and len(old.tail.numbers) > max(SMALL, len(old.main.numbers) // GRAPH_SHARE):
            with contextlib.suppress(Unusable):
                if dense_file.read_header(self._path)["upto"] > old.covered:
                    return self._loaded(passages)
        return old

    def _followed(self, old: DenseState, passages: Passages) -> DenseState:
        living, upto = passages.numbers(), passages.last_number()
        cut = int(np.searchsorted(living, old.covered, side="right"))
        main = _marked(old.main, living[:cut])
        if main is None or not len(old.main.numbers):
            part = dense_build.built(self._metric, self._kind, passages)
            empty = empty_part(self._metric)
            return DenseState(self._metric, passages, part, empty, upto, upto, passages.generation)
        tail = self._tail(old, living[cut:], passages)
        changed = len(tail.numbers), len(main.numbers) - main.living
        state = DenseState(self._metric, passages, main, tail, old.covered, upto, passages.generation)
        if main.graph is None and max(changed) > max(SMALL, len(main.numbers) // SHARE):
            state = replace(state, main=self._flat(state), tail=empty_part(self._metric), covered=upto)
        return state

    def _tail(self, old: DenseState, living: Rows, passages: Passages) -> Part:
        """The living rows beyond the main part: those that are there already, and new ones from the index."""
        known = living[living <= old.upto]
        at = np.searchsorted(old.tail.numbers, known)
        at = np.minimum(at, max(0, len(old.tail.numbers) - 1))
        if len(known) and (not len(old.tail.numbers) or not np.array_equal(old.tail.numbers[at], known)):
            return Part(dense_build.streamed(self._metric, passages, living, after=old.covered), living)
        kept = Part(old.tail.rows.take(at) if len(known) else FloatRows(self._metric), known)
        fresh = living[len(known) :]
        if not len(fresh):
            return kept
        return dense_build.joined(
            self._metric, kept, Part(dense_build.streamed(self._metric, passages, fresh, after=old.upto), fresh)
        )

    def _flat(self, state: DenseState) -> Part:
        """All living rows in one part without a graph."""
        if self._kind == "float32":
            return dense_build.joined(self._metric, state.main, state.tail)
        return dense_build.built(self._metric, self._kind, state.passages)

    def _merged(self, state: DenseState, progress: Progress) -> Part:
        """All rows in one part, with a graph where there are enough of them."""
        main, tail = state.main, state.tail
        if not self._wants_graph(state.count):
            is_done = main.graph is None and main.dead is None and not len(tail.numbers)
            return main if is_done else self._flat(state)
        removed = len(main.numbers) - main.living
        if main.graph is None or removed > len(main.numbers) // SHARE:
            if main.graph is not None or main.dead is not None or len(tail.numbers):
                main, tail = self._flat(state), empty_part(self._metric)
            todo = len(main.numbers)
        else:
            todo = len(tail.numbers)
        with track(progress, todo) as tell:
            return dense_build.graphed(main, tail, tell)

    def _wants_graph(self, count: int) -> bool:
        # A scan of bits is as quick as a graph up to millions of rows, and loses nothing under a filter.
        return count > self._exact_up_to and self._kind != "binary" and self._metric.faiss is not None

    def _is_worth_it(self, state: DenseState) -> bool:
        header: Header = {}
        with contextlib.suppress(Unusable):
            header = dense_file.read_header(self._path)
            dense_build.check_header(header, self._facts, state.passages)
        graph = self._wants_graph(state.count)
        if self._is_file_bad or not header or header["graph"] != graph:
            return state.count > SMALL or self._path.exists() or graph
        rows, living = int(header["rows"]), state.passages.numbers()
        held = int(np.searchsorted(living, header["upto"], side="right"))
        changed = len(living) - held + (rows - held)
        return changed > max(SMALL, rows // (GRAPH_SHARE if graph else SHARE))

    def _warn_of_size(self, count: int) -> None:
        if count <= self._exact_up_to or self._metric.faiss is not None or self._warned:
            return
        self._warned = True
        why = "approximate search needs faiss-cpu, which is not installed: pip install 'munjang[search]'"
        if self._metric.similarity == "manhattan":
            why = "Manhattan similarity has no approximate search; cosine, dot and euclidean have"
        warnings.warn(f"{count:,} passages are scanned for every query: {why}", MunjangWarning, stacklevel=3)


def _marked(part: Part, living: Rows) -> Part | None:
    """The part with all rows marked as removed that do not live; None where a living one is not in it."""
    at = np.searchsorted(part.numbers, living)
    if len(living) and (at[-1] >= len(part.numbers) or not np.array_equal(part.numbers[at], living)):
        return None
    if len(living) == len(part.numbers):
        return replace(part, dead=None)
    dead = np.ones(len(part.numbers), dtype=np.bool_)
    dead[at] = False
    return replace(part, dead=dead)


def _checked(queries: NDArray[np.floating], dimension: int) -> NDArray[np.floating]:
    matrix = np.asarray(queries)
    matrix = matrix[None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.shape[1] != dimension or matrix.dtype.kind != "f":
        raise InputError(
            f"query vectors must be floats of shape [q, {dimension}], got {matrix.dtype} {tuple(np.shape(queries))}: "
            "were they made by the index's own model?"
        )
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise InputError(f"query vector {row} is not finite (it holds NaN or infinity)")
    return matrix
