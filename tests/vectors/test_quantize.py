"""int8 and binary codes, there and back; Hamming distances; the two-step search on both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist

from munjang import vectors
from munjang.errors import InputError
from munjang.vectors import quantize as module

KINDS = ("cosine", "dot", "euclidean", "manhattan")
matrices = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=20), elements=st.floats(-50, 50, width=32)
)


def random_vectors(rows, dimension=32, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)


def clustered(rows, dimension=64):
    """Vectors with near neighbours, as those of texts have."""
    return random_vectors(rows // 10, dimension).repeat(10, axis=0) + 0.5 * random_vectors(rows, dimension, 1)


def recall(found, expected):
    hits = [len(set(a) & set(b)) for a, b in zip(found.indices.tolist(), expected.indices.tolist(), strict=True)]
    return sum(hits) / expected.indices.size


@settings(deadline=None)
@given(a=matrices, block=st.integers(1, 50))
def test_int8_is_off_by_half_a_step_at_most(a, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_FLOATS", block)
        coded = vectors.quantize_int8(a)
        decoded = vectors.decode_int8(coded)
    assert coded.codes.dtype == np.int8
    np.testing.assert_array_equal(coded.ranges, [a.min(axis=0), a.max(axis=0)])
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, coded.codes * coded.scale + coded.offset, rtol=1e-6, atol=1e-5)
    assert (np.abs(decoded - a) <= coded.scale / 2 + 2e-5).all()


def test_later_vectors_are_quantised_with_the_same_ranges_and_clipped():
    first = vectors.quantize_int8(random_vectors(50))
    low, high = first.ranges
    later = vectors.quantize_int8(np.stack((low, high, low - 5, high + 5)), ranges=first.ranges)
    np.testing.assert_array_equal(later.ranges, first.ranges)
    np.testing.assert_array_equal(later.codes[:, 0], [-128, 127, -128, 127])
    np.testing.assert_allclose(vectors.decode_int8(later), np.stack((low, high, low, high)), atol=1e-5)


def test_a_dimension_that_never_changes_survives():
    a = np.array([[1.5, 0], [1.5, 1]], dtype=np.float32)
    np.testing.assert_allclose(vectors.decode_int8(vectors.quantize_int8(a)), a, atol=1e-6)


@settings(deadline=None)
@given(a=matrices, block=st.integers(1, 50))
def test_binary_is_packbits_of_the_signs(a, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_FLOATS", block)
        coded = vectors.quantize_binary(a)
        decoded = vectors.decode_binary(coded)
    np.testing.assert_array_equal(coded.codes, np.packbits(a > 0, axis=1))
    assert (coded.codes.dtype, coded.dimension) == (np.uint8, a.shape[1])
    np.testing.assert_array_equal(decoded, np.where(a > 0, 1, -1))
    assert decoded.dtype == np.float32


@settings(deadline=None, max_examples=50)
@given(d=st.integers(1, 150), n=st.integers(0, 9), m=st.integers(0, 9), table=st.booleans())
def test_hamming_distances_agree_with_scipy(d, n, m, table):
    a, b = random_vectors(n, d), random_vectors(m, d, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        if table:
            patch.setattr(module, "count_bits", module.count_bits_by_table)
        result = vectors.hamming_distances(vectors.quantize_binary(a), vectors.quantize_binary(b))
    expected = cdist(a > 0, b > 0, "hamming") * d if n and m else np.empty((n, m))
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected.round())


def test_hamming_by_product_as_on_a_gpu_agrees():
    a = torch.from_numpy(random_vectors(9, 77))
    bits = module.pack_signs(a)
    signs = module.unpack_signs(bits, 77)
    np.testing.assert_array_equal((77 - signs @ signs.T) / 2, module.hamming(bits, bits, 77))


def test_tensors_give_tensors_with_the_same_codes():
    a = random_vectors(20, 21)
    for quantize, decode in (
        (vectors.quantize_int8, vectors.decode_int8),
        (vectors.quantize_binary, vectors.decode_binary),
    ):
        ours = quantize(torch.from_numpy(a).requires_grad_())
        assert isinstance(ours.codes, torch.Tensor)
        assert isinstance(decode(ours), torch.Tensor)
        np.testing.assert_array_equal(ours.codes.numpy(), quantize(a).codes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_mb", [0.02, 256])
def test_int8_search_without_rescoring_is_a_search_of_the_decoded(kind, memory_mb):
    corpus, queries = vectors.quantize_int8(random_vectors(300)), random_vectors(7, seed=1)
    found = vectors.top_k_int8(queries, corpus, 9, kind=kind, memory_mb=memory_mb)
    expected = vectors.top_k(queries, vectors.decode_int8(corpus), 9, kind=kind)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_mb", [0.02, 256])
@pytest.mark.parametrize(
    ("quantize", "find"),
    [(vectors.quantize_int8, vectors.top_k_int8), (vectors.quantize_binary, vectors.top_k_binary)],
)
def test_with_every_row_a_candidate_rescoring_is_exact(kind, memory_mb, quantize, find):
    floats, queries = random_vectors(60), random_vectors(7, seed=1)
    found = find(queries, quantize(floats), 5, kind=kind, rescore=floats, oversample=12, memory_mb=memory_mb)
    expected = vectors.top_k(queries, floats, 5, kind=kind)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


def test_recall_grows_with_oversampling_and_with_finer_vectors():
    floats = clustered(1000)
    queries = floats[::10] + 0.3 * random_vectors(100, 64, seed=2)
    expected = vectors.top_k(queries, floats, 10)
    bits, bytes_ = vectors.quantize_binary(floats), vectors.quantize_int8(floats)
    bare = vectors.top_k_binary(queries, bits, 10, oversample=1)
    signs = vectors.top_k_binary(queries, bits, 10)
    exact = vectors.top_k_binary(queries, bits, 10, rescore=floats)
    assert recall(bare, expected) < recall(signs, expected) < recall(exact, expected)
    assert recall(exact, expected) > 0.95
    assert recall(vectors.top_k_int8(queries, bytes_, 10), expected) > 0.95
    assert recall(vectors.top_k_int8(queries, bytes_, 10, rescore=floats), expected) == 1


def test_binary_without_originals_scores_float_queries_with_signs():
    floats, queries = random_vectors(40), random_vectors(3, seed=1)
    found = vectors.top_k_binary(queries, vectors.quantize_binary(floats), 4, kind="dot", oversample=10)
    scores = queries @ np.where(floats > 0, 1, -1).T
    np.testing.assert_array_equal(found.indices, np.argsort(-scores, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(found.scores, np.sort(scores, axis=1)[:, ::-1][:, :4], atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 30), d=st.integers(1, 5), data=st.data())
def test_binary_candidates_are_the_nearest_and_ties_go_to_the_lower_index(n, d, data):
    floats, queries = random_vectors(n, d), random_vectors(4, d, seed=1)
    k = data.draw(st.integers(1, n))
    tiles = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30)))
    bits = vectors.quantize_binary(floats)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "plan_tiles", lambda *_, **__: tiles)
        found = vectors.top_k_binary(queries, bits, k, oversample=1)
    distances = vectors.hamming_distances(vectors.quantize_binary(queries), bits)
    candidates = np.argsort(distances, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(np.sort(found.indices, axis=1), np.sort(candidates, axis=1))
    same_bits = (bits.codes[found.indices[:, :-1]] == bits.codes[found.indices[:, 1:]]).all(axis=2)
    assert (np.diff(found.indices, axis=1)[same_bits] > 0).all()


def test_equal_scores_after_rescoring_go_to_the_lower_index():
    floats = np.array([[3, -1], [1, 1], [3, -1]], dtype=np.float32)  # by bits, row 1 is the nearest
    query = np.array([1, 1], dtype=np.float32)  # by dot product, all are as near
    bits = vectors.quantize_binary(floats)
    found = vectors.top_k_binary(query, bits, 2, kind="dot", rescore=floats, oversample=1.5)
    assert found.indices.tolist() == [[0, 1]]


def test_memory_maps_and_no_queries(tmp_path, recwarn):
    floats = random_vectors(200)
    np.save(tmp_path / "floats.npy", floats)
    np.save(tmp_path / "codes.npy", vectors.quantize_binary(floats).codes)
    mapped = vectors.BinaryVectors(np.load(tmp_path / "codes.npy", mmap_mode="r"), 32)
    originals = np.load(tmp_path / "floats.npy", mmap_mode="r")
    found = vectors.top_k_binary(floats[:5], mapped, 3, rescore=originals, memory_mb=0.05)
    np.testing.assert_array_equal(found.indices[:, 0], np.arange(5))
    assert vectors.top_k_binary(floats[:0], mapped, 3).indices.shape == (0, 3)
    assert vectors.top_k_int8(floats[:0], vectors.quantize_int8(originals), 3).scores.shape == (0, 3)
    assert not recwarn.list


def test_errors():
    a = random_vectors(6)
    bits, coded = vectors.quantize_binary(a), vectors.quantize_int8(a)
    broken = a.copy()
    broken[4, 2] = np.nan
    for quantize in (vectors.quantize_int8, vectors.quantize_binary):
        with pytest.raises(InputError, match="vectors row 4 is not finite"):
            quantize(broken)
    with pytest.raises(InputError, match="queries row 4 is not finite"):
        vectors.top_k_binary(broken, bits, 1)
    with pytest.raises(InputError, match="rescore row 4 is not finite"):
        vectors.top_k_int8(a, coded, 6, rescore=broken)
    with pytest.raises(InputError, match="no vectors to take the ranges from"):
        vectors.quantize_int8(a[:0])
    assert vectors.quantize_int8(a[:0], ranges=coded.ranges).codes.shape == (0, 32)
    with pytest.raises(InputError, match=r"shape \(2, 32\), got \(2, 31\)"):
        vectors.quantize_int8(a, ranges=coded.ranges[:, :31])
    with pytest.raises(InputError, match="no low above its high"):
        vectors.quantize_int8(a, ranges=coded.ranges[::-1])
    with pytest.raises(InputError, match=r"int8 \[n, bytes\], got float32"):
        vectors.Int8Vectors(a, coded.ranges)
    with pytest.raises(InputError, match="40 dimensions need 5 bytes"):
        vectors.BinaryVectors(bits.codes, 40)
    for find, codes in ((vectors.top_k_int8, coded), (vectors.top_k_binary, bits)):
        with pytest.raises(InputError, match=r"k must be 1\.\.6 \(corpus size\), got 7"):
            find(a, codes, 7)
        with pytest.raises(InputError, match=r"\(6, 9\) and \(6, 32\)"):
            find(a[:, :9], codes, 1)
        with pytest.raises(InputError, match=r"shape \(6, 32\), got \(5, 32\)"):
            find(a, codes, 1, rescore=a[:5])
        with pytest.raises(InputError, match="oversample must be at least 1"):
            find(a, codes, 1, oversample=0.5)
        with pytest.raises(InputError, match="kind must be one of"):
            find(a, codes, 1, kind="l2")
    with pytest.raises(InputError, match="got 32 and 31"):
        vectors.hamming_distances(bits, vectors.quantize_binary(a[:, :31]))


@pytest.mark.gpu
def test_cuda_gives_the_same_codes_and_neighbours():
    floats, queries = clustered(500), random_vectors(8, 64, seed=3)
    there, asked = torch.from_numpy(floats).cuda(), torch.from_numpy(queries).cuda()
    bits, coded = vectors.quantize_binary(there), vectors.quantize_int8(there)
    np.testing.assert_array_equal(bits.codes.cpu(), vectors.quantize_binary(floats).codes)
    assert (coded.codes.cpu().numpy().astype(int) - vectors.quantize_int8(floats).codes).__abs__().max() <= 1
    on_cpu = vectors.quantize_binary(floats)
    np.testing.assert_array_equal(
        vectors.hamming_distances(bits, bits).cpu(), vectors.hamming_distances(on_cpu, on_cpu)
    )
    for rescore in (None, there, floats):
        found = vectors.top_k_binary(asked, bits, 5, rescore=rescore)
        assert found.scores.device.type == "cuda"
        expected = vectors.top_k_binary(queries, on_cpu, 5, rescore=None if rescore is None else floats)
        np.testing.assert_allclose(found.scores.cpu(), expected.scores, atol=1e-5)
        assert vectors.top_k_int8(asked, coded, 5, rescore=rescore).indices.device.type == "cuda"
