"""Pooling: hidden states of a packed batch -> one float32 vector per sequence.

`POOLING_MODES` declares every mode once: this module, saved models, ONNX graphs and the tests follow from it. There is
no padding, so none can be counted. The hidden states are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.nn import kernels
from munjang.nn.packed import Packed

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"]


@dataclass(frozen=True)
class Token:
    """The vector of one token of each sequence."""

    which: Literal["first", "last"]


@dataclass(frozen=True)
class Extreme:
    """The largest or smallest value of each dimension."""

    which: Literal["max", "min"]


@dataclass(frozen=True)
class Average:
    """sum_i w_i x_i / (sum_i w_i)^power with the weights w_i = i^exponent of the tokens i = 1, 2, ..."""

    exponent: float = 0.0
    power: float = 1.0


@dataclass(frozen=True)
class ModeSpec:
    """What one mode computes, and how sentence-transformers writes it."""

    reduction: Token | Extreme | Average
    name: str  # `pooling_mode` of 6.x
    flag: str | None = None  # the boolean up to 5.x; None: only 6.x can read the mode
    first_release: bool = False  # 2.x knows the flag
    beside_flag: bool = True  # write the name beside the flag; 2.x refuses names that it does not know


# In the order in which sentence-transformers concatenates.
POOLING_MODES: dict[PoolingMode, ModeSpec] = {
    "cls": ModeSpec(Token("first"), "cls", "pooling_mode_cls_token", first_release=True),
    "max": ModeSpec(Extreme("max"), "max", "pooling_mode_max_tokens", first_release=True),
    "mean": ModeSpec(Average(), "mean", "pooling_mode_mean_tokens", first_release=True),
    "mean_sqrt_len": ModeSpec(
        Average(power=0.5),
        "mean_sqrt_len_tokens",
        "pooling_mode_mean_sqrt_len_tokens",
        first_release=True,
        beside_flag=False,
    ),
    "weighted_mean": ModeSpec(Average(exponent=1), "weightedmean", "pooling_mode_weightedmean_tokens"),
    "last": ModeSpec(Token("last"), "lasttoken", "pooling_mode_lasttoken"),
}


def reduction_of(mode: PoolingMode) -> Token | Extreme | Average:
    """What a mode computes; raise `InputError` for an unknown mode."""
    if mode not in list(POOLING_MODES):  # a list: a mode from a JSON file may not be hashable
        raise InputError(f"pooling must be one or several of {', '.join(POOLING_MODES)}, got {mode!r}")
    return POOLING_MODES[mode].reduction


@dataclass(frozen=True)
class Pooling:
    """One or several pooling modes, concatenated in this order.

    Args:
        modes: Names of `POOLING_MODES`.
        include_prompt: Whether the tokens of a prompt are pooled too.

    Raises:
        InputError: A mode is unknown, or there is none.
    """

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True

    def __post_init__(self) -> None:
        if not self.modes:
            raise InputError(f"pooling must be one or several of {', '.join(POOLING_MODES)}, got none")
        for mode in self.modes:
            reduction_of(mode)

    @classmethod
    def parse(cls, modes: str | Sequence[str], *, include_prompt: bool = True) -> Pooling:
        """Make a pooling from one name or several; raise `InputError` for an unknown one."""
        names = (modes,) if isinstance(modes, str) else tuple(modes)
        return cls(cast("tuple[PoolingMode, ...]", names), include_prompt)

    def dimension(self, hidden: int) -> int:
        """Width of the pooled vectors."""
        return hidden * len(self.modes)

    def __call__(self, hidden: Tensor, batch: Packed) -> Tensor:  # [total, hidden] -> float32 [n, dimension]
        skip = 0 if self.include_prompt else batch.prompt_tokens
        parts = [pool(hidden, batch, mode, skip) for mode in self.modes]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def pool(hidden: Tensor, batch: Packed, mode: PoolingMode, skip: int = 0) -> Tensor:
    """Pool by one mode, leaving out the first `skip` tokens of each sequence: [total, hidden] -> float32 [n, hidden].

    Raises:
        InputError: The mode is unknown.
    """
    reduction = reduction_of(mode)
    if isinstance(reduction, Token):
        return _token(hidden, batch, reduction, skip)
    if isinstance(reduction, Extreme):
        return _extreme(hidden, batch, reduction, skip)
    if isinstance(reduction, Average):
        return _average(hidden, batch, reduction, skip)
    raise InputError(f"pooling mode {mode!r} has no implementation: add one to munjang.nn.pooling.pool")


def _token(hidden: Tensor, batch: Packed, reduction: Token, skip: int) -> Tensor:
    if reduction.which == "last":
        return hidden.index_select(0, batch.offsets[1:] - 1).float()
    first = batch.offsets[:-1]
    return hidden.index_select(0, first + skip * (batch.lengths > skip) if skip else first).float()


def _extreme(hidden: Tensor, batch: Packed, reduction: Extreme, skip: int) -> Tensor:
    values = hidden.float()
    if skip:
        excluded = float("-inf") if reduction.which == "max" else float("inf")
        values = values.masked_fill((batch.positions < skip)[:, None], excluded)
    return _reduce(values, batch, reduction.which)


def _average(hidden: Tensor, batch: Packed, reduction: Average, skip: int) -> Tensor:
    exponent, power = reduction.exponent, reduction.power
    if exponent:
        weights = (batch.positions + 1).float().pow(exponent) * (batch.positions >= skip)
        total = _reduce(hidden.float() * weights[:, None], batch, "sum")
        return total / _reduce(weights[:, None], batch, "sum").clamp(min=1e-9).pow(power)
    if hidden.is_cuda and kernels.usable():
        return kernels.mean_pool(hidden, batch.offsets, skip, power)
    values = hidden.float()
    if skip:
        values = values * (batch.positions >= skip)[:, None]
    counts = (batch.lengths - skip).clamp(min=1).float()
    return _reduce(values, batch, "sum") / counts.pow(power)[:, None]


def _reduce(values: Tensor, batch: Packed, how: Literal["sum", "max", "min"]) -> Tensor:
    """Reduce each sequence: [total, width] -> [n, width]."""
    if values.is_cuda:
        return torch.segment_reduce(values, how, lengths=batch.lengths.long(), axis=0, unsafe=True)
    # On the CPU, neighbouring sequences of one length are a plain [count, length, width] block.
    width = values.shape[1]
    functions: dict[str, Callable[..., Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}
    parts = [
        functions[how](values[start : start + count * length].view(count, length, width), dim=1)
        for start, count, length in batch.groups
    ]
    if not parts:
        return values.new_zeros(0, width)
    return parts[0] if len(parts) == 1 else torch.cat(parts)
