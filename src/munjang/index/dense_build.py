"""Passages -> a part of rows in memory; a part -> the arrays of a file, and back.

Building streams the vectors, so that besides the rows only a block of them is in memory. Bytes and bits need to see
all vectors twice: once for the ranges (the middles), once to be encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError
from munjang.index import dense_file
from munjang.index.dense_file import Arrays, Header, Unusable
from munjang.index.dense_graph import Graph
from munjang.index.dense_metric import Floats, Metric, Rows
from munjang.index.dense_rows import BitRows, ByteRows, FloatRows, KeptRows, from_arrays
from munjang.index.dense_search import Part
from munjang.index.dense_twins import Twins, nodes_of, nodes_of_more
from munjang.index.options import VectorKind
from munjang.index.passages import Passages

FORMAT = 1
SAMPLE = 32  # rows of a file that are compared with the index: the newest, and some of all


def empty_part(metric: Metric) -> Part:
    return Part(FloatRows(metric), np.empty(0, dtype=np.int64))


def built(metric: Metric, kind: VectorKind, passages: Passages) -> Part:
    """All living passages, in rows of a kind."""
    numbers, upto = passages.numbers(), passages.last_number()
    if kind == "float32":
        return Part(streamed(metric, passages, numbers, after=0), numbers)
    rows: ByteRows | BitRows
    if kind == "int8":
        rows = ByteRows(metric, *_ranges(metric, passages, upto))
    else:
        rows = BitRows(metric, *_middle(metric, passages, upto))
    room, at = rows.reserve(len(numbers)), 0
    for some, vectors in passages.stream_vectors(0, upto):
        _check(some, numbers[at : at + len(some)])
        room[at : at + len(some)] = rows.encode(metric.prepare(vectors))
        at += len(some)
    _check(numbers[:at], numbers)
    return Part(rows, numbers)


def streamed(metric: Metric, passages: Passages, numbers: Rows, *, after: int) -> FloatRows:
    """Float rows of exactly these numbers, which are all the living ones beyond `after`."""
    rows = FloatRows(metric)
    room, at = rows.reserve(len(numbers)), 0
    if len(numbers):
        for some, vectors in passages.stream_vectors(after, passages.last_number()):
            _check(some, numbers[at : at + len(some)])
            room[at : at + len(some)] = metric.prepare(vectors)
            at += len(some)
    _check(numbers[:at], numbers)
    rows.filled()
    return rows


def joined(metric: Metric, main: Part, tail: Part) -> Part:
    """The living float rows of both, in one."""
    alive = np.arange(len(main.numbers)) if main.dead is None else np.flatnonzero(~main.dead)
    rows = FloatRows(metric)
    room = rows.reserve(len(alive) + len(tail.numbers))
    for some in rows.blocks(len(alive)):
        room[some] = main.rows.decode(alive[some] if main.twins is None else main.twins.nodes[alive[some]])
    room[len(alive) :] = tail.rows.decode(slice(None))
    rows.filled()
    return Part(rows, np.concatenate((main.numbers[alive], tail.numbers)))


def graphed(part: Part, more: Part, tell: Callable[[int], None]) -> Part:
    """A part with a graph over all its rows and those of `more`; removed rows of a graph stay in it."""
    if isinstance(part.rows, BitRows):
        raise ValueError("bits need no graph")
    if part.graph is None or part.twins is None:
        nodes, first = nodes_of(part.rows)  # type: ignore[arg-type]
        tell(len(nodes) - len(first))
        graph = Graph.build(part.rows.take(first), tell)  # type: ignore[arg-type]
        return Part(graph.rows, part.numbers, graph, part.dead, Twins.of(nodes, len(first)))
    numbers, dead = np.concatenate((part.numbers, more.numbers)), part.dead
    if dead is not None:
        dead = np.concatenate((dead, np.zeros(len(more.numbers), dtype=np.bool_)))
    graph, vectors = part.graph, np.ascontiguousarray(more.rows.decode(slice(None)))
    same = graph.rows.take(np.empty(0, dtype=np.int64))
    same.add(vectors)
    nodes, fresh = nodes_of_more(graph.rows, same)
    tell(len(nodes) - len(fresh))
    graph = graph.grown(vectors[fresh], tell) if len(fresh) else graph
    twins = Twins.of(np.concatenate((part.twins.nodes, nodes)), graph.rows.count)
    return Part(graph.rows, numbers, graph, dead, twins)


def written(path: Path, part: Part, facts: Header) -> None:
    """Put a part into a file."""
    arrays: dict[str, NDArray[Any]] = {"numbers": part.numbers, **part.rows.arrays()}
    if part.graph is not None:
        arrays["links"] = part.graph.to_bytes()
    if part.twins is not None:
        arrays["nodes"] = part.twins.nodes
    dense_file.write(path, {**facts, "rows": len(part.numbers), "graph": part.graph is not None}, arrays)


def loaded(path: Path, metric: Metric, facts: Header, passages: Passages) -> tuple[Part, int]:
    """The part of a file and the number up to which it goes; `Unusable` where it is not of this index."""
    made: list[KeptRows] = []

    def room(name: str, before: Arrays, shape: tuple[int, ...]) -> NDArray[Any] | None:
        if name != "rows":
            return None
        made.append(from_arrays(metric, str(facts["vectors"]), before))
        target = made[0].reserve(shape[0])
        if target.shape != shape:
            raise Unusable(f"rows of shape {shape}, expected {target.shape}")
        return target

    header, arrays = dense_file.read(path, lambda header: check_header(header, facts, passages), room)
    rows, numbers = made[0], arrays["numbers"]
    twins = Twins.of(arrays["nodes"], rows.count) if "nodes" in arrays else None
    part = Part(rows, numbers, twins=twins)
    _check_sample(part, metric, passages)
    if "links" in arrays and metric.faiss is not None and isinstance(rows, FloatRows | ByteRows):
        try:
            part = Part(rows, numbers, Graph.from_bytes(rows, arrays["links"]), twins=twins)
        except (RuntimeError, ValueError) as error:  # of a newer faiss
            raise Unusable(f"the graph cannot be read: {error}") from error
    return part, int(header["upto"])


def check_header(header: Header, facts: Header, passages: Passages) -> None:
    """A header must be of this index, and not of a later state of it than the passages."""
    for name, expected in facts.items():
        if header.get(name) != expected:
            raise Unusable(f"{name} is {header.get(name)!r}, expected {expected!r}")
    if header["generation"] > passages.generation or header["upto"] > passages.last_number():
        raise Unusable("it is newer than the documents: they were put back to an earlier state")


def _check_sample(part: Part, metric: Metric, passages: Passages) -> None:
    """Compare some rows with the index: a file of another index may have the same header."""
    living = np.isin(part.numbers, passages.numbers(), assume_unique=True).nonzero()[0]
    if not len(living):
        return
    spread = np.linspace(0, len(living) - 1, SAMPLE, dtype=np.int64)
    chosen = living[np.unique(np.concatenate((spread, np.arange(len(living))[-SAMPLE:])))]
    true = metric.prepare(passages.vectors(part.numbers[chosen]))
    chosen = chosen if part.twins is None else part.twins.nodes[chosen]
    if isinstance(part.rows, BitRows):
        same = np.array_equal(part.rows.codes[chosen], part.rows.encode(true))
    else:
        apart = np.linalg.norm(part.rows.decode(chosen).astype(np.float64) - true, axis=1)
        error = part.rows.error if isinstance(part.rows, ByteRows) else 0.0
        same = bool((apart <= error + 1e-5 * np.linalg.norm(true, axis=1)).all())
    if not same:
        raise Unusable("its vectors are not those of this index")


def _ranges(metric: Metric, passages: Passages, upto: int) -> tuple[Floats, Floats]:  # [d], [d]
    low = np.full(metric.dimension, np.inf, dtype=np.float32)
    high = np.full(metric.dimension, -np.inf, dtype=np.float32)
    for _, vectors in passages.stream_vectors(0, upto):
        rows = metric.prepare(vectors)
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    empty = low > high
    return np.where(empty, np.float32(-1), low), np.where(empty, np.float32(1), high)


def _middle(metric: Metric, passages: Passages, upto: int) -> tuple[Floats, Floats]:  # [d], [d]
    """Means and standard deviations: where the bits divide, and about how far apart their sides are."""
    total, squares, count = np.zeros(metric.dimension), np.zeros(metric.dimension), 0
    for some, vectors in passages.stream_vectors(0, upto):
        rows = metric.prepare(vectors).astype(np.float64)
        total += rows.sum(axis=0)
        squares += (rows * rows).sum(axis=0)
        count += len(some)
    middle = total / max(1, count)
    width = np.sqrt(np.maximum(squares / max(1, count) - middle * middle, 0))
    return middle.astype(np.float32), width.astype(np.float32)


def _check(came: Rows, expected: Rows) -> None:
    if not np.array_equal(came, expected):
        raise DataError(
            f"the index gave {len(came)} vectors where its list has {len(expected)} passages, or others: "
            "it changed while it was read, or its database is damaged (verify it)"
        )
