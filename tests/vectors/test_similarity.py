"""Similarities and unit vectors, against scikit-learn, scipy and sentence-transformers."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from sentence_transformers import util
from sklearn.metrics.pairwise import cosine_similarity

from munjang import vectors
from munjang.errors import InputError

module = importlib.import_module("munjang.vectors.similarity")  # the package exports a function of this name
KINDS = ("cosine", "dot", "euclidean", "manhattan")
values = st.floats(-100, 100, width=32)


@st.composite
def two_matrices(draw, same_rows=False):
    d = draw(st.integers(1, 12))
    n = draw(st.integers(0, 9))
    m = n if same_rows else draw(st.integers(0, 9))
    return tuple(draw(hnp.arrays(np.float32, (rows, d), elements=values)) for rows in (n, m))


def oracle(a, b, kind):
    a, b = a.astype(np.float64), b.astype(np.float64)
    if 0 in (len(a), len(b)):
        return np.empty((len(a), len(b)))
    if kind == "cosine":  # scikit-learn takes vectors shorter than 2e-15 for zero; we do not
        lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
        return np.divide(a @ b.T, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    if kind == "dot":
        return a @ b.T
    return -cdist(a, b, {"euclidean": "euclidean", "manhattan": "cityblock"}[kind])


def tolerance(a, b, kind):
    """Rounding grows with the terms that are summed, not with the sum: they may cancel."""
    if kind == "cosine":
        return 1e-6
    if kind == "dot":
        return 1e-6 * (1 + (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T).max(initial=0))
    return 1e-6 * (1 + np.abs(a).sum(initial=0) + np.abs(b).sum(initial=0))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(pair=two_matrices(), tile=st.integers(1, 60))
def test_matrix_agrees_with_the_oracles_in_tiles_of_any_size(kind, pair, tile):
    a, b = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TILE_FLOATS", tile)
        result = vectors.similarity(a, b, kind)
    assert result.dtype == np.float32
    assert result.shape == (len(a), len(b))
    np.testing.assert_allclose(result, oracle(a, b, kind), atol=tolerance(a, b, kind))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(pair=two_matrices(same_rows=True), tile=st.integers(1, 60))
def test_pairwise_is_the_diagonal_of_the_matrix(kind, pair, tile):
    a, b = pair
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TILE_FLOATS", tile)
        result = vectors.pairwise_similarity(a, b, kind)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, np.diagonal(oracle(a, b, kind)), atol=tolerance(a, b, kind))


@pytest.mark.parametrize(
    ("kind", "matrix", "pairwise"),
    [
        ("cosine", util.cos_sim, util.pairwise_cos_sim),
        ("dot", util.dot_score, util.pairwise_dot_score),
        ("euclidean", util.euclidean_sim, util.pairwise_euclidean_sim),
        ("manhattan", util.manhattan_sim, util.pairwise_manhattan_sim),
    ],
)
def test_same_conventions_as_sentence_transformers(kind, matrix, pairwise):
    a, b = torch.randn(7, 48), torch.randn(7, 48)
    assert torch.allclose(vectors.similarity(a, b, kind), matrix(a, b), atol=1e-4)
    assert torch.allclose(vectors.pairwise_similarity(a, b, kind), pairwise(a, b), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_gives_a_tensor_and_the_same_numbers(kind):
    a, b = np.random.default_rng(0).standard_normal((2, 5, 16), dtype=np.float32)
    expected = vectors.similarity(a, b, kind)
    result = vectors.similarity(torch.from_numpy(a), b, kind)
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), expected)
    assert isinstance(vectors.similarity(a, torch.from_numpy(b), kind), np.ndarray)
    assert isinstance(vectors.pairwise_similarity(torch.from_numpy(a), torch.from_numpy(b), kind), torch.Tensor)
    assert isinstance(vectors.normalize(torch.from_numpy(a)), torch.Tensor)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("float16", "float32"), ("int8", "float32"), ("uint8", "float32"), ("int64", "float32"), (">f4", "float32"),
     ("float32", "float32"), ("float64", "float64"), (">f8", "float64")],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_every_real_dtype_is_computed_in_float32_or_float64(given, expected, kind):
    a = (np.random.default_rng(0).random((6, 40)) * 100).astype(given)
    result = vectors.similarity(a, a[:4], kind)
    assert result.dtype == expected
    np.testing.assert_allclose(result, oracle(a, a[:4], kind), rtol=2e-6 if expected == "float32" else 1e-12, atol=1e-4 if expected == "float32" else 1e-9)  # fmt: skip  # noqa: E501
    assert vectors.pairwise_similarity(a, a, kind).dtype == expected
    assert vectors.normalize(a).dtype == expected


def test_bfloat16_tensors_are_computed_in_float32():
    a = torch.randn(3, 8).bfloat16()
    assert torch.allclose(vectors.similarity(a, a), util.cos_sim(a.float(), a.float()), atol=1e-6)
    assert vectors.similarity(a, a).dtype == torch.float32
    assert vectors.similarity(a, a.double()).dtype == torch.float64


def test_zero_vectors_have_cosine_zero():
    a = np.array([[0, 0], [3, 4]], dtype=np.float32)
    np.testing.assert_allclose(vectors.similarity(a, a), [[0, 0], [0, 1]], atol=1e-7)
    np.testing.assert_allclose(vectors.pairwise_similarity(a, a), [0, 1], atol=1e-7)
    np.testing.assert_allclose(vectors.normalize(a), [[0, 0], [0.6, 0.8]], atol=1e-7)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_very_short_and_very_long_vectors_neither_vanish_nor_overflow(size):
    a = np.array([[3, 4], [-4, 3]], dtype=np.float32) * np.float32(size)
    np.testing.assert_allclose(vectors.normalize(a), [[0.6, 0.8], [-0.8, 0.6]], rtol=1e-6)
    np.testing.assert_allclose(vectors.similarity(a, a), np.eye(2), atol=1e-6)
    distance = -np.float32(50**0.5) * np.float32(size)
    np.testing.assert_allclose(vectors.similarity(a[:1], a[1:], "euclidean"), [[distance]], rtol=1e-6)
    np.testing.assert_allclose(vectors.pairwise_similarity(a[:1], a[1:], "euclidean"), [distance], rtol=1e-6)


def test_euclidean_of_equal_and_nearly_equal_vectors_does_not_cancel():
    a = np.random.default_rng(1).standard_normal((60, 384), dtype=np.float32)  # torch.cdist: 0.03 off here
    near = a.copy()
    near[:, 0] += 0.001
    assert np.abs(np.diagonal(vectors.similarity(a, a, "euclidean"))).max() < 1e-5
    apart = np.diagonal(vectors.similarity(a, near, "euclidean"))
    np.testing.assert_allclose(apart, -np.abs(a[:, 0] - near[:, 0]), atol=1e-6)


def test_one_vector_is_one_row():
    a = np.array([3.0, 4.0], dtype=np.float32)
    assert vectors.similarity(a, np.ones((5, 2), np.float32)).shape == (1, 5)
    assert vectors.pairwise_similarity(a, a).shape == (1,)
    np.testing.assert_allclose(vectors.normalize(a), [0.6, 0.8], atol=1e-7)  # keeps its shape


@settings(deadline=None)
@given(a=hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=values))
def test_normalized_rows_have_length_one_or_zero(a):
    lengths = np.linalg.norm(vectors.normalize(a).astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, np.any(a != 0, axis=1), atol=1e-6)


def test_inputs_stay_as_they_were_and_views_and_read_only_arrays_work(recwarn):
    base = np.random.default_rng(2).standard_normal((8, 6)).astype(np.float32)
    before = base.copy()
    base.flags.writeable = False
    view = base[::-1, ::2]
    np.testing.assert_allclose(vectors.similarity(view, view), cosine_similarity(view), atol=1e-6)
    vectors.normalize(base)
    np.testing.assert_array_equal(base, before)
    assert not recwarn.list


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_and_are_right(kind):
    a = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: vectors.similarity(x, b, kind), a)
    assert torch.autograd.gradcheck(lambda x: vectors.pairwise_similarity(x, b[[0, 1, 0]], kind), a)
    equal = torch.ones(2, 4, requires_grad=True)
    vectors.similarity(equal, torch.ones(2, 4), kind).sum().backward()
    assert torch.isfinite(equal.grad).all()


def test_nan_is_passed_on():
    a = np.array([[np.nan, 1], [1, 1]], dtype=np.float32)
    np.testing.assert_array_equal(np.isnan(vectors.similarity(a, a)), [[True, True], [True, False]])


@pytest.mark.parametrize("function", [vectors.similarity, vectors.pairwise_similarity])
def test_errors_name_what_came(function):
    with pytest.raises(InputError, match=r"\(2, 3\) and \(2, 4\)"):
        function(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(InputError, match=r"cosine, dot, euclidean, manhattan, got 'cos'"):
        function(np.ones((2, 3)), np.ones((2, 3)), "cos")
    with pytest.raises(InputError, match=r"a must be vectors .* got shape \(2, 3, 4\)"):
        function(np.ones((2, 3, 4)), np.ones((2, 3)))
    with pytest.raises(InputError, match=r"got shape \(2, 0\)"):
        function(np.ones((2, 0)), np.ones((2, 0)))
    with pytest.raises(InputError, match=r"numpy array or a torch tensor, got list"):
        function([[1.0]], np.ones((1, 1)))
    for bad in (np.ones((2, 3), complex), np.full((2, 3), "a"), torch.ones(2, 3, dtype=torch.complex64)):
        with pytest.raises(InputError, match="real numbers"):
            function(bad, np.ones((2, 3)))


def test_pairwise_needs_as_many_rows():
    with pytest.raises(InputError, match=r"\(2, 3\) and \(4, 3\)"):
        vectors.pairwise_similarity(np.ones((2, 3)), np.ones((4, 3)))


def test_manhattan_never_holds_all_differences():
    a = np.random.default_rng(3).standard_normal((300, 256), dtype=np.float32)  # [n, m, d] would be 92 MB
    vectors.similarity(a[:2], a[:2], "manhattan")
    tracemalloc.start()
    with torch.profiler.profile(profile_memory=True) as profile:
        result = vectors.similarity(a, a, "manhattan")
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()
    assert sum(max(0, event.self_cpu_memory_usage) for event in profile.events()) < 8e6
    np.testing.assert_allclose(result, -cdist(a, a, "cityblock"), rtol=1e-5, atol=1e-5)


def test_importing_does_not_import_torch():
    code = "import sys, munjang.vectors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gives_the_same_numbers_and_stays_there(kind):
    a, b = torch.randn(33, 48), torch.randn(20, 48)
    result = vectors.similarity(a.cuda(), b.cuda(), kind)
    assert result.device.type == "cuda"
    torch.testing.assert_close(result.cpu(), vectors.similarity(a, b, kind), atol=1e-4, rtol=1e-4)
    assert vectors.similarity(a, b.cuda(), kind).device.type == "cpu"
    paired = vectors.pairwise_similarity(a[:20].cuda(), b.cuda(), kind)
    torch.testing.assert_close(paired.cpu(), vectors.pairwise_similarity(a[:20], b, kind), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(vectors.normalize(a.cuda()).cpu(), vectors.normalize(a), atol=1e-6, rtol=1e-6)
