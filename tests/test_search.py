"""Search over a list in memory: against brute force, against an index with the same documents, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.index.cutting import Cutter
from munjang.index.index import Index
from munjang.search import TextCollection, search_texts
from munjang.types import Threshold
from munjang.vectors import similarity
from support import small_models

WORDS = ["비가", "온다", "빵", "우산", "rain", "bread", "street", "골목", "냄새를", "people"]
DOCUMENTS = [
    {"id": "rain-ko", "text": "비가 오는 날에 우산 없이 걷다", "kind": "날씨", "year": 2020},
    {"id": "rain-en", "text": "When it rains, people have no umbrella", "kind": "날씨", "year": 2023},
    {"id": "bread-ko", "text": "빵 냄새를 따라 골목 끝까지 갔다", "kind": "음식", "year": 2021},
    {"id": "bread-en", "text": "a bakery at the end of the street", "kind": "음식"},
    {"id": "nothing", "text": "  ", "kind": "음식", "year": 1999},
    {"id": "long", "text": "비 rain 빵 bread " * 40 + "우산", "kind": "긴 글", "year": 2024},
]


@pytest.fixture(scope="module")
def model() -> BiEncoder:
    return small_models.bi_encoder()


@pytest.fixture(scope="module")
def reranker() -> CrossEncoder:
    return small_models.cross_encoder(max_length=90)


@pytest.fixture(scope="module")
def collection(model: BiEncoder) -> TextCollection:
    return TextCollection(DOCUMENTS, model)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=90), max_size=8), st.integers(1, 10))
def test_the_best_passage_of_every_document(words: list[list[str]], k: int) -> None:
    """Against comparing the query with every passage of every text, one text at a time."""
    model = _MODEL
    texts = [" ".join(some) for some in words]
    found = TextCollection(texts, model).search("비가 온다 rain", k, mode="semantic")
    query = model.encode_query(["비가 온다 rain"])
    scores = {}
    for place, spans in enumerate(Cutter.resolve(model.tokenizer, None, None).cut(texts)):
        if spans:
            parts = model.encode_document([texts[place][span.start : span.end] for span in spans])
            scores[str(place)] = float(similarity(query, parts).max())
    best = sorted(scores.values(), reverse=True)[:k]
    assert [hit.score for hit in found] == pytest.approx(best, abs=1e-5)
    for rank, hit in enumerate(found, start=1):
        assert hit.score == pytest.approx(scores[hit.id], abs=1e-5)
        assert hit.text == texts[int(hit.id)]
        assert hit.passage.text == hit.text[hit.passage.start : hit.passage.end]
        assert [(stage.name, stage.rank) for stage in hit.stages] == [("semantic", rank)]


_MODEL = small_models.bi_encoder()


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
@pytest.mark.parametrize("condition", [None, "year>=2021", {"kind": ["음식", "긴 글"]}, "not year exists"])
def test_the_same_answer_as_an_index(
    mode: Any, condition: Any, collection: TextCollection, model: BiEncoder, reranker: CrossEncoder, tmp_path: Path
) -> None:
    queries = ["비가 오면 우산", "a bakery on the street", "빵"]
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        for again in (None, reranker):
            options: dict[str, Any] = {"filter": condition, "mode": mode, "reranker": again, "candidates": 4}
            mine, theirs = collection.search_many(queries, 3, **options), index.search_many(queries, 3, **options)
            for one, other in zip(mine, theirs, strict=True):
                assert one.ids == other.ids
                assert (one.mode, one.scored, one.answered) == (other.mode, other.scored, other.answered)
                for a, b in zip(one, other, strict=True):
                    assert (a.passage, a.text, a.moved, dict(a.metadata)) == (
                        b.passage,
                        b.text,
                        b.moved,
                        dict(b.metadata),
                    )
                    assert [(s.name, s.rank) for s in a.stages] == [(s.name, s.rank) for s in b.stages]
                    assert [s.score for s in a.stages] == pytest.approx([s.score for s in b.stages], abs=1e-5)


def test_reranked(collection: TextCollection, reranker: CrossEncoder) -> None:
    first = collection.search("우산", 5)
    again = collection.search("우산", 2, reranker=reranker)
    scores = reranker.predict([("우산", hit.passage.text) for hit in first])
    order = np.argsort(-scores, kind="stable")[:2]
    assert again.ids == [first[int(place)].id for place in order]
    assert [hit.moved for hit in again] == [int(place) - rank for rank, place in enumerate(order)]
    assert again.scored == 5
    assert set(again.timings) >= {"encode", "search", "rerank", "total"}
    assert again.timings["total"] == pytest.approx(sum(v for name, v in again.timings.items() if name != "total"))
    strict = reranker.with_thresholds({"answer": Threshold(1.0, "answer", "never")})
    assert collection.search("우산", 2, reranker=strict).answered is False
    assert again.answered is None


def test_over_a_list_and_over_an_index(model: BiEncoder, tmp_path: Path) -> None:
    texts = ["비가 온다.", "It is raining.", "빵"]
    assert search_texts(texts, "빵", 1, model=model)[0].text == "빵"
    with Index.create(tmp_path / "i", model) as index:
        index.add([{"id": f"t{place}", "text": text} for place, text in enumerate(texts)])
        assert search_texts(index, "빵", 1).ids == ["t2"]
        with pytest.raises(InputError, match="an index searches with its own model"):
            search_texts(index, "빵", model=model)


def test_few_and_none(model: BiEncoder, collection: TextCollection) -> None:
    assert len(collection) == 6
    assert len(collection.search("비", 100)) == 5  # the empty one is never found
    assert list(TextCollection([], model).search("비")) == []
    assert list(TextCollection(["", " \n"], model).search("비", mode="semantic")) == []
    assert collection.search_many([]) == []


@pytest.mark.parametrize("times", [2_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_a_long_text(times: int, model: BiEncoder) -> None:
    """The last passage of many is found: of 38 thousand characters, and of a megabyte."""
    text = "비가 온다 it rains " * times + "우산 umbrella bakery"
    found = TextCollection([text, "빵"], model).search("우산 umbrella bakery", 1)[0]
    assert found.id == "0"
    assert found.passage.text == text[found.passage.start : found.passage.end]


def test_what_is_refused(model: BiEncoder, collection: TextCollection, reranker: CrossEncoder) -> None:
    for arguments, message in (
        ({"query": ""}, "empty"),
        ({"query": ["a"]}, "query must be one text, got list"),
        ({"query": "a", "k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"query": "a", "mode": "fuzzy"}, "mode must be one of"),
        ({"query": "a", "filter": "colour=red"}, "no document has the field 'colour'; the fields are: 'kind', 'year'"),
        ({"query": "a", "filter": "kind="}, "expected a value"),
        ({"query": "a", "reranker": "munjang-rerank-ko-en"}, "reranker must be"),
        ({"query": "a", "reranker": small_models.cross_encoder(labels=3)}, "3 labels"),
    ):
        with pytest.raises(InputError, match=message):
            collection.search(**cast(Any, arguments))
    with pytest.raises(InputError, match="got a single text"):
        collection.search_many("비")
    for documents, message in (
        ("비", "documents must be a list"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "documents 0 and 1 have the same id 'a'"),
        ([{"id": 1, "text": "x"}, "y"], "documents 0 and 1 have the same id '1'"),
        ([{"txt": "x"}], "document 0 has no 'text'"),
        (["x", None], "document 1 must be a text or a dict"),
    ):
        with pytest.raises(InputError, match=message):
            TextCollection(cast(Any, documents), model)
