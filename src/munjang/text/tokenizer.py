"""Texts to token ids: special tokens added, cut to `max_length`, ragged and never padded.

    texts -> words.py (word by word, from a table) or the `tokenizers` library -> body ids -> cut and frame -> Tokens

Cutting is ours, not the backend's: a backend that truncates has mutable state ('Already borrowed' between
threads) and forgets how long a text was. Here the body of each text is encoded without special tokens, cut to
the room that is left, and framed by the special ids that the backend's post-processor would add. That this
equals what the backend does is checked on probe texts at load. A backend for which it does not hold encodes with
special tokens, and a copy of it with truncation on cuts the texts that are too long.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from tokenizers import normalizers

from munjang.errors import InputError, ModelError
from munjang.text.backend import encode_ids
from munjang.text.convert import VOCABULARY_FILES, read_folder, token_text
from munjang.text.locality import describe, flatten
from munjang.text.ragged import Int32, Int64, from_lists, positions, starts_of
from munjang.text.words import WordPath

if TYPE_CHECKING:
    from munjang.text.pairs import PairFrame

DEFAULT_MAX_LENGTH = 512
_WINDOW = 65_536  # texts tokenised at a time
# Kinds for which transformers makes no segment ids, whatever the backend says.
WITHOUT_SEGMENTS = (
    "RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "DistilBertTokenizer", "MPNetTokenizer",
    "TokenizersBackend",
)  # fmt: skip
# Not copied from tokenizer_config.json: what tokenizer.json says itself, names of code, traces of how it was loaded.
_NOT_SAVED = (
    "add_bos_token", "add_eos_token", "auto_map", "backend", "files_loaded", "is_local", "local_files_only",
    "name_or_path", "processor_class", "special_tokens_map_file", "tokenizer_class", "tokenizer_file",
)  # fmt: skip
PROBES = ("a", "word by word", "한국어 문장을 토큰으로 나눈다.", "A B C, 1-2 3")


@dataclass(frozen=True)
class Tokens:
    """A ragged batch of token ids, special tokens included, cut to max_length."""

    ids: Int32  # [total]
    lengths: Int32  # [n]
    truncated: int  # how many texts were cut
    longest: int  # tokens of the longest text before cutting, special tokens included; 0 when n == 0
    segments: Int32 | None = None  # [total], which text of a pair each token is of; None means all 0


@dataclass(frozen=True)
class _Known:
    """Texts with their ids, without special tokens."""

    places: Mapping[str, int]
    ids: Int32  # [total]
    lengths: Int32  # [texts]
    starts: Int64  # [texts]

    def of(self, texts: Sequence[str]) -> tuple[Int32, Int32] | None:
        """As `Tokenizer.bodies` answers; None where a text is not among them."""
        try:
            rows = np.fromiter(map(self.places.__getitem__, texts), np.int64, len(texts))
        except KeyError:
            return None
        lengths = self.lengths[rows]
        return self.ids[positions(self.starts[rows], lengths)], lengths


class Tokenizer:
    """A `tokenizers` backend with exact cutting and a fast path; safe to use from several threads."""

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
        self.backend = backend
        self.pad_id = pad_id
        self._keep_end = keep_end  # truncation_side == "left": the end of a long text is kept
        self._config = dict(config or {})
        self._source = source
        self._vocab_size: int | None = None
        self._cutter: tokenizers.Tokenizer | None = None
        frame = _frame_of(backend)
        self._framed = frame is not None
        self.prefix, self.suffix = frame or ((), ())
        self._words = WordPath.for_backend(backend) if self._framed else None
        self._known: _Known | None = None  # texts that were tokenised before
        self.known_pair_frame: tuple[PairFrame | None] | None = None  # what `pairs.pair_frame` found
        self.ignores_segments = _ignores_segments(self._config)  # whether the model is not told of a pair's segments
        self.max_length = max_length

    @classmethod
    def from_folder(cls, folder: Path, *, max_length: int | None = None, lower_case: bool = False) -> Tokenizer:
        """Read tokenizer.json, or build one from the vocabulary files of older checkpoints.

        `max_length` wins over the folder's model_max_length, and that over 512.
        """
        loaded = read_folder(Path(folder))
        stated = loaded.config.get("model_max_length")
        if max_length is None:
            # 1e30 is how transformers writes "no limit"
            sane = isinstance(stated, int | float) and 0 < stated < 1e6
            max_length = int(stated or 0) if sane else DEFAULT_MAX_LENGTH
        return cls(
            _lower_casing(loaded.backend) if lower_case else loaded.backend,
            max_length=max_length,
            pad_id=_pad_id(loaded.backend, loaded.config, loaded.pad_id),
            keep_end=loaded.config.get("truncation_side") == "left",
            config=loaded.config,
            source=Path(folder),
        )

    @classmethod
    def from_backend(
        cls, backend: tokenizers.Tokenizer, *, max_length: int, pad_id: int = 0, lower_case: bool = False
    ) -> Tokenizer:
        """Wrap a backend. One with truncation or padding on is copied, so that the caller's stays as it was."""
        if backend.truncation is not None or backend.padding is not None or lower_case:
            backend = tokenizers.Tokenizer.from_str(backend.to_str())
            backend.no_truncation()
            backend.no_padding()
        return cls(_lower_casing(backend) if lower_case else backend, max_length=max_length, pad_id=pad_id)

    @property
    def max_length(self) -> int:
        """The most tokens that a text may have, special tokens included."""
        return self._max_length

    @max_length.setter
    def max_length(self, value: int) -> None:
        least = self.specials + 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"max_length must be a whole number of at least {least} "
                f"({self.specials} special tokens and one of the text), got {value!r}"
            )
        if not self._framed:
            self._cutter = self.cutter(value)
        self._max_length = value

    def cutter(self, max_length: int | None = None) -> tokenizers.Tokenizer:
        """A copy of the backend that cuts by itself; of a pair, the longer text first."""
        cutter = tokenizers.Tokenizer.from_str(self.backend.to_str())
        cutter.enable_truncation(max_length or self._max_length, direction="left" if self._keep_end else "right")
        return cutter

    @property
    def keeps_end(self) -> bool:
        """Whether the end of a long text is kept, not its beginning (truncation_side 'left')."""
        return self._keep_end

    @property
    def specials(self) -> int:
        """How many special tokens a text gets."""
        if self._framed:
            return len(self.prefix) + len(self.suffix)
        return int(self.backend.num_special_tokens_to_add(False))

    @property
    def vocab_size(self) -> int:
        """The highest id + 1, added tokens included."""
        if self._vocab_size is None:
            self._vocab_size = max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        return self._vocab_size

    def encode(self, texts: Sequence[str], *, by_words: bool = True) -> Tokens:
        """Token ids of each text, special tokens included, cut to max_length.

        by_words: through the table of words where the backend allows it; False leaves all the work to the backend,
        which does it on all cores without the interpreter. The ids are the same.
        """
        max_length, cutter = self._max_length, self._cutter
        if cutter is not None:
            return self._encode_by_backend(texts, max_length, cutter)
        ids, lengths = self.bodies(texts, by_words=by_words)
        return self._frame(ids, lengths, max_length)

    def count(self, texts: Sequence[str]) -> Int32:
        """Tokens of each text before cutting, special tokens included, [n]."""
        if self._cutter is not None:
            return from_lists(encode_ids(self.backend, texts, special=True))[1]
        _, lengths = self.bodies(texts)
        return lengths + np.int32(self.specials)

    def bodies(self, texts: Sequence[str], *, by_words: bool = True) -> tuple[Int32, Int32]:
        """Ids [total] and lengths [n] of the texts alone: without special tokens and uncut."""
        if self._known is not None and (found := self._known.of(texts)) is not None:
            return found
        if self._words is not None and by_words:
            return self._words.encode(texts)
        return from_lists(encode_ids(self.backend, texts, special=False))

    def remembering(self, texts: Sequence[str]) -> Tokenizer:
        """A copy that has tokenised these texts, each once: for data in which the same ones stand again and again.

        They must be different. The ids are the same as without; other texts are tokenised as always.
        """
        if self._cutter is not None or not len(texts):  # the backend cuts by itself, and wants whole texts
            return self
        parts = [self.bodies(texts[at : at + _WINDOW]) for at in range(0, len(texts), _WINDOW)]
        lengths = np.concatenate([part[1] for part in parts])
        places = {text: place for place, text in enumerate(texts)}
        other = copy.copy(self)
        other._known = _Known(places, np.concatenate([part[0] for part in parts]), lengths, starts_of(lengths))
        return other

    def _frame(self, ids: Int32, lengths: Int32, max_length: int) -> Tokens:
        """Cut each row to the room that the special tokens leave, and put these around it."""
        before, after = len(self.prefix), len(self.suffix)
        room = max_length - before - after
        kept = np.minimum(lengths, np.int32(room))
        longest = int(lengths.max()) + before + after if len(lengths) else 0
        truncated = int(np.count_nonzero(lengths > room))
        if truncated:
            starts = starts_of(lengths)
            ids = ids[positions(starts + (lengths - kept) if self._keep_end else starts, kept)]
        if before + after == 0:
            return Tokens(ids, kept, truncated, longest)
        framed = kept + np.int32(before + after)
        ends = np.cumsum(framed, dtype=np.int64)
        flat = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
        body = np.ones(len(flat), dtype=bool)
        for place, special in enumerate(self.prefix):
            at = ends - framed + place
            flat[at], body[at] = special, False
        for place, special in enumerate(self.suffix):
            at = ends - after + place
            flat[at], body[at] = special, False
        flat[body] = ids
        return Tokens(flat, framed, truncated, longest)

    def _encode_by_backend(self, texts: Sequence[str], max_length: int, cutter: tokenizers.Tokenizer) -> Tokens:
        """For backends whose special tokens do not simply stand around the text."""
        rows = encode_ids(self.backend, texts, special=True)
        longest = max(map(len, rows), default=0)
        long = [index for index, row in enumerate(rows) if len(row) > max_length]
        for index, row in zip(long, encode_ids(cutter, [texts[i] for i in long], special=True), strict=True):
            rows[index] = row
        return Tokens(*from_lists(rows), truncated=len(long), longest=longest)

    def save(self, folder: Path, *, segments: bool | None = None, compact: bool = False) -> None:
        """Write tokenizer.json and the two JSON files about it, and the vocabulary files that it came with.

        segments: whether transformers passes segment ids to the model, whose default differs between releases and
        classes (default: as the tokenizer was loaded). compact: tokenizer.json on one line, and no vocabulary files,
        which nobody reads who reads tokenizer.json.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / "tokenizer.json"), pretty=not compact)
        special = self.special_tokens()
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **special, **_portable(self._config, self.backend)}
        config["model_max_length"] = self._max_length
        if self._keep_end:
            config["truncation_side"] = "left"
        segments = not self.ignores_segments if segments is None else segments
        config["model_input_names"] = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
        _write_json(folder / "tokenizer_config.json", config)
        _write_json(folder / "special_tokens_map.json", special)
        for name in () if compact else VOCABULARY_FILES:
            source = self._source / name if self._source is not None else None
            if source is not None and source.is_file() and source.resolve() != (folder / name).resolve():
                shutil.copyfile(source, folder / name)

    @property
    def config(self) -> Mapping[str, Any]:
        """What tokenizer_config.json and special_tokens_map.json said; empty for a backend that came without them."""
        return self._config

    def special_tokens(self) -> dict[str, str]:
        """What transformers calls the special tokens: as the folder said, else as the frame and the model show."""
        found: dict[str, str] = {}
        if pad := self.backend.id_to_token(self.pad_id):
            found["pad_token"] = pad
        if isinstance(unknown := getattr(self.backend.model, "unk_token", None), str):
            found["unk_token"] = unknown
        if self.prefix and (begin := self.backend.id_to_token(self.prefix[0])):
            found["cls_token"] = begin
        if self.suffix and (end := self.backend.id_to_token(self.suffix[-1])):
            found["sep_token"] = end
        for name, value in self._config.items():
            text = token_text(value)
            if name.endswith("_token") and text is not None:
                found[name] = text
        return found


def _frame_of(backend: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The special ids before and after a text, or None if they do not simply stand around it."""
    bare = encode_ids(backend, PROBES, special=False)
    full = encode_ids(backend, PROBES, special=True)
    extra = len(full[0]) - len(bare[0])
    for before in range(extra + 1):
        prefix = tuple(full[0][:before])
        suffix = tuple(full[0][len(full[0]) - (extra - before) :])
        if all([*prefix, *body, *suffix] == whole for body, whole in zip(bare, full, strict=True)):
            return prefix, suffix
    return None


def _lower_casing(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Lower-case before everything else, as sentence-transformers does for do_lower_case, unless it does so already."""
    parts = flatten(describe(backend.normalizer), "normalizers")
    if not any(part["type"] == "Lowercase" for part in parts):
        lower = normalizers.Lowercase()
        present = backend.normalizer
        backend.normalizer = lower if present is None else normalizers.Sequence([lower, present])
    return backend


def _pad_id(backend: tokenizers.Tokenizer, config: Mapping[str, Any], stated: int | None) -> int:
    """The padding id by the token's name, else as tokenizer.json padded, else 0."""
    for name in (token_text(config.get("pad_token")), "[PAD]", "<pad>"):
        found = backend.token_to_id(name) if name is not None else None
        if found is not None:
            return int(found)
    return stated or 0


def _ignores_segments(config: Mapping[str, Any]) -> bool:
    """Whether transformers hands no segment ids to the model: as model_input_names says, else by the kind it names."""
    names = config.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" not in names
    return str(config.get("tokenizer_class", "")).removesuffix("Fast") in WITHOUT_SEGMENTS


def _portable(config: Mapping[str, Any], backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """The settings with which transformers 4 and 5 both load tokenizer.json exactly as it is.

    Only the generic class does so: transformers 5 rebuilds the tokenizer for most of the others, and has names
    (TokenizersBackend) that transformers 4 does not know.
    """
    result = {key: value for key, value in config.items() if key not in _NOT_SAVED}
    extra = result.get("extra_special_tokens")
    if isinstance(extra, list):  # transformers 4 expects a dict here, and a list under its own name
        del result["extra_special_tokens"]
        result["additional_special_tokens"] = [*(result.get("additional_special_tokens") or []), *extra]
    # transformers 4 sets the pre-tokenizer to this value, by default to False.
    splitting = describe(backend.pre_tokenizer)
    if splitting is not None and "add_prefix_space" in splitting:
        result["add_prefix_space"] = splitting["add_prefix_space"]
    else:
        result.pop("add_prefix_space", None)
    return result


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path.name} cannot be written: {error}") from error
