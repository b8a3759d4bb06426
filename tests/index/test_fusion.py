"""Reciprocal rank fusion against its formula, on all kinds of rankings."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from munjang.errors import InputError
from munjang.index.fusion import fuse


def ranking(*rows: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64)


RANKINGS = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=20), max_size=4)


@given(RANKINGS, st.integers(1, 40), st.integers(0, 100))
def test_scores_are_the_sums_of_the_formula(lists: list[list[int]], k: int, constant: int) -> None:
    rows, scores = fuse([ranking(*one) for one in lists], k=k, constant=constant)
    exact: dict[int, Fraction] = {}
    for one in lists:
        for rank, row in enumerate(one, start=1):
            exact[row] = exact.get(row, Fraction(0)) + Fraction(1, constant + rank)
    assert (rows.dtype, scores.dtype) == (np.int64, np.float32)
    assert len(rows) == min(k, len(exact))
    np.testing.assert_allclose(scores, [float(exact[row]) for row in rows.tolist()], rtol=1e-6)
    # Exactly equal sums go to the lower row; what is left out is not better than what is there.
    keys = [(-exact[row], row) for row in rows.tolist()]
    assert all(one <= other or abs(float(one[0] - other[0])) < 1e-7 for one, other in pairwise(keys))
    for row in set(exact) - set(rows.tolist()):
        assert float(exact[row]) <= float(scores[-1]) + 1e-7


@given(RANKINGS.filter(lambda lists: len(lists) > 1), st.randoms())
def test_the_order_of_the_rankings_does_not_matter(lists: list[list[int]], random: object) -> None:
    shuffled = list(lists)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = fuse([ranking(*one) for one in lists], k=50)
    second = fuse([ranking(*one) for one in shuffled], k=50)
    assert first[0].tolist() == second[0].tolist()
    assert first[1].tobytes() == second[1].tobytes()


def test_what_both_have_comes_first_and_ties_go_to_the_lower_row() -> None:
    rows, scores = fuse([ranking(5, 7), ranking(9, 7)], k=10)
    assert rows.tolist() == [7, 5, 9]
    np.testing.assert_allclose(scores, [2 / 62, 1 / 61, 1 / 61], rtol=1e-6)


def test_weights_count() -> None:
    assert fuse([ranking(1, 2), ranking(2, 1)], k=2, weights=[1, 1])[0].tolist() == [1, 2]
    assert fuse([ranking(1, 2), ranking(2, 1)], k=2, weights=[1, 3])[0].tolist() == [2, 1]


def test_nothing_to_fuse() -> None:
    for lists in ([], [ranking()], [ranking(), ranking()]):
        rows, scores = fuse(lists, k=3)
        assert rows.shape == scores.shape == (0,)


@pytest.mark.parametrize(
    ("lists", "options", "words"),
    [
        ([ranking(1)], {"k": 0}, "k must be"),
        ([ranking(1)], {"k": True}, "k must be"),
        ([ranking(1)], {"k": 1, "constant": -1}, "constant must be"),
        ([ranking(1)], {"k": 1, "weights": [1.0, 2.0]}, "one weight for each of the 1"),
        ([ranking(1)], {"k": 1, "weights": [float("nan")]}, "finite"),
        ([ranking(3, 1, 3)], {"k": 1}, "ranking 0 has a row more than once"),
        ([ranking(3, -1)], {"k": 1}, "got -1"),
    ],
)
def test_bad_input(lists: list[NDArray[np.int64]], options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fuse(lists, **options)  # type: ignore[arg-type]
