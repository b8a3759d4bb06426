"""An index in memory for the tests of its dense vectors: `Passages` over a dict, and brute force beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from munjang.index.passages import Found


@dataclass
class FakePassages:
    """One state; `after` makes the next one."""

    dimension: int
    held: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    last: int = 0
    generation: int = 1
    block: int = 1000
    streamed: list[int] = field(default_factory=list)  # rows of every stream, to see what a refresh reads

    def after(self, add: NDArray[np.floating] | None = None, remove: object = ()) -> FakePassages:
        held = dict(self.held)
        for number in np.asarray(remove, dtype=np.int64).tolist():
            held.pop(number, None)
        last = self.last
        for vector in [] if add is None else np.asarray(add, dtype=np.float32):
            last += 1
            held[last] = vector
        return FakePassages(self.dimension, held, last, self.generation + 1, self.block, self.streamed)

    def last_number(self) -> int:
        return self.last

    def numbers(self) -> NDArray[np.int64]:
        return np.array(sorted(self.held), dtype=np.int64)

    def vectors(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.array([self.held[number] for number in numbers.tolist()], np.float32).reshape(-1, self.dimension)

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        numbers = self.numbers()
        numbers = numbers[(numbers > after) & (numbers <= upto)]
        self.streamed.append(len(numbers))
        for start in range(0, len(numbers), self.block):
            some = numbers[start : start + self.block]
            yield some, self.vectors(some)

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
        raise AssertionError("vectors need no texts")


def similarities(similarity: str, queries: NDArray[np.floating], rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """By the definition, in float64: [q, n]."""
    a, b = np.asarray(queries, np.float64), np.asarray(rows, np.float64)
    if similarity == "cosine":
        a = a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), 1e-300)
        b = b / np.maximum(np.linalg.norm(b, axis=1, keepdims=True), 1e-300)
    if similarity in ("cosine", "dot"):
        return np.asarray(a @ b.T)
    apart = a[:, None] - b[None]
    if similarity == "manhattan":
        return np.asarray(-np.abs(apart).sum(axis=-1))
    return np.asarray(-np.sqrt((apart * apart).sum(axis=-1)))


def brute_force(
    passages: FakePassages, queries: NDArray[np.floating], k: int, similarity: str, allowed: NDArray[np.bool_] | None
) -> Found:
    """What a search must answer."""
    numbers = passages.numbers()
    keep = numbers if allowed is None else numbers[allowed]
    scores = similarities(similarity, queries, passages.vectors(keep)).astype(np.float32)
    out = Found(np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64))
    for at in range(len(queries)):
        order = np.lexsort((keep, -scores[at]))[:k]
        out.scores[at, : len(order)], out.numbers[at, : len(order)] = scores[at][order], keep[order]
    return out


def recall(found: Found, expected: Found) -> float:
    """Share of the expected numbers that were found."""
    pairs = zip(found.numbers, expected.numbers, strict=True)
    hits = sum(len(np.intersect1d(got[got >= 0], want[want >= 0])) for got, want in pairs)
    return hits / max(1, int((expected.numbers >= 0).sum()))


def clustered(count: int, dimension: int, *, seed: int = 0, clusters: int = 200) -> NDArray[np.float32]:
    """Vectors that crowd around centres, as those of real texts do."""
    centres = np.random.default_rng(99).standard_normal((clusters, dimension))  # the same for every seed
    random = np.random.default_rng(seed)
    rows = centres[random.integers(0, clusters, count)] + 0.7 * random.standard_normal((count, dimension))
    return np.asarray(rows, dtype=np.float32)
