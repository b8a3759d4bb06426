"""Self-attention over a packed batch: a token attends to the tokens of the same sequence only.

`attend` chooses one of four implementations with the same results:

- CUDA, inference: our Triton kernel, which supports relative bias and windows and is tuned for sequences of tens to
  hundreds of tokens;
- CUDA, training in half precision without bias: `torch.nn.attention.varlen`, which has no attention dropout;
- CUDA, training with a relative bias: padded to the longest sequence, up to `MAX_PADDED` tokens;
- otherwise: sequences of equal length go through scaled_dot_product_attention together, without padding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from munjang.nn import kernels
from munjang.nn.packed import Packed

MAX_PADDED = 160  # tokens; for longer sequences, padding costs more than a call for every length
MAX_SEQUENCES = 65_535  # of one varlen call; beyond it CUDA fails with 'invalid argument'


def relative_buckets(distance: Tensor, buckets: int, max_distance: int = 128) -> Tensor:
    """Bucket of a signed distance (key - query) as in MPNet and T5: exact for near tokens, logarithmic for far ones.

    Raffel et al. 2020, section 2.1; half of the buckets for each direction.
    """
    half = buckets // 2
    direction = (distance > 0).long() * half  # MPNet's sign: n = -(key - query), bucket + half where n < 0
    n = distance.abs()
    exact = half // 2
    logarithmic = exact + (
        torch.log(n.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (half - exact)
    ).long().clamp(max=half - exact - 1)
    return direction + torch.where(n < exact, n, logarithmic)


class Padded(NamedTuple):
    """How to pad a batch to its longest sequence, for all layers of a forward pass."""

    gather: Tensor  # int64 [count, longest]: the token at each position; any token beyond the end of a sequence
    mask: Tensor  # [count, heads, longest, longest]: the bias, and -inf beyond the end of a sequence
    scatter: Tensor  # int64 [total]: the row of each token in the flattened padded batch


class AttentionPlan:
    """What the layers of one forward pass share: batch, relative bias by distance, masks, rotary angles."""

    def __init__(self, batch: Packed, bias_table: Tensor | None, attention_dropout: float) -> None:
        self.batch = batch
        self.bias_table = bias_table  # [heads, 2 * longest - 1]; the bias at distance d is column d + longest - 1
        self.dropout = attention_dropout
        self._masks: dict[tuple[int, int], Tensor | None] = {}
        self._rotary: dict[float, tuple[Tensor, Tensor]] = {}
        self._padded: Padded | None = None

    def padded(self, dtype: torch.dtype) -> Padded:
        """Indices and mask of the padded batch, without reading lengths back from the device."""
        if self._padded is None:
            batch, device = self.batch, self.batch.ids.device
            steps = torch.arange(batch.longest, device=device)
            real = steps < batch.lengths[:, None]  # [count, longest]
            gather = (batch.offsets[:-1, None].long() + steps).clamp(max=batch.total - 1)
            bias = self.mask(batch.longest, 0, dtype)
            assert bias is not None
            mask = bias.masked_fill(~real[:, None, None, :], float("-inf"))
            numbers = torch.arange(batch.count, device=device)
            rows = torch.repeat_interleave(numbers, batch.lengths.long(), output_size=batch.total)
            self._padded = Padded(gather, mask, rows * batch.longest + batch.positions)
        return self._padded

    def mask(self, length: int, window: int, dtype: torch.dtype) -> Tensor | None:
        """Additive mask [1, heads or 1, length, length] of sequences of one length, or None if none is needed."""
        window = window if 0 < window < length - 1 else 0
        if (length, window) not in self._masks:
            self._masks[length, window] = self._make_mask(length, window, dtype)
        return self._masks[length, window]

    def _make_mask(self, length: int, window: int, dtype: torch.dtype) -> Tensor | None:
        if self.bias_table is None and not window:
            return None
        device = self.batch.ids.device
        position = torch.arange(length, device=device)
        distance = position[None, :] - position[:, None]  # key - query
        mask = torch.zeros(1, 1, length, length, dtype=dtype, device=device)
        if self.bias_table is not None:
            mask = self.bias_table[:, distance + self.batch.longest - 1].unsqueeze(0).to(dtype)
        if window:
            mask = mask.masked_fill(distance.abs() > window, float("-inf"))
        return mask

    def rotary(self, theta: float, head_size: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine [total, 1, 1, head_size / 2] of every token's position."""
        if theta not in self._rotary:
            steps = torch.arange(0, head_size, 2, device=self.batch.ids.device, dtype=torch.float32)
            angles = self.batch.positions.float()[:, None] / theta ** (steps / head_size)
            self._rotary[theta] = (angles.cos()[:, None, None], angles.sin()[:, None, None])
        return self._rotary[theta]


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021) on the queries and keys of qkv [total, 3, heads, head_size], in float32."""
    half = qkv.shape[-1] // 2
    first, second = qkv[:, :2, :, :half].float(), qkv[:, :2, :, half:].float()
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([rotated.to(qkv.dtype), qkv[:, 2:]], dim=1)


def attend(qkv: Tensor, plan: AttentionPlan, window: int = 0) -> Tensor:
    """Self-attention within each sequence: qkv [total, 3, heads, head_size] -> [total, heads * head_size]."""
    batch = plan.batch
    if qkv.is_cuda and kernels.usable(qkv):
        return kernels.packed_attention(qkv, batch.offsets, batch.longest, plan.bias_table, window)
    half_precision = qkv.dtype in (torch.float16, torch.bfloat16)
    if qkv.is_cuda and half_precision and plan.bias_table is None and batch.count <= MAX_SEQUENCES:
        return attend_varlen(qkv, batch, window)
    if qkv.is_cuda and plan.bias_table is not None and not window and batch.longest <= MAX_PADDED:
        return attend_padded(qkv, plan)
    return attend_groups(qkv, plan, window)


def attend_padded(qkv: Tensor, plan: AttentionPlan) -> Tensor:
    """All sequences at once, padded to the longest; with a learned bias, a call for every length takes far longer."""
    gather, mask, scatter = plan.padded(qkv.dtype)
    query, key, value = qkv[gather].permute(2, 0, 3, 1, 4)  # [count, heads, longest, head_size]
    out = functional.scaled_dot_product_attention(query, key, value, mask, plan.dropout)
    return out.transpose(1, 2).flatten(2).flatten(0, 1)[scatter]


def attend_varlen(qkv: Tensor, batch: Packed, window: int) -> Tensor:
    """All sequences at once, by the variable-length attention of torch."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv.unbind(1)
    reach = (window, window) if window else (-1, -1)
    out = varlen_attn(query, key, value, batch.offsets, batch.offsets, batch.longest, batch.longest, window_size=reach)
    return out.flatten(1)  # type: ignore[union-attr]


def attend_groups(qkv: Tensor, plan: AttentionPlan, window: int) -> Tensor:
    """Neighbouring sequences of equal length together; batches are sorted by length, so there are few groups."""
    total, _, heads, head_size = qkv.shape
    parts = []
    for start, count, length in plan.batch.groups:
        group = qkv[start : start + count * length].view(count, length, 3, heads, head_size)
        query, key, value = group.permute(2, 0, 3, 1, 4)  # each [count, heads, length, head_size]
        mask = plan.mask(length, window, qkv.dtype)
        out = functional.scaled_dot_product_attention(query, key, value, mask, plan.dropout)
        parts.append(out.transpose(1, 2).reshape(count * length, heads * head_size))
    if not parts:
        return qkv.new_zeros(total, heads * head_size)
    return parts[0] if len(parts) == 1 else torch.cat(parts)
