"""Examples: checked when made; rows, parts and duplicates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import Examples, Reading, Refused, join
from munjang.data.overlaps import same_key
from munjang.errors import InputError


def scored(pairs: list[tuple[str, str]], scores: object, name: str = "set") -> Examples:
    return Examples(name, "scored", {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}, scores)  # type: ignore[arg-type]


def ranked(groups: list[int]) -> Examples:
    queries = [f"질문 {group}" for group in groups]
    documents = [f"문서 {place}" for place in range(len(groups))]
    relevance = np.arange(len(groups), dtype=np.float32)
    return Examples("ranked", "ranked", {"query": queries, "document": documents}, relevance, groups=np.array(groups))


def test_a_row_is_shown_with_its_score_or_the_name_of_its_label() -> None:
    assert scored([("가", "나")], [0.25]).row(0) == {"a": "가", "b": "나", "score": 0.25}
    found = Examples("", "classified", {"text": ["좋다", "싫다"]}, np.array([1, 0]), ("negative", "positive"))
    assert [found.row(place)["label"] for place in (0, -1)] == ["positive", "negative"]
    assert ranked([0, 0]).row(1)["relevance"] == 1.0
    with pytest.raises(InputError, match=r"row must be 0\.\.1, got 2"):
        found.row(2)


def test_targets_become_arrays_of_the_right_type() -> None:
    assert scored([("a", "b")], [1]).targets.dtype == np.float32  # type: ignore[union-attr]
    assert scored([("a", "b")], torch.tensor([0.5], requires_grad=True)).targets.tolist() == [0.5]  # type: ignore[union-attr]
    labelled = Examples("", "labelled", {"a": ["x"], "b": ["y"]}, torch.tensor([1]), ("no", "yes"))  # type: ignore[arg-type]
    assert labelled.targets is not None
    assert labelled.targets.dtype == np.int64
    taught = Examples("", "taught", {"text": ["x", "y"]}, np.zeros((2, 3)))
    assert taught.targets is not None
    assert taught.targets.shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scores", {"a": ["x"], "b": ["y"]}, [1.0]), "kind must be one of scored, labelled"),
        (("scored", {"a": ["x"], "c": ["y"]}, [1.0]), "have the columns a, b; got a, c"),
        (("scored", {"b": ["x"], "a": ["y"]}, [1.0]), "have the columns a, b; got b, a"),
        (("pairs", {"anchor": ["x"], "positive": ["y"], "negative_2": ["z"]}, None), "then negative, negative_2"),
        (("scored", {"a": ["x"], "b": ["y", "z"]}, [1.0]), r"of one length, got \{'a': 1, 'b': 2\}"),
        (("scored", {"a": ["x"], "b": [None]}, [1.0]), "column b: text 0 must be a string, got NoneType"),
        (("scored", {"a": ["x"], "b": ["y"]}, None), "need targets"),
        (("scored", {"a": ["x"], "b": ["y"]}, [[1.0]]), r"shape \[1\], got \[1, 1\]"),
        (("scored", {"a": ["x"], "b": ["y"]}, [3.8]), r"scores must be in 0\.\.1, got 3\.8"),
        (("scored", {"a": ["x"], "b": ["y"]}, [np.nan]), "must be finite; the first in row 0"),
        (("scored", {"a": ["x"], "b": ["y"]}, ["high"]), "targets must be numbers"),
        (("scored", {"a": ["x"], "b": ["y"]}, [1.0], ("no", "yes")), "have no labels"),
        (("classified", {"text": ["x"]}, [0]), "need the names of their labels"),
        (("classified", {"text": ["x"]}, [2], ("no", "yes")), r"label ids must be 0\.\.1 \(no, yes\), got 2"),
        (("classified", {"text": ["x"]}, [-1], ("no", "yes")), "got -1"),
        (("classified", {"text": ["x"]}, [0.0], ("no", "yes")), "whole numbers, got float64"),
        (("classified", {"text": ["x"]}, [0], ("no", "no")), "must differ"),
        (("pairs", {"anchor": ["x"], "positive": ["y"]}, [1.0]), r"shape \[1, 1\]"),
        (("taught", {"text": ["x"]}, [1.0]), r"shape \[1, 0\]"),
        (("ranked", {"query": ["x"], "document": ["y"]}, [1.0]), "groups belong to"),
        (("ranked", {"query": ["x"] * 2, "document": ["y"] * 2}, [1.0] * 2, (), [1, 0]), "ascending"),
    ],
)
def test_what_cannot_be_relied_on_is_refused_at_once(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Examples("set", *arguments)  # type: ignore[arg-type]


def test_pairs_may_have_several_negatives_and_the_scores_of_a_teacher() -> None:
    columns = {role: ["x", "y"] for role in ("anchor", "positive", "negative", "negative_2")}
    found = Examples("", "pairs", columns, np.ones((2, 3)))
    assert len(found) == 2
    assert list(found.texts()) == ["x", "y"] * 4
    assert Examples("", "pairs", columns).targets is None


def test_taking_rows_by_number_or_mask() -> None:
    found = scored([("a", "b"), ("c", "d"), ("e", "f")], [0.0, 0.5, 1.0])
    assert found.take([2, 0]).columns["a"] == ["e", "a"]
    assert found.take(np.array([False, True, False])).row(0) == {"a": "c", "b": "d", "score": 0.5}
    assert len(found.take([])) == 0
    assert str(found.take([2, 0], name="two").reading) == "3 rows, 2 used; 2 of 3 taken"
    for rows, message in (
        ([3], r"0\.\.2, got 3"),
        ([-1], "got -1"),
        ([0.5], "whole numbers"),
        ([True], "one entry a row"),
    ):
        with pytest.raises(InputError, match=message):
            found.take(rows)  # type: ignore[arg-type]


def test_queries_can_change_places_but_not_be_torn_apart() -> None:
    found = ranked([0, 0, 3, 3])
    moved = found.take([2, 3, 0, 1])
    assert moved.groups is not None
    assert moved.groups.tolist() == [0, 0, 1, 1]
    assert moved.columns["query"] == ["질문 3", "질문 3", "질문 0", "질문 0"]
    with pytest.raises(InputError, match="must stay together"):
        found.take([0, 2, 1])


@given(count=st.integers(2, 60), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 5))
def test_a_split_loses_and_repeats_nothing(count: int, fraction: float, seed: int) -> None:
    found = scored([(f"a{place}", f"b{place}") for place in range(count)], np.linspace(0, 1, count))
    size = round(count * fraction)
    if not 0 < size < count:
        with pytest.raises(InputError, match="fraction"):
            found.split(fraction, seed=seed)
        return
    rest, part = found.split(fraction, seed=seed)
    assert len(part) == size
    assert sorted(rest.columns["a"] + part.columns["a"]) == sorted(found.columns["a"])
    again = found.split(fraction, seed=seed)[1]
    assert again.columns == part.columns
    assert [found.columns["a"].index(text) for text in part.columns["a"]] == sorted(
        found.columns["a"].index(text) for text in part.columns["a"]
    )


def test_a_split_keeps_queries_whole() -> None:
    found = ranked([place // 3 for place in range(30)])
    rest, part = found.split(0.3, seed=1)
    assert len(part) == 9
    assert not set(rest.columns["query"]) & set(part.columns["query"])


@pytest.mark.parametrize(
    "targets",
    [
        torch.tensor([0.5, 0.5, 0.5, 0.5, 1.0]),
        np.array([0.5, 0.5, 0.5, 0.5, 1.0], dtype=np.float64),
        [np.float32(0.5), np.float64(0.5), 0.5, torch.tensor(0.5), 1],
    ],
    ids=["tensor", "array", "scalars"],
)
def test_pitfall_duplicates_go_whatever_the_targets_are(targets: object) -> None:
    """A notebook compared tensors with numbers, found nothing equal, and kept every duplicate."""
    rows = [("비가 온다", "눈이 온다"), ("비가  온다", "눈이 온다"), ("눈이 온다", "비가 온다"), ("A", "B"), ("a", "b")]
    found = scored(rows, targets).without_duplicates()
    assert found.columns["a"] == ["비가 온다", "A", "a"]  # the last has another score
    assert found.reading.refused_counts == {"the same row again": 2}
    assert str(found.reading) == "5 rows, 3 used, 2 refused: the same row again (2)"


def test_pitfall_duplicates_go_from_dicts_of_tensors() -> None:
    rows = [{"a": "가", "b": "나", "score": torch.tensor(0.5)} for _ in range(3)]
    assert len(Examples.from_dicts(rows, kind="scored").without_duplicates()) == 1


def test_a_mirrored_pair_is_a_duplicate_only_where_there_is_no_direction() -> None:
    columns = {"a": ["x", "y"], "b": ["y", "x"]}
    nli = ("entailment", "neutral", "contradiction")
    assert len(Examples("", "labelled", columns, np.array([0, 0]), nli).without_duplicates()) == 2
    assert len(Examples("", "labelled", columns, np.array([0, 0]), ("different", "same")).without_duplicates()) == 1
    pairs = {"anchor": ["x", "y"], "positive": ["y", "x"]}
    assert len(Examples("", "pairs", pairs).without_duplicates()) == 1
    assert len(Examples("", "pairs", {**pairs, "negative": ["z", "z"]}).without_duplicates()) == 2
    vectors = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert len(Examples("", "taught", {"text": ["x", "X", "x"]}, vectors).without_duplicates()) == 2


_TEXTS = st.sampled_from(["가", "나", "가 나", "가  나", "A", "a", "Ａ"])


@given(st.lists(st.tuples(_TEXTS, _TEXTS, st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=30))
def test_duplicates_against_brute_force(rows: list[tuple[str, str, float]]) -> None:
    found = scored([(a, b) for a, b, _ in rows], [score for _, _, score in rows])
    kept: list[tuple[str, str, float]] = []
    for a, b, score in rows:
        same = [
            other
            for other in kept
            if other[2] == score
            and {(same_key(a), same_key(b)), (same_key(b), same_key(a))} & {(same_key(other[0]), same_key(other[1]))}
        ]
        if not same:
            kept.append((a, b, score))
    once = found.without_duplicates()
    assert list(zip(once.columns["a"], once.columns["b"], once.targets.tolist(), strict=True)) == kept  # type: ignore[union-attr]
    assert once.without_duplicates().columns == once.columns
    assert once.reading.rows == once.reading.used + sum(once.reading.refused_counts.values())


def test_joining_sets() -> None:
    first, second = scored([("a", "b")], [0.0], "one"), scored([("c", "d")], [1.0], "two")
    both = join([first, second], name="both")
    assert both.columns == {"a": ["a", "c"], "b": ["b", "d"]}
    assert both.targets is not None
    assert both.targets.tolist() == [0.0, 1.0]
    assert (both.reading.rows, both.reading.source) == (2, "one, two")
    groups = join([ranked([0, 0, 2]), ranked([0, 1])], name="ranked").groups
    assert groups is not None
    assert groups.tolist() == [0, 0, 2, 3, 4]
    with pytest.raises(InputError, match="their kind differ"):
        join([first, ranked([0])], name="")


def test_a_reading_adds_up_and_shows_the_first_refusals() -> None:
    one = Reading("x.tsv", 10, 8, (Refused("x.tsv line 3", "score is empty", "가 | 나"),), {"score is empty": 2})
    both = one.plus(Reading("y.tsv", 5, 4, (), {"score is empty": 1}))
    assert str(both) == "15 rows, 12 used, 3 refused: score is empty (3)"
    assert str(Reading("", 5749, 5749)) == "5,749 rows, 5,749 used"
    many = Reading(refused=one.refused * 15).plus(Reading(refused=one.refused * 15))
    assert len(many.refused) == 20
