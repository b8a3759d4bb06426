"""Tables in two languages, and the parts of two pages that they fill.

Enters: a table whose words are known in English and Korean. Leaves: the same figures between the same marks of both
pages. A page is replaced whole, so that a run that is killed leaves the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.page import Table
from munjang.files import atomic_write

Language = Literal["en", "ko"]
ENDINGS: dict[Language, str] = {"en": ".md", "ko": ".ko.md"}


@dataclass(frozen=True)
class Said:
    """The same in both languages."""

    en: str
    ko: str

    def format(self, **values: object) -> Said:
        """Both with the same values filled in; a value that is `Said` is said in each language."""
        en, ko = (
            {name: one.in_language(language) if isinstance(one, Said) else one for name, one in values.items()}
            for language in ENDINGS
        )
        return Said(self.en.format(**en), self.ko.format(**ko))

    def in_language(self, language: Language) -> str:
        return self.en if language == "en" else self.ko


Cell = Said | str  # figures and names are the same everywhere


@dataclass(frozen=True)
class TwinTable:
    """A `Table` in both languages."""

    title: Said
    columns: tuple[Cell, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    note: Said = field(default_factory=lambda: Said("", ""))

    def table(self, language: Language) -> Table:
        def words(cells: Sequence[Cell]) -> tuple[str, ...]:
            return tuple(one.in_language(language) if isinstance(one, Said) else one for one in cells)

        note = self.note.in_language(language)
        return Table(self.title.in_language(language), words(self.columns), [words(row) for row in self.rows], note)


def check_pages(folder: Path, page: str, part: str) -> None:
    """Both pages are there and have the marks of the part: said before hours of work."""
    for ending in ENDINGS.values():
        _around(folder / f"{page}{ending}", part)


def write_pages(folder: Path, page: str, part: str, tables: Sequence[TwinTable]) -> None:
    """Put the tables between the marks of both pages; what stands around them is kept."""
    check_pages(folder, page, part)
    begin, end = _marks(part)
    for language, ending in ENDINGS.items():
        path = folder / f"{page}{ending}"
        before, after = _around(path, part)
        body = "\n\n".join(one.table(language).markdown() for one in tables)
        atomic_write(path, f"{before}{begin}\n{body}\n{end}{after}".encode())


def _around(path: Path, part: str) -> tuple[str, str]:
    begin, end = _marks(part)
    if not path.is_file():
        raise SystemExit(f"{path} is not there: expected a page with the marks {begin} and {end}")
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    inside, closed, after = rest.partition(end)
    if not found or not closed or begin in inside:
        raise SystemExit(f"{path} needs the marks {begin} and {end}, once and in this order, to say where tables go")
    return before, after


def _marks(part: str) -> tuple[str, str]:
    return f"<!-- {part}:begin -->", f"<!-- {part}:end -->"
