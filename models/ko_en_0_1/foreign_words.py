"""English sentences with words put into them that the training text hardly has.

Enters: sentences, and the whole words of the English teacher's vocabulary. Leaves: short and long texts in which some
content words have given way to words drawn from that vocabulary, each as likely as any other.

Half of the teacher's pieces are not in the student's vocabulary, and most of its words stand in no text that may be
learned from: of medicine, of law, of places. A student that never sees them forgets where the teacher places them, and
English search suffers. What such a text means does not matter: the teacher says where it lies, and that is learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from munjang.text.tokenizer import Tokenizer

_WORD = re.compile(r"[a-z]{3,}")
_CONTENT = re.compile(r"[A-Za-z]{4,}")
_REPLACED = (0.2, 0.8)  # share of the content words of a text
_BARE = 0.3  # of the texts: a few words and nothing else, as people search
_BARE_WORDS = (1, 6)
_SENTENCES = (1, 8)


def whole_words(tokenizer: Tokenizer) -> list[str]:
    """The lower-case words that are one piece of a vocabulary, in its order."""
    pieces: dict[str, int] = tokenizer.backend.get_vocab(with_added_tokens=False)
    return sorted((piece for piece in pieces if _WORD.fullmatch(piece)), key=pieces.__getitem__)


def foreign_texts(sentences: Iterable[str], words: Sequence[str], *, count: int, seed: int) -> list[str]:
    """So many texts; none where there are no sentences or no words."""
    frames = [sentence for sentence in dict.fromkeys(sentences) if sentence.strip()]
    if not frames or not words:
        return []
    generator = np.random.default_rng(seed)
    return [_text(frames, words, generator) for _ in range(count)]


def _text(frames: Sequence[str], words: Sequence[str], generator: np.random.Generator) -> str:
    if generator.random() < _BARE:
        number = int(generator.integers(_BARE_WORDS[0], _BARE_WORDS[1] + 1))
        return " ".join(words[place] for place in generator.integers(len(words), size=number).tolist())
    number = int(generator.integers(_SENTENCES[0], _SENTENCES[1] + 1))
    frame = " ".join(frames[place].strip() for place in generator.integers(len(frames), size=number).tolist())
    share = generator.uniform(*_REPLACED)

    def other(found: re.Match[str]) -> str:
        return words[int(generator.integers(len(words)))] if generator.random() < share else found.group()

    return _CONTENT.sub(other, frame)
