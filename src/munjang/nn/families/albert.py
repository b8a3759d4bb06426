"""ALBERT: factorised embeddings, and few stored layers that many steps share."""

from __future__ import annotations

from dataclasses import replace

from munjang.errors import ModelError
from munjang.nn.config import EncoderConfig, LayerConfig
from munjang.nn.families import bert
from munjang.nn.families.reading import Config, activation, layers, whole


def read(config: Config) -> EncoderConfig:
    """Every step uses a stored layer: step -> group -> the layers inside the group."""
    base = bert.read({"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, **config})
    steps, groups = layers(config, "num_hidden_layers"), whole(config, "num_hidden_groups", default=1)
    inner = whole(config, "inner_group_num", default=1, least=1, most=100)
    if not 1 <= groups <= steps:
        raise ModelError(f"config.json: num_hidden_groups must be 1..{steps} (the layers), got {groups}")
    schedule = [
        LayerConfig(stored=int(step / (steps / groups)) * inner + i) for step in range(steps) for i in range(inner)
    ]
    return replace(
        base,
        steps=tuple(schedule),
        embedding_size=whole(config, "embedding_size", default=128),
        projected=True,
        group_size=inner,
        activation=activation(config, "hidden_act", default="gelu_new"),
    )


def names(config: EncoderConfig) -> dict[str, str | tuple[str, ...]]:
    """Ours -> theirs; stored layer i is layer i % inner of group i // inner."""
    table: dict[str, str | tuple[str, ...]] = {
        "embeddings.word.weight": "embeddings.word_embeddings.weight",
        "embeddings.position.weight": "embeddings.position_embeddings.weight",
        "embeddings.segment.weight": "embeddings.token_type_embeddings.weight",
    }
    inner = config.group_size
    for kind in ("weight", "bias"):
        table[f"embeddings.norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
        table[f"embeddings.project.{kind}"] = f"encoder.embedding_hidden_mapping_in.{kind}"
        for i in range(config.stored_layers):
            ours = f"layers.{i}"
            theirs = f"encoder.albert_layer_groups.{i // inner}.albert_layers.{i % inner}"
            table |= {
                f"{ours}.attention.qkv.{kind}": tuple(
                    f"{theirs}.attention.{part}.{kind}" for part in ("query", "key", "value")
                ),
                f"{ours}.attention.out.{kind}": f"{theirs}.attention.dense.{kind}",
                f"{ours}.attention_norm.{kind}": f"{theirs}.attention.LayerNorm.{kind}",
                f"{ours}.mlp.up.{kind}": f"{theirs}.ffn.{kind}",
                f"{ours}.mlp.down.{kind}": f"{theirs}.ffn_output.{kind}",
                f"{ours}.mlp_norm.{kind}": f"{theirs}.full_layer_layer_norm.{kind}",
            }
    return table
