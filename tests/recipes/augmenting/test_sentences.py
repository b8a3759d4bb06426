"""Sentences: each once, the first spelling, in the order in which they are met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data.examples import Examples
from munjang.data.overlaps import same_key
from munjang.errors import InputError
from munjang.recipes.augmenting.sentences import collect

TEXTS = st.text(alphabet="aAbB 가나ｂ\t.", max_size=4)


def scored(rows: list[tuple[str, str]]) -> Examples:
    a, b = [row[0] for row in rows], [row[1] for row in rows]
    return Examples("gold", "scored", {"a": a, "b": b}, np.zeros(len(rows), np.float32))


def test_first_spelling_and_counts() -> None:
    found = collect(
        [scored([("한 남자가 간다.", "A man walks.")])], ["a  MAN walks.", "", " \t", "새 문장", "한 남자가  간다."]
    )
    assert found.texts == ["한 남자가 간다.", "A man walks.", "새 문장"]
    assert (found.duplicates, found.empty, len(found)) == (2, 2, 3)
    assert found.places_of(["A MAN  WALKS.", "새 문장", "nobody"]).tolist() == [1, 2, -1]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6), st.lists(TEXTS, max_size=8))
def test_as_a_plain_loop(rows: list[tuple[str, str]], texts: list[str]) -> None:
    every = [text for row in rows for text in row] + texts
    expected: dict[str, str] = {}
    for text in every:
        if same_key(text):
            expected.setdefault(same_key(text), text)
    found = collect([scored(rows)], iter(texts))
    assert found.texts == list(expected.values())
    assert found.places_of(every).tolist() == [
        list(expected).index(same_key(text)) if same_key(text) else -1 for text in every
    ]
    assert found.duplicates + found.empty + len(found) == len(every)
    assert collect([], found.texts).hash == found.hash


def test_hash_is_of_texts_and_order() -> None:
    assert collect([], ["가", "나"]).hash != collect([], ["나", "가"]).hash
    assert collect([], ["ab", "c"]).hash != collect([], ["a", "bc"]).hash


def test_progress_counts_every_text() -> None:
    seen: list[int] = []
    collect([], [f"문장 {n}" for n in range(25_000)], progress=lambda done, total: seen.append(done))
    assert seen == [10_000, 20_000, 25_000]


@pytest.mark.parametrize(("texts", "message"), [("one text", "single text"), (["ok", 3], "text 2 .* int"),
                                                (["half \ud800"], "half a surrogate")])  # fmt: skip
def test_refused(texts: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        collect([], texts)  # type: ignore[arg-type]
