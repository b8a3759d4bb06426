"""Clustering: truth that was put in comes out; scikit-learn says the same; every group is told of rightly."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import util
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

import munjang
from munjang.errors import InputError, MissingExtraError
from munjang.tasks import cluster_choice, cluster_kmeans, cluster_sklearn
from munjang.tasks.cluster import Clustering, ClusterOptions, cluster
from munjang.tasks.cluster_choice import choose_k, mean_silhouette
from munjang.tasks.cluster_kmeans import k_means
from munjang.tasks.neighbours_tiles import UnitRows
from munjang.tasks.representatives import representatives
from support.word_encoder import WordEncoder, measured

TEXTS = [
    "오늘 서울 날씨 비",
    "내일 부산 날씨 맑음",
    "주말 날씨 비 소식",
    "제주 날씨 바람 비",
    "refund order payment please",
    "refund payment for my order",
    "order refund and payment question",
    "축구 경기 대표팀 승리",
    "축구 대표팀 경기 결과",
    "야구 경기 결과 승리",
]
TRUTH = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def about(centres: int, rows: int, dimension: int = 24, *, seed: int = 0, spread: float = 0.35) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    middles = generator.standard_normal((centres, dimension))
    truth = generator.integers(centres, size=rows)
    vectors = middles[truth] + spread * generator.standard_normal((rows, dimension))
    lengths = generator.uniform(0.1, 10, (rows, 1))  # the cosine must not see them
    return (vectors * lengths).astype(np.float32), truth


def unit_of(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def consistent(found: Clustering, rows: int) -> None:
    """Labels, members and sizes say the same."""
    assert found.labels.shape == (rows,)
    sizes = [each.size for each in found]
    assert sizes == sorted(sizes, reverse=True)
    for number, each in enumerate(found):
        assert each.number == number
        assert np.flatnonzero(found.labels == number).tolist() == sorted(each.members.tolist())
        assert each.representative.index in each.members
    assert sum(sizes) == (found.labels >= 0).sum()
    assert len(found) == found.k == found.labels.max() + 1


# --- k-means ---------------------------------------------------------------------------------------------------------


def test_k_means_finds_what_was_put_in_and_k_too() -> None:
    vectors, truth = about(9, 800)
    given_k = cluster(vectors, k=9)
    assert adjusted_rand_score(truth, given_k.labels) == 1
    consistent(given_k, 800)
    chosen = cluster(vectors)
    assert chosen.k == 9
    assert max(chosen.silhouettes, key=lambda k: chosen.silhouettes[k]) == 9
    assert chosen.labels.tolist() == given_k.labels.tolist()


@pytest.mark.parametrize("batches", [False, True])
def test_k_means_is_as_good_as_scikit_learn(batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On unit vectors its objective is that of scikit-learn; rows overlap, so that there is something to lose."""
    vectors, _ = about(20, 3000, spread=1.0)
    if batches:
        monkeypatch.setattr(cluster_kmeans, "_ALL", 1000)
        monkeypatch.setattr(cluster_kmeans, "_BATCH", 512)
    unit = unit_of(vectors)

    def objective(labels: np.ndarray) -> float:
        sums = np.stack([unit[labels == label].sum(axis=0) for label in np.unique(labels)])
        return float(np.linalg.norm(sums, axis=1).sum() / len(unit))  # the mean cosine to the own centre

    theirs = np.mean([objective(KMeans(20, n_init=1, random_state=seed).fit_predict(unit)) for seed in range(3)])
    ours = np.mean([objective(k_means(UnitRows(vectors), 20, seed=seed).labels) for seed in range(3)])
    assert ours > theirs - 0.006


def test_k_means_is_the_same_for_a_seed() -> None:
    vectors, _ = about(6, 500, spread=1.2)
    runs = [cluster(vectors, k=8, options=ClusterOptions(seed=seed)).labels.tolist() for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_k_means_of_equal_rows_and_of_zeros() -> None:
    vectors = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    found = cluster(vectors, k=5)
    assert found.k == 3  # there are no more directions than that
    consistent(found, 12)
    assert cluster(np.zeros((4, 3)), k=2).k >= 1
    assert cluster(vectors, k=12).k <= 12
    assert cluster(vectors[:1]).labels.tolist() == [0]
    assert cluster(vectors[:2]).labels.tolist() == [0, 0]


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 60), k=st.integers(1, 60), seed=st.integers(0, 100))
def test_k_means_takes_any_k_that_there_is(rows: int, k: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((rows, 5)).astype(np.float32)
    if k > rows:
        with pytest.raises(InputError, match=rf"k must be 1\.\.{rows}"):
            cluster(vectors, k=k)
        return
    found = k_means(UnitRows(vectors), k, seed=seed)
    assert found.k == k == len(np.unique(found.labels))
    unit = unit_of(vectors)
    assert found.labels.tolist() == (unit @ found.centres.numpy().T).argmax(axis=1).tolist()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(4, 80), k=st.integers(2, 6), seed=st.integers(0, 1000))
def test_silhouettes_are_those_of_scikit_learn(rows: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = unit_of(generator.standard_normal((rows, 6)))
    labels = np.concatenate([np.arange(min(k, rows - 1)), generator.integers(min(k, rows - 1), size=rows)])[:rows]
    distances = torch.from_numpy(1 - vectors @ vectors.T).clamp_(min=0).fill_diagonal_(0)
    expected = silhouette_score(vectors, labels, metric="cosine")
    assert mean_silhouette(distances, labels) == pytest.approx(expected, abs=1e-6)


def test_k_is_chosen_from_a_sample_too(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = about(14, 2000)
    monkeypatch.setattr(cluster_choice, "_SAMPLE", 400)
    assert choose_k(UnitRows(vectors)).k == 14
    assert choose_k(UnitRows(vectors), most=5).k <= 5
    assert adjusted_rand_score(truth, cluster(vectors).labels) > 0.99


# --- the other methods -----------------------------------------------------------------------------------------------


def test_communities_are_those_of_sentence_transformers() -> None:
    vectors, _ = about(12, 600, spread=0.6)
    found = cluster(vectors, method="communities", threshold=0.62, min_size=4)
    theirs = util.community_detection(torch.from_numpy(vectors), threshold=0.62, min_community_size=4)
    assert [each.members.tolist() for each in found] == theirs
    assert [each.representative.index for each in found] == [each[0] for each in theirs]
    consistent(found, 600)
    assert found.threshold == 0.62
    assert cluster(vectors, method="communities", threshold=0.999).k == 0


@pytest.mark.parametrize("linkage", ["average", "complete", "single"])
def test_agglomerative_is_that_of_scikit_learn(linkage: Any) -> None:
    vectors, truth = about(7, 300, spread=0.6)
    options = ClusterOptions(linkage=linkage)
    found = cluster(vectors, method="agglomerative", threshold=0.5, options=options)
    theirs = AgglomerativeClustering(n_clusters=None, distance_threshold=0.5, metric="cosine", linkage=linkage)
    assert adjusted_rand_score(theirs.fit_predict(vectors), found.labels) == 1
    consistent(found, 300)
    by_k = cluster(vectors, method="agglomerative", k=7, options=options)
    assert by_k.k == 7
    if linkage == "average":
        assert adjusted_rand_score(truth, by_k.labels) > 0.95
    assert cluster(vectors[:1], method="agglomerative", k=1).labels.tolist() == [0]


def test_agglomerative_takes_rows_of_zeros() -> None:
    vectors = np.vstack([np.zeros((2, 3)), np.ones((3, 3))]).astype(np.float32)
    assert cluster(vectors, method="agglomerative", threshold=0.9).k == 3


def test_agglomerative_refuses_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_sklearn, "MOST_AGGLOMERATIVE", 10)
    with pytest.raises(InputError, match="at most 10 rows, got 11: use method='communities'"):
        cluster(np.ones((11, 2)), method="agglomerative", k=2)


def test_hdbscan_is_that_of_scikit_learn() -> None:
    vectors, truth = about(5, 400)
    vectors = np.vstack([vectors, np.random.default_rng(1).standard_normal((40, 24)).astype(np.float32)])
    found = cluster(vectors, method="hdbscan", min_size=10)
    theirs = HDBSCAN(min_cluster_size=10, copy=True).fit_predict(unit_of(vectors))
    assert adjusted_rand_score(theirs, found.labels) == 1
    assert found.k == 5
    assert (found.labels[400:] == -1).mean() > 0.8
    inside = found.labels[:400] >= 0
    assert adjusted_rand_score(truth[inside], found.labels[:400][inside]) == 1
    consistent(found, 440)
    assert cluster(vectors[:3], method="hdbscan").labels.tolist() == [-1] * 3


@pytest.mark.parametrize("method", ["agglomerative", "hdbscan"])
def test_the_extra_is_named(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[tasks\]"):
        cluster(np.random.default_rng(0).standard_normal((20, 4)), method=method, k=2 if method[0] == "a" else None)


# --- what is told of the groups --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 60), k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_representatives_are_those_of_brute_force(rows: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((rows, 4)).astype(np.float32)
    labels = np.concatenate([np.arange(min(k, rows)), generator.integers(-1, min(k, rows), size=rows)])[:rows]
    told = representatives(UnitRows(vectors), labels)
    unit = unit_of(vectors.astype(np.float64))
    for number in range(labels.max() + 1):
        members = np.flatnonzero(labels == number)
        centre = unit[members].mean(axis=0)
        centre /= np.linalg.norm(centre)
        cosines = unit[members] @ centre
        assert np.allclose(told.centres[number], centre, atol=1e-4)
        assert cosines[members.tolist().index(told.nearest[number])] == pytest.approx(cosines.max(), abs=1e-5)
        assert told.cohesion[number] == pytest.approx(cosines.mean(), abs=1e-5)


def test_texts_in_two_languages_with_keywords() -> None:
    model: Any = WordEncoder()
    found = cluster(TEXTS, model, k=3)
    assert adjusted_rand_score(TRUTH, found.labels) == 1
    consistent(found, len(TEXTS))
    weather = found[int(found.labels[0])]
    assert "날씨" in weather.keywords
    assert weather.representative.text in TEXTS[:4]
    assert {"refund", "payment", "order"} <= set(found[int(found.labels[4])].keywords)
    bare = cluster(model.encode(TEXTS), k=3)
    assert bare.labels.tolist() == found.labels.tolist()
    assert bare[0].keywords == ()
    assert bare[0].representative.text is None
    beside = cluster(model.encode(TEXTS), k=3, options=ClusterOptions(texts=TEXTS))
    assert [each.keywords for each in beside] == [each.keywords for each in found]


def test_keywords_without_the_korean_analyser(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **options: Any) -> Any:
        if options.get("language") != "en":
            raise MissingExtraError("kiwipiepy", "korean", "a test")
        return usual(*_, **options)

    from munjang.tasks import class_tfidf

    usual = class_tfidf.class_words
    monkeypatch.setattr(class_tfidf, "class_words", missing)
    found = cluster(TEXTS, WordEncoder(), k=3)  # type: ignore[arg-type]
    assert "날씨" in found[int(found.labels[0])].keywords


def test_the_threshold_is_the_models_or_an_error() -> None:
    model: Any = WordEncoder(measured("cluster", 0.4))
    found = cluster(TEXTS, model, method="communities", min_size=2)
    assert found.threshold == 0.4
    assert found.k >= 3
    for method in ("communities", "agglomerative"):
        with pytest.raises(InputError, match="has no measured threshold for 'cluster'"):
            cluster(TEXTS, WordEncoder(), method=method)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="without their model"):
            cluster(np.ones((4, 3)), method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "spectral"}, "method must be one of kmeans"),
        ({"k": 0}, r"k must be 1\.\.5"),
        ({"k": 2.5}, r"k must be 1\.\.5"),
        ({"threshold": 0.5}, "'kmeans' takes no threshold"),
        ({"method": "hdbscan", "k": 3}, "'hdbscan' takes no k"),
        ({"method": "hdbscan", "min_size": 1}, "min_size must be 2"),
        ({"method": "communities", "threshold": 7}, "must be -1..1"),
        ({"method": "communities", "threshold": 0.5, "min_size": 0}, "min_size must be a whole number"),
        ({"method": "agglomerative", "k": 2, "threshold": 0.5}, "k or threshold, not both"),
        ({"options": ClusterOptions(most_k=1)}, "largest k to try"),
        ({"options": ClusterOptions(texts=["one"])}, "5 vectors and 1 texts"),
        ({"k": 2, "options": ClusterOptions(max_steps=0)}, "max_steps"),
    ],
)
def test_bad_input_is_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster(np.random.default_rng(0).standard_normal((5, 3)), **arguments)


@pytest.mark.gpu
def test_k_means_on_a_gpu() -> None:
    vectors, truth = about(9, 5000)
    runs = [cluster(vectors, k=9, options=ClusterOptions(device="cuda")).labels for _ in range(2)]
    assert (runs[0] == runs[1]).all()
    assert adjusted_rand_score(truth, runs[0]) == 1
    assert cluster(vectors, options=ClusterOptions(device="cuda")).k == 9


# --- how often k-means begins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "wanted"), [(2_048, 32), (2_049, 4)])
def test_among_few_rows_there_are_more_starts(count: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = cluster_kmeans._start

    def start(rows: UnitRows, k: int, generator: np.random.Generator, starts: int) -> torch.Tensor:
        seen.append(starts)
        return real(rows, k, generator, starts)

    monkeypatch.setattr(cluster_kmeans, "_start", start)
    rows = UnitRows(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32), memory_mb=64)
    k_means(rows, 3)
    k_means(rows, 3, starts=2)
    assert seen == [wanted, 2]


def test_six_themes_in_two_languages_are_found_whatever_the_seed() -> None:
    """84 sentences of the gallery, by the bundled model: a start that is unlucky is not the last word."""
    with (Path(__file__).parents[2] / "docs/samples/themes.csv").open(encoding="utf-8") as file:
        sentences = list(csv.DictReader(file))
    vectors = munjang.load(device="cpu", dtype="float32").encode([one["text"] for one in sentences], normalize=True)
    themes = np.unique([one["theme"] for one in sentences], return_inverse=True)[1]
    for seed in range(8):
        found = cluster(vectors, k=6, options=ClusterOptions(seed=seed))
        assert adjusted_rand_score(themes, found.labels) > 0.95, seed
