"""Rows as packed batches, against plain Python; and the round shapes that recorded steps are filled up to."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang.nn.packed import Packed, to_packed
from munjang.text.packing import Tokens
from munjang.training.filling import LONGEST_FILLER, filled, pack_filled, shape_of
from munjang.training.graphs import as_packed, flat_inputs
from munjang.training.sequences import Sequences
from munjang.training.trainee import joined
from support.bodies import ours, theirs
from training.material import bi

CPU = torch.device("cpu")


def tokens(lengths: list[int], seed: int, *, segments: bool = False) -> Tokens:
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, 100, sum(lengths)).astype(np.int32)
    marks = generator.integers(0, 2, sum(lengths)).astype(np.int32) if segments else None
    return Tokens(ids, np.array(lengths, np.int32), 0, max(lengths), marks)


def plain(stream: Tokens, row: int, what: str = "ids") -> list[int]:
    """One sequence, found with loops."""
    start = sum(stream.lengths[:row].tolist())
    values: list[int] = getattr(stream, what)[start : start + int(stream.lengths[row])].tolist()
    return values


LENGTHS = st.integers(1, 12).flatmap(
    lambda rows: st.lists(
        st.lists(st.integers(1, 9), min_size=rows, max_size=rows), min_size=1, max_size=3
    )  # streams x rows
)


@given(LENGTHS, st.data(), st.booleans(), st.booleans())
def test_packing_against_plain_python(
    lengths: list[list[int]], data: st.DataObject, sort: bool, segments: bool
) -> None:
    streams = [tokens(some, seed, segments=segments) for seed, some in enumerate(lengths)]
    sequences = Sequences(streams)
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths[0]) - 1), min_size=1, max_size=10)))
    wanted = [plain(stream, row) for stream in streams for row in rows]
    marks = [plain(stream, row, "segments") for stream in streams for row in rows] if segments else None

    assert sequences.count(rows) == sum(map(len, wanted))
    assert sequences.longest_of(rows) == max(map(len, wanted))
    assert sequences.tokens == sum(len(stream.ids) for stream in streams)
    ids, flat_lengths, flat_marks = sequences.flat(rows)
    assert ids.tolist() == list(chain.from_iterable(wanted))
    assert flat_lengths.tolist() == [len(sequence) for sequence in wanted]
    assert (flat_marks is None) if marks is None else (flat_marks.tolist() == list(chain.from_iterable(marks)))

    packed = sequences.pack(rows, CPU, sort=sort)
    found = [part.tolist() for part in packed.batch.ids.split(packed.batch.lengths.tolist())]
    if sort:
        assert packed.batch.lengths.tolist() == sorted(packed.batch.lengths.tolist())
        assert len(packed.batch.groups) == len(set(flat_lengths.tolist()))
    # A vector that tells which sequence it is of: they come back in the order of the rows, stream by stream.
    outputs = torch.tensor([[float(sum(sequence)), float(len(sequence))] for sequence in found])
    back = packed.by_stream(outputs)
    assert len(back) == len(streams)
    for stream, vectors in zip(streams, back, strict=True):
        expected = [[float(sum(plain(stream, row))), float(stream.lengths[row])] for row in rows]
        assert vectors.tolist() == expected


@given(st.lists(st.integers(1, 30), min_size=0, max_size=40), st.integers(1, 200))
def test_cutting(lengths: list[int], budget: int) -> None:
    sequences = Sequences([tokens(lengths or [1], 0)])
    rows = np.arange(len(lengths))[::-1].copy()
    parts = sequences.cut(rows, budget)
    assert sorted(place for part in parts for place in part.tolist()) == list(range(len(rows)))
    for part in parts:
        assert len(part) == 1 or sequences.count(rows[part]) <= budget
    # No two neighbours would have fitted together: there are no more parts than needed in this order.
    for first, second in pairwise(parts):
        assert sequences.count(rows[first]) + sequences.count(rows[second[:1]]) > budget
    if sum(lengths) <= budget:
        assert len(parts) == bool(lengths)


def test_windows_of_tokens_are_joined() -> None:
    parts = [tokens([2, 3], 0, segments=True), tokens([4], 1, segments=True)]
    whole = joined(parts)
    assert whole.lengths.tolist() == [2, 3, 4]
    assert whole.longest == 4
    assert [plain(whole, row) for row in range(3)] == [plain(parts[0], 0), plain(parts[0], 1), plain(parts[1], 0)]
    assert whole.segments is not None
    assert len(whole.segments) == 9
    assert joined([tokens([2], 0), tokens([1], 1)]).segments is None


def test_a_part_without_segments_has_zeros() -> None:
    """Where one window or one column has segments and another has none, nothing moves out of its place."""
    marked, bare = tokens([2, 3], 0, segments=True), tokens([4, 1], 1)
    assert marked.segments is not None
    for parts in ([marked, bare], [bare, marked]):
        marks = [[0] * 5 if part is bare else marked.segments.tolist() for part in parts]
        whole = joined(parts).segments
        assert whole is not None
        assert whole.tolist() == [*marks[0], *marks[1]]
        _, _, flat = Sequences(parts).flat(np.arange(2))
        assert flat is not None
        assert flat.tolist() == [*marks[0], *marks[1]]


# --- round shapes ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 300_000), st.integers(1, 512))
def test_a_round_shape_has_room_for_short_fillers(count: int, longest: int) -> None:
    shape = shape_of(8, count, longest)
    missing = shape.tokens - count
    assert shape.fillers <= missing
    assert -(-missing // shape.fillers) <= LONGEST_FILLER < 64 <= shape.longest  # none longer than what is recorded for
    assert shape.tokens % 128 == 0
    assert missing <= max(256, count / 8 + count / 256)
    assert longest <= shape.longest < max(128, 2 * longest)


def test_there_are_few_shapes() -> None:
    shapes = {shape_of(32, count, 64).tokens for count in range(1000, 2000)}
    assert len(shapes) < 20


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_the_filling_fills(sizes: list[int]) -> None:
    """Whatever is missing: to the last token, in sequences that are neither empty nor long."""
    sequences = Sequences([tokens(sizes, 0)])
    rows = np.arange(len(sizes))
    shape = shape_of(len(rows), sequences.count(rows), sequences.longest_of(rows))
    ids, lengths, _ = filled(sequences, rows, shape)
    assert len(ids) == int(lengths.sum()) == shape.tokens
    assert lengths[: len(sizes)].tolist() == sizes
    assert 1 <= lengths[len(sizes) :].min() <= lengths[len(sizes) :].max() <= LONGEST_FILLER


@pytest.mark.parametrize("segments", [False, True])
def test_a_filled_batch_is_a_batch(segments: bool) -> None:
    """The encoder gives the rows the same vectors, with the filling behind them and without."""
    streams = [tokens([3, 7, 5, 2], 0, segments=segments), tokens([4, 4, 9, 1], 1, segments=segments)]
    sequences = Sequences(streams)
    rows = np.array([2, 0, 3])
    shape = shape_of(len(rows), sequences.count(rows), sequences.longest_of(rows))
    flat = flat_inputs(sequences, rows, shape)
    assert flat.dtype == np.int32
    packed = as_packed(torch.from_numpy(flat), sequences, shape)
    batch = packed.batch
    ids, lengths, marks = sequences.flat(rows)
    known = len(ids)
    assert batch.ids[:known].tolist() == ids.tolist()
    assert (batch.ids[known:] == 0).all()
    assert batch.lengths[: len(lengths)].tolist() == lengths.tolist()
    assert int(batch.lengths.sum()) == shape.tokens == batch.total
    assert batch.count == len(lengths) + shape.fillers
    assert int(batch.lengths[len(lengths) :].min()) >= 1
    assert int(batch.lengths.max()) <= batch.longest
    reference = to_packed(
        batch.ids.numpy(),
        batch.lengths.numpy(),
        CPU,
        segments=None if marks is None else np.concatenate([marks, np.zeros(shape.tokens - known, np.int32)]),
    )
    for name in ("ids", "positions", "lengths", "offsets"):
        assert torch.equal(getattr(batch, name), getattr(reference, name)), name
    assert (batch.segments is None) == (not segments)
    if segments:
        assert batch.segments is not None
        assert reference.segments is not None
        assert torch.equal(batch.segments, reference.segments)
    # A step that is not recorded computes on the same batch.
    plain_way = pack_filled(sequences, rows, shape, CPU)
    assert (plain_way.streams, plain_way.order, plain_way.fillers) == (packed.streams, None, shape.fillers)
    assert plain_way.batch.longest == batch.longest == shape.longest
    for name in ("ids", "positions", "lengths", "offsets", *(["segments"] if segments else [])):
        assert torch.equal(getattr(plain_way.batch, name), getattr(batch, name)), name

    encoder = ours(theirs("bert"))
    pooling = bi().parts.pooling
    whole = Packed(**{**vars(batch), "groups": reference.groups})
    with torch.no_grad():
        full = packed.by_stream(pooling(encoder(whole), whole))
        alone = sequences.pack(rows, CPU, sort=False)
        bare = alone.by_stream(pooling(encoder(alone.batch), alone.batch))
    assert len(full) == len(bare) == 2
    for a, b in zip(full, bare, strict=True):
        assert a.shape == (3, 32)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
