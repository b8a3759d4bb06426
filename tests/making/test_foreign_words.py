"""Texts with rare words: which words stand in them, how many gave way, how long they are, what decides them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from models.ko_en_0_1.foreign_words import foreign_texts, whole_words
from munjang.bi_encoder import BiEncoder
from munjang.text.tokenizer import Tokenizer

RARE = [f"rare{letter}" for letter in "abcdefghij"]
FRAMES = [
    "A man reads a book at home, 2 times.",
    "  The woman (of Seoul) doesn't sing!  ",
    "우리 children eat noodles by the river.",
]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=40)


# --- the words of a vocabulary ---------------------------------------------------------------------------------------


def test_whole_words_of_a_vocabulary() -> None:
    pieces = [
        "[UNK]",
        "rain",
        "##ing",
        "Seoul",
        "비가",
        "to",
        "cat",
        "café",
        "x2yz",
        "train",
        "...",
        "[unused1]",
        "abc",
    ]
    backend = tokenizers.Tokenizer(models.WordPiece({piece: row for row, piece in enumerate(pieces)}))
    backend.add_tokens(["added"])
    assert whole_words(Tokenizer(backend, max_length=8)) == ["rain", "cat", "train", "abc"], (
        "in the order of the vocabulary"
    )


def test_whole_words_are_one_piece_each(tiny: Path) -> None:
    tokenizer = BiEncoder.load(tiny, device="cpu").tokenizer
    words = whole_words(tokenizer)
    assert len(words) > 20
    assert {"guitar", "perhaps", "music"} <= set(words)
    assert all(tokenizer.backend.encode(word, add_special_tokens=False).tokens == [word] for word in words)


# --- the texts -------------------------------------------------------------------------------------------------------


@given(
    st.lists(TEXT, max_size=6),
    st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), max_size=5),
    st.integers(0, 25),
    st.integers(0, 9),
)
def test_only_words_of_the_vocabulary_or_of_the_frames(
    sentences: list[str], words: list[str], count: int, seed: int
) -> None:
    found = foreign_texts(sentences, words, count=count, seed=seed)
    possible = any(text.strip() for text in sentences) and words
    assert len(found) == (count if possible else 0)
    assert all(text.strip() for text in found), "none is empty"
    known = {*words, *(run for text in sentences for run in re.findall("[A-Za-z]+", text))}
    for text in found:
        # What gave way is a part of a run of letters that may touch nothing else: the runs stay whole.
        assert set(re.findall("[A-Za-z]+", text)) <= known
    # All but the content words stays as it was, sentence for sentence.
    rests = {re.sub("[A-Za-z]{3,}", "", text.strip()) for text in sentences}
    framed = {rest for rest in rests if rest.strip()}
    alone = [re.sub("[A-Za-z]{3,}", "", text) for text in found]
    assert all(not text.strip() or any(rest.strip() in text for rest in framed) for text in alone)
    assert found == foreign_texts(iter(sentences), words, count=count, seed=seed)


@pytest.mark.parametrize("frame", FRAMES)
def test_words_of_three_letters_and_all_that_is_no_word_stay(frame: str) -> None:
    rare = "|".join(RARE)
    pieces = re.split(r"([A-Za-z]{4,})", frame.strip())
    one = "".join(f"(?:{piece}|{rare})" if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))
    found = foreign_texts([frame], RARE, count=300, seed=0)
    framed = [text for text in found if not re.fullmatch(rf"({rare})( ({rare}))*", text)]
    assert 150 < len(framed) < 270
    assert all(re.fullmatch(f"{one}( {one})*", text) for text in framed)


def test_shares_of_the_words_and_of_the_kinds_and_lengths() -> None:
    frame = " ".join(f"{'word' * (1 + place % 2)}{'xyz'[place % 3]}" for place in range(40)) + "."
    found = foreign_texts([frame], RARE, count=3000, seed=1)
    bare = [text for text in found if "." not in text]
    assert len(bare) / len(found) == pytest.approx(0.3, abs=0.03)
    numbers = [len(text.split()) for text in bare]
    assert all(set(text.split()) <= set(RARE) for text in bare)
    assert set(numbers) == set(range(1, 7))
    assert np.mean(numbers) == pytest.approx(3.5, abs=0.15)
    framed = [text for text in found if "." in text]
    sentences = [text.count(".") for text in framed]
    assert set(sentences) == set(range(1, 9))
    assert np.mean(sentences) == pytest.approx(4.5, abs=0.2)
    assert all(len(text.split()) == 40 * count for text, count in zip(framed, sentences, strict=True))
    shares = np.array([np.mean([word.strip(".") in RARE for word in text.split()]) for text in framed])
    assert shares.mean() == pytest.approx(0.5, abs=0.02)
    long = shares[np.array(sentences) >= 4]  # of 160 words and more, so that the share is near what was drawn
    assert 0.1 < long.min() < 0.25
    assert 0.75 < long.max() < 0.9
    assert np.histogram(long, bins=[0.2, 0.4, 0.6, 0.8])[0].min() > 0.25 * len(long), "each as likely as any other"


def test_every_word_is_as_likely_as_any_other() -> None:
    found = foreign_texts(FRAMES, RARE, count=3000, seed=0)
    counts = np.array([sum(text.count(word) for text in found) for word in RARE])
    assert counts.sum() > 10_000
    assert counts.max() < 1.15 * counts.min()


def test_a_sentence_that_stands_twice_counts_once() -> None:
    assert foreign_texts(["a bird sings.", *FRAMES], RARE, count=50, seed=0) == foreign_texts(
        ["a bird sings."] * 3 + [" ", *FRAMES, FRAMES[0], ""], RARE, count=50, seed=0
    )


def test_seeds_and_empties() -> None:
    one, same, other = (foreign_texts(FRAMES, RARE, count=30, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert one != other
    assert len(set(one)) > 20
    assert foreign_texts(FRAMES, RARE, count=10, seed=0) == one[:10], "more texts change none before"
    assert foreign_texts([], RARE, count=5, seed=0) == []
    assert foreign_texts(["", "  "], RARE, count=5, seed=0) == []
    assert foreign_texts(FRAMES, [], count=5, seed=0) == []
    assert foreign_texts(FRAMES, RARE, count=0, seed=0) == []
