"""ModernBERT: rotary positions, windows in two layers of three, norms before, GeGLU, QKV already one matrix."""

from __future__ import annotations

from collections.abc import Mapping

from munjang.errors import ModelError
from munjang.nn.config import EncoderConfig, LayerConfig
from munjang.nn.families.reading import Config, activation, heads, layers, number, whole


def read(config: Config) -> EncoderConfig:
    """Both generations of the config: `global_attn_every_n_layers` and `layer_types` + `rope_parameters`."""
    hidden = whole(config, "hidden_size", least=1)
    return EncoderConfig(
        family="modernbert",
        vocab_size=whole(config, "vocab_size", least=1),
        hidden=hidden,
        heads=heads(config, hidden, "num_attention_heads"),
        intermediate=whole(config, "intermediate_size"),
        max_positions=whole(config, "max_position_embeddings"),
        steps=_steps(config),
        embedding_size=hidden,
        activation=activation(config, "hidden_activation", default="gelu"),
        norm_eps=number(config, "norm_eps", default=1e-5),
        pre_norm=True,
        gated=True,
        attention_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        norm_bias=bool(config.get("norm_bias", False)),
        dropout=number(config, "mlp_dropout", default=0.0, most=1),
        attention_dropout=number(config, "attention_dropout", default=0.0, most=1),
        initializer_range=number(config, "initializer_range", default=0.02),
    )


def _steps(config: Config) -> tuple[LayerConfig, ...]:
    count = layers(config, "num_hidden_layers")
    every = whole(config, "global_attn_every_n_layers", default=3, least=1)
    kinds = config.get("layer_types") or ["sliding_attention" if i % every else "full_attention" for i in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count:
        raise ModelError(f"config.json: layer_types must be a list of {count} (the layers), got {kinds!r:.80}")
    unknown = [kind for kind in kinds if kind not in ("sliding_attention", "full_attention")]
    if unknown:
        raise ModelError(f"config.json: layer_types may be sliding_attention or full_attention, got {unknown[0]!r:.80}")
    window = whole(config, "local_attention", default=128) // 2
    full = _theta(config, "full_attention", "global_rope_theta", 160_000.0)
    near = _theta(config, "sliding_attention", "local_rope_theta", 10_000.0)
    return tuple(
        LayerConfig(i, window, near) if kind == "sliding_attention" else LayerConfig(i, 0, full)
        for i, kind in enumerate(kinds)
    )


def _theta(config: Config, kind: str, old_key: str, default: float) -> float:
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping) and isinstance(parameters.get(kind), Mapping):
        rope = parameters[kind]
        if rope.get("rope_type", "default") != "default":
            raise ModelError(f"config.json: rope_type {rope['rope_type']!r} is not known here; known is 'default'")
        return number(rope, "rope_theta", default=default)
    return number(config, old_key, default=default)


def names(config: EncoderConfig) -> dict[str, str | tuple[str, ...]]:
    """Ours -> theirs."""
    table: dict[str, str | tuple[str, ...]] = {"embeddings.word.weight": "embeddings.tok_embeddings.weight"}
    norms = {"embeddings.norm": "embeddings.norm", "final_norm": "final_norm"}
    linears: dict[str, str] = {}
    for i in range(config.stored_layers):
        layer = f"layers.{i}"
        if i:
            norms[f"{layer}.attention_norm"] = f"{layer}.attn_norm"
        norms[f"{layer}.mlp_norm"] = f"{layer}.mlp_norm"
        linears[f"{layer}.attention.qkv"] = f"{layer}.attn.Wqkv"
        linears[f"{layer}.attention.out"] = f"{layer}.attn.Wo"
        linears[f"{layer}.mlp.up"] = f"{layer}.mlp.Wi"
        linears[f"{layer}.mlp.down"] = f"{layer}.mlp.Wo"
    for ours, theirs in (norms | linears).items():
        table[f"{ours}.weight"] = f"{theirs}.weight"
        bias = (
            config.norm_bias if ours in norms else config.attention_bias if ".attention." in ours else config.mlp_bias
        )
        if bias:
            table[f"{ours}.bias"] = f"{theirs}.bias"
    return table
