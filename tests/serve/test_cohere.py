"""/v1/rerank and /v2/rerank over a small cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings
from support.small_models import TEXTS, bi_encoder, cross_encoder

QUERY = "비 오는 날 rain"
LIMITS = Limits(batch=20, query_characters=50)


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms.open({"bi": bi_encoder()}, {"score": cross_encoder(), "labels": cross_encoder(labels=3)})


@pytest.fixture(scope="module")
def client(rooms: Rooms) -> Iterator[TestClient]:
    with TestClient(create_app(ServeSettings(limits=LIMITS), rooms=rooms), base_url="http://127.0.0.1") as made:
        yield made


@pytest.mark.parametrize("version", ["1", "2"])
def test_documents_in_the_order_of_their_scores(client: TestClient, rooms: Rooms, version: str) -> None:
    documents = TEXTS[:4]
    answer = client.post(f"/v{version}/rerank", json={"query": QUERY, "documents": documents, "model": "score"})
    assert answer.status_code == 200
    found = answer.json()
    expected = rooms.reranker().model.rank(QUERY, documents)
    assert [row["index"] for row in found["results"]] == [row.index for row in expected]
    np.testing.assert_allclose(
        [row["relevance_score"] for row in found["results"]], [row.score for row in expected], atol=2e-6
    )
    assert found["meta"]["api_version"] == {"version": version}
    assert found["id"]
    assert all(set(row) == {"index", "relevance_score"} for row in found["results"])


def test_top_n_and_documents_given_back(client: TestClient, rooms: Rooms) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1], "source": "책"}, {"text": TEXTS[2]}]
    body = {"query": QUERY, "documents": documents, "top_n": 2, "return_documents": True}
    found = client.post("/v1/rerank", json=body).json()["results"]
    assert len(found) == 2
    best = rooms.reranker().model.rank(QUERY, TEXTS[:3], 2)
    assert [row["index"] for row in found] == [row.index for row in best]
    for row in found:
        given = documents[row["index"]]
        assert row["document"] == ({"text": given} if isinstance(given, str) else given)


def test_equal_scores_keep_their_order(client: TestClient) -> None:
    found = client.post("/v2/rerank", json={"query": QUERY, "documents": ["빵"] * 5}).json()["results"]
    assert [row["index"] for row in found] == list(range(5))


def test_fields_of_objects(client: TestClient, rooms: Rooms) -> None:
    body = {"query": QUERY, "documents": [{"title": "비", "body": "rain"}], "rank_fields": ["title", "body"]}
    found = client.post("/v1/rerank", json=body).json()["results"]
    expected = rooms.reranker().model.predict([(QUERY, "비\nrain")])
    assert found[0]["relevance_score"] == pytest.approx(float(expected[0]), abs=2e-6)


def test_documents_are_cut_after_so_many_tokens(client: TestClient, rooms: Rooms) -> None:
    body = {"query": QUERY, "documents": ["비 빵 rain bread a", "비"], "max_tokens_per_doc": 2}
    found = {row["index"]: row["relevance_score"] for row in client.post("/v2/rerank", json=body).json()["results"]}
    tokenizer = rooms.reranker().model.tokenizer
    cut = next(text for n in range(1, 20) if len(tokenizer.bodies([text := "비 빵 rain bread a"[:n]])[0]) == 2)
    expected = rooms.reranker().model.predict([(QUERY, cut), (QUERY, "비")])
    np.testing.assert_allclose([found[0], found[1]], expected, atol=2e-6)


def test_cut_pairs_are_told(client: TestClient) -> None:
    answer = client.post("/v2/rerank", json={"query": QUERY, "documents": [TEXTS[-1], "빵"]})
    assert answer.json()["meta"]["warnings"] == ["1 pairs were longer than 64 tokens and were cut"]
    assert answer.headers["X-Truncated"] == "1"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": QUERY, "documents": []}, 400, "no documents"),
        ({"query": QUERY}, 422, "documents"),
        ({"documents": ["a"]}, 422, "query"),
        ({"query": QUERY, "documents": [1]}, 422, "documents"),
        ({"query": QUERY, "documents": [{"title": "a"}]}, 422, "document 0 has no text in 'text'"),
        ({"query": QUERY, "documents": ["a"], "top_n": 0}, 422, "top_n"),
        ({"query": QUERY, "documents": ["a"], "model": "bi"}, 404, "there are: 'score', 'labels'"),
        ({"query": QUERY, "documents": ["a"], "model": "labels"}, 422, "not one score"),
        ({"query": QUERY, "documents": ["a"] * 21}, 413, "20"),
        ({"query": "a" * 51, "documents": ["a"]}, 413, "50 characters"),
    ],
)
def test_bad_requests_are_told_in_coheres_shape(
    client: TestClient, body: dict[str, object], status: int, says: str
) -> None:
    for version in "12":
        answer = client.post(f"/v{version}/rerank", json=body)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == {"message"}
        assert says in answer.json()["message"]
