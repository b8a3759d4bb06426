"""Classifier heads: hidden states of a packed batch of pairs -> float32 logits [n, labels].

Every sequence-classification head that saved models have is one shape with different switches:

    pool (first token, or mean) -> dropout? -> Linear(H, H) -> activation -> norm? -> dropout -> Linear(H, labels)

`SBERT` is the paper's: first token, dropout, Linear, GELU, dropout, Linear. The others are in
`families/classifiers.py`. Heads compute in float32 whatever the body computes in; there are few rows, and scores that
differ in the third digit change an order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.errors import ModelError
from munjang.nn.packed import Packed
from munjang.nn.pooling import pool

HeadActivation = Literal["tanh", "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "identity"]
ACTIVATIONS: tuple[HeadActivation, ...] = ("tanh", "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "identity")


@dataclass(frozen=True)
class HeadShape:
    """What a head does, whatever its size."""

    activation: HeadActivation = "gelu"
    pooling: Literal["cls", "mean"] = "cls"
    drop_first: bool = True  # dropout before the first linear layer too
    dense: bool = True  # whether there is a first linear layer at all
    bias: bool = True  # of the first linear layer
    norm_eps: float | None = None  # ModernBERT normalises after the activation
    norm_bias: bool = False


SBERT = HeadShape()


class ClassifierHead(nn.Module):
    """Logits of every sequence; `labels` of 1 is a score."""

    def __init__(self, shape: HeadShape, hidden: int, labels: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        if shape.activation not in ACTIVATIONS:
            raise ModelError(f"a head's activation must be one of {', '.join(ACTIVATIONS)}, got {shape.activation!r}")
        self.shape = shape
        self.dense = nn.Linear(hidden, hidden, bias=shape.bias) if shape.dense else None
        self.norm = None if shape.norm_eps is None else nn.LayerNorm(hidden, eps=shape.norm_eps, bias=shape.norm_bias)
        self.out = nn.Linear(hidden, labels)
        self.dropout = nn.Dropout(dropout)

    @property
    def labels(self) -> int:
        return self.out.out_features

    def initialise(self, generator: torch.Generator | None = None, *, std: float = 0.02) -> None:
        """Random weights as BERT's heads start with: normal matrices, zero biases, norms of one."""
        for linear in (self.dense, self.out):
            if linear is not None:
                nn.init.normal_(linear.weight, std=std, generator=generator)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        if self.norm is not None:
            nn.init.ones_(self.norm.weight)
            if self.norm.bias is not None:
                nn.init.zeros_(self.norm.bias)

    def forward(self, hidden: Tensor, batch: Packed) -> Tensor:  # [total, H] -> float32 [n, labels]
        with torch.autocast(hidden.device.type, enabled=False):
            x = pool(hidden, batch, self.shape.pooling)
            if self.dense is not None:
                x = self.dropout(x) if self.shape.drop_first else x
                x = _activate(self.dense(x), self.shape.activation)
            if self.norm is not None:
                x = self.norm(x)
            logits: Tensor = self.out(self.dropout(x))
        return logits


def _activate(x: Tensor, name: HeadActivation) -> Tensor:
    if name == "tanh":
        return torch.tanh(x)
    if name == "relu":
        return functional.relu(x)
    if name == "silu":
        return functional.silu(x)
    if name == "sigmoid":
        return torch.sigmoid(x)
    if name == "identity":
        return x
    return functional.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")
