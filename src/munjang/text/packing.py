"""Token ids as flat arrays without padding, and the batches cut from them.

Rows of different lengths are `flat` [total] and `lengths` [n]: row i is flat[starts[i] : starts[i] + lengths[i]], where
starts = `starts_of(lengths)`. All operations are vectorized, without a Python loop over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from munjang.errors import InputError

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """Token ids of several texts or pairs: special tokens included, truncated to max_length."""

    ids: Int32  # [total]
    lengths: Int32  # [n]
    truncated: int  # number of rows that were truncated
    longest: int  # length of the longest row before truncation; 0 when n == 0
    segments: Int32 | None = None  # [total], token_type_ids; None when all are 0


@dataclass(frozen=True)
class Batch:
    """Sequences that the model computes together, shortest first."""

    ids: Int32  # [total]
    lengths: Int32  # [n], ascending
    rows: Int64  # [n], the row of `Tokens` each sequence comes from
    segments: Int32 | None = None  # [total]; None when all are 0


def starts_of(lengths: Int32) -> Int64:
    """Offset of each row in the flat array, [n]."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def positions(starts: Int64, lengths: Int32) -> Int64:
    """Flat positions of the rows given by `starts` and `lengths`, row after row, [total]."""
    total = int(lengths.sum())
    return np.arange(total, dtype=np.int64) + np.repeat(starts - starts_of(lengths), lengths)


def pack(tokens: Tokens, budget: int, *, max_sequences: int = 65_535) -> list[Batch]:
    """Cut tokenized rows into batches, sorted by length, without padding.

    Sorting pays even without padding: attention on the CPU groups sequences of equal length, and kernels see rows of
    similar cost. The longest batch comes first, so a budget too large for the device fails at once.

    Args:
        tokens: the rows of one window.
        budget: most tokens in a batch; a longer row becomes a batch by itself.
        max_sequences: most sequences in a batch (default: the limit of the attention kernels).

    Returns:
        Batches that contain every row exactly once, the longest rows first.

    Raises:
        InputError: if `budget` or `max_sequences` is below 1.
    """
    if budget < 1:
        raise InputError(f"budget must be at least 1 token, got {budget}")
    if max_sequences < 1:
        raise InputError(f"max_sequences must be at least 1, got {max_sequences}")
    order = np.argsort(tokens.lengths, kind="stable").astype(np.int64, copy=False)  # [n]
    lengths = tokens.lengths[order]  # [n], ascending
    starts = starts_of(tokens.lengths)[order]  # [n]
    sums = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))  # [n + 1]
    # Greedy filling often leaves a last batch of a handful of sequences that costs a whole pass: it only counts the
    # batches, then each gets an even share.
    spans = _spans(sums, budget, max_sequences, 0)
    even = _spans(sums, budget, max_sequences, len(spans))
    batches = []
    for first, last in even if len(even) <= len(spans) else spans:
        flat = positions(starts[first:last], lengths[first:last])
        segments = None if tokens.segments is None else tokens.segments[flat]
        batches.append(Batch(tokens.ids[flat], lengths[first:last], order[first:last], segments))
    return batches


def _spans(sums: Int64, budget: int, max_sequences: int, count: int) -> list[tuple[int, int]]:
    """[first, last) of each batch, from the longest sequences down; aims at `count` batches of even size if count > 0.

    sums: [n + 1], running total of the ascending lengths.
    """
    spans: list[tuple[int, int]] = []
    last = len(sums) - 1
    while last > 0:
        left = count - len(spans)
        share = -(-int(sums[last]) // left) if left > 0 else budget  # rounded up, so that the count suffices
        first = int(np.searchsorted(sums, sums[last] - min(budget, share), side="left"))
        if left > 0 and first > 0 and sums[last] - sums[first - 1] <= budget:
            first -= 1  # the share ends inside a sequence: take it whole
        first = min(max(first, last - max_sequences), last - 1)
        spans.append((first, last))
        last = first
    return spans
