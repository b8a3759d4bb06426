"""Small tokenizers of every supported kind, trained on a few sentences, and the real one of MiniLM."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers

from munjang.text.tokenizer import Tokenizer

SENTENCES = [
    "한국어 문장은 띄어쓰기로 나뉜다.",
    "문장을 벡터로 바꾸는 모델이다. 검색과 분류에 쓴다.",
    "오늘 서울의 날씨는 맑고 기온은 25도입니다.",
    "The quick brown fox jumps over the lazy dog.",
    "Don't panic: it's 3.14, isn't it? E-mail me@example.org!",
    "Sentence embeddings for search, clustering and classification.",
    "漢字 と 日本語 が まざる。",
] * 3
# Odd characters that the tests use: a tokenizer that knows none of them would answer every such text with [UNK],
# and texts with unknown words do not reach the word table of some kinds.
SENTENCES += [
    "▁ ▁▁ a▁b _ Ġ ## [ ] < > / s e p m a k x xx u n 's ' ! ... , - .",
    "e\u0301 \u0301 \u0308 \u1112\u1161\u11ab \u1161 \u11ab ㅎㅎ 가\u0301 ﾞ \u0d4e i\u0307 ß fi ¨ IV 1 2 Σ σ ， 。 …",
    "👍🏽 🇰🇷 👩 👧 ☃️ the Don't it's 3.14 e-mail ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz 0123456789",
] * 3
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def _framed(backend: tokenizers.Tokenizer, begin: str, end: str) -> tokenizers.Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B {end}",
        special_tokens=[(name, backend.token_to_id(name)) for name in (begin, end)],
    )
    return backend


def word_piece(*, lowercase: bool = True, strip_accents: bool | None = None) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=BERT, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    return _framed(backend, "[CLS]", "[SEP]")


def whitespace_bpe() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=BERT, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    return _framed(backend, "[CLS]", "[SEP]")


def byte_level(*, add_prefix_space: bool, nfc: bool = False) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    if nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=ROBERTA[:4],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    if nfc:  # as ModernBERT has them: runs of spaces
        backend.add_tokens([AddedToken(" " * n, normalized=True) for n in (2, 3, 4)])
    return _framed(backend, "<s>", "</s>")


def precompiled(rules: Path | None = None) -> normalizers.Normalizer:
    """The map of characters that XLM-R has (SentencePiece's nmt_nfkc), or one with other rules."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
        **({} if rules is None else {"normalization_rule_tsv": str(rules)}),
    )
    parsed = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return normalizers.Precompiled(parsed.normalizer_spec.precompiled_charsmap)


def joining() -> normalizers.Normalizer:
    """A map that looks across spaces: U+0D4E takes the space after it along, U+0301 the one before it."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("D4E\t78\n20 301\t78\n41\t61\n", encoding="utf-8")
        return precompiled(rules)


def stripping() -> normalizers.Normalizer:
    """A word of accents alone becomes nothing, and two spaces meet."""
    return normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])


def unigram(
    scheme: str, *, separated: bool = False, normalizer: Callable[[], normalizers.Normalizer] | None = normalizers.NFKC
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    collapse = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    if normalizer is not None:
        backend.normalizer = normalizers.Sequence([normalizer(), collapse])
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]) if separated else metaspace
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=ROBERTA[:4], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return _framed(backend, "<s>", "</s>")


LOCAL: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "wordpiece-lower": word_piece,
    "wordpiece-cased": lambda: word_piece(lowercase=False),
    "wordpiece-lower-accents": lambda: word_piece(strip_accents=False),
    "whitespace-bpe": whitespace_bpe,
    "byte-level": lambda: byte_level(add_prefix_space=False),
    "byte-level-prefix": lambda: byte_level(add_prefix_space=True),
    "byte-level-nfc": lambda: byte_level(add_prefix_space=False, nfc=True),
    "metaspace-always": lambda: unigram("always"),
    "metaspace-first": lambda: unigram("first"),
    "metaspace-never": lambda: unigram("never"),
    "metaspace-separated": lambda: unigram("always", separated=True),
    "metaspace-bare": lambda: unigram("always", normalizer=None),
    "metaspace-stripping": lambda: unigram("always", normalizer=stripping),
    "precompiled-metaspace": lambda: unigram("always", normalizer=precompiled),
    "precompiled-separated": lambda: unigram("always", separated=True, normalizer=precompiled),
    "joining-metaspace": lambda: unigram("always", normalizer=joining),
    "joining-separated": lambda: unigram("always", separated=True, normalizer=joining),
}


@pytest.fixture(scope="session")
def minilm(minilm_path: Path) -> Tokenizer:
    return Tokenizer.from_folder(minilm_path, max_length=256)


@pytest.fixture(scope="session", params=["minilm", *LOCAL])
def any_tokenizer(request: pytest.FixtureRequest, minilm: Tokenizer) -> Tokenizer:
    """One tokenizer of each kind, the real one first."""
    if request.param == "minilm":
        return minilm
    return Tokenizer(LOCAL[request.param](), max_length=64)


@pytest.fixture(scope="session")
def local_backends() -> dict[str, Callable[[], tokenizers.Tokenizer]]:
    return LOCAL
