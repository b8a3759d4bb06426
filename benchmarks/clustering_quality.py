"""Do clusters agree with classes: `cluster` beside scikit-learn's k-means, `community_detection` and TF-IDF.

Enters: sets with classes and models. Leaves: one table for each set. k-means gets the number of classes; a figure is
the mean over seeds, with the standard deviation. The threshold of communities is the one that agrees best on rows of
the training split; what is in no community is a cluster of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.application_vectors import Array, Asked
from benchmarks.twins import Cell, Said, TwinTable
from munjang.data import Examples, load_dataset
from munjang.evaluation.metrics import adjusted_rand_index, v_measure
from munjang.tasks.cluster import ClusterOptions, cluster

SETS = ("ynat", "banking77")
TUNING_ROWS = 3_000  # of the training split, for the threshold of communities
MIN_SIZE = 5
THRESHOLDS = tuple(round(0.10 + 0.02 * step, 2) for step in range(45))  # 0.10 to 0.98
WORDS: dict[str, dict[str, Any]] = {  # what TF-IDF counts
    "ynat": {"analyzer": "char_wb", "ngram_range": (1, 3)},  # Korean words carry their particles
    "banking77": {"ngram_range": (1, 2)},
}
TITLES = {
    "ynat": Said("Korean news titles in 7 topics (YNAT)", "주제 7개의 한국어 뉴스 제목 (YNAT)"),
    "banking77": Said(
        "English questions to a bank in 77 intents (Banking77)", "의도 77개의 은행 영어 질문 (Banking77)"
    ),
}
COLUMNS = (
    Said("clusters by", "군집을 만든 것"),
    Said("V-measure", "V-척도"),
    Said("adjusted Rand", "조정 랜드"),
    Said("clusters", "군집"),
    Said("texts in them", "군집에 든 글"),
)
K_MEANS, COMMUNITIES = Said("k-means", "k-평균"), Said("communities from {threshold}", "{threshold}부터의 커뮤니티")
NOTE = Said(
    "{rows} texts of the test split, {classes} classes; x 100. k-means: k = {classes}, mean ± standard deviation "
    "over {seeds} seeds; Munjang: `cluster(k={classes})`; scikit-learn: `KMeans(n_init=10)`, as "
    "sentence-transformers shows it. communities: of {size} texts or more; Munjang: "
    '`cluster(method="communities")`; sentence-transformers: `community_detection`; the threshold of 0.10, 0.15 '
    "to 0.90 with the best adjusted Rand on {tuned} texts of the training split; texts in none count as clusters "
    "of one. The V-measure rises with the number of clusters, the adjusted Rand index does not. TF-IDF: "
    "scikit-learn, {words}, to 100 dimensions by SVD.",
    "시험 쪽 글 {rows}개, 분류 {classes}개. 값은 x 100입니다. k-평균: k = {classes}, 시드 {seeds}개의 평균 ± "
    "표준편차. Munjang: `cluster(k={classes})`. scikit-learn: sentence-transformers 문서가 쓰는 "
    '`KMeans(n_init=10)`. 커뮤니티: 글 {size}개 이상. Munjang: `cluster(method="communities")`. '
    "sentence-transformers: `community_detection`. 문턱값은 0.10, 0.12, … 0.98 가운데 학습 쪽 글 {tuned}개에서 "
    "조정 랜드가 가장 좋은 것이고, 어디에도 들지 않은 글은 저마다 한 군집으로 셉니다. V-척도는 군집이 많아지면 "
    "오르고 조정 랜드는 그렇지 않습니다. TF-IDF: scikit-learn, {words}, SVD로 100차원.",
)
COUNTED = {
    "ynat": Said("1 to 3 characters within words", "낱말 안의 글자 1~3개"),
    "banking77": Said("words and word pairs", "낱말과 낱말 쌍"),
}


@dataclass(frozen=True)
class Judged:
    """How far labels agree with classes."""

    v: float  # x 100
    rand: float  # x 100
    clusters: int  # without those of one text that had no label
    inside: float  # x 100


def measure(
    data: Path, asked: Sequence[Asked], *, sets: Sequence[str] = SETS, seeds: int = 5, limit: int | None = None
) -> list[TwinTable]:
    """One table for each set."""
    return [_table(name, data, asked, seeds, limit) for name in sets]


def _table(name: str, data: Path, asked: Sequence[Asked], seeds: int, limit: int | None) -> TwinTable:
    test = some(load_dataset(name, "test", data), limit)
    tuning = some(load_dataset(name, "train", data), min(TUNING_ROWS, limit or TUNING_ROWS))
    truth = targets_of(test)
    k = len(np.unique(truth))
    counts = {"rows": f"{len(test):,}", "tuned": f"{len(tuning):,}", "classes": k, "seeds": seeds}
    note = NOTE.format(**counts, size=MIN_SIZE, words=COUNTED[name])
    table = TwinTable(TITLES[name], COLUMNS, note=note)
    vectors = [one.vectors(test.columns["text"], test.name) for one in asked]
    for one, rows in zip(asked, vectors, strict=True):
        _add(table, f"Munjang, {one.name}", K_MEANS, [judge(truth, ours(rows, k, seed)) for seed in range(seeds)])
    first = asked[0].name
    _add(table, f"scikit-learn, {first}", K_MEANS, [judge(truth, theirs(vectors[0], k, seed)) for seed in range(seeds)])
    for place, (one, rows) in enumerate(zip(asked, vectors, strict=True)):
        found = best_threshold(one.vectors(tuning.columns["text"], tuning.name), targets_of(tuning))
        way = COMMUNITIES.format(threshold=f"{found:.2f}")
        _add(table, f"Munjang, {one.name}", way, [judge(truth, our_communities(rows, found))])
        if not place:
            _add(table, f"sentence-transformers, {first}", way, [judge(truth, their_communities(rows, found))])
    counted = reduced(test.columns["text"], WORDS[name])
    _add(table, "TF-IDF, scikit-learn", K_MEANS, [judge(truth, theirs(counted, k, seed)) for seed in range(seeds)])
    return table


def _add(table: TwinTable, who: str, way: Said, judged: Sequence[Judged]) -> None:
    name = Said(f"{who}, {way.en}", f"{who}, {way.ko}")
    row: tuple[Cell, ...] = (
        name,
        spread([one.v for one in judged]),
        spread([one.rand for one in judged]),
        f"{judged[0].clusters:,}",
        f"{statistics.fmean(one.inside for one in judged):.0f} %",
    )
    table.rows.append(row)
    print(name.en, *row[1:], flush=True)


def judge(truth: Array, labels: Array) -> Judged:
    """Labels beside classes; what has no label is a cluster of its own."""
    alone = labels == -1
    filled = labels.copy()
    filled[alone] = labels.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    clusters = len(np.unique(labels[~alone]))
    v, rand = v_measure(truth, filled), adjusted_rand_index(truth, filled)
    return Judged(100 * v, 100 * rand, clusters, 100 * float((~alone).mean()))


def ours(vectors: Array, k: int, seed: int) -> Array:
    """k-means of Munjang."""
    labels: Array = cluster(vectors, k=k, options=ClusterOptions(seed=seed)).labels
    return labels


def theirs(vectors: Array, k: int, seed: int) -> Array:
    """k-means of scikit-learn, as the pages of sentence-transformers use it."""
    from sklearn.cluster import KMeans

    labels: Array = KMeans(n_clusters=k, n_init=10, random_state=seed).fit_predict(vectors).astype(np.int64)
    return labels


def our_communities(vectors: Array, threshold: float) -> Array:
    """Communities of Munjang."""
    labels: Array = cluster(vectors, method="communities", threshold=threshold, min_size=MIN_SIZE).labels
    return labels


def their_communities(vectors: Array, threshold: float) -> Array:
    """Communities of sentence-transformers."""
    import torch
    from sentence_transformers.util import community_detection

    labels = np.full(len(vectors), -1, np.int64)
    found = community_detection(torch.from_numpy(vectors), threshold=threshold, min_community_size=MIN_SIZE)
    for number, members in enumerate(found):
        labels[members] = number
    return labels


def best_threshold(vectors: Array, truth: Array) -> float:
    """Of `THRESHOLDS` that whose communities agree best with the classes; of equals the highest."""
    scores = {one: judge(truth, our_communities(vectors, one)).rand for one in THRESHOLDS}
    return max(scores, key=lambda one: (scores[one], one))


def reduced(texts: Sequence[str], words: dict[str, Any]) -> Array:
    """TF-IDF to 100 dimensions at length 1, without which k-means on sparse rows finds next to nothing: [n, 100]."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    counted = TfidfVectorizer(sublinear_tf=True, **words).fit_transform(texts)
    dimensions = min(100, counted.shape[1] - 1, len(texts) - 1)
    rows: Array = normalize(TruncatedSVD(dimensions, random_state=0).fit_transform(counted))
    return rows


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, where there are several."""
    return f"{statistics.fmean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def some(examples: Examples, limit: int | None) -> Examples:
    """At most so many rows, at random, always the same, in their order."""
    if limit is None or limit >= len(examples):
        return examples
    return examples.take(np.sort(np.random.default_rng(0).permutation(len(examples))[:limit]))


def targets_of(examples: Examples) -> Array:
    """Of classified rows."""
    assert examples.targets is not None
    return examples.targets
