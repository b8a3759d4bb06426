"""The word table gives the backend's ids, for every kind of tokenizer it is used for, and for any text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from munjang.text import words
from munjang.text.locality import locality_of
from munjang.text.ragged import from_lists
from munjang.text.tokenizer import Tokenizer
from munjang.text.words import WordPath

NASTY = [
    *(
        " ",
        "  ",
        "\n",
        "\t",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\u200d",
        "\u00ad",
        "\ufeff",
        "\u0085",
        "\x00",
        "\x0b",
        "\x1f",
    ),
    *("한국어", "문장", "ㅎㅎ", "\u1112\u1161\u11ab", "\u1161", "\u11ab", "가\u0301", "e\u0301", "\u0301", "\u0308a"),
    *("İ", "ß", "ﬁ", "¨", "Ⅳ", "½", "ﷺ", "Σ", "漢字", "と", "，", "。", "…", "👍🏽", "🇰🇷", "👩\u200d👩\u200d👧", "☃️"),
    *("[SEP]", "[MASK]", "[UNK]", "<mask>", "</s>", "<s>", "[SE", "P]", "▁", "##ing", "_", "Ġ", "\u0d4e", "ﾞ"),
    *("the", "Don't", "it's", "3.14", "e-mail", "x" * 70, "a" * 120, "!", "...", "'", "'s", "1,000"),
]
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(NASTY), max_size=12).map("".join),
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=6)), max_size=12).map(" ".join),
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=3).map(" ".join),
    st.text(alphabet="aA한▁ \u0301\u0d4e\u00a0\n", max_size=8),
)


def path_of(tokenizer: Tokenizer) -> WordPath:
    path = WordPath.for_backend(tokenizer.backend)
    assert path is not None, "the fast path is off"
    return path


def expected(backend: tokenizers.Tokenizer, batch: list[str]) -> list[list[int]]:
    return [backend.encode(text, add_special_tokens=False).ids for text in batch]


def rows(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])] if len(lengths) else []


@settings(max_examples=120, deadline=None)
@given(batch=st.lists(texts, max_size=6))
def test_same_ids_as_the_backend(any_tokenizer: Tokenizer, batch: list[str]) -> None:
    assert any_tokenizer._words is not None, "the fast path is off"
    assert rows(*any_tokenizer._words.encode(batch)) == expected(any_tokenizer.backend, batch)


def test_same_ids_for_every_short_text_of_odd_characters(any_tokenizer: Tokenizer) -> None:
    characters = ["a", "한", " ", "\n", "\u00a0", "\u0301", "\u0d4e", "▁", "¨"]
    batch = ["".join(parts) for length in range(5) for parts in product(characters, repeat=length)]
    batch += [f"a{chr(code)}b" for code in range(0x3100)]
    assert any_tokenizer._words is not None
    found = rows(*any_tokenizer._words.encode(batch))
    plain = [encoding.ids for encoding in any_tokenizer.backend.encode_batch(batch, add_special_tokens=False)]
    wrong = [text for text, ours, theirs in zip(batch, found, plain, strict=True) if ours != theirs]
    assert wrong == []


@settings(max_examples=60, deadline=None)
@given(batch=st.lists(texts, max_size=4))
def test_same_ids_from_an_empty_table(minilm: Tokenizer, batch: list[str]) -> None:
    path = WordPath(minilm.backend, minilm._words._locality)  # type: ignore[union-attr]
    assert rows(*path.encode(batch)) == expected(minilm.backend, batch)
    assert rows(*path.encode(batch)) == expected(minilm.backend, batch), "the second time, from the table"


def test_the_table_is_what_answers(any_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known words do not reach the backend: otherwise the test above could pass without a fast path."""
    path = path_of(any_tokenizer)
    batch = ["the quick brown fox", "서울의 날씨는 맑고"]
    before = rows(*path.encode(batch))
    monkeypatch.setattr(words, "encode_ids", lambda *_, **__: pytest.fail("the backend was asked"))
    assert rows(*path.encode(batch)) == before


def test_texts_with_line_breaks_use_the_table(minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(minilm)
    path.encode(["one two three"])
    monkeypatch.setattr(words, "encode_ids", lambda *_, **__: pytest.fail("the backend was asked"))
    assert rows(*path.encode(["one\ntwo\r\n\u3000three"])) == expected(minilm.backend, ["one two three"])


def test_the_table_forgets(minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 50)
    path = path_of(minilm)
    for start in range(0, 400, 20):
        batch = [f"w{number} common" for number in range(start, start + 20)]
        assert rows(*path.encode(batch)) == expected(minilm.backend, batch)
        assert len(path._table.numbers) < 100


def test_long_words_are_not_stored(minilm: Tokenizer) -> None:
    path = path_of(minilm)
    before = len(path._table.numbers)
    path.encode(["x" * 65, "y" * 1000 + " the"])
    assert len(path._table.numbers) <= before + 1


def test_a_failure_while_learning_leaves_no_holes(minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(minilm)
    with monkeypatch.context() as patch:
        patch.setattr(WordPath, "_tokenised", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            path.encode(["unheard-of wordings"])
    assert rows(*path.encode(["unheard-of wordings"])) == expected(minilm.backend, ["unheard-of wordings"])


def test_a_word_with_the_separator_in_it(any_tokenizer: Tokenizer) -> None:
    separator, _ = words._separator_of(any_tokenizer.backend) or pytest.fail("no separator")
    batch = [f"a{separator}b", f"{separator}{separator} c", separator[:-1] + " " + separator[1:], "fresh words here"]
    assert rows(*path_of(any_tokenizer).encode(batch)) == expected(any_tokenizer.backend, batch)


def test_a_separator_destroyed_and_another_one_given(
    local_backends: dict[str, Callable[[], tokenizers.Tokenizer]],
) -> None:
    """The number of separators is right, but one of them is a word's own."""
    backend = _word_piece(local_backends)
    backend.add_tokens([AddedToken("zz[", normalized=False)])
    separator, _ = words._separator_of(backend) or pytest.fail("no separator")
    batch = ["zz", f"a{separator}b", "the fox"]
    path = WordPath.for_backend(backend)
    assert path is not None
    assert rows(*path.encode(batch)) == expected(backend, batch)


def test_many_threads(minilm: Tokenizer) -> None:
    path = path_of(minilm)
    batches = [[f"thread {t} says {n * t} and w{n % 37}x{t % 3}" for n in range(200)] for t in range(6)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for start in range(0, 200, 20):
            part = batches[number][start : start + 20]
            if rows(*path.encode(part)) != expected(minilm.backend, part):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _word_piece(local: dict[str, Callable[[], tokenizers.Tokenizer]]) -> tokenizers.Tokenizer:
    return local["wordpiece-lower"]()


def test_off_for_added_tokens_with_spaces(local_backends: dict[str, Callable[[], tokenizers.Tokenizer]]) -> None:
    backend = _word_piece(local_backends)
    backend.add_tokens([AddedToken("quick brown", normalized=False)])
    assert locality_of(backend) is None
    tokenizer = Tokenizer.from_backend(backend, max_length=32)
    batch = ["the quick brown fox"]
    assert tokenizer.encode(batch).ids.tolist() == backend.encode(batch[0]).ids


def test_off_for_whatever_is_not_known(local_backends: dict[str, Callable[[], tokenizers.Tokenizer]]) -> None:
    changes: list[tuple[str, object]] = [
        ("pre_tokenizer", pre_tokenizers.Punctuation()),
        ("pre_tokenizer", pre_tokenizers.Metaspace(split=False)),
        ("pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.WhitespaceSplit()])),
        ("normalizer", normalizers.Prepend("x")),
        ("normalizer", normalizers.Replace("n b", "z")),
        ("normalizer", normalizers.Replace(tokenizers.Regex("^t"), "z")),
        ("model", models.BPE({"a": 0, "b": 1}, [], dropout=0.1)),
    ]
    for name, component in changes:
        backend = _word_piece(local_backends)
        assert locality_of(backend) is not None
        setattr(backend, name, component)
        assert locality_of(backend) is None, f"{name} {component}"


def test_the_self_check_switches_off(minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    original = WordPath._tokenised

    def off_by_one(self: WordPath, units: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, lengths = original(self, units)
        return ids + 1, lengths

    monkeypatch.setattr(WordPath, "_tokenised", off_by_one)
    assert WordPath.for_backend(minilm.backend) is None


def test_ragged_of_nothing() -> None:
    ids, lengths = from_lists([])
    assert ids.dtype == lengths.dtype == np.int32
    assert len(ids) == len(lengths) == 0
