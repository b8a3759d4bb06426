"""Comparing and grouping over HTTP, against the same calls of the library; and sentences."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from munjang.serve.sentences import LONGEST, SentenceFinder, split
from munjang.tasks.cluster import cluster
from support.indexed import DOCUMENTS, bi_encoder, make_index, service, settings_for

TEXTS = ["비가 온다.", "It is raining.", "빵 냄새", "bread and bakery", "비 오는 날", "a rainy day", "우산", "umbrella"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("tools")
    with service(settings_for(make_index(folder / "sample"), make_index(folder / "empty", []))) as client:
        yield client


def test_two_lists_are_compared_as_the_library_does(client: TestClient) -> None:
    model = bi_encoder()
    scores = client.post("/similarity", json={"a": TEXTS[:3], "b": TEXTS[3:]}).json()["scores"]
    assert np.allclose(scores, model.similarity(model.encode(TEXTS[:3]), model.encode(TEXTS[3:])), atol=1e-5)
    answer = client.post("/similarity", json={"a": TEXTS}).json()
    assert answer["unrelated"] < answer["same"] == pytest.approx(1, abs=1e-5)
    scores = answer["scores"]
    assert np.allclose(scores, model.similarity(TEXTS, TEXTS), atol=1e-5)


def test_the_body_of_tei_is_answered_as_tei_does(client: TestClient) -> None:
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}
    model = bi_encoder()
    wanted = model.similarity(model.encode(TEXTS[:1]), model.encode(TEXTS[1:]))[0]
    assert np.allclose(client.post("/similarity", json=body).json(), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"a": []}, 400),
        ({"a": ["x"], "b": []}, 422),
        ({"a": "x"}, 422),
        ({"a": [1]}, 422),
        ({"a": ["x"] * 2000}, 413),
        ({"a": ["x"], "model": "nobody"}, 404),
        ({"inputs": {"source_sentence": "x"}}, 422),
        ({}, 422),
    ],
)
def test_what_cannot_be_compared(client: TestClient, body: Any, status: int) -> None:
    assert client.post("/similarity", json=body).status_code == status


@pytest.mark.parametrize(
    "more", [{"method": "kmeans", "k": 3}, {"method": "communities", "threshold": 0.5, "min_size": 2}]
)
def test_texts_are_grouped_as_the_library_does(client: TestClient, more: dict[str, Any]) -> None:
    answer = client.post("/cluster", json={"texts": TEXTS, **more})
    assert answer.status_code == 200, answer.text
    wanted = cluster(bi_encoder().encode_document(TEXTS), **more)
    found = answer.json()
    assert [one["members"] for one in found["clusters"]] == [one.members.tolist() for one in wanted]
    assert found["texts"] == 8
    assert found["unassigned"] == int((wanted.labels < 0).sum())
    for one in found["clusters"]:
        assert one["representative"]["text"] == TEXTS[one["representative"]["id"]]
        assert one["size"] == len(one["members"])


def test_an_index_is_grouped_by_its_documents(client: TestClient) -> None:
    found = client.post("/cluster", json={"index": "sample", "k": 4}).json()
    members = [id for one in found["clusters"] for id in one["members"]]
    assert sorted(members) == sorted(document["id"] for document in DOCUMENTS)
    assert all(one["keywords"] for one in found["clusters"])
    part = client.post("/cluster", json={"index": "sample", "k": 2, "limit": 10}).json()
    assert part["texts"] == 10


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"texts": TEXTS, "index": "sample"}, 422, "not both"),
        ({"texts": []}, 400, "no texts"),
        ({"index": "empty"}, 422, "no documents"),
        ({"index": "nowhere"}, 404, "sample"),
        ({"texts": TEXTS, "k": 9}, 422, "1..8"),
        ({"texts": TEXTS, "k": 2, "threshold": 0.5}, 422, "threshold"),
        ({"texts": TEXTS, "method": "communities"}, 422, "threshold"),
        ({"index": "sample", "limit": 10**9}, 413, "20,000"),
        ({"texts": TEXTS, "threshold": 7}, 422, "threshold"),
    ],
)
def test_what_cannot_be_grouped(client: TestClient, body: Any, status: int, words: str) -> None:
    answer = client.post("/cluster", json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]


# --- sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("비가 온다. 우산이 없다!", ["비가 온다.", "우산이 없다!"]),
        ("Dr. Kim left. She was late.", ["Dr. Kim left.", "She was late."]),
        ('"갔니?" 하고 물었다. 대답이 없었다.', ['"갔니?"', "하고 물었다.", "대답이 없었다."]),
        ("It costs 3.50 today. Really?", ["It costs 3.50 today.", "Really?"]),
        ("1. First item\n2. Second item", ["1. First item", "2. Second item"]),
        ("See J. R. Smith, e.g. this. Then go.", ["See J. R. Smith, e.g. this.", "Then go."]),
        ("줄 하나\n줄 둘\n\n줄 셋", ["줄 하나", "줄 둘", "줄 셋"]),
        ("no mark at all", ["no mark at all"]),
        ("정말?! 그래…  응.", ["정말?!", "그래…", "응."]),
        ("   \n ", []),
        ("", []),
    ],
)
def test_sentences_of_both_languages(text: str, sentences: list[str]) -> None:
    assert [text[span.start : span.end] for span in split(text)] == sentences


@given(st.text(alphabet="가나 ab.!?\n,\"'1", max_size=1200))
def test_sentences_cover_everything_but_space_in_order(text: str) -> None:
    spans = split(text)
    assert "".join(text[span.start : span.end] for span in spans).replace(" ", "").replace("\n", "") == text.replace(
        " ", ""
    ).replace("\n", "")
    assert all(span.start < span.end <= span.start + LONGEST for span in spans)
    assert all(first.end <= second.start for first, second in itertools.pairwise(spans))


def test_sentences_are_encoded_once_and_forgotten_when_there_are_too_many() -> None:
    asked: list[list[str]] = []

    async def encode(texts: list[str]) -> np.ndarray:
        asked.append(texts)
        return np.array([[float("빵" in text), float("비" in text)] for text in texts], np.float32)

    finder = SentenceFinder(encode, "dot", kept=2)
    passages = ["비가 온다. 빵을 굽는다.", "하나뿐이다", "  "]
    query = np.array([1.0, 0.0], np.float32)
    first = asyncio.run(finder.nearest(query, passages))
    assert [None if span is None else passages[place][span.start : span.end] for place, span in enumerate(first)] == [
        "빵을 굽는다.",
        "하나뿐이다",
        None,
    ]
    assert asyncio.run(finder.nearest(query, passages)) == first
    assert asked == [["비가 온다.", "빵을 굽는다."]]
    asyncio.run(finder.nearest(query, ["One. Two."]))
    asyncio.run(finder.nearest(query, passages))
    assert len(asked) == 3
