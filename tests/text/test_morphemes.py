"""Terms, nouns and noun phrases of Korean, English and mixed texts."""

from __future__ import annotations

import subprocess
import sys
import threading
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.errors import InputError, MissingExtraError
from munjang.text import morphemes
from munjang.text.morphemes import LONGEST_TERM, Analyser

KIWI = Analyser(korean=True)
PAIRS = Analyser(korean=False)
TEXTS = st.text(
    st.sampled_from("비가학교에서한국은행 기준금리를올렸다BERTs'1,5.-😀éİﬁ가\u1100\u1161\u11a8\ud800\n"), max_size=40
)


def terms(text: str) -> list[str]:
    return KIWI.terms([text])[0]


@pytest.mark.parametrize("text", ["비가", "비는", "비를", "비도 비만"])
def test_particles_are_dropped(text: str) -> None:
    assert set(terms(text + " 내린다")) == {"비", "내리다"}


@pytest.mark.parametrize("text", ["학교에서", "학교까지", "학교로부터는", "학교의"])
def test_a_noun_is_found_behind_every_particle(text: str) -> None:
    assert terms(text) == ["학교"]


@pytest.mark.parametrize("text", ["돕다", "도왔다", "도와서", "돕는"])
def test_verbs_have_one_form(text: str) -> None:
    assert "돕다" in terms(text + " 사람")


def test_a_verb_is_not_the_noun_that_is_written_alike() -> None:
    assert terms("비가 온다")[0] == "비"
    assert "비" not in terms("자리가 비었다")


def test_compounds_are_there_whole_and_in_parts() -> None:
    assert terms("기준금리를 올렸다") == ["기준", "금리", "기준금리", "올리다"]
    assert {"기준", "금리"} <= set(terms("기준 금리"))
    for compound, parts in {"교통사고": {"교통", "사고"}, "자연어처리": {"자연어", "처리"}}.items():
        assert {compound, *parts} <= set(terms(f"{compound}에 대한 책"))


def test_the_parts_of_a_name_are_found() -> None:
    assert "은행" in terms("한국은행 총재가 말했다")
    assert "은행" in terms("한국은행")


def test_words_of_other_scripts_are_the_same_with_and_without_korean_around() -> None:
    english = "Fine-tuning BERT's Models, GPT4 and 1,000.5 don't"
    alone = terms(english)
    assert alone == ["fine", "tuning", "bert", "model", "gpt4", "gpt", "4", "and", "1000.5", "don't"]
    assert [term for term in terms(f"한국어 {english} 모델을 썼다") if not morphemes.has_hangul(term)] == alone


@pytest.mark.parametrize(
    ("many", "one"), [("cats", "cat"), ("studies", "study"), ("houses", "house"), ("glass", "glass"), ("gas", "gas")]
)
def test_english_plurals_meet_their_singular(many: str, one: str) -> None:
    assert terms(many) == terms(one) == [one]


def test_the_form_of_the_characters_does_not_matter() -> None:
    text = "학교에서 café ＢＥＲＴ"
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert terms(unicodedata.normalize(form, text)) == terms(text)  # type: ignore[arg-type]


def test_long_words_are_cut_and_long_texts_are_read_to_the_end() -> None:
    assert terms("x" * 500) == ["x" * LONGEST_TERM]
    found = terms("학교에서 비가 온다. " * 2_000 + "마지막 코끼리")
    assert found.count("학교") == 2_000
    assert found[-1] == "코끼리"
    assert "가" * 10 not in terms("가나다라" * 2_000)  # and no crash without a space


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_any_text_has_terms_without_white_space(text: str) -> None:
    for analyser in (KIWI, PAIRS):
        found = analyser.terms([text, "비가 온다", text])
        assert found[0] == found[2]
        for term in found[0]:
            assert 0 < len(term) <= LONGEST_TERM + 1
            assert not any(character.isspace() for character in term)
            term.encode()


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_spans_are_pieces_of_the_original(text: str) -> None:
    phrases = KIWI.noun_phrases(text)
    for span in phrases:
        assert 0 <= span.start < span.end <= len(text)
        assert span.text == text[span.start : span.end]
    assert [span.start for span in phrases] == sorted(span.start for span in phrases)


def test_noun_phrases_have_their_positions() -> None:
    text = "어제 학교에서 BERT 모델을 배웠다. It's fine"
    found = {(span.text, span.start) for span in KIWI.noun_phrases(text)}
    assert {("학교", 3), ("BERT 모델", 8)} <= found
    assert not {"에서", "을", "배웠다", "s"} & {text for text, _ in found}


def test_places_are_right_in_decomposed_text() -> None:
    text = unicodedata.normalize("NFD", "😀 학교에서 기준금리를")
    spans = KIWI.noun_phrases(text)
    assert [unicodedata.normalize("NFC", span.text) for span in spans] == ["학교", "기준금리"]
    assert all(text[span.start : span.end] == span.text for span in spans)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("한국 은행 총재가 기준금리를 올렸다", ["한국 은행 총재", "기준금리"]),
        ("경제적 효과와 초고속 인터넷", ["경제적 효과", "초고속 인터넷"]),
        ("회사들이 아이폰 15 출시를 알렸다", ["회사", "아이폰 15 출시"]),
        ("GPT-4 모델은 좋다", ["GPT-4 모델"]),
        ("빨리 먹었다", []),
        ("", []),
    ],
)
def test_noun_phrases(text: str, wanted: list[str]) -> None:
    assert [span.text for span in KIWI.noun_phrases(text)] == wanted


def test_long_runs_give_their_windows() -> None:
    text = "정부 경제 정책 회의 자료"
    assert [span.text for span in KIWI.noun_phrases(text, longest=3)] == [
        "정부 경제 정책",
        "경제 정책 회의",
        "정책 회의 자료",
    ]
    with pytest.raises(InputError, match="longest"):
        KIWI.noun_phrases(text, longest=0)


def test_without_kiwi_words_share_pairs_of_syllables() -> None:
    one, other = PAIRS.terms(["서울에서 BERT", "서울은 berts"])
    assert one == ["서울에서", "서울", "울에", "에서", "bert"]
    assert {"서울", "bert"} <= set(other)
    assert PAIRS.terms(["비"]) == [["비"]]
    assert PAIRS.identity != KIWI.identity
    with pytest.raises(MissingExtraError, match=r"munjang\[korean\]"):
        PAIRS.noun_phrases("학교에서")


def test_where_kiwi_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(morphemes.util, "find_spec", lambda name: None)
    assert Analyser().terms(["서울에서"]) == PAIRS.terms(["서울에서"])
    with pytest.raises(MissingExtraError, match="kiwipiepy"):
        Analyser(korean=True)


def test_kiwi_is_loaded_for_hangul_only() -> None:
    code = (
        "import sys; from munjang.text.morphemes import Analyser; a = Analyser(korean=True); a.identity;"
        "assert a.terms(['plain words']) == [['plain', 'word']]; assert 'kiwipiepy' not in sys.modules;"
        "a.terms(['비']); assert 'kiwipiepy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_threads_get_what_one_gets() -> None:
    texts = [f"{place}번 학교에서 비가 오는 교통사고 소식" for place in range(40)]
    wanted = KIWI.terms(texts)
    found: list[list[list[str]]] = []
    threads = [threading.Thread(target=lambda: found.append(KIWI.terms(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


def test_bad_input() -> None:
    with pytest.raises(InputError, match="put it into a list"):
        KIWI.terms("학교")
    with pytest.raises(InputError, match="text 1 must be a str, got int"):
        KIWI.terms(["학교", 3])  # type: ignore[list-item]
