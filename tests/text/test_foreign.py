"""Every kind of folder gives the ids of transformers, or an error with a reason."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from munjang.errors import MissingExtraError, ModelError, ModelWarning
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer

TEXTS = ["A man is playing a flute.", "Café 漢字 naïve", "오늘 서울의 날씨는 맑다.", "", "[MASK] x <mask> y"]
TRAINING = [*TEXTS, "문장을 벡터로 바꾸는 모델이다.", "the quick brown fox jumps over the lazy dog"] * 4


def rows(tokens: Tokens) -> list[list[int]]:
    ids = iter(tokens.ids.tolist())
    return [[next(ids) for _ in range(length)] for length in tokens.lengths]


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def transformers_ids(folder: Path) -> list[list[int]]:
    transformers = pytest.importorskip("transformers")
    ids: list[list[int]] = transformers.AutoTokenizer.from_pretrained(str(folder))(TEXTS)["input_ids"]
    return ids


@pytest.fixture
def vocab(minilm_path: Path) -> str:
    return (minilm_path / "vocab.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
    ],
)
def test_vocab_txt(tmp_path: Path, vocab: str, options: dict[str, Any]) -> None:
    files = {"vocab.txt": vocab, "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", **options}}
    write(tmp_path, files)
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.words is not None
    assert rows(tokenizer.encode(TEXTS)) == transformers_ids(tmp_path)
    assert tokenizer.pad_id == 0


def test_lower_case_tears_hangul_as_trained(tmp_path: Path, vocab: str) -> None:
    write(tmp_path, {"vocab.txt": vocab})
    tokens = Tokenizer.from_folder(tmp_path).encode(["한"])
    assert tokens.lengths.tolist() == [5], "three jamo and two special tokens"


def test_vocab_txt_with_other_names_and_added_tokens(tmp_path: Path) -> None:
    files = {
        "vocab.txt": "<pad>\n<unk>\n<s>\n</s>\nhello\r\nworld",
        "special_tokens_map.json": {
            "cls_token": {"content": "<s>"},
            "sep_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
        },
        "added_tokens.json": {"[NEW]": 6},
    }
    tokenizer = Tokenizer.from_folder(write(tmp_path, files))
    assert rows(tokenizer.encode(["hello [NEW] world what"])) == [[2, 4, 6, 5, 1, 3]]
    assert (tokenizer.prefix, tokenizer.suffix, tokenizer.vocab_size) == ((2,), (3,), 7)


def test_added_tokens_decoder(tmp_path: Path, vocab: str) -> None:
    size = len(vocab.split("\n")) - 1
    entry = {"content": "[Q]", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    files = {
        "vocab.txt": vocab,
        "tokenizer_config.json": {"added_tokens_decoder": {str(size): {**entry, "special": True}}},
    }
    tokenizer = Tokenizer.from_folder(write(tmp_path, files))
    assert rows(tokenizer.encode(["[Q] the"])) == [[101, size, 1996, 102]]


def test_added_tokens_that_do_not_fit(tmp_path: Path, vocab: str) -> None:
    write(tmp_path, {"vocab.txt": vocab, "added_tokens.json": {"[NEW]": 99_999}})
    with pytest.raises(ModelError, match=r"\[NEW\].*99999.*do not belong together"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("prefix_space", [False, True])
def test_byte_level_files(tmp_path: Path, prefix_space: bool) -> None:
    from tokenizers.implementations import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    trained.train_from_iterator(TRAINING, vocab_size=400, special_tokens=special, show_progress=False)
    trained.save_model(str(tmp_path))
    config = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": prefix_space, "model_max_length": 99}
    write(tmp_path, {"tokenizer_config.json": config, "config.json": {"model_type": "roberta"}})
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.words is not None
    assert (tokenizer.max_length, tokenizer.pad_id) == (99, 1)
    plain = [text for text in TEXTS if "<mask>" not in text]
    expected = [ids for text, ids in zip(TEXTS, transformers_ids(tmp_path), strict=True) if text in plain]
    assert rows(tokenizer.encode(plain)) == expected
    assert rows(tokenizer.encode(["x <mask>"])) == rows(tokenizer.encode(["x<mask>"])), "<mask> takes the space along"


@pytest.fixture
def sentencepiece_folder(tmp_path: Path) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=model, vocab_size=120, hard_vocab_limit=False, minloglevel=2
    )
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    return write(tmp_path, {"tokenizer_config.json": config, "config.json": {"model_type": "xlm-roberta"}})


def test_sentencepiece(sentencepiece_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(sentencepiece_folder)
    assert rows(tokenizer.encode(TEXTS)) == transformers_ids(sentencepiece_folder)
    assert tokenizer.max_length == 512
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "sentencepiece.bpe.model").is_file()
    assert rows(Tokenizer.from_folder(tmp_path / "saved").encode(TEXTS)) == rows(tokenizer.encode(TEXTS))


def test_sentencepiece_needs_an_extra(sentencepiece_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[hf\]"):
        Tokenizer.from_folder(sentencepiece_folder)


def test_the_config_wins_over_tokenizer_json_and_says_so(minilm_path: Path, tmp_path: Path) -> None:
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    files = {
        "tokenizer.json": (minilm_path / "tokenizer.json").read_text(encoding="utf-8"),
        "tokenizer_config.json": config,
    }
    write(tmp_path, files)
    with pytest.warns(ModelWarning, match="do_lower_case=False"):
        tokenizer = Tokenizer.from_folder(tmp_path)
    assert rows(tokenizer.encode(TEXTS)) == transformers_ids(tmp_path)


@pytest.mark.parametrize(
    ("stated", "given", "expected"),
    [(128, None, 128), (10**30, None, 512), (1e30, None, 512), (None, None, 512), (128, 20, 20), (-1, None, 512)],
)
def test_max_length(tmp_path: Path, vocab: str, stated: Any, given: int | None, expected: int) -> None:
    write(tmp_path, {"vocab.txt": vocab, "tokenizer_config.json": {"model_max_length": stated}})
    assert Tokenizer.from_folder(tmp_path, max_length=given).max_length == expected


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no tokenizer in .*expected tokenizer.json"),
        ({"tokenizer.json": '{"version": '}, "tokenizer.json is damaged"),
        ({"tokenizer.json": "{}"}, "tokenizer.json is damaged"),
        ({"vocab.txt": "hello\nworld\n"}, r"lacks \[UNK\], \[CLS\], \[SEP\]"),
        ({"vocab.txt": ""}, r"lacks \[UNK\]"),
        ({"vocab.txt": "[UNK]", "tokenizer_config.json": "{"}, "tokenizer_config.json is not valid JSON"),
        ({"vocab.txt": "[UNK]", "tokenizer_config.json": []}, "must hold a JSON object, got list"),
        ({"vocab.json": {"a": 0}, "merges.txt": ""}, "lacks <s>, </s>"),
        ({"vocab.json": {"<s>": 0, "</s>": 1}, "merges.txt": "#version: 0.2\na b c"}, "do not belong together"),
        ({"vocab.json": {"<s>": 0, "</s>": 1}, "merges.txt": "a b"}, "do not belong together"),
        ({"vocab.json": {"<s>": 0}}, "no tokenizer in"),
        ({"spiece.model": "not a model"}, "cannot be converted"),
    ],
)
def test_damaged_folders(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Tokenizer.from_folder(write(tmp_path, files))


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer.from_folder(tmp_path)


def test_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a folder"):
        Tokenizer.from_folder(tmp_path / "nowhere")
