"""Small random models of every family with tokenizers of every kind, and small texts that we wrote."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from munjang.checkpoint import BiParts
from munjang.encoders import BiEncoder
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of
from munjang.nn.heads import Normalize
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer

ENGLISH = [
    "the cat sleeps on the warm roof",
    "my friend reads a long book at home",
    "the child eats noodles by the river",
    "a woman plays the guitar in the park",
    "we walk to school in the morning",
    "the old man drinks tea with his neighbour",
    "she writes a letter to her brother",
    "Café Ångström opens at nine o'clock, doesn't it?",
]
KOREAN = [
    "고양이가 따뜻한 지붕 위에서 잔다",
    "내 친구는 집에서 긴 책을 읽는다",
    "아이가 강가에서 국수를 먹는다",
    "한 여자가 공원에서 기타를 친다",
    "우리는 아침에 학교에 걸어간다",
    "할아버지가 이웃과 차를 마신다",
    "그녀는 오빠에게 편지를 쓴다",
    "카페 옹스트롬은 아홉 시에 연다, 그렇지 않니?",
]
TEXTS = ENGLISH + KOREAN
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
_PADDED = {"max_position_embeddings": 66, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_PLAIN = {"max_position_embeddings": 64, "pad_token_id": 0}
# The name of the case -> (kind of tokenizer, model_type, arguments of its config).
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("wordpiece", "bert", _SIZES | _PLAIN),
    "roberta": ("bytes", "roberta", _SIZES | _PADDED | {"type_vocab_size": 1}),
    "xlm-roberta": ("unigram", "xlm-roberta", _SIZES | _PADDED | {"type_vocab_size": 1}),
    "mpnet": ("wordpiece-roberta", "mpnet", _SIZES | _PADDED),
    "electra": ("wordpiece", "electra", _SIZES | _PLAIN | {"embedding_size": 12}),
    "electra-unprojected": ("wordpiece", "electra", _SIZES | _PLAIN | {"embedding_size": 32}),
    "albert": ("wordpiece", "albert", _SIZES | _PLAIN | {"embedding_size": 16}),
    "albert-groups": (
        "wordpiece", "albert", _SIZES | _PLAIN | {"embedding_size": 16, "num_hidden_groups": 3, "inner_group_num": 2},
    ),
    "distilbert": (
        "wordpiece", "distilbert", {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 48, **_PLAIN},
    ),
    "modernbert": (
        "bytes-last", "modernbert",
        _SIZES | {
            "num_hidden_layers": 6, "max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 302,
            "cls_token_id": 300, "sep_token_id": 301, "bos_token_id": 300, "eos_token_id": 301,
        },
    ),
}  # fmt: skip


def _framed(backend: tokenizers.Tokenizer, begin: str, end: str) -> tokenizers.Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in (begin, end)],
    )
    return backend


def word_piece(special: list[str] = BERT, *, texts: list[str] = ENGLISH) -> tokenizers.Tokenizer:
    """Lower-casing and accent-stripping, as BERT uncased is: it tears Hangul.

    Letters, short words and beginnings of longer ones: made by hand, because training is not the same every time.
    """
    backend = tokenizers.Tokenizer(models.WordPiece({"x": 0}, unk_token="x"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    normal = [backend.normalizer.normalize_str(text) for text in texts]
    words = [word for text in normal for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    letters = sorted({letter for word in words for letter in word})
    starts = sorted({word if len(word) < 5 else word[:3] for word in words if len(word) > 1})
    pieces = dict.fromkeys(
        [*special, *letters, *(f"##{letter}" for letter in letters), *starts, "##es", "##ing", "##ks"]
    )
    begin, end, unknown = ("<s>", "</s>", "<unk>") if special is ROBERTA else ("[CLS]", "[SEP]", "[UNK]")
    backend.model = models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token=unknown)
    backend.add_special_tokens(special)
    return _framed(backend, begin, end)


def unigram() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=ROBERTA[:4], unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(ENGLISH, trainer)
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return _framed(backend, "<s>", "</s>")


def byte_level(*, last: bool = False) -> tokenizers.Tokenizer:
    """RoBERTa's, special tokens first; or ModernBERT's, special tokens last."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[] if last else ROBERTA,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(ENGLISH, trainer)
    if not last:
        return _framed(backend, "<s>", "</s>")
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens(["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"])
    backend.add_tokens([AddedToken("  ", normalized=True)])
    return _framed(backend, "[CLS]", "[SEP]")


@functools.cache
def _made(kind: str) -> str:
    return {
        "wordpiece": lambda: word_piece(),
        "wordpiece-roberta": lambda: word_piece(ROBERTA),
        "unigram": unigram,
        "bytes": lambda: byte_level(),
        "bytes-last": lambda: byte_level(last=True),
    }[kind]().to_str()  # fmt: skip


def tokenizer_of(kind: str) -> Tokenizer:
    """The same tokenizer every time in one process."""
    backend = tokenizers.Tokenizer.from_str(_made(kind))
    if kind == "bytes-last":
        assert backend.token_to_id("[PAD]") == 302
    pad = next(backend.token_to_id(name) for name in ("<pad>", "[PAD]") if backend.token_to_id(name) is not None)
    unknown = next(name for name in ("<unk>", "[UNK]") if backend.token_to_id(name) is not None)
    names = {"unk_token": unknown, "mask_token": "<mask>" if unknown == "<unk>" else "[MASK]"}
    return Tokenizer(backend, max_length=48, pad_id=pad, config={"tokenizer_class": "BertTokenizer", **names})


def parts_of(case: str) -> BiParts:
    """A random model: mean pooling, unit vectors, a pooler for BERT."""
    kind, name, arguments = CASES[case]
    tokenizer = tokenizer_of(kind)
    config = transformers.AutoConfig.for_model(name, vocab_size=tokenizer.vocab_size + 3, **arguments).to_dict()
    family = family_of(config)
    assert family is not None
    torch.manual_seed(5)
    body = Encoder(family.read(config)).eval()
    with torch.no_grad():
        for key, parameter in body.named_parameters():
            if "norm" in key and key.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            else:
                parameter.normal_(0.0, 0.15)
    leftover = {"pooler.dense.weight": torch.randn(32, 32), "pooler.dense.bias": torch.randn(32)}
    return BiParts(
        body=body,
        tokenizer=tokenizer,
        pooling=Pooling(("mean",)),
        heads=nn.ModuleList([Normalize()]),
        hf_config=config,
        prompts={"query": "질문: "},
        leftover=leftover if name == "bert" else {},
    )


def vectors(parts: BiParts, texts: list[str] = TEXTS) -> np.ndarray:
    return BiEncoder(parts, device="cpu", dtype="float32").encode_report(texts).vectors


def theirs(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    """Vectors of texts through sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return np.asarray(model.encode(texts, show_progress_bar=False))
