"""Which rows make which step: nothing lost, nothing twice, the shares as asked, the same stream every time."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import Examples
from munjang.training.batching import Source, batches, skip, source_of, steps_per_epoch, text_numbers
from munjang.training.settings import Sampling
from training.material import pairs, ranked, scored

SIZES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), min_size=1, max_size=4)


def stream(sources: list[Source], sampling: Sampling = "proportional", *, temperature: float = 2.0, seed: int = 0):
    return batches(sources, sampling=sampling, temperature=temperature, seed=seed)


@given(SIZES, st.integers(0, 5))
def test_proportional_every_row_once_in_every_epoch(sizes: list[tuple[int, int]], seed: int) -> None:
    sources = [Source(size, batch) for size, batch in sizes]
    steps = stream(sources, seed=seed)
    for _ in range(2):
        seen: list[list[int]] = [[] for _ in sources]
        for task, rows in islice(steps, steps_per_epoch(sources)):
            assert 1 <= len(rows) <= sources[task].batch_size
            seen[task] += rows.tolist()
        assert [sorted(rows) for rows in seen] == [list(range(size)) for size, _ in sizes]


@given(SIZES, st.sampled_from(["proportional", "round_robin", "temperature"]), st.integers(0, 3), st.integers(0, 40))
def test_the_same_stream_again_and_from_anywhere(
    sizes: list[tuple[int, int]], sampling: Sampling, seed: int, at: int
) -> None:
    texts = np.arange(60).reshape(30, 2) % 41
    sources = [Source(size, batch, texts[:size]) for size, batch in sizes]
    one = list(islice(stream(sources, sampling, seed=seed), at + 5))
    other = list(islice(skip(stream(sources, sampling, seed=seed), at), 5))
    for (task, rows), (same_task, same_rows) in zip(one[at:], other, strict=True):
        assert task == same_task
        assert np.array_equal(rows, same_rows)


def test_another_seed_and_another_epoch_are_another_order() -> None:
    sources = [Source(50, 50)]
    first, second = (rows.tolist() for _, rows in islice(stream(sources), 2))
    ((_, other),) = islice(stream(sources, seed=1), 1)
    assert first != second
    assert first != other.tolist()


@given(SIZES)
def test_round_robin_takes_turns(sizes: list[tuple[int, int]]) -> None:
    sources = [Source(size, batch) for size, batch in sizes]
    tasks = [task for task, _ in islice(stream(sources, "round_robin"), 5 * len(sources))]
    assert tasks == list(range(len(sources))) * 5


@given(st.lists(st.integers(1, 60), min_size=2, max_size=4), st.floats(1, 8), st.integers(0, 3))
def test_temperature_lies_between(sizes: list[int], temperature: float, seed: int) -> None:
    sources = [Source(size, 1) for size in sizes]
    steps = 20 * sum(sizes)
    counts = Counter(
        task for task, _ in islice(stream(sources, "temperature", temperature=temperature, seed=seed), steps)
    )
    weights = np.array(sizes, float) ** (1 / temperature)
    wanted = weights / weights.sum() * steps
    assert np.abs(np.array([counts[task] for task in range(len(sizes))]) - wanted).max() <= len(sizes) + 1


def test_temperature_one_is_proportional() -> None:
    sources = [Source(17, 4), Source(40, 4)]
    one = islice(stream(sources, "temperature", temperature=1.0), 60)
    other = islice(stream(sources, "proportional"), 60)
    assert [task for task, _ in one] == [task for task, _ in other]


# --- shares ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 6), st.floats(0.01, 5)), min_size=1, max_size=5),
    st.sampled_from(["proportional", "round_robin", "temperature"]),
    st.integers(0, 3),
)
def test_shares_decide_how_often_tasks_come(
    given_tasks: list[tuple[int, int, float]], sampling: Sampling, seed: int
) -> None:
    """Whatever the sampling and the sizes: in every epoch to a step, and over many epochs too."""
    sources = [Source(size, batch, share=share) for size, batch, share in given_tasks]
    epoch = steps_per_epoch(sources)
    wanted = np.array([share for _, _, share in given_tasks])
    wanted = wanted / wanted.sum() * epoch
    steps = [task for task, _ in islice(stream(sources, sampling, seed=seed), 40 * epoch)]
    counts, first = Counter(steps), Counter(steps[: max(0, epoch - len(sources))])
    for task, often in enumerate(wanted):
        assert abs(counts[task] - 40 * often) <= len(sources) + 1, (task, often)
        assert first[task] <= often + 1e-6, "what is rounded off comes later"


def test_shares_of_one_epoch_exactly() -> None:
    """Sizes say 10 to 90, shares say three quarters to one."""
    sources = [Source(10, 1, share=0.75), Source(90, 1, share=0.25)]
    for sampling in ("proportional", "round_robin", "temperature"):
        steps = stream(sources, sampling)  # type: ignore[arg-type]
        for _ in range(3):
            counts = Counter(task for task, _ in islice(steps, 100))
            assert counts == {0: 75, 1: 25}
    assert Counter(task for task, _ in islice(stream([Source(10, 1), Source(90, 1)]), 100)) == {0: 10, 1: 90}


def test_shares_are_mixed_and_only_their_proportion_counts() -> None:
    def order(*shares: float) -> list[int]:
        sources = [Source(50, 5, share=share) for share in shares]
        return [task for task, _ in islice(stream(sources), 60)]

    assert order(0.2, 0.8) == order(1, 4) == order(20, 80)
    found = order(0.5, 0.5)
    assert 10 < sum(a != b for a, b in pairwise(found)) < 55, "neither in blocks nor in turn"


def test_a_share_takes_rows_pass_after_pass() -> None:
    """A small set that comes often goes round again, every row as often as the others."""
    sources = [Source(6, 2, share=0.9), Source(100, 10, share=0.1)]
    rows = [row for task, found in islice(stream(sources), 100) if task == 0 for row in found.tolist()]
    counts = Counter(rows)
    assert set(counts) == set(range(6))
    assert max(counts.values()) - min(counts.values()) <= 1


# --- no text twice ---------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=25),
    st.integers(1, 8),
    st.integers(0, 3),
)
def test_no_text_twice_in_a_batch(rows: list[tuple[int, int, int]], batch: int, seed: int) -> None:
    texts = np.array(rows)
    counts: Counter[int] = Counter()
    for _, taken in islice(stream([Source(len(rows), batch, texts)], seed=seed), 60):
        assert 1 <= len(taken) <= batch
        inside = [text for row in taken for text in set(rows[row])]
        assert len(set(inside)) == len(inside)
        counts.update(taken.tolist())
    # Nobody is forgotten: the row that waits longest is the first of the next batch.
    assert min(counts[row] for row in range(len(rows))) >= 1


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 3))
def test_where_all_texts_differ_batches_are_full_and_passes_whole(size: int, batch: int, seed: int) -> None:
    texts = np.arange(2 * size).reshape(size, 2)
    taken = [rows for _, rows in islice(stream([Source(size, batch, texts)], seed=seed), 3 * size)]
    assert {len(rows) for rows in taken} == {min(size, batch)}
    flat = np.concatenate(taken)
    for start in range(0, len(flat) - size, size):
        counts = Counter(flat[: start + size].tolist())
        assert max(counts.values()) - min(counts.get(row, 0) for row in range(size)) <= 1


@pytest.mark.parametrize("epochs", [1, 60])
def test_a_text_that_many_rows_have_does_not_empty_the_batches(epochs: int) -> None:
    """Ten of forty rows have the same text: every batch takes one of them, and is full, in the last epoch too."""
    texts = np.arange(80).reshape(40, 2)
    texts[:10, 0] = 0
    taken = [rows for _, rows in islice(stream([Source(40, 16, texts)]), 3 * epochs)]
    assert {len(rows) for rows in taken} == {16}
    counts = Counter(np.concatenate(taken).tolist())
    if epochs > 1:
        shared, others = [counts[row] for row in range(10)], [counts[row] for row in range(10, 40)]
        assert max(shared) - min(shared) <= 2
        assert max(others) - min(others) <= 2


@pytest.mark.parametrize("different", [1, 2, 5])
def test_few_different_texts_do_not_hang(different: int) -> None:
    rows = 3000
    texts = np.stack([np.arange(rows) % different, different + np.arange(rows)], axis=1)
    began = time.process_time()
    taken = [batch for _, batch in islice(stream([Source(rows, 64, texts)]), 50)]
    assert time.process_time() - began < 5
    assert {len(batch) for batch in taken} == {different}


def test_equal_texts_have_equal_numbers() -> None:
    columns = {"anchor": ["A cat", "비가 온다", "x"], "positive": ["a  CAT ", "y", "비가\t온다"]}
    numbers = text_numbers(Examples("ours", "pairs", columns))
    assert numbers.shape == (3, 2)
    assert numbers[0, 0] == numbers[0, 1]
    assert numbers[1, 0] == numbers[2, 1]
    assert len(set(numbers.ravel().tolist())) == 4


# --- from data -------------------------------------------------------------------------------------------------------


def test_rankings_stay_whole() -> None:
    examples = ranked(11)
    assert examples.groups is not None
    source = source_of(examples, 3, unique_texts=False)
    assert (source.size, source.batches) == (11, 4)
    seen: list[int] = []
    for _, rows in islice(stream([source]), 4):
        groups = examples.groups[rows]
        for group in np.unique(groups):
            assert np.array_equal(rows[groups == group], np.flatnonzero(examples.groups == group))
        assert len(np.unique(groups)) <= 3
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(examples)))


def test_sources_of_other_data() -> None:
    assert source_of(scored(10), 4, unique_texts=False) == Source(10, 4)
    assert source_of(scored(10), 4, unique_texts=False, share=0.3) == Source(10, 4, share=0.3)
    assert source_of(ranked(5), 4, unique_texts=False, share=0.3).share == 0.3
    assert source_of(pairs(10), 4, unique_texts=True, share=0.3).share == 0.3
    source = source_of(pairs(10), 4, unique_texts=True)
    assert source.texts is not None
    assert source.texts.shape == (10, 2)
    assert steps_per_epoch([source, Source(1, 4)]) == 4
