"""/v1/embeddings and /v1/models over a small model."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tokenizers import decoders

from munjang import vectors
from munjang.nn.heads import Normalize
from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings
from support.small_models import TEXTS, bi_encoder, cross_encoder

LIMITS = Limits(batch=20, tokens=400)


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    first, second = bi_encoder("bert", None, Normalize()), bi_encoder("electra")
    first.tokenizer.backend.decoder = decoders.WordPiece()
    models = {"first": first, "second": second}
    return Rooms.open(models, {"ranker": cross_encoder()}, limits=LIMITS)


@pytest.fixture(scope="module")
def client(rooms: Rooms) -> Iterator[TestClient]:
    with TestClient(create_app(ServeSettings(limits=LIMITS), rooms=rooms), base_url="http://127.0.0.1") as made:
        yield made


def rows_of(answer: dict[str, list[dict[str, object]]]) -> np.ndarray:
    return np.array([row["embedding"] for row in answer["data"]], np.float32)


@pytest.mark.parametrize("name", ["first", "second"])
def test_vectors_of_texts(client: TestClient, rooms: Rooms, name: str) -> None:
    texts = TEXTS[:5]
    answer = client.post("/v1/embeddings", json={"input": texts, "model": name, "user": "누구"})
    assert answer.status_code == 200
    found = answer.json()
    model = rooms.bi(name).model
    np.testing.assert_allclose(rows_of(found), model.encode(texts), atol=2e-6)
    assert [row["index"] for row in found["data"]] == list(range(5))
    tokens = model.encode_report(texts).report.tokens
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (found["object"], found["model"], found["truncated"]) == ("list", name, 0)
    assert {row["object"] for row in found["data"]} == {"embedding"}


def test_one_text_and_the_default_model(client: TestClient, rooms: Rooms) -> None:
    found = client.post("/v1/embeddings", json={"input": "비가 온다."}).json()
    assert found["model"] == "first"
    np.testing.assert_allclose(rows_of(found), rooms.bi().model.encode(["비가 온다."]), atol=2e-6)


def test_base64_holds_the_same_numbers(client: TestClient) -> None:
    plain = client.post("/v1/embeddings", json={"input": TEXTS[:3]}).json()
    packed = client.post("/v1/embeddings", json={"input": TEXTS[:3], "encoding_format": "base64"}).json()
    rows = np.stack([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in packed["data"]])
    np.testing.assert_array_equal(rows, rows_of(plain))


def test_dimensions(client: TestClient, rooms: Rooms) -> None:
    found = rows_of(client.post("/v1/embeddings", json={"input": TEXTS[:3], "dimensions": 6}).json())
    np.testing.assert_allclose(found, vectors.normalize(rooms.bi().model.encode(TEXTS[:3])[:, :6]), atol=2e-6)
    refused = client.post("/v1/embeddings", json={"input": "a", "dimensions": 4096})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "dimensions"


def test_token_ids_are_the_models_own(client: TestClient, rooms: Rooms) -> None:
    tokenizer = rooms.bi().model.tokenizer
    ids = [tokenizer.backend.encode(text).ids for text in ("비가 온다.", "it is raining.")]
    for given in (ids, ids[0]):
        found = rows_of(client.post("/v1/embeddings", json={"input": given}).json())
        texts = ["비가 온다.", "it is raining."][: len(found)]
        np.testing.assert_allclose(found, rooms.bi().model.encode(texts), atol=2e-6)
    refused = client.post("/v1/embeddings", json={"input": [[1, 100_000]]})
    assert refused.status_code == 422
    assert "check_embedding_ctx_length=False" in refused.json()["error"]["message"]


def test_truncation_is_told(client: TestClient) -> None:
    answer = client.post("/v1/embeddings", json={"input": [TEXTS[-1], "a", TEXTS[-1]]})
    assert answer.json()["truncated"] == 2
    assert answer.headers["X-Truncated"] == "2"


def test_headers_say_where_the_time_went(client: TestClient) -> None:
    headers = client.post("/v1/embeddings", json={"input": "a"}).headers
    parts = [float(headers[f"X-{name}-Time"]) for name in ("Tokenization", "Queue", "Inference")]
    assert min(parts) >= 0
    assert sum(parts) <= float(headers["X-Total-Time"]) + 0.05
    assert headers["X-Compute-Tokens"] == "3"
    assert headers["X-Compute-Type"] == "cpu"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"input": []}, 400, "no texts"),
        ({"input": [[]]}, 400, "empty"),
        ({}, 422, "input"),
        ({"input": None}, 422, "input"),
        ({"input": ["a", 1]}, 422, "input"),
        ({"input": {"a": 1}}, 422, "input"),
        ({"input": [True]}, 422, "input"),
        ({"input": "a", "encoding_format": "hex"}, 422, "encoding_format"),
        ({"input": "a", "dimensions": 0}, 422, "dimensions"),
        ({"input": "a", "model": "gpt"}, 404, "there are: 'first', 'second'"),
        ({"input": ["a"] * 21}, 413, "20"),
        ({"input": [f"{n} " * 30 for n in range(20)]}, 413, "400 tokens"),
    ],
)
def test_bad_requests_are_told_in_openais_shape(
    client: TestClient, body: dict[str, object], status: int, says: str
) -> None:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert says in error["message"]


def test_models(client: TestClient) -> None:
    found = client.get("/v1/models").json()
    assert [row["id"] for row in found["data"]] == ["first", "second", "ranker"]
    assert all(row["object"] == "model" and row["created"] <= time.time() for row in found["data"])
    assert client.get("/v1/models/second").json()["id"] == "second"
    missing = client.get("/v1/models/gpt")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_a_service_that_is_not_ready_says_so() -> None:
    rooms = Rooms(LIMITS)
    app = create_app(ServeSettings(models={"a": "/there/is/no/such/folder"}, limits=LIMITS), rooms=rooms)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        until = time.monotonic() + 10
        while app.state.failure is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        answer = client.post("/v1/embeddings", json={"input": "a"})
        assert answer.status_code == 503
        assert "/there/is/no/such/folder" in answer.json()["error"]["message"]
