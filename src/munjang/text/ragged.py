"""Rows of different lengths in one flat array: the few numpy moves that tokenising and packing share.

A ragged array is `flat` [total] and `lengths` [n]; row i is flat[starts[i] : starts[i] + lengths[i]], where
`starts` is the running sum of the lengths before it. Everything is vectorised: no Python loop per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]


def from_lists(rows: Sequence[Sequence[int]]) -> tuple[Int32, Int32]:
    """Flat ids [total] and lengths [n] of a list of lists."""
    lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
    return flat, lengths


def starts_of(lengths: Int32) -> Int64:
    """Where each row begins in the flat array, [n]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths


def positions(starts: Int64, lengths: Int32) -> Int64:
    """The flat positions of the rows that begin at `starts` and have `lengths`, one row after the other, [total]."""
    total = int(lengths.sum())
    return np.arange(total, dtype=np.int64) + np.repeat(starts - starts_of(lengths), lengths)
