"""Small data that we wrote, Korean and English, and a tiny model: the same every time."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import ModelWarning

WHO = ["a man", "a woman", "the child", "my friend", "한 남자가", "그 여자는", "아이들이", "우리 개가"]
DOES = [
    "plays the guitar",
    "eats noodles",
    "reads a book",
    "sleeps outside",
    "기타를 친다",
    "국수를 먹는다",
    "책을 읽는다",
]
WHERE = ["at home", "in Seoul", "by the river", "집에서", "서울에서", "강가에서"]
NLI = ("entailment", "neutral", "contradiction")


def sentences(count: int, seed: int) -> list[str]:
    """Different sentences, the same every time."""
    every = [f"{who} {does} {where}." for who in WHO for does in DOES for where in WHERE]
    return [every[place] for place in np.random.default_rng(seed).permutation(len(every))[:count]]


def scored(name: str, count: int = 24, seed: int = 0) -> Examples:
    """Pairs whose score is the share of words they have in common."""
    a, b = sentences(count, seed), sentences(count, seed + 1000)
    words = [(set(x.split()), set(y.split())) for x, y in zip(a, b, strict=True)]
    scores = [len(x & y) / len(x | y) for x, y in words]
    spread = np.linspace(0, 0.5, count) + np.array(scores) / 2
    return Examples(name, "scored", {"a": a, "b": b}, spread.astype(np.float32))


def nli(name: str, premises: int = 12, seed: int = 0) -> Examples:
    """For every premise an entailment, a neutral sentence and a contradiction."""
    first = sentences(premises, seed)
    rows = []
    for number, premise in enumerate(first):
        words = premise.rstrip(".")
        rows.append((premise, f"{words}, indeed {number}.", 0))
        rows.append((premise, f"perhaps {words} with music {number}.", 1))
        rows.append((premise, f"nobody: not {words} {number}.", 2))
    a, b, labels = zip(*rows, strict=True)
    return Examples(name, "labelled", {"a": list(a), "b": list(b)}, np.array(labels), NLI)


def triplets(name: str, count: int = 16, seed: int = 0) -> Examples:
    anchors = sentences(count, seed)
    columns = {
        "anchor": anchors,
        "positive": [f"{text} yes" for text in anchors],
        "negative": [f"no {text}" for text in sentences(count, seed + 500)],
    }
    return Examples(name, "pairs", columns)


def ranked(name: str, queries: int = 6, seed: int = 0) -> Examples:
    texts = sentences(queries, seed)
    rows = [(text, f"answer: {text}" if place == 0 else f"other {place} {texts[number - 1]}", float(place == 0), number)
            for number, text in enumerate(texts) for place in range(3)]  # fmt: skip
    query, document, grade, group = zip(*rows, strict=True)
    return Examples(
        name,
        "ranked",
        {"query": list(query), "document": list(document)},
        np.array(grade, np.float32),
        groups=np.array(group),
    )


def _backend() -> tokenizers.Tokenizer:
    """WordPiece over whole words and single characters. (A trained vocabulary differs from run to run.)"""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    texts = [*WHO, *DOES, *WHERE, "perhaps nobody indeed with music answer other yes no not : , . 0 1 2 3 4 5 6 7 8 9"]
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    characters = {character for word in words for character in word}
    pieces = [*special, *sorted(words | characters), *sorted(f"##{character}" for character in characters)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return backend


def tiny_model(folder: Path) -> Path:
    """Make a bi-encoder with a tiny random BERT body and mean pooling in this folder."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    backend = _backend()
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    raw = folder / "raw"
    BertModel(config).save_pretrained(raw)
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **names).save_pretrained(raw)
    target = folder / "tiny"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        BiEncoder.load(raw, pooling="mean", device="cpu").save(target)
    return target
