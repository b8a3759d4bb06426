"""Metadata as numpy columns, so that a filter over hundreds of thousands of documents takes milliseconds.

A column has one entry for every value of its field: a document with a list has several, one without the field none.
Columns are made on first use and carried from commit to commit: only documents that were written since are read.
"""

from __future__ import annotations

import bisect
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from munjang.index.state import Layout, State

Kind = Literal["number", "boolean", "text"]
Range = Literal["<", "<=", ">", ">="]
Mask = NDArray[np.bool_]

INTEGER, FLOAT, BOOLEAN, TEXT = 1, 2, 3, 4
_KINDS: dict[int, Kind] = {INTEGER: "number", FLOAT: "number", BOOLEAN: "boolean", TEXT: "text"}
_OPERATORS: dict[Range, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Vocabulary:
    """The different texts of a column, each with a number; it only grows."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self._sorted: tuple[list[str], NDArray[np.int64]] = ([], np.zeros(0, np.int64))

    def add(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def order(self) -> tuple[list[str], NDArray[np.int64]]:
        """The texts in order, and the place of each code in it."""
        found = self._sorted
        if len(found[0]) != len(self.codes):
            texts = sorted(list(self.codes))  # noqa: C414 (the copy is whole even while another thread adds)
            places = np.empty(len(texts), np.int64)
            places[[self.codes[text] for text in texts]] = np.arange(len(texts))
            found = self._sorted = (texts, places)
        return found


@dataclass(frozen=True)
class Column:
    """The values of one field; m entries for the n documents of a layout."""

    vocabulary: Vocabulary
    owners: NDArray[np.int64]  # [m], document rows
    kinds: NDArray[np.uint8]  # [m]
    values: NDArray[np.int64]  # [m]: an integer, 0 or 1, or the code of a text
    floats: NDArray[np.float64]  # [m], or empty where no entry is one
    places: NDArray[np.int64]  # [m]: of the document among the layout's rows
    count: int  # n

    @property
    def present(self) -> set[Kind]:
        """Which kinds of values there are."""
        return {_KINDS[int(kind)] for kind in np.flatnonzero(np.bincount(self.kinds, minlength=5)) if kind}

    def exists(self) -> Mask:
        """Documents that have a value: [n]."""
        return self._documents(np.ones(len(self.owners), np.bool_))

    def equal(self, wanted: Sequence[str | int | float | bool]) -> Mask:
        """Documents of which a value is one of these: [n]. True is not 1, and '1' is neither; 1 is 1.0."""
        texts = [self.vocabulary.codes[one] for one in wanted if isinstance(one, str) and one in self.vocabulary.codes]
        numbers = [one for one in wanted if not isinstance(one, str | bool)]
        integers = [int(one) for one in numbers if one == int(one) and -(2**63) <= one < 2**63]
        floats = [float(one) for one in numbers if one == float(one)]
        entries = np.zeros(len(self.owners), np.bool_)
        for kind, among in (
            (TEXT, texts),
            (BOOLEAN, [one for one in wanted if isinstance(one, bool)]),
            (INTEGER, integers),
        ):
            if among:
                entries |= (self.kinds == kind) & np.isin(self.values, np.array(among, np.int64))
        if floats and self.floats.size:
            entries |= (self.kinds == FLOAT) & np.isin(self.floats, np.array(floats))
        return self._documents(entries)

    def ordered(self, sign: Range, value: str | int | float) -> Mask:
        """Documents of which a value lies on that side: [n]; texts by their code points, so that ISO dates work."""
        if not isinstance(value, str):
            return self._numbers(_OPERATORS[sign], value)
        texts, places = self.vocabulary.order()
        cut = bisect.bisect_left(texts, value) if sign in ("<", ">=") else bisect.bisect_right(texts, value)
        is_text = self.kinds == TEXT
        order = places[np.where(is_text, self.values, 0)] if len(places) else self.values
        return self._documents(is_text & (order < cut if sign in ("<", "<=") else order >= cut))

    def _numbers(self, compare: Callable[[Any, Any], Any], value: int | float) -> Mask:
        entries = (self.kinds == INTEGER) & _against(compare, self.values, value)
        if self.floats.size:
            entries |= (self.kinds == FLOAT) & _floats_against(compare, self.floats, value)
        return self._documents(entries)

    def _documents(self, entries: Mask) -> Mask:
        found = np.zeros(self.count, np.bool_)
        found[self.places[entries]] = True
        return found


def _against(compare: Callable[[Any, Any], Any], values: NDArray[np.int64], value: int | float) -> Any:
    """Integers against a number, exactly: a whole number stays whole, because floats end at 2**53."""
    if float(value).is_integer() and -(2**63) <= int(value) < 2**63:
        return compare(values, np.int64(int(value)))
    return compare(values.astype(np.float64), float(value))


def _floats_against(compare: Callable[[Any, Any], Any], floats: NDArray[np.float64], value: int | float) -> Any:
    """Floats against a number, exactly: where no float is equal to it, the nearest one counts as below or above it."""
    nearest = float(value)
    if nearest == value:
        return compare(floats, nearest)
    if compare in (operator.lt, operator.le):
        return floats <= nearest if nearest < value else floats < nearest
    return floats > nearest if nearest < value else floats >= nearest


class Columns:
    """The columns of an index, as far as filters have asked for them; may be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._columns: dict[str, Column] = {}
        self._names: set[str] = set()

    def of(self, state: State, fields: Iterable[str]) -> tuple[dict[str, Column], set[str]]:
        """The columns of those fields that there are, for the state's layout, and the names of all fields."""
        wanted = set(fields)
        with self._lock:
            if state.generation < self._generation:  # another thread is ahead: this one's state gets its own
                names: set[str] = set()
                columns = _read(state, {name: _empty(Vocabulary()) for name in wanted}, -1, names)
                return columns, names
            if state.generation > self._generation:
                known, since = self._columns, self._generation
                self._columns = _read(state, known, since, self._names)
                self._generation = state.generation
            missing = (wanted & self._names) - self._columns.keys()
            if missing:
                self._columns |= _read(state, {name: _empty(Vocabulary()) for name in missing}, -1, self._names)
            return {name: self._columns[name] for name in wanted if name in self._columns}, set(self._names)


def _read(state: State, known: dict[str, Column], since: int, names: set[str]) -> dict[str, Column]:
    """Carry columns to a state: what was removed goes, what was written after the generation `since` is read."""
    rows: list[int] = []
    entries: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in known}
    for row, metadata in state.changed_metadata(since):
        rows.append(row)
        names.update(metadata)
        for name, (owners, values) in entries.items():
            value = metadata.get(name)
            if isinstance(value, list):
                owners += [row] * len(value)
                values += value
            elif value is not None:
                owners.append(row)
                values.append(value)
    changed = np.array(rows, dtype=np.int64)
    return {name: _carried(column, state.layout, changed, *entries[name]) for name, column in known.items()}


def _carried(
    column: Column, layout: Layout, changed: NDArray[np.int64], owners: Sequence[int], values: Sequence[Any]
) -> Column:
    fresh = _entries(column.vocabulary, owners, values)
    kept = ~np.isin(column.owners, changed) if changed.size and column.owners.size else slice(None)
    floats = np.zeros(0)
    if column.floats.size or fresh.floats.size:
        old = column.floats if column.floats.size else np.zeros(len(column.owners))
        floats = np.concatenate([old[kept], fresh.floats if fresh.floats.size else np.zeros(len(fresh.owners))])
    joined = replace(
        column,
        owners=np.concatenate([column.owners[kept], fresh.owners]),
        kinds=np.concatenate([column.kinds[kept], fresh.kinds]),
        values=np.concatenate([column.values[kept], fresh.values]),
        floats=floats,
    )
    return _placed(joined, layout)


def _placed(column: Column, layout: Layout) -> Column:
    """Find the documents of the entries among the living ones, and drop the entries of all others."""
    rows = layout.rows
    places = np.searchsorted(rows, column.owners)
    living = places < len(rows)
    living[living] = rows[places[living]] == column.owners[living]
    return replace(
        column,
        owners=column.owners[living],
        kinds=column.kinds[living],
        values=column.values[living],
        floats=column.floats[living] if column.floats.size else column.floats,
        places=places[living],
        count=len(rows),
    )


def _entries(vocabulary: Vocabulary, owners: Sequence[int], values: Sequence[Any]) -> Column:
    kinds = np.zeros(len(values), np.uint8)
    numbers = np.zeros(len(values), np.int64)
    floats: NDArray[np.float64] = np.zeros(0)
    for place, value in enumerate(values):
        if isinstance(value, str):
            kinds[place], numbers[place] = TEXT, vocabulary.add(value)
        elif isinstance(value, bool):
            kinds[place], numbers[place] = BOOLEAN, value
        elif isinstance(value, int):
            kinds[place], numbers[place] = INTEGER, value
        else:
            floats = floats if floats.size else np.zeros(len(values))
            kinds[place], floats[place] = FLOAT, value
    return replace(_empty(vocabulary), owners=np.array(owners, np.int64), kinds=kinds, values=numbers, floats=floats)


def columns_of(documents: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """The columns of documents that are at hand, given by their metadata; document n stands at place n."""
    entries: dict[str, tuple[list[int], list[Any]]] = {}
    for place, metadata in enumerate(documents):
        for name, value in metadata.items():
            owners, values = entries.setdefault(name, ([], []))
            own = value if isinstance(value, list) else [] if value is None else [value]
            owners += [place] * len(own)
            values += own
    found = {name: _entries(Vocabulary(), owners, values) for name, (owners, values) in entries.items()}
    return {name: replace(column, places=column.owners, count=len(documents)) for name, column in found.items()}


def _empty(vocabulary: Vocabulary) -> Column:
    none = np.zeros(0, np.int64)
    return Column(vocabulary, none, np.zeros(0, np.uint8), none, np.zeros(0), none, 0)
