"""The word table gives the ids of the `tokenizers` library, for every kind of tokenizer and for any text."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from munjang.text import fast_words
from munjang.text.fast_words import SplitRules, WordTokenizer, check_unicode, steps
from munjang.text.tokenizer import Tokenizer

Backends = dict[str, Callable[[], tokenizers.Tokenizer]]

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


def word_tokenizer(tokenizer: Tokenizer) -> WordTokenizer:
    """A copy with an empty table."""
    assert tokenizer.words is not None, "the fast path is off"
    return copy.deepcopy(tokenizer.words)


def expected(backend: tokenizers.Tokenizer, batch: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend.encode_batch(batch, add_special_tokens=False)]


def rows(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])] if len(lengths) else []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every call into the library."""
    seen: list[list[str]] = []
    original = fast_words.encodings

    def counting(backend: tokenizers.Tokenizer, inputs: list[str], **options: bool) -> list[tokenizers.Encoding]:
        seen.append(list(inputs))
        return original(backend, inputs, **options)

    monkeypatch.setattr(fast_words, "encodings", counting)
    return seen


@settings(max_examples=120, deadline=None)
@given(batch=st.lists(texts, max_size=6))
def test_same_ids_as_the_library(any_tokenizer: Tokenizer, batch: list[str]) -> None:
    assert any_tokenizer.words is not None, "the fast path is off"
    assert rows(*any_tokenizer.words.encode(batch)) == expected(any_tokenizer.backend, batch)


def test_same_ids_for_every_short_text_of_odd_characters(any_tokenizer: Tokenizer) -> None:
    characters = ["a", "한", " ", "\n", "\u00a0", "\u0301", "\u0d4e", "▁", "¨"]
    batch = ["".join(parts) for length in range(5) for parts in product(characters, repeat=length)]
    batch += [f"a{chr(code)}b" for code in range(0x3100)]
    assert any_tokenizer.words is not None
    fast = rows(*any_tokenizer.words.encode(batch))
    plain = expected(any_tokenizer.backend, batch)
    assert [text for text, ours, theirs in zip(batch, fast, plain, strict=True) if ours != theirs] == []


@settings(max_examples=60, deadline=None)
@given(batch=st.lists(texts, max_size=4))
def test_same_ids_from_an_empty_table(minilm: Tokenizer, batch: list[str]) -> None:
    words = word_tokenizer(minilm)
    assert rows(*words.encode(batch)) == expected(minilm.backend, batch)
    assert rows(*words.encode(batch)) == expected(minilm.backend, batch), "the second time, from the table"


def test_known_words_do_not_reach_the_library(any_tokenizer: Tokenizer, calls: list[list[str]]) -> None:
    """Otherwise the tests above could pass without a fast path."""
    words = word_tokenizer(any_tokenizer)
    batch = ["the quick brown fox", "서울의 날씨는 맑고"]
    first = rows(*words.encode(batch))
    assert calls
    calls.clear()
    assert rows(*words.encode(batch)) == first
    assert calls == []


def test_texts_with_line_breaks_use_the_table(minilm: Tokenizer, calls: list[list[str]]) -> None:
    words = word_tokenizer(minilm)
    words.encode(["one two three"])
    calls.clear()
    assert rows(*words.encode(["one\ntwo\r\n\u3000three"])) == expected(minilm.backend, ["one two three"])
    assert calls == []


@pytest.mark.parametrize(("limit", "value"), [("_MAX_WORDS", 50), ("_MAX_PIECES", 60)])
def test_a_full_table_is_emptied(
    minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]], limit: str, value: int
) -> None:
    monkeypatch.setattr(fast_words, limit, value)
    words = word_tokenizer(minilm)
    for start in range(0, 200, 20):
        batch = [f"w{number} common" for number in range(start, start + 20)]
        assert rows(*words.encode(batch)) == expected(minilm.backend, batch)
    learned = [call for call in calls if any("common" in text for text in call)]
    assert 1 < len(learned) < 10, "'common' is learned again, but not each time"


def test_long_words_are_not_stored(minilm: Tokenizer, calls: list[list[str]]) -> None:
    words = word_tokenizer(minilm)
    words.encode(["the"])
    for _ in range(2):
        calls.clear()
        assert rows(*words.encode(["x" * 65 + " the"])) == expected(minilm.backend, ["x" * 65 + " the"])
        assert calls == [["x" * 65 + " the"]]


def test_a_failure_while_learning_loses_nothing(minilm: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    words = word_tokenizer(minilm)
    with monkeypatch.context() as patch:
        patch.setattr(fast_words, "encodings", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            words.encode(["unheard-of wordings"])
    assert rows(*words.encode(["unheard-of wordings"])) == expected(minilm.backend, ["unheard-of wordings"])


def test_words_that_contain_special_tokens(any_tokenizer: Tokenizer) -> None:
    words = word_tokenizer(any_tokenizer)
    for token in any_tokenizer.backend.get_added_tokens_decoder().values():
        special = token.content
        batch = [f"a{special}b", f"{special}{special} c", special[:-1] + " " + special[1:], "fresh words here"]
        assert rows(*words.encode(batch)) == expected(any_tokenizer.backend, batch)


def test_a_separator_destroyed_and_another_one_added(local_backends: Backends) -> None:
    """The number of separators is right, but one of them belongs to a word."""
    backend = local_backends["wordpiece-lower"]()
    special = [token.content for token in backend.get_added_tokens_decoder().values()]
    backend.add_tokens([AddedToken("zz[", normalized=False)])
    words = WordTokenizer.for_backend(backend)
    assert words is not None
    for separator in special:
        batch = ["zz", f"a{separator}b", "the fox"]
        assert rows(*words.encode(batch)) == expected(backend, batch)


def test_many_threads(minilm: Tokenizer) -> None:
    words = word_tokenizer(minilm)
    batches = [[f"thread {t} says {n * t} and w{n % 37}x{t % 3}" for n in range(200)] for t in range(6)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for start in range(0, 200, 20):
            part = batches[number][start : start + 20]
            if rows(*words.encode(part)) != expected(minilm.backend, part):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pickled(any_tokenizer: Tokenizer) -> None:
    words = pickle.loads(pickle.dumps(any_tokenizer.words))
    batch = ["the quick brown fox", "서울의 날씨는\n맑고"]
    assert rows(*words.encode(batch)) == expected(any_tokenizer.backend, batch)


def test_off_for_added_tokens_with_spaces(local_backends: Backends) -> None:
    backend = local_backends["wordpiece-lower"]()
    backend.add_tokens([AddedToken("quick brown", normalized=False)])
    tokenizer = Tokenizer(backend, max_length=32)
    assert tokenizer.words is None
    batch = ["the quick brown fox"]
    assert tokenizer.encode(batch).ids.tolist() == backend.encode(batch[0]).ids


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("pre_tokenizer", pre_tokenizers.Punctuation()),
        ("pre_tokenizer", pre_tokenizers.Metaspace(split=False)),
        ("pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        ("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.WhitespaceSplit()])),
        ("normalizer", normalizers.Prepend("x")),
        ("normalizer", normalizers.Replace("n b", "z")),
        ("normalizer", normalizers.Replace(tokenizers.Regex("^t"), "z")),
        ("model", models.BPE({"a": 0, "b": 1}, [], dropout=0.1)),
    ],
)
def test_off_for_unknown_components(local_backends: Backends, name: str, component: object) -> None:
    backend = local_backends["wordpiece-lower"]()
    assert WordTokenizer.for_backend(backend) is not None
    setattr(backend, name, component)
    assert WordTokenizer.for_backend(backend) is None


def test_the_self_check_switches_off(local_backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SplitRules(drops_spaces=True, first_differs=False, refuses=None, spaces="")
    monkeypatch.setattr(fast_words, "split_rules", lambda backend: wrong)
    assert WordTokenizer.for_backend(local_backends["byte-level"]()) is None
    assert WordTokenizer.for_backend(local_backends["wordpiece-lower"]()) is not None


def test_steps_of_nested_sequences() -> None:
    inner = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    nested = normalizers.Sequence([normalizers.Strip(), inner, normalizers.Lowercase()])
    assert [step["type"] for step in steps(nested)] == ["Strip", "NFD", "StripAccents", "Lowercase"]
    assert [step["type"] for step in steps(pre_tokenizers.BertPreTokenizer())] == ["BertPreTokenizer"]
    assert steps(None) == []


def test_lone_surrogates_have_a_position() -> None:
    check_unicode(["fine", "👍"])
    with pytest.raises(ValueError, match="text 8 is not valid Unicode"):
        check_unicode(["fine", "x\ud800"], first=7)
    with pytest.raises(ValueError, match=r"pair 1, second text is not valid Unicode.*character 1"):
        check_unicode([("a", "b"), ("c", "x\ud800")])
