"""An index in a real PostgreSQL keeps the contract."""

from __future__ import annotations

import secrets

import pytest

from index.remote.contract import Contract, Place
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.server


class TestPostgres(Contract):
    @pytest.fixture
    def place(self, postgres: PostgresServer) -> Place:
        run = secrets.token_hex(4)
        return lambda name: postgres.address(f"{name}_{run}")


class TestPartitions(Contract):
    """The same with the passages in three partitions."""

    @pytest.fixture
    def place(self, postgres: PostgresServer) -> Place:
        run = secrets.token_hex(4)
        return lambda name: postgres.address(f"{name}_{run}", partitions=3)
