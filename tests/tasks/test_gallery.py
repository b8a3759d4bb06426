"""The gallery: its commands give the pictures' sizes and the output that stands below them, in both languages."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from benchmarks.gallery import run

ROOT = Path(__file__).parents[2]
PAGES = ("gallery.md", "gallery.ko.md")
_NUMBER = re.compile(r"\d+\.\d+")
_BLOCK = re.compile(r"```bash\n(.*?)```\n(?:\n```text\n(.*?)```|\n!\[[^]]*\]\((.*?)\))?", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Like the top of a clone, without network: the page needs the bundled model alone."""
    for name in ("docs", "src"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _blocks(page: str) -> list[tuple[str, str, str]]:
    """Commands, the output or the picture below them."""
    return _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


def _size(picture: Path) -> tuple[int, int]:
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.slow
def test_commands_make_what_the_page_shows(folder: Path) -> None:
    """Where the bundled weights have changed: `python -m benchmarks.gallery --write`."""
    blocks = _blocks("gallery.md")
    assert sum(bool(output) for _, output, _ in blocks) == 3
    assert sum(bool(picture) for _, _, picture in blocks) == 3
    for commands, output, picture in blocks:
        printed = run(commands)
        if output:
            assert _NUMBER.sub("#", printed) == _NUMBER.sub("#", output)
            pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(output), strict=True)
            assert all(abs(float(a) - float(b)) <= 0.011 for a, b in pairs)
        made = folder / Path(picture).name
        if picture and made.exists():  # a page was looked at in a browser
            assert _size(made) == _size(ROOT / "docs" / picture)
    assert (folder / "map-notes.html").stat().st_size > 100_000
    assert len(list(folder.glob("*.png"))) == 2


def test_both_languages_show_the_same() -> None:
    english, korean = (_blocks(page) for page in PAGES)
    assert english == korean != []


@pytest.mark.parametrize("page", PAGES)
def test_pictures_are_there(page: str) -> None:
    """With words for those who do not see them."""
    found = re.findall(r"!\[([^]]*)\]\((.*?)\)", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(found) == 3
    for words, picture in found:
        assert len(words) > 20
        assert min(_size(ROOT / "docs" / picture)) > 500
