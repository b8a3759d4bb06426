"""Do evaluation sentences stand in the training data? Counted, shown, and removable.

Enters: the sets that train and the sets that evaluate. Leaves: for every evaluation set, how many of its sentences
and rows were seen, exactly and after normalisation (NFKC, no case, no spaces, no punctuation), which rows these are,
and which training rows hold them. A text becomes a 64-bit number, so that the time grows with the rows only and a
text takes a few bytes; that two of two million different texts share a number happens about once in ten million runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.data.examples import Examples
from munjang.data.normalise import normalise

Int64: TypeAlias = npt.NDArray[np.int64]
_SHOWN = 5  # texts that are shown of every set


@dataclass(frozen=True, eq=False)
class Overlap:
    """What of one evaluation set stands in the training data, under one way of comparing texts."""

    sentences: int  # different sentences that were seen
    some: Int64  # rows with at least one text seen
    every: Int64  # rows with every text seen
    whole: Int64  # rows whose texts stand together in one training row, in either order


@dataclass(frozen=True, eq=False)
class SetLeakage:
    """One evaluation set against all training sets."""

    name: str
    rows: int
    sentences: int  # different sentences in the set
    exact: Overlap
    normalised: Overlap
    examples: tuple[str, ...]  # the first texts that were seen

    def __str__(self) -> str:
        if not len(self.normalised.some):
            return f"{self.name}: no sentence of {self.rows:,} rows stands in the training data"
        found = self.normalised
        return (
            f"{self.name}: {len(found.some):,} of {self.rows:,} rows share a sentence with the training data"
            f" ({len(self.exact.some):,} exactly), {len(found.every):,} with every side seen,"
            f" {len(found.whole):,} as whole rows; {found.sentences:,} of {self.sentences:,} sentences;"
            f" such as {self.examples[0]!r}"
        )


@dataclass(frozen=True, eq=False)
class TrainLeakage:
    """The rows of one training set that hold a sentence of any evaluation set, after normalisation."""

    name: str
    rows: int
    some: Int64


@dataclass(frozen=True, eq=False)
class Leakage:
    """What the evaluation sets and the training sets share."""

    sets: tuple[SetLeakage, ...]  # in the order of the evaluation sets
    train: tuple[TrainLeakage, ...]  # in the order of the training sets

    @property
    def any(self) -> bool:
        return any(len(found.normalised.some) for found in self.sets)

    def __str__(self) -> str:
        return "\n".join(str(found) for found in self.sets)


def leakage(train: Sequence[Examples], evaluation: Sequence[Examples]) -> Leakage:
    """Compare every text of the evaluation sets with every text of the training sets."""
    exact = _Side(train, evaluation, hash)
    normalised = _Side(train, evaluation, lambda text: hash(normalise(text)))
    sets = []
    for place, examples in enumerate(evaluation):
        found = normalised.overlap(place)
        sets.append(
            SetLeakage(
                examples.name,
                len(examples),
                len(np.unique(exact.evaluation[place])),
                exact.overlap(place),
                found,
                tuple(_seen_texts(examples, found.some, normalised.seen(place))),
            )
        )
    held = _unique(normalised.evaluation)
    rows = [np.flatnonzero(np.isin(numbers, held).any(axis=1)) for numbers in normalised.train]
    found_train = (TrainLeakage(one.name, len(one), some) for one, some in zip(train, rows, strict=True))
    return Leakage(tuple(sets), tuple(found_train))


def without(examples: Examples, rows: Int64 | Sequence[int]) -> Examples:
    """The examples less these rows, of training or of evaluation; the rows left out are counted."""
    return examples.less(rows, reason="stands in training and in evaluation")


class _Side:
    """All texts as numbers, under one way of comparing them."""

    def __init__(self, train: Sequence[Examples], evaluation: Sequence[Examples], number: Callable[[str], int]) -> None:
        self.train = [_numbers(examples, number) for examples in train]
        self.evaluation = [_numbers(examples, number) for examples in evaluation]
        self._texts = _unique(self.train)
        self._rows = np.unique(
            np.concatenate([np.zeros(0, np.int64), *(_row_numbers(one).ravel() for one in self.train)])
        )

    def seen(self, place: int) -> npt.NDArray[np.bool_]:
        return np.isin(self.evaluation[place], self._texts)

    def overlap(self, place: int) -> Overlap:
        numbers = self.evaluation[place]
        seen = self.seen(place)
        return Overlap(
            sentences=len(np.unique(numbers[seen])),
            some=np.flatnonzero(seen.any(axis=1)),
            every=np.flatnonzero(seen.all(axis=1)),
            whole=np.flatnonzero(np.isin(_row_numbers(numbers), self._rows).any(axis=1)),
        )


def _numbers(examples: Examples, number: Callable[[str], int]) -> Int64:
    """[rows, columns]: a number for every text."""
    columns = [np.fromiter(map(number, texts), np.int64, len(examples)) for texts in examples.columns.values()]
    return np.stack(columns, axis=1)


def _row_numbers(numbers: Int64) -> Int64:
    """[rows, 1 or columns - 1]: a number for each pair of a row's first text and another one, whatever their order.

    The lower and the higher of two numbers are mixed unevenly, so that a and b, and not just a + b, decide.
    """
    if numbers.shape[1] == 1:
        return numbers
    first, others = numbers[:, :1].view(np.uint64), numbers[:, 1:].view(np.uint64)
    low, high = np.minimum(first, others), np.maximum(first, others)
    mixed = low * np.uint64(0x9E3779B97F4A7C15) + (high ^ (high >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    numbered: Int64 = (mixed ^ (mixed >> np.uint64(32))).view(np.int64)
    return numbered


def _unique(sets: Iterable[Int64]) -> Int64:
    return np.unique(np.concatenate([np.zeros(0, np.int64), *(numbers.ravel() for numbers in sets)]))


def _seen_texts(examples: Examples, rows: Int64, seen: npt.NDArray[np.bool_]) -> list[str]:
    columns = list(examples.columns.values())
    found = (columns[column][row] for row in rows[:_SHOWN] for column in np.flatnonzero(seen[row]))
    return list(dict.fromkeys(found))[:_SHOWN]
