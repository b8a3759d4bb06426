"""Normalisers that tear Hangul into jamo: found by what they do, and corrected without changing anything else.

A normaliser that strips accents decomposes its text first (NFD), and then '한국어' is eight jamo instead of three
syllables: text becomes long, and a vocabulary learns fragments. `composing` puts NFC behind it. Latin text comes out
as before, lower-cased and without accents; Hangul comes out composed. The new normaliser is NFC after the old one, so
it differs from the old one only where the old one leaves something that NFC composes.
"""

from __future__ import annotations

import tokenizers
from tokenizers import normalizers

_PROBE = "한국어"


def tears_hangul(backend: tokenizers.Tokenizer) -> bool:
    """Whether this tokenizer's normaliser takes Hangul syllables apart."""
    if backend.normalizer is None:
        return False
    return any("\u1100" <= letter <= "\u11ff" for letter in backend.normalizer.normalize_str(_PROBE))


def composing(backend: tokenizers.Tokenizer) -> normalizers.Normalizer | None:
    """The backend's normaliser, with NFC behind it where it would tear Hangul."""
    present: normalizers.Normalizer | None = backend.normalizer
    return normalizers.Sequence([present, normalizers.NFC()]) if tears_hangul(backend) else present


def plain_normaliser() -> normalizers.Normalizer:
    """For a vocabulary of words where the old one of bytes had no normaliser: control characters go, case stays."""
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    return normalizers.Sequence([clean, normalizers.NFC()])
