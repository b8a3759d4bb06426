"""`munjang serve`: arguments to settings; what is wrong is told before anything is loaded."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from munjang import bundled
from munjang.cli import serve
from munjang.cli.progress import Reporter
from munjang.errors import DataError, InputError, ModelNotFoundError
from munjang.serve.settings import ServeSettings
from support.indexed import make_index


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUNJANG_KEYS", "MUNJANG_MODEL", "MUNJANG_RERANKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("cli") / "my-index", [{"text": "비가 온다"}])


def _args(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    common = argparse.ArgumentParser(add_help=False)
    serve.add(parser.add_subparsers(), common)
    return parser.parse_args(["serve", *given])


def _settings(*given: str) -> ServeSettings:
    return serve.settings_of(_args(*given), Reporter(io.StringIO()))


def _bundled(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    def path(name: str) -> Path:
        if not there:
            raise ModelNotFoundError("not here")
        return Path("somewhere")

    monkeypatch.setattr(bundled, "path", path)


def test_an_index_brings_its_own_model(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundled(monkeypatch, there=True)
    found = _settings(str(index))
    assert dict(found.indexes) == {"my-index": str(index)}
    assert not found.models
    assert dict(found.rerankers) == {bundled.RERANKER: bundled.RERANKER}
    assert (found.host, found.port, found.log_format, found.page) == ("127.0.0.1", 8000, "text", True)


def test_without_an_index_the_bundled_model_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    _bundled(monkeypatch, there=True)
    assert dict(_settings().models) == {bundled.BI_ENCODER: bundled.BI_ENCODER}
    monkeypatch.setenv("MUNJANG_MODEL", "owner/other")
    monkeypatch.setenv("MUNJANG_RERANKER", "owner/cross")
    found = _settings()
    assert dict(found.models) == {"other": "owner/other"}
    assert dict(found.rerankers) == {"cross": "owner/cross"}
    assert not _settings("--no-reranker").rerankers


def test_an_installation_without_the_bundled_reranker_says_so(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundled(monkeypatch, there=False)
    told = io.StringIO()
    assert not serve.settings_of(_args(str(index)), Reporter(told)).rerankers
    assert "--reranker" in told.getvalue()


def test_everything_can_be_named(index: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("a-long-key read the page\nanother-key write\n", encoding="utf-8")
    found = _settings(
        f"faq={index}",
        "--model", "ko=./m", "--model", "owner/en", "--reranker", "r=./r",
        "--host", "0.0.0.0", "--port", "0", "--keys", str(keys), "--cors", "https://a.example", "--log", "json",
        "--limit", "k=50", "--limit", "deadline_s=2.5", "--no-page", "--title", "우리 검색",
    )  # fmt: skip
    assert dict(found.indexes) == {"faq": str(index)}
    assert dict(found.models) == {"ko": "./m", "en": "owner/en"}
    assert dict(found.rerankers) == {"r": "./r"}
    assert dict(found.keys) == {"a-long-key": "read", "another-key": "write"}
    assert found.key_names["a-long-key"] == "the page"
    assert (found.limits.k, found.limits.deadline_s, found.port, found.page) == (50, 2.5, 0, False)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "a=b", [])
    with pytest.raises(InputError, match="NAME=PATH"):
        _settings(str(folder), "--no-reranker")  # its name cannot stand in an address
    assert dict(_settings(f"ab={folder}", "--no-reranker").indexes) == {"ab": str(folder)}


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (["/nowhere"], (DataError, InputError), "nowhere"),
        (["--host", "0.0.0.0"], InputError, "--allow-open"),
        (["--limit", "speed=1"], InputError, "body_bytes"),
        (["--limit", "k=many"], InputError, "number"),
        (["--limit", "k=0"], InputError, "above 0"),
        (["--model", "a=x", "--model", "a=y"], InputError, "two of --model"),
        (["--model", "=x"], InputError, "NAME=PATH"),
        (["--cors", "example.org"], InputError, "https://example.org"),
        (["--keys", "/nowhere/keys"], DataError, "cannot be read"),
        (["--port", "99999"], InputError, "65535"),
    ],
)
def test_what_is_wrong_is_told(given: list[str], kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        _settings("--no-reranker", *given)


def test_keys_of_the_environment_open_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNJANG_KEYS", "a-long-key:write")
    assert dict(_settings("--no-reranker", "--host", "0.0.0.0").keys) == {"a-long-key": "write"}


def test_the_command_serves_what_it_was_told(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from munjang.serve import running

    served: list[ServeSettings] = []

    def run(settings: ServeSettings, *, on_ready: Any) -> None:
        served.append(settings)
        on_ready("http://127.0.0.1:1234")

    monkeypatch.setattr(running, "run", run)
    told = io.StringIO()
    args = _args(str(index), "--no-reranker", "--port", "0")
    args.run(args, Reporter(told))
    assert dict(served[0].indexes) == {"my-index": str(index)}
    assert "http://127.0.0.1:1234/docs" in told.getvalue()


def test_the_parser_imports_nothing_heavy() -> None:
    import subprocess

    code = "import sys, munjang.cli.serve; print([m for m in ('torch', 'fastapi', 'uvicorn') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
