"""Sentences -> passages with questions that they answer, without any question written by a person.

There is no Korean set of questions and passages that may be shipped in a model. So related sentences are put together
to passages, and a question is made of one of them: some of its words, often without their particles, in order or not,
sometimes with a question word; or its translation. To answer it a model must find in which passage its words and its
meaning stand, and that is what a search does. Every sentence stands in one passage only: no other answers its question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

_SENTENCES = (3, 7)  # of a passage
_LEAST_WORDS = 4  # of a sentence that a question is made of
_KEPT = (0.35, 0.9)  # share of its words that stay
_SHUFFLED, _ASKED, _BARE, _TRANSLATED = 0.2, 0.6, 0.6, 0.15  # how often
_PARTICLES = (
    "으로써|으로서|에서는|에게서|이라는|라는|에서|에게|부터|까지|으로|이나|은|는|이|가|을|를|의|에|도|와|과|로|만"
)
_PARTICLE = re.compile(rf"(?<=[가-힣]{{2}})({_PARTICLES})$")
_HANGUL = re.compile(r"[가-힣]")
_ENDS_KO = (
    "은?", "는?", "은 무엇인가?", "는 무엇인가?", "은 누구인가?", "는 언제인가?", "은 어디인가?", "는 몇인가?",
    "의 이름은?", " 어떻게 하나요?", " 무엇인가요?", " 누구인가?", " 언제인가?", " 어디인가?", " 몇 개인가?",
    " 이유는?",
)  # fmt: skip
_BEGINS_EN = (
    "what is", "who is", "when was", "where is", "how many", "how to", "which", "why", "what does", "what are",
)  # fmt: skip


@dataclass(frozen=True)
class Questions:
    """Questions, passages, and which passage answers which question."""

    queries: list[str]
    passages: list[str]
    answers: Int64  # [queries]: places in `passages`


def make_questions(
    sentences: Sequence[str],
    neighbours: Int64,  # [n, k]: places of the nearest others of each sentence
    translations: Mapping[str, str],
    *,
    count: int,
    seed: int,
) -> Questions:
    """About `count` questions over passages of neighbouring sentences."""
    generator = np.random.default_rng(seed)
    groups = group_sentences(neighbours, generator)
    able = [len(sentence.split()) >= _LEAST_WORDS for sentence in sentences]
    usable = [group for group in groups if any(able[place] for place in group)]
    each = max(1, -(-count // max(1, len(usable))))
    queries: list[str] = []
    passages: list[str] = []
    answers: list[int] = []
    for group in usable:
        if len(queries) >= count:
            break
        chosen = generator.permutation([place for place in group if able[place]])[:each]
        passages.append(" ".join(sentences[place].strip() for place in group))
        for place in chosen:
            queries.append(question_of(sentences[place], translations.get(sentences[place]), generator))
            answers.append(len(passages) - 1)
    return Questions(queries, passages, np.array(answers, np.int64))


def group_sentences(neighbours: Int64, generator: np.random.Generator) -> list[list[int]]:
    """Every sentence in one group at most: each begins with one that is free, and takes the nearest that are free."""
    free = np.ones(len(neighbours), bool)
    groups: list[list[int]] = []
    for first in generator.permutation(len(neighbours)).tolist():
        if not free[first]:
            continue
        wanted = int(generator.integers(_SENTENCES[0], _SENTENCES[1] + 1))
        others = [int(place) for place in neighbours[first] if place >= 0 and free[place] and place != first]
        group = list(dict.fromkeys([first, *others]))[:wanted]
        free[group] = False
        if len(group) >= _SENTENCES[0]:
            groups.append([group[place] for place in generator.permutation(len(group)).tolist()])
    return groups


def question_of(sentence: str, translation: str | None, generator: np.random.Generator) -> str:
    """What somebody might ask who looks for this sentence."""
    if translation and generator.random() < _TRANSLATED:
        sentence = translation
    words = sentence.strip().rstrip(".?!。").split()
    kept = max(2, round(len(words) * generator.uniform(*_KEPT)))
    places = np.sort(generator.permutation(len(words))[:kept])
    if generator.random() < _SHUFFLED:
        places = generator.permutation(places)
    chosen = [words[place] for place in places.tolist()]
    korean = bool(_HANGUL.search(sentence))
    if korean and generator.random() < _BARE:
        chosen = [_PARTICLE.sub("", word) if generator.random() < 0.7 else word for word in chosen]
    if generator.random() < _ASKED:
        if korean:
            chosen[-1] = _PARTICLE.sub("", chosen[-1]) + str(generator.choice(_ENDS_KO))
        else:
            chosen = [str(generator.choice(_BEGINS_EN)), *chosen]
            chosen[-1] += "?"
    return " ".join(chosen)
