"""Keywords: candidates, choice beside brute force, and the whole with a real model."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import munjang
from munjang.errors import InputError, MissingExtraError
from munjang.tasks import candidates as finding
from munjang.tasks import keywords as making
from munjang.tasks.candidates import find_candidates, find_given
from munjang.tasks.candidates_stop import ENGLISH
from munjang.tasks.keywords import MMR, Keyword, MaxSum, document_vectors, keywords, keywords_of_many
from munjang.tasks.keywords_choice import max_sum, mmr, nearest
from munjang.vectors import normalize
from support import small_models

SOLAR = (
    "Solar panels turn sunlight into electricity. On a cloudy day they still work, but the output drops. "
    "A household battery stores the surplus for the evening."
)
SOLAR_KO = "태양광 패널은 햇빛을 전기로 바꾼다. 흐린 날에는 발전량이 줄어든다. 가정용 배터리는 남은 전력을 저장한다."


@pytest.fixture(scope="module")
def small() -> munjang.BiEncoder:
    return small_models.bi_encoder()


@pytest.fixture(scope="module")
def minilm(minilm_path: Path) -> munjang.BiEncoder:
    return munjang.load(minilm_path, device="cpu", dtype="float32")


def phrases(text: str, **options: object) -> list[str]:
    return [candidate.text for candidate in find_candidates(text, **options)]  # type: ignore[arg-type]


# --- candidates ------------------------------------------------------------------------------------------------------


def test_english_phrases_stay_within_punctuation_and_begin_and_end_with_content() -> None:
    found = phrases("The state of the art, in short: rain-fed rice fields.", ngrams=(1, 4))
    assert found == [
        *("state", "state of the art", "art", "short"),
        *("rain-fed", "rain-fed rice", "rain-fed rice fields", "rice", "rice fields", "fields"),
    ]


def test_a_blank_line_parts_phrases_and_a_line_break_does_not() -> None:
    assert "rice\nfields" in phrases("rice\nfields")
    assert phrases("rice\n\nfields") == ["rice", "fields"]


def test_korean_phrases_have_no_particles() -> None:
    found = phrases(SOLAR_KO)
    assert {"태양광 패널", "햇빛", "전기", "발전량", "가정용 배터리", "전력"} <= set(found)
    assert not [phrase for phrase in found if phrase.endswith(("은", "을", "를", "로", "이", "는"))]


def test_a_mixed_text_gives_both() -> None:
    found = phrases("새 BERT 모델은 fine tuning 없이도 검색에 강하다")
    assert {"BERT 모델", "BERT", "fine tuning", "검색"} <= set(found)
    assert "fine tuning" not in phrases("새 BERT 모델은 강하다", language="ko")
    assert phrases("빨간 rice fields", language="en", ngrams=(1, 1)) == ["빨간", "rice", "fields"]


def test_forms_of_one_phrase_are_one_candidate() -> None:
    (found,) = find_candidates("Rain. rain. RAIN, rain")
    assert (found.text, found.places) == ("rain", [(0, 4), (6, 10), (12, 16), (18, 22)])


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["Rain", "the", "of", "bank", "rates", ".", "은행은", "금리를", "\n\n", "3"]), max_size=20)
)
def test_places_lead_to_the_phrase(words: list[str]) -> None:
    text = " ".join(words)
    for candidate in find_candidates(text):
        assert candidate.places == sorted(set(candidate.places))
        for start, end in candidate.places:
            assert text[start:end].casefold() == candidate.key
            assert candidate.key.split()[0] not in ENGLISH
            assert candidate.key.split()[-1] not in ENGLISH


def test_blocks_and_forgetting_keep_what_is_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "BLOCK", 50)
    monkeypatch.setattr(finding, "MOST_KNOWN", 30)
    text = "".join(f"word{number} bank rates. " for number in range(300))
    found = {candidate.text: candidate.places for candidate in find_candidates(text, most=4)}
    assert {"bank", "rates", "bank rates"} <= set(found)
    assert len(found["bank rates"]) == 300
    assert {text[start:end] for start, end in found["bank"]} == {"bank"}


def test_given_phrases_are_found_whatever_their_case_and_particle() -> None:
    found = find_given("Car parks and carpets. 자동차는 차고에 있다.", ["car", "자동차", "차고", "boat", "c++"])
    assert {candidate.text: candidate.places for candidate in found} == {
        "car": [(0, 3)],
        "자동차": [(23, 26)],
        "차고": [(28, 30)],
        "boat": [],
        "c++": [],
    }


def test_without_kiwi_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import munjang.text.morphemes as morphemes

    finding._analyser.cache_clear()
    monkeypatch.setattr(morphemes.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"munjang\[korean\]"):
        find_candidates("비가 온다")
    finding._analyser.cache_clear()
    assert phrases("It rains on rice fields")


# --- choice ----------------------------------------------------------------------------------------------------------


@st.composite
def rated(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    count, width = draw(st.integers(1, 9)), draw(st.integers(2, 4))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    vectors = normalize(generator.normal(size=(count, width)))
    return vectors @ normalize(generator.normal(size=(1, width)))[0], vectors


@given(rated(), st.integers(1, 6), st.floats(0, 1))
def test_mmr_is_the_greedy_choice_of_its_formula(
    given_rows: tuple[np.ndarray, np.ndarray], top: int, weight: float
) -> None:
    relevance, vectors = given_rows
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < min(top, len(relevance)):
        rest = [row for row in range(len(relevance)) if row not in chosen]
        worth = {
            row: (1 - weight) * relevance[row] - weight * max(vectors[row] @ vectors[other] for other in chosen)
            for row in rest
        }
        best = max(worth.values())
        found = mmr(relevance, vectors, top=top, weight=weight)[len(chosen)]
        assert worth[found] == pytest.approx(best, abs=1e-9)
        chosen.append(found)
    assert mmr(relevance, vectors, top=top, weight=weight) == chosen[:top]


@given(rated(), st.integers(1, 5), st.integers(1, 9))
def test_max_sum_is_the_least_alike_of_all_sets(given_rows: tuple[np.ndarray, np.ndarray], top: int, pool: int) -> None:
    relevance, vectors = given_rows
    found = max_sum(relevance, vectors, top=top, pool=pool)
    kept = nearest(relevance, pool)
    size = min(top, len(kept))

    def alike(rows: list[int]) -> float:
        return sum(float(vectors[a] @ vectors[b]) for a, b in combinations(rows, 2))

    assert len(set(found)) == size
    assert set(found) <= set(kept)
    assert alike(found) == pytest.approx(min(alike(list(rows)) for rows in combinations(kept, size)), abs=1e-9)
    assert found == sorted(found, key=lambda row: -relevance[row])


def test_weight_zero_is_plain_relevance() -> None:
    generator = np.random.default_rng(0)
    vectors = normalize(generator.normal(size=(30, 8)))
    relevance = vectors @ vectors[0]
    assert mmr(relevance, vectors, top=7, weight=0) == nearest(relevance, 7)


def test_too_many_sets_are_refused() -> None:
    vectors = normalize(np.random.default_rng(0).normal(size=(60, 4)))
    with pytest.raises(InputError, match="smaller pool"):
        max_sum(vectors[:, 0], vectors, top=20, pool=60)


# --- the whole -------------------------------------------------------------------------------------------------------


def test_keywords_say_what_a_text_is_about(minilm: munjang.BiEncoder) -> None:
    found = [keyword.text.lower() for keyword in keywords(SOLAR, minilm, top=3)]
    assert "sunlight" in found[0] or "solar" in found[0]
    assert any("battery" in phrase for phrase in found)


def test_scores_are_cosines_and_places_lead_there(minilm: munjang.BiEncoder) -> None:
    found = keywords(SOLAR, minilm, top=4, diversity=None)
    whole = normalize(minilm.encode([SOLAR]))[0]
    for keyword in found:
        assert keyword.score == pytest.approx(float(normalize(minilm.encode([keyword.text]))[0] @ whole), abs=1e-5)
        assert all(SOLAR[start:end] == keyword.text for start, end in keyword.places)
    assert [keyword.score for keyword in found] == sorted((keyword.score for keyword in found), reverse=True)


def test_many_documents_give_what_each_gives_alone(small: munjang.BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "WINDOW", 2)
    documents = [SOLAR, "", SOLAR_KO, "Rain and rice.", SOLAR]
    encoded: list[str] = []
    encode = small.encode_document
    monkeypatch.setattr(small, "encode_document", lambda texts, **more: (encoded.extend(texts), encode(texts))[1])
    done: list[tuple[int, int | None]] = []
    progress = lambda count, total: done.append((count, total))  # noqa: E731
    found = list(keywords_of_many(documents, small, progress=progress))
    short = [text for text in encoded if len(text.split()) <= 3]  # phrases, not chunks
    assert len(short) == len(set(short))
    assert done[-1] == (5, 5)
    assert found[1] == ()
    for document, row in zip(documents, found, strict=True):
        alone = keywords(document, small)
        assert [keyword.text for keyword in row] == [keyword.text for keyword in alone]
        assert [keyword.score for keyword in row] == pytest.approx([keyword.score for keyword in alone], abs=1e-5)


def test_a_long_document_is_the_mean_of_its_chunks(small: munjang.BiEncoder) -> None:
    text = "비 rain 빵 bread " * 100
    parts = [chunk.text for chunk in munjang.chunks(text, small.tokenizer, size=64, stride=46)]
    assert len(parts) > 5
    mean = normalize(normalize(small.encode(parts)).mean(axis=0, keepdims=True))
    np.testing.assert_allclose(document_vectors([text], small), mean, atol=1e-5)


def test_given_candidates_are_rated(minilm: munjang.BiEncoder) -> None:
    found = keywords(SOLAR, minilm, candidates=["football", "renewable energy", "battery"], diversity=None, top=2)
    assert {keyword.text for keyword in found} == {"renewable energy", "battery"}
    assert {keyword.text: bool(keyword.places) for keyword in found} == {"renewable energy": False, "battery": True}


def test_other_kinds_of_diversity(small: munjang.BiEncoder) -> None:
    assert len(keywords(SOLAR, small, top=3, diversity=MaxSum(8))) == 3
    assert keywords(SOLAR, small, top=3, diversity=MMR(0)) == keywords(SOLAR, small, top=3, diversity=None)
    assert keywords(SOLAR, small, top=3, diversity="mmr") == keywords(SOLAR, small, top=3, diversity=MMR(0.5))
    assert keywords("the of and 3", small) == ()
    assert isinstance(keywords("비", small, candidates=["비"])[0], Keyword)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top must be 1 or more"),
        ({"diversity": "best"}, "diversity must be"),
        ({"diversity": MaxSum(3)}, "pool must be larger"),
        ({"ngrams": (3, 1)}, "ngrams must be"),
        ({"language": "de"}, "language must be one of auto, ko, en"),
        ({"candidates": "rain"}, "must be a list of phrases"),
        ({"candidates": ["rain", " "]}, "every candidate must be a phrase"),
    ],
)
def test_wrong_arguments_are_told_before_a_model_is_loaded(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        keywords(SOLAR, None, **options)  # type: ignore[arg-type]


def test_a_document_must_be_a_text(small: munjang.BiEncoder) -> None:
    with pytest.raises(InputError, match="keywords_of_many"):
        keywords([SOLAR], small)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="text 1 must be a string"):
        list(keywords_of_many([SOLAR, None], small))  # type: ignore[list-item]
    with pytest.raises(InputError, match="must be 0"):
        MMR(1.5)
