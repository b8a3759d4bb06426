"""Every error in the shape that its client reads, and never a trace."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from munjang.errors import DataError, InputError, MissingExtraError, ModelError, ModelNotFoundError
from munjang.serve import errors
from munjang.serve.logs import JsonLines, RequestLog, TextLines

SHAPES = {
    "/search": lambda body: body["error"],
    "/v1/embeddings": lambda body: body["error"]["message"],
    "/v1/rerank": lambda body: body["message"],
    "/v2/rerank": lambda body: body["message"],
}


def _app(error: Exception) -> TestClient:
    app = FastAPI()
    errors.install(app)

    async def fail() -> None:
        raise error

    for path in SHAPES:
        app.get(path)(fail)
    app.add_middleware(RequestLog)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("k must be 1..5, got 9"), 422),
        (DataError("line 3 is broken"), 422),
        (ModelNotFoundError("no model"), 404),
        (ModelError("damaged"), 503),
        (MissingExtraError("kiwipiepy", "korean", "keywords"), 501),
        (errors.Empty("nothing given"), 400),
        (errors.TooLarge("too much"), 413),
        (errors.Unauthorized("no key"), 401),
        (errors.DeadlinePassed("too late"), 504),
    ],
)
@pytest.mark.parametrize("path", SHAPES)
def test_library_errors_have_a_status_and_a_shape(error: Exception, status: int, path: str) -> None:
    answer = _app(error).get(path)
    assert answer.status_code == status
    assert SHAPES[path](answer.json()) == str(error)


def test_openai_clients_find_what_they_read() -> None:
    body = _app(errors.NotFound("no such model", param="model", code="model_not_found")).get("/v1/embeddings").json()
    assert body == {
        "error": {
            "message": "no such model",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (3.2, "4"), (float("inf"), "60")])
def test_overloaded_says_when_to_come_back(seconds: float, header: str) -> None:
    answer = _app(errors.Overloaded(seconds)).get("/search")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == header
    assert answer.json()["error_type"] == "overloaded"


def test_a_fault_is_hidden_from_the_client_and_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("munjang.serve").propagate = True
    with caplog.at_level(logging.ERROR, logger="munjang.serve"):
        answer = _app(ZeroDivisionError("secret detail")).get("/search", headers={"X-Request-Id": "abc"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "'abc'" in answer.json()["error"]
    assert "ZeroDivisionError" in caplog.text


def _record(**extra: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": "request", "levelname": "INFO", "name": "munjang.serve", **extra})


def test_lines_of_the_log() -> None:
    entry = json.loads(JsonLines().format(_record(status=200, ms=1.5, route="/search")))
    assert (entry["event"], entry["status"], entry["ms"], entry["level"]) == ("request", 200, 1.5, "info")
    assert entry["time"].endswith("+00:00")
    assert TextLines().format(_record(status=200, caller="")).endswith("request  status=200")
