"""MPNet: BERT's stack with RoBERTa's positions, no segments, and one relative position bias for all layers."""

from __future__ import annotations

from dataclasses import replace

from munjang.errors import ModelError
from munjang.nn.config import EncoderConfig
from munjang.nn.families import bert
from munjang.nn.families.reading import Config, whole

_BUCKETS = 32  # fixed in the published implementation, whatever the config says


def read(config: Config) -> EncoderConfig:
    """MPNet's pad id is 1 in every published model, and fixed in its implementation."""
    if whole(config, "relative_attention_num_buckets", default=_BUCKETS) < _BUCKETS:
        raise ModelError(f"config.json: MPNet needs at least {_BUCKETS} relative_attention_num_buckets")
    base = bert.read(config)
    return replace(
        base,
        segments=0,
        position_offset=2,
        max_positions=base.position_rows - 2,
        relative_buckets=whole(config, "relative_attention_num_buckets", default=_BUCKETS),
    )


def names(config: EncoderConfig) -> dict[str, str | tuple[str, ...]]:
    """Ours -> theirs."""
    table = bert.names(config)
    table["relative_bias.weight"] = "encoder.relative_attention_bias.weight"
    for kind in ("weight", "bias"):
        for i in range(config.stored_layers):
            ours, theirs = f"layers.{i}", f"encoder.layer.{i}.attention"
            table[f"{ours}.attention.qkv.{kind}"] = tuple(f"{theirs}.attn.{part}.{kind}" for part in "qkv")
            table[f"{ours}.attention.out.{kind}"] = f"{theirs}.attn.o.{kind}"
            table[f"{ours}.attention_norm.{kind}"] = f"{theirs}.LayerNorm.{kind}"
    return table
