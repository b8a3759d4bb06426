"""Mining and bitext: the peers' numbers, brute force, groups that are empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as theirs

from evaluation.sample import Stub, topics
from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.evaluation import BitextEvaluator, ParaphraseMiningEvaluator
from munjang.evaluation.mining import mine

ENGLISH = ["The cat sleeps.", "It rains in Seoul.", "I like coffee.", "Stocks fell.", "I like coffee."]
OTHER = ["A cat is asleep.", "Seoul is rainy.", "Coffee is nice.", "Football match today.", "Shares lost value."]


def test_mining_is_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    examples = topics()
    texts = examples.columns["text"]
    groups = examples.targets
    duplicates = [(str(i), str(j)) for i in range(24) for j in range(i + 1, 24) if groups[i] == groups[j]]
    expected = theirs.ParaphraseMiningEvaluator(
        {str(i): text for i, text in enumerate(texts)}, duplicates, write_csv=False
    )(peer)
    ours = ParaphraseMiningEvaluator(examples)(model)
    assert ours.notes[0] == "276 pairs mined, 84 to find"
    for metric, name in (("average_precision", "average_precision"), ("f1", "f1"), ("precision", "precision"),
                         ("recall", "recall"), ("f1_threshold", "threshold")):  # fmt: skip
        assert ours.values[metric] == pytest.approx(expected[name], abs=1e-5)
    assert 0.3 < ours.value < 1


def test_pairs_that_were_not_looked_at_count_as_not_found(model: BiEncoder) -> None:
    few = ParaphraseMiningEvaluator(topics(), neighbours=2, max_pairs=10)(model)
    assert few.notes[0] == "10 pairs mined, 84 to find"
    assert few.values["recall"] <= 10 / 84
    with pytest.raises(InputError, match="alone: no two texts share a label"):
        ParaphraseMiningEvaluator(Examples("alone", "classified", {"text": ["a", "b"]}, np.arange(2), ("x", "y")))


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(1, 12), st.integers(1, 40), st.integers(0, 99))
def test_mined_pairs_beside_brute_force(n: int, k: int, most: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit.T
    near = {
        tuple(sorted((i, int(j))))
        for i in range(n)
        for j in sorted((j for j in range(n) if j != i), key=lambda j: -cosine[i, j])[:k]
    }
    best = sorted(near, key=lambda pair: -cosine[pair])[:most]
    scores, left, right = mine(vectors, k, most)
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == set(best)
    assert np.allclose(scores, [cosine[pair] for pair in best], atol=1e-5)
    assert (np.diff(scores) <= 0).all()


def test_bitext_is_the_peers(model: BiEncoder, peer: SentenceTransformer) -> None:
    expected = theirs.TranslationEvaluator(ENGLISH, OTHER, write_csv=False)(peer)
    ours = BitextEvaluator(Examples("b", "pairs", {"anchor": ENGLISH, "positive": OTHER}), bootstrap=20)(model)
    assert ours.values["accuracy_forward"] == pytest.approx(expected["src2trg_accuracy"])
    assert ours.values["accuracy_backward"] == pytest.approx(expected["trg2src_accuracy"])
    assert ours.value == pytest.approx(expected["mean_accuracy"])
    assert 0 < ours.value < 1
    assert "margin_accuracy" not in ours.values


def test_the_margin_beside_brute_force() -> None:
    generator = np.random.default_rng(4)
    left = generator.normal((3, 0), size=(4, 2))  # all in one corner, so that cosines are above 0
    right = left + generator.normal(size=(4, 2)) / 2
    table = {f"l{i}": tuple(row) for i, row in enumerate(left)} | {f"r{i}": tuple(row) for i, row in enumerate(right)}
    columns = {"anchor": [f"l{i}" for i in range(4)], "positive": [f"r{i}" for i in range(4)]}
    found = BitextEvaluator(Examples("m", "pairs", columns), margin=True)(Stub(table))  # type: ignore[arg-type]
    assert found.values["margin_accuracy"] == pytest.approx(_margin_accuracy(left, right))


def _margin_accuracy(a: np.ndarray, b: np.ndarray) -> float:
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    cosine = a @ b.T
    margin = cosine / ((cosine.mean(axis=1)[:, None] + cosine.mean(axis=0)[None]) / 2)  # all are neighbours here
    right = np.arange(len(a))
    return float(((margin.argmax(axis=1) == right).mean() + (margin.argmax(axis=0) == right).mean()) / 2)
