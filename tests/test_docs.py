"""Every Python snippet of the README and the guides runs, as it stands, against a hub cache that holds MiniLM."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from munjang.errors import MunjangWarning

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "README.ko.md", "docs/guide.md", "docs/guide.ko.md", "docs/training.md", "docs/training.ko.md"]
COMMIT = "0" * 40


@pytest.fixture
def hub(tmp_path: Path, minilm_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub cache as huggingface_hub lays it out, with one model in it, and no network."""
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "snapshots").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots" / COMMIT).symlink_to(minilm_path, target_is_directory=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def _snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = _snippets(page)
    assert snippets
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MunjangWarning)
        for snippet in snippets:
            exec(compile(snippet, f"{page} snippet", "exec"), names)


@pytest.mark.parametrize(
    ("page", "twin"),
    [("README.md", "README.ko.md"), ("docs/guide.md", "docs/guide.ko.md"), ("docs/training.md", "docs/training.ko.md")],
)
def test_twins_have_the_same_parts(page: str, twin: str) -> None:
    """The two languages say the same: as many sections, and the same code but for comments and text."""

    def shape(name: str) -> tuple[list[str], int]:
        text = (ROOT / name).read_text(encoding="utf-8")
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        return re.findall(r"^#+", prose, re.MULTILINE), len(re.findall(r"```", text))

    assert shape(page) == shape(twin)


@pytest.mark.parametrize("page", [*PAGES, "docs/formats.md", "docs/design.md", "docs/reproduction.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page).parent.joinpath(target).exists(), target
