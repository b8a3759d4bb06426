"""What follows the body: Dense, Normalize and VectorNorm over pooled vectors, and the classification head of pairs.

Heads compute in float32 regardless of the precision of the body: they have few rows, so it costs little, and scores
that differ in the third digit change a ranking. The `repr` of these modules is part of a model's fingerprint.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.errors import ModelError
from munjang.nn.encoder import ACTIVATION_FUNCTIONS, Activation
from munjang.nn.packed import Packed
from munjang.nn.pooling import PoolingMode, pool

# Classes of torch.nn by which sentence-transformers names the activation of a Dense module.
DENSE_ACTIVATIONS: dict[str, Activation] = {
    "Tanh": "tanh",
    "Identity": "identity",
    "GELU": "gelu",
    "ReLU": "relu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
    "LeakyReLU": "leaky_relu",
}


class Dense(nn.Module):
    """A linear layer and an activation: [n, in_features] -> [n, out_features].

    Args:
        activation: A name of `DENSE_ACTIVATIONS`.

    Raises:
        ModelError: The activation is unknown.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, activation: str = "Tanh") -> None:
        super().__init__()
        if activation not in DENSE_ACTIVATIONS:
            raise ModelError(
                f"Dense activation {activation!r} is not known; expected one of {', '.join(DENSE_ACTIVATIONS)}"
            )
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = activation

    @property
    def dimension(self) -> int:
        return self.linear.out_features

    def forward(self, vectors: Tensor) -> Tensor:
        activation = ACTIVATION_FUNCTIONS[DENSE_ACTIVATIONS[self.activation]]
        return activation(self.linear(vectors.to(self.linear.weight.dtype)))


class Normalize(nn.Module):
    """Scale vectors to unit length; a zero vector stays zero."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1)


class VectorNorm(nn.LayerNorm):
    """The LayerNorm module of sentence-transformers, over whole vectors."""

    @property
    def dimension(self) -> int:
        return int(self.normalized_shape[0])


def apply_heads(heads: nn.ModuleList, vectors: Tensor, dimension: int | None = None) -> Tensor:
    """Apply all heads in order; keep the first `dimension` values of the result (Matryoshka), if that is given."""
    with torch.autocast(vectors.device.type, enabled=False):
        for head in heads:
            vectors = head(vectors)
    if dimension is not None and dimension < vectors.shape[1]:
        vectors = vectors[:, :dimension]
    return vectors


@dataclass(frozen=True)
class HeadShape:
    """The switches of a classification head, independent of its size."""

    activation: Activation = "gelu"
    pooling: PoolingMode = "cls"
    drop_first: bool = True  # dropout before the first linear layer too
    dense: bool = True  # whether there is a first linear layer
    bias: bool = True  # of the first linear layer
    norm_eps: float | None = None  # ModernBERT normalizes after the activation
    norm_bias: bool = False


SBERT = HeadShape()  # the paper's head: first token, dropout, Linear, GELU, dropout, Linear


class ClassifierHead(nn.Module):
    """Logits of packed pairs: [total, hidden] -> float32 [n, labels]; with one label the logit is a score.

    The head of every sequence classifier has this shape, with different switches:

        pool (first token, or mean) -> dropout? -> Linear(H, H) -> activation -> norm? -> dropout -> Linear(H, labels)
    """

    def __init__(self, shape: HeadShape, hidden: int, labels: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        if shape.activation not in ACTIVATION_FUNCTIONS:
            raise ModelError(
                f"the activation of a head must be one of {', '.join(ACTIVATION_FUNCTIONS)}, got {shape.activation!r}"
            )
        self.shape = shape
        self.dense = nn.Linear(hidden, hidden, bias=shape.bias) if shape.dense else None
        self.norm = None if shape.norm_eps is None else nn.LayerNorm(hidden, eps=shape.norm_eps, bias=shape.norm_bias)
        self.out = nn.Linear(hidden, labels)
        self.dropout = nn.Dropout(dropout)

    @property
    def labels(self) -> int:
        return self.out.out_features

    def initialise(self, generator: torch.Generator | None = None, *, std: float = 0.02) -> None:
        """Initialize as BERT does: normal matrices, zero biases, norms of one."""
        for linear in (self.dense, self.out):
            if linear is not None:
                nn.init.normal_(linear.weight, std=std, generator=generator)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        if self.norm is not None:
            self.norm.reset_parameters()

    def forward(self, hidden: Tensor, batch: Packed) -> Tensor:  # [total, hidden] -> float32 [n, labels]
        with torch.autocast(hidden.device.type, enabled=False):
            x = pool(hidden, batch, self.shape.pooling)
            if self.dense is not None:
                x = self.dropout(x) if self.shape.drop_first else x
                x = ACTIVATION_FUNCTIONS[self.shape.activation](self.dense(x))
            if self.norm is not None:
                x = self.norm(x)
            logits: Tensor = self.out(self.dropout(x))
        return logits
