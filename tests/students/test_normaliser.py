"""Normalisers that tear Hangul: found, corrected, and nothing else changed."""

from __future__ import annotations

import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from munjang.students import StudentPlan, VocabularyPlan, make_student, tears_hangul
from munjang.students.normaliser import composing, decomposing, legible
from munjang.text.tokenizer import Tokenizer
from students.material import TEXTS, parts_of

TEARING = {
    "uncased": lambda: normalizers.BertNormalizer(lowercase=True),
    "stripping": lambda: normalizers.BertNormalizer(lowercase=False, strip_accents=True),
    "nfd": normalizers.NFD,
    "nfkd": lambda: normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()]),
    "lower first": lambda: normalizers.Sequence([normalizers.Lowercase(), normalizers.BertNormalizer()]),
}
WHOLE = {
    "none": lambda: None,
    "cased": lambda: normalizers.BertNormalizer(lowercase=False),
    "uncased, accents kept": lambda: normalizers.BertNormalizer(lowercase=True, strip_accents=False),
    "nfc": normalizers.NFC,
    "recomposed": lambda: normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]),
}


def backend_with(normaliser: normalizers.Normalizer | None) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    if normaliser is not None:
        backend.normalizer = normaliser
    return backend


@pytest.mark.parametrize("name", list(TEARING))
def test_tearing_is_found_and_corrected(name: str) -> None:
    backend = backend_with(TEARING[name]())
    assert tears_hangul(backend)
    corrected = composing(backend.normalizer)
    assert corrected is not None
    assert corrected.normalize_str("한국어 문장") == "한국어 문장"
    assert not tears_hangul(backend_with(corrected))


@pytest.mark.parametrize("name", list(WHOLE))
def test_what_does_not_tear_is_left_alone(name: str) -> None:
    backend = backend_with(WHOLE[name]())
    assert not tears_hangul(backend)
    assert str(composing(backend.normalizer)) == str(backend.normalizer)


def test_latin_text_is_lower_cased_and_stripped_as_before() -> None:
    corrected = composing(normalizers.BertNormalizer(lowercase=True))
    assert corrected is not None
    assert corrected.normalize_str("Café Ångström, Straße, İstanbul") == "cafe angstrom, straße, istanbul"
    assert corrected.normalize_str(unicodedata.normalize("NFD", "한국어")) == "한국어"


@given(st.text(max_size=30))
def test_the_correction_is_nfc_of_what_came_out_before(text: str) -> None:
    for make in TEARING.values():
        backend = backend_with(make())
        corrected = composing(backend.normalizer)
        assert corrected is not None
        before = backend.normalizer.normalize_str(text)
        after = corrected.normalize_str(text)
        assert after == normalizers.NFC().normalize_str(before)
        if before.isascii():
            assert after == before


PARTS = ["한국어", "Café", "안녕하세요!", "ÅNGSTRÖM", "e\u0301", "\u1112\u1161\u11ab", "the cat", "가\u0301",
         "ㅎㅎ", "  ", "\t", "漢字", "[MASK]", "it's", "\u00a0", "1,234", "잔다.", "강가에서", "\u0301"]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PARTS) | st.text(max_size=4), max_size=6).map(" ".join), max_size=5))
def test_the_word_table_still_serves_and_agrees(texts: list[str]) -> None:
    tokenizer = corrected_tokenizer()
    fast, slow = tokenizer.encode(texts), tokenizer.encode(texts, by_words=False)
    assert fast.ids.tolist() == slow.ids.tolist()
    assert fast.lengths.tolist() == slow.lengths.tolist()


def corrected_tokenizer() -> Tokenizer:
    if not _MADE:
        plan = StudentPlan(vocabulary=VocabularyPlan(400, min_count=1))
        backend = make_student(parts_of("bert"), plan, texts=[*TEXTS, " ".join(PARTS)]).parts.tokenizer.backend
        assert isinstance(backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        _MADE.append(Tokenizer(backend, max_length=64))
        assert _MADE[0].words is not None
    return _MADE[0]


_MADE: list[Tokenizer] = []


# --- letters on purpose ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TEARING, *WHOLE])
def test_every_normaliser_can_be_made_to_tear(name: str) -> None:
    made = {**TEARING, **WHOLE}[name]()
    torn = decomposing(made)
    assert tears_hangul(backend_with(torn))
    assert torn.normalize_str("한국어") == unicodedata.normalize("NFD", "한국어")
    if name in TEARING:
        assert torn is made, "nothing to add"


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("\u1100\u1161\u11bb\u1103\u1161", "갔다"),
        ("\u11bb\u1103\u1161", "다"),  # '##ㅆ다'
        ("\u1100\u1161\u1109", "가"),
        ("\u11bb", "\u11bb"),
        ("house", "house"),
        ("ㅋㅋ", "ㅋㅋ"),
        ("", ""),
    ],
)
def test_a_piece_of_letters_as_people_would_write_it(piece: str, shown: str) -> None:
    assert legible(piece) == shown
