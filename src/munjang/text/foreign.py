"""Tokenizers without tokenizer.json, from the vocabulary files of older checkpoints.

    vocab.txt                                   BERT: WordPiece
    vocab.json + merges.txt                     RoBERTa: byte-level BPE
    spiece.model, sentencepiece.bpe.model, ...  SentencePiece: converted by transformers (extra `hf`)

Where lower-casing strips accents, Hangul is decomposed into jamo (NFD): that is kept, because the model was trained so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from munjang.errors import MissingExtraError, ModelError
from munjang.files import read_object
from munjang.text.tokenizer import SENTENCEPIECE_FILES, read_text, token_text

_BERT_TOKENS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA_TOKENS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def read_vocabulary(folder: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build a backend from the vocabulary files of a folder.

    Args:
        folder: of the checkpoint.
        config: tokenizer_config.json over special_tokens_map.json.

    Raises:
        ModelError: if the folder has no vocabulary, or its files are damaged or do not belong together.
        MissingExtraError: if a SentencePiece model needs transformers, which is not installed.
    """
    if (folder / "vocab.txt").is_file():
        backend = _word_piece(folder / "vocab.txt", config)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        backend = _byte_level(folder, config)
    elif any((folder / name).is_file() for name in SENTENCEPIECE_FILES):
        return _sentencepiece(folder)
    else:
        raise ModelError(
            f"no tokenizer in {folder}: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or one of "
            f"{', '.join(SENTENCEPIECE_FILES)}"
        )
    _add_tokens(backend, folder, config)
    return backend


def _word_piece(path: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    lines = read_text(path).removesuffix("\n").split("\n")
    vocabulary = {token.rstrip("\r"): index for index, token in enumerate(lines)}
    names = _special_names(config, _BERT_TOKENS, ("unk", "cls", "sep"), vocabulary, path)
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"]))
    try:
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=config.get("tokenize_chinese_chars", True),
            strip_accents=config.get("strip_accents"),
            lowercase=config.get("do_lower_case", True),  # the default of every BERT tokenizer class
        )
    except TypeError as error:
        raise ModelError(f"tokenizer_config.json beside {path} has an option of a wrong type: {error}") from error
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens([name for name in names.values() if name in vocabulary])
    cls, sep = names["cls"], names["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return backend


def _byte_level(folder: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    path = folder / "vocab.json"
    vocabulary = read_object(path)
    names = _special_names(config, _ROBERTA_TOKENS, ("cls", "sep"), vocabulary, path)
    lines = read_text(folder / "merges.txt").split("\n")
    # The first line may be "#version: 0.2"; every other line is a pair, "#" included.
    rows = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    try:
        model = models.BPE(vocabulary, [(left, right) for left, right in rows])
    except Exception as error:  # a row that is not a pair, or a bare Exception of the library
        raise ModelError(f"{path} and merges.txt do not belong together or are damaged: {error}") from error
    backend = tokenizers.Tokenizer(model)
    prefix_space = bool(config.get("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    present = {role: name for role, name in names.items() if name in vocabulary}
    # RoBERTa's <mask> includes the space before it.
    backend.add_special_tokens(
        [AddedToken(name, lstrip=role == "mask", normalized=False) for role, name in present.items()]
    )
    cls, sep = names["cls"], names["sep"]
    backend.post_processor = processors.RobertaProcessing(
        (sep, vocabulary[sep]), (cls, vocabulary[cls]), add_prefix_space=prefix_space
    )
    return backend


def _sentencepiece(folder: Path) -> tokenizers.Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("transformers", "hf", "a SentencePiece tokenizer without tokenizer.json") from error
    try:
        fast = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False)
        return tokenizers.Tokenizer.from_str(fast.backend_tokenizer.to_str())
    except ImportError as error:
        raise MissingExtraError("sentencepiece and protobuf", "hf", "a SentencePiece tokenizer") from error
    except Exception as error:  # the converter can fail in any way
        raise ModelError(f"the SentencePiece tokenizer in {folder} cannot be converted: {error}") from error


def _special_names(
    config: Mapping[str, Any],
    defaults: Mapping[str, str],
    required: tuple[str, ...],
    vocabulary: Mapping[str, Any],
    path: Path,
) -> dict[str, str]:
    """The special tokens by role; the required ones must be in the vocabulary."""
    names = {role: token_text(config.get(f"{role}_token")) or name for role, name in defaults.items()}
    missing = [names[role] for role in required if names[role] not in vocabulary]
    if missing:
        raise ModelError(f"{path} lacks {', '.join(missing)}: it is damaged, or not this kind of vocabulary")
    return names


def _add_tokens(backend: tokenizers.Tokenizer, folder: Path, config: Mapping[str, Any]) -> None:
    """Add the tokens of added_tokens.json and added_tokens_decoder, in the order of their ids."""
    tokens: dict[int, tuple[AddedToken, bool]] = {}
    try:
        for text, index in read_object(folder / "added_tokens.json").items():
            tokens[int(index)] = AddedToken(text, normalized=False), False
        for key, entry in dict(config.get("added_tokens_decoder") or {}).items():
            flags = {name: bool(entry.get(name, False)) for name in _FLAGS}
            tokens[int(key)] = AddedToken(entry["content"], **flags), bool(entry.get("special", False))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ModelError(f"the added tokens in {folder} are damaged ({error!r}); fetch the model again") from error
    for index, (token, special) in sorted(tokens.items()):
        (backend.add_special_tokens if special else backend.add_tokens)([token])
        actual = backend.token_to_id(token.content)
        if actual != index:
            raise ModelError(
                f"the added token {token.content!r} in {folder} should have id {index}, but the vocabulary gives it "
                f"{actual}: its files do not belong together"
            )
