"""From start to end: signals, kill -9 while documents are added, a port in use, what cannot be loaded."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from munjang.errors import DataError, ModelError, MunjangError
from munjang.index.index import Index
from munjang.serve.running import address_of, bind, machine_urls, run
from munjang.serve.settings import ServeSettings
from support.indexed import DOCUMENTS, bi_encoder, make_index
from support.service_process import Served, served

posix = pytest.mark.skipif(os.name == "nt", reason="signals are of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    bi_encoder().save(folder)
    return folder


def _add_until_it_ends(service: Served, acknowledged: list[str], name: str) -> None:
    with httpx.Client(base_url=service.address, timeout=20) as client:
        for number in range(10_000):
            id = f"{name}-{number}"
            try:
                answer = client.post(
                    "/documents/sample", json={"documents": [{"id": id, "text": f"비 {number}. It is raining."}]}
                )
            except httpx.TransportError:
                return
            if answer.status_code == 503:
                return
            assert answer.status_code == 200, answer.text
            acknowledged.append(id)


@posix
def test_kill_9_while_documents_are_added(tmp_path: Path, model: Path) -> None:
    index = make_index(tmp_path / "sample", DOCUMENTS[:3])
    acknowledged: list[str] = []
    with served(index, model) as service:
        writers = [
            threading.Thread(target=_add_until_it_ends, args=(service, acknowledged, f"writer{number}"))
            for number in range(3)
        ]
        for writer in writers:
            writer.start()
        until = time.monotonic() + 20
        while len(acknowledged) < 25 and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(service.process.pid, signal.SIGKILL)
        for writer in writers:
            writer.join(20)
    assert len(acknowledged) >= 25
    with served(index, model) as service, httpx.Client(base_url=service.address) as client:
        for id in acknowledged:
            assert client.get(f"/documents/sample/{id}").status_code == 200, id
        found = client.post("/search", json={"query": "It is raining.", "k": 1000}).json()["hits"]
        assert set(acknowledged) <= {hit["id"] for hit in found}
    with Index.open(index, bi_encoder()) as opened:
        assert opened.verify().ok


@posix
def test_the_first_signal_finishes_what_was_accepted(tmp_path: Path, model: Path) -> None:
    index = make_index(tmp_path / "sample", DOCUMENTS[:3])
    statuses: list[int] = []
    documents = [{"id": str(number), "text": f"{number} 비가 온다. It is raining."} for number in range(1000)]
    with served(index, model) as service:

        def write() -> None:
            answer = httpx.post(f"{service.address}/documents/sample", json={"documents": documents}, timeout=60)
            statuses.append(answer.status_code)

        writer = threading.Thread(target=write)
        writer.start()
        until = time.monotonic() + 20
        while not (index / "writer.lock").exists() and time.monotonic() < until:
            time.sleep(0.001)
        service.process.send_signal(signal.SIGTERM)
        writer.join(60)
        assert service.process.wait(30) == 0
        assert "ended" in "".join(service.log)
    assert statuses == [200]
    with Index.open(index, bi_encoder()) as opened:
        assert opened.count == 1003


@posix
def test_the_second_signal_ends_at_once(tmp_path: Path, model: Path) -> None:
    index = make_index(tmp_path / "sample", DOCUMENTS[:3])
    with served(index, model) as service, socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{")  # stays open
        time.sleep(0.2)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert service.process.poll() is None
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(5) == 128 + signal.SIGTERM


def test_a_port_in_use_is_told_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(DataError, match=r"--port N"):
            run(ServeSettings(models={"x": "/nowhere"}, port=port))


def test_an_address_that_is_not_here() -> None:
    with pytest.raises(DataError, match="--host"):
        bind("no.such.host.invalid", 0)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:")])
def test_the_address_as_a_person_types_it(host: str, shown: str) -> None:
    with bind(host, 0) as listening:
        assert address_of(listening).startswith(shown)


def test_the_urls_that_other_machines_open() -> None:
    assert machine_urls("127.0.0.1", "http://127.0.0.1:8000") == []
    urls = machine_urls("0.0.0.0", "http://127.0.0.1:8123")
    assert all(url.endswith(":8123") for url in urls)
    assert not any("127.0.0.1" in url or "0.0.0.0" in url for url in urls)


def test_what_cannot_be_loaded_ends_the_service_with_its_error(tmp_path: Path) -> None:
    errors: list[Exception] = []
    ready: list[str] = []

    def serve() -> None:
        try:
            run(ServeSettings(models={"x": str(tmp_path)}, port=0), on_ready=ready.append)
        except MunjangError as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(errors[0], ModelError)
    assert not ready
