"""The map in CONTRIBUTING.md is true: every path that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATHS = sorted(set(re.findall(r"`((?:[\w.]+/)+(?:[\w.]+)?|[a-z]+\.py)`", _TEXT)))


def _candidates(path: str) -> list[Path]:
    """A path counts from the root or the package; a bare file name is one of any folder in the package."""
    found = [ROOT / path, ROOT / "src/munjang" / path]
    return found if "/" in path else [*found, *(ROOT / "src/munjang").rglob(path)]


@pytest.mark.parametrize("path", _PATHS)
def test_paths_exist(path: str) -> None:
    assert any(candidate.exists() for candidate in _candidates(path))


def test_every_package_is_on_the_map() -> None:
    packages = {path.parent.name for path in (ROOT / "src/munjang").glob("*/__init__.py")}
    assert packages == {name for name in packages if f"`{name}/`" in _TEXT}
