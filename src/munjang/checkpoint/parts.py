"""`ModelParts`: everything that a bi-encoder is made of, as read from a folder and as written to one."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.pooling import Pooling
from munjang.text.tokenizer import Tokenizer
from munjang.types import Similarity

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
    notes: list[str] = field(default_factory=list)  # what had to be assumed or repaired, in words
    source: str = ""  # the folder, or hub id@revision
