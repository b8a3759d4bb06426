"""An index in a real Milvus keeps the contract."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from index.remote.contract import Contract, Place
from munjang.index.remote.address import parse
from munjang.index.remote.milvus import MilvusEngine
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
