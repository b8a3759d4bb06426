"""Alive, ready, numbers, what is here; and request ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from munjang.serve.app import create_app
from munjang.serve.settings import ServeSettings
from support.indexed import make_index, service, settings_for


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    settings = settings_for(make_index(tmp_path_factory.mktemp("health") / "sample"), examples=("비 오는 날",))
    with service(settings) as client:
        yield client


def test_alive_but_not_ready_before_the_models_are_there(tmp_path: Path) -> None:
    client = TestClient(create_app(ServeSettings(page=False)))  # not started: nothing is loaded
    assert client.get("/health").status_code == 200
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["error_type"] == "unhealthy"
    for path in ("/indexes", "/documents/x/y", "/indexes/x/map"):
        assert client.get(path).status_code == 503
    assert client.post("/search", json={"query": "x"}).status_code == 503
    assert client.post("/v1/embeddings", json={"input": "x"}).status_code == 503


def test_what_is_here(client: TestClient) -> None:
    told = client.get("/info").json()
    assert told["model_id"] == "tiny"
    assert told["rerankers"] == ["cross"]
    assert told["indexes"] == ["sample"]
    assert told["examples"] == ["비 오는 날"]
    assert told["models"][0]["dimension"] == 32
    assert told["limits"]["k"] == 1000
    assert told["may_write"] is True


def _number(text: str, name: str, **labels: str) -> float:
    for line in text.splitlines():
        if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"{name} {labels} is not there")


def test_numbers_count_what_happens(client: TestClient) -> None:
    client.post("/search", json={"query": "비"})
    before = client.get("/metrics").text
    for _ in range(3):
        client.post("/search", json={"query": "비가 온다", "k": 3})
    client.post("/search", json={})
    client.post("/documents/sample", json={"documents": [{"id": "new", "text": "x"}]})
    after = client.get("/metrics").text

    def grew(name: str, **labels: str) -> float:
        return _number(after, name, **labels) - _number(before, name, **labels)

    assert grew("munjang_requests_total", route="/search", status="200") == 3
    assert _number(after, "munjang_requests_total", route="/search", status="422") == 1
    assert grew("munjang_request_seconds_count", route="/search") == 4
    assert grew("munjang_search_seconds_count", stage="rerank") == 3
    assert grew("munjang_model_tokens_total", model="tiny") > 0
    assert grew("munjang_model_batches_total", model="cross") > 0
    assert grew("munjang_index_documents", index="sample") == 1
    assert _number(after, "munjang_documents_written_total", index="sample") == 1
    assert _number(after, "munjang_waiting_tokens", model="tiny") == 0
    assert _number(after, "munjang_ready") == 1


def test_ids_of_requests(client: TestClient) -> None:
    made = client.get("/health").headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert client.get("/health", headers={"X-Request-Id": "trace-1.a:b"}).headers["x-request-id"] == "trace-1.a:b"
    for strange in ("a b", "x" * 200, "<script>", ""):
        assert client.get("/health", headers={"X-Request-Id": strange}).headers["x-request-id"] != strange


def test_the_list_of_requests_loads_nothing_from_elsewhere(client: TestClient) -> None:
    answer = client.get("/docs")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in ("/search", "/v1/embeddings", "/v2/rerank", "/embed", "/documents/{index}/file"):
        assert path in answer.text
    assert not re.search(r"(src|href)=[\"']?https?://", answer.text)
    assert "환불은 어떻게 하나요?" in answer.text


def test_every_own_request_is_described_with_an_example(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    bodies = {"SearchRequest", "MoreLikeRequest", "PlaceRequest", "AddRequest", "CompareRequest", "ClusterRequest"}
    for name in bodies:
        assert description["components"]["schemas"][name]["examples"], name
