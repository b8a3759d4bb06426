"""Silver pairs: neighbours, each pair once, none that is known; labels that are the blend they claim to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.neighbors import NearestNeighbors

from models.ko_en_0_1.silver import (
    Labeller,
    agreement,
    cosines_of,
    either_way,
    in_other_languages,
    known_pairs,
    neighbours_of,
    pairs_of,
    silver_pairs,
    without_known,
)
from munjang.data import Examples
from munjang.data.overlaps import normalise
from munjang.encoders import BiEncoder, CrossEncoder
from recipes.material import scored, sentences

TEXTS = ["비가 온다.", "비가  온다!", "눈이 온다", "It is raining.", "it is RAINING", "해가 뜬다", "A cat sleeps"]


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_neighbours_are_the_nearest_others() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    vectors[7] = vectors[8]  # equal rows are neighbours of each other, not of themselves
    found = neighbours_of(vectors, 5, device="cpu")
    assert found.shape == (40, 5)
    assert not (found == np.arange(40)[:, None]).any()
    theirs = NearestNeighbors(n_neighbors=6, metric="cosine").fit(vectors).kneighbors(vectors, return_distance=False)
    for row in range(40):
        assert set(found[row].tolist()) == set(theirs[row].tolist()) - {row}
    assert found[7][0] == 8


@given(st.integers(3, 40), st.integers(1, 6), st.floats(0, 3), st.integers(0, 9))
def test_every_pair_once_and_never_a_text_with_itself(count: int, k: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    k = min(k, count - 1)
    near = np.stack([random.permutation(np.delete(np.arange(count), row))[:k] for row in range(count)])
    pairs = silver_pairs(near, random_share=share, seed=seed)
    assert (pairs[:, 0] < pairs[:, 1]).all(), "one order, so that (b, a) is (a, b)"
    assert len(set(map(tuple, pairs.tolist()))) == len(pairs)
    wanted = {tuple(sorted((row, int(other)))) for row in range(count) for other in near[row]}
    assert wanted <= set(map(tuple, pairs.tolist()))
    assert len(pairs) <= len(wanted) + round(share * count * k)
    assert np.array_equal(pairs, silver_pairs(near, random_share=share, seed=seed))


def test_some_rows_have_more_neighbours_than_others() -> None:
    near = ((np.arange(9)[:, None] + np.arange(1, 4)) % 9).astype(np.int64)
    counts = np.array([3, 1, 0, 1, 1, 2, 1, 1, 1])
    pairs = silver_pairs(near, random_share=0.0, seed=0, counts=counts)
    wanted = {tuple(sorted((row, (row + 1 + k) % 9))) for row in range(9) for k in range(counts[row])}
    assert set(map(tuple, pairs.tolist())) == wanted


def test_random_pairs_come_beside_the_neighbours() -> None:
    near = ((np.arange(200)[:, None] + np.arange(1, 5)) % 200).astype(np.int64)
    alone = silver_pairs(near, random_share=0.0, seed=0)
    more = silver_pairs(near, random_share=0.15, seed=0)
    assert len(alone) == 800
    assert 800 + 100 < len(more) <= 800 + 120  # 120 are drawn, a few of which are neighbours or a text with itself
    other = silver_pairs(near, random_share=0.15, seed=1)
    assert set(map(tuple, more.tolist())) != set(map(tuple, other.tolist()))


def test_known_pairs_in_either_order_and_other_punctuation_are_left_out() -> None:
    known = known_pairs(
        [
            Examples("ours", "scored", {"a": ["눈이, 온다."], "b": ["비가 온다"]}, np.array([0.5])),
            Examples("한국어", "labelled", {"a": ["a CAT sleeps!"], "b": ["해가 뜬다"]}, np.array([0]), ("no", "yes")),
        ]
    )
    assert len(known) == 2
    pairs = np.array([(0, 2), (1, 2), (2, 3), (5, 6), (3, 5), (0, 1), (3, 4)])
    kept = without_known(TEXTS, pairs, known)
    # (0, 2), (1, 2), (5, 6) are known; (0, 1), (3, 4) are a text with itself.
    assert kept.tolist() == [[2, 3], [3, 5]]
    assert without_known(TEXTS, pairs, set()).tolist() == [[0, 2], [1, 2], [2, 3], [5, 6], [3, 5]]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8),
)
def test_what_is_left_is_what_a_plain_search_leaves(pairs: list[tuple[int, int]], known: list[tuple[int, int]]) -> None:
    given_pairs = np.array(pairs, np.int64).reshape(-1, 2)
    columns = {"a": [TEXTS[a] for a, _ in known], "b": [TEXTS[b] for _, b in known]}
    sets = [Examples("known", "scored", columns, np.zeros(len(known)))]
    seen = {frozenset((normalise(TEXTS[a]), normalise(TEXTS[b]))) for a, b in known}
    kept = without_known(TEXTS, given_pairs, known_pairs(sets))
    wanted = [
        [a, b]
        for a, b in pairs
        if len(both := frozenset((normalise(TEXTS[a]), normalise(TEXTS[b])))) == 2 and both not in seen
    ]
    assert kept.tolist() == wanted


def test_pairs_of_places_as_examples() -> None:
    found = pairs_of(TEXTS, np.array([(0, 2), (6, 3)]), np.array([0.25, 1.0]), name="ours")
    assert (found.name, found.kind) == ("ours", "scored")
    assert found.columns == {"a": ["비가 온다.", "A cat sleeps"], "b": ["눈이 온다", "It is raining."]}
    assert found.targets is not None
    assert found.targets.dtype == np.float32
    assert found.targets.tolist() == [0.25, 1.0]


# --- languages -------------------------------------------------------------------------------------------------------


def bilingual(count: int) -> tuple[Examples, dict[str, str]]:
    """Pairs of sentences, of which every second has a translation."""
    columns = {role: [f"sentence {role} {row}" for row in range(count)] for role in ("a", "b")}
    other = {text: f"문장 {text[9:]}" for texts in columns.values() for text in texts[::2]}
    return Examples("silver", "scored", columns, np.linspace(0, 1, count)), other


@given(st.integers(1, 60), st.integers(0, 99))
def test_only_texts_with_a_translation_change_and_scores_stay(count: int, seed: int) -> None:
    given_pairs, other = bilingual(count)
    found = in_other_languages(given_pairs, other, seed=seed)
    assert (found.name, found.kind, list(found.columns)) == ("silver", "scored", ["a", "b"])
    assert np.array_equal(np.asarray(found.targets), np.asarray(given_pairs.targets))
    for role, texts in given_pairs.columns.items():
        for row, text in enumerate(texts):
            assert found.columns[role][row] in {text, other.get(text, text)}
    assert in_other_languages(given_pairs, other, seed=seed).columns == found.columns
    assert in_other_languages(given_pairs, {}, seed=seed).columns == given_pairs.columns


def test_about_half_give_way_and_a_fifth_of_the_pairs_cross_the_languages() -> None:
    given_pairs, other = bilingual(2000)
    found = in_other_languages(given_pairs, other, seed=0)
    turned = {role: np.array([text.startswith("문장") for text in texts[::2]]) for role, texts in found.columns.items()}
    assert not any(text.startswith("문장") for texts in found.columns.values() for text in texts[1::2])
    for one in turned.values():
        assert 0.45 < one.mean() < 0.55
    assert 0.16 < (turned["a"] != turned["b"]).mean() < 0.24
    more = in_other_languages(given_pairs, other, seed=0, share=0.8).columns["a"][::2]
    assert 0.75 < np.mean([text.startswith("문장") for text in more]) < 0.85
    assert in_other_languages(given_pairs, other, seed=1).columns != found.columns


@given(st.integers(1, 60), st.integers(0, 99))
def test_a_pair_either_way_keeps_its_texts_and_its_score(count: int, seed: int) -> None:
    given_pairs, _ = bilingual(count)
    found = either_way(given_pairs, seed=seed)
    assert (found.name, found.kind, list(found.columns)) == ("silver", "scored", ["a", "b"])
    assert np.array_equal(np.asarray(found.targets), np.asarray(given_pairs.targets))
    before, after = (zip(*one.columns.values(), strict=True) for one in (given_pairs, found))
    assert [set(pair) for pair in before] == [set(pair) for pair in after]
    assert either_way(given_pairs, seed=seed).columns == found.columns


def test_about_half_of_the_pairs_are_read_the_other_way_round() -> None:
    given_pairs, _ = bilingual(2000)
    found = either_way(given_pairs, seed=0)
    turned = np.array([a == b for a, b in zip(found.columns["a"], given_pairs.columns["b"], strict=True)])
    assert 0.45 < turned.mean() < 0.55
    assert either_way(given_pairs, seed=1).columns != found.columns


def test_the_order_of_a_pair_does_not_tell_its_language() -> None:
    given_pairs, other = bilingual(4000)
    korean = in_other_languages(given_pairs, other, seed=3).columns["a"][::2]
    turned = either_way(given_pairs, seed=3).columns["a"][::2]
    one, two = (
        np.array([text.startswith(start) for text in some])
        for some, start in ((korean, "문장"), (turned, "sentence b"))
    )
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.1


# --- labels ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tiny: Path) -> tuple[BiEncoder, list[CrossEncoder]]:
    """A bi-encoder, and cross-encoders whose scores differ and hang on the order of a pair."""
    bi = BiEncoder.load(tiny, device="cpu", dtype="float32")
    crosses = []
    for seed in (1, 2, 3):
        model = CrossEncoder.from_body(bi, 1, seed=seed, device="cpu", dtype="float32")
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            model.parts.body.embeddings.segment.weight.add_(torch.randn(2, 32, generator=generator))
            for weight in model.parts.head.parameters():
                weight.add_(torch.randn(weight.shape, generator=generator))
        model.refresh()
        crosses.append(model)
    return bi, crosses


def texts() -> tuple[list[str], list[str]]:
    return sentences(20, 1), sentences(20, 2)


def test_cosines_are_those_of_the_vectors(load: Callable[[], BiEncoder]) -> None:
    model, (a, b) = load(), texts()
    a[3] = b[4] = a[0]  # encoded once
    one, other = model.encode(a), model.encode(b)
    wanted = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert np.allclose(cosines_of(model, a, b), wanted, atol=1e-5)


def test_every_second_cross_encoder_reads_the_other_way_round(models: tuple[BiEncoder, list[CrossEncoder]]) -> None:
    bi, crosses = models
    labeller = Labeller(bi, crosses, scored("ours", 30))
    a, b = texts()
    forth, back = list(zip(a, b, strict=True)), list(zip(b, a, strict=True))
    assert not np.allclose(crosses[1].predict(forth), crosses[1].predict(back)), "the order matters"
    found = labeller.read(a, b)
    for said, model, pairs in zip(found, crosses, (forth, back, forth), strict=True):
        assert np.allclose(said, model.predict(pairs), atol=1e-6)
    assert Labeller(bi, [], scored("ours", 30)).read(a, b) == []


def test_cosines_on_the_scale_of_the_labels(load: Callable[[], BiEncoder]) -> None:
    model, labelled = load(), scored("ours", 30)
    labeller = Labeller(model, [], labelled)
    a, b = texts()
    cosines = cosines_of(model, *labelled.columns.values())
    slope, shift = np.polyfit(cosines, np.asarray(labelled.targets), 1)
    expected = shift + slope * cosines_of(model, a, b) if slope > 0 else cosines_of(model, a, b)
    found = labeller.near(a, b)
    assert found.dtype == np.float32
    assert np.allclose(found, np.clip(expected, 0, 1), atol=1e-4)
    assert 0 <= found.min() <= found.max() <= 1


def test_agreement_is_spearmans() -> None:
    sets = [scored("한국어", 20, 3), scored("English", 25, 4)]
    random = np.random.default_rng(0)
    told = [random.random(len(one)).astype(np.float32) for one in sets]
    found = agreement(sets, told)
    assert list(found) == ["한국어", "English"]
    for one, labels in zip(sets, told, strict=True):
        assert found[one.name] == pytest.approx(spearmanr(one.targets, labels).statistic, abs=1e-9)
