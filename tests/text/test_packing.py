"""Rows as flat arrays; every row in exactly one batch, within the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.text.fast_words import from_lists
from munjang.text.packing import Tokens, pack, positions, starts_of


def tokens_of(lengths: list[int]) -> Tokens:
    """Rows whose ids say where they come from."""
    ids = np.arange(sum(lengths), dtype=np.int32)
    return Tokens(ids, np.array(lengths, dtype=np.int32), 0, max(lengths, default=0))


@given(
    lengths=st.lists(st.integers(0, 40), max_size=80),
    budget=st.integers(1, 120),
    max_sequences=st.integers(1, 30),
)
def test_every_row_once_and_within_the_limits(lengths: list[int], budget: int, max_sequences: int) -> None:
    tokens = tokens_of(lengths)
    batches = pack(tokens, budget, max_sequences=max_sequences)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(lengths)))
    ends = np.cumsum(lengths)
    for batch in batches:
        assert 1 <= len(batch.rows) <= max_sequences
        assert batch.ids.size <= budget or len(batch.rows) == 1
        assert batch.lengths.tolist() == sorted(batch.lengths.tolist()) == [lengths[row] for row in batch.rows]
        expected = [i for row in batch.rows for i in range(ends[row] - lengths[row], ends[row])]
        assert batch.ids.tolist() == expected
        assert (batch.ids.dtype, batch.lengths.dtype, batch.rows.dtype) == (np.int32, np.int32, np.int64)
    longest = [int(batch.lengths[-1]) for batch in batches]
    assert longest == sorted(longest, reverse=True), "the longest come first"


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=200), budget=st.integers(40, 400))
def test_no_more_batches_than_greedy_filling_needs(lengths: list[int], budget: int) -> None:
    greedy, room = 0, 0
    for length in sorted(lengths, reverse=True):
        if length > room:
            greedy, room = greedy + 1, budget
        room -= length
    assert len(pack(tokens_of(lengths), budget)) <= greedy


def test_no_tiny_remainder() -> None:
    sizes = [batch.ids.size for batch in pack(tokens_of([10] * 101), 1000)]
    assert len(sizes) == 2
    assert min(sizes) >= 400, "two halves, not 100 sequences and one"


def test_equal_lengths_keep_their_order() -> None:
    (batch,) = pack(tokens_of([3, 1, 3, 1, 3]), 100)
    assert batch.rows.tolist() == [1, 3, 0, 2, 4]


def test_the_limit_of_sequences_is_the_kernels() -> None:
    batches = pack(tokens_of([1] * 70_000), 1_000_000)
    assert max(len(batch.rows) for batch in batches) <= 65_535


@pytest.mark.parametrize(("budget", "most"), [(0, 5), (-1, 5), (5, 0)])
def test_limits_must_be_positive(budget: int, most: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        pack(tokens_of([1]), budget, max_sequences=most)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=12), st.data())
def test_any_rows_of_a_flat_array(rows: list[list[int]], data: st.DataObject) -> None:
    ids, lengths = from_lists(rows)
    assert ids.dtype == lengths.dtype == np.int32
    assert lengths.tolist() == [len(row) for row in rows]
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else [], np.int64)
    flat = ids[positions(starts_of(lengths)[chosen], lengths[chosen])]
    assert flat.tolist() == [value for row in chosen for value in rows[row]]
