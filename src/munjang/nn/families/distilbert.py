"""DistilBERT: BERT without segments, under other names."""

from __future__ import annotations

from munjang.nn.config import EncoderConfig
from munjang.nn.families.reading import Config, activation, heads, number, plain_steps, whole


def read(config: Config) -> EncoderConfig:
    """DistilBERT's own keys; LayerNorm's epsilon is fixed in its implementation."""
    hidden = whole(config, "dim", "hidden_size", least=1)
    rows = whole(config, "max_position_embeddings")
    return EncoderConfig(
        family="distilbert",
        vocab_size=whole(config, "vocab_size", least=1),
        hidden=hidden,
        heads=heads(config, hidden, "n_heads", "num_attention_heads"),
        intermediate=whole(config, "hidden_dim"),
        max_positions=rows,
        steps=plain_steps(config, "n_layers", "num_hidden_layers"),
        embedding_size=hidden,
        activation=activation(config, "activation", default="gelu"),
        norm_eps=1e-12,
        position_rows=rows,
        dropout=number(config, "dropout", default=0.1, most=1),
        attention_dropout=number(config, "attention_dropout", default=0.1, most=1),
        initializer_range=number(config, "initializer_range", default=0.02),
    )


def names(config: EncoderConfig) -> dict[str, str | tuple[str, ...]]:
    """Ours -> theirs."""
    table: dict[str, str | tuple[str, ...]] = {
        "embeddings.word.weight": "embeddings.word_embeddings.weight",
        "embeddings.position.weight": "embeddings.position_embeddings.weight",
    }
    for kind in ("weight", "bias"):
        table[f"embeddings.norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
        for i in range(config.stored_layers):
            ours, theirs = f"layers.{i}", f"transformer.layer.{i}"
            table |= {
                f"{ours}.attention.qkv.{kind}": tuple(f"{theirs}.attention.{part}_lin.{kind}" for part in "qkv"),
                f"{ours}.attention.out.{kind}": f"{theirs}.attention.out_lin.{kind}",
                f"{ours}.attention_norm.{kind}": f"{theirs}.sa_layer_norm.{kind}",
                f"{ours}.mlp.up.{kind}": f"{theirs}.ffn.lin1.{kind}",
                f"{ours}.mlp.down.{kind}": f"{theirs}.ffn.lin2.{kind}",
                f"{ours}.mlp_norm.{kind}": f"{theirs}.output_layer_norm.{kind}",
            }
    return table
