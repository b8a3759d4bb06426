"""A checkpoint folder to a `tokenizers` backend: the one place that knows how tokenizers lie on disk.

    tokenizer.json                              read as it is; truncation and padding in it are switched off
    vocab.txt                                   BERT: a WordPiece backend is built from it
    vocab.json + merges.txt                     RoBERTa: a byte-level BPE backend is built from them
    spiece.model, sentencepiece.bpe.model, ...  converted through transformers (extra [hf])

tokenizer_config.json, special_tokens_map.json and added_tokens.json are read beside them. Where lower-casing and
accent stripping are asked for, Hangul is torn into jamo (NFD): that is kept, because the model was trained so.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from munjang.errors import MissingExtraError, ModelError, ModelWarning
from munjang.text.backend import LONE_SURROGATE
from munjang.text.parsing import parse_tokenizer

SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "merges.txt", *SENTENCEPIECE_FILES)
BERT_TOKENS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
ROBERTA_TOKENS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
BERT_LIKE = {"Bert", "DistilBert", "Electra", "MPNet", "MobileBert", "ConvBert", "Funnel"}
# tokenizer_config.json key -> the field of BertNormalizer that it sets
BERT_OPTIONS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


@dataclass(frozen=True)
class Loaded:
    """A backend that neither truncates nor pads, and what the folder says about it."""

    backend: tokenizers.Tokenizer
    config: Mapping[str, Any]  # tokenizer_config.json over special_tokens_map.json
    pad_id: int | None  # as tokenizer.json padded


def read_folder(folder: Path) -> Loaded:
    """The backend and the settings of a checkpoint folder."""
    if not folder.is_dir():
        raise ModelError(f"a tokenizer is read from a folder, but {folder} is not a folder")
    config = {
        **_read_json(folder / "special_tokens_map.json"),
        **_read_json(folder / "tokenizer_config.json"),
    }
    backend = _backend(folder, config)
    padding = backend.padding
    backend.no_truncation()
    backend.no_padding()
    return Loaded(backend, config, None if padding is None else int(padding["pad_id"]))


def token_text(value: object) -> str | None:
    """The text of a special token, which is written as a string or as {"content": ...}."""
    if isinstance(value, Mapping):
        value = value.get("content")
    if isinstance(value, str) and LONE_SURROGATE.search(value):
        raise ModelError(f"tokenizer_config.json: the special token {value!a:.80} is not valid Unicode")
    return value if isinstance(value, str) else None


def _backend(folder: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return _from_tokenizer_json(folder / "tokenizer.json", config)
    if (folder / "vocab.txt").is_file():
        return _add_listed(_from_vocab_txt(folder / "vocab.txt", config), folder, config)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _add_listed(_from_byte_level(folder, config), folder, config)
    if any((folder / name).is_file() for name in SENTENCEPIECE_FILES):
        return _from_sentencepiece(folder)
    raise ModelError(
        f"no tokenizer in {folder}: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or one of "
        f"{', '.join(SENTENCEPIECE_FILES)}"
    )


def _from_tokenizer_json(path: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    backend = parse_tokenizer(path)
    family = str(config.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
    if family in BERT_LIKE and isinstance(backend.normalizer, normalizers.BertNormalizer):
        _apply(backend.normalizer, BERT_OPTIONS, config, path)
    if family == "Roberta" and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        _apply(backend.pre_tokenizer, {"add_prefix_space": "add_prefix_space"}, config, path)
    return backend


def _apply(component: Any, options: Mapping[str, str], config: Mapping[str, Any], path: Path) -> None:
    """tokenizer_config.json wins over tokenizer.json, as it does in transformers, but not in silence."""
    for key, field in options.items():
        present = getattr(component, field)
        if key in config and config[key] != present:
            warnings.warn(
                f"{path} has {field}={present}, but tokenizer_config.json beside it has {key}={config[key]}; "
                "the latter is used, as transformers does",
                ModelWarning,
                stacklevel=2,
            )
            try:
                setattr(component, field, config[key])
            except TypeError as error:
                raise ModelError(
                    f"tokenizer_config.json beside {path}: {key!r} is {config[key]!r:.80}: {error}"
                ) from error


def _from_vocab_txt(path: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    lines = _read_text(path).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    vocabulary = {token.rstrip("\r"): index for index, token in enumerate(lines)}
    names = _special_names(config, BERT_TOKENS)
    _require(path, vocabulary, [names["unk"], names["cls"], names["sep"]])
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
    backend.decoder = tokenizers.decoders.WordPiece(prefix="##")
    backend.add_special_tokens([name for name in names.values() if name in vocabulary])
    cls, sep = names["cls"], names["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return backend


def _from_byte_level(folder: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    path = folder / "vocab.json"
    vocabulary = _read_json(path)
    names = _special_names(config, ROBERTA_TOKENS)
    _require(path, vocabulary, [names["cls"], names["sep"]])
    lines = _read_text(folder / "merges.txt").split("\n")
    # the first line may be "#version: 0.2"; every other line is a pair, "#" included
    rows = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    prefix_space = bool(config.get("add_prefix_space", False))
    try:
        model = models.BPE(vocabulary, [(left, right) for left, right in rows])
    except Exception as error:  # a row that is no pair, and as above: the library raises bare Exception
        raise ModelError(f"{path} and merges.txt do not belong together or are damaged: {error}") from error
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(
        [
            # RoBERTa's <mask> takes the space before it along
            AddedToken(name, lstrip=role == "mask", normalized=False)
            for role, name in names.items()
            if name in vocabulary
        ]
    )
    backend.post_processor = processors.RobertaProcessing(
        (names["sep"], vocabulary[names["sep"]]),
        (names["cls"], vocabulary[names["cls"]]),
        add_prefix_space=prefix_space,
    )
    return backend


def _from_sentencepiece(folder: Path) -> tokenizers.Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError("transformers", "hf", "a SentencePiece tokenizer without tokenizer.json") from error
    try:
        fast = AutoTokenizer.from_pretrained(str(folder), use_fast=True, trust_remote_code=False)
        return tokenizers.Tokenizer.from_str(fast.backend_tokenizer.to_str())
    except ImportError as error:
        raise MissingExtraError("sentencepiece and protobuf", "hf", "a SentencePiece tokenizer") from error
    except Exception as error:  # whatever a converter of another library stumbles over
        raise ModelError(f"the SentencePiece tokenizer in {folder} cannot be converted: {error}") from error


def _add_listed(backend: tokenizers.Tokenizer, folder: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Add what added_tokens.json and added_tokens_decoder list, in the order of their ids."""
    listed: dict[int, tuple[AddedToken, bool]] = {}
    try:
        for text, index in _read_json(folder / "added_tokens.json").items():
            listed[int(index)] = (AddedToken(text, normalized=False), False)
        for key, entry in dict(config.get("added_tokens_decoder") or {}).items():
            flags = {name: bool(entry.get(name, False)) for name in ("lstrip", "rstrip", "single_word", "normalized")}
            listed[int(key)] = (AddedToken(entry["content"], **flags), bool(entry.get("special", False)))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ModelError(f"the added tokens in {folder} are damaged ({error!r}); fetch the model again") from error
    for index, (token, special) in sorted(listed.items()):
        (backend.add_special_tokens if special else backend.add_tokens)([token])
        given = backend.token_to_id(token.content)
        if given != index:
            raise ModelError(
                f"the added token {token.content!r} in {folder} should have id {index}, but the vocabulary "
                f"gives it {given}: its files do not belong together"
            )
    return backend


def _special_names(config: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    return {role: token_text(config.get(f"{role}_token")) or name for role, name in defaults.items()}


def _require(path: Path, vocabulary: Mapping[str, Any], names: list[str]) -> None:
    missing = [name for name in names if name not in vocabulary]
    if missing:
        raise ModelError(f"{path} lacks {', '.join(missing)}: it is damaged, or not this kind of vocabulary")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch the model again") from error


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(_read_text(path))
    except RecursionError as error:
        raise ModelError(f"{path} is not valid JSON: it is nested too deeply") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}; fetch the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, found {type(content).__name__}")
    return content
