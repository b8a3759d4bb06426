"""First rows of new pieces: from old pieces, translations or at random; and IBM Model 1 against its definition."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from munjang.nn.encoder import Encoder
from munjang.students import StudentPlan, VocabularyPlan, make_student
from munjang.students.alignment import align
from munjang.text.fast_words import from_lists
from students.material import ENGLISH, KOREAN, TEXTS, parts_of

ROUNDS = 5


def brute(olds: list[list[int]], news: list[list[int]], empty: int) -> dict[int, dict[int, float]]:
    """Brown et al. 1993, Model 1, word for word: t(old | new) over sets of words with an empty word."""
    t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(ROUNDS):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for old, new in zip(olds, news, strict=True):
            sources = {*new, empty} if new else set()
            for o in set(old):
                total = sum(t[n, o] for n in sources)
                for n in sources:
                    counts[n, o] += t[n, o] / total
                    totals[n] += t[n, o] / total
        t = defaultdict(float, {(n, o): count / totals[n] for (n, o), count in counts.items()})
    table: dict[int, dict[int, float]] = defaultdict(dict)
    for (n, o), value in t.items():
        table[n][o] = value
    return table


rows = st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=1, max_size=12)


@given(rows, st.data())
def test_alignment_is_model_1(olds: list[list[int]], data: st.DataObject) -> None:
    shape = st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=len(olds), max_size=len(olds))
    news = data.draw(shape)
    nothing = np.zeros(7, bool)
    found, _ = align(from_lists(olds), from_lists(news), ignored=nothing, weak=nothing, rounds=ROUNDS)
    empty = max((n for new in news for n in new), default=-1) + 1
    expected = brute(olds, news, empty)
    assert set(found) == {n for n, old in expected.items() if n != empty and old}
    for new, aligned in found.items():
        assert np.isclose(aligned.weights.sum(), 1)
        total = sum(sorted(expected[new].values(), reverse=True)[:8])
        for old, weight in zip(aligned.ids, aligned.weights, strict=True):
            assert np.isclose(weight, expected[new][int(old)] / total, atol=1e-5)
        assert (np.diff(aligned.weights) <= 1e-6).all()


def test_special_tokens_never_answer_and_punctuation_only_alone() -> None:
    olds, news = [[0, 1, 2], [1, 2]], [[0], [1]]
    ignored, weak = np.array([True, False, False]), np.array([False, True, False])
    found, pairs = align(from_lists(olds), from_lists(news), ignored=ignored, weak=weak)
    assert pairs == 2
    assert found[0].ids.tolist() == [2]
    alone, _ = align(from_lists([[0, 1]]), from_lists([[0]]), ignored=ignored, weak=weak)
    assert alone[0].ids.tolist() == [1]


def test_links_stop_at_the_budget_with_short_pairs_first() -> None:
    olds, news = [list(range(50)), [50], [51, 52]], [list(range(9)), [9], [10]]
    nothing = np.zeros(60, bool)
    found, pairs = align(from_lists(olds), from_lists(news), ignored=nothing, weak=nothing, links=6)
    assert pairs == 2
    assert set(found) == {9, 10}


def test_nothing_to_align_is_no_alignment() -> None:
    nothing = np.zeros(3, bool)
    assert align(from_lists([[]]), from_lists([[]]), ignored=nothing, weak=nothing) == ({}, 0)
    assert align(from_lists([[1], []]), from_lists([[], [1]]), ignored=nothing, weak=nothing) == ({}, 0)


def test_a_new_piece_begins_as_the_mean_of_the_old_pieces_it_falls_into() -> None:
    parts = parts_of("bert")
    plan = StudentPlan(vocabulary=VocabularyPlan(400, keep="all", add="any"))
    student = make_student(parts, plan, texts=["the neighbour drinks"] * 5)
    old, new = parts.tokenizer.backend, student.parts.tokenizer.backend
    assert new.encode("neighbour", add_special_tokens=False).tokens == ["neighbour"]
    ids = old.encode("neighbour", add_special_tokens=False).ids
    before = parts.body.embeddings.word.weight
    after = student.parts.body.embeddings.word.weight
    torch.testing.assert_close(after[new.token_to_id("neighbour")], before[ids].mean(dim=0))
    inside = next(t for t in new.get_vocab() if t.startswith("##") and old.token_to_id(t) is None)
    pieces = old.encode(inside[2:], add_special_tokens=False).tokens
    ids = [old.token_to_id(name) or old.token_to_id(name[2:]) for name in ("##" + pieces[0], *pieces[1:])]
    torch.testing.assert_close(after[new.token_to_id(inside)], before[ids].mean(dim=0))


def test_what_the_old_vocabulary_cannot_say_begins_at_random_like_the_table() -> None:
    parts = parts_of("bert")
    plan = StudentPlan(vocabulary=VocabularyPlan(400))
    one, same, other = (make_student(parts, plan, texts=TEXTS * 2, seed=seed) for seed in (1, 1, 2))
    figures: Any = one.report["vocabulary"]
    assert figures["embeddings"]["random"] == figures["new"] > 50
    rows = [s.parts.body.embeddings.word.weight.detach().numpy()[-50:] for s in (one, same, other)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.allclose(rows[0], rows[2])
    table = parts.body.embeddings.word.weight.detach().numpy()
    assert abs(rows[0].std() - table.std()) < 0.02
    assert np.abs(np.corrcoef(rows[0])[np.triu_indices(50, 1)]).mean() < 0.3


def test_jamo_serve_where_the_old_vocabulary_has_them() -> None:
    from dataclasses import replace

    from munjang.text.tokenizer import Tokenizer
    from students.material import word_piece

    parts = parts_of("bert")
    backend = word_piece(texts=[*ENGLISH, *KOREAN])
    body = Encoder(replace(parts.body.config, vocab_size=backend.get_vocab_size()))
    body.initialise(torch.Generator().manual_seed(0))
    parts = replace(parts, body=body.eval(), tokenizer=Tokenizer(backend, max_length=48))
    student = make_student(parts, StudentPlan(vocabulary=VocabularyPlan(400)), texts=TEXTS * 2)
    figures: Any = student.report["vocabulary"]
    assert figures["embeddings"]["from pieces"] == figures["new"]
    ids = backend.encode("책을", add_special_tokens=False).ids
    assert len(ids) > 2
    new = student.parts.tokenizer.backend.token_to_id("책을")
    expected = parts.body.embeddings.word.weight[ids].mean(dim=0)
    torch.testing.assert_close(student.parts.body.embeddings.word.weight[new], expected)


def test_translations_bring_a_word_to_the_rows_of_what_it_means() -> None:
    parts = parts_of("bert")
    nouns = [("cat", "고양이"), ("book", "책"), ("river", "강"), ("tea", "차"), ("school", "학교"), ("letter", "편지")]
    verbs = [("sleeps", "잔다"), ("reads", "읽는다"), ("eats", "먹는다"), ("plays", "논다")]
    pairs = [(f"the {a} {b}", f"{x} {y}") for a, x in nouns for b, y in verbs]
    english, korean = ([pair[side] for pair in pairs] for side in (0, 1))
    plan = StudentPlan(vocabulary=VocabularyPlan(400, embeddings="translations"))
    student = make_student(parts, plan, translations=(english, korean))
    figures: Any = student.report["vocabulary"]
    assert figures["aligned pairs"] == len(pairs)
    assert figures["embeddings"]["from translations"] >= 10
    before = parts.body.embeddings.word.weight.detach().numpy()
    after = student.parts.body.embeddings.word.weight.detach().numpy()
    typical = np.median(np.linalg.norm(before[5:-3], axis=1))
    for word, translation in [*nouns, *verbs]:
        ids = parts.tokenizer.backend.encode(word, add_special_tokens=False).ids
        new = student.parts.tokenizer.backend.token_to_id(translation)
        assert new is not None, translation
        assert np.linalg.norm(after[new]) == pytest.approx(typical, rel=1e-3)
        likeness = after[new] @ before[5:-3].T / np.linalg.norm(after[new]) / np.linalg.norm(before[5:-3], axis=1)
        assert int(likeness.argmax()) + 5 in ids, (word, translation)
