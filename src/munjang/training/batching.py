"""Which rows make which step: an endless, repeatable stream of (task, rows).

Everything follows from the seed and the sizes, nothing from a state: the stream of a resumed run is the old one with
its first steps skipped, and every process of several sees the same. An epoch has as many steps as all tasks together
have batches; `sampling` decides how they are shared out:

- proportional: every task's batches once, mixed;
- round_robin: the tasks in turn, the smaller ones going round again;
- temperature: by size ** (1 / temperature), between the two;

and where tasks have shares of their own, these decide instead.

Rows come from a shuffled pass over the task's data, then from the next. Where an objective takes the other rows of the
batch for negatives, no text may stand in a batch twice: the row waits for the next batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import Any

import numpy as np

from munjang.data import Examples
from munjang.training.settings import Sampling

Array = np.ndarray[Any, Any]

_COPIES = 2  # of one row that wait at a time


@dataclass(frozen=True)
class Source:
    """What batching needs to know of a task."""

    units: tuple[Array, ...] | int  # ranked data: the rows of every query; else the number of rows
    batch_size: int
    texts: Array | None = None  # int64 [n, columns]: equal numbers are equal texts; None: duplicates do no harm
    share: float | None = None  # of the steps, in proportion to the other sources'

    @property
    def size(self) -> int:
        return self.units if isinstance(self.units, int) else len(self.units)

    @property
    def batches(self) -> int:
        """Batches in one pass."""
        return -(-self.size // self.batch_size)

    def rows(self, units: Array) -> Array:
        if isinstance(self.units, int):
            return units
        # In the order of the data: losses over lists want groups that ascend.
        return np.concatenate([self.units[unit] for unit in np.sort(units)])


def source_of(examples: Examples, batch_size: int, *, unique_texts: bool, share: float | None = None) -> Source:
    """The source of a data set: by rows, or by queries where it is ranked."""
    if examples.groups is not None:
        cuts = np.flatnonzero(np.diff(examples.groups)) + 1
        return Source(tuple(np.split(np.arange(len(examples)), cuts)), batch_size, share=share)
    return Source(len(examples), batch_size, text_numbers(examples) if unique_texts else None, share)


def text_numbers(examples: Examples) -> Array:
    """A number for every text, the same for the same text: int64 [n, columns]."""
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(" ".join(text.split()).casefold(), len(numbers))

    return np.array([[number(text) for text in column] for column in examples.columns.values()], np.int64).T


def steps_per_epoch(sources: Sequence[Source]) -> int:
    """Steps in which every task's data would pass once."""
    return sum(source.batches for source in sources)


def batches(
    sources: Sequence[Source], *, sampling: Sampling, temperature: float, seed: int
) -> Iterator[tuple[int, Array]]:
    """(task, rows) of step after step, without end."""
    streams = [_stream(source, np.random.SeedSequence([seed, 1, i])) for i, source in enumerate(sources)]
    for task in _tasks(sources, sampling, temperature, seed):
        yield task, sources[task].rows(next(streams[task]))


def _tasks(sources: Sequence[Source], sampling: Sampling, temperature: float, seed: int) -> Iterator[int]:
    """Which task each step belongs to."""
    shares = [source.share for source in sources if source.share is not None]
    if sampling == "round_robin" and not shares:
        yield from cycle(range(len(sources)))
    sizes = np.array([source.batches for source in sources], float)
    weights = sizes if sampling == "proportional" else sizes ** (1 / temperature)
    if shares:
        weights = np.array(shares, float)
    exact = weights / weights.sum() * sizes.sum()
    for epoch in count():
        # Whole numbers that keep to the shares over the epochs: what was rounded off in one comes in a later one.
        due = np.floor(exact * (epoch + 1) + 1e-9).astype(int) - np.floor(exact * epoch + 1e-9).astype(int)
        turns = np.repeat(np.arange(len(sources)), due)
        yield from np.random.default_rng([seed, 2, epoch]).permutation(turns).tolist()


def _stream(source: Source, seeds: np.random.SeedSequence) -> Iterator[Array]:
    """Batches of units: pass after pass, each shuffled anew."""
    generator = np.random.default_rng(seeds)
    if source.texts is not None:
        yield from _without_duplicates(source, generator)
    while True:
        order = generator.permutation(source.size)
        for first in range(0, source.size, source.batch_size):
            yield order[first : first + source.batch_size]


def _without_duplicates(source: Source, generator: np.random.Generator) -> Iterator[Array]:
    """Batches in which no text occurs twice; a row that does not fit waits for the next batch.

    Rows run on from one pass into the next, so that batches are full. Rows whose text many others have come less
    often than once in a pass: no more than `_COPIES` of a row wait at a time, or one day only they would be left. Where
    nothing new fits (few different texts), the batch is smaller.
    """
    assert source.texts is not None
    texts = [frozenset(row) for row in source.texts.tolist()]
    waiting: deque[int] = deque()
    copies = np.zeros(source.size, np.int64)  # of each row, waiting

    def refill() -> None:
        order = generator.permutation(source.size)
        order = order[copies[order] < _COPIES]
        copies[order] += 1
        waiting.extend(order.tolist())

    while True:
        refilled = len(waiting) < source.size
        if refilled:
            refill()
        taken: list[int] = []
        seen: set[int] = set()
        passed: list[int] = []
        while len(taken) < source.batch_size and (waiting or not refilled):
            if not waiting:
                refill()
                refilled = True
                continue
            row = waiting.popleft()
            if seen.isdisjoint(texts[row]):
                taken.append(row)
                seen |= texts[row]
            else:
                passed.append(row)
        waiting.extendleft(reversed(passed))
        copies[taken] -= 1
        yield np.array(taken, np.int64)


def skip(stream: Iterator[tuple[int, Array]], steps: int) -> Iterator[tuple[int, Array]]:
    """The stream after its first `steps`."""
    return islice(stream, steps, None)
