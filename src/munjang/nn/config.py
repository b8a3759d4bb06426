"""`EncoderConfig`: everything the packed encoder must know, whatever family it came from.

The family files under `families/` make one from a Hugging Face `config.json`; nothing below them reads that format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]

# Names that Hugging Face configs use, and what they mean.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class LayerConfig:
    """One step through the stack: which stored layer it uses and how that step attends."""

    stored: int  # index into the stored layers; ALBERT uses one stored layer for every step
    window: int = 0  # a token sees others at most this far away; 0 means all
    rope_theta: float = 0.0  # base of the rotary positions; 0 means none


@dataclass(frozen=True)
class EncoderConfig:
    """Shapes and switches of one encoder body."""

    family: str
    vocab_size: int
    hidden: int
    heads: int
    intermediate: int
    max_positions: int  # longest sequence, special tokens included
    steps: tuple[LayerConfig, ...]
    embedding_size: int  # width of the embedding tables
    projected: bool = False  # a linear layer from embedding_size to hidden
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    position_rows: int = 0  # rows of the absolute position table; 0 means no such table
    position_offset: int = 0  # RoBERTa and MPNet count from pad + 1
    segments: int = 0  # rows of the segment table; 0 means no such table
    relative_buckets: int = 0  # MPNet's shared relative position bias; 0 means none
    pre_norm: bool = False  # ModernBERT: normalise before, not after
    gated: bool = False  # GeGLU
    attention_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = field(default=0.02, compare=False)
    group_size: int = field(default=1, repr=False)  # ALBERT: stored layers that make a group; their names need it

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def stored_layers(self) -> int:
        return max((step.stored for step in self.steps), default=-1) + 1
