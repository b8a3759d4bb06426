"""Made questions: each about a sentence of its own passage, every sentence in one passage, twins in two languages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.ko_en_0_1.passages import (
    Int64,
    Questions,
    Unit,
    group_sentences,
    joined,
    make_questions,
    question_of,
)

KOREAN, ENGLISH = "할머니는 시장에서 사과를 샀습니다.", "Grandmother bought apples at the market."


def korean(number: int) -> str:
    """Every word says which sentence it is of."""
    return f"서울{number}은 낱말{number}를 단어{number}에서 말{number}과 봅니다{number}."


def english(number: int) -> str:
    return f"City{number} word{number} thing{number} place{number} seen{number}."


def single(count: int) -> list[Unit]:
    """Sentences of either language, without a translation."""
    return [Unit((korean(i) if i % 2 == 0 else english(i),)) for i in range(count)]


def translated(count: int) -> list[Unit]:
    return [Unit((english(i), korean(i))) for i in range(count)]


def near(count: int, k: int, seed: int = 0) -> Int64:
    """Neighbours of every place: others, each once."""
    random = np.random.default_rng(seed)
    return np.stack([random.permutation(np.delete(np.arange(count), row))[:k] for row in range(count)])


def made(units: Sequence[Unit], wanted: int = 40, seed: int = 0) -> Questions:
    return make_questions(units, near(len(units), 8 if len(units) > 8 else 3), count=wanted, seed=seed)


def numbers_of(text: str) -> set[str]:
    """Which sentences the words are of."""
    return set(re.findall(r"\d+", text))


def is_korean(text: str) -> bool:
    return bool(re.search("[가-힣]", text))


# --- grouping --------------------------------------------------------------------------------------------------------


@given(st.integers(4, 80), st.integers(1, 12), st.integers(0, 99))
def test_every_sentence_is_in_one_group(count: int, k: int, seed: int) -> None:
    neighbours = near(count, min(k, count - 1), seed)
    groups = group_sentences(neighbours, np.random.default_rng(seed))
    assert Counter(place for group in groups for place in group) == Counter(range(count))
    for group in groups:
        assert 1 <= len(group) <= 7
        # One of them is the first, and all others are neighbours of it.
        assert any(set(group) - {first} <= set(neighbours[first].tolist()) for first in group)


def test_groups_are_of_every_size() -> None:
    sizes = Counter(map(len, group_sentences(near(600, 12), np.random.default_rng(0))))
    assert set(sizes) == set(range(1, 8))


def test_the_nearest_that_are_free_are_taken() -> None:
    """Two clusters far from each other never meet."""
    clusters = [list(range(10)), list(range(10, 20))]
    neighbours = np.array([[other for other in clusters[row // 10] if other != row] for row in range(20)])
    groups = group_sentences(neighbours, np.random.default_rng(3))
    assert len(groups) >= 2
    assert all(len({place // 10 for place in group}) == 1 for group in groups)


def test_places_that_are_none_and_the_sentence_itself_are_passed_over() -> None:
    neighbours = np.array([[1, 2, -1], [0, 2, -1], [1, 2, 0], [-1, 3, -1]])
    for seed in range(20):
        groups = group_sentences(neighbours, np.random.default_rng(seed))
        assert Counter(place for group in groups for place in group) == Counter(range(4))
        assert [3] in groups


# --- whole -----------------------------------------------------------------------------------------------------------


@given(st.integers(8, 80), st.integers(1, 120), st.integers(0, 20), st.booleans())
def test_questions_come_from_a_sentence_of_their_passage(count: int, wanted: int, seed: int, twin: bool) -> None:
    found = made(translated(count) if twin else single(count), wanted, seed)
    assert len(found.queries) == len(found.answers)
    assert len(found.passages) == len(found.groups)
    assert {found.groups[place] for place in found.answers} == set(found.groups), "no passage without a question"
    for query, place in zip(found.queries, found.answers, strict=True):
        assert len(numbers_of(query)) == 1
        assert numbers_of(query) <= numbers_of(found.passages[place])
        others = [
            text for text, group in zip(found.passages, found.groups, strict=True) if group != found.groups[place]
        ]
        assert not any(numbers_of(query) & numbers_of(passage) for passage in others)
    written = [korean(i) for i in range(count)] + [english(i) for i in range(count)]
    used = Counter(text for passage in found.passages for text in written if text in passage)
    assert max(used.values()) == 1
    assert len(set(map(frozenset, map(numbers_of, found.queries)))) == len(found.queries), "one of every sentence"


@pytest.mark.parametrize("wanted", [1, 10, 30, 55])
def test_so_many_questions(wanted: int) -> None:
    units = single(60)
    found = made(units, wanted)
    groups = group_sentences(near(60, 8), np.random.default_rng(0))
    each = -(-wanted // len(groups))
    most = sum(min(each, len(group)) for group in groups)
    assert min(wanted, most) <= len(found.queries) < wanted + each
    assert len(made(units, 10_000).queries) == len(units), "one of every sentence, and no more"


def test_seeds() -> None:
    one, same, other = (made(single(60), 30, seed) for seed in (0, 0, 1))
    assert one == same
    assert one.queries != other.queries


def test_short_sentences_make_no_question_but_stand_in_passages() -> None:
    units = [Unit((f"짧은 말{i}." if i % 3 else f"이 문장은 길고 낱말{i}이 많습니다.",)) for i in range(60)]
    found = made(units, 60)
    assert found.queries
    asked = {int(number) for query in found.queries for number in numbers_of(query)}
    assert all(number % 3 == 0 for number in asked)
    assert any(int(number) % 3 for passage in found.passages for number in numbers_of(passage))
    assert made([Unit(("비가 온다.",))] * 20, 10) == Questions([], [], [], [])


@pytest.mark.parametrize("short", ["...", "?", " 。", "Yes.", "예"])
def test_a_sentence_with_a_short_translation_makes_no_question(short: str) -> None:
    units = [Unit((english(i), korean(i) if i % 2 else short)) for i in range(40)]
    found = made(units, 40)
    assert found.queries
    assert all(int(number) % 2 for query in found.queries for number in numbers_of(query))


def test_sentences_without_neighbours_are_passages_of_their_own() -> None:
    units = single(12)
    found = make_questions(units, np.full((12, 3), -1), count=12, seed=0)
    assert sorted(found.passages) == sorted(unit.versions[0] for unit in units)
    assert sorted(found.answers) == found.groups == list(range(12))


def test_no_question_is_its_whole_passage() -> None:
    """Of four short words often all stay: where the passage is that sentence alone, there is nothing to find."""
    units = [Unit((f"서울{i} 낱말{i} 단어{i} 봅니다{i}",)) for i in range(300)]
    alone = np.full((300, 1), -1)
    found = make_questions(units, alone, count=300, seed=0)
    assert 100 < len(found.queries) < 300
    assert not any(query == found.passages[place] for query, place in zip(found.queries, found.answers, strict=True))


@pytest.mark.parametrize("end", ["", ".", "?", "。"])
def test_nor_is_it_its_passage_less_the_full_stop(end: str) -> None:
    units = [Unit((f"서울{i} 낱말{i} 단어{i} 봅니다{i}{end}",)) for i in range(600)]
    found = make_questions(units, np.full((600, 1), -1), count=600, seed=0)
    assert 500 < len(found.queries) < 600
    for query, place in zip(found.queries, found.answers, strict=True):
        assert query.split() != found.passages[place].rstrip(".?。").split()


def test_passages_of_translated_sentences_are_twins() -> None:
    found = made(translated(60), 60)
    assert found.groups == [place // 2 for place in range(len(found.passages))]
    twins = found.twins()
    assert len(twins) == len(found.passages) // 2
    for first, second in twins:
        assert not is_korean(first)
        assert is_korean(second)
        assert re.findall(r"City(\d+)", first) == re.findall(r"서울(\d+)", second), "the same sentences in one order"
    assert {place % 2 for place in found.answers} == {0, 1}, "asked of either"
    assert made(single(60)).twins() == []


# --- apart and together ----------------------------------------------------------------------------------------------


def everything(count: int = 40, seed: int = 0) -> Questions:
    return joined([made(translated(count), count, seed), made(single(count), count, seed + 1)])


@given(st.integers(8, 40), st.integers(0, 60), st.integers(0, 20))
def test_a_split_is_by_whole_groups(size: int, count: int, seed: int) -> None:
    whole = everything(size, seed)
    rest, held = whole.split(count, seed=seed)
    assert not set(rest.groups) & set(held.groups)
    assert set(rest.groups) | set(held.groups) == set(whole.groups)
    most = max(Counter(whole.groups[place] for place in whole.answers).values())
    assert min(count, len(whole.queries)) <= len(held.queries) < max(count, 1) + most
    assert len(rest.queries) + len(held.queries) == len(whole.queries)
    answers = Counter((query, whole.passages[place]) for query, place in zip(whole.queries, whole.answers, strict=True))
    kept = [(query, one.passages[place]) for one in (rest, held) for query, place in
            zip(one.queries, one.answers, strict=True)]  # fmt: skip
    assert Counter(kept) == answers, "every question keeps its passage"
    assert Counter([*rest.twins(), *held.twins()]) == Counter(whole.twins()), "and every passage its twin"


def test_a_split_hangs_on_the_seed_alone() -> None:
    whole = everything()
    assert whole.split(20, seed=1) == whole.split(20, seed=1)
    assert whole.split(20, seed=1)[1].queries != whole.split(20, seed=2)[1].queries
    assert whole.split(0, seed=0) == (whole, Questions([], [], [], []))


def test_several_sets_as_one() -> None:
    parts = [made(translated(20), 12), Questions([], [], [], []), made(single(30), 14, 1), made(translated(16), 9, 2)]
    whole = joined(parts)
    assert whole.queries == [query for one in parts for query in one.queries]
    assert whole.passages == [passage for one in parts for passage in one.passages]
    answers = [one.passages[place] for one in parts for place in one.answers]
    assert [whole.passages[place] for place in whole.answers] == answers
    assert len(set(whole.groups)) == sum(len(set(one.groups)) for one in parts), "no number twice"
    assert whole.twins() == [*parts[0].twins(), *parts[3].twins()]
    assert joined([]) == Questions([], [], [], [])
    assert joined(parts[:1]) == parts[0]


# --- one question ----------------------------------------------------------------------------------------------------


def questions(unit: Unit, language: int = 0, count: int = 300) -> list[str]:
    random = np.random.default_rng(0)
    return [question_of(unit, language, random) for _ in range(count)]


def test_korean_questions_end_as_questions_do_and_lose_particles() -> None:
    found = questions(Unit((KOREAN,)))
    assert any("사과를" in query for query in found)
    assert any(re.search(r"사과(?!를)", query) for query in found)
    asked = [query for query in found if query.endswith("?")]
    assert 0.4 < len(asked) / len(found) < 0.8
    assert any("무엇인가" in query for query in asked)
    assert not any(query.endswith(".") for query in found)
    words = {"할머니", "시장", "사과", "샀습니다"}
    assert all(sum(word in query for word in words) >= 2 for query in found)
    assert any(query.find("사과") < query.find("시장") for query in found if "사과" in query and "시장" in query)


def test_english_questions_begin_as_questions_do() -> None:
    found = questions(Unit(("Grandmother bought apples at the market!",)))
    asked = [query for query in found if query.endswith("?")]
    assert 0.4 < len(asked) / len(found) < 0.8
    assert {query.split()[0] for query in asked} >= {"what", "who", "when", "why"}
    assert not any("!" in query or is_korean(query) for query in found)


@pytest.mark.parametrize("language", [0, 1])
def test_the_other_language_asks_now_and_then(language: int) -> None:
    found = questions(Unit((KOREAN, ENGLISH)), language, 1000)
    share = sum(is_korean(query) == bool(language) for query in found) / len(found)
    assert 0.1 < share < 0.2
    assert not any(is_korean(query) and re.search("[A-Za-z]", query) for query in found)


def test_an_entailed_sentence_asks_mostly() -> None:
    entailed = ("할머니가 과일을 샀다.", "  누군가 장을 보았다. ")
    found = Counter(questions(Unit((KOREAN,), entailed), count=1000))
    by_nli = [found[text.strip()] for text in entailed]
    assert 0.65 < sum(by_nli) / 1000 < 0.75
    assert min(by_nli) > 250, "either of them"


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1), min_size=4, max_size=9
        ),
        min_size=1,
        max_size=2,
    ),
    st.integers(0, 50),
)
def test_any_text_that_is_long_enough_gives_a_question(versions: list[list[str]], seed: int) -> None:
    unit = Unit(tuple(" ".join(words) for words in versions))
    found = make_questions([unit], np.full((1, 1), -1), count=1, seed=seed)
    enough = all(len(text.rstrip(".?!。").split()) >= 4 for text in unit.versions)
    random = np.random.default_rng(seed)
    group_sentences(np.full((1, 1), -1), random)
    random.permutation([0])
    language = int(random.integers(len(unit.versions)))
    words = unit.versions[language].rstrip(".?!。").split()
    same = enough and question_of(unit, language, random).rstrip(".?!。").split() == words
    assert len(found.queries) == (enough and not same), "but for the sentence itself"
    assert all(query.strip() for query in found.queries)
