"""Normalisers that tear Hangul into jamo: found by what they do, and corrected without changing anything else.

A normaliser that strips accents decomposes its text first (NFD), and then '한국어' is eight jamo instead of three
syllables: text becomes long, and a vocabulary learns fragments. `composing` puts NFC behind it. Latin text comes out
as before, lower-cased and without accents; Hangul comes out composed. The new normaliser is NFC after the old one, so
it differs from the old one only where the old one leaves something that NFC composes.

A vocabulary that is learnt of jamo on purpose is another matter: its pieces are whole words and endings, spelt in
letters. `decomposing` is for it, and `legible` writes such a piece as people would.
"""

from __future__ import annotations

import re
import unicodedata

import tokenizers
from tokenizers import normalizers

_PROBE = "한국어"
JAMO = frozenset(map(chr, range(0x1100, 0x1200)))  # the letters that syllables fall into
_LOOSE = re.compile("[\u1100-\u11ff]+")


def tears_hangul(backend: tokenizers.Tokenizer) -> bool:
    """Whether this tokenizer's normaliser takes Hangul syllables apart."""
    return tears(backend.normalizer)


def tears(normaliser: normalizers.Normalizer | None) -> bool:
    """Whether it takes Hangul syllables apart."""
    return normaliser is not None and not JAMO.isdisjoint(normaliser.normalize_str(_PROBE))


def composing(normaliser: normalizers.Normalizer | None) -> normalizers.Normalizer | None:
    """A normaliser, with NFC behind it where it would tear Hangul."""
    return normalizers.Sequence([normaliser, normalizers.NFC()]) if tears(normaliser) else normaliser


def decomposing(normaliser: normalizers.Normalizer | None) -> normalizers.Normalizer:
    """A normaliser, with NFD behind it where it leaves Hangul whole."""
    if normaliser is None:
        return normalizers.NFD()
    return normaliser if tears(normaliser) else normalizers.Sequence([normaliser, normalizers.NFD()])


def legible(piece: str) -> str:
    """A piece as syllables; letters at its ends that make none are left out, unless there is nothing else."""
    composed = unicodedata.normalize("NFC", piece)
    return _LOOSE.sub("", composed) or composed


def plain_normaliser() -> normalizers.Normalizer:
    """For a vocabulary of words where the old one of bytes had no normaliser: control characters go, case stays."""
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    return normalizers.Sequence([clean, normalizers.NFC()])
