"""Pooling: hidden states of a packed batch -> one vector per sequence, in float32.

Padding cannot be counted, because there is none. The hidden states are never changed in place. Several modes make a
concatenation, in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from munjang.errors import InputError
from munjang.nn import kernels
from munjang.nn.packed import Packed
from munjang.types import PoolingMode

MODES: tuple[PoolingMode, ...] = ("cls", "max", "mean", "mean_sqrt_len", "weighted_mean", "last")


@dataclass(frozen=True)
class Pooling:
    """Which poolings, in which order, and whether a prompt's tokens count."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes:
            raise InputError(f"pooling must be one or several of {', '.join(MODES)}, got {self.modes!r}")

    def dimension(self, hidden: int) -> int:
        """Width of the pooled vectors."""
        return hidden * len(self.modes)

    def __call__(self, hidden: Tensor, batch: Packed) -> Tensor:  # [total, hidden] -> float32 [n, dimension]
        skip = 0 if self.include_prompt else batch.prompt_tokens
        parts = [pool(hidden, batch, mode, skip) for mode in self.modes]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def pool(hidden: Tensor, batch: Packed, mode: PoolingMode, skip: int = 0) -> Tensor:
    """One pooling; the first `skip` tokens of each sequence, the prompt's, are left out."""
    if mode == "cls":
        first = batch.offsets[:-1]
        return hidden.index_select(0, first + skip * (batch.lengths > skip) if skip else first).float()
    if mode == "last":
        return hidden.index_select(0, batch.offsets[1:] - 1).float()
    if mode == "max":
        return _max(hidden, batch, skip)
    if mode == "weighted_mean":
        weights = (batch.positions + 1).float() * (batch.positions >= skip)
        total = _sums(hidden.float() * weights[:, None], batch)
        return total / _sums(weights[:, None], batch).clamp(min=1e-9)
    power = 1.0 if mode == "mean" else 0.5
    if hidden.is_cuda and not torch.is_grad_enabled() and kernels.available():
        return kernels.mean_pool(hidden, batch.offsets, skip, power)
    values = hidden.float()
    if skip:
        values = values * (batch.positions >= skip)[:, None]
    counts = (batch.lengths - skip).clamp(min=1).float()
    return _sums(values, batch) / counts.pow(power)[:, None]


def _max(hidden: Tensor, batch: Packed, skip: int) -> Tensor:
    values = hidden.float()
    if skip:
        values = values.masked_fill((batch.positions < skip)[:, None], float("-inf"))
    if values.is_cuda:
        return torch.segment_reduce(values, "max", lengths=batch.lengths.long(), axis=0, unsafe=True)
    return _by_group(values, batch, "max")


def _sums(values: Tensor, batch: Packed) -> Tensor:
    """Sum of [total, width] over each sequence: [n, width]."""
    if values.is_cuda:
        return torch.segment_reduce(values, "sum", lengths=batch.lengths.long(), axis=0, unsafe=True)
    return _by_group(values, batch, "sum")


def _by_group(values: Tensor, batch: Packed, what: str) -> Tensor:
    """On the CPU: sequences of one length are a plain [count, length, width] block."""
    width = values.shape[1]
    parts = []
    for start, count, length in batch.groups:
        block = values[start : start + count * length].view(count, length, width)
        parts.append(block.sum(dim=1) if what == "sum" else block.amax(dim=1))
    if not parts:
        return values.new_zeros(0, width)
    return parts[0] if len(parts) == 1 else torch.cat(parts)
