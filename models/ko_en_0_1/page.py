"""Results -> the generated parts of docs/models.md and docs/models.ko.md, and their picture.

What people wrote around the markers stays. A part is `<!-- models:NAME:begin -->` ... `<!-- models:NAME:end -->`; a
page must have all of them. Until there are results the parts say so, and the pages claim no figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from models.ko_en_0_1.picture import picture
from models.ko_en_0_1.results import Measured
from models.ko_en_0_1.tables import (
    english_table,
    everything_table,
    machine_line,
    ordered,
    overlap_table,
    similarity_table,
    threshold_table,
    two_stage_table,
)
from models.ko_en_0_1.words import Language, word
from munjang.errors import DataError
from munjang.files import atomic_write, disk_errors

PARTS = ("picture", "similarity", "english", "everything", "two-stage", "thresholds", "overlap", "machine")
_ALT = {"en": "Models compared on similarity and other tasks", "ko": "유사도와 다른 과제에서 모델 비교"}


def overview(results: Mapping[str, Measured]) -> str:
    """Everything measured, for a terminal."""
    parts = [everything_table(results, "en"), two_stage_table(results, "en"), machine_line(results, "en")]
    return "\n\n".join(parts) + "\n"


def parts_of(results: Mapping[str, Measured], language: Language, *, image: str) -> dict[str, str]:
    """The generated parts by name; image: the picture's path as the page sees it."""
    return {
        "picture": f"![{_ALT[language]}]({image})",
        "similarity": similarity_table(results, language) + "\n\n" + _how(language, published=True),
        "english": english_table(results, language) + "\n\n" + _how(language, published=True),
        "everything": everything_table(results, language) + "\n\n" + _how(language),
        "two-stage": two_stage_table(results, language),
        "thresholds": threshold_table(results, language),
        "overlap": _overlaps(results, language),
        "machine": machine_line(results, language),
    }


def write_pages(page: str | Path, results: Mapping[str, Measured]) -> list[Path]:
    """Fill the English page, its Korean twin, and draw the picture for both; everything is made before any is written.

    page: PAGE.md; the twin is PAGE.ko.md, the pictures are images/PAGE.svg and images/PAGE.ko.svg beside them.
    """
    page = Path(page)
    twins: tuple[tuple[Path, Language], ...] = ((page, "en"), (page.with_name(f"{page.stem}.ko{page.suffix}"), "ko"))
    written: dict[Path, str] = {}
    for path, language in twins:
        image = path.parent / "images" / f"{path.stem}.svg"
        parts = parts_of(results, language, image=f"images/{image.name}")
        written[path] = filled(_read(path), parts, path)
        written[image] = picture(results, language)
    for path, text in written.items():
        with disk_errors(path, safe="what was written before it is whole; run the command again"):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, text.encode())
    return list(written)


def filled(text: str, parts: Mapping[str, str], path: Path) -> str:
    """A page with its generated parts replaced."""
    for name, content in parts.items():
        begin, end = (f"<!-- models:{name}:{which} -->" for which in ("begin", "end"))
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise DataError(f"{path}: expected {begin} and, behind it, {end}: put them where that part is to stand")
        text = f"{before}{begin}\n{content.strip()}\n{end}{after}"
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such page; it and its twin in the other language must be there") from None


def _how(language: Language, *, published: bool = False) -> str:
    lines = [word("interval", language), *([word("published note", language)] if published else [])]
    return " ".join(lines)


def _overlaps(results: Mapping[str, Measured], language: Language) -> str:
    compared = [model for model in ordered(results) if "overlap" in model.about]
    if not compared:
        return word("no training", language)
    return "\n\n".join(f"**{model.name}**\n\n{overlap_table(model, language)}" for model in compared)
