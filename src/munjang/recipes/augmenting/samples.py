"""silver.tsv -> what people look at first: counts by origin, and rows with the highest, middle, lowest scores.

One pass over the file as it is now, in bounded memory. Somebody may have edited it: a row that cannot be read is passed
over here (training counts it), a missing spread or origin is no error.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from munjang.data import ReadOptions, open_rows
from munjang.recipes.augmenting.silver import HEADER

SHOWN = 5  # rows of every sort


@dataclass(frozen=True)
class Row:
    """A row of the silver set."""

    a: str
    b: str
    score: float
    spread: float | None
    origin: str


@dataclass(frozen=True)
class Looked:
    """What was found."""

    origins: dict[str, int]
    samples: dict[str, list[Row]]  # "highest scores", "least certain"... -> rows


# Sort -> what a row must have most of.
_SORTS: dict[str, Callable[[Row], float]] = {
    "Highest scores": lambda row: row.score,
    "In the middle": lambda row: -abs(row.score - 0.5),
    "Lowest scores": lambda row: -row.score,
    "Least certain: what the label was made of differs most": lambda row: row.spread or 0.0,
}


def look(path: Path) -> Looked:
    """Read the file once."""
    origins: Counter[str] = Counter()
    heaps: dict[str, list[tuple[float, int, Row]]] = {name: [] for name in _SORTS}
    for number, row in enumerate(_rows(path)):
        origins[row.origin] += 1
        for name, worth in _SORTS.items():
            item = (worth(row), -number, row)  # of equals the earlier stays
            if len(heaps[name]) < SHOWN:
                heapq.heappush(heaps[name], item)
            else:
                heapq.heappushpop(heaps[name], item)
    samples = {name: [row for _, _, row in sorted(heap, reverse=True)] for name, heap in heaps.items()}
    return Looked(dict(origins.most_common()), samples)


def _rows(path: Path) -> Iterator[Row]:
    table = open_rows(path, options=ReadOptions("tsv", quoting=False)).open()
    for row in table.read(None):
        if row.problem:
            continue
        a, b, score, spread, origin = (str(row.values.get(name, "")) for name in HEADER)
        value = _number(score)
        if a and b and value is not None:
            yield Row(a, b, value, _number(spread), origin or "unknown")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
