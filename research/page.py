"""Tables -> the part of a page between two markers; what people wrote around it stays."""

from __future__ import annotations

from pathlib import Path

from munjang.errors import DataError
from munjang.files import atomic_write, disk_errors

BEGIN, END = "<!-- reproduction:begin -->", "<!-- reproduction:end -->"
_NEW = f"# Reproduction\n\n{BEGIN}\n{END}\n"


def write_page(path: str | Path, content: str) -> None:
    """Replace the generated part of a page, which is made where it is not there yet."""
    path = Path(path)
    page = path.read_text(encoding="utf-8") if path.exists() else _NEW
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"{path}: expected {BEGIN} and, behind it, {END}: put them where the tables are to stand")
    with disk_errors(path, safe="the page is as it was"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, f"{before}{BEGIN}\n{content.strip()}\n{END}{after}".encode())
