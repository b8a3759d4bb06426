"""Texts to token ids, with special tokens and truncated to `max_length`, without padding; reading and saving.

    texts -> ids alone (fast_words.py, or the `tokenizers` library) -> truncate and frame -> Tokens

Truncation is ours: a backend that truncates has mutable state ("Already borrowed" between threads) and does not report
how long a text was. That framing with special ids gives what the backend gives is checked on sample texts at load. A
backend for which it does not hold adds the special tokens itself, and a copy of it truncates.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import normalizers, pre_tokenizers

from munjang.errors import InputError, ModelError, ModelWarning
from munjang.files import read_object
from munjang.text.fast_words import (
    LONE_SURROGATE,
    WordTokenizer,
    check_unicode,
    encode_ids,
    encodings,
    from_lists,
    steps,
)
from munjang.text.packing import Int32, Int64, Tokens, positions, starts_of

SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "merges.txt", *SENTENCEPIECE_FILES)
DEFAULT_MAX_LENGTH = 512
_WINDOW = 65_536  # texts tokenized at once
_SAMPLES = ("A B C, 1-2 3", "한국어 문장을 토큰으로 나눈다.", "word by word", "a")
_PAIR_SAMPLES = [(a, b) for a in _SAMPLES for b in (_SAMPLES[1], _SAMPLES[3], "")]
# Classes for which transformers makes no segment ids, whatever the backend does.
_WITHOUT_SEGMENTS = (
    "RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "DistilBertTokenizer", "MPNetTokenizer",
    "TokenizersBackend",
)  # fmt: skip
# Not copied from tokenizer_config.json: what tokenizer.json says, names of code, traces of how it was loaded.
_NOT_SAVED = {
    "add_bos_token", "add_eos_token", "auto_map", "backend", "files_loaded", "is_local", "local_files_only",
    "name_or_path", "processor_class", "special_tokens_map_file", "tokenizer_class", "tokenizer_file",
}  # fmt: skip
_BERT_LIKE = {"Bert", "DistilBert", "Electra", "MPNet", "MobileBert", "ConvBert", "Funnel"}
# tokenizer_config.json -> the field of BertNormalizer
_BERT_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

# A tokenizer.json can hang or fill the memory: a chain of replacing normalizers multiplies a text, a pattern can
# backtrack without end, a template can repeat a list of ids. Published tokenizers stay far below these limits.
_MAX_BYTES = 512 << 20  # Gemma's tokenizer.json has 33 million
_MAX_STEPS = 64  # normalizers, and pre-tokenizers
_MAX_GROWTH = 64  # of a text, by replacing normalizers
_MAX_REPEATS = 6  # unbounded quantifiers in one alternative of a pattern
_MAX_SPECIALS = 1000  # special tokens around a text
_CLASS_OR_ESCAPE = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CHOICE = re.compile(r"[*+|]|\{\d*,\d*\}|[^(]\?")  # can match in more than one way; {3} cannot
_QUANTIFIER = re.compile(r"[*+]|\{\d+,\}")


@dataclass(frozen=True)
class Frame:
    """The special ids around a text (before, after) or a pair (before, between, after), and the segments of all."""

    specials: tuple[tuple[int, ...], ...]
    special_segments: tuple[tuple[int, ...], ...]
    text_segments: tuple[int, ...]

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, samples: Sequence[tuple[str, ...]]) -> Frame | None:
        """The frame of a backend, found on sample rows of texts; None where it does more than frame them."""
        inputs: Any = [row[0] if len(row) == 1 else row for row in samples]
        texts = [text for row in samples for text in row]
        framed, flat = encodings(backend, inputs, special=True), iter(encode_ids(backend, texts, special=False))
        bodies = [[next(flat) for _ in row] for row in samples]
        rows = [(row.ids, row.type_ids) for row in framed]
        ids, segments = rows[0]
        extra = len(ids) - sum(map(len, bodies[0]))
        # counts: special tokens up to the first text, up to the second, ...
        for counts in combinations_with_replacement(range(extra + 1), len(bodies[0])):
            bounds, end = [0], 0
            for count, body in zip(counts, bodies[0], strict=True):
                bounds += [count + end, count + end + len(body)]
                end += len(body)
            spans = [slice(start, stop) for start, stop in pairwise([*bounds, len(ids)])]
            frame = cls(
                tuple(tuple(ids[span]) for span in spans[::2]),
                tuple(tuple(segments[span]) for span in spans[::2]),
                tuple(next(iter(segments[span]), 0) for span in spans[1::2]),
            )
            if all(frame._around(body) == row for body, row in zip(bodies, rows, strict=True)):
                return frame
        return None

    def _around(self, texts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Ids and segments of one row."""
        ids, segments = list(self.specials[0]), list(self.special_segments[0])
        for body, segment, special, kinds in zip(
            texts, self.text_segments, self.specials[1:], self.special_segments[1:], strict=True
        ):
            ids += [*body, *special]
            segments += [*[segment] * len(body), *kinds]
        return ids, segments

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.specials))

    @property
    def one_segment(self) -> bool:
        """Whether every token has segment 0, as in RoBERTa."""
        return not (any(self.text_segments) or any(map(any, self.special_segments)))

    def build(self, texts: Int32, lengths: Int32, *, segmented: bool) -> tuple[Int32, Int32, Int32 | None]:
        """Put the special ids around truncated texts.

        texts: [total], row after row; lengths: [n, 1], or [n, 2] for pairs.
        Returns ids [total], lengths [n] and, if `segmented`, segments [total] of the framed rows.
        """
        framed: Int32 = lengths.sum(axis=1, dtype=np.int32) + np.int32(self.size)
        ids = np.empty(int(framed.sum()), np.int32)
        segments = np.empty(len(ids), np.int32) if segmented else None
        is_text = np.ones(len(ids), bool)
        at = starts_of(framed)  # [n], the next position to fill in each row
        for part, (specials, kinds) in enumerate(zip(self.specials, self.special_segments, strict=True)):
            for special, kind in zip(specials, kinds, strict=True):
                ids[at], is_text[at] = special, False
                if segments is not None:
                    segments[at] = kind
                at = at + 1
            if part < lengths.shape[1]:
                at = at + lengths[:, part]
        ids[is_text] = texts
        if segments is not None:
            segments[is_text] = np.repeat(np.tile(self.text_segments, len(lengths)), lengths.ravel())
        return ids, framed, segments


class Tokenizer:
    """A `tokenizers` backend with exact truncation and a fast path for words. Safe to use from several threads.

    Args:
        backend: of the `tokenizers` library. One with truncation or padding is copied, not changed.
        max_length: most tokens of a text, special tokens included.
        pad_id: id of the padding token.
        keep_end: whether truncation drops the beginning of a text (truncation_side "left").
        config: content of tokenizer_config.json, which `save` writes back.
        source: folder whose vocabulary files `save` copies.

    Example:
        >>> tokenizer = munjang.load().tokenizer
        >>> tokens = tokenizer.encode(["비가 온다", "rain"])
        >>> tokens.lengths
        array([4, 3], dtype=int32)
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        max_length: int,
        pad_id: int = 0,
        keep_end: bool = False,
        config: Mapping[str, Any] | None = None,
        source: Path | None = None,
    ) -> None:
        if backend.truncation is not None or backend.padding is not None:
            backend = copy.deepcopy(backend)
            backend.no_truncation()
            backend.no_padding()
        self.backend = backend
        self.pad_id = pad_id
        self.keep_end = keep_end
        self.config = dict(config or {})  # empty for a backend that came without a folder
        self.ignores_segments = _ignores_segments(self.config)  # whether the model gets no segments of pairs
        self.frame = Frame.of(backend, [(sample,) for sample in _SAMPLES])
        self.words = None if self.frame is None else WordTokenizer.for_backend(backend)
        self._source = source
        self._truncating: tuple[int, tokenizers.Tokenizer] | None = None
        self._cached: tuple[dict[str, int], Int32, Int32, Int64] | None = None  # row of a text, ids, lengths, starts
        self.max_length = max_length

    @classmethod
    def from_folder(cls, folder: Path, *, max_length: int | None = None, lower_case: bool = False) -> Tokenizer:
        """Read a tokenizer as transformers saves it.

        Args:
            folder: contains tokenizer.json, or the vocabulary files of older checkpoints.
            max_length: (default: model_max_length of the folder, or 512).
            lower_case: lower-case texts first, as do_lower_case of sentence-transformers does.

        Raises:
            ModelError: if there is no tokenizer, or it is damaged or unsafe.
            MissingExtraError: if a SentencePiece model needs transformers, which is not installed.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise ModelError(f"a tokenizer is read from a folder, but {folder} is not a folder")
        config = {**read_object(folder / "special_tokens_map.json"), **read_object(folder / "tokenizer_config.json")}
        if (folder / "tokenizer.json").is_file():
            backend = read_backend(folder / "tokenizer.json")
            _apply_config(backend, config, folder / "tokenizer.json")
        else:
            from munjang.text.foreign import read_vocabulary

            backend = read_vocabulary(folder, config)
        padding = backend.padding
        backend.no_truncation()
        backend.no_padding()
        if max_length is None:
            stated = config.get("model_max_length")
            # 1e30 is how transformers writes "no limit"
            limited = isinstance(stated, int | float) and 0 < stated < 1e6
            max_length = int(stated or 0) if limited else DEFAULT_MAX_LENGTH
        names = (token_text(config.get("pad_token")), "[PAD]", "<pad>")
        pad_ids = [backend.token_to_id(name) for name in names if name is not None]
        pad_ids += [None if padding is None else int(padding["pad_id"]), 0]
        if lower_case and not any(step["type"] == "Lowercase" for step in steps(backend.normalizer)):
            lower, present = normalizers.Lowercase(), backend.normalizer
            backend.normalizer = lower if present is None else normalizers.Sequence([lower, present])
        return cls(
            backend,
            max_length=max_length,
            pad_id=next(pad_id for pad_id in pad_ids if pad_id is not None),
            keep_end=config.get("truncation_side") == "left",
            config=config,
            source=folder,
        )

    @property
    def max_length(self) -> int:
        """Most tokens of a text, special tokens included."""
        return self._max_length

    @max_length.setter
    def max_length(self, value: int) -> None:
        least = self.specials + 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"max_length must be a whole number of at least {least} "
                f"({self.specials} special tokens and one of the text), got {value!r}"
            )
        self._max_length = value

    @property
    def specials(self) -> int:
        """Number of special tokens around a text."""
        return int(self.backend.num_special_tokens_to_add(False)) if self.frame is None else self.frame.size

    @property
    def prefix(self) -> tuple[int, ...]:
        """Special ids before a text."""
        return () if self.frame is None else self.frame.specials[0]

    @property
    def suffix(self) -> tuple[int, ...]:
        """Special ids after a text."""
        return () if self.frame is None else self.frame.specials[-1]

    @cached_property
    def pair_frame(self) -> Frame | None:
        """The special ids around a pair; None where the backend does more than frame it."""
        return Frame.of(self.backend, _PAIR_SAMPLES)

    @cached_property
    def vocab_size(self) -> int:
        """Highest id + 1, added tokens included."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, texts: Sequence[str], *, by_words: bool = True) -> Tokens:
        """Tokenize texts, add special tokens and truncate to max_length.

        Args:
            texts: any strings, in valid Unicode.
            by_words: use the word table where it is exact; False leaves all work to the library, which uses all cores
                and releases the interpreter. The ids are the same.

        Raises:
            InputError: if a text is not valid Unicode.
        """
        if self.frame is None:
            return replace(self.encode_by_backend(texts), segments=None)
        room = self._max_length - self.frame.size
        ids, lengths = self.bodies(texts, by_words=by_words)
        longest = int(lengths.max()) + self.frame.size if len(lengths) else 0
        truncated = int(np.count_nonzero(lengths > room))
        if truncated:
            kept = np.minimum(lengths, np.int32(room))  # [n]
            starts = starts_of(lengths) + (lengths - kept if self.keep_end else 0)
            ids, lengths = ids[positions(starts, kept)], kept
        if self.frame.size:
            ids, lengths, _ = self.frame.build(ids, lengths[:, None], segmented=False)
        return Tokens(ids, lengths, truncated, longest)

    def encode_pairs(self, a: Sequence[str], b: Sequence[str], *, segments: int = 2, by_words: bool = True) -> Tokens:
        """Tokenize each pair (a[i], b[i]), add special tokens and truncate to max_length.

        Truncation is LongestFirst of the `tokenizers` library: the longer text is cut down to the length of the shorter
        one, then both share the room. Of an odd room, the text that was longer gets the odd token (the second, if both
        were equal).

        Args:
            a: first texts.
            b: second texts.
            segments: number of segments the model knows; with fewer than two, the result has none.
            by_words: as in `encode`.

        Returns:
            Ids and segments of all pairs; `segments` is None where all are 0.

        Raises:
            InputError: if the numbers of texts differ, max_length leaves no room, or a text is not valid Unicode.
        """
        if len(a) != len(b):
            raise InputError(f"a pair has two texts: got {len(a)} first and {len(b)} second ones")
        frame = self.pair_frame
        specials = int(self.backend.num_special_tokens_to_add(True)) if frame is None else frame.size
        if self._max_length < specials:
            raise InputError(
                f"max_length must be at least {specials} for pairs (their special tokens), got {self._max_length}"
            )
        try:
            if frame is None:
                tokens = self.encode_by_backend(list(zip(a, b, strict=True)))
            else:
                tokens = self._frame_pairs(frame, *self.bodies([*a, *b], by_words=by_words))
        except InputError:
            check_unicode(list(zip(a, b, strict=True)))  # names the pair
            raise
        if tokens.segments is None or segments < 2 or self.ignores_segments:
            return replace(tokens, segments=None)
        return replace(tokens, segments=np.minimum(tokens.segments, np.int32(segments - 1)))

    def _frame_pairs(self, frame: Frame, ids: Int32, lengths: Int32) -> Tokens:
        """Truncate and frame pairs. ids, lengths: all first texts, then all second ones, [total] and [2 * pairs]."""
        starts, lengths = starts_of(lengths).reshape(2, -1).T, lengths.reshape(2, -1).T  # [pairs, 2]
        whole = lengths.sum(axis=1, dtype=np.int64)  # [pairs]
        room = self._max_length - frame.size
        a, b = lengths.T
        # The shorter text is cut too where half of the room is less than it has.
        short = np.minimum(np.minimum(a, b), room // 2)
        long = np.minimum(np.maximum(a, b), room - short)
        kept = np.stack([np.where(a > b, long, short), np.where(a > b, short, long)], axis=1)  # [pairs, 2]
        if self.keep_end:
            starts = starts + (lengths - kept)
        texts = ids[positions(starts.ravel(), kept.ravel())]
        framed_ids, framed, segments = frame.build(texts, kept, segmented=not frame.one_segment)
        longest = int(whole.max()) + frame.size if len(whole) else 0
        return Tokens(framed_ids, framed, int(np.count_nonzero(whole > room)), longest, segments)

    def count(self, texts: Sequence[str]) -> Int32:
        """Number of tokens of each text before truncation, special tokens included, [n]."""
        if self.frame is None:
            return from_lists(encode_ids(self.backend, texts, special=True))[1]
        _, lengths = self.bodies(texts)
        return lengths + np.int32(self.frame.size)

    def bodies(self, texts: Sequence[str], *, by_words: bool = True) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [n] of the texts alone: no special tokens, no truncation."""
        if self._cached is not None:
            row_of, ids, lengths, starts = self._cached
            try:
                rows = np.fromiter(map(row_of.__getitem__, texts), np.int64, len(texts))
                return ids[positions(starts[rows], lengths[rows])], lengths[rows]
            except KeyError:  # a text that is not cached
                pass
        if self.words is not None and by_words:
            return self.words.encode(texts)
        return from_lists(encode_ids(self.backend, texts, special=False))

    def with_cache(self, texts: Sequence[str]) -> Tokenizer:
        """A copy that has tokenized these texts, for data in which the same texts repeat.

        Args:
            texts: distinct texts. Other texts are tokenized as usual, and the ids are the same either way.
        """
        if self.frame is None or not texts:
            return self
        parts = [self.bodies(texts[at : at + _WINDOW]) for at in range(0, len(texts), _WINDOW)]
        lengths = np.concatenate([part[1] for part in parts])
        cached = copy.copy(self)
        row_of = {text: row for row, text in enumerate(texts)}
        cached._cached = row_of, np.concatenate([part[0] for part in parts]), lengths, starts_of(lengths)
        return cached

    def encode_by_backend(self, inputs: Sequence[str] | Sequence[tuple[str, str]]) -> Tokens:
        """Tokenize texts or pairs whose special tokens are not simply around them."""
        max_length = self._max_length
        rows = encodings(self.backend, inputs, special=True)
        longest = max((len(row.ids) for row in rows), default=0)
        long = [index for index, row in enumerate(rows) if len(row.ids) > max_length]
        if long:
            cached = self._truncating
            if cached is None or cached[0] != max_length:
                cached = max_length, copy.deepcopy(self.backend)
                cached[1].enable_truncation(max_length, direction="left" if self.keep_end else "right")
                self._truncating = cached
            too_long: Any = [inputs[index] for index in long]
            for index, row in zip(long, encodings(cached[1], too_long, special=True), strict=True):
                rows[index] = row
        ids, lengths = from_lists([row.ids for row in rows])
        segments, _ = from_lists([row.type_ids for row in rows])
        return Tokens(ids, lengths, len(long), longest, segments if segments.any() else None)

    def special_tokens(self) -> dict[str, str]:
        """The special tokens by their names in transformers: as the folder said, else as the backend shows."""
        names = {"pad_token": self.backend.id_to_token(self.pad_id)}
        names["unk_token"] = getattr(self.backend.model, "unk_token", None)
        names["cls_token"] = self.backend.id_to_token(self.prefix[0]) if self.prefix else None
        names["sep_token"] = self.backend.id_to_token(self.suffix[-1]) if self.suffix else None
        stated = {name: token_text(value) for name, value in self.config.items() if name.endswith("_token")}
        names |= {name: text for name, text in stated.items() if text is not None}
        return {name: text for name, text in names.items() if text is not None}

    def save(self, folder: Path, *, segments: bool | None = None, compact: bool = False) -> None:
        """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and the vocabulary files.

        Args:
            folder: created if missing.
            segments: whether transformers passes segment ids to the model, whose default differs between releases and
                classes (default: as loaded).
            compact: write tokenizer.json on one line and omit the vocabulary files, which only older programs read.

        Raises:
            ModelError: if the configuration cannot be written as JSON.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / "tokenizer.json"), pretty=not compact)
        special = self.special_tokens()
        segments = not self.ignores_segments if segments is None else segments
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **special,
            **self._portable_config(),
            "model_max_length": self._max_length,
            **({"truncation_side": "left"} if self.keep_end else {}),
            "model_input_names": ["input_ids", *["token_type_ids"] * segments, "attention_mask"],
        }
        files = {"tokenizer_config.json": config, "special_tokens_map.json": special}
        try:
            for name, content in files.items():
                text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
                (folder / name).write_text(text, encoding="utf-8")
        except (TypeError, ValueError) as error:
            raise ModelError(f"the settings of the tokenizer cannot be written: {error}") from error
        if self._source is None or compact:
            return
        for name in VOCABULARY_FILES:
            source = self._source / name
            if source.is_file() and source.resolve() != (folder / name).resolve():
                shutil.copyfile(source, folder / name)

    def _portable_config(self) -> dict[str, Any]:
        """The settings with which transformers 4 and 5 both load tokenizer.json exactly as it is.

        Only the generic class does so: transformers 5 rebuilds the tokenizer for most of the others, and has names
        (TokenizersBackend) that transformers 4 does not know.
        """
        result = {key: value for key, value in self.config.items() if key not in _NOT_SAVED}
        extra = result.get("extra_special_tokens")
        if isinstance(extra, list):  # transformers 4 expects a dict here, and a list under another name
            del result["extra_special_tokens"]
            result["additional_special_tokens"] = [*(result.get("additional_special_tokens") or []), *extra]
        # transformers 4 sets the pre-tokenizer to this value, by default to False.
        splitting = steps(self.backend.pre_tokenizer)
        if len(splitting) == 1 and "add_prefix_space" in splitting[0]:
            result["add_prefix_space"] = splitting[0]["add_prefix_space"]
        else:
            result.pop("add_prefix_space", None)
        return result


def token_text(value: object) -> str | None:
    """The text of a special token, which is written as a string or as {"content": ...}."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if not isinstance(value, str):
        return None
    if LONE_SURROGATE.search(value):
        raise ModelError(f"tokenizer_config.json: the special token {value!a:.80} is not valid Unicode")
    return value


def read_text(path: Path) -> str:
    """The content of a UTF-8 file, or `ModelError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch the model again") from error


def read_backend(path: Path) -> tokenizers.Tokenizer:
    """Read a tokenizer.json, unless tokenizing with it could hang or fill the memory.

    Raises:
        ModelError: if the file is damaged, of an unknown kind, or beyond the limits.
    """
    if path.is_file() and path.stat().st_size > _MAX_BYTES:
        raise ModelError(f"{path} has {path.stat().st_size:,} bytes, at most {_MAX_BYTES:,} are read")
    text = read_text(path)
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        raise ModelError(
            f"{path} is damaged or of an unknown kind: {str(error)[:300]}; fetch the model again"
        ) from error
    growth = 1.0
    for parts in (steps(backend.normalizer), steps(backend.pre_tokenizer)):
        if len(parts) > _MAX_STEPS:
            raise ModelError(
                f"{path} has {len(parts):,} normalizers or pre-tokenizers, at most {_MAX_STEPS} are supported"
            )
        for step in parts:
            pattern = step.get("pattern") or {}
            if problem := _unsafe_pattern(pattern.get("Regex") or ""):
                raise ModelError(f"{path}: the pattern {pattern['Regex']!r:.80} {problem}, which can hang")
            if step["type"] == "Replace":
                growth *= max(1.0, len(step["content"]) / len(pattern.get("String") or "x"))
            elif step["type"] == "Precompiled":
                growth *= max(1, _longest_replacement(step["precompiled_charsmap"]))
    if growth > _MAX_GROWTH:
        raise ModelError(
            f"{path}: its normalizers can make a text {growth:.3g} times longer, at most {_MAX_GROWTH} times is "
            "supported"
        )
    # Counted without making the ids.
    specials = max(backend.num_special_tokens_to_add(False), backend.num_special_tokens_to_add(True))
    if specials > _MAX_SPECIALS:
        raise ModelError(
            f"{path} puts {specials:,} special tokens around a text, at most {_MAX_SPECIALS} are supported"
        )
    return backend


def _longest_replacement(charsmap: str) -> int:
    """Characters of the longest replacement in SentencePiece's map: size of a trie, the trie, texts ending in 0."""
    raw = base64.b64decode(charsmap)
    texts = raw[4 + int.from_bytes(raw[:4], "little") :].split(b"\0")
    return max(len(text.decode("utf-8", "replace")) for text in texts)


def _unsafe_pattern(pattern: str) -> str | None:
    """What makes a regular expression backtrack exponentially or nearly so, if anything."""
    bare = _CLASS_OR_ESCAPE.sub("x", pattern)
    opened: list[int] = []
    for position, character in enumerate(bare):
        if character == "(":
            opened.append(position)
        elif character == ")" and opened:
            inside = bare[opened.pop() + 1 : position]
            if _QUANTIFIER.match(bare, position + 1) and _CHOICE.search(inside):
                return "repeats a group that repeats"
    if any(len(_QUANTIFIER.findall(part)) > _MAX_REPEATS for part in bare.split("|")):
        return f"has more than {_MAX_REPEATS} repeats"
    return None


def _apply_config(backend: tokenizers.Tokenizer, config: Mapping[str, Any], path: Path) -> None:
    """Let tokenizer_config.json win over tokenizer.json, as in transformers, with a warning."""
    family = str(config.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
    if family in _BERT_LIKE and isinstance(backend.normalizer, normalizers.BertNormalizer):
        component: Any = backend.normalizer
        fields = _BERT_OPTIONS
    elif family == "Roberta" and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        component = backend.pre_tokenizer
        fields = {"add_prefix_space": "add_prefix_space"}
    else:
        return
    for key, field in fields.items():
        present = getattr(component, field)
        if key not in config or config[key] == present:
            continue
        warnings.warn(
            f"{path} has {field}={present}, but tokenizer_config.json beside it has {key}={config[key]}; "
            "the latter is used, as transformers does",
            ModelWarning,
            stacklevel=2,
        )
        try:
            setattr(component, field, config[key])
        except TypeError as error:
            raise ModelError(f"tokenizer_config.json beside {path}: {key!r} is {config[key]!r:.80}: {error}") from error


def _ignores_segments(config: Mapping[str, Any]) -> bool:
    """Whether transformers passes no segment ids to the model: by model_input_names, else by the tokenizer's class."""
    names = config.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" not in names
    return str(config.get("tokenizer_class", "")).removesuffix("Fast") in _WITHOUT_SEGMENTS
