"""Clients that misbehave, against a real server on a real port: refused clearly, and the service goes on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.indexed import bi_encoder, make_index
from support.service_process import Served, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("robust")
    bi_encoder().save(folder / "tiny")
    limits = {"body_bytes": 1_000_000, "file_bytes": 2_000_000, "body_seconds": 1.0}
    with served(make_index(folder / "sample"), folder / "tiny", limits=limits, log_format="json") as running:
        yield running
        assert httpx.get(f"{running.address}/health").status_code == 200, "the service was harmed"
        assert not [line for line in running.log if "fault" in line]


@pytest.fixture(autouse=True)
def _unharmed(service: Served) -> Iterator[None]:
    yield
    found = httpx.post(f"{service.address}/search", json={"query": "비", "k": 2}, timeout=10)
    assert found.status_code == 200
    assert len(found.json()["hits"]) == 2


def _socket(service: Served) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    found.settimeout(10)
    return found


def _head(path: str = "/search", *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _answer(connection: socket.socket) -> tuple[int, dict[str, str]]:
    """Status and JSON of an answer whose connection the service closes."""
    content = b""
    while piece := connection.recv(65536):
        content += piece
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_body_of_100_mb_is_refused_by_its_announcement(service: Served) -> None:
    with _socket(service) as connection:
        connection.sendall(_head("/search", f"Content-Length: {100 << 20}"))
        status, body = _answer(connection)
    assert status == 413
    assert "1,000,000 bytes" in body["error"]


def test_a_body_of_100_mb_without_an_announcement_is_refused_on_the_way(service: Served) -> None:
    sent = 0
    piece = b"%x\r\n%b\r\n" % (65536, b" " * 65536)
    with _socket(service) as connection:
        connection.sendall(_head("/search", "Transfer-Encoding: chunked"))
        try:
            while sent < 100 << 20:
                connection.sendall(piece)
                sent += 65536
        except OSError:
            pass  # the service hung up
    assert sent < 20 << 20


def test_a_large_file_is_refused(service: Served) -> None:
    files = {"file": ("large.txt", b"line\n" * 1_000_000)}
    answer = httpx.post(f"{service.address}/documents/sample/file", files=files)
    assert answer.status_code == 413
    assert "2,000,000" in answer.json()["error"]


def test_a_large_file_without_an_announcement_is_refused(service: Served) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        for _ in range(100):
            yield b"line\n" * 10_000

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    try:
        answer = httpx.post(f"{service.address}/documents/sample/file", content=pieces(), headers=headers)
    except httpx.TransportError:
        return  # it hung up while we were sending
    assert answer.status_code == 413


def test_a_slow_body_is_refused(service: Served) -> None:
    with _socket(service) as connection:
        connection.sendall(_head("/search", "Content-Length: 1000"))
        started = time.monotonic()
        connection.sendall(b'{"query": ')
        status, body = _answer(connection)
    assert status == 408
    assert "1 s" in body["error"]
    assert time.monotonic() - started < 5


def test_slow_headers_are_hung_up_on(service: Served) -> None:
    with _socket(service) as connection:
        connection.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow")
        started = time.monotonic()
        assert connection.recv(100) == b""
        assert time.monotonic() - started < 5


def test_clients_that_hang_up(service: Served) -> None:
    body = json.dumps({"query": "비가 온다 " * 20, "k": 10}).encode()
    for sent in (0, 5, len(body)):
        with _socket(service) as connection:
            connection.sendall(_head("/search", f"Content-Length: {len(body)}") + body[:sent])
    for _ in range(10):
        with _socket(service) as connection:
            connection.sendall(_head("/search", f"Content-Length: {len(body)}") + body)


def test_a_client_that_hangs_up_in_the_middle_of_a_file(service: Served) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nline\n'
    for sent in (10, len(body)):
        with _socket(service) as connection:
            kind = "Content-Type: multipart/form-data; boundary=x"
            head = f"POST /documents/sample/file HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\nContent-Length: 5000\r\n\r\n"
            connection.sendall(head.encode() + body[:sent])
    assert httpx.get(f"{service.address}/indexes").json()[0]["documents"] == 24


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "JSON"),
        (b"", 422, ""),
        (b"\xff\xfe\x00", 400, ""),
        (b'{"query": NaN}', 400, "NaN"),
        (b'{"query": "a", "k": -Infinity}', 400, "Infinity"),
        (b'{"query": "a", "k": 1e999}', 422, "too large"),
        (b'{"query": "\\ud800"}', 422, "surrogate"),
        (b'{"query": "\\ud83d\\ude00", "k": 1}', 200, ""),
        (b"[" * 200_000, 400, ""),
        (b'{"query": "a", "k": ' + b"9" * 5000 + b"}", 400, ""),
        (b'{"query": "a", "k": ' + b"9" * 50 + b"}", 422, "k"),
    ],
)
def test_json_that_is_none(service: Served, body: bytes, status: int, words: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{service.address}/search", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/documents/..%2f..%2fetc/passwd",
        "/documents/sample/../../../etc/passwd",
        "/documents/%2e%2e/x",
        "/indexes/..%2fsample/map",
        "/page/../../settings.py",
        "/page/%2e%2e/settings.py",
        "//etc/passwd",
        "/documents/sample/%00",
        "/documents/sam%ffple/x",
        "/documents/sample/%ff%fe",
        "/docs/../health/x",
    ],
)
def test_path_tricks_lead_nowhere(service: Served, path: str) -> None:
    with _socket(service) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        status, body = _answer(connection)
    assert status == 404
    assert body["error_type"] == "not_found"


def test_texts_of_users_are_not_in_the_log(service: Served) -> None:
    httpx.post(f"{service.address}/search", json={"query": "아주 비밀스러운 질문"})
    httpx.get(f"{service.address}/documents/sample/secret-document-name")
    time.sleep(0.2)
    text = "".join(service.log)
    assert "비밀" not in text
    assert "secret-document" not in text
    entry = json.loads(service.log[-1])
    assert entry["route"] == "/documents/{index}/{id:path}"
    assert (entry["status"], entry["method"]) == (404, "GET")


def test_memory_stays_while_large_bodies_come(service: Served) -> None:
    psutil = pytest.importorskip("psutil")
    process = psutil.Process(service.process.pid)
    before = process.memory_info().rss
    body = json.dumps({"query": "비", "filter": {"place": "x" * 900_000}}).encode()
    headers = {"Content-Type": "application/json"}
    with httpx.Client(base_url=service.address, headers=headers) as client:
        for _ in range(30):
            assert client.post("/search", content=body).status_code in (200, 422)
    assert process.memory_info().rss - before < 60 << 20


def test_path_of_a_model_is_never_told(service: Served, tmp_path: Path) -> None:
    answer = httpx.get(f"{service.address}/info").text
    assert str(tmp_path.parent) not in answer
