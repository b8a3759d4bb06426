"""What a person says about their texts -> targets that a head can be fitted to, or an error that names the row.

Enters: texts and, for each, one label (a text) or, of several labels, a set of them. Leaves: `Targets`: the names in
alphabetical order and numbers in their place. Everything is looked at here, before any text is encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.data.labels import not_labels
from munjang.errors import InputError

Array = np.ndarray[Any, Any]
Labels = Sequence[str] | Sequence[Collection[str]]
_SHOWN = 10  # names in a message


@dataclass(frozen=True)
class Targets:
    """The labels of rows as numbers."""

    names: tuple[str, ...]
    values: Array  # int64 [n], places in `names`; of several labels bool [n, labels]

    @property
    def multilabel(self) -> bool:
        return self.values.ndim == 2

    @property
    def counts(self) -> Array:  # int64 [labels]
        """Rows that have each label."""
        if not self.multilabel:
            return np.bincount(self.values, minlength=len(self.names))
        counts: Array = self.values.sum(axis=0)
        return counts

    def take(self, rows: Array) -> Targets:
        """The same of some rows."""
        return Targets(self.names, self.values[rows])

    def __len__(self) -> int:
        return len(self.values)


def targets_for_fitting(texts: Sequence[str], labels: Labels, *, multilabel: bool, any_labels: bool = False) -> Targets:
    """The targets of training rows; at least two labels, and rows with and without each."""
    given = _as_many(texts, labels)
    if not given:
        raise InputError("there is nothing to learn from: got no texts. A classifier needs two rows or more")
    if not multilabel:
        names = tuple(sorted({_checked(label, row) for row, label in enumerate(given)}))
        if len(names) < 2:
            raise InputError(
                f"a classifier tells at least two labels apart, but all {len(given):,} rows have the label {names[0]!r}"
            )
        _check_names(names, len(given), any_labels, rows_per_label=2)
        return _single(given, names)
    sets = [_checked_set(labels, row) for row, labels in enumerate(given)]
    names = tuple(sorted(set().union(*sets)))
    if not names:
        raise InputError(f"none of the {len(sets):,} rows has a label")
    _check_names(names, len(sets), any_labels, rows_per_label=0)  # tags may be rare
    targets = _several(sets, names)
    everywhere = [name for name, count in zip(names, targets.counts, strict=True) if count == len(sets)]
    if everywhere:
        raise InputError(
            f"every row has the label {_listed(everywhere)}: nothing shows what a text without it is like; leave the "
            "label out, or add rows without it"
        )
    return targets


def targets_of(texts: Sequence[str], labels: Labels, names: Sequence[str], *, multilabel: bool) -> Targets:
    """The targets of rows to measure on, whose labels must be known ones."""
    given = _as_many(texts, labels)
    if not given:
        raise InputError("there is nothing to measure on: got no texts")
    known = set(names)
    sets = [_checked_set(label, row) if multilabel else {_checked(label, row)} for row, label in enumerate(given)]
    unknown = Counter(label for labels in sets for label in labels if label not in known)
    if unknown:
        rows = sum(unknown.values())
        raise InputError(
            f"{rows:,} labels are unknown to this classifier: {_listed(list(unknown))}; it knows {_listed(names)}"
        )
    return _several(sets, names) if multilabel else _single(given, names)


def _check_names(names: Sequence[str], rows: int, any_labels: bool, *, rows_per_label: int) -> None:
    """Refuse labels that look like scores, ids or texts, unless any_labels."""
    problem = "" if any_labels else not_labels(names, rows, rows_per_label=rows_per_label)
    if problem:
        raise InputError(
            f"the labels are {problem}, so they are probably scores, ids or texts. Name the column of the labels "
            "(--label-column NAME), or take them as they are with any_labels=True (--any-labels)"
        )


def _as_many(texts: Sequence[str], labels: Labels) -> list[object]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise InputError(f"expected a list with a label for every text, got {type(labels).__name__}: {_short(labels)}")
    given: list[object] = list(labels)
    if len(given) != len(texts):
        raise InputError(f"expected as many labels as texts, got {len(given):,} labels for {len(texts):,} texts")
    return given


def _checked(label: object, row: int) -> str:
    if isinstance(label, str):
        if not label.strip():
            raise InputError(f"the label of row {row} is empty; leave the row out, or name what it is")
        return str(label)  # numpy's strings are a class of their own
    if isinstance(label, Collection) and not isinstance(label, bytes):
        raise InputError(
            f"the label of row {row} must be one text, got {type(label).__name__}: {_short(label)}. Where a text may "
            "have several labels, pass multilabel=True"
        )
    raise InputError(
        f"the label of row {row} must be a text, got {type(label).__name__}: {_short(label)}. Numbers become labels by "
        "str(), a missing label must be left out"
    )


def _checked_set(labels: object, row: int) -> set[str]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Collection):
        raise InputError(
            f"with multilabel=True row {row} needs a list or set of labels (an empty one for none), got "
            f"{type(labels).__name__}: {_short(labels)}"
        )
    return {_checked(label, row) for label in labels}


def _single(labels: Sequence[object], names: Sequence[str]) -> Targets:
    place = {name: number for number, name in enumerate(names)}
    return Targets(tuple(names), np.array([place[str(label)] for label in labels], np.int64))


def _several(sets: Sequence[set[str]], names: Sequence[str]) -> Targets:
    place = {name: number for number, name in enumerate(names)}
    values = np.zeros((len(sets), len(names)), np.bool_)
    for row, labels in enumerate(sets):
        values[row, [place[label] for label in labels]] = True
    return Targets(tuple(names), values)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
