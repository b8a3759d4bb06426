"""Score fusion: the formula on all kinds of rankings, and the scale of a model's similarities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.index.fusion import Floats, Rows, SimilarityScale, fuse
from support.small_models import bi_encoder

RANKING = st.dictionaries(st.integers(0, 30), st.floats(-0.5, 1.0, width=32), max_size=20)


def ranking(scores: dict[int, float]) -> tuple[Rows, Floats]:
    best = sorted(scores, key=lambda row: (-scores[row], row))
    return np.array(best, np.int64), np.array([scores[row] for row in best], np.float32)


@given(RANKING, RANKING, st.integers(1, 40), st.sampled_from([0.0, 0.25, 0.75, 1.0]))
def test_scores_are_weighted_sums(semantic: dict[int, float], keyword: dict[int, float], k: int, weight: float) -> None:
    rows, scores = fuse(ranking(semantic), ranking(keyword), k, weight=weight)
    lowest = min(semantic.values(), default=0.0)
    exact = {
        row: np.float32(weight * semantic.get(row, lowest) + (1 - weight) * keyword.get(row, 0.0))
        for row in {*semantic, *keyword}
    }
    assert (rows.dtype, scores.dtype) == (np.int64, np.float32)
    assert rows.tolist() == sorted(exact, key=lambda row: (-exact[row], row))[:k]
    np.testing.assert_allclose(scores, [exact[row] for row in rows.tolist()], rtol=1e-6)


@given(RANKING, RANKING, st.integers(1, 10))
def test_fewer_hits_are_the_beginning_of_more(semantic: dict[int, float], keyword: dict[int, float], k: int) -> None:
    few, many = (fuse(ranking(semantic), ranking(keyword), count)[0].tolist() for count in (k, 100))
    assert few == many[:k]


def test_one_candidate_and_none() -> None:
    rows, scores = fuse(ranking({3: 0.5}), ranking({}), 10, weight=0.5)
    assert (rows.tolist(), scores.tolist()) == ([3], [0.25])
    assert not len(fuse(ranking({}), ranking({}), 10)[0])


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_scale_is_that_of_the_model(kind: str) -> None:
    model = bi_encoder()
    model.parts.similarity = kind  # type: ignore[assignment]
    scale = SimilarityScale.of(model)
    assert scale == SimilarityScale.of(model)
    assert scale.same > scale.unrelated
    scores = np.array([scale.unrelated, scale.same, 0.9 * scale.same + 0.1 * scale.unrelated], np.float32)
    assert scale.normalise(scores) == pytest.approx([0.0, 1.0, 0.9], abs=1e-4)
