"""One kind of examples from another: only true positives, and an account of what was left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import (
    NLI_LABELS,
    Examples,
    labelled_to_scored,
    nli_pairs,
    nli_triplets,
    scored_to_labelled,
    scored_to_pairs,
)
from munjang.data.overlaps import normalise
from munjang.errors import InputError

E, N, C = 0, 1, 2


def nli(*rows: tuple[str, str, int]) -> Examples:
    columns = {"a": [a for a, _, _ in rows], "b": [b for _, b, _ in rows]}
    return Examples("nli", "labelled", columns, np.array([label for _, _, label in rows], dtype=np.int64), NLI_LABELS)


def rows_of(examples: Examples) -> list[tuple[str, ...]]:
    return list(zip(*examples.columns.values(), strict=True))


RAIN = (
    ("비가 온다", "날씨가 궂다", E),
    ("비가 온다", "하늘이 맑다", C),
    ("비가 온다", "그는 우산이 있다", N),
    ("비가 온다", "물이 떨어진다", E),
)


def test_pitfall_neutral_and_contradiction_are_never_positives() -> None:
    """A notebook fed all three classes of NLI to MNRL, which takes every second sentence for a paraphrase."""
    triplets = nli_triplets(nli(*RAIN))
    assert rows_of(triplets) == [
        ("비가 온다", "날씨가 궂다", "하늘이 맑다"),
        ("비가 온다", "물이 떨어진다", "하늘이 맑다"),
    ]
    assert triplets.reading.refused_counts == {"neutral": 1}
    pairs = nli_pairs(nli(*RAIN))
    assert rows_of(pairs) == [("비가 온다", "날씨가 궂다"), ("비가 온다", "물이 떨어진다")]
    assert pairs.reading.refused_counts == {"neutral": 1, "contradiction": 1}
    assert str(pairs.reading).endswith("2 of anchor / positive made of them")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("pqr"), st.sampled_from(["p", "P.", "x", "X!", "y", "z"]), st.sampled_from([E, N, C])
        ),
        min_size=1,
        max_size=25,
    )
)
def test_pitfall_every_positive_is_an_entailment_and_every_negative_a_contradiction(
    rows: list[tuple[str, str, int]],
) -> None:
    said = {(a, normalise(b), label) for a, b, label in rows}
    good = {(a, b) for a, b, label in said if label == E and a != b and (a, b, C) not in said}
    bad = {(a, b) for a, b, label in said if label == C and a != b and (a, b, E) not in said}
    if not good:
        with pytest.raises(InputError, match="not one entailment"):
            nli_pairs(nli(*rows))
        return
    pairs = nli_pairs(nli(*rows))
    assert {(a, normalise(b)) for a, b in rows_of(pairs)} == good
    reading = pairs.reading
    assert reading.rows == reading.used + sum(reading.refused_counts.values()) == len(rows)
    if bad:
        triplets = nli_triplets(nli(*rows))
        both = {a for a, _ in good} & {a for a, _ in bad}
        assert {(a, normalise(p)) for a, p, _ in rows_of(triplets)} == {pair for pair in good if pair[0] in both}
        assert {(a, normalise(n)) for a, _, n in rows_of(triplets)} == {pair for pair in bad if pair[0] in both}
        counted = triplets.reading
        assert counted.rows == counted.used + sum(counted.refused_counts.values())


def test_both_directions() -> None:
    triplets = nli_triplets(nli(*RAIN[:2]), both_directions=True)
    assert rows_of(triplets) == [
        ("비가 온다", "날씨가 궂다", "하늘이 맑다"),
        ("날씨가 궂다", "비가 온다", "하늘이 맑다"),
    ]
    assert rows_of(nli_pairs(nli(RAIN[0]), both_directions=True)) == [
        ("비가 온다", "날씨가 궂다"),
        ("날씨가 궂다", "비가 온다"),
    ]


def test_a_premise_without_a_contradiction_is_left_out_or_borrows_one() -> None:
    rows = (*RAIN[:2], ("해가 뜬다", "아침이다", E))
    left = nli_triplets(nli(*rows))
    assert len(left) == 1
    assert left.reading.refused_counts == {"entailment without a contradiction": 1}
    borrowed = nli_triplets(nli(*rows), without_negative="borrow")
    assert rows_of(borrowed)[1] == ("해가 뜬다", "아침이다", "하늘이 맑다")
    impossible = (*RAIN[:2], ("해가 뜬다", "하늘이 맑다.", E))
    with pytest.raises(InputError, match="no negative can be borrowed"):
        nli_triplets(nli(*impossible), without_negative="borrow")
    with pytest.raises(InputError, match="'leave out' or 'borrow'"):
        nli_triplets(nli(*rows), without_negative="drop")  # type: ignore[arg-type]


def test_one_class_alone_makes_no_triplets() -> None:
    with pytest.raises(InputError, match="not one entailment"):
        nli_triplets(nli(("가", "나", C), ("가", "다", N)))
    with pytest.raises(InputError, match=r"not one contradiction.*nli_pairs"):
        nli_triplets(nli(("가", "나", E)))
    with pytest.raises(InputError, match="expected the labels entailment"):
        nli_pairs(Examples("", "labelled", {"a": ["x"], "b": ["y"]}, np.array([1]), ("different", "same")))


def test_pitfall_a_sentence_is_never_its_own_positive() -> None:
    """(a, a) teaches nothing, and in a batch it makes every other pair look wrong."""
    found = nli_pairs(nli(("비가 온다.", "비가 온다", E), *RAIN))
    assert ("비가 온다.", "비가 온다") not in rows_of(found)
    assert found.reading.refused_counts["a sentence paired with itself"] == 1
    scored = Examples("s", "scored", {"a": ["Rain!", "a"], "b": ["rain", "b"]}, np.array([1.0, 0.9]))
    pairs = scored_to_pairs(scored, 0.8)
    assert rows_of(pairs) == [("a", "b")]
    assert pairs.reading.refused_counts == {"a sentence paired with itself": 1}


def test_what_is_entailed_and_contradicted_at_once_is_left_out() -> None:
    found = nli_pairs(nli(*RAIN, ("비가 온다", "날씨가 궂다!", C)))
    assert rows_of(found) == [("비가 온다", "물이 떨어진다")]
    assert found.reading.refused_counts["entailment and contradiction at once"] == 2


def test_scores_to_pairs_and_labels_and_back() -> None:
    scores = np.array([0.0, 0.6, 0.8, 1.0], dtype=np.float32)
    scored = Examples("s", "scored", {"a": list("abcd"), "b": list("efgh")}, scores)
    assert rows_of(scored_to_pairs(scored, 0.6)) == [("b", "f"), ("c", "g"), ("d", "h")]
    labelled = scored_to_labelled(scored, 0.8)
    assert (labelled.labels, labelled.targets.tolist()) == (("different", "same"), [0, 0, 1, 1])  # type: ignore[union-attr]
    assert labelled_to_scored(labelled).targets.tolist() == [0.0, 0.0, 1.0, 1.0]  # type: ignore[union-attr]
    turned = labelled_to_scored(labelled, positive="different")
    assert turned.targets.tolist() == [1.0, 1.0, 0.0, 0.0]  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"no score reaches the threshold 1\.5; the highest is 1"):
        scored_to_pairs(scored, 1.5)
    with pytest.raises(InputError, match="expected two labels"):
        labelled_to_scored(nli(*RAIN))
    with pytest.raises(InputError, match="expected examples of kind 'scored', got 'labelled'"):
        scored_to_pairs(labelled, 0.5)
