"""PostgreSQL killed with -9 in the middle of adding, and started again: nothing acknowledged is lost, nothing is there
twice, and the client goes on by itself.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator

import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError
from munjang.index.index import Index
from support.postgres_server import PostgresServer, postgres_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

COUNT = 400
TEXTS = {f"글 {number:04}": f"비가 온다 {number}. It is raining {number} times." for number in range(COUNT)}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as one:
        yield one


def test_killed_in_the_middle_of_adding(server: PostgresServer, model: BiEncoder) -> None:
    address = server.address(f"k{secrets.token_hex(4)}", attempts=12)
    acknowledged = 0
    kills = 0
    stop = threading.Event()

    def executioner() -> None:
        nonlocal kills
        for place in (30, 150, 270):
            while acknowledged < place and not stop.wait(0.001):
                pass
            time.sleep(0.002 * kills)  # each time at another moment of a batch
            server.kill()
            server.start()
            kills += 1

    def stream() -> Iterator[dict[str, str]]:
        nonlocal acknowledged
        for place, (id, text) in enumerate(TEXTS.items()):
            if place and place % 10 == 0:  # the batch before this document was acknowledged
                acknowledged = place
                seen = index.count if place % 50 == 0 else place
                assert seen >= place
            yield {"id": id, "text": text, "batch": str(place // 10)}

    with Index.create(address, model) as index:
        thread = threading.Thread(target=executioner)
        thread.start()
        try:
            report = index.add(stream(), commit_every=10)
        finally:
            stop.set()
            thread.join()
        assert kills == 3
        assert report.added == COUNT
        assert acknowledged == COUNT - 10
        assert index.count == COUNT
        assert {one.id: one.text for one in index.documents()} == TEXTS
        assert index.search("raining 123", 1, mode="keyword").ids == ["글 0123"]
        report_of = index.verify()
        assert report_of.ok, report_of
        assert (report_of.documents, report_of.passages) == (COUNT, COUNT)
    with Index.open(address, model) as again:
        documents = [{"id": id, "text": text, "batch": str(at // 10)} for at, (id, text) in enumerate(TEXTS.items())]
        assert again.add(documents).unchanged == COUNT


def test_a_server_that_stays_away(server: PostgresServer, model: BiEncoder) -> None:
    """The error says how much is in, and the same call made again adds the rest."""
    address = server.address(f"k{secrets.token_hex(4)}", attempts=2)
    documents = [{"id": id, "text": text} for id, text in list(TEXTS.items())[:60]]

    def stream() -> Iterator[dict[str, str]]:
        for place, document in enumerate(documents):
            if place == 40:
                server.kill()
            yield document

    with Index.create(address, model) as index:
        try:
            with pytest.raises(DataError, match=r"tried 2 times.*first 40 documents of this call are in the index"):
                index.add(stream(), commit_every=20)
        finally:
            server.start()
        assert index.count == 40
        report = index.add(documents)
        assert (report.added, report.unchanged) == (20, 40)
        assert index.verify().ok
