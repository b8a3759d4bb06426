"""Tables as text and as Markdown, and the page with one part for each kind of device.

A run replaces only the part between its own markers; what stands around them, and the other part, is kept.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TITLE = """# Benchmarks

Munjang beside sentence-transformers: the same model folder, the same texts, one run, taking turns. `make bench` writes
this page anew for the machine it runs on; `python -m benchmarks.encode --help` shows the settings.
"""
PARTS = ("cpu", "cuda")
HEADINGS = {"cpu": "On a CPU", "cuda": "On a GPU"}


@dataclass(frozen=True)
class Table:
    """A title, what its columns mean, and rows of ready words."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    note: str = ""

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(self.columns) + " |",
            "|" + "---|" * len(self.columns),
            *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows),
        ]
        return f"### {self.title}\n\n" + "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")

    def text(self) -> str:
        widths = [max(_width(line[at]) for line in (self.columns, *self.rows)) for at in range(len(self.columns))]
        lines = [_line(self.columns, widths), "-" * (sum(widths) + 2 * len(widths) - 2)]
        lines += [_line(row, widths) for row in self.rows]
        return f"\n{self.title}\n" + "\n".join(lines)


def part(device: str, command: str, machine: Mapping[str, str], tables: Sequence[Table], how: str) -> str:
    """One device's part of the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    body = "\n\n".join(table.markdown() for table in tables)
    return f"## {HEADINGS[device]}\n\n`{command}`\n\n{facts}\n\n{body}\n\n### How it was measured\n\n{how}\n"


def write(path: Path, device: str, content: str) -> None:
    """Put one device's part into the page, which is made where it is not there yet."""
    page = path.read_text(encoding="utf-8") if path.exists() else TITLE
    for name in PARTS:
        if _marks(name)[0] not in page:
            begin, end = _marks(name)
            page = f"{page.rstrip()}\n\n{begin}\n## {HEADINGS[name]}\n\nNot measured yet.\n{end}\n"
    begin, end = _marks(device)
    before, _, rest = page.partition(begin)
    if end not in rest:
        raise ValueError(f"{path} has {begin} without {end} behind it: put it back, or delete the page")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{begin}\n{content.strip()}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def _marks(device: str) -> tuple[str, str]:
    return f"<!-- {device}:begin -->", f"<!-- {device}:end -->"


def _width(text: str) -> int:
    """Columns on a terminal: Hangul takes two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)).rstrip()
