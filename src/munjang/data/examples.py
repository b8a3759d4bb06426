"""`Examples`: columns of texts with targets, for training and evaluation; `Retrieval`: queries and what answers them.

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

The functions below make examples of one kind of those of another. Losses that learn from pairs take every positive as
true, so only entailments become positives of NLI: feeding all of NLI to such a loss is a well-known mistake. A sentence
is never its own positive. What is left out is counted in `reading`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice
from typing import Any, Literal, NamedTuple

import numpy as np

from munjang.data.columns import Kind, check_columns, check_kind, some_of
from munjang.data.overlaps import normalise, same_key
from munjang.data.reading import Array, LabelMap, Reading, read_examples
from munjang.data.rows import Source, read_texts
from munjang.errors import InputError

WithoutNegative = Literal["leave out", "borrow"]
_BLOCK = 1 << 22  # values checked at a time
_ITSELF = "a sentence paired with itself"


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
        columns = {
            # a list of strings is not copied: sets share their texts
            role: texts
            if isinstance(texts, list) and set(map(type, texts)) <= {str}
            else read_texts(texts, name=f"{self._called}, column {role}")
            for role, texts in self.columns.items()
        }
        lengths = {role: len(texts) for role, texts in columns.items()}
        if len(set(lengths.values())) != 1:
            raise self._error(f"columns must be of one length, got {lengths}")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "targets", self._checked_targets())
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
        return read_examples(
            rows, kind=kind, columns=columns, label_map=label_map, score_range=score_range, any_labels=any_labels,
            drop_outside=drop_outside, name=name,
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
            raise self._error(f"row must be 0..{len(self) - 1}, got {i}")
        row: dict[str, object] = {role: texts[i] for role, texts in self.columns.items()}
        if self.targets is None:
            return row
        target = self.targets[i]
        if self.labels:
            return row | {"label": self.labels[int(target)]}
        names = {"scored": "score", "ranked": "relevance", "pairs": "scores", "taught": "vector"}
        return row | {names[self.kind]: float(target) if target.ndim == 0 else target}

    def take(self, rows: Array | Sequence[int], *, name: str | None = None) -> Examples:
        """Return these rows in this order; of ranked examples, the rows of one query must stay together."""
        places, targets, groups = self._places(rows), self.targets, self.groups
        if targets is not None:
            # Consecutive vectors are a view, which leaves a memory map on the disk.
            is_run = targets.ndim == 2 and len(places) > 0 and bool((np.diff(places) == 1).all())
            targets = targets[int(places[0]) : int(places[-1]) + 1] if is_run else targets[places]
        if groups is not None:
            taken = groups[places]
            groups = np.cumsum(np.diff(taken, prepend=taken[:1]) != 0)  # numbered upward in the new order
            if len(np.unique(groups)) != len(np.unique(taken)):
                raise self._error("the rows of one query must stay together when ranked examples are taken")
        return replace(
            self,
            name=self.name if name is None else name,
            columns={role: [texts[row] for row in places.tolist()] for role, texts in self.columns.items()},
            targets=targets,
            groups=groups,
            reading=self.reading.taken(len(places), len(self)),
        )

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Examples, Examples]:
        """Return (the rest, about `fraction` of the rows), drawn at random, in the old order; queries stay whole."""
        units = np.arange(len(self)) if self.groups is None else self.groups
        different = np.unique(units)
        size = round(len(different) * fraction) if 0 < fraction < 1 else 0
        if not 0 < size < len(different):
            raise self._error(
                f"fraction must be in 0..1 and leave some of {len(different):,} "
                f"{'rows' if self.groups is None else 'queries'} on both sides, got {fraction}"
            )
        inside = np.isin(units, np.random.default_rng(seed).choice(different, size, replace=False))
        return self.take(np.flatnonzero(~inside)), self.take(np.flatnonzero(inside))

    def without_duplicates(self) -> Examples:
        """Return every row once: the same texts (but for case, width and spaces) with the same target.

        A mirrored row, (b, a), is a duplicate where the kind has no direction: scores, labels other than NLI's, and
        pairs without negatives. Dropped rows are counted in `reading`. The same texts with a different target stay.
        """
        is_symmetric = {
            "scored": True,
            "labelled": "entailment" not in self.labels,
            "pairs": len(self.columns) == 2,
        }.get(self.kind, False)
        targets: Iterable[object] = [None] * len(self)
        if self.targets is not None and self.targets.ndim == 1:
            targets = self.targets.tolist()
        elif self.targets is not None:  # hashes: the vectors of a teacher may be larger than the memory
            targets = (hashlib.blake2b(vector.tobytes(), digest_size=16).digest() for vector in self.targets)
        seen: set[object] = set()
        dropped: list[int] = []
        keys = ([same_key(text) for text in texts] for texts in self.columns.values())
        for place, (key, target) in enumerate(zip(zip(*keys, strict=True), targets, strict=True)):
            row = (tuple(sorted(key)) if is_symmetric else key, target)
            if row in seen:
                dropped.append(place)
            seen.add(row)
        return self.less(dropped, reason="the same row again")

    def less(self, rows: Array | Sequence[int], *, reason: str) -> Examples:
        """Return all rows but these, which are counted in `reading` under the reason."""
        taken = self.take(np.delete(np.arange(len(self)), self._places(rows)))
        count = len(self) - len(taken)
        return replace(taken, reading=self.reading.refusing({reason: count} if count else {}))

    @property
    def _called(self) -> str:
        return self.name or "examples"

    def _error(self, message: str) -> InputError:
        return InputError(f"{self._called}: {message}")

    def _checked_targets(self) -> Array | None:
        kind, count = self.kind, len(self)
        if self.targets is None:
            if kind not in ("pairs", "plain"):
                raise self._error(f"examples of kind {kind!r} need targets, got None")
            return None
        if kind == "plain":
            raise self._error("plain texts have no targets, got some")
        targets = _as_array(self.targets)
        widths = {"pairs": [len(self.columns) - 1], "taught": list(targets.shape[1:2]) or [0]}
        wanted = [count, *widths.get(kind, [])]
        if list(targets.shape) != wanted:
            raise self._error(f"targets must be of shape {wanted}, got {list(targets.shape)}")
        if kind in ("labelled", "classified"):
            return self._checked_labels(targets)
        if self.labels:
            raise self._error(f"examples of kind {kind!r} have no labels, got {self.labels}")
        if targets.dtype.kind not in "fiu":
            raise self._error(f"targets must be numbers, got {targets.dtype}")
        if not (kind == "taught" and targets.dtype == np.float16):
            targets = targets.astype(np.float32, copy=False)
        bad = [~np.isfinite(block).reshape(len(block), -1).all(axis=1) for block in blocks_of(targets)]
        rows = np.flatnonzero(np.concatenate(bad) if bad else np.zeros(0))
        if len(rows):
            raise self._error(f"targets must be finite; the first in row {rows[0]}, {len(rows):,} in all")
        if kind == "scored" and count and not (targets.min() >= 0 and targets.max() <= 1):
            raise self._error(
                f"scores must be in 0..1, got {targets.min():g}..{targets.max():g}. Divide them by their range, or "
                "read them with score_range"
            )
        return targets

    def _checked_labels(self, ids: Array) -> Array:
        if not self.labels:
            raise self._error(f"examples of kind {self.kind!r} need the names of their labels")
        if len(set(self.labels)) != len(self.labels):
            raise self._error(f"label names must differ from each other, got {self.labels}")
        if len(ids) and ids.dtype.kind not in "iu":
            raise self._error(f"labels must be whole numbers, got {ids.dtype}")
        outside = np.flatnonzero((ids < 0) | (ids >= len(self.labels)))
        if len(outside):
            raise self._error(
                f"label ids must be 0..{len(self.labels) - 1} ({some_of(self.labels)}), got {ids[outside[0]]}; the "
                f"first in row {outside[0]}, {len(outside):,} in all"
            )
        return ids.astype(np.int64, copy=False)

    def _checked_groups(self) -> Array | None:
        if (self.groups is not None) != (self.kind == "ranked"):
            raise self._error("groups belong to examples of kind 'ranked', and to no others")
        if self.groups is None:
            return None
        groups = _as_array(self.groups).astype(np.int64, copy=False)
        if groups.shape != (len(self),) or (np.diff(groups) < 0).any():
            raise self._error("groups must be one number a row, ascending")
        return groups

    def _places(self, rows: Array | Sequence[int]) -> Array:
        """Row numbers, of numbers or of a mask."""
        places = _as_array(rows)
        if places.dtype == np.bool_:
            if places.shape != (len(self),):
                raise self._error(f"a mask must have one entry a row ({len(self):,}), got shape {list(places.shape)}")
            return np.flatnonzero(places)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise self._error(f"rows must be a list of whole numbers, got {places.dtype} {list(places.shape)}")
        if places.size and not (places.min() >= 0 and places.max() < len(self)):
            raise self._error(f"rows must be 0..{len(self) - 1}, got {places.min()}..{places.max()}")
        return places.astype(np.int64, copy=False)


@dataclass(frozen=True)
class Retrieval:
    """A corpus to search, queries, and the documents that are relevant to each of them."""

    name: str
    queries: dict[str, str]  # id -> text
    corpus: dict[str, str]  # id -> text
    relevant: dict[str, dict[str, int]]  # query id -> document id -> grade; 0 is not relevant
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        documents = chain.from_iterable(self.relevant.values())
        for part, texts, judged in (("queries", self.queries, self.relevant), ("corpus", self.corpus, documents)):
            wrong = next((key for key, text in texts.items() if not isinstance(text, str)), None)
            if wrong is not None:
                raise InputError(
                    f"{self.name}: {part}[{wrong!r}] must be a string, got {type(texts[wrong]).__name__}. An empty "
                    "text is '', a missing one must be left out or replaced"
                )
            missing = sorted({key for key in judged if key not in texts})
            if missing:
                raise InputError(
                    f"{self.name}: {len(missing):,} ids of `relevant` are not in {part}: {some_of(missing, 3)}"
                )

    def __len__(self) -> int:
        """Number of queries with a relevant document."""
        return sum(any(grade > 0 for grade in grades.values()) for grades in self.relevant.values())


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
    groups: list[Array] = []
    for part in parts:
        if part.groups is not None and len(part):
            start = int(groups[-1][-1]) + 1 if groups else 0
            groups.append(part.groups - part.groups[0] + start)
    targets = [part.targets for part in parts if part.targets is not None]
    return replace(
        first,
        name=name,
        columns={role: list(chain.from_iterable(part.columns[role] for part in parts)) for role in first.columns},
        targets=np.concatenate(targets) if targets else None,
        groups=np.concatenate(groups) if groups else first.groups,
        reading=reading,
    )


def _as_array(values: Any) -> Array:
    """Lists, arrays and tensors of any device as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def blocks_of(values: Array) -> Iterator[Array]:
    """Cut an array into blocks of rows, so that a memory-mapped one is never in memory as a whole."""
    rows = max(1, _BLOCK // max(1, int(np.prod(values.shape[1:]))))
    return (values[at : at + rows] for at in range(0, len(values), rows))


class _Premise(NamedTuple):
    """The hypotheses that a premise entails and contradicts, by normalised text."""

    text: str
    entailed: dict[str, str]
    contradicting: dict[str, str]


def nli_triplets(
    examples: Examples, *, both_directions: bool = False, without_negative: WithoutNegative = "leave out", seed: int = 0
) -> Examples:
    """Make (premise, its entailment, its contradiction) of NLI; neutral pairs are not used.

    Each entailment and each contradiction of a premise occurs at least once.

    Args:
        both_directions: add (entailment, premise, contradiction), as is usual for Korean models.
        without_negative: a premise without a contradiction is left out, or borrows one of another premise.
    """
    if without_negative not in ("leave out", "borrow"):
        raise InputError(f"without_negative must be 'leave out' or 'borrow', got {without_negative!r}")
    left_out = Counter[str]()
    premises = _premises(examples, left_out)
    contradictions = [text for premise in premises for text in premise.contradicting.values()]
    if not contradictions:
        raise InputError(
            f"{examples.name}: there is not one contradiction to be a negative; munjang.data.nli_pairs "
            "takes the entailments alone, for the recipe contrastive"
        )
    generator = np.random.default_rng(seed)
    rows: list[tuple[str, str, str]] = []
    for premise in premises:
        positives, negatives = list(premise.entailed.values()), list(premise.contradicting.values())
        if not positives:
            left_out["contradiction without an entailment"] += len(negatives)
            continue
        if not negatives and without_negative == "leave out":
            left_out["entailment without a contradiction"] += len(positives)
            continue
        negatives = negatives or [_borrowed(contradictions, premise, generator) for _ in positives]
        count = max(len(positives), len(negatives))
        for positive, negative in islice(zip(cycle(positives), cycle(negatives), strict=False), count):
            rows.append((premise.text, positive, negative))
            if both_directions:
                rows.append((positive, premise.text, negative))
    return _with_rows(examples, ("anchor", "positive", "negative"), rows, left_out)


def nli_pairs(examples: Examples, *, both_directions: bool = False) -> Examples:
    """Make (premise, its entailment) of NLI; neutral and contradicting pairs are not used."""
    left_out = Counter[str]()
    rows: list[tuple[str, str]] = []
    for premise in _premises(examples, left_out):
        left_out["contradiction"] += len(premise.contradicting)
        for positive in premise.entailed.values():
            rows.append((premise.text, positive))
            if both_directions:
                rows.append((positive, premise.text))
    return _with_rows(examples, ("anchor", "positive"), rows, left_out)


def labelled_to_pairs(examples: Examples, positive: str | Collection[str]) -> Examples:
    """Select the pairs with a positive label, as anchor and positive. For NLI see `nli_pairs`."""
    _check_kind(examples, "labelled")
    wanted = [positive] if isinstance(positive, str) else list(positive)
    unknown = [name for name in wanted if name not in examples.labels]
    if unknown or not wanted:
        raise InputError(
            f"{examples.name}: positive must be of {some_of(examples.labels)}, got {', '.join(unknown) or 'none'}"
        )
    reasons = ["" if name in wanted else f"label {name}" for name in examples.labels]
    pairs = _positives(examples, lambda label: reasons[int(label)])
    if not len(pairs):
        raise InputError(f"{examples.name}: there is not one pair with the label {' or '.join(wanted)}")
    return pairs


def scored_to_pairs(examples: Examples, threshold: float) -> Examples:
    """Select the pairs whose score (0..1) is at least the threshold, as anchor and positive."""
    _check_kind(examples, "scored")
    reason = f"score below {threshold:g}"
    pairs = _positives(examples, lambda score: reason if score < np.float32(threshold) else "")
    if not len(pairs):
        scores = np.asarray(examples.targets)
        highest = f"the highest is {scores.max():g}" if len(scores) else "there are none"
        raise InputError(f"{examples.name}: no score reaches the threshold {threshold:g}; {highest}")
    return pairs


def scored_to_labelled(examples: Examples, threshold: float) -> Examples:
    """Label scored pairs: 'same' (1) where the score (0..1) is at least the threshold, else 'different' (0)."""
    _check_kind(examples, "scored")
    ids = (np.asarray(examples.targets) >= np.float32(threshold)).astype(np.int64)
    return replace(examples, kind="labelled", targets=ids, labels=("different", "same"))


def labelled_to_scored(examples: Examples, *, positive: str | None = None) -> Examples:
    """Score pairs with one of two labels: 1 for the positive label (default: the second), 0 for the other."""
    _check_kind(examples, "labelled")
    if len(examples.labels) != 2:
        raise InputError(
            f"{examples.name}: expected two labels, got {len(examples.labels):,} ({some_of(examples.labels)}). "
            "Is this the column of the labels? Else take the rows of two labels first"
        )
    positive = examples.labels[1] if positive is None else positive
    if positive not in examples.labels:
        raise InputError(f"{examples.name}: positive must be one of {', '.join(examples.labels)}, got {positive!r}")
    scores = (np.asarray(examples.targets) == examples.labels.index(positive)).astype(np.float32)
    return replace(examples, kind="scored", targets=scores, labels=())


def _premises(examples: Examples, left_out: Counter[str]) -> list[_Premise]:
    """Premises in the order of their first rows, with their entailments and contradictions."""
    _check_kind(examples, "labelled")
    names = [label.strip().casefold() for label in examples.labels]
    if not {"entailment", "contradiction"} <= set(names):
        raise InputError(
            f"{examples.name}: expected the labels entailment, neutral, contradiction; got {some_of(examples.labels)}"
        )
    premises: dict[str, _Premise] = {}
    columns = examples.columns
    for a, b, label in zip(columns["a"], columns["b"], np.asarray(examples.targets).tolist(), strict=True):
        name = names[label]
        if name == "neutral":
            left_out["neutral"] += 1
            continue
        key, premise = normalise(b), premises.setdefault(same_key(a), _Premise(a, {}, {}))
        if key == normalise(a):
            left_out[_ITSELF if name == "entailment" else "a sentence that contradicts itself"] += 1
            continue
        hypotheses = premise.entailed if name == "entailment" else premise.contradicting
        if key in hypotheses:
            left_out["the same row again"] += 1
        hypotheses.setdefault(key, b)
    for premise in premises.values():
        for key in premise.entailed.keys() & premise.contradicting.keys():
            del premise.entailed[key], premise.contradicting[key]
            left_out["entailment and contradiction at once"] += 2
    if not any(premise.entailed for premise in premises.values()):
        raise InputError(f"{examples.name}: there is not one entailment, and only entailments are positives")
    return list(premises.values())


def _borrowed(contradictions: Sequence[str], premise: _Premise, generator: np.random.Generator) -> str:
    """A contradiction of another premise that is neither this premise nor entailed by it."""
    own = {normalise(premise.text), *premise.entailed}
    for _ in range(100):
        text = contradictions[int(generator.integers(len(contradictions)))]
        if normalise(text) not in own:
            return text
    raise InputError(f"no negative can be borrowed for {premise.text[:60]!r}: all contradictions are entailed by it")


def _positives(examples: Examples, why_not: Callable[[float], str]) -> Examples:
    """The pairs whose target has no reason against it, less those of a sentence with itself."""
    left_out = Counter[str]()
    rows: list[tuple[str, str]] = []
    columns = examples.columns
    for a, b, target in zip(columns["a"], columns["b"], np.asarray(examples.targets).tolist(), strict=True):
        reason = why_not(target) or (_ITSELF if normalise(a) == normalise(b) else "")
        if reason:
            left_out[reason] += 1
        else:
            rows.append((a, b))
    return _with_rows(examples, ("anchor", "positive"), rows, left_out)


def _with_rows(
    examples: Examples, roles: Sequence[str], rows: Sequence[Sequence[str]], left_out: Counter[str]
) -> Examples:
    columns = {role: [row[place] for row in rows] for place, role in enumerate(roles)}
    counts = {reason: count for reason, count in left_out.items() if count}
    reading = examples.reading.refusing(counts, f"{len(rows):,} of {' / '.join(roles)} made of them")
    return Examples(examples.name, "pairs", columns, reading=reading)


def _check_kind(examples: Examples, kind: Kind) -> None:
    if examples.kind != kind:
        raise InputError(f"{examples.name}: expected examples of kind {kind!r}, got {examples.kind!r}")
