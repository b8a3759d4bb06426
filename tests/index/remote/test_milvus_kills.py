"""Milvus killed with -9 in the middle of adding, then started again: nothing acknowledged is lost, nothing is twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError
from munjang.index.index import Index
from support.milvus_server import MilvusServer, milvus_server

pytestmark = [pytest.mark.server, pytest.mark.slow]
LONG = "비가 온다. It rains in the alley, and the umbrella is wet. 골목 끝의 빵집은 문을 닫았다. " * 6


@pytest.fixture
def server() -> Iterator[MilvusServer]:
    with milvus_server() as server:
        yield server


def documents(server: MilvusServer, kill_at: dict[int, float], *, back: bool, end: int) -> Iterator[dict[str, Any]]:
    """Documents, every third of several passages; some of them kill the server a moment after they were asked for."""
    for number in range(end):
        if number in kill_at:
            threading.Timer(kill_at[number], restart if back else MilvusServer.kill, (server,)).start()
        yield {"id": number, "text": LONG if number % 3 == 0 else f"글 {number} rain", "number": number}


def restart(server: MilvusServer) -> None:
    server.kill()
    server.start()


def check(index: Index, end: int, *, text: str = LONG) -> None:
    """Documents 0..end are there once, whole, and nothing else is."""
    assert index.count == end
    assert sorted(int(id) for id in index.ids()) == list(range(end))
    report = index.verify()
    assert report.ok, report
    for number in (0, 1, end - 1):
        found = index.get(number)
        assert found.text == (text if number % 3 == 0 else f"글 {number} rain")
        assert found.metadata == {"number": number}
        assert index.search("비", filter={"number": number}).ids == [str(number)]


def test_the_client_carries_on(server: MilvusServer, model: BiEncoder) -> None:
    with Index.create(server.address("on", attempts=40, timeout=20), model) as index:
        report = index.add(documents(server, {100: 0.02, 260: 0.0}, back=True, end=300), commit_every=20)
        assert report.added == 300
        check(index, 300)
        # The same again, with other long texts, killed once more: old passages must not come back.
        changed = (
            {**one, "text": "짧은 글" if one["text"] == LONG else one["text"]}
            for one in documents(server, {150: 0.01}, back=True, end=300)
        )
        assert index.add(changed, commit_every=50).replaced == 100
        check(index, 300, text="짧은 글")
        assert index.describe()["passages"] == 300


def test_what_was_acknowledged_is_there_after_a_kill(server: MilvusServer, model: BiEncoder) -> None:
    address = server.address("stays", attempts=2, timeout=3)
    acknowledged = 0
    with Index.create(address, model) as index:
        index.add(documents(server, {}, back=False, end=120))
        acknowledged = 120
        with pytest.raises(DataError, match="tried 2 times") as failed:
            index.add(documents(server, {150: 0.0}, back=False, end=4_000), commit_every=10)
        if "documents of this call are in the index" in str(failed.value):
            said = str(failed.value).rpartition("the first ")[2].partition(" ")[0]
            acknowledged = max(acknowledged, int(said.replace(",", "")))
    server.start()
    with Index.open(server.address("stays", attempts=40, timeout=20), model) as index:
        ids = {int(id) for id in index.ids()}
        assert set(range(acknowledged)) <= ids
        assert index.count == len(ids)
        assert index.add(documents(server, {}, back=False, end=300)).documents == 300
        check(index, max(300, len(ids)))
