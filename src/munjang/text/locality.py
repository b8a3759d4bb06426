"""Which tokenizers work word by word: the conditions under which `words.py` may use its table.

The ids of a text are the ids of its words, one after the other, if nothing looks across a space: not the
normaliser, not the search for added tokens, not the pre-tokeniser (the model itself never sees more than one
pre-token). Two kinds of pre-tokeniser have this property:

- "dropping" (BERT; XLM-R with WhitespaceSplit): the space separates and is thrown away.
- "leading" (RoBERTa and ModernBERT's ByteLevel, Metaspace): a space belongs to the word after it. This holds for
  single spaces inside the text only, and words that hold an added token, or that the normaliser turns into
  nothing or into something with spaces, are left out: see `refusal`.

Everything is proved from the components' own description; what is not known here is not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models

LOCAL_NORMALIZERS = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Strip"}
SEPARATING = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}  # split at white space and drop it
PER_PIECE = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Split", "UnicodeScripts"}
MODELS = (models.WordPiece, models.BPE, models.Unigram, models.WordLevel)
METASPACE = "▁"  # U+2581
# U+000B, U+000C and U+0085 are not among these: BERT removes them as control characters.
LINE_BREAKS = "\t\n\r"
# A combining mark joins these to a cluster, which a precompiled map may replace as a whole.
WIDE_SPACES = "\u00a0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


@dataclass(frozen=True)
class Locality:
    """How a text may be taken apart at its spaces."""

    dropping: bool  # white space is thrown away; else a space belongs to the next word
    first_differs: bool  # the first word of a text is tokenised otherwise than the same word after a space
    refuses: Callable[[str], bool] | None  # words that must not be taken out of their text
    spaces: str  # white space other than U+0020 that may be read as U+0020


def locality_of(backend: tokenizers.Tokenizer) -> Locality | None:
    """How this backend's texts may be taken apart, or None if that is not certain."""
    model = backend.model
    sampling = getattr(model, "dropout", None) or getattr(model, "alpha", None)
    if not isinstance(model, MODELS) or sampling:
        return None
    splitter, normalizer = describe(backend.pre_tokenizer), describe(backend.normalizer)
    parts = flatten(normalizer, "normalizers")
    if splitter is None or not all(map(_normalizes_locally, parts)):
        return None
    steps = flatten(splitter, "pretokenizers")
    if steps and steps[0]["type"] in SEPARATING and all(map(_splits_locally, steps[1:])):
        return _dropping(backend, parts)
    if len(steps) == 1 and steps[0]["type"] in ("ByteLevel", "Metaspace"):
        return _leading(backend, steps[0])
    return None


def _dropping(backend: tokenizers.Tokenizer, parts: list[Mapping[str, Any]]) -> Locality | None:
    # An added token with white space in it, as written or as normalised, could match across words.
    # lstrip and rstrip only eat white space, which is thrown away in any case.
    if any(any(map(str.isspace, form)) for form in _added_forms(backend)):
        return None
    if any(part["type"] == "Precompiled" for part in parts):
        return Locality(True, False, _changes_beside_space(backend), LINE_BREAKS)
    return Locality(True, False, None, LINE_BREAKS + WIDE_SPACES)


def _leading(backend: tokenizers.Tokenizer, step: Mapping[str, Any]) -> Locality | None:
    # Runs of spaces as added tokens (ModernBERT) cannot match where spaces are single.
    if any(any(map(str.isspace, form)) and "  " not in form for form in _added_forms(backend)):
        return None
    if step["type"] == "ByteLevel":
        if not step.get("use_regex", True):
            return None
        first_differs = not step["add_prefix_space"]
    else:
        scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
        if not step.get("split", True) or step["replacement"] != METASPACE:
            return None
        first_differs = scheme == "never"
    return Locality(False, first_differs, _breaks_single_spaces(backend), "")


def _changes_beside_space(backend: tokenizers.Tokenizer) -> Callable[[str], bool]:
    """Precompiled maps work on grapheme clusters, and a space with a combining mark after it is one cluster."""
    normalize = backend.normalizer.normalize_str
    # U+0D4E begins a cluster with whatever follows it, so a space between it and a mark joins both
    frames = [("x ", " x"), ("\u0d4e ", " x")]
    around = [(normalize(before), normalize(after)) for before, after in frames]

    def refuses(word: str) -> bool:
        alone = normalize(word)
        return any(
            normalize(before + word + after) != left + alone + right
            for (before, after), (left, right) in zip(frames, around, strict=True)
        )

    return _unless_ascii(refuses, backend)


def _breaks_single_spaces(backend: tokenizers.Tokenizer) -> Callable[[str], bool]:
    """Words that are empty, or that the normaliser makes empty or full of spaces: two spaces would meet."""
    if backend.normalizer is None:
        return lambda word: not word or METASPACE in word
    normalize = backend.normalizer.normalize_str
    changes = _changes_beside_space(backend)

    def refuses(word: str) -> bool:
        alone = normalize(word)
        return alone.split() != [alone] or METASPACE in alone or METASPACE in word or changes(word)

    return _unless_ascii(refuses, backend)


def _unless_ascii(refuses: Callable[[str], bool], backend: tokenizers.Tokenizer) -> Callable[[str], bool]:
    """Spare ASCII words the check where each ASCII character passes it: they are normalised one by one."""
    parts = flatten(describe(backend.normalizer), "normalizers")
    if any("String" in part.get("pattern", {}) for part in parts) or any(refuses(chr(c)) for c in range(33, 127)):
        return refuses
    return lambda word: not word or (not word.isascii() and refuses(word))


def _added_forms(backend: tokenizers.Tokenizer) -> set[str]:
    """The added tokens as written and as normalised: either may be what is searched for."""
    written = {token.content for token in backend.get_added_tokens_decoder().values()}
    if backend.normalizer is None:
        return written
    return written | {backend.normalizer.normalize_str(content) for content in written}


def _normalizes_locally(part: Mapping[str, Any]) -> bool:
    if part["type"] == "Replace":
        pattern = part["pattern"]
        if "String" in pattern:
            return bool(pattern["String"]) and not any(map(str.isspace, pattern["String"]))
        return bool(pattern.get("Regex") == " {2,}")  # XLM-R: collapses runs of spaces
    return part["type"] in LOCAL_NORMALIZERS or part["type"] == "Precompiled"


def _splits_locally(step: Mapping[str, Any]) -> bool:
    """After white space is gone, each piece is split alone; only 'first' asks where in the text a piece stands."""
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "first")
    return step["type"] in PER_PIECE or step["type"] == "ByteLevel"


def describe(component: Any) -> Mapping[str, Any] | None:
    """A component's own JSON; `to_str` of the whole backend would write out the vocabulary too."""
    if component is None:
        return None
    description: Mapping[str, Any] = json.loads(component.__getstate__())
    return description


def flatten(description: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if description is None:
        return []
    if description["type"] == "Sequence":
        return [part for inner in description[key] for part in flatten(inner, key)]
    return [description]
