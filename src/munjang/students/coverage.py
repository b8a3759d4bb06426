"""How well a tokenizer covers texts: the share of unknown words and the tokens per word, by script.

Enters: texts and a tokenizer. Leaves: figures for a report. A word is what stands between white space; one with a
Hangul character counts as Hangul, else one with a Latin letter as Latin, all others as other. A word is unknown where
any part of it is.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from munjang.students.vocabulary import old_vocabulary
from munjang.text.fast_words import encode_ids, steps
from munjang.text.tokenizer import Tokenizer

SAMPLE = 5_000  # texts, spread evenly

Coverage = dict[str, dict[str, float]]


def sample(texts: Sequence[str], size: int = SAMPLE) -> list[str]:
    """At most so many of the texts, spread evenly over them."""
    if len(texts) <= size:
        return list(texts)
    return [texts[place * len(texts) // size] for place in range(size)]


def words_by_script(texts: Sequence[str]) -> dict[str, Counter[str]]:
    """Words and how often they stand in a sample of the texts."""
    scripts: dict[str, Counter[str]] = {}
    for word, count in Counter(word for text in sample(texts) for word in text.split()).items():
        scripts.setdefault(_script(word), Counter())[word] += count
    return scripts


def coverage(tokenizer: Tokenizer, scripts: Mapping[str, Counter[str]]) -> Coverage:
    """For each script: words, the share that is unknown, tokens per word."""
    vocabulary = old_vocabulary(tokenizer, keep_added=False)
    unknown = vocabulary.ids.get(vocabulary.unknown or "")
    splitting = {step["type"] for step in steps(tokenizer.backend.pre_tokenizer)}
    space = " " if "ByteLevel" in splitting else ""  # inside a text the space belongs to the word after it
    figures: Coverage = {}
    for script in sorted(scripts):
        words = list(scripts[script])
        rows = encode_ids(tokenizer.backend, [space + word for word in words], special=False)
        total = scripts[script].total()
        lost = sum(scripts[script][word] for word, row in zip(words, rows, strict=True) if unknown in row)
        tokens = sum(scripts[script][word] * len(row) for word, row in zip(words, rows, strict=True))
        figures[script] = {
            "words": total,
            "unknown": round(lost / total, 4),
            "tokens per word": round(tokens / total, 3),
        }
    return figures


def _script(word: str) -> str:
    kinds = set(map(_script_of, word))
    return "hangul" if "hangul" in kinds else "latin" if "latin" in kinds else "other"


@lru_cache(maxsize=65_536)
def _script_of(letter: str) -> str:
    name = unicodedata.name(letter, "")
    return "hangul" if name.startswith("HANGUL") else "latin" if name.startswith("LATIN") else "other"
