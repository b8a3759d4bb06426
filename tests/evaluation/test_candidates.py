"""Lexical candidates: like-lettered documents, always one that is right, no hint in the order."""

from __future__ import annotations

import numpy as np
import pytest

from munjang.data.examples import Retrieval
from munjang.errors import InputError
from munjang.evaluation import RerankingEvaluator, lexical_lists

CORPUS = {
    "d0": "서울의 겨울은 춥고 눈이 자주 온다.",
    "d1": "부산의 여름은 덥고 바다가 있다.",
    "d2": "김치찌개는 돼지고기와 김치로 끓인다.",
    "d3": "The stock market fell sharply.",
    "d4": "Guitar lessons for beginners.",
    "d5": "완전히 다른 이야기.",
}


def retrieval(relevant: dict[str, dict[str, int]]) -> Retrieval:
    return Retrieval("r", {"q0": "서울 겨울 날씨", "q1": "김치찌개 끓이는 법"}, CORPUS, relevant)


def test_what_reads_alike_is_near() -> None:
    lists = lexical_lists(retrieval({"q0": {"d0": 1}, "q1": {"d2": 2}}), size=2, name="ours")
    assert (lists.name, lists.kind, len(lists)) == ("ours", "ranked", 4)
    assert lists.targets.reshape(2, 2).sum(axis=1).tolist() == [1, 2]
    assert CORPUS["d0"] in lists.columns["document"][:2]
    RerankingEvaluator(lists)


def test_a_right_one_is_always_there_and_grades_stay() -> None:
    lists = lexical_lists(retrieval({"q0": {"d3": 1, "d4": 3}, "q1": {"d1": 0}}), size=2)
    assert len(lists) == 2  # q1 has nothing to find
    assert lists.targets.max() == 3
    assert CORPUS["d4"] in lists.columns["document"]


def test_the_right_one_does_not_always_stand_at_one_place() -> None:
    corpus = {f"d{i}": f"문서 {i} 번입니다" for i in range(60)}
    queries = {f"q{i}": f"문서 {i} 번" for i in range(40)}
    data = Retrieval("many", queries, corpus, {f"q{i}": {f"d{i}": 1} for i in range(40)})
    lists = lexical_lists(data, size=5, queries=30)
    places = np.flatnonzero(lists.targets) % 5
    assert len(places) == 30
    assert len(set(places.tolist())) == 5
    again = lexical_lists(data, size=5, queries=30)
    assert again.columns == lists.columns
    with pytest.raises(InputError, match="size"):
        lexical_lists(data, size=1)
