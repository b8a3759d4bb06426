"""Sentences -> passages with questions that they answer, without any question written by a person.

There is no Korean set of questions and passages that may be shipped in a model. So related sentences are put together
to passages, and a question is made of one of them: a sentence that it entails, where NLI has one; else some of its
words, often without their particles, in order or not, sometimes with a question word; or the same of its translation.
To answer it a model must find in which passage its words and its meaning stand, and that is what a search does.

Every sentence stands in one passage only, so that no other answers its question. A passage of translated sentences has
a twin in the other language, with the same number: a student can be taught what its teacher says of the English one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

_SENTENCES = (1, 7)  # of a passage
_LEAST_WORDS = 4  # of a sentence that a question is made of
_KEPT = (0.35, 0.9)  # share of its words that stay
_SHUFFLED, _ASKED, _BARE = 0.2, 0.6, 0.6  # how often
_ENTAILED = 0.7  # where there is an entailed sentence
_OTHER_LANGUAGE = 0.15  # of the question, where there is a translation
_PARTICLES = (
    "으로써|으로서|에서는|에게서|이라는|라는|에서|에게|부터|까지|으로|이나|은|는|이|가|을|를|의|에|도|와|과|로|만"
)
_PARTICLE = re.compile(rf"(?<=[가-힣]{{2}})({_PARTICLES})$")
HANGUL = re.compile(r"[가-힣]")
_ENDS_KO = (
    "은?", "는?", "은 무엇인가?", "는 무엇인가?", "은 누구인가?", "는 언제인가?", "은 어디인가?", "는 몇인가?",
    "의 이름은?", " 어떻게 하나요?", " 무엇인가요?", " 누구인가?", " 언제인가?", " 어디인가?", " 몇 개인가?",
    " 이유는?",
)  # fmt: skip
_BEGINS_EN = (
    "what is", "who is", "when was", "where is", "how many", "how to", "which", "why", "what does", "what are",
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """A sentence in one language or in several (always in the same order), and sentences that it entails."""

    versions: tuple[str, ...]
    entails: tuple[str, ...] = ()


@dataclass(frozen=True)
class Questions:
    """Questions, passages, and which passage answers which question."""

    queries: list[str]
    passages: list[str]
    answers: list[int]  # of every question: a place in `passages`
    groups: list[int]  # of every passage: its number; twins in two languages share it

    def split(self, count: int, *, seed: int) -> tuple[Questions, Questions]:
        """(the rest, about `count` questions), by whole passages: none of either side stands on the other."""
        asked: dict[int, int] = {}
        for place in self.answers:
            asked[self.groups[place]] = asked.get(self.groups[place], 0) + 1
        chosen: set[int] = set()
        total = 0
        for group in np.random.default_rng(seed).permutation(sorted(asked)).tolist():
            if total >= count:
                break
            chosen.add(group)
            total += asked[group]
        return self._only(set(self.groups) - chosen), self._only(chosen)

    def _only(self, groups: set[int]) -> Questions:
        places = [place for place, group in enumerate(self.groups) if group in groups]
        new = {place: row for row, place in enumerate(places)}
        asked = [row for row, place in enumerate(self.answers) if place in new]
        return Questions(
            [self.queries[row] for row in asked],
            [self.passages[place] for place in places],
            [new[self.answers[row]] for row in asked],
            [self.groups[place] for place in places],
        )

    def twins(self) -> list[tuple[str, str]]:
        """Passages that are there in two languages."""
        first: dict[int, str] = {}
        found: list[tuple[str, str]] = []
        for text, group in zip(self.passages, self.groups, strict=True):
            if group in first:
                found.append((first[group], text))
            first.setdefault(group, text)
        return found


def make_questions(units: Sequence[Unit], neighbours: Int64, *, count: int, seed: int) -> Questions:
    """About `count` questions over passages of neighbouring sentences; neighbours [n, k]: the nearest of each."""
    generator = np.random.default_rng(seed)
    able = [min(len(_words(text)) for text in unit.versions) >= _LEAST_WORDS for unit in units]
    groups = [group for group in group_sentences(neighbours, generator) if any(able[place] for place in group)]
    made = Questions([], [], [], [])
    each = max(1, -(-count // max(1, len(groups))))
    for number, group in enumerate(groups):
        if len(made.queries) >= count:
            break
        languages = len(units[group[0]].versions)
        first = len(made.passages)
        for language in range(languages):
            made.passages.append(" ".join(units[place].versions[language].strip() for place in group))
            made.groups.append(number)
        for place in generator.permutation([place for place in group if able[place]])[:each].tolist():
            language = int(generator.integers(languages))
            question = question_of(units[place], language, generator)
            if _words(question) == _words(made.passages[first + language]):
                continue  # a passage of one sentence, all of whose words were kept: a text with itself teaches nothing
            made.queries.append(question)
            made.answers.append(first + language)
    return made


def joined(parts: Sequence[Questions]) -> Questions:
    """Several sets of questions as one."""
    found = Questions([], [], [], [])
    for one in parts:
        passages, groups = len(found.passages), max(found.groups, default=-1) + 1
        found.answers.extend(place + passages for place in one.answers)
        found.groups.extend(group + groups for group in one.groups)
        found.queries.extend(one.queries)
        found.passages.extend(one.passages)
    return found


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


def question_of(unit: Unit, language: int, generator: np.random.Generator) -> str:
    """What somebody might ask who looks for this sentence, in this language or sometimes in another."""
    if unit.entails and generator.random() < _ENTAILED:
        return unit.entails[int(generator.integers(len(unit.entails)))].strip()
    if len(unit.versions) > 1 and generator.random() < _OTHER_LANGUAGE:  # `able` is asked of all versions
        language = (language + 1) % len(unit.versions)
    sentence = unit.versions[language]
    words = _words(sentence)
    kept = max(2, round(len(words) * generator.uniform(*_KEPT)))
    places = np.sort(generator.permutation(len(words))[:kept])
    if generator.random() < _SHUFFLED:
        places = generator.permutation(places)
    chosen = [words[place] for place in places.tolist()]
    korean = bool(HANGUL.search(sentence))
    if korean and generator.random() < _BARE:
        chosen = [_PARTICLE.sub("", word) if generator.random() < 0.7 else word for word in chosen]
    if generator.random() < _ASKED:
        if korean:
            chosen[-1] = _PARTICLE.sub("", chosen[-1]) + str(generator.choice(_ENDS_KO))
        else:
            chosen = [str(generator.choice(_BEGINS_EN)), *chosen]
            chosen[-1] += "?"
    return " ".join(chosen)


def _words(sentence: str) -> list[str]:
    return sentence.strip().rstrip(".?!。").split()
