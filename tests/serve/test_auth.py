"""Keys and roles, and what a browser may do to a service without keys."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message

from munjang.errors import DataError, InputError
from munjang.serve.app import create_app
from munjang.serve.auth import read_keys
from munjang.serve.rooms import Rooms
from munjang.serve.settings import Limits, ServeSettings, is_loopback
from support.indexed import bi_encoder, make_index, service, settings_for
from support.serving import running

READ, WRITE = "read-key-123", "write-key-123"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = make_index(tmp_path_factory.mktemp("auth") / "sample")
    settings = settings_for(folder, keys={READ: "read", WRITE: "write"}, cors=("https://friend.example",))
    with service(settings) as client:
        yield client


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers", [_bearer(READ), _bearer(WRITE), {"X-API-Key": READ}, {"authorization": f"bearer {READ}"}]
)
def test_a_key_lets_in(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/search", json={"query": "비"}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        _bearer("wrong-key-123"),
        _bearer(READ[:-1]),
        _bearer(READ + "x"),
        _bearer(""),
        {"Authorization": READ},
        {"Authorization": f"Basic {READ}"},
        {"X-API-Key": ""},
        {"X-API-Key": "한국어".encode("latin-1", "replace").decode()},
    ],
)
@pytest.mark.parametrize("path", ["/search", "/v1/embeddings", "/v2/rerank", "/documents/sample"])
def test_nobody_else_gets_in(client: TestClient, path: str, headers: dict[str, str]) -> None:
    answer = client.post(path, json={}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert READ not in answer.text
    shape = {"/v1/embeddings": {"error"}, "/v2/rerank": {"message"}}.get(path, {"error", "error_type"})
    assert set(answer.json()) == shape


def test_a_reader_may_not_write(client: TestClient) -> None:
    for answer in (
        client.post("/documents/sample", json={"documents": [{"text": "x"}]}, headers=_bearer(READ)),
        client.delete("/documents/sample/doc/1", headers=_bearer(READ)),
        client.delete("/documents/sample?id=doc/1", headers=_bearer(READ)),
        client.post("/documents/sample/file", files={"file": ("a.txt", b"x")}, headers=_bearer(READ)),
    ):
        assert answer.status_code == 403
        assert answer.json()["error_type"] == "forbidden"
    assert client.get("/documents/sample/doc/1", headers=_bearer(READ)).status_code == 200
    assert client.get("/info", headers=_bearer(READ)).json()["may_write"] is False
    added = client.post("/documents/sample", json={"documents": [{"id": "w", "text": "x"}]}, headers=_bearer(WRITE))
    assert added.json()["added"] == 1


def test_what_needs_no_key(client: TestClient) -> None:
    assert client.get("/health").status_code == 200
    assert client.get("/ready").status_code == 200
    for path in ("/metrics", "/info", "/indexes", "/docs", "/openapi.json", "/documents/sample/doc/1"):
        assert client.get(path).status_code == 401, path


HOSTILE_HOSTS = [
    "x/page/?", "x/page/#", "x/page/", "x?/page/", "x#/page/", "x\\page/", "/page/?", "x/health?", "a@b/page/?",
    "x/?", "[::1]/page/?", "[", "x:80/page/?", "x:port", "\u00e9/page/?", "", "127.0.0.1/ready#",
]  # fmt: skip
PROTECTED = [
    "/metrics", "/info", "/indexes", "/docs", "/openapi.json", "/documents/sample/doc/1", "/documents/sample?id=doc/1",
    "/indexes/sample/map", "/v1/models",
]  # fmt: skip


def _status(port: int, target: str, host: str) -> int:
    """The status of a GET with this Host header, sent byte for byte; no HTTP client would."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        return int(connection.makefile("rb").readline().split()[1])


def test_a_malformed_host_header_opens_nothing(tmp_path: Path) -> None:
    settings = settings_for(make_index(tmp_path / "sample"), keys={READ: "read"})
    rooms = Rooms(settings.limits)
    rooms.add_bi("tiny", bi_encoder())
    with running(create_app(settings, rooms=rooms)) as address:
        port = urlsplit(address).port or 0
        assert _status(port, "/health", "x/page/?") == 200
        found = {(target, host): _status(port, target, host) for target in PROTECTED for host in HOSTILE_HOSTS}
        whole = {target: _status(port, f"http://x/page/?{target}", "x") for target in PROTECTED}
    assert {pair: status for pair, status in found.items() if status not in (400, 401)} == {}
    assert {target: status for target, status in whole.items() if status not in (400, 401, 404)} == {}


def test_authentication_decides_on_the_path_that_is_routed(client: TestClient) -> None:
    """Whatever URL a framework builds from the rest of the request."""

    def status(path: str, host: str) -> int:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": "",
            "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [(b"host", host.encode())],
            "server": ("x/page/?", 80), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        asyncio.run(client.app(scope, receive, send))
        return int(sent[0]["status"])

    for host in ("x/page/?", "[", ""):
        assert status("/health", host) == 200
        assert {path: status(path, host) for path in ("/info", "/indexes", "/openapi.json", "/metrics")} == {
            "/info": 401, "/indexes": 401, "/openapi.json": 401, "/metrics": 401,
        }  # fmt: skip


def test_a_mounted_service_decides_on_the_path_below_its_prefix(client: TestClient) -> None:
    """Mounted at /page it would otherwise be open, because everything begins with that."""
    for prefix in ("/page", "/munjang", "/health"):
        mounted = TestClient(Starlette(routes=[Mount(prefix, app=client.app)]))
        assert mounted.get(f"{prefix}/health").status_code == 200
        for path in ("/info", "/indexes", "/documents/sample/doc/1", "/page/../info", "//page/info"):
            assert mounted.get(f"{prefix}{path}").status_code in (401, 404), (prefix, path)
            assert "munjang" not in mounted.get(f"{prefix}{path}").text
        assert mounted.get(f"{prefix}/info", headers=_bearer(READ)).status_code == 200
        error = mounted.post(f"{prefix}/v1/embeddings", json={}, headers=_bearer(READ)).json()
        assert set(error["error"]) == {"message", "type", "param", "code"}  # the shape of its family


@pytest.mark.parametrize(
    "path",
    ["//page/info", "/page/../info", "/page/%2e%2e/info", "/page/%2e%2e%2finfo", "/%70age/../info", "/info/", "//info",
     "/health/../info", "/health/", "/page/..;/info", "/page%2f..%2finfo", "/info%00", "/page/\\..\\info", "/page"],
)  # fmt: skip
def test_other_ways_to_write_a_path_open_nothing(client: TestClient, path: str) -> None:
    answer = client.request("GET", f"http://testserver{path}", follow_redirects=False)
    assert answer.status_code in (401, 404)
    assert "may_write" not in answer.text


def test_no_redirect_is_built_from_the_host_header(client: TestClient) -> None:
    for path in ("/search/", "/info/", "/v1/embeddings/", "/page/main.js/", "/indexes/"):
        for method in ("GET", "POST"):
            headers = {**_bearer(READ), "Host": "stranger.example"}
            answer = client.request(method, path, headers=headers, follow_redirects=False)
            assert answer.status_code in (404, 405)
            assert "stranger.example" not in str(answer.headers)


def test_cors_is_for_the_origins_that_were_named(client: TestClient) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    friend = client.options("/search", headers={"Origin": "https://friend.example", **asking})
    assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    stranger = client.options("/search", headers={"Origin": "https://stranger.example", **asking})
    assert "access-control-allow-origin" not in stranger.headers


def test_a_service_without_keys_refuses_pages_of_strangers(tmp_path: Path) -> None:
    with service(settings_for(make_index(tmp_path / "sample"))) as client:
        body = {"documents": [{"text": "planted"}]}
        foreign = {"Origin": "https://stranger.example"}
        for answer in (
            client.post("/documents/sample", json=body, headers=foreign),
            client.post("/documents/sample/file", files={"file": ("a.txt", b"x")}, headers=foreign),
            client.get("/indexes", headers={"Host": "stranger.example:8000"}),  # a name that points at this machine
            client.get("/indexes", headers={"Host": "127.0.0.1.stranger.example"}),
        ):
            assert answer.status_code == 403, answer.text
        for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
            assert client.get("/indexes", headers={"Host": host}).status_code == 200
        assert client.get("/indexes", headers={"Host": "", "Origin": "null"}).status_code == 403
        own = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}
        assert client.post("/documents/sample", json=body, headers=own).status_code == 200
        assert "access-control-allow-origin" not in client.get("/indexes").headers


# --- reading keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        f"# keys\n{READ} read the page\n\n{WRITE}\twrite\n",
        json.dumps({READ: "read", WRITE: "write"}),
        json.dumps([{"key": READ, "role": "read", "name": "the page"}, {"key": WRITE, "role": "write"}]),
    ],
)
def test_keys_from_a_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content, encoding="utf-8")
    found = read_keys(file, {})
    assert dict(found.roles) == {READ: "read", WRITE: "write"}
    assert found.names[READ] in ("the page", "key 1")


def test_keys_from_the_environment() -> None:
    assert dict(read_keys(None, {"MUNJANG_KEYS": f"{READ}:read, {WRITE}:write"}).roles) == {
        READ: "read",
        WRITE: "write",
    }
    assert dict(read_keys(None, {"MUNJANG_KEYS": f"{READ} read\n{WRITE} write x"}).roles) == {
        READ: "read",
        WRITE: "write",
    }
    assert not read_keys(None, {}).roles


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no key"),
        ("short read", "at least 8"),
        (f"{READ} owner", "'owner'"),
        (READ, "KEY ROLE"),
        (f"{READ} read\n{READ} write", "two roles"),
        ("{", "JSON"),
        ('[{"key": 1}]', "entry 1"),
        (f"{READ}é read", "at least 8"),
    ],
)
def test_bad_keys_are_told_without_showing_them(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=words) as told:
        read_keys(file, {})
    assert READ not in str(told.value)


def test_no_file_of_keys(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_keys(tmp_path / "nowhere", {})


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.5", "example.org", ""])
def test_other_machines_need_keys(host: str) -> None:
    with pytest.raises(InputError, match="--allow-open"):
        ServeSettings(host=host)
    assert ServeSettings(host=host, allow_open=True).host == host
    assert ServeSettings(host=host, keys={READ: "read"}).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "localhost", "::1", "[::1]"])
def test_this_machine_needs_none(host: str) -> None:
    assert is_loopback(host)
    assert ServeSettings(host=host).host == host


def test_keys_are_not_in_what_is_printed() -> None:
    assert READ not in repr(ServeSettings(keys={READ: "read"}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 70_000},
        {"port": True},
        {"cors": ("example.org",)},
        {"cors": ("https://a.example/path",)},
        {"indexes": {"a/b": "x"}},
        {"indexes": {"..": "x"}},
        {"models": {"": "x"}},
        {"log_format": "xml"},
        {"keys": {READ: "owner"}},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        ServeSettings(**wrong)  # type: ignore[arg-type]


@given(
    st.sampled_from(["body_bytes", "k", "deadline_s", "batch"]), st.sampled_from([0, -1, True, "5", None, float("nan")])
)
def test_limits_are_numbers_above_0(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]
