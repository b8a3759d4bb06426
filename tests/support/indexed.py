"""A whole service over a small index, with tiny models, in this process: what the tests of the routes ask."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.index.index import Index
from munjang.serve.app import create_app
from munjang.serve.rooms import Rooms
from munjang.serve.settings import ServeSettings
from support import small_models

PLACES = ["부산", "서울", "Paris", "Rome"]
DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": f"doc/{number}",
        "text": f"비가 온다 {number}. It is raining in {PLACES[number % 4]}. 빵 냄새를 따라 골목 {number} 끝까지 갔다.",
        "year": 2000 + number,
        "place": PLACES[number % 4],
        "date": f"2024-03-{number + 1:02}",
        "draft": number % 3 == 0,
    }
    for number in range(24)
]


@functools.cache
def bi_encoder() -> BiEncoder:
    return small_models.bi_encoder()


@functools.cache
def reranker() -> CrossEncoder:
    return small_models.cross_encoder()


def make_index(folder: Path, documents: list[dict[str, Any]] | None = None) -> Path:
    with Index.create(folder, bi_encoder()) as index:
        index.add(DOCUMENTS if documents is None else documents)
    return folder


@contextlib.contextmanager
def service(settings: ServeSettings, *, rerank: bool = True) -> Iterator[TestClient]:
    """A client of a service that is ready."""
    rooms = Rooms(settings.limits)
    rooms.add_bi("tiny", bi_encoder())
    if rerank:
        rooms.add_reranker("cross", reranker())
    app = create_app(settings, rooms=rooms)
    failures: list[Exception] = []
    app.state.on_failure = failures.append
    with TestClient(app, raise_server_exceptions=False) as client:
        until = time.monotonic() + 20
        while not rooms.ready and not failures and time.monotonic() < until:
            time.sleep(0.01)
        assert not failures, failures
        yield client


def settings_for(*indexes: Path, **others: Any) -> ServeSettings:
    return replace(ServeSettings(page=False, indexes={path.name: path for path in indexes}), **others)
