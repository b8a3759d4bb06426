"""Paths and hub ids: folders first, then the cache, then the hub, here a local server; and what errors say."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import munjang
from munjang.checkpoint import read_bi, resolve
from munjang.errors import InputError, ModelError, ModelNotFoundError

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(bodies: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds two models."""
    root = tmp_path / "hub"
    for name in ("models--org--tiny", "models--sentence-transformers--bare"):
        (root / name / "refs").mkdir(parents=True)
        (root / name / "refs" / "main").write_text(SHA)
        shutil.copytree(bodies("bert"), root / name / "snapshots" / SHA)
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return root


def test_a_folder_wins(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "org" / "tiny"
    folder.mkdir(parents=True)
    assert resolve("org/tiny") == Path("org/tiny")
    assert resolve(folder) == folder


def test_a_hub_id_from_the_cache(cache: Path) -> None:
    found = resolve("org/tiny")
    assert found == cache / "models--org--tiny" / "snapshots" / SHA
    assert resolve("org/tiny", revision=SHA) == found
    assert resolve("org/tiny", local_files_only=True) == found
    assert read_bi(found).source == f"org/tiny@{SHA}"


def test_a_bare_name_means_sentence_transformers(cache: Path) -> None:
    assert resolve("bare").parts[-3] == "models--sentence-transformers--bare"


def test_a_bare_name_of_a_cross_encoder(cache: Path) -> None:
    (cache / "models--sentence-transformers--bare").rename(cache / "models--cross-encoder--bare")
    assert resolve("bare", cross=True).parts[-3] == "models--cross-encoder--bare"
    with pytest.raises(ModelNotFoundError, match="cross-encoder/none or none"):
        resolve("none", cross=True)


def test_hf_home(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert resolve("org/tiny").is_dir()


@pytest.mark.parametrize("revision", [None, "v2"])
def test_a_hub_id_that_is_not_there(cache: Path, revision: str | None) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve("org/none", revision=revision)
    message = str(caught.value)
    for part in ("'org/none'", str(Path("org/none").absolute()), "org/none", "offline", str(cache), "To fix it"):
        assert part in message
    assert (revision or "at revision") in message or revision is None


def test_a_bare_name_says_both_ids(cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="sentence-transformers/none or none"):
        resolve("none")


@pytest.mark.parametrize(
    "given", ["./none", "/none/at/all", "~/none-such", "a\\b", "a/b/c", "../none", "has space", "here/none"]
)
def test_what_can_only_be_a_path_never_asks_the_hub(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match="there is no folder"):
        resolve(given)


def test_a_path_object_never_asks_the_hub(cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="exists as far as"):
        resolve(Path("org/tiny"))


def test_files_and_empty_names(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelNotFoundError, match="is a file"):
        resolve("file")
    with pytest.raises(InputError, match="empty"):
        resolve("  ")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("munjang-ko-eng", "'munjang-ko-en'"),
        ("Munjang-Rerank-ko-en", "'munjang-rerank-ko-en'"),
        ("munjang/munjang-ko-en", "'munjang-ko-en'"),
        ("./munjang-ko-en", "'munjang-ko-en'"),
        ("distiluse-base", None),
    ],
)
def test_names_that_come_close_to_a_bundled_one(cache: Path, name: str, near: str | None) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        munjang.load(name)
    assert ("did you mean" in str(caught.value)) == (near is not None)
    assert near is None or near in str(caught.value)


def online(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Ask this hub, as a process without HF_HUB_OFFLINE would; huggingface_hub reads the environment at import."""
    import huggingface_hub.constants

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("door", [munjang.load, munjang.load_cross_encoder])
def test_a_dead_network_is_told_at_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, door: Callable[[str], object]
) -> None:
    """Even a name server that never answers; huggingface_hub alone retries for 24 s for each id."""
    online(monkeypatch, f"http://{door.__name__}.invalid")
    given_up = threading.Event()
    asked: list[object] = []

    def look_up(*given: object, **__: object) -> None:
        asked.append(given)
        given_up.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    start = time.monotonic()
    for name in ("munjang-ko-eng", "org/none"):
        with pytest.raises(ModelNotFoundError, match=rf"(?s){name}.*not reachable.*\.invalid:80"):
            door(name)
    assert time.monotonic() - start < 10
    assert resolve("org/tiny").is_dir(), "the cache does without the network"
    assert len(asked) == 1, "a failure is remembered"
    given_up.set()


def test_a_refused_connection_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:  # bound and not listening: connections are refused
        listener.bind(("127.0.0.1", 0))
        online(monkeypatch, f"http://127.0.0.1:{listener.getsockname()[1]}")
        start = time.monotonic()
        with pytest.raises(ModelNotFoundError, match="not reachable"):
            resolve("org/none")
        assert time.monotonic() - start < 10


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as huggingface_hub asks: one model, 'org/new', from a folder."""

    folder: Path
    delay = 0.0
    asked: list[str]

    def do_GET(self) -> None:
        self.asked += [self.path] if "/org/" in self.path or "munjang" in self.path else []
        time.sleep(self.delay if "/org/new/revision" in self.path or self.path.endswith("/org/new") else 0)
        path = self.path.partition("?")[0]
        files = sorted(file.name for file in self.folder.iterdir())
        if path.startswith(f"/org/new/resolve/{SHA}/"):
            self.answer(200, (self.folder / path.rpartition("/")[2]).read_bytes())
        elif path == f"/api/models/org/new/tree/{SHA}":
            entries = [
                {"type": "file", "path": name, "size": (self.folder / name).stat().st_size, "oid": name}
                for name in files
            ]
            self.answer(200, json.dumps(entries).encode())
        elif path in ("/api/models/org/new", "/api/models/org/new/revision/main"):
            siblings = [{"rfilename": name} for name in files]
            self.answer(200, json.dumps({"id": "org/new", "sha": SHA, "siblings": siblings}).encode())
        else:
            self.answer(404, b"{}")

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{self.path.rpartition("/")[2]}"')
        self.send_header("X-Repo-Commit", SHA)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(bodies: Callable[[str], Path], tmp_path: Path) -> Iterator[tuple[type[Hub], str]]:
    """A hub and its address."""
    shutil.copytree(bodies("bert"), tmp_path / "served")
    (tmp_path / "served" / "pytorch_model.bin").write_bytes(b"not to be read")
    handler = type("Handler", (Hub,), {"folder": tmp_path / "served", "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def fetch(name: str, endpoint: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Resolve a name in another process, which is online."""
    code = f"import munjang.checkpoint as c; print(c.resolve({name!r}))"
    hidden = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    environment = {key: value for key, value in os.environ.items() if key not in hidden and "proxy" not in key.lower()}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_slow_hub_has_the_time_it_needs(hub: tuple[type[Hub], str], tmp_path: Path) -> None:
    """First answers take longer than a connection may; and no pickle is fetched where there are safetensors."""
    handler, endpoint = hub
    handler.delay = 2.2
    done = fetch("org/new", endpoint, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    fetched = Path(done.stdout.strip())
    assert read_bi(fetched).source == f"org/new@{SHA}"
    assert not (fetched / "pytorch_model.bin").exists()


def test_a_pickle_is_fetched_where_there_is_nothing_else(hub: tuple[type[Hub], str], tmp_path: Path) -> None:
    handler, endpoint = hub
    (handler.folder / "model.safetensors").unlink()
    done = fetch("org/new", endpoint, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "pytorch_model.bin").exists()


def test_a_living_hub_that_lacks_the_model(hub: tuple[type[Hub], str], tmp_path: Path) -> None:
    done = fetch("munjang-ko-eng", hub[1], tmp_path / "cache")
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert "ModelNotFoundError" in error
    for part in ("did you mean", "sentence-transformers/munjang-ko-eng: RepositoryNotFound", "check the name"):
        assert part in error
    assert len(hub[0].asked) == 2, "each id is asked for once"


def test_the_revision_is_passed_on(hub: tuple[type[Hub], str], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    online(monkeypatch, hub[1])
    with pytest.raises(ModelNotFoundError, match="at revision 'v9'"):
        resolve("org/tiny", revision="v9")
    assert hub[0].asked == ["/api/models/org/tiny/revision/v9"]


def test_gated_models(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import GatedRepoError

    def refuse(*_: Any, **__: Any) -> str:
        raise GatedRepoError.__new__(GatedRepoError, "401")  # its arguments differ between releases

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelError, match="accept them on its page"):
        resolve("org/x")


def test_without_huggingface_hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="pip install huggingface_hub"):
        resolve("org/tiny")
