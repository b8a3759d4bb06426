"""An address -> the engine that speaks with its server. Drivers are imported here and not before."""

from __future__ import annotations

import contextlib

from munjang.errors import InputError
from munjang.index.remote.address import Address, parse
from munjang.index.remote.engine import Engine, NoIndex
from munjang.index.remote.retrying import RetryingEngine


def engine_at(address: Address) -> Engine:
    """The engine of an address; nothing is connected yet."""
    if address.scheme == "postgresql":
        from munjang.index.remote.postgres import PostgresEngine

        return PostgresEngine(address)
    from munjang.index.remote.milvus import MilvusEngine

    return MilvusEngine(address)


def connected(address: Address) -> Engine:
    """The same, with its retries."""
    return RetryingEngine(engine_at(address), address)


def check_vacant(text: str) -> None:
    """Raise unless the server answers and has no index of that name."""
    address = parse(text)
    with contextlib.closing(connected(address)) as engine:
        try:
            engine.header()
        except NoIndex:
            return
    raise InputError(f"there is an index at {address} already: `munjang index add` adds to it")


def drop(text: str) -> None:
    """Take an index away from its server."""
    with contextlib.closing(connected(parse(text))) as engine:
        engine.drop()
