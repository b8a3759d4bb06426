"""What Milvus and its driver say, in our words; without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from munjang.errors import DataError, InputError
from munjang.index.remote.address import parse
from munjang.index.remote.engine import NoIndex, Unreachable
from munjang.index.remote.milvus import MilvusEngine
from munjang.index.remote.milvus_connecting import Connection

pymilvus = pytest.importorskip("pymilvus")
ADDRESS = "milvus://kim:geheim@127.0.0.1:19530/one?timeout=0.7"


class Client:
    """A client that only connects."""

    version = "v2.3.5"

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def get_server_version(self) -> str:
        return self.version

    def list_collections(self, *, timeout: float) -> list[str]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setattr(pymilvus, "MilvusClient", Client)
    return Connection(parse(ADDRESS))


def failing(code: int, message: str) -> Any:
    def call(client: Any) -> None:
        error = pymilvus.MilvusException(code=code, message=message)
        raise error from error  # as pymilvus does

    return call


@pytest.mark.parametrize(
    ("code", "message", "kind", "says"),
    [
        (9, "quota exceeded[reason=disk quota exceeded, please allocate more resources]", DataError, "takes no more"),
        (1, "write binlog: no space left on device", DataError, "disk or memory is full"),
        (8, "request is rejected by grpc RateLimiter middleware", Unreachable, "RateLimiter"),
        (101, "failed to query: collection not loaded[collection=1]", Unreachable, "not loaded"),
        (100, "collection not found[database=default][collection=one]", NoIndex, "no index"),
        (65535, "PermissionDenied: privilege Insert", InputError, "grant"),
        (65535, "something new", DataError, "Milvus 2.3.5 failed .something new"),
    ],
)
def test_errors_of_the_server(
    connection: Connection, code: int, message: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as failed:
        connection.call(failing(code, message))
    assert type(failed.value) is kind
    assert "geheim" not in str(failed.value)


def test_a_server_that_recovers_is_waited_for(connection: Connection) -> None:
    calls = 0

    def call(client: Any) -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            failing(101, "collection not loaded")(client)
        return "답"

    assert connection.call(call) == "답"
    assert calls == 3


def test_a_lost_connection_is_made_anew(connection: Connection) -> None:
    clients: list[Any] = []

    def call(client: Any) -> None:
        clients.append(client)
        failing(2, "Fail connecting to server")(client)

    for _ in range(2):
        with pytest.raises(Unreachable):
            connection.call(call)
    assert clients[0] is not clients[1]


def test_an_error_of_our_own_is_no_failure_of_the_server(connection: Connection) -> None:
    def call(client: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.call(call)


def test_a_server_that_is_too_old(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "version", "v2.2.16")
    with pytest.raises(InputError, match=r"Milvus 2\.2\.16, at least 2\.3"):
        connection.call(lambda client: None)


def test_closed_means_closed(connection: Connection) -> None:
    connection.close()
    connection.close()
    with pytest.raises(InputError, match="closed"):
        connection.call(lambda client: None)


def test_how_it_connects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pymilvus, "MilvusClient", Client)
    for name in ("ca", "client", "key"):
        (tmp_path / name).write_text("x")
    plain = Connection(parse(ADDRESS)).call(lambda client: client.arguments)
    assert (plain["uri"], plain["token"], "secure" in plain) == ("http://127.0.0.1:19530", "kim:geheim", False)
    one = f"milvus://[::1]/one?token=abc&database=db&secure=true&ca_pem={tmp_path / 'ca'}&server_name=m"
    found = Connection(parse(one)).call(lambda client: client.arguments)
    assert (found["uri"], found["token"], found["db_name"]) == ("https://[::1]:19530", "abc", "db")
    assert (found["server_pem_path"], found["server_name"], found["secure"]) == (str(tmp_path / "ca"), "m", True)
    both = f"milvus://h/one?ca_pem={tmp_path / 'ca'}&client_pem={tmp_path / 'client'}&client_key={tmp_path / 'key'}"
    found = Connection(parse(both)).call(lambda client: client.arguments)
    assert (found["client_pem_path"], found["ca_pem_path"], found["secure"]) == (
        str(tmp_path / "client"),
        str(tmp_path / "ca"),
        True,
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("ca_pem=/no/such/file", "file of ca_pem is not there"),
        ("m=3", "m must be a whole number of 4..64"),
        ("shards=0", "shards must be"),
        ("consistency=weak", "consistency must be one of strong, session, bounded"),
        ("ef=3", "unknown parameter 'ef'"),
        ("secure=maybe", "true or false"),
    ],
)
def test_wrong_parameters_are_errors_before_anything_is_connected(query: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as failed:
        MilvusEngine(parse(f"milvus://kim:geheim@host/one?{query}"))
    assert "geheim" not in str(failed.value)
