"""A hit as a person reads it on a terminal: rank, score, how far it moved, the passage, where it stands."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from munjang.report.tables import plain, shorten, width

if TYPE_CHECKING:
    from munjang.index.results import Hit

_LINES = 3  # of a passage
_INDENT = "    "
_LEAST, _MOST = 40, 110  # cells of a line, whatever the terminal


def shown(hit: Hit, rank: int, query: str) -> str:
    """Two to five lines about a hit."""
    stages = ", ".join(f"{one.name} {one.score:.4g} (rank {one.rank})" for one in hit.stages)
    stages = stages if len(hit.stages) > 1 else hit.stages[0].name  # of one stage the score stands there already
    room = min(_MOST, max(_LEAST, shutil.get_terminal_size().columns)) - len(_INDENT)
    head = f"{rank:>2}. {hit.score:.4f}{arrow(hit.moved)}  {shorten(hit.id, 60)}   {stages}"
    around = bool(hit.text[: hit.passage.start].strip()), bool(hit.text[hit.passage.end :].strip())
    part = excerpt(hit.passage.text, query, room * _LINES, around=around)
    lines = [head, *(_INDENT + line for line in wrapped(part, room)[:_LINES])]
    if hit.metadata:
        lines.append(_INDENT + shorten(facts(hit.metadata), room))
    return "\n".join(lines)


def arrow(moved: int) -> str:
    """How far the reranker moved a hit: ▲3, ▼1, nothing."""
    return "" if moved == 0 else f" {'▲' if moved > 0 else '▼'}{abs(moved)}"


def facts(metadata: Mapping[str, object]) -> str:
    """Metadata on one line."""
    said = (
        f"{name}: {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in metadata.items()
    )
    return " · ".join(said)


def excerpt(text: str, query: str, cells: int, *, around: tuple[bool, bool] = (False, False)) -> str:
    """The part of a text that shares most with the query, from a word to a word; all of it where it fits.

    Pairs of letters are compared, because Korean words change their endings. around: whether there is text before and
    after this one, which the ellipses tell.
    """
    words = plain(text).split()
    room = cells - 12  # for the ellipses, and for lines that are not full
    wanted = _pairs(query)
    starts: list[int] = []  # of the windows that share most
    most = 1  # nothing shared: the beginning
    for start in range(len(words)):
        fits = max(1, _fitting(words[start:], room))
        score = len(wanted & _pairs(" ".join(words[start : start + fits])))
        if score >= most:
            starts = [*starts, start] if score == most else [start]
            most = score
        if start + fits == len(words):
            break
    best = starts[len(starts) // 2] if starts else 0  # the middle one has what is shared in its middle
    count = max(1, _fitting(words[best:], room))
    part = shorten(" ".join(words[best : best + count]), room)
    before, after = best > 0 or around[0], best + count < len(words) or around[1]
    return f"{'… ' if before else ''}{part}{' …' if after and not part.endswith('…') else ''}"


def wrapped(text: str, cells: int) -> list[str]:
    """Lines of at most so many cells, broken between words; a longer word is broken where it must be."""
    lines, line = [], ""
    for word in plain(text).split():
        while width(word) > cells:
            head = shorten(word, cells)[:-1]
            lines += [line, head] if line else [head]
            line, word = "", word[len(head) :]
        joined = f"{line} {word}" if line else word
        if width(joined) <= cells:
            line = joined
        else:
            lines.append(line)
            line = word
    return [*lines, line] if line else lines


def _fitting(words: list[str], cells: int) -> int:
    """How many of the first words fit."""
    used = -1
    for count, word in enumerate(words):
        used += 1 + width(word)
        if used > cells:
            return count
    return len(words)


def _pairs(text: str) -> set[str]:
    letters = plain(text).lower()
    return {letters[place : place + 2] for place in range(len(letters) - 1) if letters[place : place + 2].isalnum()}
