"""A dictionary's words and their meanings -> short and long English texts about what the other training text is not.

Enters: WordNet, in its own order, in which related words stand together. Leaves: a text for each of its entries: words
alone, as people search; words with their meaning; or an entry and those after it as a passage.

Training on two languages moves a student away from its English teacher wherever no text holds it: of medicine, of
plants, of chemistry. A text for each thing that has a name, and the teacher says where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from munjang.data import Examples

_BARE, _ALONE = 0.25, 0.35  # of the texts: words without a meaning; one entry; the others are passages
_ENTRIES = (2, 8)  # of a passage


def definition_texts(dictionary: Examples, *, count: int, seed: int) -> list[str]:
    """So many texts that begin with different entries, in the dictionary's order; all entries where it has no more."""
    words, meanings = dictionary.columns.values()
    generator = np.random.default_rng(seed)
    first = np.sort(generator.permutation(len(words))[:count])
    entries = [f"{word}: {meaning}" for word, meaning in zip(words, meanings, strict=True)]
    return [_text(place, words, entries, generator) for place in first.tolist()]


def _text(place: int, words: Sequence[str], entries: Sequence[str], generator: np.random.Generator) -> str:
    drawn = generator.random()
    number = int(generator.integers(_ENTRIES[0], _ENTRIES[1] + 1))
    if drawn < _BARE:
        return words[place]
    if drawn < _BARE + _ALONE:
        return entries[place]
    return ". ".join(entries[place : place + number])
