"""Texts to the ids of the multilingual Universal Sentence Encoder, as its SentencePiece model cuts them.

    sp.model -> pieces, scores, rules of the normaliser        text -> normalised -> ids, <s> before, </s> behind

Enters: sp.model and texts. Leaves: ids and lengths. The pieces go into a `tokenizers` Unigram model, which is quick.
The normaliser does not: `tokenizers` applies such rules (a precompiled charsmap) grapheme by grapheme, and so leaves
Hangul in pieces that comes decomposed ('ᄒ', 'ᅡ', 'ᆫ') or as compatibility jamo ('ㅎㅠ'). So the rules are read out of
their trie and applied here, the longest first, as SentencePiece does. Most texts hold nothing that a rule of
several characters could be about, and pass through `str.translate` at its speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import tokenizers
from tokenizers import models

from munjang.errors import ModelError
from munjang.text.fast_words import METASPACE, encode_ids, from_lists
from munjang.text.packing import Int32, Int64

BEGIN, END = 1, 2  # <s>, </s>
_ORDINARY, _UNKNOWN, _WRITTEN = 1, 2, 4  # types of pieces: ordinary, unknown, user-defined
_SPACES = re.compile(" {2,}")
_PART = 20_000  # characters of one text that are cut into pieces at once, where its words allow it


@dataclass(frozen=True)
class Model:
    """What sp.model holds."""

    pieces: list[tuple[str, float, int]]  # text, score and type, by id
    charsmap: bytes  # the normaliser's rules


def read_model(path: Path) -> Model:
    """Read a SentencePiece model: pieces are field 1 of the message, the normaliser field 3, its charsmap field 2."""
    try:
        content = path.read_bytes()
        pieces, charsmap = [], b""
        for field, value in _fields(content):
            if field == 1:
                piece = dict(_fields(value))
                score = float(np.frombuffer(piece.get(2, b"\0\0\0\0"), "<f4")[0])
                pieces.append((piece[1].decode("utf-8"), score, int.from_bytes(piece.get(3, b"\1"), "little")))
            elif field == 3:
                charsmap = dict(_fields(value)).get(2, b"")
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except (IndexError, KeyError, ValueError, OverflowError) as error:  # the last: a number of more than ten bytes
        _damaged(path, error)
    names = [piece for piece, _, _ in pieces]
    if names[:3] != ["<unk>", "<s>", "</s>"] or not charsmap or len(set(names)) != len(names):
        _damaged(path, f"{len(pieces)} pieces, which begin with {names[:3]}, and {len(charsmap)} bytes of rules")
    return Model(pieces, charsmap)


def _damaged(path: Path, why: object) -> NoReturn:
    raise ModelError(f"{path} is not the SentencePiece model of the Universal Sentence Encoder, or damaged: {why}")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, value) of every field of a protobuf message; a number as little-endian bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            number, place = _varint(data, place)
            yield tag >> 3, number.to_bytes(10, "little")
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"wire type {wire} at byte {place}")
        length = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            length, place = _varint(data, place)
        if place + length > len(data):
            raise ValueError(f"a field ends behind the file, at byte {place}")
        yield tag >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


class Trie:
    """The rules of a precompiled charsmap: what is replaced, and by what.

    It is a double array over UTF-8 bytes (darts-clone), behind its size in bytes, and then texts that end in a zero
    byte. The child of a node by byte c lies at the node's offset XOR c and holds c as its label. Ends are shared: it
    stands for some 200,000 rules, so that only those of one character are ever written out.
    """

    def __init__(self, charsmap: bytes) -> None:
        size = int.from_bytes(charsmap[:4], "little")
        self._units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)  # [nodes]
        self._listed: list[int] = self._units.tolist()  # single values of a list are read sooner than of an array
        self._texts = charsmap[4 + size :]
        self.single: dict[str, str] = {}  # every rule of one character
        deeper: set[int] = set()
        for letter, base, ends in self._letters(_offsets(self._units[:1])):
            if ends:
                self.single[letter] = self._text(base)
            deeper.add(base)
        # What comes second in a rule of several characters: where none of these stands, only single rules count.
        self.second = {letter for letter, _, _ in self._letters(np.array(sorted(deeper), np.int64))}

    def longest(self, data: bytes, place: int) -> tuple[str, int]:
        """The text of the longest rule that fits at this byte, and how many bytes it replaces; 0 where none does."""
        node, length, found = _offset(self._listed[0]), 0, ("", 0)
        while place + length < len(data):
            byte = data[place + length]
            node ^= byte
            unit = self._listed[node] if node < len(self._listed) else 0x80000000
            if unit & 0x800000FF != byte:
                break
            node ^= _offset(unit)
            length += 1
            if unit & 0x100:
                found = (self._text(node), length)
        return found

    def _text(self, leaf: int) -> str:
        start = self._listed[leaf] & 0x7FFFFFFF
        return self._texts[start : self._texts.index(0, start)].decode("utf-8")

    def _letters(self, bases: Int64) -> Iterator[tuple[str, int, bool]]:
        """Every character that leads on from these nodes: itself, the node's offset, and whether a rule ends there."""
        letters = np.arange(256)
        keys = [b""] * len(bases)
        while len(bases):
            places = bases[:, None] ^ letters  # [nodes, 256]
            inside = places < len(self._units)
            labels = self._units[np.where(inside, places, 0)]  # [nodes, 256]
            parents, taken = np.nonzero(inside & (labels & 0x800000FF == letters) & (letters > 0))
            units = self._units[places[parents, taken]]  # [children]
            reached = places[parents, taken] ^ _offsets(units)  # [children]
            grown = [keys[parent] + bytes((letter,)) for parent, letter in zip(parents, taken, strict=True)]
            whole = np.array([len(key) == _width(key[0]) for key in grown], bool)
            for child in np.flatnonzero(whole):
                yield grown[child].decode("utf-8"), int(reached[child]), bool(units[child] & 0x100)
            open_ends = {(int(reached[child]), grown[child]) for child in np.flatnonzero(~whole)}
            bases = np.array([base for base, _ in open_ends], np.int64)
            keys = [key for _, key in open_ends]


def _offsets(units: Int64) -> Int64:
    return (units >> 10) << ((units & 0x200) >> 6)


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _width(first: int) -> int:
    """Bytes of the character that begins with this one."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


class Normaliser:
    """SentencePiece's normaliser: rules, then single spaces, each written as '▁', and one before the text."""

    def __init__(self, charsmap: bytes) -> None:
        self._trie = Trie(charsmap)
        self._single: dict[int, str] = {ord(letter): text for letter, text in self._trie.single.items()}
        second = "".join(map(re.escape, sorted(self._trie.second)))
        self._suspicious = re.compile(f"[{second}]" if second else r"(?!)")

    def __call__(self, text: str) -> str:
        found = self._walked(text) if self._suspicious.search(text) else text.translate(self._single)
        found = _SPACES.sub(" ", found).strip(" ")
        return METASPACE + found.replace(" ", METASPACE) if found else ""

    def _walked(self, text: str) -> str:
        """The longest rule that fits, from character to character."""
        data = text.encode("utf-8", "surrogatepass")
        found: list[bytes] = []
        place = 0
        while place < len(data):
            replaced, length = self._trie.longest(data, place)
            if length:
                found.append(replaced.encode("utf-8"))
            else:
                length = _width(data[place])
                found.append(data[place : place + length])
            place += length
        return b"".join(found).decode("utf-8", "surrogatepass")


class UniversalTokenizer:
    """Texts to ids."""

    def __init__(self, model: Model) -> None:
        self.normalise = Normaliser(model.charsmap)
        # Texts may hold '<s>' as they may hold any word: with a space in its name, which no normalised text has, a
        # piece that is not for texts is never met. Those that the makers added for texts (type 4) are.
        named = [
            (piece if kind in (_ORDINARY, _WRITTEN) else f"{piece} ", score) for piece, score, kind in model.pieces
        ]
        unknown = next(place for place, (_, _, kind) in enumerate(model.pieces) if kind == _UNKNOWN)
        self._backend = tokenizers.Tokenizer(models.Unigram(named, unk_id=unknown))

    def __call__(self, texts: Sequence[str]) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [n], <s> and </s> included; a text without content is these two alone."""
        normal = [self.normalise(text) for text in texts]
        if any(len(text) > _PART for text in normal):
            rows = [self._long(text) if len(text) > _PART else self._rows([text])[0] for text in normal]
        else:
            rows = self._rows(normal)
        return from_lists([[BEGIN, *row, END] for row in rows])

    def _rows(self, normal: Sequence[str]) -> list[list[int]]:
        return encode_ids(self._backend, normal, special=False)

    def _long(self, text: str) -> list[int]:
        """A long text part after part: what `tokenizers` holds beside the ids is much larger than these.

        It is cut between words, over which no piece reaches.
        """
        ids: list[int] = []
        start = 0
        while start < len(text):
            end = len(text)
            if end - start > _PART:
                cut = text.rfind(METASPACE, start + 1, start + _PART)
                cut = cut if cut > start else text.find(METASPACE, start + _PART)
                end = cut if cut > start else end
            ids += self._rows([text[start:end]])[0]
            start = end
        return ids
