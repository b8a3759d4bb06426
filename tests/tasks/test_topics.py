"""Topics: words and texts of clusters, the tree beside scipy, periods, assigning, saving."""

from __future__ import annotations

import csv
import json
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

import munjang
from munjang.errors import InputError, ModelError
from munjang.tasks.class_tfidf import Word
from munjang.tasks.topics import TopicOptions, Topics, _by_size, topics
from munjang.tasks.topics_time import periods, read_date
from munjang.tasks.topics_tree import average_linkage, merges_of, tree_text
from support import small_models

SAMPLE = Path(__file__).parents[2] / "docs" / "samples" / "themes.csv"
DISTINCT = {
    "은행": ["은행이 금리를 올렸다", "은행 금리가 비싸다", "The bank raised the rates of the bank"],
    "축구": ["축구 경기에서 골을 넣었다", "축구 경기를 보았다", "A football match with one football goal"],
}


def sample(language: str | None = None) -> list[dict[str, str]]:
    with open(SAMPLE, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if language in (None, row["language"])]


@pytest.fixture(scope="module")
def minilm(minilm_path: Path) -> munjang.BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def english(minilm: munjang.BiEncoder) -> Topics:
    return topics([row["text"] for row in sample("en")], minilm, k=6)


def rows_of(theme: int, count: int, width: int = 12, length: float = 5) -> np.ndarray:
    generator = np.random.default_rng(theme)
    return (length * np.eye(width)[theme] + generator.normal(size=(count, width))).astype(np.float32)


@pytest.fixture(scope="module")
def ready() -> Topics:
    """Two topics and one text that belongs nowhere, from vectors."""
    texts = [*DISTINCT["은행"] * 4, *DISTINCT["축구"] * 3, "unlike anything"]
    vectors = np.concatenate([rows_of(0, 12), rows_of(1, 9), -5 * np.ones((1, 12), dtype=np.float32)])
    options = TopicOptions(min_size=4, reduce=None)
    return topics(texts, vectors=vectors, method="hdbscan", options=options)


# --- what is found ---------------------------------------------------------------------------------------------------


def test_topics_are_the_themes_of_the_sample(english: Topics) -> None:
    themes = [row["theme"] for row in sample("en")]
    right = 0
    for topic in english.topics:
        members = [theme for theme, label in zip(themes, english.labels, strict=True) if label == topic.number]
        right += max(members.count(theme) for theme in set(themes))
    assert right >= 42  # of 48
    assert [topic.size for topic in english.topics] == sorted((topic.size for topic in english.topics), reverse=True)
    names = " / ".join(topic.name for topic in english.topics)
    for word in ("rain", "bank", "hotel", "match"):
        assert word in names


def test_representatives_are_the_members_nearest_to_the_topic(english: Topics, minilm: munjang.BiEncoder) -> None:
    texts = [row["text"] for row in sample("en")]
    unit = munjang.similarity(minilm.encode(texts), english.vectors)
    for topic in english.topics:
        members = np.flatnonzero(english.labels == topic.number)
        best = members[np.argsort(-unit[members, topic.number])][:3]
        assert [one.row for one in topic.representatives] == best.tolist()
        assert [one.text for one in topic.representatives] == [texts[row] for row in best]
        assert topic.representatives[0].similarity == pytest.approx(unit[best[0], topic.number], abs=1e-5)


def test_new_texts_go_to_the_nearest_topic(english: Topics) -> None:
    found = english.assign(["The striker scored a goal in the match.", "The bank raised interest rates again."])
    names = [english.topics[number].name for number in found.topics]
    assert "match" in names[0]
    assert "bank" in names[1]
    assert (found.similarities > 0.5).all()
    assert len(english.assign([]).topics) == 0


def test_korean_and_english_words_name_a_topic_together(ready: Topics) -> None:
    words = {word.text for word in ready.topics[0].words}
    assert {"은행", "금리", "bank", "rates"} <= words
    assert {topic.size for topic in ready.topics} == {12, 9}


def test_a_text_far_from_all_topics_has_none(ready: Topics) -> None:
    assert ready.labels.tolist() == [0] * 12 + [1] * 9 + [-1]
    far = ready.assign(np.array([[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0.1]], dtype=np.float32))
    assert far.topics.tolist() == [-1]
    assert ready.assign(rows_of(0, 12)).topics.tolist().count(0) >= 11  # one in a hundred may lie outside
    with pytest.raises(InputError, match="12 dimensions"):
        ready.assign(np.ones((1, 3), dtype=np.float32))
    with pytest.raises(InputError, match="made from vectors"):
        ready.assign(["text"])


def test_the_same_seed_gives_the_same_topics(minilm: munjang.BiEncoder, english: Topics) -> None:
    again = topics([row["text"] for row in sample("en")], minilm, k=6)
    assert again.topics == english.topics
    np.testing.assert_array_equal(again.labels, english.labels)


def test_nothing_but_outliers_is_no_topic() -> None:
    generator = np.random.default_rng(0)
    found = topics(
        ["글"] * 12, vectors=generator.normal(size=(12, 40)), method="hdbscan", options=TopicOptions(min_size=8)
    )
    if len(found):
        pytest.fail(f"noise has {len(found)} topics")
    assert found.labels.tolist() == [-1] * 12
    assert found.assign(np.ones((2, 40))).topics.tolist() == [-1, -1]
    assert (found.hierarchy(), found.tree()) == ([], "")


def test_as_many_topics_as_the_silhouette_says() -> None:
    vectors = np.concatenate([rows_of(theme, 20) for theme in range(5)])
    found = topics([f"글 {number}" for number in range(100)], vectors=vectors)
    assert [topic.size for topic in found.topics] == [20] * 5
    assert np.array_equal(found.labels, np.repeat(np.arange(5), 20))


def test_reducing_keeps_the_clusters() -> None:
    vectors = np.concatenate([rows_of(theme, 30, width=64) for theme in range(3)])
    texts = [f"글 {number}" for number in range(90)]
    plain = topics(texts, vectors=vectors, k=3, options=TopicOptions(reduce=None))
    reduced = topics(texts, vectors=vectors, k=3, options=TopicOptions(reduce="pca", dimensions=4))
    np.testing.assert_array_equal(plain.labels, reduced.labels)


@pytest.mark.slow  # umap's compilation takes half a minute
def test_umap_before_clustering() -> None:
    vectors = np.concatenate([rows_of(theme, 40, width=64, length=20) for theme in range(3)])
    texts = [f"글 {number}" for number in range(120)]
    for method, k in (("kmeans", 3), ("hdbscan", None)):
        found = topics(texts, vectors=vectors, k=k, method=method, options=TopicOptions(reduce="umap"))  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.labels, np.repeat(np.arange(3), 40))


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=30))
def test_numbers_go_by_size(labels: list[int]) -> None:
    found = _by_size(np.array(labels))
    sizes = [int((found == number).sum()) for number in range(found.max() + 1)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes)
    pairs = set(zip(labels, found.tolist(), strict=True))
    assert len(pairs) == len(set(labels)) == len({new for _, new in pairs})
    assert all((old == -1) == (new == -1) for old, new in pairs)


# --- the tree --------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(2, 12), st.integers(0, 10_000))
def test_the_merges_are_those_of_scipy(count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, 6))
    expected = linkage(vectors, method="average", metric="cosine")
    found = average_linkage(vectors)
    np.testing.assert_allclose([distance for *_, distance in found], expected[:, 2], atol=1e-6)
    assert [{left, right} for left, right, _ in found] == [{int(a), int(b)} for a, b in expected[:, :2]]


def test_a_tree_holds_every_topic_once_and_the_words_of_its_groups() -> None:
    vectors = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1]])
    words = [[Word("비", 0.5)], [Word("rain", 0.4)], [Word("은행", 0.9)]]
    merges = merges_of(vectors, words, [10, 5, 2])
    assert [(merge.left, merge.right, merge.topics) for merge in merges] == [(0, 1, (0, 1)), (2, 3, (0, 1, 2))]
    assert merges[0].words == ("비", "rain")
    assert tree_text(merges, ["비", "rain", "은행"], [10, 5, 2]).splitlines() == [
        f"· 비, rain, 은행 [{merges[1].distance:.3f}]",
        "├─ 2  은행 (2)",
        f"└─ · 비, rain [{merges[0].distance:.3f}]",
        "   ├─ 0  비 (10)",
        "   └─ 1  rain (5)",
    ]


def test_a_single_topic_is_its_own_tree() -> None:
    assert tree_text(merges_of(np.ones((1, 3)), [[Word("비", 1.0)]], [7]), ["비"], [7]) == "비 (7)"


# --- over time -------------------------------------------------------------------------------------------------------


def test_counts_and_words_of_each_period() -> None:
    texts = ["은행 금리", "은행 대출", "축구 경기", "은행 파산", "없음"]
    dates = ["2024-01-05", "2024-01-30", date(2024, 2, 1), datetime(2024, 3, 31, 23, 59), "2024-03-01"]
    found = periods(texts, [0, 0, 1, 0, -1], dates, bins="month")
    assert [(period.start.month, period.counts) for period in found] == [(1, {0: 2}), (2, {1: 1}), (3, {0: 1})]
    assert {word.text for word in found[0].words[0]} == {"은행", "금리", "대출"}
    assert {word.text for word in found[2].words[0]} == {"은행", "파산"}
    assert found[2].words[0][0].text == "파산"  # what sets this period apart


@given(st.lists(st.dates(date(1990, 1, 1), date(2030, 1, 1)), min_size=1, max_size=20), st.integers(1, 12))
def test_every_text_falls_into_one_period(dates: list[date], bins: int) -> None:
    found = periods(["rain"] * len(dates), [0] * len(dates), dates, bins=bins)
    assert len(found) == bins
    assert sum(period.counts.get(0, 0) for period in found) == len(dates)
    for period, following in pairwise(found):
        assert period.end == following.start
    for moment in dates:
        inside = [p for p in found if p.start.date() <= moment <= p.end.date()]
        assert inside


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2024-05-01", datetime(2024, 5, 1)),
        ("2024-05", datetime(2024, 5, 1)),
        ("202405", datetime(2024, 5, 1)),
        ("202412", datetime(2024, 12, 1)),
        ("2024", datetime(2024, 1, 1)),
        ("20240501", datetime(2024, 5, 1)),
        ("2024.05.01", datetime(2024, 5, 1)),
        ("2024/5/1", datetime(2024, 5, 1)),
        ("2024-05-01T12:30:00Z", datetime(2024, 5, 1, 12, 30)),
        ("2024-05-01T00:30:00+09:00", datetime(2024, 4, 30, 15, 30)),
        ("2024-05-01 12:30", datetime(2024, 5, 1, 12, 30)),
    ],
)
def test_dates_as_people_write_them(written: str, expected: datetime) -> None:
    assert read_date(written, 0) == expected


def test_topics_know_their_texts_over_time(english: Topics) -> None:
    rows = sample("en")
    found = english.over_time([row["text"] for row in rows], [row["date"] for row in rows], bins=4)
    football = next(topic.number for topic in english.topics if "match" in topic.name)
    counts = [period.counts.get(football, 0) for period in found]
    assert counts[0] + counts[1] > counts[2] + counts[3]
    with pytest.raises(InputError, match="date 1 must be like"):
        english.over_time([row["text"] for row in rows], ["2024-01-01", "soon", *["2024-01-01"] * 46])
    with pytest.raises(InputError, match="every text needs a topic and a date"):
        english.over_time(["a"], ["2024-01-01"])
    with pytest.raises(InputError, match="bins must be"):
        english.over_time([row["text"] for row in rows], [row["date"] for row in rows], bins=0)


# --- saving ----------------------------------------------------------------------------------------------------------


def test_saved_topics_read_back(english: Topics, tmp_path: Path) -> None:
    english.save(tmp_path / "topics")
    loaded = Topics.load(tmp_path / "topics")
    assert loaded.topics == english.topics
    for name in ("vectors", "floors", "labels", "similarities"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(english, name))
    text = ["The bank raised interest rates."]
    assert loaded.assign(text).topics.tolist() == english.assign(text).topics.tolist()  # loads the model by its path
    english.save(tmp_path / "topics")  # an older one is replaced
    assert not [path for path in (tmp_path / "topics").iterdir() if path.suffix not in (".json", ".safetensors")]
    assert json.loads((tmp_path / "topics" / "topics.json").read_text(encoding="utf-8"))["method"] == "kmeans"


def test_another_model_is_refused(english: Topics, tmp_path: Path) -> None:
    english.save(tmp_path / "topics")
    with pytest.raises(ModelError, match="another model"):
        Topics.load(tmp_path / "topics", small_models.bi_encoder())


def test_damage_is_found(english: Topics, tmp_path: Path) -> None:
    english.save(tmp_path / "topics")
    path = next((tmp_path / "topics").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match="damaged"):
        Topics.load(tmp_path / "topics")
    with pytest.raises(ModelError, match="there is no topics"):
        Topics.load(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("mine")
    with pytest.raises(InputError, match="nothing was changed"):
        english.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["하나"], {}, "at least 2 texts, got 1"),
        (["a", "b"], {"k": 3}, r"k must be 1\.\.2"),
        (["a", "b"], {"k": 2, "method": "hdbscan"}, "leave k out"),
        (["a", "b"], {"method": "lda"}, "method must be one of kmeans, hdbscan"),
        (["a", "b"], {"vectors": np.ones((3, 2))}, "got 3 for 2 texts"),
        (["a", None], {}, "text 1 must be a string"),
    ],
)
def test_wrong_arguments_are_told_before_a_model_is_loaded(
    texts: list[str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        topics(texts, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"reduce": "svd"}, {"words": 0}, {"min_size": 1}, {"language": "fr"}])
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="must be"):
        TopicOptions(**options)  # type: ignore[arg-type]
