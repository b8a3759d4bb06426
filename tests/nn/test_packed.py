"""Packed batches: positions, groups, and the checks before the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import InputError
from munjang.nn.families import FAMILIES
from munjang.nn.packed import check_ids, padding_of, to_packed
from support import bodies

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 5))
def test_groups_tile_the_batch(lengths: list[int], padding: int) -> None:
    packed = to_packed(np.zeros(sum(lengths), np.int32), np.array(lengths, np.int32), CPU, padding=padding)
    lengths = [*lengths, *[1] * padding]
    assert [group.length for group in packed.groups for _ in range(group.sequences)] == lengths
    starts = [group.start for group in packed.groups]
    ends = [group.start + group.sequences * group.length for group in packed.groups]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == packed.total == sum(lengths)
    assert packed.count == len(lengths)
    assert packed.positions.tolist() == [position for length in lengths for position in range(length)]
    assert packed.offsets.tolist() == [0, *np.cumsum(lengths).tolist()]


def test_ids_lengths_and_segments_are_checked() -> None:
    config = FAMILIES["roberta"].read(bodies.theirs("roberta").config.to_dict())
    ids, lengths = bodies.random_batch([4])
    check_ids(ids, lengths, config, np.zeros(4, np.int32))
    with pytest.raises(InputError, match="segment ids must be below 1"):
        check_ids(ids, lengths, config, np.array([0, 0, 1, 1]))
    assert config.max_positions == 94, "two of RoBERTa's 96 rows are never used"
    with pytest.raises(InputError, match="at most 94 tokens"):
        check_ids(*bodies.random_batch([95]), config)
    for bad in (-1, bodies.VOCABULARY):
        with pytest.raises(InputError, match=rf"token ids must be 0\.\.119 .* got {bad}"):
            check_ids(np.array([5, bad]), np.array([2]), config)
    with pytest.raises(InputError, match="at least one token"):
        check_ids(np.array([5]), np.array([1, 0]), config)


def test_batches_on_the_cpu_are_rounded_to_few_sizes() -> None:
    sizes = {total + padding_of(total) for total in range(1, 4097)}
    assert len(sizes) < 100
    assert all(0 <= padding_of(total) <= max(7, total / 16) for total in range(1, 4097))
