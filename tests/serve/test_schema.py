"""schemathesis over the whole OpenAPI description: whatever is sent, no fault of the service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings
from support.indexed import DOCUMENTS, bi_encoder, make_index, reranker
from support.serving import running


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = make_index(tmp_path_factory.mktemp("schema") / "sample", DOCUMENTS[:6])
    limits = replace(Limits(), batch=16, body_seconds=5.0)
    rooms = Rooms(limits)
    rooms.add_bi("tiny", bi_encoder())
    rooms.add_reranker("cross", reranker())
    app = create_app(ServeSettings(indexes={"sample": folder}, page=False, limits=limits), rooms=rooms)
    with running(app) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


def _probe(case: Any) -> None:
    if "index" in (case.path_parameters or {}):
        case.path_parameters["index"] = "sample"  # most of what is made up names no index, and goes no further
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = "sample"
    answer = case.call(timeout=20)
    assert answer.status_code < 500 or answer.status_code in (501, 503), answer.text
    assert "x-request-id" in answer.headers
    if answer.status_code >= 400:
        assert {"error", "message"} & set(answer.json())


def test_no_request_is_a_fault(description: Any) -> None:
    probed = set()
    for found in description.get_all_operations():
        operation = found.ok()
        probe = given(operation.as_strategy())(_probe)
        settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))(probe)()
        probed.add(f"{operation.method.upper()} {operation.path}")
    assert {"POST /search", "POST /documents/{index}/file", "POST /v1/embeddings", "POST /rerank"} <= probed
    assert len(probed) >= 25
