"""The page's files over HTTP: what is sent, with which headers, and what is not there."""

from __future__ import annotations

import gzip
import re
import sys

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from munjang.errors import MissingExtraError
from munjang.serve import page


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.include_router(page.page_router())
    return TestClient(app)


def test_the_page_and_all_that_it_names_are_there(client: TestClient) -> None:
    seen: set[str] = set()
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        if path in seen or path == "/docs":
            continue
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code == 200, path
        waiting += re.findall(r'(?:src|href)="(/[^"]*)"', answer.text)
        waiting += [f"/page/{name}" for name in re.findall(r'from "\./([\w.]+)"', answer.text)]
    names = {f"/page/{name}" for name in page.page_files()} - {"/page/index.html"}
    assert seen - {"/"} == names  # nothing is missing, and nothing lies about that nobody uses


def test_nothing_in_the_page_points_elsewhere() -> None:
    for name, file in page.page_files().items():
        found = re.findall(
            rb"""(?:https?:)?//[a-z0-9-]+\.[a-z]""", file.body.replace(b"http://www.w3.org/2000/svg", b"")
        )
        assert not found, name
        assert b" style=" not in file.body, f"{name}: the policy refuses inline styles"
        assert not re.search(rb"\.(innerHTML|outerHTML|insertAdjacentHTML|write)\b", file.body), name
        assert not re.search(rb"<[^>]*\son\w+=", file.body), f"{name}: the policy refuses inline handlers"


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/plotly.js", "/page/nothing.js"])
def test_every_answer_carries_the_policy(client: TestClient, path: str) -> None:
    policy = client.get(path).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_types_and_etags_and_gzip(client: TestClient) -> None:
    plain = client.get("/page/main.js", headers={"Accept-Encoding": "identity"})
    packed = client.get("/page/main.js", headers={"Accept-Encoding": "gzip"})
    assert plain.headers["content-type"].startswith("text/javascript")  # modules of another type do not run
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == page.page_files()["main.js"].body
    again = client.get("/page/main.js", headers={"If-None-Match": f'"other", W/{plain.headers["etag"]}'})
    assert again.status_code == 304
    assert again.content == b""
    assert client.head("/").status_code == 200
    assert client.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "/page/../page.py",
        "/page/..%2fpage.py",
        "/page/%2e%2e/settings.py",
        "/page/",
        "/page/sub/main.js",
        "/page/main.js%00",
    ],
)
def test_paths_that_lead_out_do_not_exist(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_plotly_comes_from_its_package(client: TestClient) -> None:
    answer = client.get("/page/plotly.js")
    assert answer.status_code == 200
    assert "plotly.js v" in answer.text[:3000]
    file = page.plotly_file()
    assert gzip.decompress(file.packed) == file.body
    assert len(file.packed) < len(file.body) / 2


def test_the_style_that_plotly_would_write_is_said_to_be_there() -> None:
    name = "0a" * 32
    source = b'if(!document.getElementById("%s")){write()}' % name.encode()
    changed = page._without_styles(source)
    assert changed.endswith(source)
    assert changed.count(name.encode()) == 2
    assert page._without_styles(b"nothing") == b"nothing"


def test_without_plotly_the_page_says_what_to_install(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    page.plotly_file.cache_clear()
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    answer = client.get("/page/plotly.js")
    assert answer.status_code == 404
    assert "munjang[viz]" in answer.json()["error"]


def test_without_fastapi_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[serve\]"):
        page.page_router()


def test_every_key_has_its_words_in_both_languages() -> None:
    text = page.page_files()["words.js"].body.decode()
    english, korean = (dict(re.findall(r'^  (\w+): "(.*)",$', part, re.M)) for part in text.split("const ko ="))
    assert list(english) == list(korean)
    for key, words in english.items():
        assert set(re.findall(r"\{\w+\}", words)) == set(re.findall(r"\{\w+\}", korean[key])), key
        assert words.strip(), key
        assert korean[key].strip(), key
    used: set[str] = set()
    for name, file in page.page_files().items():
        if name != "words.js":
            found = re.findall(r'\bt\("(\w+)"|data-t(?:-\w+)?="(\w+)"', file.body.decode())
            used |= {literal or attribute for literal, attribute in found}
    assert used <= set(english)
    assert len(used) > 100
