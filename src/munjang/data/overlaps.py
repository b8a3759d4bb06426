"""When two texts count as the same, and leakage: evaluation sentences in training data, counted, shown, removable.

`same_key` ignores what typing varies without meaning (case, full and half width, runs of spaces) and serves to drop
duplicates, where a mistake loses a row. `normalise` ignores spaces and punctuation too, which Korean texts vary freely,
and serves to find leaked sentences, where a mistake hides one.

Leakage compares texts exactly and normalised, as 64-bit hashes: time grows with the rows only, and a text takes a few
bytes. Two of two million different texts share a hash about once in ten million runs.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from munjang.data.examples import Examples

Int64: TypeAlias = npt.NDArray[np.int64]
_SHOWN = 5  # texts that are shown of every set


class _WithoutMarks(dict[int, int | None]):
    """A table for str.translate that drops spaces, punctuation and invisible characters; filled as it is used."""

    def __missing__(self, code: int) -> int | None:
        dropped = unicodedata.category(chr(code))[0] in "PZC"
        self[code] = None if dropped else code
        return self[code]


_TABLE = _WithoutMarks()


def same_key(text: str) -> str:
    """The text in NFKC, without case, with single spaces."""
    return " ".join(_folded(text).split())


def normalise(text: str) -> str:
    """The text in NFKC, without case, spaces and punctuation; a text of nothing else keeps its punctuation."""
    folded = _folded(text)
    return _composed(folded.translate(_TABLE) or "".join(folded.split()))


def _folded(text: str) -> str:
    """NFKC before and after the case is gone: folding can take a letter apart, and keys must not depend on that."""
    return _composed(_composed(text).casefold())


def _composed(text: str) -> str:
    """NFKC; again after a step that drops characters, because a mark may now stand beside a new letter."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@dataclass(frozen=True, eq=False)
class Overlap:
    """Texts that one evaluation set shares with the training data, under one way of comparing."""

    sentences: int  # different sentences that were seen
    some: Int64  # rows with at least one text seen
    every: Int64  # rows with every text seen
    whole: Int64  # rows whose texts are together in one training row, in either order


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
            return f"{self.name}: no sentence of {self.rows:,} rows occurs in the training data"
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
    """Texts that evaluation and training sets share."""

    sets: tuple[SetLeakage, ...]  # in the order of the evaluation sets
    train: tuple[TrainLeakage, ...]  # in the order of the training sets

    @property
    def any(self) -> bool:
        return any(len(found.normalised.some) for found in self.sets)

    def __str__(self) -> str:
        return "\n".join(str(found) for found in self.sets)


def leakage(train: Sequence[Examples], evaluation: Sequence[Examples]) -> Leakage:
    """Compare every text of the evaluation sets with every text of the training sets.

    Example:
        >>> train = Examples("train", "plain", {"text": ["비가 온다."]})
        >>> print(leakage([train], [Examples("test", "plain", {"text": ["비가 온다"]})]).sets[0].normalised.sentences)
        1
    """
    exact = _overlaps(train, evaluation, hash)
    normalised = _overlaps(train, evaluation, lambda text: hash(normalise(text)))
    sets = []
    for examples, (exact_overlap, _, sentences), (overlap, seen, _) in zip(
        evaluation, *(exact[0], normalised[0]), strict=True
    ):
        columns = list(examples.columns.values())
        texts = (columns[at][row] for row in overlap.some[:_SHOWN] for at in np.flatnonzero(seen[row]))
        shown = tuple(dict.fromkeys(texts))[:_SHOWN]
        sets.append(SetLeakage(examples.name, len(examples), sentences, exact_overlap, overlap, shown))
    held = zip(train, normalised[1], strict=True)
    return Leakage(tuple(sets), tuple(TrainLeakage(examples.name, len(examples), rows) for examples, rows in held))


def without(examples: Examples, rows: Int64 | Sequence[int]) -> Examples:
    """Return the examples without these rows, of training or of evaluation, which are counted in `reading`."""
    return examples.less(rows, reason="occurs in training and in evaluation")


def _overlaps(
    train: Sequence[Examples], evaluation: Sequence[Examples], number: Callable[[str], int]
) -> tuple[list[tuple[Overlap, npt.NDArray[np.bool_], int]], list[Int64]]:
    """Compare under one number for equal texts.

    Returns:
        For every evaluation set its overlap, which of its texts [rows, columns] are in the training data, and how many
        different texts it has; for every training set the rows with a text of any evaluation set.
    """
    train_numbers = [_numbers(examples, number) for examples in train]
    evaluation_numbers = [_numbers(examples, number) for examples in evaluation]
    train_texts, train_rows = _unique(train_numbers), _unique(map(_row_numbers, train_numbers))
    overlaps = []
    for numbers in evaluation_numbers:
        seen = np.isin(numbers, train_texts)
        whole = np.isin(_row_numbers(numbers), train_rows).any(axis=1)
        overlap = Overlap(
            sentences=len(np.unique(numbers[seen])),
            some=np.flatnonzero(seen.any(axis=1)),
            every=np.flatnonzero(seen.all(axis=1)),
            whole=np.flatnonzero(whole),
        )
        overlaps.append((overlap, seen, len(np.unique(numbers))))
    held = _unique(evaluation_numbers)
    return overlaps, [np.flatnonzero(np.isin(numbers, held).any(axis=1)) for numbers in train_numbers]


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
