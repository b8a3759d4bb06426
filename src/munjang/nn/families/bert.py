"""BERT, RoBERTa / XLM-R / CamemBERT and ELECTRA: one layout of weights, small differences in the embeddings."""

from __future__ import annotations

from dataclasses import replace

from munjang.nn.config import EncoderConfig
from munjang.nn.families.reading import Config, activation, heads, number, plain_steps, whole


def read(config: Config) -> EncoderConfig:
    """BERT: absolute positions from 0, segments."""
    hidden = whole(config, "hidden_size", least=1)
    rows = whole(config, "max_position_embeddings")
    return EncoderConfig(
        family=str(config["model_type"]),
        vocab_size=whole(config, "vocab_size", least=1),
        hidden=hidden,
        heads=heads(config, hidden, "num_attention_heads"),
        intermediate=whole(config, "intermediate_size"),
        max_positions=rows,
        steps=plain_steps(config, "num_hidden_layers"),
        embedding_size=hidden,
        activation=activation(config, "hidden_act", default="gelu"),
        norm_eps=number(config, "layer_norm_eps", default=1e-12),
        position_rows=rows,
        segments=whole(config, "type_vocab_size", default=2, least=1),
        dropout=number(config, "hidden_dropout_prob", default=0.1, most=1),
        attention_dropout=number(config, "attention_probs_dropout_prob", default=0.1, most=1),
        initializer_range=number(config, "initializer_range", default=0.02),
    )


def read_roberta(config: Config) -> EncoderConfig:
    """RoBERTa and its kin: positions count from pad + 1, so that many rows are never used."""
    offset = whole(config, "pad_token_id", default=1) + 1
    base = read(config)
    return replace(base, position_offset=offset, max_positions=base.position_rows - offset)


def read_electra(config: Config) -> EncoderConfig:
    """ELECTRA: narrower embeddings, projected to the hidden size where they differ."""
    base = read(config)
    width = whole(config, "embedding_size", default=base.hidden)
    return replace(base, embedding_size=width, projected=width != base.hidden)


def names(config: EncoderConfig) -> dict[str, str | tuple[str, ...]]:
    """Ours -> theirs."""
    table: dict[str, str | tuple[str, ...]] = {
        "embeddings.word.weight": "embeddings.word_embeddings.weight",
        "embeddings.position.weight": "embeddings.position_embeddings.weight",
    }
    if config.segments:
        table["embeddings.segment.weight"] = "embeddings.token_type_embeddings.weight"
    for kind in ("weight", "bias"):
        table[f"embeddings.norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
        if config.projected:
            table[f"embeddings.project.{kind}"] = f"embeddings_project.{kind}"
        for i in range(config.stored_layers):
            ours, theirs = f"layers.{i}", f"encoder.layer.{i}"
            table |= {
                f"{ours}.attention.qkv.{kind}": tuple(
                    f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value")
                ),
                f"{ours}.attention.out.{kind}": f"{theirs}.attention.output.dense.{kind}",
                f"{ours}.attention_norm.{kind}": f"{theirs}.attention.output.LayerNorm.{kind}",
                f"{ours}.mlp.up.{kind}": f"{theirs}.intermediate.dense.{kind}",
                f"{ours}.mlp.down.{kind}": f"{theirs}.output.dense.{kind}",
                f"{ours}.mlp_norm.{kind}": f"{theirs}.output.LayerNorm.{kind}",
            }
    return table
