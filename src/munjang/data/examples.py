"""`Examples`: columns of texts with targets, for training and evaluation.

Lengths, ranges, label ids and groups are checked when an `Examples` is made, so that training can rely on them.

| kind       | columns                                  | targets                                                   |
|------------|------------------------------------------|-----------------------------------------------------------|
| scored     | a, b                                     | float32 [n], 0..1                                         |
| labelled   | a, b                                     | int64 [n], ids of `labels`                                |
| pairs      | anchor, positive[, negative, negative_2] | None, or float32 [n, columns - 1]: a teacher's scores     |
| classified | text                                     | int64 [n], ids of `labels`                                |
| ranked     | query, document                          | float32 [n] relevance; `groups` says which query          |
| taught     | text[, translation, translation_2]       | float32 or float16 [n, d]: a teacher's vectors, which all |
|            |                                          | texts of a row should get                                 |
| plain      | text[, translation]                      | None                                                      |

The vectors of a teacher may be larger than the memory: a `np.memmap` is checked block by block and stays on the disk,
as do consecutive rows of it. Any other selection of its rows is a copy in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.data.columns import Kind, check_columns, check_kind
from munjang.data.normalise import same_key
from munjang.data.reading import Array, Reading, make_examples
from munjang.data.rows import Source, open_rows, read_texts
from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.data.labels import LabelMap

_BLOCK = 1 << 22  # values checked at a time


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Rows of texts with their targets, in columns.

    Example:
        >>> import numpy as np
        >>> pairs = Examples("sts", "scored", {"a": ["비가 온다"], "b": ["비 오는 날"]}, np.array([0.9]))
        >>> pairs.row(0)["a"]
        '비가 온다'
    """

    name: str
    kind: Kind
    columns: dict[str, list[str]]
    targets: Array | None = None
    labels: tuple[str, ...] = ()  # label names by id (labelled, classified)
    groups: Array | None = None  # ranked: int64 [n], ascending: the query of each row
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        check_kind(self.kind)
        check_columns(self.kind, list(self.columns))
        columns = {role: self._checked_texts(role, texts) for role, texts in self.columns.items()}
        lengths = {role: len(texts) for role, texts in columns.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"{self._called}: columns must be of one length, got {lengths}")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "targets", self._checked_targets())
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "groups", self._checked_groups())
        if not self.reading.rows:  # made by hand
            object.__setattr__(self, "reading", Reading(self.name, len(self), len(self)))

    @classmethod
    def from_dicts(
        cls,
        rows: Source,
        *,
        kind: Kind,
        columns: Mapping[str, str | int] | None = None,
        label_map: LabelMap | None = None,
        score_range: tuple[float, float] | None = None,
        any_labels: bool = False,
        drop_outside: bool = False,
        name: str = "",
    ) -> Examples:
        """Make examples of any iterable of dicts, a DataFrame, an Arrow table or a `datasets.Dataset`.

        The arguments are those of `read_examples`.

        Example:
            >>> rows = [{"text": "좋다", "label": "긍정"}, {"text": "싫다", "label": "부정"}]
            >>> Examples.from_dicts(rows, kind="classified").labels
            ('긍정', '부정')
        """
        return make_examples(
            open_rows(rows, name=name), kind=kind, columns=columns, label_map=label_map, score_range=score_range,
            any_labels=any_labels, drop_outside=drop_outside, name=name,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        return f"Examples({self.name!r}, {self.kind}, {len(self):,} rows of {', '.join(self.columns)})"

    def texts(self) -> Iterator[str]:
        """Yield every text of every column."""
        return chain.from_iterable(self.columns.values())

    def row(self, i: int) -> dict[str, object]:
        """Return one row to show: its texts, and its score, label name or relevance."""
        if not -len(self) <= i < len(self):
            raise InputError(f"{self._called}: row must be 0..{len(self) - 1}, got {i}")
        found: dict[str, object] = {role: texts[i] for role, texts in self.columns.items()}
        if self.targets is not None:
            if self.kind in ("labelled", "classified"):
                found["label"] = self.labels[int(self.targets[i])]
            elif self.kind in ("scored", "ranked"):
                found["score" if self.kind == "scored" else "relevance"] = float(self.targets[i])
            else:
                found["scores" if self.kind == "pairs" else "vector"] = self.targets[i]
        return found

    def take(self, rows: Array | Sequence[int], *, name: str | None = None) -> Examples:
        """Return these rows in this order; of ranked examples, the rows of one query must stay together."""
        places = _places(rows, len(self), self._called)
        return replace(
            self,
            name=self.name if name is None else name,
            columns={role: [texts[row] for row in places.tolist()] for role, texts in self.columns.items()},
            targets=None if self.targets is None else _taken(self.targets, places),
            groups=None if self.groups is None else _renumbered(self.groups[places], self._called),
            reading=self.reading.taken(len(places), len(self)),
        )

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Examples, Examples]:
        """Return (the rest, about `fraction` of the rows), drawn at random, in the old order; queries stay whole."""
        units = np.arange(len(self)) if self.groups is None else np.unique(self.groups)
        size = round(len(units) * fraction) if 0 < fraction < 1 else 0
        if not 0 < size < len(units):
            raise InputError(
                f"{self._called}: fraction must be in 0..1 and leave something on both sides of"
                f" {len(units):,} {'rows' if self.groups is None else 'queries'}, got {fraction}"
            )
        chosen = np.random.default_rng(seed).choice(units, size, replace=False)
        inside = np.isin(units if self.groups is None else self.groups, chosen)
        return self.take(np.flatnonzero(~inside)), self.take(np.flatnonzero(inside))

    def without_duplicates(self) -> Examples:
        """Return every row once: the same texts (but for case, width and spaces) with the same target.

        A mirrored row, (b, a), is a duplicate where the kind has no direction: scores, labels other than NLI's, and
        pairs without negatives. Dropped rows are counted in `reading`. The same texts with a different target stay.
        """
        seen: set[object] = set()
        kept: list[int] = []
        mirrored = self._is_symmetric
        keys = ([same_key(text) for text in texts] for texts in self.columns.values())
        for place, (key, target) in enumerate(zip(zip(*keys, strict=True), self._target_keys(), strict=True)):
            found = (tuple(sorted(key)) if mirrored else key, target)
            if found not in seen:
                seen.add(found)
                kept.append(place)
        dropped = np.ones(len(self), dtype=np.bool_)
        dropped[kept] = False
        return self.less(dropped, reason="the same row again")

    def less(self, rows: Array | Sequence[int], *, reason: str) -> Examples:
        """Return all rows but these, which are counted in `reading` under the reason."""
        kept = np.ones(len(self), dtype=np.bool_)
        kept[_places(rows, len(self), self._called)] = False
        taken = self.take(kept)
        count = len(self) - len(taken)
        return replace(taken, reading=self.reading.refusing({reason: count} if count else {}))

    @property
    def _is_symmetric(self) -> bool:
        if self.kind == "labelled":
            return "entailment" not in self.labels
        return self.kind == "scored" or (self.kind == "pairs" and len(self.columns) == 2)

    def _target_keys(self) -> Iterable[object]:
        """Return a hashable key for every target: arrays and tensors compare by identity or not at all."""
        if self.targets is None:
            return [None] * len(self)
        if self.targets.ndim == 1:
            values: list[object] = self.targets.tolist()
            return values
        # Hashes: the vectors of a teacher may be larger than the memory.
        return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in self.targets)

    @property
    def _called(self) -> str:
        return self.name or "examples"

    def _checked_texts(self, role: str, texts: Any) -> list[str]:
        if isinstance(texts, list) and set(map(type, texts)) <= {str}:
            return texts  # not copied: sets share their texts
        return read_texts(texts, name=f"{self._called}, column {role}")

    def _checked_targets(self) -> Array | None:
        if self.targets is None:
            if self.kind not in ("pairs", "plain"):
                raise InputError(f"{self._called}: examples of kind {self.kind!r} need targets, got None")
            return None
        if self.kind == "plain":
            raise InputError(f"{self._called}: plain texts have no targets, got some")
        targets = _as_array(self.targets)
        wanted: tuple[int, ...] = (len(self),)
        if self.kind == "pairs":
            wanted = (len(self), len(self.columns) - 1)
        elif self.kind == "taught":
            wanted = (len(self), targets.shape[1] if targets.ndim == 2 else 0)
        if targets.shape != wanted:
            raise InputError(f"{self._called}: targets must be of shape {list(wanted)}, got {list(targets.shape)}")
        if self.kind in ("labelled", "classified"):
            return self._checked_ids(targets)
        if self.labels:
            raise InputError(f"{self._called}: examples of kind {self.kind!r} have no labels, got {self.labels}")
        if targets.dtype.kind not in "fiu":
            raise InputError(f"{self._called}: targets must be numbers, got {targets.dtype}")
        if not (self.kind == "taught" and targets.dtype == np.float16):
            targets = targets.astype(np.float32, copy=False)
        _check_finite(targets, self._called)
        if self.kind == "scored" and len(self) and not (targets.min() >= 0 and targets.max() <= 1):
            raise InputError(
                f"{self._called}: scores must be in 0..1, got {targets.min():g}..{targets.max():g}."
                " Divide them by their range, or read them with score_range"
            )
        return targets

    def _checked_ids(self, targets: Array) -> Array:
        if not self.labels:
            raise InputError(f"{self._called}: examples of kind {self.kind!r} need the names of their labels")
        if len(set(self.labels)) != len(self.labels):
            raise InputError(f"{self._called}: label names must differ from each other, got {self.labels}")
        if len(targets) and targets.dtype.kind not in "iu":
            raise InputError(f"{self._called}: labels must be whole numbers, got {targets.dtype}")
        outside = (targets < 0) | (targets >= len(self.labels))
        if outside.any():
            raise InputError(
                f"{self._called}: label ids must be 0..{len(self.labels) - 1} ({', '.join(self.labels[:10])}),"
                f" got {targets[outside][0]}; {_first_bad(outside)}"
            )
        return targets.astype(np.int64, copy=False)

    def _checked_groups(self) -> Array | None:
        if (self.groups is not None) != (self.kind == "ranked"):
            raise InputError(f"{self._called}: groups belong to examples of kind 'ranked', and to no others")
        if self.groups is None:
            return None
        groups = _as_array(self.groups).astype(np.int64, copy=False)
        if groups.shape != (len(self),) or (len(groups) and (np.diff(groups) < 0).any()):
            raise InputError(f"{self._called}: groups must be one number a row, ascending")
        return groups


def join(parts: Sequence[Examples], *, name: str) -> Examples:
    """Concatenate examples of one kind with the same columns and labels."""
    if not parts:
        raise InputError("join needs at least one Examples")
    first = parts[0]
    for part in parts[1:]:
        for what, one, other in (
            ("kind", first.kind, part.kind),
            ("columns", list(first.columns), list(part.columns)),
            ("labels", first.labels, part.labels),
            ("targets", first.targets is None, part.targets is None),
        ):
            if one != other:
                raise InputError(f"cannot join {first!r} and {part!r}: their {what} differ, {one} and {other}")
    reading = first.reading
    for part in parts[1:]:
        reading = reading.plus(part.reading)
    targets = [part.targets for part in parts if part.targets is not None]
    return replace(
        first,
        name=name,
        columns={role: list(chain.from_iterable(part.columns[role] for part in parts)) for role in first.columns},
        targets=np.concatenate(targets) if targets else None,
        groups=_joined_groups(parts) if first.kind == "ranked" else None,
        reading=reading,
    )


def _joined_groups(parts: Sequence[Examples]) -> Array:
    pieces: list[Array] = []
    following = 0
    for part in parts:
        if part.groups is not None and len(part):
            pieces.append(part.groups - part.groups[0] + following)
            following = int(pieces[-1][-1]) + 1
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def _as_array(values: Any) -> Array:
    """Lists, arrays and tensors of any device as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def blocks_of(values: Array) -> Iterator[Array]:
    """Cut an array into blocks of rows, so that a memory-mapped one is never in memory as a whole."""
    rows = max(1, _BLOCK // max(1, int(np.prod(values.shape[1:]))))
    return (values[at : at + rows] for at in range(0, len(values), rows))


def _check_finite(targets: Array, called: str) -> None:
    count, first, at = 0, -1, 0
    for block in blocks_of(targets):
        bad = ~np.isfinite(block)
        if bad.any():
            first = at + int(np.argwhere(bad)[0][0]) if first < 0 else first
            count += int(bad.sum())
        at += len(block)
    if count:
        raise InputError(f"{called}: targets must be finite; the first in row {first}, {count:,} in all")


def _taken(targets: Array, places: Array) -> Array:
    """Some rows; consecutive ones are a view, which leaves a memory map on the disk."""
    if len(places) and targets.ndim == 2 and (np.diff(places) == 1).all():
        return targets[int(places[0]) : int(places[-1]) + 1]
    return targets[places]


def _first_bad(bad: Array) -> str:
    return f"the first in row {int(np.argwhere(bad)[0][0])}, {int(bad.sum()):,} in all"


def _places(rows: Array | Sequence[int], count: int, called: str) -> Array:
    places = _as_array(rows)
    if places.dtype == np.bool_:
        if places.shape != (count,):
            raise InputError(f"{called}: a mask must have one entry a row ({count:,}), got shape {list(places.shape)}")
        return np.flatnonzero(places)
    if places.size == 0:
        return np.zeros(0, dtype=np.int64)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise InputError(f"{called}: rows must be a list of whole numbers, got {places.dtype} {list(places.shape)}")
    if places.min() < 0 or places.max() >= count:
        raise InputError(f"{called}: rows must be 0..{count - 1}, got {places.min()}..{places.max()}")
    return places.astype(np.int64, copy=False)


def _renumbered(groups: Array, called: str) -> Array:
    """The groups in a new order, numbered upward again."""
    if len(groups) == 0 or (np.diff(groups) >= 0).all():
        return groups
    runs = np.concatenate([[0], np.cumsum(np.diff(groups) != 0)])
    if runs[-1] + 1 != len(np.unique(groups)):
        raise InputError(f"{called}: the rows of one query must stay together when ranked examples are taken")
    return runs.astype(np.int64)
