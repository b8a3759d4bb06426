"""When two texts count as the same: two strengths of normalisation.

`same_key` forgives what typing varies without meaning (case, full and half width, runs of spaces) and serves to drop
duplicates, where a mistake loses a row. `normalise` forgives spaces and punctuation too, which Korean texts vary
freely, and serves to find sentences that leaked from evaluation into training, where a mistake hides one.
"""

from __future__ import annotations

import unicodedata


class _WithoutMarks(dict[int, int | None]):
    """A table for str.translate that drops spaces, punctuation and invisible characters; filled as it is used."""

    def __missing__(self, code: int) -> int | None:
        dropped = unicodedata.category(chr(code))[0] in "PZC"
        self[code] = None if dropped else code
        return self[code]


_TABLE = _WithoutMarks()


def same_key(text: str) -> str:
    """The text in NFKC, without case, with single spaces."""
    return " ".join(_folded(text).split())


def normalise(text: str) -> str:
    """The text in NFKC, without case, spaces and punctuation; a text of nothing else keeps its punctuation."""
    folded = _folded(text)
    return _composed(folded.translate(_TABLE) or "".join(folded.split()))


def _folded(text: str) -> str:
    """NFKC before and after the case is gone: folding can take a letter apart, and keys must not depend on that."""
    return _composed(_composed(text).casefold())


def _composed(text: str) -> str:
    """NFKC; again after a step that drops characters, because a mark may now stand beside a new letter."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
