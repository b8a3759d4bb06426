"""Communities against sentence-transformers', pair scores against every pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.util import community_detection

from models.ko_en_0_1.communities import communities, pair_scores, similarity_matrix
from munjang.errors import InputError
from munjang.vectors import normalize


def _vectors(seed: int, rows: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(max(1, rows // 4), 8))
    return normalize(
        (centres[random.integers(len(centres), size=rows)] + 0.4 * random.normal(size=(rows, 8))).astype("f4")
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9999), rows=st.integers(4, 40), threshold=st.sampled_from([0.3, 0.6, 0.8, 0.95]))
def test_the_communities_are_those_of_sentence_transformers(seed: int, rows: int, threshold: float) -> None:
    import torch

    for unit in (_vectors(seed, rows), normalize(np.random.default_rng(seed).normal(size=(rows, 2)).astype("f4"))):
        found = communities(similarity_matrix(unit), threshold, min_size=2)
        theirs = community_detection(torch.from_numpy(unit), threshold=threshold, min_community_size=2)
        ours = {frozenset(np.flatnonzero(found == group).tolist()) for group in np.unique(found)}
        assert {frozenset(group) for group in theirs} == {group for group in ours if len(group) > 1}


def test_clear_groups_are_found_whole() -> None:
    unit = normalize(np.array([[1, 0], [1, 0.05], [0, 1], [0.05, 1], [1, -0.05], [-1, -1]], np.float32))
    assert communities(similarity_matrix(unit), 0.9).tolist() == [0, 0, 1, 1, 0, 2]
    assert communities(similarity_matrix(unit), -1.0).tolist() == [0] * 6
    assert len(set(communities(similarity_matrix(unit), 1.01).tolist())) == 6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=15))
def test_pair_scores_count_every_pair(rows: list[tuple[int, int]]) -> None:
    gold, found = (np.array(column) for column in zip(*rows, strict=True))
    both = there = said = 0
    for i, j in combinations(range(len(rows)), 2):
        there += gold[i] == gold[j]
        said += found[i] == found[j]
        both += gold[i] == gold[j] and found[i] == found[j]
    if not there:
        with pytest.raises(InputError, match="no pair to find"):
            pair_scores(gold, found)
        return
    scores = pair_scores(gold, found)
    assert scores.recall == pytest.approx(both / there)
    assert scores.precision == pytest.approx(both / said if said else 0)
    assert scores.f1 == pytest.approx(2 * both / (said + there))


def test_bad_input_is_said() -> None:
    with pytest.raises(InputError, match=r"\[n, n\], got shape \(2, 3\)"):
        communities(np.zeros((2, 3)), 0.5)
    with pytest.raises(InputError, match="min_size"):
        communities(np.eye(2), 0.5, min_size=0)
    with pytest.raises(InputError, match="at most 20,000 texts"):
        similarity_matrix(np.zeros((20_001, 1), np.float32))
