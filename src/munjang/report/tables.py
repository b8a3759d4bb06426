"""Tables for terminals: columns that align although Korean characters are two cells wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal


def width(text: str) -> int:
    """Cells that a terminal gives to a text."""
    return sum(_cells(character) for character in text)


def plain(text: str) -> str:
    """A text on one line, composed, without characters that move the cursor."""
    composed = unicodedata.normalize("NFC", text)  # jamo that macOS writes apart stand together again
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Zl", "Zp") else character for character in composed
    )


def shorten(text: str, cells: int) -> str:
    """Shorten to at most this many terminal cells, with an ellipsis."""
    text = plain(text)
    if width(text) <= cells:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells(character)
        if used > cells - 1:
            break
        kept += character
    return kept + "…"


def pad(text: str, cells: int, side: Literal["left", "right"] = "left") -> str:
    """Spaces up to the given width; `side` is where the text stands."""
    space = " " * max(0, cells - width(text))
    return text + space if side == "left" else space + text


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Rows of cells as aligned lines; the columns numbered in `right` are set to the right."""
    columns = max((len(row) for row in rows), default=0)
    widths = [max(width(row[column]) for row in rows if column < len(row)) for column in range(columns)]
    lines = (
        "  ".join(
            pad(cell, widths[column], "right" if column in right else "left") for column, cell in enumerate(row)
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
