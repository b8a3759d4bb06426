"""Texts to the terms that keyword search counts, and to the nouns and noun phrases that keywords are made of.

    text -> NFKC, every character with its place in the text -> Kiwi's morphemes (Hangul), words (all other scripts)
    terms:        학교에서 비가 온다 -> 학교, 비, 오다      particles and endings are dropped, verbs in dictionary form
    compounds:    기준금리를 -> 기준, 금리, 기준금리        the parts and the whole, so that either finds the other
    other words:  iPhone15's models -> iphone15, iphone, 15, model     lower case, English plurals folded
    nouns, noun_phrases: spans of the original text

Kiwi (extra `korean`) is loaded at the first Hangul that is met, once per process: about 0.6 s and 200 MB. It is loaded
without its dictionary of names and set phrases: that doubles both, and hides 은행 inside 한국은행. Without Kiwi, terms
are the words and, in Hangul, pairs of neighbouring syllables too: 서울에서 and 서울은 meet in 서울.

What was measured (BM25): KorQuAD, the right passage first for 90.7 % of the questions with Kiwi and 87.5 % with pairs
of syllables; 89.8 % without whole compounds, 89.8 % without verbs. NFCorpus NDCG@10 32.1 with plurals folded (Harman's
S-stemmer, 1991), 30.9 without (standard error of the difference 0.4).

`Analyser.identity` names the analyser and its version: terms of different identities must not be mixed.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from itertools import chain, pairwise
from typing import Any, NamedTuple

from munjang.errors import InputError, MissingExtraError

VERSION = 1  # of the rules below; a change of any makes other terms
LONGEST_TERM = 40  # characters; a longer word is noise (base64, a broken file) or is found by its beginning
_BLOCK = 2_000  # characters; Kiwi needs more than linear time for texts without end
_HANGUL = re.compile("[가-힣]")
_WORD = re.compile(r"([가-힣]+)|(\d+(?:[.,]\d+)+)|((?:[^\W_가-힣]['’]?)*[^\W_가-힣])")
_LETTERS_OR_DIGITS = re.compile(r"\d+|\D+")
_POSSESSIVE = re.compile(r"['’]s$")
_SURROGATE = re.compile("[\ud800-\udfff]")
# What NFKC composes: a syllable of conjoining letters, or one character and the marks on it.
_CLUSTER = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|.[\u0300-\u036f\u3099\u309a]*", re.DOTALL)
_SPLIT = 4  # syllables; a noun of fewer is hardly ever made of two that are looked for
_SPACE = re.compile(r"[ \u00a0]{0,2}")

_NOUN_TAGS = frozenset({"NNG", "NNP", "XR"})
_FOREIGN_TAGS = frozenset({"SL", "SH"})
_VERB_TAGS = frozenset({"VV", "VA"})
_AFFIX_TAGS = frozenset({"XPN", "XSN"})  # 초-, -적, -들: part of a compound, no term by themselves
_OTHER_TAGS = frozenset({"NNB", "NR", "NP", "MAG", "IC"})  # 명, 하나, 누구, 빨리: words that a person may look for
_PLURAL = "들"


@dataclass(frozen=True)
class Span:
    """A piece of a text: `text` is the original's [start:end]."""

    text: str
    start: int
    end: int


class _Morpheme(NamedTuple):
    form: str
    tag: str  # without the mark of irregular verbs
    start: int  # in the normalised text
    end: int


class _Aligned(NamedTuple):
    """A text in NFKC and where its characters stand in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def span(self, original: str, start: int, end: int) -> Span:
        first, last = self.starts[start], self.ends[end - 1]
        return Span(original[first:last], first, last)


class Analyser:
    """Cuts texts into terms, nouns and noun phrases. Safe to use from several threads.

    `korean`: True demands Kiwi, False never uses it, None takes it where it is installed.
    """

    def __init__(self, *, korean: bool | None = None) -> None:
        installed = util.find_spec("kiwipiepy") is not None
        if korean and not installed:
            raise MissingExtraError("kiwipiepy", "korean", "cutting Korean into morphemes")
        self.morphemes = installed if korean is None else korean  # False: pairs of syllables

    @property
    def identity(self) -> str:
        """Name and version of everything that decides which terms come out."""
        if not self.morphemes:
            return f"syllable-pairs/{VERSION}"
        return f"kiwi {metadata.version('kiwipiepy')}, {metadata.version('kiwipiepy_model')}/{VERSION}"

    def terms(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text in reading order, as often as they stand there; a compound follows its parts."""
        cleaned = [_clean(text) for text in _checked(texts)]
        if not self.morphemes:
            return [[term for _, term in _words(text, pairs=True)] for text in cleaned]
        analysed = _analyse([text for text in cleaned if _HANGUL.search(text)])
        found = []
        for text in cleaned:
            terms = list(_words(text, pairs=False))
            if _HANGUL.search(text):
                terms = sorted(chain(terms, _korean_terms(next(analysed))), key=lambda term: term[0])
            found.append([term for _, term in terms])
        return found

    def nouns(self, text: str) -> list[Span]:
        """The nouns of a text, one morpheme each; foreign words count, which in Korean are mostly nouns."""
        aligned, morphemes = self._morphemes(text)
        wanted = _NOUN_TAGS | _FOREIGN_TAGS
        return [aligned.span(text, one.start, one.end) for one in morphemes if one.tag in wanted]

    def noun_phrases(self, text: str, *, longest: int = 4) -> list[Span]:
        """Runs of nouns with nothing but a space between them: 한국 은행 총재, 자연어처리, BERT 모델.

        Numbers may follow (아이폰 15), prefixes and suffixes belong to their noun (초고속, 경제적), a plural 들 at the
        end does not. A run of more than `longest` words gives every `longest` neighbours in it.
        """
        if longest < 1:
            raise InputError(f"longest must be at least 1 word, got {longest}")
        aligned, morphemes = self._morphemes(text)
        found = []
        for run in _runs(morphemes, aligned.text):
            words = list(_spaced(run, aligned.text))
            for first in range(max(1, len(words) - longest + 1)):
                window = words[first : first + longest]
                found.append(aligned.span(text, window[0][0], window[-1][1]))
        return found

    def _morphemes(self, text: str) -> tuple[_Aligned, list[_Morpheme]]:
        if not self.morphemes:
            raise MissingExtraError("kiwipiepy", "korean", "finding Korean nouns")
        aligned = _align(_checked([text])[0])
        if not aligned.text:
            return aligned, []
        morphemes = next(_analyse([aligned.text]))
        return aligned, [one for one in morphemes if not _is_clitic(one, aligned.text)]


def _is_clitic(one: _Morpheme, text: str) -> bool:
    """The s of it's and the t of don't."""
    return one.tag == "SL" and one.start > 0 and text[one.start - 1] in "'’"


def _checked(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise InputError("texts must be a list of texts, got one text: put it into a list")
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise InputError(f"text {place} must be a str, got {type(text).__name__}")
    return found


def _clean(text: str) -> str:
    return unicodedata.normalize("NFKC", _SURROGATE.sub("\ufffd", text))


def _align(text: str) -> _Aligned:
    text = _SURROGATE.sub("\ufffd", text)
    if unicodedata.is_normalized("NFKC", text):
        return _Aligned(text, range(len(text)), range(1, len(text) + 1))
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        piece = unicodedata.normalize("NFKC", cluster.group())
        pieces.append(piece)
        starts += [cluster.start()] * len(piece)
        ends += [cluster.end()] * len(piece)
    return _Aligned("".join(pieces), starts, ends)


def _words(text: str, *, pairs: bool) -> Iterator[tuple[int, str]]:
    """Words that are not Hangul with their places, lower-cased; with `pairs`, Hangul runs and their pairs too."""
    for found in _WORD.finditer(text):
        place, (hangul, number, word) = found.start(), found.groups()
        if number is not None:
            yield place, number.replace(",", "")[:LONGEST_TERM]
        elif word is not None:
            word = _singular(_POSSESSIVE.sub("", word.lower()).replace("’", "'"))
            yield place, word[:LONGEST_TERM]
            parts = _LETTERS_OR_DIGITS.findall(word)
            if 1 < len(parts) <= 3:
                yield from ((place, part[:LONGEST_TERM]) for part in parts)
        elif pairs:
            yield place, hangul[:LONGEST_TERM]
            if len(hangul) > 2:
                yield from ((place + at, hangul[at : at + 2]) for at in range(len(hangul) - 1))


def _singular(word: str) -> str:
    """Harman's S-stemmer: only what is nearly always a plural."""
    if len(word) < 4 or not word.endswith("s") or not word.isascii():
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word if word.endswith(("us", "ss", "aes", "ees", "oes")) else word[:-1]


def has_hangul(text: str) -> bool:
    """Whether a text has a Korean syllable, also one written in separate letters."""
    return _HANGUL.search(unicodedata.normalize("NFKC", text)) is not None


def _korean_terms(morphemes: Iterable[_Morpheme]) -> Iterator[tuple[int, str]]:
    """Places and terms of the Hangul morphemes; after the last part of a compound, the whole."""
    compound: list[_Morpheme] = []
    for one in chain(morphemes, [_Morpheme("", "", -1, -1)]):
        if not (one.tag in _NOUN_TAGS | _AFFIX_TAGS and _HANGUL.search(one.form)):
            yield from _whole(compound)
            compound = []
        elif compound and one.start != compound[-1].end:
            yield from _whole(compound)
            compound = [one]
        else:
            compound.append(one)
        if term := _korean_term(one):
            yield one.start, term
        if one.tag in _NOUN_TAGS and len(one.form) >= _SPLIT:
            yield from ((one.start, part) for part in _parts(one.form))


def _korean_term(one: _Morpheme) -> str | None:
    if not _HANGUL.search(one.form):
        return None
    if one.tag in _VERB_TAGS:
        return one.form + "다"
    return one.form[:LONGEST_TERM] if one.tag in _NOUN_TAGS or one.tag in _OTHER_TAGS else None


def _whole(compound: Sequence[_Morpheme]) -> Iterator[tuple[int, str]]:
    parts = list(compound)
    while parts and parts[-1].form == _PLURAL and parts[-1].tag == "XSN":
        parts.pop()
    whole = "".join(part.form for part in parts)
    if len(parts) > 1 and any(part.tag in _NOUN_TAGS for part in parts) and len(whole) <= LONGEST_TERM:
        yield parts[-1].start, whole


def _runs(morphemes: Iterable[_Morpheme], text: str) -> Iterator[list[_Morpheme]]:
    """Neighbouring nouns with their affixes and numbers; a suffix or a number does not begin a run."""
    run: list[_Morpheme] = []
    for one in morphemes:
        begins = one.tag in _NOUN_TAGS or one.tag in _FOREIGN_TAGS or one.tag == "XPN"
        follows = begins or one.tag == "XSN" or one.tag == "SN"
        if run and follows and _joins(text[run[-1].end : one.start]):
            run.append(one)
        elif not (run and one.tag == "SO" and one.form == "-"):  # fine-tuning: the hyphen is between, not a morpheme
            yield from _trimmed(run)
            run = [one] if begins else []
    yield from _trimmed(run)


def _joins(between: str) -> bool:
    return between == "-" or _SPACE.fullmatch(between) is not None


def _trimmed(run: list[_Morpheme]) -> Iterator[list[_Morpheme]]:
    while run and (run[-1].tag == "XPN" or (run[-1].tag == "XSN" and run[-1].form == _PLURAL)):
        run = run[:-1]
    if any(one.tag in _NOUN_TAGS or one.tag in _FOREIGN_TAGS for one in run):
        yield run


def _spaced(run: Sequence[_Morpheme], text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of the words of a run, cut at its spaces."""
    start = run[0].start
    for one, following in pairwise(run):
        if text[one.end : following.start].isspace():
            yield start, one.end
            start = following.start
    yield start, run[-1].end


_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def _kiwi() -> Any:
    from kiwipiepy import Kiwi

    return Kiwi(load_multi_dict=False, load_typo_dict=False)


@lru_cache(maxsize=1 << 16)
def _parts(noun: str) -> tuple[str, ...]:
    """The nouns inside a noun that Kiwi took whole (교통사고: 교통, 사고); none where it does not fall into nouns."""
    with _LOCK:
        found = _kiwi().tokenize(noun, blocklist=[(noun, tag) for tag in sorted(_NOUN_TAGS)])
    parts = [token.form for token in found if token.tag in _NOUN_TAGS and len(token.form) > 1]
    return tuple(parts) if len(parts) > 1 and "".join(parts) == noun else ()


def _analyse(texts: Sequence[str]) -> Iterator[list[_Morpheme]]:
    """The morphemes of each text, long texts in blocks; Kiwi has threads of its own, so callers take turns."""
    if not texts:
        return
    blocks = [list(_blocks(text)) for text in texts]
    with _LOCK:
        pieces = iter(list(_kiwi().tokenize([text for own in blocks for _, text in own])))
    for own in blocks:
        morphemes = []
        for offset, _ in own:
            for token in next(pieces):
                start = offset + token.start
                morphemes.append(_Morpheme(token.form, token.tag.split("-")[0], start, start + token.len))
        yield morphemes


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """(place, piece) of at most _BLOCK characters, cut at white space where there is any in the last half."""
    start = 0
    while len(text) - start > _BLOCK:
        end = start + _BLOCK
        space = max(text.rfind(" ", start + _BLOCK // 2, end), text.rfind("\n", start + _BLOCK // 2, end))
        end = space if space > 0 else end
        yield start, text[start:end]
        start = end
    yield start, text[start:]
