"""What a student shall be: `StudentPlan` and `VocabularyPlan`, checked when they are made.

Nothing here imports torch, so that a command line can hold a plan before a model is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from munjang.errors import InputError

VocabularyKind = Literal["wordpiece", "unigram"]
Keep = Literal["all", "used", "none"]
Embeddings = Literal["pieces", "translations", "guide"]
Added = Literal["unseen", "any"]
Hangul = Literal["syllables", "letters"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": ("wordpiece", "unigram"),
    "keep": ("all", "used", "none"),
    "embeddings": ("pieces", "translations", "guide"),
    "add": ("unseen", "any"),
    "hangul": ("syllables", "letters"),
}


@dataclass(frozen=True)
class VocabularyPlan:
    """A vocabulary of `size` pieces, special tokens included: old pieces that stay, and new ones of the user's texts.

    keep: which old pieces stay. "all": every one, under its id. "used": those that the texts use, the most frequent
    first. "none": the special tokens alone, a wholly new vocabulary.
    old_share: with "used", the share of `size` that old pieces may take. None: each side may take half, and what one
    side does not need is the other's.
    add: which new pieces come where old ones stay. "unseen": those that hold a character which no old piece has, so
    that text of the old characters is cut as before wherever its pieces are still there. "any": every frequent one,
    for words of a field in a language that the model knows.
    min_count: how often an old piece, a new piece or a character must occur in the texts.
    embeddings: the first rows of new pieces: from the old "pieces" that their letters fall into; from the old pieces
    that "translations" align them with; or by a "guide", a model that knows both languages, and by translations too
    where there are any.
    hangul: what Korean pieces are made of. "syllables": every syllable of the texts takes two places (at the beginning
    of a word and inside it), some 4,000 in all. "letters" (jamo): text is taken apart first, so that rare syllables are
    spelt and their places go to longer pieces; '갔다' can be '가' and '##ㅆ다'. For a small vocabulary.
    """

    size: int
    kind: VocabularyKind = "wordpiece"
    keep: Keep = "used"
    old_share: float | None = None
    min_count: int = 2
    embeddings: Embeddings = "pieces"
    add: Added = "unseen"
    hangul: Hangul = "syllables"

    def __post_init__(self) -> None:
        _whole("vocabulary size", self.size, least=16)
        _whole("min_count", self.min_count, least=1)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"the vocabulary's {name} must be one of {', '.join(choices)}, got {value!r}")
        share = self.old_share
        if share is not None and not 0 <= share <= 1:
            raise InputError(f"old_share must be 0..1 (a share of the vocabulary), got {share!r}")
        if share is not None and self.keep != "used":
            raise InputError(f"old_share is for keep='used' alone, but keep is {self.keep!r}: leave one of them out")


@dataclass(frozen=True)
class StudentPlan:
    """What shall become of a model: fewer layers, a narrower body, another vocabulary, vectors of another width."""

    layers: int | None = None
    hidden: int | None = None  # width of the body
    dimension: int | None = None  # width of the vectors
    vocabulary: VocabularyPlan | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "dimension"):
            value = getattr(self, name)
            if value is not None:
                _whole(name, value, least=1)


def _whole(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
