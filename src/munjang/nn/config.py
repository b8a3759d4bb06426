"""`EncoderConfig`: the shapes and switches of a packed encoder, and typed access to the config.json they come from.

`families.py` makes an `EncoderConfig` from the config.json of each family; no other module of this package knows that
format. The fields are part of a model's fingerprint: renaming one makes every saved index ask for re-encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from munjang.errors import ModelError

Config = Mapping[str, object]  # a parsed config.json
Activation = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh", "sigmoid", "leaky_relu", "identity"]

ACTIVATION_FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": functional.leaky_relu,
    "identity": lambda x: x,
}
# Names in Hugging Face configs: of the MLPs of a body, and of classification heads.
BODY_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
HEAD_ACTIVATIONS: dict[str, Activation] = {"tanh": "tanh", "sigmoid": "sigmoid", **BODY_ACTIVATIONS}

_MAX_SIZE = 100_000_000  # of any integer; the sizes of the weights are compared with the files later
_MAX_LAYERS = 1000


@dataclass(frozen=True)
class LayerConfig:
    """One step through the stack: the stored layer it uses and how it attends."""

    stored: int  # index into the stored layers; ALBERT uses one stored layer for every step
    window: int = 0  # maximum distance of attention, in tokens; 0 means unlimited
    rope_theta: float = 0.0  # base of the rotary positions; 0 means none


@dataclass(frozen=True)
class EncoderConfig:
    """Shapes and switches of one encoder body."""

    family: str
    vocab_size: int
    hidden: int
    heads: int
    intermediate: int
    max_positions: int  # maximum tokens of a sequence, special tokens included
    steps: tuple[LayerConfig, ...]
    embedding_size: int  # width of the embedding tables
    projected: bool = False  # a linear layer from embedding_size to hidden
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    position_rows: int = 0  # rows of the absolute position table; 0 means no table
    position_offset: int = 0  # RoBERTa and MPNet count from pad + 1
    segments: int = 0  # rows of the segment table; 0 means no table
    relative_buckets: int = 0  # MPNet's shared relative position bias; 0 means none
    pre_norm: bool = False  # ModernBERT: LayerNorm before attention and MLP, not after
    gated: bool = False  # GeGLU
    attention_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = field(default=0.02, compare=False)
    group_size: int = field(default=1, repr=False)  # ALBERT: stored layers per group, for the names of weights

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def stored_layers(self) -> int:
        return max((step.stored for step in self.steps), default=-1) + 1


def read_int(config: Config, *keys: str, default: int | None = None, least: int = 0, most: int = _MAX_SIZE) -> int:
    """Return the integer under the first of `keys` that is set.

    Raises:
        ModelError: The value is not an integer from `least` to `most`, or no key is set and there is no default.
    """
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        if default is None:
            raise ModelError(f"config.json lacks {keys[0]!r}")
        return default
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelError(f"config.json: {key!r} must be a whole number from {least} to {most:,}, got {value!r:.80}")
    return value


def read_float(config: Config, *keys: str, default: float, most: float = 1e12) -> float:
    """Return the number under the first of `keys` that is set; raise `ModelError` unless it is 0 to `most`."""
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        return default
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ModelError(f"config.json: {key!r} must be a number from 0 to {most:g}, got {value!r:.80}")
    return float(value)


def read_activation(
    config: Config, key: str, default: str = "gelu", *, known: Mapping[str, Activation] = BODY_ACTIVATIONS
) -> Activation:
    """Return the activation that config.json names under `key`; raise `ModelError` for an unknown one."""
    name = config.get(key) or default
    if not isinstance(name, str) or name not in known:
        raise ModelError(
            f"config.json: {key}: activation {name!r:.80} is not known; expected one of {', '.join(known)}"
        )
    return known[name]


def read_heads(config: Config, hidden: int, *keys: str) -> int:
    """Return the number of attention heads; raise `ModelError` unless it divides the hidden size."""
    count = read_int(config, *keys, least=1)
    if hidden % count:
        raise ModelError(f"config.json: hidden size {hidden} is not a multiple of {count} attention heads")
    return count


def read_layers(config: Config, *keys: str) -> int:
    """Return the number of layers."""
    return read_int(config, *keys, least=1, most=_MAX_LAYERS)
