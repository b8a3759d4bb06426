"""Texts to the terms of keyword search, and to the noun phrases that keywords are chosen from.

    text -> NFKC -> Kiwi's morphemes (Hangul), words (all other scripts)
    terms:        학교에서 비가 온다 -> 학교, 비, 오다      no particles and endings, verbs in dictionary form
    compounds:    기준금리를 -> 기준, 금리, 기준금리        the parts and the whole, so that either matches the other
    other words:  iPhone15's models -> iphone15, iphone, 15, model     lower case, English plurals folded

Kiwi (extra `korean`) is loaded at the first Hangul, once per process: about 0.6 s and 200 MB. It is loaded without its
dictionary of names and set phrases, which doubles both and hides 은행 inside 한국은행. Without Kiwi, terms are the
words and, in Hangul, pairs of neighboring syllables: 서울에서 and 서울은 share 서울.

Measured with BM25: on KorQuAD the right passage is first for 90.7 % of the questions with Kiwi and 87.5 % with pairs of
syllables; 89.8 % without whole compounds, 89.8 % without verbs. NFCorpus NDCG@10 is 32.1 with plurals folded (Harman's
S-stemmer, 1991) and 30.9 without (standard error of the difference 0.4).
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from typing import Any, NamedTuple

from munjang.errors import InputError, MissingExtraError

LONGEST_TERM = 40  # characters; a longer word is noise (base64, a broken file) or is matched by its beginning
_VERSION = 1  # of the rules below; a change of any of them makes other terms
_BLOCK = 2_000  # characters; Kiwi's time is more than linear in the length of a text
_HANGUL = re.compile("[가-힣]")
_WORD = re.compile(r"([가-힣]+)|(\d+(?:[.,]\d+)+)|((?:[^\W_가-힣]['’]?)*[^\W_가-힣])")
_LETTERS_OR_DIGITS = re.compile(r"\d+|\D+")
_POSSESSIVE = re.compile(r"['’]s$")
_SURROGATE = re.compile("[\ud800-\udfff]")
# What NFKC composes: a syllable of conjoining letters, or one character and the marks on it.
_CLUSTER = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|.[\u0300-\u036f\u3099\u309a]*", re.DOTALL)
_JOINING = re.compile(r"-|[ \u00a0]{0,2}")  # between the nouns of a phrase
_MIN_SPLIT = 4  # syllables; a shorter noun is hardly ever made of two that are searched for

_NOUNS = frozenset({"NNG", "NNP", "XR"})
_PHRASE_NOUNS = _NOUNS | {"SL", "SH"}  # foreign words, which in Korean are mostly nouns
_VERBS = frozenset({"VV", "VA"})
_COMPOUND = _NOUNS | {"XPN", "XSN"}  # with affixes (초-, -적, -들), which are no terms by themselves
_SINGLE_TERMS = _NOUNS | {"NNB", "NR", "NP", "MAG", "IC"}  # with 명, 하나, 누구, 빨리: words that may be searched for


@dataclass(frozen=True)
class Span:
    """A part of a text: text == original[start:end]."""

    text: str
    start: int
    end: int


class _Morpheme(NamedTuple):
    form: str
    tag: str  # without the suffix for irregular verbs
    start: int  # in the normalized text
    end: int

    @property
    def plural(self) -> bool:
        return self.form == "들" and self.tag == "XSN"


_END = _Morpheme("", "", -1, -1)


class Analyser:
    """Cuts texts into terms and noun phrases. Safe to use from several threads.

    Args:
        korean: True requires Kiwi, False never uses it (default: where it is installed).

    Raises:
        MissingExtraError: if Kiwi is required and not installed.

    Example:
        >>> Analyser().terms(["기준금리를 올렸다"])
        [['기준', '금리', '기준금리', '올리다']]
    """

    def __init__(self, *, korean: bool | None = None) -> None:
        installed = util.find_spec("kiwipiepy") is not None
        if korean and not installed:
            raise MissingExtraError("kiwipiepy", "korean", "cutting Korean into morphemes")
        self.uses_kiwi = installed if korean is None else korean

    @property
    def identity(self) -> str:
        """Name and version of all that decides about the terms; those of different identities must not be mixed."""
        if not self.uses_kiwi:
            return f"syllable-pairs/{_VERSION}"
        return f"kiwi {metadata.version('kiwipiepy')}, {metadata.version('kiwipiepy_model')}/{_VERSION}"

    def terms(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text in reading order, repeated as in the text; a compound follows its parts.

        Raises:
            InputError: if `texts` is a single text or contains anything but texts.
        """
        normalized = [unicodedata.normalize("NFKC", text) for text in _checked(texts)]
        korean = [self.uses_kiwi and _HANGUL.search(text) is not None for text in normalized]
        analysed = _analyse([text for text, hangul in zip(normalized, korean, strict=True) if hangul])
        rows = []
        for text, hangul in zip(normalized, korean, strict=True):
            terms = list(_words(text, pairs=not self.uses_kiwi))
            if hangul:
                terms += _korean_terms(next(analysed))
                terms.sort(key=lambda term: term[0])
            rows.append([term for _, term in terms])
        return rows

    def noun_phrases(self, text: str, *, longest: int = 4) -> list[Span]:
        """Runs of nouns with nothing but a space or hyphen between them: 한국 은행 총재, 자연어처리, BERT 모델.

        Numbers may follow (아이폰 15); prefixes and suffixes belong to their noun (초고속, 경제적), a final plural 들
        does not.

        Args:
            text: in Korean, or any other language for which Kiwi finds nouns.
            longest: most words in a phrase; a longer run gives every `longest` neighboring words in it.

        Raises:
            InputError: if `longest` is below 1.
            MissingExtraError: if Kiwi is not used.
        """
        if longest < 1:
            raise InputError(f"longest must be at least 1 word, got {longest}")
        if not self.uses_kiwi:
            raise MissingExtraError("kiwipiepy", "korean", "finding Korean nouns")
        normalized, starts, ends = _align(_checked([text])[0])
        phrases = []
        for words in _noun_runs(normalized):
            for first in range(max(1, len(words) - longest + 1)):
                window = words[first : first + longest]
                start, end = starts[window[0][0]], ends[window[-1][1] - 1]
                phrases.append(Span(text[start:end], start, end))
        return phrases


def has_hangul(text: str) -> bool:
    """Whether a text contains a Korean syllable, precomposed or in conjoining letters."""
    return _HANGUL.search(unicodedata.normalize("NFKC", text)) is not None


def _checked(texts: Iterable[str]) -> list[str]:
    """The texts with lone surrogates replaced, position by position."""
    if isinstance(texts, str):
        raise InputError("texts must be a list of texts, got one text: put it into a list")
    checked = []
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {position} must be a str, got {type(text).__name__}")
        checked.append(_SURROGATE.sub("\ufffd", text))
    return checked


def _align(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """The text in NFKC, and where each of its characters starts and ends in the original."""
    if unicodedata.is_normalized("NFKC", text):
        return text, range(len(text)), range(1, len(text) + 1)
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        piece = unicodedata.normalize("NFKC", cluster.group())
        pieces.append(piece)
        starts += [cluster.start()] * len(piece)
        ends += [cluster.end()] * len(piece)
    return "".join(pieces), starts, ends


def _words(text: str, *, pairs: bool) -> Iterator[tuple[int, str]]:
    """Positions and lower-case words of other scripts; with `pairs`, Hangul words and their syllable pairs too."""
    for match in _WORD.finditer(text):
        start, (hangul, number, word) = match.start(), match.groups()
        if number is not None:
            yield start, number.replace(",", "")[:LONGEST_TERM]
        elif word is not None:
            word = _singular(_POSSESSIVE.sub("", word.lower()).replace("’", "'"))
            yield start, word[:LONGEST_TERM]
            parts = _LETTERS_OR_DIGITS.findall(word)
            if 1 < len(parts) <= 3:
                yield from ((start, part[:LONGEST_TERM]) for part in parts)
        elif pairs:
            yield start, hangul[:LONGEST_TERM]
            if len(hangul) > 2:
                yield from ((start + at, hangul[at : at + 2]) for at in range(len(hangul) - 1))


def _singular(word: str) -> str:
    """Harman's S-stemmer: only what is nearly always a plural."""
    if len(word) < 4 or not word.endswith("s") or not word.isascii():
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word if word.endswith(("us", "ss", "aes", "ees", "oes")) else word[:-1]


def _korean_terms(morphemes: Iterable[_Morpheme]) -> Iterator[tuple[int, str]]:
    """Positions and terms of Hangul morphemes; the whole of a compound stands at its last part."""
    compound: list[_Morpheme] = []
    for morpheme in (*morphemes, _END):
        form, tag, start, _ = morpheme
        hangul = _HANGUL.search(form) is not None
        continues = hangul and tag in _COMPOUND
        if compound and not (continues and start == compound[-1].end):
            while compound and compound[-1].plural:
                compound.pop()
            whole = "".join(part.form for part in compound)
            nouns = any(part.tag in _NOUNS for part in compound)
            if len(compound) > 1 and nouns and len(whole) <= LONGEST_TERM:
                yield compound[-1].start, whole
            compound = []
        if continues:
            compound.append(morpheme)
        if hangul and tag in _VERBS:
            yield start, form + "다"
        elif hangul and tag in _SINGLE_TERMS:
            yield start, form[:LONGEST_TERM]
        if tag in _NOUNS and len(form) >= _MIN_SPLIT:
            yield from ((start, part) for part in _noun_parts(form))


def _noun_runs(text: str) -> Iterator[list[tuple[int, int]]]:
    """[start, end) of the words of each run of nouns, with their affixes and numbers."""
    run: list[_Morpheme] = []
    for morpheme in (*next(_analyse([text])), _END) if text else ():
        _, tag, start, _ = morpheme
        if tag == "SL" and start > 0 and text[start - 1] in "'’":  # the s of it's and the t of don't
            continue
        begins = tag in _PHRASE_NOUNS or tag == "XPN"
        continues = begins or tag in ("XSN", "SN")
        if run and continues and _JOINING.fullmatch(text[run[-1].end : start]):
            run.append(morpheme)
        elif not (run and tag == "SO" and morpheme.form == "-"):  # fine-tuning: the hyphen joins
            while run and (run[-1].tag == "XPN" or run[-1].plural):
                run.pop()
            if any(part.tag in _PHRASE_NOUNS for part in run):
                cuts = [at for at in range(1, len(run)) if text[run[at - 1].end : run[at].start].isspace()]
                bounds = zip([0, *cuts], [*cuts, len(run)], strict=True)
                yield [(run[first].start, run[last - 1].end) for first, last in bounds]
            run = [morpheme] if begins else []


_LOCK = threading.Lock()  # Kiwi has threads, so callers take turns


@lru_cache(maxsize=1)
def _kiwi() -> Any:
    from kiwipiepy import Kiwi

    return Kiwi(load_multi_dict=False, load_typo_dict=False)


@lru_cache(maxsize=1 << 16)
def _noun_parts(noun: str) -> tuple[str, ...]:
    """The nouns inside a noun that Kiwi left whole (교통사고: 교통, 사고); none if it does not consist of nouns."""
    with _LOCK:
        tokens = _kiwi().tokenize(noun, blocklist=[(noun, tag) for tag in sorted(_NOUNS)])
    parts = [token.form for token in tokens if token.tag in _NOUNS and len(token.form) > 1]
    return tuple(parts) if len(parts) > 1 and "".join(parts) == noun else ()


def _analyse(texts: Sequence[str]) -> Iterator[list[_Morpheme]]:
    """The morphemes of each text; long texts in blocks."""
    if not texts:
        return
    blocks = [list(_blocks(text)) for text in texts]
    with _LOCK:
        analysed = iter(list(_kiwi().tokenize([block for own in blocks for _, block in own])))
    for own in blocks:
        morphemes = []
        for offset, _ in own:
            for token in next(analysed):
                start = offset + token.start
                morphemes.append(_Morpheme(token.form, token.tag.split("-")[0], start, start + token.len))
        yield morphemes


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """(start, block) of at most _BLOCK characters, cut at white space if there is any in the last half."""
    start = 0
    while len(text) - start > _BLOCK:
        end = start + _BLOCK
        space = max(text.rfind(" ", start + _BLOCK // 2, end), text.rfind("\n", start + _BLOCK // 2, end))
        end = space if space > 0 else end
        yield start, text[start:end]
        start = end
    yield start, text[start:]
