"""Application pages: every snippet prints the output below it with the bundled model. The rest: tests/test_docs."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path

import pytest

from munjang.errors import MunjangWarning

ROOT = Path(__file__).parents[2]
PAGES = ["clustering", "paraphrases", "keywords", "topics", "map"]
_NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the sample data; no network, and an empty hub cache."""
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


@pytest.mark.usefixtures("_folder", "exact")
@pytest.mark.parametrize("suffix", [".md", ".ko.md"])
@pytest.mark.parametrize("page", PAGES)
def test_snippets_print_what_the_page_shows(page: str, suffix: str) -> None:
    parts = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", _read(page + suffix), re.DOTALL)
    assert len(parts) == len(re.findall("```python", _read(page + suffix))) > 0
    names: dict[str, object] = {}
    for snippet, shown in parts:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore", MunjangWarning)  # the map, on machines without a Hangul font
            exec(compile(snippet, page, "exec"), names)
        assert _alike(printed.getvalue(), shown), printed.getvalue()
