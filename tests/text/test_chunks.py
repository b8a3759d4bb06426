"""Chunks stand where they say, fit the model, cover the text, and do not tear words without need."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from munjang.errors import InputError
from munjang.text.chunks import chunk_all, chunks
from munjang.text.tokenizer import Tokenizer

WORDS = [
    "오늘",
    "서울의",
    "날씨는",
    "맑다.",
    "the",
    "Don't",
    "antidisestablishmentarianism",
    "漢字と日本語",
    "👍🏽",
    "\u0301",
]
WORDS += [
    "\u1112\u1161\u11ab",
    "cafe\u0301",
    "👩\u200d👩\u200d👧",
    "\u200b",
    "\x07",
    "[SEP]",
    "x" * 150,
    "12,345.67",
    "\n",
    "\u3000",
]
documents = st.one_of(
    st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=60).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
)
WHOLE_CHARACTER = 24  # the least room in which any single character fits (U+FDFA is eighteen letters when normalised)


@settings(max_examples=60, deadline=None)
@given(text=documents, room=st.integers(WHOLE_CHARACTER, 40), part=st.floats(0.05, 1))
@example(text="antidisestablishmentarianismcafe\u0301\n", room=30, part=1.0)
def test_chunks_cover_the_text_and_fit(any_tokenizer: Tokenizer, text: str, room: int, part: float) -> None:
    size = room + any_tokenizer.specials
    found = chunks(text, any_tokenizer, size=size, stride=max(1, int(room * part)))
    encoding = any_tokenizer.backend.encode(text, add_special_tokens=False)
    if not encoding.ids:
        assert found == []
        return
    covered = np.zeros(len(text), dtype=bool)
    for chunk in found:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip()
        assert chunk.tokens == len(any_tokenizer.backend.encode(chunk.text).ids) <= size
        assert not covered[chunk.start : chunk.end].all(), "it brings something new"
        covered[chunk.start : chunk.end] = True
    assert all(covered[place] or character.isspace() for place, character in enumerate(text))
    for start, end in encoding.offsets:  # every token lies in a chunk, the space around it aside
        assert covered[start:end].all() or any(map(str.isspace, text[start:end]))
    starts = [chunk.start for chunk in found]
    assert starts == sorted(set(starts))


@settings(max_examples=40, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS[:7]), min_size=1, max_size=80))
def test_words_that_fit_are_not_torn(any_tokenizer: Tokenizer, words: list[str]) -> None:
    text = " ".join(words)
    for chunk in chunks(text, any_tokenizer, size=64, stride=20):
        assert chunk.start == 0 or text[chunk.start - 1] == " "
        assert chunk.end == len(text) or text[chunk.end] == " "


def test_stride_and_overlap(minilm: Tokenizer) -> None:
    text = " ".join(["the"] * 100)
    found = chunks(text, minilm, size=42, stride=20)
    assert [chunk.start // 4 for chunk in found] == [0, 20, 40, 60]
    assert [chunk.tokens for chunk in found] == [42, 42, 42, 42]
    assert found[-1].end == len(text)


def test_a_text_that_fits_is_one_chunk(minilm: Tokenizer) -> None:
    (chunk,) = chunks("  A man is playing a flute.\n", minilm)
    assert (chunk.text, chunk.start, chunk.end, chunk.tokens) == ("A man is playing a flute.", 2, 27, 9)


def test_no_tail_within_the_chunk_before(minilm: Tokenizer) -> None:
    for length in range(38, 44):
        found = chunks(" ".join(["the"] * length), minilm, size=42, stride=39)
        assert len(found) == (1 if length <= 40 else 2)


@pytest.fixture
def letters() -> Tokenizer:
    """A token for every letter, no special tokens; words are also cut at '/'."""
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##a": 2, "/": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend, max_length=64)


def test_a_word_of_exactly_the_size_is_not_cut(letters: Tokenizer) -> None:
    """The last word has more tokens than a chunk may have, so the words are examined one by one."""
    found = chunks("a a/a aa/aaa", letters, size=3, stride=3)
    assert [chunk.text for chunk in found] == ["a", "a/a", "aa/", "aaa"]


def test_a_part_of_a_word_of_exactly_the_size_is_not_cut(letters: Tokenizer) -> None:
    assert [chunk.text for chunk in chunks("a/aaaa", letters, size=4, stride=4)] == ["a/", "aaaa"]


def test_chunks_have_exactly_the_size_where_words_take_more_tokens_alone() -> None:
    """' ab' is one token, 'ab' at the beginning of a text two: a chunk has more tokens alone than inside its text."""
    vocabulary = {token: number for number, token in enumerate(["a", "b", "Ġ", "Ġa", "Ġab"])}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("Ġ", "a"), ("Ġa", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = chunks(" ".join(["ab"] * 9), Tokenizer(backend, max_length=64), size=4, stride=4)
    assert [(chunk.text, chunk.tokens) for chunk in found] == [("ab ab ab", 4)] * 3


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u200b"])
def test_nothing_gives_nothing(minilm: Tokenizer, text: str) -> None:
    assert chunks(text, minilm) == []


def test_a_long_word_is_cut_at_its_punctuation_first(minilm: Tokenizer) -> None:
    text = "/".join(["alpha", "beta", "gamma", "delta"] * 8)
    for chunk in chunks(text, minilm, size=22, stride=10):
        assert set(chunk.text.strip("/").split("/")) <= {"alpha", "beta", "gamma", "delta"}


def test_many_texts(minilm: Tokenizer) -> None:
    texts = ["", "one", "the " * 100, "오늘 " * 90] * 40
    found = list(chunk_all(iter(texts), minilm, size=64, stride=32))
    expected = [(n, chunk) for n, text in enumerate(texts) for chunk in chunks(text, minilm, size=64, stride=32)]
    assert found == expected


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (257, 10), (128, 0), (128, 127)])
def test_limits(minilm: Tokenizer, size: int, stride: int) -> None:
    with pytest.raises(InputError, match=r"must be \d+\.\.\d+"):
        chunk_all([], minilm, size=size, stride=stride)


def test_lone_surrogates_are_named(minilm: Tokenizer) -> None:
    texts = ["fine"] * 70 + ["\ud800"]
    with pytest.raises(InputError, match="text 70 is not valid Unicode"):
        list(chunk_all(texts, minilm))
