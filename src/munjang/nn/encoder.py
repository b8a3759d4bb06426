"""The packed encoder: a flat run of tokens in, one hidden state per token out, no padding.

Linear layers, LayerNorm and GELU work on `[total, width]`; attention separates the sequences. One matrix computes
queries, keys and values. The same module trains and infers: on CUDA without gradients it uses the fused kernels,
otherwise torch operations. The names of its weights are those of training checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from munjang.nn import kernels
from munjang.nn.attention import AttentionPlan, attend, relative_buckets, rotate
from munjang.nn.bodies import Body
from munjang.nn.config import ACTIVATION_FUNCTIONS, Activation, EncoderConfig, LayerConfig
from munjang.nn.packed import Packed


def activate(x: Tensor, name: Activation) -> Tensor:
    """Apply an activation to the output of a linear layer, which it may overwrite."""
    if name == "gelu" and not torch.is_grad_enabled():
        in_place: Tensor = torch.ops.aten.gelu_(x)  # saves a buffer
        return in_place
    return ACTIVATION_FUNCTIONS[name](x)


class Norm(nn.LayerNorm):
    """LayerNorm of `x`, or of `x + residual` in one pass; in the second case it may overwrite x."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if x.is_cuda and kernels.usable(x):
            return kernels.add_norm(x if residual is not None else x.clone(), residual, self)
        if residual is None:
            return super().forward(x)
        return super().forward(x + residual if torch.is_grad_enabled() else x.add_(residual))


class Embeddings(nn.Module):
    """Word + position + segment -> LayerNorm -> projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(config.position_rows, width) if config.position_rows else None
        self.segment = nn.Embedding(config.segments, width) if config.segments else None
        self.norm = Norm(width, eps=config.norm_eps, bias=config.norm_bias)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(width, config.hidden) if config.projected else None
        self.position_offset = config.position_offset

    def forward(self, batch: Packed) -> Tensor:  # [total, hidden]
        x: Tensor
        if kernels.usable(self.word.weight):
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
        self.relative_bias = nn.Embedding(config.relative_buckets, config.heads) if config.relative_buckets else None
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
