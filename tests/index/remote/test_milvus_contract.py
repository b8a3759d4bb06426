"""An index in a real Milvus keeps the contract."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

import pytest

from index.remote.contract import Contract, Place
from munjang.index.index import Index
from munjang.index.remote import milvus as engines
from munjang.index.remote.address import parse
from munjang.index.remote.milvus import MilvusEngine
from munjang.index.remote.milvus_rows import pack
from support.indexing import TEXTS
from support.milvus_server import MilvusServer

pytestmark = pytest.mark.server


class TestMilvus(Contract):
    can_keyword = False

    @pytest.fixture
    def place(self, milvus: MilvusServer) -> Iterator[Place]:
        run = secrets.token_hex(4)
        given: set[str] = set()

        def address(name: str) -> str:
            given.add(milvus.address(f"{name}_{run}"))
            return milvus.address(f"{name}_{run}")

        yield address
        for one in given:  # a collection that stays takes memory of the server
            engine = MilvusEngine(parse(one))
            engine.drop()
            engine.close()

    @pytest.mark.parametrize("flushed", [False, True], ids=["one segment", "two segments"])
    def test_rows_that_are_there_twice_hide_no_others(
        self, index: Index, place: Place, monkeypatch: pytest.MonkeyPatch, flushed: bool
    ) -> None:
        """A row that is being replaced is there twice for a moment; here it stays so."""
        monkeypatch.setattr(engines, "_BODIES", 4)  # rows of a page
        given = [{"id": f"{at:02}", "text": f"{TEXTS[at % len(TEXTS)]} {at}"} for at in range(12)]
        index.add([*given[1::2], {"id": "long", "text": "비가 온다. " * 60}])
        engine = MilvusEngine(parse(place("one")))
        if flushed:  # what comes now lies in another segment
            engine._connection.call(partial(engines._flushed, engine._main, 60))
        index.add(given[::2])
        twice = [pack(one, index.dimension) for one in engine.get(["00", "02", "long"], vectors=True).values()]
        rows = [row for one in twice for row in (one.first, *one.passages)]
        for _ in range(3):
            engine._connection.call(lambda client: client.insert(engine._main, rows))
        ids = sorted([*(one["id"] for one in given), "long"])
        assert engine._reading.count(engine._main, "number == 0") > len(ids), "the test must be able to fail"
        assert sorted(engine.get(ids, vectors=True)) == ids
        assert sorted(engine.versions(ids)) == ids
        assert [one.id for one in index.documents()] == ids
        for k in (3, 13, 20):
            assert len(set(index.search("비", k).ids)) == min(k, 13)
        assert sorted(index.search("비", 13).ids) == ids
        engine.close()
