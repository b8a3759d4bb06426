"""What a person can filter by: the fields of an index with their commonest values, or their range.

Enters: the columns that filters read. Leaves: one summary per field. Numbers and dates have a smallest and a greatest
value, texts and truth values their commonest ones with counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from munjang.index.columns import BOOLEAN, FLOAT, INTEGER, TEXT, Column

FieldKind = Literal["text", "number", "bool"]
COMMONEST = 20
_LONGEST = 200  # characters of a value; a longer one is no category
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ].*)?)?")


@dataclass(frozen=True)
class FieldSummary:
    """A field of an index's documents."""

    name: str
    kind: FieldKind  # of most of its values
    count: int  # values
    distinct: int | None = None
    values: tuple[tuple[str | bool, int], ...] | None = None  # the commonest, with how often they stand there
    least: int | float | str | None = None  # of numbers and of dates
    greatest: int | float | str | None = None

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "count": self.count}
        if self.distinct is not None:
            found["distinct"] = self.distinct
        if self.values is not None:
            found["values"] = [{"value": value, "count": count} for value, count in self.values]
        if self.least is not None:
            found["min"], found["max"] = self.least, self.greatest
        return found


def summaries(columns: Mapping[str, Column]) -> list[FieldSummary]:
    """The fields in the order of their names; one that no document has any more is left out."""
    return [_summary(name, column) for name, column in sorted(columns.items()) if len(column.kinds)]


def _summary(name: str, column: Column) -> FieldSummary:
    of_kind = np.bincount(column.kinds, minlength=5)
    counts: dict[FieldKind, int] = {
        "text": int(of_kind[TEXT]),
        "number": int(of_kind[INTEGER] + of_kind[FLOAT]),
        "bool": int(of_kind[BOOLEAN]),
    }
    kind = max(counts, key=lambda one: counts[one])
    if kind == "number":
        return _numbers(name, column, counts[kind])
    values = column.values[column.kinds == (TEXT if kind == "text" else BOOLEAN)]
    if kind == "bool":
        both = np.bincount(values, minlength=2).tolist()
        commonest = tuple((value, count) for value, count in ((True, both[1]), (False, both[0])) if count)
        return FieldSummary(name, kind, counts[kind], len(commonest), commonest)
    return _texts(name, values, list(column.vocabulary.codes), counts[kind])


def _numbers(name: str, column: Column, count: int) -> FieldSummary:
    parts: list[NDArray[Any]] = [column.values[column.kinds == INTEGER]]
    if column.floats.size:
        parts.append(column.floats[column.kinds == FLOAT])
    ends = [end for part in parts if part.size for end in (part.min().item(), part.max().item())]
    distinct = sum(len(np.unique(part)) for part in parts)
    return FieldSummary(name, "number", count, distinct, None, min(ends), max(ends))


def _texts(name: str, codes: NDArray[np.int64], vocabulary: list[str], count: int) -> FieldSummary:
    different, often = np.unique(codes, return_counts=True)
    order = np.argsort(-often, kind="stable")[:COMMONEST]
    commonest = tuple((vocabulary[different[place]], int(often[place])) for place in order)
    least = greatest = None
    if all(_DATE.fullmatch(value) for value, _ in commonest):
        texts = [vocabulary[code] for code in different]
        if all(map(_DATE.fullmatch, texts)):
            least, greatest = min(texts), max(texts)
    is_category = len(different) <= COMMONEST or commonest[0][1] > 1
    kept = commonest if is_category and all(len(value) <= _LONGEST for value, _ in commonest) else None
    return FieldSummary(name, "text", count, len(different), kept, least, greatest)
