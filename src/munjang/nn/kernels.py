"""Fused Triton kernels for inference on CUDA: what the packed encoder does between its matrix products.

- `packed_attention`: attention over packed sequences, with relative bias and windows;
- `embed_norm`: the sum of the embedding tables and their LayerNorm;
- `add_norm`: residual + LayerNorm;
- `mean_pool`: the mean over each sequence's tokens.

All accumulate in float32. Triton comes with CUDA builds of torch; without it the encoder uses torch operations, with
the same results. The kernels have no backward pass: training uses torch.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor


@functools.cache
def available() -> bool:
    """Whether this machine has CUDA and Triton."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def usable() -> bool:
    """Whether the kernels apply to a tensor on CUDA: without gradients, where there is Triton."""
    return not torch.is_grad_enabled() and available()


@functools.cache
def _compiled() -> Any:
    from munjang.nn import triton_kernels

    return triton_kernels


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def packed_attention(qkv: Tensor, offsets: Tensor, longest: int, bias_table: Tensor | None, window: int) -> Tensor:
    """qkv [total, 3, heads, head_size], offsets [n + 1] -> [total, heads * head_size]."""
    total, _, heads, head_size = qkv.shape
    out = torch.empty(total, heads * head_size, dtype=qkv.dtype, device=qkv.device)
    count = offsets.shape[0] - 1
    if count == 0 or total == 0:
        return out
    qkv = qkv.contiguous()
    wide = qkv.element_size() == 4
    block = min(64 if wide else 128, max(16, _power_of_two(longest)))
    keys = min(32 if wide else 64, block)
    _compiled().attention[(count, heads, -(-longest // block))](
        qkv,
        offsets,
        qkv if bias_table is None else bias_table,
        out,
        head_size**-0.5,
        longest - 1,
        0 if bias_table is None else bias_table.stride(0),
        window,
        HEADS=heads,
        SIZE=head_size,
        PADDED=max(16, _power_of_two(head_size)),
        BLOCK=block,
        KEYS=keys,
        BIAS=bias_table is not None,
        WINDOW=window > 0,
        PRECISION="ieee" if wide else "tf32",
        num_warps=4 if block >= 64 else 2 if block == 32 else 1,
    )
    return out


def embed_norm(
    ids: Tensor,
    positions: Tensor,
    segments: Tensor | None,
    tables: tuple[Tensor, Tensor | None, Tensor | None],
    norm: torch.nn.LayerNorm,
    position_offset: int,
) -> Tensor:
    """LayerNorm(word[ids] + position[positions + offset] + segment[segments]) -> [total, width]."""
    words, position_table, segment_table = tables
    width = words.shape[1]
    out = torch.empty(ids.shape[0], width, dtype=words.dtype, device=words.device)
    if ids.shape[0]:
        _compiled().embed_norm[(ids.shape[0],)](
            ids,
            positions,
            ids if segments is None else segments,
            words,
            words if position_table is None else position_table,
            words if segment_table is None else segment_table,
            norm.weight,
            norm.weight if norm.bias is None else norm.bias,
            out,
            position_offset,
            width,
            norm.eps,
            BLOCK=_power_of_two(width),
            POSITIONS=position_table is not None,
            SEGMENTS=segment_table is not None,
            SEGMENT_IDS=segments is not None,
            BIAS=norm.bias is not None,
            num_warps=_warps(width),
        )
    return out


def add_norm(x: Tensor, residual: Tensor | None, norm: torch.nn.LayerNorm) -> Tensor:
    """LayerNorm(x + residual), in place of x."""
    rows, width = x.shape
    x = x.contiguous()
    if rows:
        _compiled().add_norm[(rows,)](
            x,
            x if residual is None else residual,
            norm.weight,
            norm.weight if norm.bias is None else norm.bias,
            width,
            norm.eps,
            BLOCK=_power_of_two(width),
            RESIDUAL=residual is not None,
            BIAS=norm.bias is not None,
            num_warps=_warps(width),
        )
    return x


def mean_pool(hidden: Tensor, offsets: Tensor, skip: int, power: float) -> Tensor:
    """Sum of the vectors of each sequence after the first `skip`, divided by count**power; float32 [n, width]."""
    count, width = offsets.shape[0] - 1, hidden.shape[1]
    out = torch.empty(count, width, dtype=torch.float32, device=hidden.device)
    if count:
        block = min(128, _power_of_two(width))
        _compiled().mean_pool[(count, -(-width // block))](
            hidden, offsets, out, skip, power, width, ROWS=16, BLOCK=block, num_warps=4
        )
    return out


def _warps(width: int) -> int:
    return 1 if width <= 512 else 4 if width <= 2048 else 8
