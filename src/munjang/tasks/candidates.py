"""Texts -> what may describe them: phrases with their places for keywords, plain words for topics.

    Korean    noun phrases of the morphological analyser (extra `korean`), so that no particle sticks to them
    English   runs of one to three words that no punctuation parts and no stop word begins or ends; any script that
              puts spaces between words is read this way

`language="auto"` reads the Hangul parts of a text as Korean and the rest as English, in one text too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from munjang.errors import InputError
from munjang.tasks.candidates_stop import ENGLISH, KOREAN

if TYPE_CHECKING:
    from munjang.text.morphemes import Analyser

Language = Literal["auto", "ko", "en"]
Place = tuple[int, int]  # start, end, in characters of the text

BLOCK = 20_000  # characters that are read at once
MOST_KNOWN = 100_000  # phrases remembered while a text is read; beyond it those seen once are forgotten
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_UNSPACED = re.compile(r"\S+")
_LETTER = re.compile(r"[^\W\d_]")
_PARTED = re.compile(r"[^\s]|\n\s*\n")  # between two words of one phrase stands white space, but no blank line


@dataclass
class Candidate:
    """A phrase and where it stands; written in several ways (Rain, rain) it is still one."""

    key: str
    places: list[Place] = field(default_factory=list)
    forms: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """As it is written most often; of equals, as it was written first."""
        return self.forms.most_common(1)[0][0]


def find_candidates(
    text: str, *, ngrams: tuple[int, int] = (1, 3), language: Language = "auto", most: int = 2_000
) -> list[Candidate]:
    """The phrases of a text in order of appearance; where there are more than `most`, the most frequent.

    A text of any length is read in blocks. When too many phrases are known, those seen once so far are forgotten:
    what is frequent survives (lossy counting, Manku and Motwani 2002).
    """
    check_choices(ngrams, language)
    known: dict[str, Candidate] = {}
    for start, block in _blocks(text):
        for phrase, begin in _phrases(block, ngrams, language):
            if len(composed(phrase)) < 2:  # a single syllable or letter says too little by itself
                continue
            key = composed(phrase).casefold()
            found = known.setdefault(key, Candidate(key))
            found.places.append((start + begin, start + begin + len(phrase)))
            found.forms[phrase] += 1
        if len(known) > MOST_KNOWN:
            known = {key: candidate for key, candidate in known.items() if len(candidate.places) > 1}
    kept = list(known.values())
    if len(kept) > most:
        kept = sorted(kept, key=lambda candidate: -len(candidate.places))[:most]
    for candidate in kept:
        candidate.places = sorted(set(candidate.places))
    return sorted(kept, key=lambda candidate: (candidate.places[0][0], candidate.places[0][1]))


def find_given(text: str, phrases: Sequence[str]) -> list[Candidate]:
    """The places of phrases that somebody gave, whatever their case; one that is not in the text has none.

    A Korean particle may follow a phrase, another letter may not: 'car' is not in 'carpet', 비 is in '비가'.
    """
    found = []
    for phrase in dict.fromkeys(phrases):
        before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
        after = r"(?![^\W가-힣])" if re.search(r"\w\Z", phrase) else ""
        places = [match.span() for match in re.finditer(before + re.escape(phrase) + after, text, re.IGNORECASE)]
        found.append(Candidate(composed(phrase).casefold(), places, Counter([phrase])))
    return found


def topic_words(texts: Iterable[str], *, language: Language = "auto") -> Iterator[list[str]]:
    """The words of each text that may name a topic: Korean nouns, English words in lower case, no stop words."""
    check_choices((1, 1), language)
    for text in texts:
        yield [
            composed(phrase).casefold()
            for _, block in _blocks(text)
            for phrase, _ in _phrases(block, (1, 1), language)
            if len(phrase) > 1 or _HANGUL.match(phrase)
        ]


def check_choices(ngrams: tuple[int, int], language: str) -> None:
    """Before anything is read."""
    if len(ngrams) != 2 or not 1 <= ngrams[0] <= ngrams[1] <= 10:
        raise InputError(f"ngrams must be (fewest, most) words of a phrase within 1..10, got {ngrams!r}")
    if language not in get_args(Language):
        raise InputError(f"language must be one of {', '.join(get_args(Language))}, got {language!r}")


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Parts of the text and where they begin, cut behind a line, a sentence or a word where there is one."""
    start = 0
    while start < len(text):
        end = min(len(text), start + BLOCK)
        if end < len(text):
            cuts = (text.rfind(mark, start + BLOCK // 2, end) for mark in ("\n", ". ", " "))
            end = next((cut + 1 for cut in cuts if cut > 0), end)
        yield start, text[start:end]
        start = end


def _phrases(text: str, ngrams: tuple[int, int], language: Language) -> Iterator[tuple[str, int]]:
    """Every phrase and its start."""
    if language != "en" and _HANGUL.search(text):
        yield from _korean(text, ngrams, latin=language == "ko")
    if language != "ko":
        yield from _english(text, ngrams, hangul=language == "en")


def _korean(text: str, ngrams: tuple[int, int], *, latin: bool) -> Iterator[tuple[str, int]]:
    """Noun phrases of so many words; a compound without spaces (기준금리) is one word. `latin`: also those in Latin."""
    fewest, most = ngrams
    found: set[Place] = set()  # long runs come as windows that overlap
    for span in _analyser().noun_phrases(text, longest=most):
        words = [match.span() for match in _UNSPACED.finditer(text, span.start, span.end)]
        for first, (start, _) in enumerate(words):
            found.update((start, end) for _, end in words[first + fewest - 1 : first + most])
    for start, end in sorted(found):
        words_of = composed(text[start:end]).split()
        if not _content(words_of[0]) or not _content(words_of[-1]):
            continue
        if _HANGUL.search(text, start, end) or (latin and _LETTER.search(text, start, end)):
            yield text[start:end], start


def composed(text: str) -> str:
    """Jamo that macOS writes apart stand together again."""
    return unicodedata.normalize("NFC", text)


def _english(text: str, ngrams: tuple[int, int], *, hangul: bool) -> Iterator[tuple[str, int]]:
    """Runs of words; those with Hangul in them part the runs, unless they are to be read as words too."""
    run: list[Place] = []
    for match in _WORD.finditer(text):
        if run and _PARTED.search(text, run[-1][1], match.start()):
            yield from _runs(text, run, ngrams)
            run = []
        if hangul or not _HANGUL.search(match.group()):
            run.append(match.span())
        else:
            yield from _runs(text, run, ngrams)
            run = []
    yield from _runs(text, run, ngrams)


def _runs(text: str, run: list[Place], ngrams: tuple[int, int]) -> Iterator[tuple[str, int]]:
    good = [_content(text[start:end]) for start, end in run]
    for first in range(len(run)):
        for length in range(ngrams[0], ngrams[1] + 1):
            last = first + length - 1
            if last < len(run) and good[first] and good[last]:
                phrase = text[run[first][0] : run[last][1]]
                if _LETTER.search(phrase):
                    yield phrase, run[first][0]


def _content(word: str) -> bool:
    return word.casefold().replace("’", "'") not in ENGLISH and word not in KOREAN


@cache
def _analyser() -> Analyser:
    from munjang.text.morphemes import Analyser

    return Analyser(korean=True)
