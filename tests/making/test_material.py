"""What the bundled models learn from: nothing of an evaluation set, every source as often as asked, no other source."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from making.whole_data import (
    DICTIONARY,
    FORBIDDEN,
    PLANTED,
    SOURCES,
    data_folder,
    disguised,
    korean,
    planted,
    put,
    sentences,
)
from models.ko_en_0_1.calibrating import question_parts
from models.ko_en_0_1.material import EVALUATED, SCORED, Material, evenly, read_material
from models.ko_en_0_1.passages import Unit
from models.ko_en_0_1.settings import BiPlan
from munjang.data import DATASETS, Examples, join, load_dataset
from munjang.data.overlaps import normalise
from munjang.errors import DataError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def material(data: Path) -> Material:
    return read_material(data, BiPlan())


def every_text(material: Material) -> set[str]:
    """All that a model learns from, as leaks are looked for."""
    sets = [material.translations, material.questions, material.dictionary]
    sets += [*material.nli.values(), *material.sts.values()]
    return {normalise(text) for one in sets for text in one.texts()} | set(map(normalise, material.plain))


def rows_of(examples: Examples) -> set[tuple[str, ...]]:
    return set(zip(*examples.columns.values(), strict=True))


# --- what must not come in -------------------------------------------------------------------------------------------


def test_sentences_of_evaluation_sets_are_taken_out_of_plain_text(data: Path, material: Material) -> None:
    plain = set(map(normalise, material.plain))
    raw = (data / "chatbot/ChatbotData.csv").read_text("utf-8") + (data / "nsmc/reviews.txt").read_text("utf-8")
    for name, split in EVALUATED:
        held = set(map(normalise, load_dataset(name, split, data).texts()))
        assert not plain & held, (name, split)
        if name != "nsmc":  # whose test part is drawn, below
            assert disguised(planted(name, split)).strip() in raw, "the test must be able to fail"
            assert normalise(planted(name, split)) in held
    films, tested = (load_dataset("nsmc", split, data).columns["text"] for split in ("train", "test"))
    assert set(films) <= set(material.plain)
    assert tested
    assert not set(tested) & set(material.plain)
    assert material.removed >= len(EVALUATED) - 1 + len(tested)


def test_sentences_of_evaluation_sets_are_taken_out_of_translations_and_questions(
    data: Path, material: Material
) -> None:
    raw = [
        (data / name).read_text("utf-8") for name in ("parallel-en-ko/train.tsv", "question-pair/kor_pair_train.csv")
    ]
    translations, questions = set(material.translations.texts()), set(material.questions.texts())
    for name, split in PLANTED:
        assert all(disguised(planted(name, split)).strip() in text for text in raw), "the test must be able to fail"
        held = set(map(normalise, load_dataset(name, split, data).texts()))
        for learned in (translations, questions, set(material.other), set(material.other.values())):
            assert not held & set(map(normalise, learned)), (name, split)
        assert f"{name} {split} 옆에 있던 문장" not in translations, "its translation goes with it"
    assert not any("물어봅니다" in text for text in questions), "and so does the question beside it"
    every = read_material(data, replace(BiPlan(), source_weights={})).translations
    assert rows_of(every) == set(sentences()[: 24 + sum(SOURCES.values())]), "nothing else does"


def entries() -> list[tuple[str, str]]:
    """The dictionary as it was written, less what stands in evaluation sets."""
    return [(", ".join(words).replace("(ip)", ""), meaning) for some in DICTIONARY.values() for words, meaning in some]


def test_sentences_of_evaluation_sets_are_taken_out_of_the_dictionary(data: Path, material: Material) -> None:
    raw = (data / "wordnet/data.noun").read_text("utf-8").replace("_", " ")
    for name, split in PLANTED:
        assert disguised(planted(name, split)).strip() in raw, "the test must be able to fail"
    every = load_dataset("wordnet", "train", data)
    held = {normalise(planted(*one)) for one in PLANTED}
    for column in every.columns.values():
        assert held & set(map(normalise, column)), "as words and as a meaning"
    assert list(zip(*material.dictionary.columns.values(), strict=True)) == entries(), "with what stood beside them"
    assert len(every) == len(entries()) + len(PLANTED)


def test_without_the_evaluation_set_its_sentences_would_have_come_in(data: Path, tmp_path: Path) -> None:
    other = data_folder(tmp_path)
    before = read_material(other, BiPlan())
    (other / "klue-nli/dev.json").unlink()
    after = read_material(other, BiPlan())
    found = planted("klue-nli", "dev")
    assert before.removed - after.removed == 1
    assert set(after.plain) - set(before.plain) == {disguised(found).strip(), "klue-nli dev 물어봅니다"}
    assert rows_of(after.questions) - rows_of(before.questions) == {(disguised(found), "klue-nli dev 물어봅니다")}
    assert set(after.translations.texts()) - set(before.translations.texts()) == {
        disguised(found), "klue-nli dev 옆에 있던 문장",
    }  # fmt: skip
    (entry,) = rows_of(after.dictionary) - rows_of(before.dictionary)
    assert set(map(str.strip, entry)) == {disguised(found).strip(), "klue-nli dev 옆에 있던 낱말"}
    put(other / "klue-nli/dev.json", ["no JSON"])  # a set that is there but cannot be read is no missing one
    with pytest.raises(DataError, match=r"klue-nli"):
        read_material(other, BiPlan())


def test_two_sources_of_translations_never_come_in(data: Path, material: Material) -> None:
    raw = (data / "parallel-en-ko/train.tsv").read_text("utf-8")
    learned = every_text(material)
    for en, ko in FORBIDDEN:
        assert f"{en}\t{ko}" in raw
        assert normalise(en) not in learned
        assert normalise(ko) not in learned


def test_only_splits_that_may_be_trained_on_are_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.ko_en_0_1 import material as module

    asked: list[tuple[str, str]] = []

    def noted(name: str, split: str, folder: Path) -> Examples:
        asked.append((name, split))
        return load_dataset(name, split, folder)

    monkeypatch.setattr(module, "load_dataset", noted)
    read_material(data, BiPlan())
    chosen_by = {("korsts", "dev"), ("stsb", "dev")}
    learned = [one for one in asked if one not in {*EVALUATED, *SCORED}]
    assert {DATASETS[name].splits[split].use for name, split in learned} == {"train"}
    assert {one for one in asked if one in chosen_by} == chosen_by
    twice = {one for one, count in Counter(asked).items() if one in EVALUATED and count > 1}
    assert twice == chosen_by | ({*SCORED} & {*EVALUATED})  # the pairs of these are kept away from silver ones
    assert all(DATASETS[name].splits[split].use == "evaluation" for name, split in (*EVALUATED, *SCORED))


def test_which_sets_are_kept_out_of_plain_text() -> None:
    """Every split that is measured on and could share Korean sentences with it; and STS-B, English too."""
    sts = {(name, split) for name, known in DATASETS.items() for split in known.splits if "sts" in name}
    wanted = {one for one in sts if one[1] != "train" and not re.fullmatch(r"sts1\d", one[0])}
    wanted |= {("tatoeba", "test"), ("klue-nli", "dev"), ("question-pair", "test"), ("nsmc", "test")}
    wanted |= {("ynat", "dev"), ("ynat", "test")}
    assert set(EVALUATED) >= wanted


# --- what comes in ---------------------------------------------------------------------------------------------------


def test_plain_text_is_korean_each_once_and_of_fair_length(material: Material) -> None:
    assert len(set(material.plain)) == len(material.plain)
    assert all(4 <= len(text) <= 400 and text == text.strip() for text in material.plain)
    assert "짧다" not in material.plain
    assert {f"다시 보니 {text}" for text in korean(180, 200)} <= set(material.plain), "the reviews"
    assert set(korean(20, 26)) <= set(material.plain), "the chatbot's questions"
    assert "정말 " + korean(140, 141)[0] in material.plain, "question-pair"


def test_so_many_reviews_and_others_with_another_seed(data: Path) -> None:
    def reviews(count: int, seed: int) -> set[str]:
        found = read_material(data, replace(BiPlan(), reviews=count), seed=seed)
        return {text for text in found.plain if "번째 영화는" in text}

    assert len(reviews(0, 0)) == 0
    some = reviews(20, 0)
    assert 0 < len(some) < 20
    assert some == reviews(20, 0)
    assert some != reviews(20, 1)


def test_sources_come_as_often_as_their_weights_say(data: Path, material: Material) -> None:
    weights = {"tatoeba": 2.0, "news-park": 1.5, "python-docs": 0.25}
    plan = replace(BiPlan(), source_weights=weights)
    found = read_material(data, plan)
    counts = Counter(found.translations.columns["anchor"])
    rows = [line.split("\t") for line in (data / "parallel-en-ko/train.tsv").read_text("utf-8").splitlines()[1:]]
    known = set(sentences())  # the others are of an evaluation set
    for source, count in SOURCES.items():
        times = [counts[en] for en, ko, name in rows if name == source and (en, ko) in known]
        assert len(times) == count
        weight = weights.get(source, 1.0)
        assert sum(times) == round(weight * count), source
        assert set(times) <= {int(weight), int(weight) + 1}, source
    assert set(zip(*found.translations.columns.values(), strict=True)) <= set(sentences())
    assert Counter(material.translations.columns["anchor"])[rows[24][0]] == 3  # tatoeba, as the plan has it


def test_the_selection_is_no_part_of_training_and_the_same_for_every_seed(data: Path, material: Material) -> None:
    names = [one.name for one in material.selection]
    assert names == ["KorSTS dev", "KLUE-STS slice", "STSb dev"]
    slice_, whole = material.selection[1], load_dataset("klue-sts", "train", data)
    assert len(slice_) == 10  # a quarter at most
    assert rows_of(slice_) | rows_of(material.sts["klue-sts"]) == rows_of(whole)
    assert not rows_of(slice_) & rows_of(material.sts["klue-sts"])
    other = read_material(data, BiPlan(), seed=5)
    assert other.selection[1].columns == slice_.columns
    assert len(read_material(data, replace(BiPlan(), selection_rows=4)).selection[1]) == 4
    trained = set().union(*map(rows_of, material.sts.values()))
    assert not trained & set().union(*map(rows_of, material.selection))


def test_korsts_and_stsb_crossed_row_by_row(data: Path, material: Material) -> None:
    crossed, ko, en = (material.sts[name] for name in ("korsts-stsb", "korsts", "stsb"))
    assert ko.targets is not None
    assert crossed.targets is not None
    assert np.allclose(crossed.targets, ko.targets)
    for row in range(len(crossed)):
        first, second = (ko, en) if row % 2 == 0 else (en, ko)
        assert crossed.columns["a"][row] == first.columns["a"][row]
        assert crossed.columns["b"][row] == second.columns["b"][row]
    assert len(crossed) == len(ko)


@pytest.mark.parametrize(("wrong", "kept"), [(0, 40), (1, None), (20, None)])
def test_rows_whose_scores_differ_are_not_crossed(tmp_path: Path, wrong: int, kept: int | None) -> None:
    """One of forty is above a hundredth: then the files are not the same rows, and nothing is crossed."""
    data = data_folder(tmp_path)
    path = data / "stsb-en/stsb-en-train.csv"
    lines = path.read_text("utf-8").splitlines()
    for row in range(wrong):
        start, _, score = lines[row].rpartition(",")
        lines[row] = f"{start},{5 - float(score) if score != '2.5' else 0.0}"
    put(path, lines)
    found = read_material(data, BiPlan()).sts
    assert (len(found["korsts-stsb"]) if "korsts-stsb" in found else None) == kept


def test_other_lengths_are_not_crossed(tmp_path: Path) -> None:
    data = data_folder(tmp_path)
    path = data / "stsb-en/stsb-en-train.csv"
    put(path, path.read_text("utf-8").splitlines()[:-1])
    assert set(read_material(data, BiPlan()).sts) == {"korsts", "klue-sts", "stsb"}


def test_triplets_in_both_directions(material: Material) -> None:
    for language, premise in (("ko", korean(100, 101)[0]), ("en", "yes ")):
        found = material.triplets(language, 0)
        assert (found.kind, found.name, list(found.columns)) == (
            "pairs", f"nli-{language}", ["anchor", "positive", "negative"],
        )  # fmt: skip
        pairs = set(zip(found.columns["anchor"], found.columns["positive"], strict=True))
        assert {(b, a) for a, b in pairs} == pairs
        assert any(anchor.startswith(premise) for anchor in found.columns["anchor"])
        assert all(text.startswith("no ") for text in found.columns["negative"])


def test_rows_of_every_set_by_its_title(data: Path, material: Material) -> None:
    wanted = {}
    judged = ("klue-sts", "korsts", "stsb", "klue-nli", "mnli", "snli")
    for name in (*judged, "question-pair", "wordnet", "ynat", "chatbot"):
        for split in {"snli": ("dev", "test"), "mnli": ("train", "dev")}.get(name, ("train",)):
            wanted[f"{DATASETS[name].title} {split}"] = len(load_dataset(name, split, data))
    reviews = len(load_dataset("nsmc-reviews", "train", data))
    wanted[f"{DATASETS['nsmc-reviews'].title} train"] = reviews
    translations = 24 + sum(SOURCES.values()) + len(PLANTED)  # rows of the set, not of the epoch
    wanted[f"{DATASETS['parallel'].title} train"] = translations
    assert material.rows == wanted
    few = read_material(data, replace(BiPlan(), reviews=7))
    assert few.rows[f"{DATASETS['nsmc-reviews'].title} train"] == 7


def test_question_pair_is_cut_always_alike(data: Path, material: Material) -> None:
    whole = load_dataset("question-pair", "train", data)
    rest, held = question_parts(whole)
    assert (len(rest), len(held)) == (len(whole) - len(held), round(0.2 * len(whole)))
    assert rows_of(rest) | rows_of(held) == rows_of(whole)
    assert not rows_of(rest) & rows_of(held)
    assert held.columns == question_parts(load_dataset("question-pair", "train", data))[1].columns
    assert held.name == "Question pair train, held out"
    for seed in (0, 5):
        assert not rows_of(read_material(data, BiPlan(), seed=seed).questions) & rows_of(held)
    assert rows_of(material.questions) == {
        (a, b) for a, b in rows_of(rest) if b == f"정말 {a}" and "시험에만" not in a
    }  # fmt: skip


def test_questions_that_ask_the_same(material: Material) -> None:
    found = rows_of(material.questions)
    assert 10 < len(found) <= 20
    assert all(b == f"정말 {a}" for a, b in found), "different ones, and one that is its own pair, are left out"


def test_the_pool_has_every_text_once_and_no_software_text(material: Material) -> None:
    pool = material.pool()
    assert len(set(pool)) == len(pool)
    both = set(material.other.values())
    assert set(pool) >= (set(material.plain) | set(material.questions.texts())) - both
    for one in (*material.sts.values(), *material.nli.values()):
        assert set(one.texts()) - both <= set(pool)
    docs = 24 + SOURCES["tatoeba"] + SOURCES["news-park"]
    software = {en for en, _ in sentences()[docs : docs + SOURCES["python-docs"]]}
    others = {text for one in (*material.sts.values(), *material.nli.values()) for text in one.texts()}
    assert software - others, "the test must be able to fail"
    assert not (software - others) & set(pool)


def test_the_pool_is_in_english_where_there_is_both(data: Path, material: Material) -> None:
    """KorSTS train, Tatoeba and news: the first sources of the file; talks and docs are not among `pool_sources`."""
    assert dict(material.other) == dict(sentences()[: 24 + SOURCES["tatoeba"] + SOURCES["news-park"]])
    pool = set(material.pool())
    assert set(material.other) <= pool
    assert set(material.other.values()) & set(material.sts["korsts"].texts()), "the test must be able to fail"
    assert not set(material.other.values()) & pool
    fewer = read_material(data, replace(BiPlan(), pool_sources=("news-park",)))
    assert len(fewer.other) == SOURCES["news-park"]
    assert set(material.sts["korsts"].texts()) - set(fewer.other.values()) <= set(fewer.pool())


def test_which_sentences_of_the_pool_people_scored(material: Material) -> None:
    judged, pool = material.judged(), material.pool()
    assert judged.shape == (len(pool),)
    scored = {text for one in material.sts.values() for text in one.texts()}
    assert {text for text, one in zip(pool, judged.tolist(), strict=True) if one} == scored & set(pool)
    assert 0 < judged.sum() < len(pool)


def test_what_passages_are_put_together_of(material: Material) -> None:
    translated, plain, others = material.units()
    pairs = list(zip(*material.translations.columns.values(), strict=True))
    assert len(pairs) > len(translated)
    assert translated == [Unit(pair) for pair in dict.fromkeys(pairs)], "once, however often a source counts"
    written = {text for unit in translated for text in unit.versions}
    asked = {text for unit in plain for text in unit.entails}
    assert asked
    assert {unit.versions[0] for unit in plain} == set(material.plain) - written - asked
    assert len(plain) == len({unit.versions for unit in plain})
    english = {unit.versions[0] for unit in others}
    assert english == {text for text in english if text.isascii()}
    assert len(english) == len(others) > 0
    premises = {a for a, b in rows_of(material.nli["en"]) if b.startswith("yes ")}
    assert premises & written, "the test must be able to fail"
    assert english == premises - written, "no sentence in two passages"


def test_sentences_with_several_translations_stand_in_one_passage(material: Material) -> None:
    columns = {"anchor": ["One.", "One.", "Two.", "Three."], "positive": ["하나.", "일.", "하나.", "셋."]}
    found = replace(material, translations=Examples("several", "pairs", columns)).units()
    assert found[0] == [Unit(("One.", "하나.")), Unit(("Three.", "셋."))]


def test_what_asks_stands_in_no_passage(material: Material) -> None:
    """'나는 잔다' is entailed: it asks for its premise, and a passage with it would answer too."""
    texts = {"a": ["나는 집에서 잔다", "나는 집에서 잔다", "누가 잔다"], "b": ["나는 잔다", "셋.", "사람이 있다"]}
    nli = Examples("ours", "labelled", texts, np.zeros(3, np.int64), ("entailment", "neutral", "contradiction"))
    translations = Examples("ours", "pairs", {"anchor": ["Three."], "positive": ["셋."]})
    plain = ["나는 집에서 잔다", "나는 잔다", "셋.", "누가 잔다", "다른 말"]
    found = replace(material, translations=translations, plain=plain, nli={"ko": nli, "en": nli}).units()
    assert found[1] == [Unit(("나는 집에서 잔다",), ("나는 잔다",)), Unit(("누가 잔다",)), Unit(("다른 말",))]
    assert found[2] == [Unit(("나는 집에서 잔다",), ("나는 잔다",)), Unit(("누가 잔다",), ("사람이 있다",))]


def test_premises_come_with_what_they_entail(material: Material) -> None:
    _, plain, others = material.units()
    korean_nli = {unit.versions[0]: unit.entails for unit in plain if unit.entails}
    assert korean_nli
    for units in (korean_nli, {unit.versions[0]: unit.entails for unit in others}):
        assert all(entails == (f"yes {text}",) for text, entails in units.items())
    held = replace(material, plain=[text for text in material.plain if not text.startswith("yes ")])
    assert not any(unit.entails for unit in held.units()[1]), "what an evaluation set has too is not asked"


def test_scored_sets_as_one(material: Material) -> None:
    assert len(material.scored()) == sum(map(len, material.sts.values()))
    assert rows_of(material.scored("stsb")) == rows_of(material.sts["stsb"])


def test_every_band_of_scores_is_learned_equally_often(material: Material) -> None:
    assert BiPlan().score_bands == material.bands == 10
    found = material.graded()
    assert found.columns == join([evenly(one, 10) for one in material.sts.values()], name="sts").columns
    assert rows_of(found) <= rows_of(material.scored())
    assert replace(material, bands=1).graded().columns == material.scored().columns


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80), st.integers(2, 12))
def test_evenly(scores: list[float], bands: int) -> None:
    given_rows = Examples(
        "gold",
        "scored",
        {"a": [f"{row}" for row in range(len(scores))], "b": ["b"] * len(scores)},
        np.array(scores, np.float32),
    )
    found = evenly(given_rows, bands)
    assert found.targets is not None
    of = dict(zip(given_rows.columns["a"], given_rows.targets.tolist(), strict=True))
    assert [of[text] for text in found.columns["a"]] == found.targets.tolist(), "each with its own score"
    counts = Counter(min(int(score * bands), bands - 1) for score in found.targets.tolist())
    assert set(counts) == {min(int(score * bands), bands - 1) for score in of.values()}
    assert len(set(counts.values())) == 1
    assert 2 * len(scores) <= len(found) < 2 * len(scores) + bands
    often = Counter(found.columns["a"])
    for band in counts:
        inside = [often[text] for text, score in of.items() if min(int(score * bands), bands - 1) == band]
        assert max(inside) - min(inside) <= 1, "no row of a band much oftener than another"
    assert evenly(given_rows, bands).columns == found.columns
    assert evenly(given_rows, 1) is given_rows


def test_a_share_of_the_rows(data: Path, material: Material) -> None:
    small = read_material(data, replace(BiPlan(), rows=0.25))
    assert len(small.translations) == -(-len(material.translations) // 4)
    assert {name: len(one) for name, one in small.nli.items()} == {"ko": 12, "en": 24}
    assert rows_of(small.dictionary) == set(entries()[::4])
    assert set(small.plain) < set(material.plain)
    assert len(small.pool()) < 0.4 * len(material.pool())
    assert {name: len(one) for name, one in small.sts.items()} == {name: len(one) for name, one in material.sts.items()}


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        "parallel-en-ko/train.tsv",
        "klue-sts/train.csv",
        "korsts/sts-dev.tsv",
        "snli-en/test.tsv",
        "nsmc/reviews.txt",
        "wordnet/data.adv",
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    data = data_folder(tmp_path)
    (data / file).unlink()
    with pytest.raises(DataError, match=f"there is no {file}"):
        read_material(data, BiPlan())
