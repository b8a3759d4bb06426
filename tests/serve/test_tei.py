"""The routes of text-embeddings-inference, and /rerank in both shapes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from munjang import vectors
from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings
from support.small_models import TEXTS, bi_encoder, cross_encoder

QUERY = "비 오는 날 rain"
PAIRS = [[TEXTS[0], TEXTS[1]], [TEXTS[2], TEXTS[4]]]


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms.open({"bi": bi_encoder()}, {"score": cross_encoder(), "labels": cross_encoder(labels=3)})


@pytest.fixture(scope="module")
def client(rooms: Rooms) -> Iterator[TestClient]:
    settings = ServeSettings(limits=Limits(batch=20))
    with TestClient(create_app(settings, rooms=rooms), base_url="http://127.0.0.1") as made:
        yield made


def ask(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_embed(client: TestClient, rooms: Rooms) -> None:
    model = rooms.bi().model
    np.testing.assert_allclose(
        ask(client, "/embed", inputs=TEXTS[:4]), model.encode(TEXTS[:4], normalize=True), atol=2e-6
    )
    bare = ask(client, "/embed", inputs=TEXTS[0], normalize=False, truncate=True, truncation_direction="Right")
    np.testing.assert_allclose(bare, model.encode([TEXTS[0]]), atol=2e-6)
    cut = ask(client, "/embed", inputs=TEXTS[:2], dimensions=4)
    np.testing.assert_allclose(cut, vectors.normalize(model.encode(TEXTS[:2])[:, :4]), atol=2e-6)


def test_embed_all(client: TestClient, rooms: Rooms) -> None:
    found = ask(client, "/embed_all", inputs=TEXTS[:3])
    pooled = np.stack([np.mean(rows, axis=0) for rows in found])
    np.testing.assert_allclose(pooled, rooms.bi().model.encode(TEXTS[:3]), atol=2e-6)


def test_sparse_vectors_are_not_offered(client: TestClient) -> None:
    answer = client.post("/embed_sparse", json={"inputs": "a"})
    assert answer.status_code == 422
    assert "not offered" in answer.json()["error"]


@pytest.mark.parametrize("raw", [False, True])
def test_rerank_with_texts(client: TestClient, rooms: Rooms, raw: bool) -> None:
    found = ask(client, "/rerank", query=QUERY, texts=TEXTS[:4], raw_scores=raw, return_text=True)
    scores = rooms.reranker().model.predict([(QUERY, text) for text in TEXTS[:4]], raw=raw)
    order = np.argsort(-scores, kind="stable")
    assert [row["index"] for row in found] == order.tolist()
    np.testing.assert_allclose([row["score"] for row in found], scores[order], atol=2e-6)
    assert [row["text"] for row in found] == [TEXTS[place] for place in order]
    assert "text" not in ask(client, "/rerank", query=QUERY, texts=["빵"])[0]


def test_rerank_with_documents_on_the_same_path(client: TestClient, rooms: Rooms) -> None:
    found = ask(client, "/rerank", query=QUERY, documents=TEXTS[:4], top_n=2, return_documents=True, model="score")
    best = rooms.reranker().model.rank(QUERY, TEXTS[:4], 2)
    assert [(row["index"], row["document"]["text"]) for row in found["results"]] == [(b.index, b.text) for b in best]
    np.testing.assert_allclose([r["relevance_score"] for r in found["results"]], [b.score for b in best], atol=2e-6)
    assert found["usage"]["total_tokens"] > 0
    assert found["model"] == "score"


def test_predict(client: TestClient, rooms: Rooms) -> None:
    model = rooms.reranker("labels").model
    expected = torch.softmax(torch.from_numpy(model.predict([tuple(p) for p in PAIRS], raw=True)), 1).numpy()
    several = ask(client, "/predict", inputs=PAIRS, model="labels")
    for row, truth in zip(several, expected, strict=True):
        assert [one["label"] for one in row] == [model.labels[place] for place in np.argsort(-truth)]
        np.testing.assert_allclose([one["score"] for one in row], np.sort(truth)[::-1], atol=2e-6)
    single = ask(client, "/predict", inputs=PAIRS[0], model="labels")
    assert [one["label"] for one in single] == [one["label"] for one in several[0]]
    assert single[0]["score"] == pytest.approx(several[0][0]["score"], abs=2e-6)
    raw = ask(client, "/predict", inputs=PAIRS[0], raw_scores=True)
    assert raw[0]["score"] == pytest.approx(
        float(rooms.reranker().model.predict([tuple(PAIRS[0])], raw=True)[0]), abs=2e-6
    )


def test_similarity(client: TestClient, rooms: Rooms) -> None:
    found = ask(client, "/similarity", inputs={"source_sentence": TEXTS[0], "sentences": TEXTS[1:5]})
    model = rooms.bi().model
    expected = vectors.similarity(model.encode(TEXTS[:1]), model.encode(TEXTS[1:5]))[0]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_tokenize_and_decode(client: TestClient, rooms: Rooms) -> None:
    text = "비가 온다. it is raining."
    (tokens,) = ask(client, "/tokenize", inputs=text)
    encoding = rooms.bi().model.tokenizer.backend.encode(text)
    assert [token["id"] for token in tokens] == encoding.ids
    assert tokens[0]["special"]
    assert tokens[0]["start"] is None
    first = tokens[1]
    assert text[first["start"] : first["stop"]] == unicodedata.normalize("NFC", first["text"]) == "비"
    (bare,) = ask(client, "/tokenize", inputs=[text], add_special_tokens=False)
    assert [token["id"] for token in bare] == encoding.ids[1:-1]
    ids = [token["id"] for token in tokens]
    assert ask(client, "/decode", ids=ids) == ask(client, "/decode", ids=[ids])
    backend = rooms.bi().model.tokenizer.backend
    assert ask(client, "/decode", ids=ids, skip_special_tokens=False) == [
        backend.decode(ids, skip_special_tokens=False)
    ]


def test_headers(client: TestClient) -> None:
    headers = client.post("/embed", json={"inputs": ["a", TEXTS[-1]]}).headers
    assert headers["x-compute-tokens"] == str(3 + 64)
    assert headers["x-truncated"] == "1"
    for name in ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"):
        assert float(headers[name]) >= 0


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/embed", {"inputs": []}, 400, "no texts"),
        ("/embed", {"inputs": ["a", None]}, 422, "inputs"),
        ("/embed", {"inputs": ["a"] * 21}, 413, "20"),
        ("/embed", {"inputs": [TEXTS[-1]], "truncate": False}, 413, "the model reads 64"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "on the right"),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "prompt_name must be one of"),
        ("/embed", {"inputs": "a", "model": "score"}, 404, "there are: 'bi'"),
        ("/embed_all", {"inputs": []}, 400, "no texts"),
        ("/rerank", {"query": "a"}, 422, "documents"),
        ("/rerank", {"query": "a", "texts": []}, 400, "no texts"),
        ("/rerank", {"query": "a", "texts": [TEXTS[-1]], "truncate": False}, 413, "the model reads 64"),
        ("/rerank", {"query": "a", "texts": ["b"], "model": "labels"}, 422, "not one score"),
        ("/rerank", {"texts": ["b"]}, 422, "query"),
        ("/rerank", [1], 422, ""),
        ("/predict", {"inputs": "a"}, 422, "two texts"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "two texts"),
        ("/predict", {"inputs": [["a", "b"], ["a"]]}, 422, "pair 1"),
        ("/predict", {"inputs": []}, 400, "no pairs"),
        ("/tokenize", {"inputs": []}, 400, "no texts"),
        ("/tokenize", {"inputs": "a", "prompt_name": "nobody"}, 422, "prompt_name"),
        ("/decode", {"ids": []}, 400, "no token ids"),
        ("/decode", {"ids": [-1]}, 422, "token ids must be"),
        ("/decode", {"ids": [[1], 2]}, 422, "ids"),
    ],
)
def test_bad_requests_are_told(client: TestClient, path: str, body: Any, status: int, says: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "error_type"}
    assert says in answer.json()["error"]
