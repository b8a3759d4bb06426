"""First rows by a guide: the map against scikit-learn's, what it is fitted on, what it gives, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from tokenizers import models, pre_tokenizers

from munjang.checkpoint import BiParts
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.students import StudentPlan, VocabularyPlan, guided, make_student
from munjang.students.guided import FEWEST, RIDGES, fitting_words
from munjang.students.vocabulary import OldVocabulary, old_vocabulary
from munjang.text.tokenizer import Tokenizer
from students.material import ENGLISH, KOREAN, TEXTS, parts_of

GUIDED = StudentPlan(vocabulary=VocabularyPlan(400, embeddings="guide"))
WIDTH = 6
# New pieces (words that come often enough are one piece) and the old pieces that they shall mean.
MEANT = {"고양이가": "cat", "집에서": "home", "학교에": "at", "차를": "tea", "책을": "the"}


class Guide:
    """A vector for every text by its hash, but for those whose vector is that of another text."""

    dimension = WIDTH

    def __init__(self, same: Mapping[str, str] | None = None, *, seed: int = 0) -> None:
        self.same, self.seed = same or {}, seed
        self.fingerprint = f"guide {seed} {sorted(self.same.items())}"
        self.texts: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.texts += texts
        return np.stack([self.of(self.same.get(text, text)) for text in texts])

    def of(self, text: str) -> np.ndarray:
        return np.random.default_rng([self.seed, *text.encode()]).normal(size=WIDTH)


def lawful(guide: Guide, *, noise: float = 0.0) -> BiParts:
    """A model whose table is a linear function of what the guide says of its pieces, with an intercept."""
    parts = parts_of("bert")
    generator = np.random.default_rng(3)
    vocabulary = old_vocabulary(parts.tokenizer, keep_added=True)
    table = parts.body.embeddings.word.weight  # [rows, 32]
    weights, intercept = generator.normal(size=(WIDTH, table.shape[1])), generator.normal(size=table.shape[1])
    with torch.no_grad():
        for piece in vocabulary.pieces:
            row = guide.of(vocabulary.letters_of(piece)) @ weights + intercept
            row += noise * generator.normal(size=len(row))
            table[vocabulary.ids[piece]] = torch.from_numpy(row).float()
    return parts


def table_of(parts: BiParts) -> np.ndarray:
    return parts.body.embeddings.word.weight.detach().numpy()


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@given(st.integers(0, 10**6), st.integers(12, 40), st.integers(1, 9), st.sampled_from(RIDGES))
@settings(max_examples=40, deadline=None)
def test_the_map_is_ridge_regression(seed: int, count: int, width: int, ridge: float) -> None:
    generator = np.random.default_rng(seed)
    said, rows = generator.normal(1, 2, (count, width)), generator.normal(size=(count, 5))
    spread = said - said.mean(axis=0)
    alpha = ridge * np.trace(spread.T @ spread) / width
    new = generator.normal(size=(7, width))
    expected = Ridge(alpha=alpha).fit(said, rows).predict(new)
    np.testing.assert_allclose(guided._fitted(said, rows)(ridge)(new), expected, atol=1e-8)


def test_a_new_piece_gets_the_row_of_what_the_guide_takes_it_for() -> None:
    guide = Guide(MEANT)
    parts = lawful(guide)
    student = make_student(parts, GUIDED, texts=TEXTS * 3, guide=guide)
    figures: Any = student.report["vocabulary"]
    assert figures["embeddings"]["from the guide"] == figures["new"] > 50
    assert figures["guide"]["R2"] > 0.98
    assert figures["guide"]["cosine"] > 0.99
    assert not any("guide" in note for note in student.notes)
    before, after = table_of(parts), table_of(student.parts)
    old, new = parts.tokenizer.backend, student.parts.tokenizer.backend
    vocabulary = old_vocabulary(parts.tokenizer, keep_added=True)
    ordinary = before[[vocabulary.ids[piece] for piece in vocabulary.pieces]]
    for korean, english in MEANT.items():
        row = after[new.token_to_id(korean)]
        assert cosine(row, before[old.token_to_id(english)]) > 0.99
        assert np.linalg.norm(row) == pytest.approx(np.median(np.linalg.norm(ordinary, axis=1)), rel=1e-4)
    for piece in ("cat", "the", "##es"):
        np.testing.assert_array_equal(after[new.token_to_id(piece)], before[old.token_to_id(piece)])
    assert set(figures["embeddings"]) >= {"kept", "from the guide", "from translations and the guide", "random"}
    assert all("##" not in text for text in guide.texts)


def test_the_same_seed_gives_the_same_rows() -> None:
    guide = Guide(MEANT)
    tables = [table_of(make_student(lawful(guide), GUIDED, texts=TEXTS * 3, guide=guide).parts) for _ in range(2)]
    np.testing.assert_array_equal(*tables)


def test_with_translations_a_row_lies_halfway() -> None:
    guide = Guide(MEANT)
    parts = lawful(guide)
    pair = (ENGLISH * 3, KOREAN * 3)
    by = {
        way: make_student(parts, replace(GUIDED, vocabulary=VocabularyPlan(400, embeddings=way)), **given)
        for way, given in (
            ("translations", {"translations": pair}),
            ("guide", {"texts": [*pair[0], *pair[1]], "guide": guide}),
        )
    }
    both = make_student(parts, GUIDED, translations=pair, guide=guide)
    figures: Any = both.report["vocabulary"]
    counts = figures["embeddings"]
    assert counts["from translations and the guide"] > 20
    assert counts["from translations"] == 0
    assert counts["from translations and the guide"] + counts["from the guide"] == figures["new"]
    assert figures["aligned pairs"] == len(pair[0])
    place = both.parts.tokenizer.backend.token_to_id("고양이가")
    first, second, found = (table_of(one.parts)[place] for one in (by["translations"], by["guide"], both))
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(first), rel=1e-4)
    assert cosine(found, first) == pytest.approx(cosine(found, second), abs=1e-4)
    np.testing.assert_allclose(
        found / np.linalg.norm(found), (first + second) / np.linalg.norm(first + second), atol=1e-5
    )


def test_a_guide_that_says_nothing_is_told_of() -> None:
    parts = lawful(Guide(seed=1))
    student = make_student(parts, GUIDED, texts=TEXTS * 3, guide=Guide(seed=2))
    figures: Any = student.report["vocabulary"]
    assert figures["guide"]["R2"] < 0.05
    assert any("the guide says little about the words" in note for note in student.notes)


def test_the_strongest_ridge_that_costs_next_to_nothing() -> None:
    generator = np.random.default_rng(0)
    said = generator.normal(size=(400, WIDTH))
    rows = said @ generator.normal(size=(WIDTH, 8)) + 0.5 * generator.normal(size=(400, 8))
    ridge, figures = guided._chosen(said, rows, 0)
    order = np.random.default_rng(0).permutation(400)
    held, used = order[:40], order[40:]
    mean = rows[used].mean(axis=0)
    fitted = guided._fitted(said[used], rows[used])
    scores = {
        one: 1 - ((fitted(one)(said[held]) - rows[held]) ** 2).sum() / ((rows[held] - mean) ** 2).sum()
        for one in RIDGES
    }
    enough = [one for one, score in scores.items() if score >= 0.95 * max(scores.values())]
    assert ridge == max(enough)
    assert RIDGES[0] < ridge < RIDGES[-1]
    assert figures["R2"] == pytest.approx(scores[ridge], abs=1e-4)
    assert guided._chosen(said, generator.normal(size=(400, 8)), 0)[0] == RIDGES[-1]


def small(kind: str) -> Tokenizer:
    """Two whole words, a word of two letters, parts of words, marks; and a Korean word in bytes."""
    if kind == "wordpiece":
        pieces = ["[UNK]", "[PAD]", "cat", "집에서", "at", "##ing", "##s", "a1", "!"]
        backend = tokenizers.Tokenizer(models.WordPiece({p: n for n, p in enumerate(pieces)}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    elif kind == "unigram":
        pieces = ["<unk>", "<pad>", "▁cat", "▁집에서", "▁at", "ing", "s", "▁a1", "▁"]
        backend = tokenizers.Tokenizer(models.Unigram([(p, -1.0) for p in pieces], unk_id=0))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        written = pre_tokenizers.ByteLevel(add_prefix_space=True).pre_tokenize_str("집에서")[0][0]
        pieces = ["<unk>", "<pad>", "Ġcat", written, "Ġat", "ing", "s", "Ġa1", written[1:3]]
        backend = tokenizers.Tokenizer(models.BPE({p: n for n, p in enumerate(pieces)}, [], unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    backend.add_special_tokens(pieces[:2])
    return Tokenizer(backend, max_length=8, pad_id=1, config={"unk_token": pieces[0]})


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bytes"])
def test_words_of_every_kind_of_vocabulary(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = small(kind)
    vocabulary = old_vocabulary(tokenizer, keep_added=True)
    assert fitting_words(tokenizer, vocabulary) == {2: "cat", 3: "집에서", 4: "at", 5: "ing", 6: "s"}
    # Where there are enough whole words of three letters or more, nothing else counts.
    monkeypatch.setattr(guided, "_WHOLE", 2)
    assert fitting_words(tokenizer, vocabulary) == {2: "cat", 3: "집에서"}
    monkeypatch.setattr(guided, "_WHOLE", 3)
    monkeypatch.setattr(guided, "_MOST", 2)
    assert fitting_words(tokenizer, vocabulary) == {2: "cat", 4: "at"}


def test_a_model_is_a_guide_and_progress_ends_at_its_total() -> None:
    told: list[tuple[int, int | None]] = []
    model = BiEncoder(parts_of("distilbert"), device="cpu", dtype="float32")
    student = make_student(
        parts_of("bert"), GUIDED, texts=TEXTS * 2, guide=model, progress=lambda *one: told.append(one)
    )
    figures: Any = student.report["vocabulary"]
    assert figures["guide"]["guide's width"] == 32
    assert figures["embeddings"]["from the guide"] == figures["new"]
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_a_wholly_new_vocabulary_of_another_kind() -> None:
    """Old words are found in a vocabulary of bytes, and every new piece is new."""
    guide = Guide()
    plan = StudentPlan(vocabulary=VocabularyPlan(300, keep="none", embeddings="guide"))
    student = make_student(parts_of("roberta"), plan, texts=TEXTS * 3, guide=guide)
    figures: Any = student.report["vocabulary"]
    assert figures["embeddings"]["from the guide"] == figures["new"]
    assert {"는다", "the", "man"} <= set(guide.texts)


class Broken(Guide):
    """Answers with something else."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def encode(self, texts: list[str]) -> np.ndarray:
        return self.answer(super().encode(texts))


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of("bert")
    pieces = StudentPlan(vocabulary=VocabularyPlan(400))
    unused = Broken(lambda rows: pytest.fail("nothing may be encoded"))
    with pytest.raises(InputError, match="needs guide="):
        make_student(parts, GUIDED, texts=TEXTS)
    for plan in (pieces, StudentPlan(layers=1)):
        with pytest.raises(InputError, match="a guide is for a plan with"):
            make_student(parts, plan, texts=TEXTS, guide=unused)
    with pytest.raises(InputError, match="got str"):
        make_student(parts, GUIDED, texts=TEXTS, guide="a folder")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="embeddings must be one of pieces, translations, guide"):
        VocabularyPlan(400, embeddings="dictionary")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"one vector for each of \d+ texts.*shape"):
        make_student(parts, GUIDED, texts=TEXTS, guide=Broken(lambda rows: rows[1:]))
    with pytest.raises(InputError, match="not finite"):
        make_student(parts, GUIDED, texts=TEXTS, guide=Broken(lambda rows: rows * np.nan))
    widths = iter([WIDTH, WIDTH - 1])
    with pytest.raises(InputError, match=rf"{WIDTH}\], got an array of shape \[\d+, {WIDTH - 1}\]"):
        make_student(parts, GUIDED, texts=TEXTS, guide=Broken(lambda rows: rows[:, : next(widths)]))
    monkeypatch.setattr(OldVocabulary, "pieces", property(lambda self: ["cat", "the", "!"]))
    with pytest.raises(InputError, match=f"only 2 of its pieces are made of letters, and it takes {FEWEST}"):
        make_student(parts, GUIDED, texts=TEXTS, guide=unused)
