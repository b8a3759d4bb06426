"""Which words of a step are hidden, and what stands in their place: plain numpy, no state, no generator.

Enters: the tokens of some rows, and where each stands in the data set. Leaves: the tokens to compute with, and at which
of them the model must find what stood there. Every draw is a hash of the run's seed, the step and the place in the data
set (splitmix64: Steele, Lea and Flood 2014), so that a word is hidden or not whatever rows are computed beside it, on
however many processes, and whether the run was resumed.

A share of all words is hidden, whole (Devlin et al. 2019, and their later whole-word masking): every piece of a chosen
word becomes the mask token (80 %), any other piece (10 %), or stays as it is (10 %). Special tokens are never chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.errors import ModelError
from munjang.text.packing import starts_of
from munjang.text.tokenizer import Tokenizer
from munjang.training.sequences import Sequences

Array = np.ndarray[Any, Any]

_MASK_NAMES = ("[MASK]", "<mask>")
_SPECIAL_NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>", "<s>", "</s>", "<mask>")
_SPACES = ("▁", "Ġ")  # what sentencepiece and byte-level BPE write for the space before a word
_BITS = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # splitmix64: the golden ratio, and its two multipliers
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Words:
    """What masking must know of a vocabulary."""

    mask: int  # the id that hides a piece
    begins: Array  # bool [vocabulary]: the piece begins a word
    special: Array  # bool [vocabulary]: never hidden
    ordinary: Array  # int32: all pieces that are not special

    @classmethod
    def of(cls, tokenizer: Tokenizer, rows: int) -> Words:
        """Of a tokenizer and a table of so many rows; ModelError where there is no mask token."""
        vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
        pieces = {number: piece for piece, number in vocabulary.items() if number < rows}
        mask = _mask_id(tokenizer, vocabulary, rows)
        special = np.zeros(rows, np.bool_)
        special[[number for number in _special_ids(tokenizer, vocabulary) | {mask} if number < rows]] = True
        ordinary = np.array(sorted(number for number in pieces if not special[number]), np.int32)
        if not len(ordinary):
            raise ModelError("the tokenizer has special tokens only: there is no word to hide")
        return cls(mask, _beginnings(tokenizer, pieces, ordinary, rows), special, ordinary)


@dataclass(frozen=True)
class Masked:
    """Some rows with hidden words."""

    ids: Array  # int32 [total], to compute with
    lengths: Array  # int32 [sequences]
    segments: Array | None  # int32 [total]
    where: Array  # int64 [m]: the tokens that must be found
    labels: Array  # int64 [m]: what they were


def mask_rows(
    sequences: Sequences, rows: Array, words: Words, *, share: float, numbers: tuple[int, int], sort: bool = False
) -> Masked:
    """Hide words of some rows. numbers: the seed and the step; sort: as in `Sequences.pack`."""
    lengths, places, _ = sequences.lay_out(rows, sort=sort)
    ids, segments = sequences.at(places)
    special = words.special[ids]
    begins = words.begins[ids] | special
    begins[1:] |= special[:-1]
    begins[starts_of(lengths)] = True
    first = np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))  # of each token's word
    where = np.flatnonzero((_uniform(places[first], 0, *numbers) < share) & ~special)
    labels = ids[where]
    how = _uniform(places[where], 1, *numbers)
    others = words.ordinary[(_draws(places[where], 2, *numbers) % np.uint64(len(words.ordinary))).astype(np.int64)]
    hidden = ids.copy()
    hidden[where] = np.where(how < 0.8, words.mask, np.where(how < 0.9, others, labels))
    return Masked(hidden, lengths, segments, where, labels.astype(np.int64))


def _uniform(places: Array, *numbers: int) -> Array:  # float64 [n], 0 <= x < 1
    return (_draws(places, *numbers) >> np.uint64(11)) * 2.0**-53


def _draws(places: Array, *numbers: int) -> Array:
    """A uint64 for every place, by the purpose of the draw, the seed and the step."""
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = _mixed(key ^ np.uint64(number & _BITS))
    return _mixed(key + _mixed(places.astype(np.uint64)))


def _mixed(values: Array) -> Array:
    """splitmix64 of uint64 arrays, which wrap around."""
    values = values + np.uint64(_STEP)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed


def _mask_id(tokenizer: Tokenizer, vocabulary: dict[str, int], rows: int) -> int:
    named = tokenizer.special_tokens().get("mask_token")
    for name in (named, *_MASK_NAMES):
        if name is not None and vocabulary.get(name, rows) < rows:
            return vocabulary[name]
    raise ModelError(
        "the tokenizer has no mask token: expected mask_token in tokenizer_config.json, or "
        f"{' or '.join(_MASK_NAMES)} in its vocabulary, with a row in the model's table ({rows:,} rows). Words cannot "
        "be hidden from this model; train it without MaskedWords"
    )


def _special_ids(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> set[int]:
    added = tokenizer.backend.get_added_tokens_decoder()
    found = {number for number, token in added.items() if token.special} | {*tokenizer.prefix, *tokenizer.suffix}
    names = (*tokenizer.special_tokens().values(), *_SPECIAL_NAMES)
    return found | {vocabulary[name] for name in names if name in vocabulary}


def _beginnings(tokenizer: Tokenizer, pieces: dict[int, str], ordinary: Array, rows: int) -> Array:
    """bool [rows]: by the sign of a continued word (##), or of the space before one; else each piece is a word."""
    begins = np.ones(rows, np.bool_)
    continued = getattr(tokenizer.backend.model, "continuing_subword_prefix", None)
    texts = [pieces[number] for number in ordinary.tolist()]
    if continued:
        begins[ordinary] = [not text.startswith(continued) for text in texts]
        return begins
    for space in _SPACES:
        after = np.array([text.startswith(space) for text in texts], np.bool_)
        if after.sum() > len(after) // 100:
            begins[ordinary] = after
            break
    return begins
