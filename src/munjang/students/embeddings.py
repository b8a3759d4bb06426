"""The first embedding rows of a new vocabulary, out of the old table.

Enters: the old table [old rows, width], the old tokenizer, the new pieces, and what alignment and a guide found.
Leaves: the new table and how each row came to be. A kept piece keeps its row. A new one is the mean of the old pieces
that its letters fall into (jamo too, where the old tokenizer tears Hangul); or the mean of the old pieces that
translate it, weighed by how surely they do; or what a guide takes it for; or halfway between these two, which is nearer
than either; or, where there is nothing, a random row like those of the table.
Rows alone do not make a model understand a language: they are where training starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from munjang.students.alignment import Aligned
from munjang.students.assembling import Assembled
from munjang.students.vocabulary import OldVocabulary
from munjang.text.fast_words import METASPACE, encode_ids, steps
from munjang.text.packing import Int64
from munjang.text.tokenizer import Tokenizer

Table = npt.NDArray[np.float32]
_WINDOW = 20_000  # pieces that the old tokenizer encodes at once


@dataclass(frozen=True)
class Hints:
    """What is known of new pieces besides their letters, by new id."""

    aligned: Mapping[int, Aligned] = field(default_factory=dict)  # the old pieces that translate it
    guided: Mapping[int, Table] = field(default_factory=dict)  # [width]: the row that a guide takes it for


@dataclass(frozen=True)
class Rows:
    """A new table, and how many of its rows came which way."""

    table: Table  # [rows, width]
    kept: int
    pieces: int
    translations: int
    guide: int
    both: int  # by translations and the guide
    random: int

    def describe(self) -> dict[str, Any]:
        return {
            "kept": self.kept,
            "from pieces": self.pieces,
            "from translations": self.translations,
            "from the guide": self.guide,
            "from translations and the guide": self.both,
            "random": self.random,
        }


def first_rows(
    table: Table,
    old: Tokenizer,
    *,
    vocabulary: OldVocabulary,
    new: Assembled,
    hints: Hints,
    prefix: str,
    seed: int,
) -> Rows:
    """The table of the new vocabulary. prefix: of the new vocabulary's pieces inside a word."""
    generator = np.random.default_rng(seed)
    ordinary = table[sorted(vocabulary.ids[piece] for piece in vocabulary.pieces)] if vocabulary.pieces else table
    mean, spread = ordinary.mean(axis=0), ordinary.std(axis=0)
    typical = float(np.median(np.linalg.norm(ordinary, axis=1)))
    rows = np.empty((len(new.old_ids), table.shape[1]), np.float32)
    kept = new.old_ids >= 0
    rows[kept] = table[new.old_ids[kept]]
    fresh = [int(row) for row in np.flatnonzero(~kept)]
    parts = dict(zip(fresh, _old_pieces([new.tokens[row] for row in fresh], old, vocabulary, prefix), strict=True))
    counts = {"pieces": 0, "translations": 0, "guide": 0, "both": 0, "random": 0}
    for row in fresh:
        hint, way = _hinted(row, hints, table, typical)
        if hint is not None:
            rows[row] = hint
            counts[way] += 1
        elif len(parts[row]):
            rows[row] = table[parts[row]].mean(axis=0)
            counts["pieces"] += 1
        else:
            rows[row] = mean + spread * generator.standard_normal(table.shape[1])
            counts["random"] += 1
    return Rows(rows, int(kept.sum()), **counts)


def _hinted(row: int, hints: Hints, table: Table, norm: float) -> tuple[Table | None, str]:
    """The row that translations and the guide give, and which of them did; None where neither says anything."""
    found: dict[str, Table] = {}
    if row in hints.aligned:
        found["translations"] = _scaled(hints.aligned[row].weights @ table[hints.aligned[row].ids], norm)
    if row in hints.guided:
        found["guide"] = _scaled(hints.guided[row], norm)
    if len(found) == 2:
        return _scaled(found["translations"] + found["guide"], norm), "both"
    return next(iter(found.values()), None), next(iter(found), "")


def _scaled(row: Table, norm: float) -> Table:
    """At the length that rows usually have: a mean of rows that point elsewhere is short."""
    length = float(np.linalg.norm(row))
    return row * np.float32(norm / length) if length > 0 else row


def _old_pieces(pieces: Sequence[str | None], old: Tokenizer, vocabulary: OldVocabulary, prefix: str) -> list[Int64]:
    """For each new piece: the ids of the old pieces that its letters fall into, unknown ones left out."""
    splitting = {step["type"] for step in steps(old.backend.pre_tokenizer)}
    starts, surfaces = [], []
    for piece in pieces:
        text = piece or ""
        start = text.startswith(METASPACE) if not prefix else not text.startswith(prefix)
        letters = text.removeprefix(prefix) if prefix else text.replace(METASPACE, " ").strip()
        starts.append(start)
        surfaces.append(f" {letters}" if start and "ByteLevel" in splitting else letters)
    unknown = vocabulary.ids.get(vocabulary.unknown or "")
    tokens = {place: token for token, place in vocabulary.ids.items()}
    found: list[Int64] = []
    for first in range(0, len(surfaces), _WINDOW):
        for offset, ids in enumerate(encode_ids(old.backend, surfaces[first : first + _WINDOW], special=False)):
            ids = [place for place in ids if place != unknown]
            if ids and not starts[first + offset]:
                ids[0] = _inside(ids[0], tokens, vocabulary)
            found.append(np.array(ids, np.int64))
    return found


def _inside(place: int, tokens: Mapping[int, str], vocabulary: OldVocabulary) -> int:
    """The same letters inside a word, where the old vocabulary has them so: '##x' for 'x', 'x' for '▁x'."""
    token = tokens[place]
    other = vocabulary.prefix + token if vocabulary.prefix else token.removeprefix(METASPACE)
    return vocabulary.ids.get(other, place)
