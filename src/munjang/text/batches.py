"""Ragged tokens to packed batches.

`pack` takes the `Tokens` of one window and gives `Batch`es: sequences sorted by length, at most `budget` tokens
and `max_sequences` sequences each. Nothing is padded; sorting still pays, because attention on a CPU groups
sequences of equal length, and because kernels see rows of like cost. The longest batch comes first: a budget
that is too large for the device then fails at once, not after an hour, and the tail of the work is short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from munjang.errors import InputError
from munjang.text.ragged import Int32, Int64, positions, starts_of
from munjang.text.tokenizer import Tokens


@dataclass(frozen=True)
class Batch:
    """Sequences that go through the model together, ordered by length."""

    ids: Int32  # [total]
    lengths: Int32  # [n], ascending
    rows: Int64  # [n]: which row of the window each sequence is
    segments: Int32 | None = None  # [total]; None means all 0


def pack(tokens: Tokens, budget: int, *, max_sequences: int = 65_535) -> list[Batch]:
    """Batches of at most `budget` tokens and `max_sequences` sequences, the longest sequences first.

    A sequence longer than the budget makes a batch of its own. Every row of `tokens` is in exactly one batch.
    """
    if budget < 1:
        raise InputError(f"budget must be at least 1 token, got {budget}")
    if max_sequences < 1:
        raise InputError(f"max_sequences must be at least 1, got {max_sequences}")
    order = np.argsort(tokens.lengths, kind="stable").astype(np.int64, copy=False)  # [n]
    lengths = tokens.lengths[order]  # [n], ascending
    starts = starts_of(tokens.lengths)[order]  # [n]: where each sorted sequence begins in tokens.ids
    batches = []
    for first, last in _cuts(lengths, budget, max_sequences):
        places = positions(starts[first:last], lengths[first:last])
        segments = None if tokens.segments is None else tokens.segments[places]
        batches.append(Batch(tokens.ids[places], lengths[first:last], order[first:last], segments))
    return batches


def _cuts(lengths: Int32, budget: int, max_sequences: int) -> list[tuple[int, int]]:
    """[first, last) of each batch over ascending lengths, from the long end to the short end.

    Filled greedily, the last batch would often be a handful of sequences that cost a whole pass. So the greedy
    pass only counts the batches; a second pass aims each batch at an even share of what is left.
    """
    sums = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))  # [n + 1]
    limit_cuts = _fill(sums, budget, max_sequences, 0)
    even_cuts = _fill(sums, budget, max_sequences, len(limit_cuts))
    return even_cuts if len(even_cuts) <= len(limit_cuts) else limit_cuts


def _fill(sums: Int64, budget: int, max_sequences: int, wanted: int) -> list[tuple[int, int]]:
    """Cuts from the end of the sorted sequences; with `wanted` > 0, as even as the limits allow."""
    cuts: list[tuple[int, int]] = []
    last = len(sums) - 1
    while last > 0:
        left = wanted - len(cuts)
        share = -(-int(sums[last]) // left) if left > 0 else budget  # ceiling, so that the count is kept
        room = min(budget, share)
        first = int(np.searchsorted(sums, sums[last] - room, side="left"))
        if left > 0 and first > 0 and sums[last] - sums[first - 1] <= budget:
            first -= 1  # round up: the cut falls inside a sequence
        first = min(max(first, last - max_sequences), last - 1)
        cuts.append((first, last))
        last = first
    return cuts
