"""Exact top-k against a full stable sort, in tiles of every size."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sentence_transformers.util import semantic_search

from munjang import vectors
from munjang.errors import InputError
from munjang.vectors import search

KINDS = ("cosine", "dot", "euclidean", "manhattan")


def random_vectors(rows, dimension=16, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)


def brute_force(scores, k):
    """The whole matrix, sorted; equal scores in the order of their indices."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


@st.composite
def searches(draw):
    """Small whole numbers: dot products are exact then, and ties abound."""
    d, q, n = draw(st.integers(1, 4)), draw(st.integers(0, 7)), draw(st.integers(1, 40))
    few = st.integers(-2, 2).map(float)
    queries = draw(hnp.arrays(np.float32, (q, d), elements=few))
    corpus = draw(hnp.arrays(np.float32, (n, d), elements=few))
    tiles = (draw(st.integers(1, 8)), draw(st.integers(1, 45)))
    return queries, corpus, draw(st.integers(1, n)), tiles


@pytest.mark.parametrize("kind", ["dot", "manhattan"])
@settings(deadline=None, max_examples=150)
@given(case=searches())
def test_ties_go_to_the_lower_index_in_tiles_of_any_size(kind, case):
    queries, corpus, k, tiles = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "plan_tiles", lambda *_, **__: tiles)
        found = vectors.top_k(queries, corpus, k, kind=kind)
    scores, indices = brute_force(vectors.similarity(queries, corpus, kind), k)
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.indices, indices)
    assert (found.scores.dtype, found.indices.dtype) == (np.float32, np.int64)


@settings(deadline=None, max_examples=100)
@given(case=searches())
def test_exclude_self_leaves_out_the_row_and_nothing_else(case):
    _, corpus, k, tiles = case
    if len(corpus) == 1:
        return
    k = min(k, len(corpus) - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "plan_tiles", lambda *_, **__: tiles)
        found = vectors.top_k(corpus, corpus, k, kind="dot", exclude_self=True)
    matrix = vectors.similarity(corpus, corpus, "dot")
    np.fill_diagonal(matrix, -np.inf)
    scores, indices = brute_force(matrix, k)
    np.testing.assert_array_equal(found.scores, scores)
    np.testing.assert_array_equal(found.indices, indices)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_mb", [0.001, 0.02, 256])
def test_real_numbers_agree_with_brute_force(kind, memory_mb):
    queries, corpus = random_vectors(23), random_vectors(151, seed=1)
    found = vectors.top_k(queries, corpus, 10, kind=kind, memory_mb=memory_mb)
    scores, indices = brute_force(vectors.similarity(queries, corpus, kind), 10)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.scores, scores, atol=1e-5)


def test_agrees_with_sentence_transformers():
    queries, corpus = random_vectors(5), random_vectors(200, seed=1)
    found = vectors.top_k(queries, corpus, 7)
    for hits, scores, indices in zip(
        semantic_search(queries, corpus, top_k=7), found.scores, found.indices, strict=True
    ):
        assert [hit["corpus_id"] for hit in hits] == indices.tolist()
        np.testing.assert_allclose([hit["score"] for hit in hits], scores, atol=1e-6)


def test_many_ties_over_wide_rows():
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 3, (6, 5000)).astype(np.float32))
    values, positions = search.stable_top_k(scores, 100)
    expected = brute_force(scores.numpy(), 100)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(positions, expected[1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_dtypes(dtype):
    corpus = (random_vectors(50) * 20).astype(dtype)
    found = vectors.top_k(corpus[:3], corpus, 5)
    assert found.scores.dtype == (np.float64 if dtype == "float64" else np.float32)
    exact = vectors.similarity(corpus[:3].astype(np.float64), corpus.astype(np.float64))
    np.testing.assert_allclose(found.scores, brute_force(exact, 5)[0], atol=1e-6)


def test_tensors_give_tensors():
    corpus = torch.from_numpy(random_vectors(30)).requires_grad_()
    found = vectors.top_k(corpus[:4], corpus, 3)
    expected = vectors.top_k(corpus[:4].detach().numpy(), corpus, 3)
    assert isinstance(found.scores, torch.Tensor)
    assert isinstance(expected.indices, np.ndarray)
    assert not found.scores.requires_grad
    np.testing.assert_array_equal(found.indices.numpy(), expected.indices)
    np.testing.assert_array_equal(found.scores.numpy(), expected.scores)


def test_no_queries_and_one_query():
    corpus = random_vectors(9)
    nothing = vectors.top_k(corpus[:0], corpus, 4)
    assert nothing.scores.shape == nothing.indices.shape == (0, 4)
    one = vectors.top_k(corpus[3], corpus, 9)
    assert one.indices.shape == (1, 9)
    assert one.indices[0, 0] == 3


class CountingMap(np.memmap):
    """A memory map that notes how many rows are read at once."""

    reads: list[int] = []  # noqa: RUF012

    def __getitem__(self, rows):
        block = super().__getitem__(rows)
        self.reads.append(len(block))
        return block


def test_a_memory_map_is_read_once_and_in_blocks(tmp_path, recwarn):
    corpus = random_vectors(1000)
    corpus.tofile(tmp_path / "vectors")
    mapped = CountingMap(tmp_path / "vectors", dtype=np.float32, mode="r", shape=corpus.shape)
    mapped.reads.clear()
    found = vectors.top_k(corpus[:20], mapped, 5, memory_mb=0.2)
    np.testing.assert_array_equal(found.indices, vectors.top_k(corpus[:20], corpus, 5).indices)
    assert sum(mapped.reads) == 1000
    assert max(mapped.reads) * 16 * 4 <= 0.2e6 / 3
    assert type(found.scores) is np.ndarray
    assert not recwarn.list


MEASURE = """
import re
from pathlib import Path
import numpy as np
from munjang import vectors

def peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1000

rng = np.random.default_rng(0)
queries, corpus = (rng.standard_normal((rows, 32), dtype=np.float32) for rows in (1000, 40_000))
tied = corpus.round()
tied[:, 4:] = 0
jobs = [("cosine", corpus), ("euclidean", corpus), ("dot", tied)]
for kind, matrix in jobs:
    vectors.top_k(queries, matrix[:5000], 10, kind=kind, memory_mb=2)  # the libraries take their own buffers
before = peak_mb()
for kind, matrix in jobs:
    vectors.top_k(queries.round(), matrix, 10, kind=kind, memory_mb=24)
    print(peak_mb() - before)
vectors.top_k(queries, corpus, 10, kind="euclidean", memory_mb=2000)
print(peak_mb() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_within_the_budget():
    command = [sys.executable, "-c", MEASURE]  # a process of its own, whose peak is these calls'
    # glibc keeps freed blocks for later, by chance up to twice the budget; here it gives them back at once, so
    # that the peak is what was in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    *grown_mb, unbounded_mb = map(float, output.split())
    assert len(grown_mb) == 3
    assert max(grown_mb) < 24, grown_mb  # all scores at once would be 160 MB
    assert unbounded_mb > 50  # and the meter sees it when they are


def test_k_must_fit_the_corpus():
    corpus = random_vectors(120)
    with pytest.raises(InputError, match=r"^k must be 1\.\.120 \(corpus size\), got 500$"):
        vectors.top_k(corpus, corpus, 500)
    with pytest.raises(InputError, match=r"^k must be 1\.\.119 \(corpus size without the row itself\), got 120$"):
        vectors.top_k(corpus, corpus, 120, exclude_self=True)
    with pytest.raises(InputError, match=r"got 0$"):
        vectors.top_k(corpus, corpus, 0)
    with pytest.raises(InputError, match=r"whole number, got 2\.5"):
        vectors.top_k(corpus, corpus, 2.5)
    with pytest.raises(InputError, match=r"nothing to search: the corpus has 0 rows"):
        vectors.top_k(corpus, corpus[:0], 1)
    assert vectors.top_k(corpus, corpus, np.int64(2)).indices.shape == (120, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["queries", "corpus"])
def test_a_value_that_is_not_finite_is_named(bad, name):
    arrays = {"queries": random_vectors(40), "corpus": random_vectors(40)}
    arrays[name][33, 5] = bad
    for memory_mb in (0.01, 256):
        with pytest.raises(InputError, match=f"{name} row 33 is not finite"):
            vectors.top_k(arrays["queries"], arrays["corpus"], 3, memory_mb=memory_mb)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1)])
def test_scores_that_overflow_are_an_error(signs):
    corpus = np.full((3, 4), 3e38, dtype=np.float32)
    corpus[:, :2] *= signs[1]
    with pytest.raises(InputError, match="overflow"):
        vectors.top_k(corpus * signs[0], corpus, 3, kind="dot")
    assert np.isfinite(vectors.top_k(corpus.astype(np.float64), corpus, 3, kind="dot").scores).all()


def test_other_errors():
    a = random_vectors(4)
    with pytest.raises(InputError, match=r"queries and corpus .* \(4, 16\) and \(4, 9\)"):
        vectors.top_k(a, a[:, :9], 1)
    with pytest.raises(InputError, match=r"exclude_self .* \(2, 16\) and \(4, 16\)"):
        vectors.top_k(a[:2], a, 1, exclude_self=True)
    with pytest.raises(InputError, match="kind must be one of"):
        vectors.top_k(a, a, 1, kind="l2")
    with pytest.raises(InputError, match="memory_mb must be above 0, got 0"):
        vectors.top_k(a, a, 1, memory_mb=0)
    with pytest.raises(InputError, match="got 'gpu please'"):
        vectors.top_k(a, a, 1, device="gpu please")
    with pytest.raises(InputError, match=r"'cuda:99'.*CUDA devices"):
        vectors.top_k(a, a, 1, device="cuda:99")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_finds_the_same(kind):
    queries, corpus = random_vectors(40, 64), random_vectors(5000, 64, seed=1)
    expected = vectors.top_k(queries, corpus, 10, kind=kind)
    for memory_mb in (1, 256):
        found = vectors.top_k(queries, corpus, 10, kind=kind, device="cuda", memory_mb=memory_mb)
        assert isinstance(found.scores, np.ndarray)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
        assert (found.indices == expected.indices).mean() > 0.999
    there = vectors.top_k(torch.from_numpy(queries).cuda(), corpus, 10, kind=kind)
    assert there.indices.device.type == "cuda"
    np.testing.assert_allclose(there.scores.cpu(), expected.scores, atol=1e-4)


@pytest.mark.gpu
def test_cuda_gives_ties_to_the_lower_index():
    rng = np.random.default_rng(0)
    queries, corpus = (rng.integers(-2, 3, (rows, 4)).astype(np.float32) for rows in (30, 3000))
    found = vectors.top_k(queries, corpus, 50, kind="dot", device="cuda", memory_mb=0.5)
    np.testing.assert_array_equal(found.indices, brute_force(queries @ corpus.T, 50)[1])
    alone = vectors.top_k(corpus, corpus, 5, kind="dot", device="cuda", exclude_self=True)
    assert (alone.indices != np.arange(3000)[:, None]).all()
