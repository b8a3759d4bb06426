"""The packed encoder: a flat run of tokens in, one hidden state per token out, no padding.

Linear layers, LayerNorm and GELU work on `[total, width]`; attention separates the sequences. One matrix computes
queries, keys and values. The same module trains and infers: on CUDA without gradients it uses the fused kernels,
otherwise torch operations. The names of its weights are those of training checkpoints, and the fields of
`EncoderConfig` are part of a model's fingerprint: renaming one makes every saved index ask for re-encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from munjang.nn import kernels
from munjang.nn.packed import Packed

MAX_PADDED = 160  # tokens; for longer sequences, padding costs more than a call for every length
MAX_SEQUENCES = 65_535  # of one varlen call; beyond it CUDA fails with 'invalid argument'

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


class Body(nn.Module):
    """A module that turns a packed batch into token vectors [total, hidden]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def hidden(self) -> int:
        return self.config.hidden

    @property
    def max_positions(self) -> int:
        """Maximum tokens of a sequence, special tokens included."""
        return self.config.max_positions


# --- attention -------------------------------------------------------------------------------------------------------


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


class AttentionPlan:
    """What the layers of one forward pass share: batch, relative bias by distance, masks, rotary angles."""

    def __init__(self, batch: Packed, bias_table: Tensor | None, attention_dropout: float) -> None:
        self.batch = batch
        self.bias_table = bias_table  # [heads, 2 * longest - 1]; the bias at distance d is column d + longest - 1
        self.dropout = attention_dropout
        self._masks: dict[tuple[int, int], Tensor] = {}
        self._rotary: dict[float, tuple[Tensor, Tensor]] = {}
        self._padded: tuple[Tensor, Tensor, Tensor] | None = None

    def padded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """How to pad the batch to its longest sequence, without reading lengths back from the device.

        Returns:
            gather: int64 [count, longest], the token at each position; any token beyond the end of a sequence.
            mask: [count, heads, longest, longest], the bias, and -inf beyond the end of a sequence.
            scatter: int64 [total], the row of each token in the flattened padded batch.
        """
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
            self._padded = gather, mask, rows * batch.longest + batch.positions
        return self._padded

    def mask(self, length: int, window: int, dtype: torch.dtype) -> Tensor | None:
        """Additive mask [1, heads or 1, length, length] of sequences of one length, or None if none is needed."""
        window = window if 0 < window < length - 1 else 0
        if self.bias_table is None and not window:
            return None
        if (length, window) not in self._masks:
            device = self.batch.ids.device
            position = torch.arange(length, device=device)
            distance = position[None, :] - position[:, None]  # key - query
            mask = torch.zeros(1, 1, length, length, dtype=dtype, device=device)
            if self.bias_table is not None:
                mask = self.bias_table[:, distance + self.batch.longest - 1].unsqueeze(0).to(dtype)
            if window:
                mask = mask.masked_fill(distance.abs() > window, float("-inf"))
            self._masks[length, window] = mask
        return self._masks[length, window]

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
    """Self-attention within each sequence: qkv [total, 3, heads, head_size] -> [total, heads * head_size].

    Four implementations with the same results:

    - CUDA, inference: our Triton kernel, which supports relative bias and windows and is tuned for sequences of tens to
      hundreds of tokens;
    - CUDA, training in half precision without bias: `torch.nn.attention.varlen`, which has no attention dropout;
    - CUDA, training with a relative bias: padded to the longest sequence, up to `MAX_PADDED` tokens;
    - otherwise: sequences of equal length go through scaled_dot_product_attention together, without padding.
    """
    batch = plan.batch
    if qkv.is_cuda and kernels.usable():
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


class Attention(nn.Module):
    """Multi-head attention with one matrix for queries, keys and values."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, self.head_size = config.heads, config.head_size
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden, bias=config.attention_bias)
        self.out = nn.Linear(config.hidden, config.hidden, bias=config.attention_bias)

    def forward(self, x: Tensor, plan: AttentionPlan, step: LayerConfig) -> Tensor:
        qkv = self.qkv(x).view(-1, 3, self.heads, self.head_size)
        if step.rope_theta:
            qkv = rotate(qkv, *plan.rotary(step.rope_theta, self.head_size))
        out: Tensor = self.out(attend(qkv, plan, step.window))
        return out


# --- layers ----------------------------------------------------------------------------------------------------------


def activate(x: Tensor, name: Activation) -> Tensor:
    """Apply an activation to the output of a linear layer, which it may overwrite."""
    if name == "gelu" and not torch.is_grad_enabled():
        in_place: Tensor = torch.ops.aten.gelu_(x)  # saves a buffer
        return in_place
    return ACTIVATION_FUNCTIONS[name](x)


class Norm(nn.LayerNorm):
    """LayerNorm of `x`, or of `x + residual` in one pass; in the second case it may overwrite x."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if x.is_cuda and kernels.usable():
            return kernels.add_norm(x if residual is not None else x.clone(), residual, self)
        if residual is None:
            return super().forward(x)
        return super().forward(x + residual if torch.is_grad_enabled() else x.add_(residual))


def _empty_table(rows: int, width: int) -> nn.Embedding:
    """An embedding table without values, which come from a file or from `Encoder.initialise`.

    `nn.Embedding` would fill it with `normal_`, which imports the compiler on the meta device (two seconds).
    """
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)
    return table


class Embeddings(nn.Module):
    """Word + position + segment -> LayerNorm -> projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word = _empty_table(config.vocab_size, width)
        self.position = _empty_table(config.position_rows, width) if config.position_rows else None
        self.segment = _empty_table(config.segments, width) if config.segments else None
        self.norm = Norm(width, eps=config.norm_eps, bias=config.norm_bias)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(width, config.hidden) if config.projected else None
        self.position_offset = config.position_offset

    def forward(self, batch: Packed) -> Tensor:  # [total, hidden]
        x: Tensor
        if self.word.weight.is_cuda and kernels.usable():
            tables = (
                self.word.weight,
                None if self.position is None else self.position.weight,
                None if self.segment is None else self.segment.weight,
            )
            x = kernels.embed_norm(batch.ids, batch.positions, batch.segments, tables, self.norm, self.position_offset)
        else:
            x = self.word(batch.ids)
            if self.position is not None:
                x = x + self.position(batch.positions + self.position_offset)
            if self.segment is not None:
                x = x + (self.segment.weight[0] if batch.segments is None else self.segment(batch.segments))
            x = self.norm(x)
        x = self.dropout(x)
        if self.project is not None:
            x = self.project(x)
        return x


class Mlp(nn.Module):
    """Feed-forward layer: up, activation (gated in GeGLU), down."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated, self.activation = config.gated, config.activation
        up = config.intermediate * (2 if config.gated else 1)
        self.up = nn.Linear(config.hidden, up, bias=config.mlp_bias)
        self.down = nn.Linear(config.intermediate, config.hidden, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            x, gate = x.chunk(2, dim=-1)
            x = activate(x, self.activation) * gate
        else:
            x = activate(x, self.activation)
        down: Tensor = self.down(x)
        return down


class Layer(nn.Module):
    """Attention and MLP with residuals; LayerNorm after them (BERT) or before them (ModernBERT)."""

    def __init__(self, config: EncoderConfig, *, first: bool) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.attention = Attention(config)
        # The first layer of ModernBERT has no norm: the embeddings are normalized.
        self.attention_norm = (
            None if config.pre_norm and first else Norm(config.hidden, config.norm_eps, bias=config.norm_bias)
        )
        self.mlp = Mlp(config)
        self.mlp_norm = Norm(config.hidden, config.norm_eps, bias=config.norm_bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, plan: AttentionPlan, step: LayerConfig) -> Tensor:
        if self.pre_norm:
            normed = x if self.attention_norm is None else self.attention_norm(x)
            x = x + self.dropout(self.attention(normed, plan, step))
            x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        else:
            assert self.attention_norm is not None
            x = self.attention_norm(self.dropout(self.attention(x, plan, step)), x)
            x = self.mlp_norm(self.dropout(self.mlp(x)), x)
        return x


class Encoder(Body):
    """A BERT-like transformer over packed batches: `encoder(batch)` is `[total, hidden]`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.attention_dropout = config.attention_dropout  # in training; a run may override it
        self.embeddings = Embeddings(config)
        self.relative_bias = _empty_table(config.relative_buckets, config.heads) if config.relative_buckets else None
        self.layers = nn.ModuleList(Layer(config, first=i == 0) for i in range(config.stored_layers))
        self.final_norm = Norm(config.hidden, config.norm_eps, bias=config.norm_bias) if config.pre_norm else None

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Initialize at random as BERT does: normal matrices, zero biases, norms of one."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.initializer_range, generator=generator)
            if isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
            if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, batch: Packed) -> Tensor:  # [total, hidden]
        plan = AttentionPlan(batch, self._bias_table(batch), self.attention_dropout if self.training else 0.0)
        x: Tensor = self.embeddings(batch)
        for step in self.config.steps:
            x = self.layers[step.stored](x, plan, step)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x

    def _bias_table(self, batch: Packed) -> Tensor | None:
        """MPNet's bias at every distance in the batch: [heads, 2 * longest - 1]."""
        if self.relative_bias is None:
            return None
        reach = batch.longest - 1
        distance = torch.arange(-reach, reach + 1, device=batch.ids.device)
        table: Tensor = self.relative_bias(relative_buckets(distance, self.config.relative_buckets))
        return table.t().contiguous()
