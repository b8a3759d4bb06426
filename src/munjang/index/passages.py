"""What an index and the structures derived from it say to each other: `Passages` goes in, `Found` comes out.

A derived structure (vectors in FAISS, keywords by BM25) reads one committed state of the index and answers with
passage numbers. It never is a source of truth: whatever it holds can be made again from `Passages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Passages(Protocol):
    """One committed state of an index. A passage is a chunk of a document.

    A passage's number is given once and never again, so that a derived file stays true for all numbers it holds.
    """

    @property
    def generation(self) -> int:
        """Grows with every commit that changes something."""

    @property
    def dimension(self) -> int:
        """Width of the vectors."""

    def last_number(self) -> int:
        """The highest number ever given, to a living passage or to one that was removed; 0 where there was none."""

    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the living passages, ascending: [n]. Not to be changed."""

    def vectors(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of living passages, in the order asked: [len(numbers), dimension]."""

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Blocks of numbers [b] and vectors [b, dimension] of the living passages with after < number <= upto."""

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
        """Blocks of numbers [b] and their texts, in the same manner."""


@dataclass(frozen=True)
class Found:
    """The best passages of every query, best first; equal scores stand in the order of their numbers."""

    scores: NDArray[np.float32]  # [queries, k]; -inf where there are fewer
    numbers: NDArray[np.int64]  # [queries, k]; -1 where there are fewer
    normalized: NDArray[np.float32] | None = None  # [queries, k]: scores on the scale of index/fusion.py, where known
