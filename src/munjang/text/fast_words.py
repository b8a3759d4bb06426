"""Texts to token ids: by the `tokenizers` library, or from a table of their words where that is provably the same.

    texts -> one join and split -> word numbers [words] -> numpy gather -> ids [total], lengths [n]

Language repeats its words: after a few thousand texts nearly every word is in the table, and a lookup costs a tenth of
tokenizing. On a GPU, where tokenizing is the bottleneck, this is the main lever.

The ids of a text are the concatenated ids of its words if nothing looks across a space: neither the normalizer, nor the
search for added tokens, nor the pre-tokenizer. `split_rules` proves that from the components' own description, an
unknown component switches the table off, and a self-check compares both ways at load. A text with control or format
characters, or with a word that must not be separated from its neighbors, goes to the library.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models

from munjang import forking
from munjang.errors import InputError
from munjang.text.packing import Int32, positions, starts_of

METASPACE = "▁"  # U+2581
SEPARATING = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}  # split at white space and drop it
_PER_WORD = SEPARATING | {"Punctuation", "Digits", "Split", "UnicodeScripts", "ByteLevel"}
_LOCAL_NORMALIZERS = {
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Strip", "Precompiled",
}  # fmt: skip
_MODELS = (models.WordPiece, models.BPE, models.Unigram, models.WordLevel)
# Without U+000B, U+000C and U+0085, which BERT removes as control characters.
_LINE_BREAKS = "\t\n\r"
# A combining mark joins these to a grapheme cluster, which a precompiled map may replace as a whole.
_WIDE_SPACES = "\u00a0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))

_MAX_WORD = 64  # characters; longer words are links and noise, which rarely repeat
_GROUP = 64  # new words tokenized as one text
_MAX_WORDS = 500_000  # in the table, which is emptied when it exceeds either limit
_MAX_PIECES = 4_000_000
_MARK = "\n"  # begins every text; no printable text contains it
_REFUSED_TEXT = _MARK * 3  # placeholder of a text that goes to the library
_BEGIN, _REFUSED, _REFUSED_FIRST = 0, 1, 2  # entries of the table that are not words
_SELF_CHECK = (
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

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def check_unicode(inputs: Sequence[str] | Sequence[tuple[str, str]], *, first: int = 0) -> None:
    """Raise `InputError` for the first text with a lone surrogate, naming its position counted from `first`."""
    for position, item in enumerate(inputs, start=first):
        texts = (
            {f"text {position}": item}
            if isinstance(item, str)
            else {f"pair {position}, first text": item[0], f"pair {position}, second text": item[1]}
        )
        for name, text in texts.items():
            if match := LONE_SURROGATE.search(text):
                raise InputError(
                    f"{name} is not valid Unicode: a lone surrogate {match.group()!r} at character "
                    f"{match.start()}; repair it, for example with "
                    "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
                )


def encodings(
    backend: tokenizers.Tokenizer,
    inputs: Sequence[str] | Sequence[tuple[str, str]],
    *,
    special: bool,
    offsets: bool = False,
    first: int = 0,
) -> list[tokenizers.Encoding]:
    """Call `encode_batch` with texts or pairs.

    Args:
        special: add special tokens.
        offsets: give the encodings their offsets, which takes longer.
        first: position of the first input in error messages.

    Raises:
        InputError: if an input is not valid Unicode, or the library panics on it.
    """
    encode_batch = backend.encode_batch if offsets else getattr(backend, "encode_batch_fast", backend.encode_batch)
    try:
        return list(encode_batch(list(inputs), add_special_tokens=special))
    except (TypeError, UnicodeError) as error:
        check_unicode(inputs, first=first)
        raise InputError(f"the tokenizer rejected an input: {error}") from error
    except BaseException as error:  # a panic of the library, not an Exception: its pattern backtracked too long
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(f"the tokenizer failed on an input: {error}") from error


def encode_ids(backend: tokenizers.Tokenizer, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """Token ids of each text, with or without special tokens."""
    return [encoding.ids for encoding in encodings(backend, texts, special=special)]


def from_lists(rows: Sequence[Sequence[int]]) -> tuple[Int32, Int32]:
    """Flatten lists of ids into ids [total] and lengths [n]."""
    lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
    return flat, lengths


def describe(component: Any) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer as JSON; `to_str` of the whole backend would write the vocabulary too."""
    description: dict[str, Any] | None = None if component is None else json.loads(component.__getstate__())
    return description


def steps(component: Any) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer as JSON, nested sequences flattened; empty for None."""
    pending, flat = [describe(component)], []
    while pending:
        step = pending.pop()
        if step is not None and step["type"] == "Sequence":
            pending += reversed(step.get("normalizers") or step.get("pretokenizers") or [])
        elif step is not None:
            flat.append(step)
    return flat


@dataclass(frozen=True)
class SplitRules:
    """How texts may be split at their spaces without changing their ids."""

    drops_spaces: bool  # white space only separates; otherwise a space belongs to the word after it
    first_differs: bool  # the first word of a text has other ids than the same word after a space
    refuses: Callable[[str], bool] | None  # whether a word must not be separated from its neighbors
    spaces: str  # white space that may be read as U+0020


def split_rules(backend: tokenizers.Tokenizer) -> SplitRules | None:
    """The rules for this backend, or None where splitting is not known to be exact.

    Two kinds of pre-tokenizers qualify: those that drop white space (BERT; XLM-R with WhitespaceSplit), and those that
    attach a space to the next word (ByteLevel of RoBERTa and ModernBERT, Metaspace), for single spaces only.
    """
    model = backend.model
    sampling = getattr(model, "dropout", None) or getattr(model, "alpha", None)
    normalizing, splitting = steps(backend.normalizer), steps(backend.pre_tokenizer)
    if not isinstance(model, _MODELS) or sampling or not splitting or not all(map(_normalizes_locally, normalizing)):
        return None
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    if backend.normalizer is not None:  # the normalized form may be what is searched for
        added |= {backend.normalizer.normalize_str(content) for content in added}
    spaced = [content for content in added if any(map(str.isspace, content))]
    first = splitting[0]
    if first["type"] in SEPARATING and all(map(_splits_locally, splitting[1:])):
        if spaced:  # it could match across words
            return None
        if any(step["type"] == "Precompiled" for step in normalizing):
            return SplitRules(True, False, _refusal(backend, normalizing, drops_spaces=True), _LINE_BREAKS)
        return SplitRules(True, False, None, _LINE_BREAKS + _WIDE_SPACES)
    # Added tokens that are runs of spaces (ModernBERT) cannot match where spaces are single.
    if len(splitting) > 1 or not all("  " in content for content in spaced):
        return None
    if first["type"] == "ByteLevel" and first.get("use_regex", True):
        first_differs = not first["add_prefix_space"]
    elif first["type"] == "Metaspace" and first.get("split", True) and first["replacement"] == METASPACE:
        default = "always" if first.get("add_prefix_space", True) else "never"
        first_differs = first.get("prepend_scheme", default) == "never"
    else:
        return None
    return SplitRules(False, first_differs, _refusal(backend, normalizing, drops_spaces=False), "")


def _normalizes_locally(step: Mapping[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _LOCAL_NORMALIZERS
    literal = step["pattern"].get("String")
    if literal is None:
        return bool(step["pattern"].get("Regex") == " {2,}")  # XLM-R: collapses runs of spaces
    return bool(literal) and not any(map(str.isspace, literal))


def _splits_locally(step: Mapping[str, Any]) -> bool:
    """Whether a step after the split at white space treats each word alone."""
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "first")
    return step["type"] in _PER_WORD


def _refusal(
    backend: tokenizers.Tokenizer, normalizing: Sequence[Mapping[str, Any]], *, drops_spaces: bool
) -> Callable[[str], bool]:
    """A test for words that must not be separated from their neighbors.

    Precompiled maps replace grapheme clusters, and a space with a combining mark after it is one cluster. Where spaces
    belong to words, a word that is or becomes empty or contains a space would bring two spaces together.
    """
    if backend.normalizer is None:
        return lambda word: not word or METASPACE in word
    normalize = backend.normalizer.normalize_str
    # U+0D4E forms a cluster with the character after it, so a space between it and a mark joins both.
    contexts = [(before, " x", normalize(before), normalize(" x")) for before in ("x ", "\u0d4e ")]

    def refuses(word: str) -> bool:
        alone = normalize(word)
        if not drops_spaces and (alone.split() != [alone] or METASPACE in alone or METASPACE in word):
            return True
        return any(normalize(before + word + after) != left + alone + right for before, after, left, right in contexts)

    # ASCII characters are normalized one by one: if each passes alone, no ASCII word needs the test.
    literal = any("String" in step.get("pattern", {}) for step in normalizing)
    if literal or any(refuses(chr(code)) for code in range(33, 127)):
        return refuses
    return lambda word: not word or (not word.isascii() and refuses(word))


class _WordTable(dict[str, int]):
    """Word -> its number, and the ids of every numbered word. Arrays are never changed where they have been read.

    Looking up an unknown word assigns it the next number and notes it in `new`; `add` stores its ids.
    """

    def __init__(self, first_differs: bool) -> None:
        super().__init__({_MARK: _BEGIN, _REFUSED_TEXT: _REFUSED, _MARK + _REFUSED_TEXT: _REFUSED_FIRST})
        self.new: list[str] = []
        self.used = 0  # pieces
        self.pieces = np.empty(1 << 14, dtype=np.int32)
        self.starts = np.zeros(1 << 12, dtype=np.int64)
        self.lengths = np.zeros(1 << 12, dtype=np.int32)  # -1: refused
        self.begins = np.zeros(1 << 12, dtype=bool)  # whether the word begins a text
        self.lengths[[_REFUSED, _REFUSED_FIRST]] = -1
        self.begins[[_BEGIN, _REFUSED_FIRST]] = True
        if first_differs:  # a mark without a word after it: the text is empty or begins with a space
            self.lengths[_BEGIN] = -1

    def __missing__(self, word: str) -> int:
        if len(word) > _MAX_WORD:
            return _REFUSED_FIRST if word[0] == _MARK else _REFUSED
        number = self[word] = len(self)
        self.new.append(word)
        return number

    def add(self, pieces: Int32, lengths: Int32, begins: npt.NDArray[np.bool_]) -> None:
        """Store the words with the highest numbers: pieces [total], lengths [words] (-1: refused), begins [words]."""
        end = self.used + len(pieces)
        words = slice(len(self) - len(lengths), len(self))
        self.pieces = _grown(self.pieces, end)
        self.starts, self.lengths = _grown(self.starts, words.stop), _grown(self.lengths, words.stop)
        self.begins = _grown(self.begins, words.stop)
        self.pieces[self.used : end] = pieces
        self.starts[words] = starts_of(np.maximum(lengths, 0)) + self.used
        self.lengths[words], self.begins[words] = lengths, begins
        self.used = end


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array, or a copy of at least twice its length if `size` does not fit."""
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


class WordTokenizer:
    """Token ids of texts, without special tokens and not truncated, from a table of words. Thread-safe."""

    def __init__(self, backend: tokenizers.Tokenizer, rules: SplitRules) -> None:
        self._backend = backend
        self._rules = rules
        # Where the first word of a text differs, the mark is part of it, so that it has an entry in the table.
        self._mark = _MARK if rules.first_differs else _MARK + " "
        self._added = np.array(sorted(backend.get_added_tokens_decoder()), dtype=np.int32)
        self._separator = _separator(backend)
        self._spaces = str.maketrans(dict.fromkeys(rules.spaces, " "))
        self._lock = threading.Lock()
        self._table = _WordTable(rules.first_differs)
        forking.register(self)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle and copy without the table, which fills again, and the rules, which contain a closure."""
        return WordTokenizer.for_backend, (self._backend,)

    def after_fork_in_child(self) -> None:
        """Replace the lock, and the table if a thread of the parent may have been changing it."""
        if self._lock.locked():
            self._table = _WordTable(self._rules.first_differs)
        self._lock = threading.Lock()

    @classmethod
    def for_backend(cls, backend: tokenizers.Tokenizer) -> WordTokenizer | None:
        """The word tokenizer of a backend, or None where it would not be exact."""
        rules = split_rules(backend)
        if rules is None:
            return None
        word_tokenizer = cls(backend, rules)
        ids, lengths = word_tokenizer.encode(_SELF_CHECK)
        expected_ids, expected_lengths = from_lists(encode_ids(backend, _SELF_CHECK, special=False))
        exact = np.array_equal(lengths, expected_lengths) and np.array_equal(ids, expected_ids)
        return word_tokenizer if exact else None

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [n] of the texts."""
        if not texts:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        try:
            return self._encode(texts)
        except InputError:
            check_unicode(texts)  # names the position among all texts
            raise

    def _encode(self, texts: Sequence[str]) -> tuple[Int32, Int32]:
        # A printable text has no white space but U+0020, so splitting it there is exact.
        printable = texts
        if not all(map(str.isprintable, texts)):
            spaced = (text if text.isprintable() else text.translate(self._spaces) for text in texts)
            printable = [text if text.isprintable() else _REFUSED_TEXT for text in spaced]
        words = (self._mark + (" " + self._mark).join(printable)).split(" ")
        with self._lock:
            table = self._table
            if len(table) > _MAX_WORDS or table.used > _MAX_PIECES:
                table = self._table = _WordTable(self._rules.first_differs)
            numbers = np.fromiter(map(table.__getitem__, words), dtype=np.int64, count=len(words))  # [words]
            if table.new:
                self._learn(table)
            pieces, starts, lengths, begins = table.pieces, table.starts, table.lengths, table.begins
        firsts = np.flatnonzero(begins[numbers])  # [n], the first word of each text
        sizes = lengths[numbers]  # [words]
        if sizes.min() >= 0:
            return pieces[positions(starts[numbers], sizes)], np.add.reduceat(sizes, firsts, dtype=np.int32)
        refused = np.minimum.reduceat(sizes, firsts) < 0  # [n]
        sizes = np.where(np.repeat(refused, np.diff(firsts, append=len(words))), 0, sizes)
        others = [texts[row] for row in np.flatnonzero(refused).tolist()]
        other_ids, other_lengths = from_lists(encode_ids(self._backend, others, special=False))
        merged_lengths = np.add.reduceat(sizes, firsts, dtype=np.int32)
        merged_lengths[refused] = other_lengths
        merged = np.empty(int(merged_lengths.sum(dtype=np.int64)), dtype=np.int32)
        from_library = np.repeat(refused, merged_lengths)
        merged[from_library] = other_ids
        merged[~from_library] = pieces[positions(starts[numbers], sizes)]
        return merged, merged_lengths

    def _learn(self, table: _WordTable) -> None:
        """Tokenize the new words. If that fails, the table is replaced, because it has numbers without ids."""
        words, table.new = table.new, []
        try:
            begins = np.fromiter((word[:1] == _MARK for word in words), dtype=bool, count=len(words))
            bare = [word[1:] if begin else word for word, begin in zip(words, begins, strict=True)]
            units = bare
            if not self._rules.drops_spaces:
                units = [word if begin else " " + word for word, begin in zip(bare, begins, strict=True)]
            pieces, lengths = self._tokenize(units)
            if self._rules.refuses is not None:
                refused = np.fromiter(map(self._rules.refuses, bare), dtype=bool, count=len(bare))
                if not self._rules.drops_spaces:  # the space beside an added token has its own rules
                    rows = np.repeat(np.arange(len(bare)), lengths)
                    refused[rows[np.isin(pieces, self._added)]] = True
                pieces = pieces[np.repeat(~refused, lengths)]
                lengths[refused] = -1
            table.add(pieces, lengths, begins)
        except BaseException:
            self._table = _WordTable(self._rules.first_differs)
            raise

    def _tokenize(self, units: list[str]) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [units] of words.

        Groups of words are joined by a special token, at which the library splits a text before anything else: one call
        for many words is much cheaper than one for each.
        """
        if self._separator is not None:
            content, separator = self._separator
            groups = [units[at : at + _GROUP] for at in range(0, len(units), _GROUP)]
            joined = [content.join(group) + content for group in groups]
            flat, _ = from_lists(encode_ids(self._backend, joined, special=False))
            ends = np.flatnonzero(flat == separator)
            intact = all(text.count(content) == len(group) for text, group in zip(joined, groups, strict=True))
            if intact and len(ends) == len(units):  # no word contains the separator or part of it
                return flat[flat != separator], (np.diff(ends, prepend=-1) - 1).astype(np.int32)
        return from_lists(encode_ids(self._backend, units, special=False))


def _separator(backend: tokenizers.Tokenizer) -> tuple[str, int] | None:
    """A special token that is matched literally, and its id; never the one for unknown words."""
    unknown = getattr(backend.model, "unk_token", None)
    for number, token in backend.get_added_tokens_decoder().items():
        literal = not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        if token.special and literal and token.content != unknown and "unk" not in token.content.lower():
            return token.content, number
    return None
