"""Small whole models of every family of `bodies`: a random body, a real tokenizer, pooling or a classifier head."""

from __future__ import annotations

import functools

import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from munjang.bi_encoder import BiEncoder
from munjang.checkpoint import ModelParts
from munjang.cross_encoder import CrossEncoder
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer
from support import bodies

TEXTS = [
    "비가 온다.",
    "It is raining.",
    "빵",
    "a",
    "비가 오는 날에 우산 없이 걷다가 빵 냄새를 따라 골목 끝까지 갔다.",
    "When it rains, people who have no umbrella look for a bakery at the end of the street.",
    "비 rain 빵 bread " * 30,
]


@functools.cache
def _backend() -> str:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The padding is 1, as RoBERTa's positions want it; no other family minds.
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=bodies.VOCABULARY - 2, special_tokens=special, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 2)],
    )
    return backend.to_str()


def bi_encoder(
    case: str = "bert", pooling: Pooling | None = None, *heads: nn.Module, max_length: int = 64
) -> BiEncoder:
    """A bi-encoder with random weights, on the CPU in float32."""
    theirs = bodies.theirs(case)
    parts = ModelParts(
        bodies.ours(theirs),
        Tokenizer(tokenizers.Tokenizer.from_str(_backend()), max_length=max_length),
        pooling or Pooling(),
        nn.ModuleList(heads),
        hf_config=theirs.config.to_dict(),
    )
    return BiEncoder(parts, device="cpu", dtype="float32")


def cross_encoder(case: str = "bert", labels: int = 1, *, head: str = "standard", max_length: int = 64) -> CrossEncoder:
    """A cross-encoder with random weights whose scores differ."""
    model = CrossEncoder.from_body(bi_encoder(case), labels, head=head, device="cpu", dtype="float32")  # type: ignore[arg-type]
    model.max_length = max_length
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parts.head.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model
