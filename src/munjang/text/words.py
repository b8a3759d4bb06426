"""The fast path: a text's ids put together from a table of its words' ids.

    texts -> one join and split -> word numbers [words] -> numpy gather -> ids [total], lengths [n]

Language repeats its words: after the first thousands of texts nearly every word is known, and looking it up costs
a tenth of tokenising it. On a GPU, where tokenising is the bottleneck, this is the main lever. The table is used
only for tokenizers that provably work word by word (`locality.py`), and a self-check compares both ways at load.

A printable text (`str.isprintable`) has no white space but U+0020 and no control or format characters, so that
splitting at U+0020 is exact. Every other text, and a text with a word that must not be taken out of it, goes
through the backend; the results are merged in order. The table forgets everything when it has grown too large.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tokenizers

from munjang import forking
from munjang.errors import InputError
from munjang.text.backend import check_unicode, encode_ids
from munjang.text.locality import Locality, locality_of
from munjang.text.ragged import Int32, from_lists, positions, starts_of

Bools: TypeAlias = npt.NDArray[np.bool_]
LONGEST_WORD = 64  # characters; longer ones are links and noise, which do not come again
GROUP = 64  # words that are tokenised together
MOST_WORDS = 500_000
MOST_PIECES = 4_000_000
MARK = "\n"  # begins every text; no printable text holds it
REFUSED_TEXT = MARK * 3  # stands for a text that goes to the backend
BEGIN, REFUSED, REFUSED_FIRST = 0, 1, 2  # numbers in the table that are no words
PROBES = (
    "",
    " ",
    "word",
    "Two words",
    "  doubled  spaces at  both ends ",
    "한국어 문장은 띄어쓰기로 나뉜다.",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \u1112\u1161 ㅎㅎ",
    "漢字 と 日本語 中文字符 x中y",
    "e\u0301 \u0301a \u0301 ñ İ ß ﬁ Ⅳ ¨ a¨b",
    "it's (quoted), don't: 3.14 1,000 a-b x_y @#$%",
    "👍🏽 🇰🇷 x👍 ☃",
    "[SEP] a[MASK]b <mask> x<mask> </s> [UNK]y",
    "▁ a▁b ▁x",
    "▁x a",
    "x_y _",
    "mark\u00a0\u0300 and\n\u0300 and \u0300 \u0d4e \u0d4e\u0300",
    "line\nbreak\ttab\u3000wide\u00a0hard",
    "zero\u200bwidth \u200b \ufeff a\u00adb",
    "x" * 70 + " tail",
)


class _Numbers(dict[str, int]):
    """Word -> its number. A word that is not there gets the next number and is noted in `new`."""

    def __init__(self) -> None:
        super().__init__({MARK: BEGIN, REFUSED_TEXT: REFUSED, MARK + REFUSED_TEXT: REFUSED_FIRST})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        if len(word) > LONGEST_WORD:
            return REFUSED_FIRST if word[0] == MARK else REFUSED
        number = self[word] = len(self)
        self.new.append(word)
        return number


class _Table:
    """The pieces of every known word, in arrays that only grow: what was read from them stays true."""

    def __init__(self, glued: bool) -> None:
        self.numbers = _Numbers()
        self.pieces = np.empty(1 << 14, dtype=np.int32)
        self.used = 0  # pieces
        self.starts = np.zeros(1 << 12, dtype=np.int64)
        self.lengths = np.zeros(1 << 12, dtype=np.int32)  # -1: refused
        self.marks = np.zeros(1 << 12, dtype=bool)  # the word begins a text
        self.lengths[[REFUSED, REFUSED_FIRST]] = -1
        self.marks[[BEGIN, REFUSED_FIRST]] = True
        if glued:  # a mark with nothing glued to it: an empty text, or one that begins with a space
            self.lengths[BEGIN] = -1

    def add(self, first: int, pieces: Int32, lengths: Int32, marks: Bools) -> None:
        """Store the words numbered from `first` on; a refused word has length -1 and no pieces."""
        sizes = np.maximum(lengths, 0)
        rows = slice(first, first + len(lengths))
        self.pieces = _grown(self.pieces, self.used + len(pieces))
        self.starts, self.lengths = _grown(self.starts, rows.stop), _grown(self.lengths, rows.stop)
        self.marks = _grown(self.marks, rows.stop)
        self.pieces[self.used : self.used + len(pieces)] = pieces
        self.starts[rows] = starts_of(sizes) + self.used
        self.lengths[rows], self.marks[rows] = lengths, marks
        self.used += len(pieces)


class WordPath:
    """Body ids (no special tokens, uncut) of texts, word by word."""

    def __init__(self, backend: tokenizers.Tokenizer, locality: Locality) -> None:
        self._backend = backend
        self._locality = locality
        # Dropping and uniform tokenizers: the mark is a word of its own. Where the first word of a text differs,
        # the mark is glued to it, so that it has its own place in the table.
        self._mark = MARK if locality.first_differs else MARK + " "
        self._added = np.array(sorted(backend.get_added_tokens_decoder()), dtype=np.int32)
        self._separator = _separator_of(backend)
        self._spaces = str.maketrans(dict.fromkeys(locality.spaces, " "))
        self._lock = threading.Lock()
        self._table = _Table(locality.first_differs)
        forking.register(self)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle and deepcopy: the same path with a table of its own, which fills again."""
        return WordPath, (self._backend, self._locality)

    def after_fork_in_child(self) -> None:
        """Replace the lock; a thread of the parent that held it may have been changing the table."""
        if self._lock.locked():
            self._table = _Table(self._locality.first_differs)
        self._lock = threading.Lock()

    @classmethod
    def for_backend(cls, backend: tokenizers.Tokenizer) -> WordPath | None:
        """The fast path of this backend, or None where it would not be exact."""
        locality = locality_of(backend)
        if locality is None:
            return None
        path = cls(backend, locality)
        ids, lengths = path.encode(PROBES)
        expected_ids, expected_lengths = from_lists(encode_ids(backend, PROBES, special=False))
        same = np.array_equal(lengths, expected_lengths) and np.array_equal(ids, expected_ids)
        return path if same else None

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [n]."""
        usable = texts if all(map(str.isprintable, texts)) else self._cleaned(texts)
        try:
            return self._encode(texts, usable)
        except InputError:
            check_unicode(texts)  # names the position among all the texts
            raise

    def _cleaned(self, texts: Sequence[str]) -> list[str]:
        """The texts that can be split, white space made plain; in place of the others, the text that is refused."""
        spaced = (text if text.isprintable() else text.translate(self._spaces) for text in texts)
        return [text if text.isprintable() else REFUSED_TEXT for text in spaced]

    def _encode(self, texts: Sequence[str], usable: Sequence[str]) -> tuple[Int32, Int32]:
        if not texts:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        words = (self._mark + (" " + self._mark).join(usable)).split(" ")
        with self._lock:
            table = self._table
            if len(table.numbers) > MOST_WORDS or table.used > MOST_PIECES:
                table = self._table = _Table(self._locality.first_differs)
            numbers = np.fromiter(map(table.numbers.__getitem__, words), dtype=np.int64, count=len(words))
            if table.numbers.new:
                self._learn(table)
            pieces, starts, lengths, marks = table.pieces, table.starts, table.lengths, table.marks
        begins = np.flatnonzero(marks[numbers])  # [n]: the first word of each text
        sizes = lengths[numbers]  # [words]
        if sizes.min() >= 0:
            return pieces[positions(starts[numbers], sizes)], np.add.reduceat(sizes, begins, dtype=np.int32)
        refused = np.minimum.reduceat(sizes, begins) < 0  # [n]
        kept = np.repeat(~refused, np.diff(begins, append=len(words)))  # [words]
        known = np.where(kept, sizes, 0)
        ids = pieces[positions(starts[numbers], known)]
        others = [texts[row] for row in np.flatnonzero(refused).tolist()]
        return _merged(
            ids,
            np.add.reduceat(known, begins, dtype=np.int32),
            refused,
            encode_ids(self._backend, others, special=False),
        )

    def _learn(self, table: _Table) -> None:
        """Tokenise the words that were met for the first time. If that fails, the table is of no more use."""
        words, table.numbers.new = table.numbers.new, []
        try:
            firsts = np.fromiter((word[:1] == MARK for word in words), dtype=bool, count=len(words))
            bare = [word[1:] if first else word for word, first in zip(words, firsts, strict=True)]
            if self._locality.dropping:
                units = bare
            else:  # a space belongs to the word after it
                units = [word if first else " " + word for word, first in zip(bare, firsts, strict=True)]
            pieces, lengths = self._tokenised(units)
            refused = self._refused(bare, pieces, lengths)
            if refused.any():
                pieces = pieces[np.repeat(~refused, lengths)]
                lengths[refused] = -1
            table.add(len(table.numbers) - len(words), pieces, lengths, firsts)
        except BaseException:
            self._table = _Table(self._locality.first_differs)
            raise

    def _tokenised(self, units: list[str]) -> tuple[Int32, Int32]:
        """Ids and lengths of the units. Groups of them go as one text, a special token between each two.

        The backend tears a text at its special tokens before anything else, so that the units do not touch each
        other; and one call for many words is much cheaper than one for each.
        """
        if self._separator is None:
            return from_lists(encode_ids(self._backend, units, special=False))
        content, separator = self._separator
        groups = [units[at : at + GROUP] for at in range(0, len(units), GROUP)]
        joined = [content.join(group) + content for group in groups]
        flat, _ = from_lists(encode_ids(self._backend, joined, special=False))
        ends = np.flatnonzero(flat == separator)
        intact = all(text.count(content) == len(group) for text, group in zip(joined, groups, strict=True))
        if len(ends) != len(units) or not intact:  # a word holds the separator, or part of it
            return from_lists(encode_ids(self._backend, units, special=False))
        return flat[flat != separator], (np.diff(ends, prepend=-1) - 1).astype(np.int32)

    def _refused(self, words: list[str], pieces: Int32, lengths: Int32) -> Bools:
        """Which words must be left in their texts, [words]."""
        refuses = self._locality.refuses
        if refuses is None:
            return np.zeros(len(words), dtype=bool)
        refused = np.fromiter(map(refuses, words), dtype=bool, count=len(words))
        if not self._locality.dropping:  # the space before or after an added token has its own rules
            rows = np.repeat(np.arange(len(words)), lengths)
            refused[rows[np.isin(pieces, self._added)]] = True
        return refused


def _separator_of(backend: tokenizers.Tokenizer) -> tuple[str, int] | None:
    """A special token that is matched as it is written, and its id; never the one for unknown words."""
    unknown = getattr(backend.model, "unk_token", None)
    for number, token in backend.get_added_tokens_decoder().items():
        plain = not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        if token.special and plain and token.content != unknown and "unk" not in token.content.lower():
            return token.content, number
    return None


def _merged(ids: Int32, lengths: Int32, refused: Bools, rows: list[list[int]]) -> tuple[Int32, Int32]:
    """Put the backend's rows into the places of the refused texts, whose length so far is 0."""
    other_ids, other_lengths = from_lists(rows)
    merged_lengths = lengths.copy()
    merged_lengths[refused] = other_lengths
    merged = np.empty(len(ids) + len(other_ids), dtype=np.int32)
    from_backend = np.repeat(refused, merged_lengths)
    merged[from_backend] = other_ids
    merged[~from_backend] = ids
    return merged, merged_lengths


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a copy with at least twice the room if `size` does not fit."""
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
