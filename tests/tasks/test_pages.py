"""The pages of the tasks: their snippets print what stands below them, in both languages. The rest: tests/test_docs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["clustering", "paraphrases", "keywords", "topics", "map"]
_NUMBER = re.compile(r"-?\d+\.\d+")
_COMMIT = "0" * 40


@pytest.fixture
def _hub(tmp_path: Path, minilm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub cache with MiniLM in it, no network, and a folder that sees the sample."""
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(_COMMIT)
    (repository / "snapshots" / _COMMIT).symlink_to(minilm_path, target_is_directory=True)
    (tmp_path / "docs").symlink_to(ROOT / "docs", target_is_directory=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def _read(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def _alike(printed: str, shown: str) -> bool:
    """The same words, and numbers that differ by rounding at most."""
    if _NUMBER.sub("#", printed) != _NUMBER.sub("#", shown):
        return False
    pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= 0.011 for a, b in pairs)


@pytest.mark.usefixtures("_hub")
@pytest.mark.parametrize("suffix", [".md", ".ko.md"])
@pytest.mark.parametrize("page", PAGES)
def test_snippets_print_what_the_page_shows(page: str, suffix: str) -> None:
    parts = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", _read(page + suffix), re.DOTALL)
    assert len(parts) == len(re.findall("```python", _read(page + suffix))) > 0
    names: dict[str, object] = {}
    for snippet, shown in parts:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(snippet, page, "exec"), names)
        assert _alike(printed.getvalue(), shown), printed.getvalue()
