"""`ModelParts`: everything that a bi-encoder is made of, as read from a folder and as written to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from munjang.checkpoint.thresholds import described
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer
from munjang.types import Similarity, Threshold

ModelBody = Encoder | StaticEmbedding | TransformersBody


@dataclass
class ModelParts:
    """A model taken apart. `body -> pooling -> heads` is the way of a packed batch."""

    body: ModelBody
    tokenizer: Tokenizer  # max_length and lower-casing already set
    pooling: Pooling
    heads: nn.ModuleList = field(default_factory=nn.ModuleList)  # Dense, Normalize, VectorNorm, in order
    hf_config: dict[str, object] = field(default_factory=dict)  # config.json of the body; empty for a static one
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: Similarity = "cosine"
    truncate_dim: int | None = None
    leftover: dict[str, Tensor] = field(default_factory=dict)  # the pooler, kept so that a saved model has it
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)  # by task; measured with these very weights
    notes: list[str] = field(default_factory=list)  # what had to be assumed or repaired, in words
    source: str = ""  # the folder, or hub id@revision

    def describe(self) -> dict[str, object]:
        """What the model is, for people."""
        body, tokenizer = self.body, self.tokenizer
        return {
            "source": self.source,
            "family": body.config.family,
            "layers": len(body.config.steps) or None,
            "hidden size": body.hidden,
            "attention heads": body.config.heads if body.config.steps else None,
            "parameters": sum(p.numel() for module in (body, self.heads) for p in module.parameters()),
            "pooling": list(self.pooling.modes),
            "heads": [type(head).__name__ for head in self.heads],
            "max length": tokenizer.max_length,
            "tokenizer": {
                "model": type(tokenizer.backend.model).__name__,
                "vocabulary": tokenizer.vocab_size,
                "special tokens around a text": tokenizer.specials,
            },
            "prompts": dict(self.prompts),
            "default prompt": self.default_prompt_name,
            "similarity": self.similarity,
            "thresholds": described(self.thresholds),
        }
