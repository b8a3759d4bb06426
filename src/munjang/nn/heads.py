"""What follows pooling in a saved model: Dense, Normalize, LayerNorm. Vectors [n, in] -> vectors [n, out], float32."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.errors import ModelError

DenseActivation = Literal["Tanh", "Identity", "GELU", "ReLU", "Sigmoid", "SiLU", "LeakyReLU"]

_ACTIVATIONS: dict[str, nn.Module] = {
    "Tanh": nn.Tanh(),
    "Identity": nn.Identity(),
    "GELU": nn.GELU(),
    "ReLU": nn.ReLU(),
    "Sigmoid": nn.Sigmoid(),
    "SiLU": nn.SiLU(),
    "LeakyReLU": nn.LeakyReLU(),
}


class Dense(nn.Module):
    """A linear layer and an activation; kept in float32, where it costs nothing."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, activation: str = "Tanh") -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise ModelError(f"Dense activation {activation!r} is not known here; known are {', '.join(_ACTIVATIONS)}")
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = activation

    @property
    def dimension(self) -> int:
        return self.linear.out_features

    def forward(self, vectors: Tensor) -> Tensor:
        result: Tensor = _ACTIVATIONS[self.activation](self.linear(vectors.to(self.linear.weight.dtype)))
        return result


class Normalize(nn.Module):
    """Unit length; a zero vector stays zero."""

    def forward(self, vectors: Tensor) -> Tensor:
        return functional.normalize(vectors, dim=1)


class VectorNorm(nn.LayerNorm):
    """sentence-transformers' LayerNorm module, over whole vectors."""

    @property
    def dimension(self) -> int:
        return int(self.normalized_shape[0])


Head = Dense | Normalize | VectorNorm


def apply_heads(heads: nn.ModuleList, vectors: Tensor, dimension: int | None = None) -> Tensor:
    """All heads in turn; with `dimension`, the first that many values of the result (Matryoshka)."""
    with torch.autocast(vectors.device.type, enabled=False):
        for head in heads:
            vectors = head(vectors)
    if dimension is not None and dimension < vectors.shape[1]:
        vectors = vectors[:, :dimension]
    return vectors
