"""What `munjang demo` makes and hands to the service; the service itself is started in tests/cli/test_demo.py."""

from __future__ import annotations

import os
import queue
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang import bundled, demo
from munjang.demo import building, corpus, starting
from munjang.demo.starting import DemoOptions, free_port, has_browser, plain_name
from munjang.errors import DataError, InputError, MissingExtraError, ModelError, ModelNotFoundError
from munjang.index.index import Index
from munjang.serve import running
from munjang.serve.settings import ServeSettings, check_name
from support import small_models

SAMPLE = [
    {"id": corpus.FIRST, "text": "밥이 질게 되면 뚜껑을 연다", "year": 2025},
    {"id": "x", "text": "rain and bread", "year": 2024},
]


class Service:
    """Stands in for the service: keeps what it was given, is ready at once, ends with Ctrl-C."""

    def __init__(self) -> None:
        self.settings: list[ServeSettings] = []
        self.rooms: list[list[str]] = []
        self.said: list[str] = []
        self.told: list[str] = []

    def run(self, settings: ServeSettings, *, on_ready: Callable[[str], None], rooms: Any) -> None:
        self.settings.append(settings)
        self.rooms.append([room.name for room in rooms.bi_rooms])
        rooms.close(0)
        on_ready(f"http://{settings.host}:{settings.port}")
        raise KeyboardInterrupt

    def demo(self, **options: Any) -> ServeSettings:
        self.said.clear()
        self.told.clear()
        demo.run(DemoOptions(port=0, device="cpu", **options), say=self.said.append, tell=self.told.append)
        return self.settings[-1]

    def index(self) -> Path:
        (folder,) = self.settings[-1].indexes.values()
        return Path(folder)


@pytest.fixture
def service(cache: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    monkeypatch.setattr(running, "run", service.run)
    monkeypatch.setattr(corpus, "documents", lambda: SAMPLE)
    monkeypatch.setenv("MUNJANG_MODEL", str(model_folder))
    monkeypatch.delenv("MUNJANG_RERANKER", raising=False)
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("no browser was asked for"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return service


# --- the sample ------------------------------------------------------------------------------------------------------


def test_the_sample_is_made_once(service: Service, cache: Path) -> None:
    settings = service.demo()
    assert dict(settings.indexes) == {"sample": service.index()}
    assert service.index().parent == cache
    assert settings.examples == corpus.EXAMPLES
    assert settings.host == "127.0.0.1"
    assert service.rooms == [["tiny"]]  # the model that made it is not loaded again
    assert service.told[0] == "http://127.0.0.1:0"
    assert [query for query in corpus.EXAMPLES if any(query in line for line in service.told)] == [*corpus.EXAMPLES]
    assert [line.split(":")[0] for line in service.said if line.endswith("s)")] == ["model", "index", "service"]
    assert any("2 added" in line for line in service.said)
    first = service.index()
    service.demo()
    assert service.index() == first
    assert any("made before" in line for line in service.said)


def test_a_sample_that_changed_is_made_anew(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.demo()
    first = service.index()
    monkeypatch.setattr(corpus, "documents", lambda: [*SAMPLE, {"id": "y", "text": "빵"}])
    service.demo()
    assert service.index() != first
    with Index.open(service.index()) as index:
        assert index.count == 3


def test_what_was_added_stays_until_rebuild(service: Service, model_folder: Path) -> None:
    import munjang

    service.demo()
    with Index.open(service.index(), munjang.load(model_folder, device="cpu")) as index:
        index.add([{"id": "mine", "text": "my own"}])
    service.demo()
    with Index.open(service.index()) as index:
        assert index.count == 3
    service.demo(rebuild=True)
    with Index.open(service.index()) as index:
        assert index.count == 2


# --- own files -------------------------------------------------------------------------------------------------------


def test_own_files_of_all_kinds(service: Service, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "가.md").write_text("# 비\n\n비가 온다.", encoding="utf-8")
    (tmp_path / "notes" / "b.txt").write_text("one\ntwo")
    (tmp_path / "faq.csv").write_text("질문,year\n빵은 어디에?,2024\nWhere?,2025\n", encoding="utf-8")
    (tmp_path / "lines.txt").write_text("first\n\nsecond\n")
    (tmp_path / "one.md").write_text("a whole file")
    names = ("notes", "faq.csv", "one.md")
    settings = service.demo(docs=tuple(str(tmp_path / name) for name in names), column="질문")
    assert dict(settings.indexes) == {"docs": service.index()}
    assert settings.examples == ()
    assert not any(query in line for query in corpus.EXAMPLES for line in service.told)
    with Index.open(service.index()) as index:
        found = {document.id: document for document in index.documents()}
        assert {"가.md", "b.txt", "one.md"} <= set(found)
        assert found["b.txt"].text == "one\ntwo"
        assert sorted(document.text for document in found.values() if "year" in document.metadata) == [
            "Where?",
            "빵은 어디에?",
        ]
    service.demo(docs=(str(tmp_path / "lines.txt"),), reranker="some/re")
    assert any("reranking" in line for line in service.told)
    assert list(service.settings[-1].indexes) == ["lines"]
    with Index.open(service.index()) as index:
        assert [document.text for document in index.documents()] == ["first", "second"]


def test_own_files_are_read_again_when_they_change(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "faq.txt"
    file.write_text("first\n")
    docs = (str(file),)
    service.demo(docs=docs)
    first = service.index()
    service.demo(docs=docs)
    assert service.index() == first
    assert any("made before" in line for line in service.said)
    file.write_text("second\n")
    service.demo(docs=docs)
    with Index.open(service.index()) as index:
        assert [document.text for document in index.documents()] == ["second"]


def test_progress_knows_how_many_there_are(service: Service, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    told: list[tuple[int, int | None]] = []
    options = DemoOptions(docs=(str(tmp_path / "a.txt"),), port=0, device="cpu")
    demo.run(options, say=str, tell=str, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (3, 3)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "id,text\n1,one\n1,two\n", "the id '1' repeats"),
        ("a.jsonl", '{"text": "one"}\n{"text":\n', "line 2"),
        ("a.csv", "x,y\n1,2\n", "column"),
        ("a.txt", "\n\n", "there is no document"),
        ("a.jsonl", '{"text": "one", " ": 1}\n', "must be named by a text"),
        (None, "", "there is no file or folder"),
    ],
)
def test_bad_files_are_told_before_a_model_is_loaded(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, content: str, said: str
) -> None:
    monkeypatch.setattr(starting, "_load", lambda *_: pytest.fail("the model was loaded"))
    path = tmp_path / (name or "missing.csv")
    if name is not None:
        path.write_text(content)
    with pytest.raises((DataError, InputError), match=said):
        service.demo(docs=(str(path),))
    assert service.settings == []


def test_an_empty_folder_is_told(service: Service, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no document in this folder"):
        service.demo(docs=(str(tmp_path / "empty"),))


# --- an index of one's own -------------------------------------------------------------------------------------------


def test_an_index_in_a_place_of_ones_own(service: Service, tmp_path: Path, cache: Path) -> None:
    place = tmp_path / "내 색인"
    settings = service.demo(index=place)
    assert dict(settings.indexes) == {"sample": place}
    assert not cache.exists()
    again = service.demo(index=place)
    assert dict(again.indexes) == {"내-색인": place}
    assert again.examples == corpus.EXAMPLES  # it is the sample still
    assert service.rooms[-1] == []  # its own model, which the service loads
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(InputError, match="is an index already"):
        service.demo(index=place, docs=(str(tmp_path / "a.txt"),))
    own = service.demo(index=tmp_path / "own", docs=(str(tmp_path / "a.txt"),))
    assert dict(own.indexes) == {"a": tmp_path / "own"}
    assert service.demo(index=tmp_path / "own").examples == ()


def test_an_index_of_another_model_is_refused(service: Service, tmp_path: Path) -> None:
    service.demo(index=tmp_path / "i")
    small_models.bi_encoder("roberta").save(tmp_path / "other")
    with pytest.raises(ModelError, match="another model"):
        service.demo(index=tmp_path / "i", model=str(tmp_path / "other"))


def test_an_empty_index_is_told(service: Service, tmp_path: Path, model: Any) -> None:
    building.fill(tmp_path / "i", model, [])
    with pytest.raises(InputError, match="is empty"):
        service.demo(index=tmp_path / "i")


def test_a_folder_that_is_no_index_is_told_before_a_model_is_loaded(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_load", lambda *_: pytest.fail("the model was loaded"))
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(InputError, match="with other files"):
        service.demo(index=tmp_path)


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_reranker_of_ones_own(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dict(service.demo(reranker="some/where/re2").rerankers) == {"re2": "some/where/re2"}
    monkeypatch.setenv("MUNJANG_RERANKER", "other")
    assert dict(service.demo().rerankers) == {"other": "other"}


def test_the_bundled_reranker_where_it_is(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Path:
        raise ModelNotFoundError(name)

    monkeypatch.setattr(bundled, "path", Path)
    assert dict(service.demo().rerankers) == {bundled.RERANKER: bundled.RERANKER}
    monkeypatch.setattr(bundled, "path", absent)
    assert dict(service.demo().rerankers) == {}
    assert any("no reranker" in line for line in service.said)


def test_a_missing_extra_is_told_first(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(starting._NEEDED, "no_such_module", "no-such-package")
    with pytest.raises(MissingExtraError, match=r"no-such-package.*pip install 'munjang\[serve\]'"):
        service.demo()


# --- address and browser ---------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_gives_the_next_free_one() -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = free_port(port, said.append)
        assert port < found <= port + 100
        assert said == [f"port {port} is taken, so it is {found}"]
    said.clear()
    assert free_port(port, said.append) == port
    assert free_port(0, said.append) == 0
    assert said == []


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_is_free", lambda port: False)
    with pytest.raises(InputError, match=r"65500\.\.65535 are all taken"):
        free_port(65500, str)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 65536}, "port must be 0..65535"),
        ({"port": True}, "port must be 0..65535"),
        ({"column": "text"}, "--docs"),
        ({"rebuild": True, "index": Path("i")}, "only a cached index"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        DemoOptions(**options)


@pytest.mark.parametrize(
    ("platform", "environment", "there"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_where_there_is_a_browser(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], there: bool
) -> None:
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(starting.sys, "platform", platform)
    assert has_browser() is there


def test_the_browser_opens_once_the_service_is_ready(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: queue.Queue[str] = queue.Queue()
    hang = threading.Event()

    def open_slowly(address: str) -> None:
        opened.put(address)
        hang.wait(30)  # a browser that does not return holds nothing up

    monkeypatch.setattr(webbrowser, "open", open_slowly)
    monkeypatch.setenv("DISPLAY", ":0")
    try:
        service.demo(browser=False)
        service.demo()
        assert opened.get(timeout=30) == service.told[0]
        assert opened.empty()
    finally:
        hang.set()


@given(st.text(max_size=120))
def test_plain_names_can_stand_in_an_address(name: str) -> None:
    check_name(plain_name(name), "indexes")


def test_plain_names_keep_what_they_can() -> None:
    assert plain_name("my notes (2024)") == "my-notes-2024"
    assert plain_name("내 문서.v2") == "내-문서.v2"
    assert plain_name("...") == "documents"
