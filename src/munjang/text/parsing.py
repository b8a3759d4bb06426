"""tokenizer.json to a backend, unless a tokenizer of its kind could hang or fill the memory.

A normaliser can replace every character by many, and a chain of them multiplies; a pattern can backtrack without end; a
template can repeat a list of ids. What published tokenizers do stays far below the limits here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from munjang.errors import ModelError

_LARGEST = 512 << 20  # bytes of tokenizer.json; Gemma's has 33 million
_MOST_STEPS = 64  # normalisers, and pre-tokenizers
_MOST_GROWTH = 64  # of a text, by normalisers that replace
_MOST_REPEATS = 6  # unbounded quantifiers in one alternative of a pattern
_MOST_SPECIALS = 1000  # special tokens around a text
_CLASS_OR_ESCAPE = re.compile(r"\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CHOICE = re.compile(r"[*+|]|\{\d*,\d*\}|[^(]\?")  # what can match in more than one way; {3} cannot
_QUANTIFIER = re.compile(r"[*+]|\{\d+,\}")


def parse_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The backend of a tokenizer.json."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(f"{path} has {path.stat().st_size:,} bytes, at most {_LARGEST:,} are read")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch the model again") from error
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        raise ModelError(
            f"{path} is damaged or of an unknown kind: {str(error)[:300]}; fetch the model again"
        ) from error
    _check_steps(backend, path)
    # Counted without the ids themselves being made.
    specials = max(backend.num_special_tokens_to_add(False), backend.num_special_tokens_to_add(True))
    if specials > _MOST_SPECIALS:
        raise ModelError(
            f"{path} puts {specials:,} special tokens around a text, at most {_MOST_SPECIALS} are supported"
        )
    return backend


def _check_steps(backend: tokenizers.Tokenizer, path: Path) -> None:
    growth = 1.0
    for component in (backend.normalizer, backend.pre_tokenizer):
        steps = [] if component is None else list(_steps(json.loads(component.__getstate__())))
        if len(steps) > _MOST_STEPS:
            raise ModelError(
                f"{path} has {len(steps):,} normalizers or pre-tokenizers, at most {_MOST_STEPS} are supported"
            )
        for step in steps:
            pattern = step.get("pattern")
            regex = pattern.get("Regex") if isinstance(pattern, Mapping) else None
            if isinstance(regex, str):
                check_pattern(regex, path)
            if step.get("type") == "Replace":
                literal = pattern.get("String") if isinstance(pattern, Mapping) else None
                growth *= max(1.0, len(str(step.get("content"))) / len(literal or "x"))
            elif step.get("type") == "Precompiled":
                growth *= max(1, _longest_entry(str(step.get("precompiled_charsmap"))))
    if growth > _MOST_GROWTH:
        raise ModelError(
            f"{path}: its normalizers can make a text {growth:.3g} times longer, "
            f"at most {_MOST_GROWTH} times is supported"
        )


def _longest_entry(charsmap: str) -> int:
    """Characters of the longest replacement in SentencePiece's map: size of a trie, the trie, texts ending in 0."""
    raw = base64.b64decode(charsmap)
    texts = raw[4 + int.from_bytes(raw[:4], "little") :].split(b"\0")
    return max(len(text.decode("utf-8", "replace")) for text in texts)


def _steps(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of nested sequences."""
    inner = part.get("normalizers", part.get("pretokenizers"))
    if not isinstance(inner, list):
        yield part
        return
    for step in inner:
        yield from _steps(step)


def check_pattern(pattern: str, path: Path) -> None:
    """Raise `ModelError` for a regular expression that can backtrack exponentially or nearly so."""
    bare = _CLASS_OR_ESCAPE.sub("x", pattern)
    opened: list[int] = []
    for place, character in enumerate(bare):
        if character == "(":
            opened.append(place)
        elif character == ")" and opened:
            inside = bare[opened.pop() + 1 : place]
            if _QUANTIFIER.match(bare, place + 1) and _CHOICE.search(inside):
                raise ModelError(f"{path}: the pattern {pattern!r:.80} repeats a group that repeats, which can hang")
    if any(len(_QUANTIFIER.findall(part)) > _MOST_REPEATS for part in bare.split("|")):
        raise ModelError(f"{path}: the pattern {pattern!r:.80} has more than {_MOST_REPEATS} repeats, which can hang")
