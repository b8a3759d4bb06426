"""Servers that the tests of remote indexes start, once for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.milvus_server import MilvusServer, milvus_server
from support.postgres_server import PostgresServer, postgres_server

pytest.register_assert_rewrite("index.remote.contract")  # its assertions say what they compared


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def milvus() -> Iterator[MilvusServer]:
    with milvus_server() as server:
        yield server
