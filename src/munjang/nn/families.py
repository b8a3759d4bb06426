"""The model families that the packed encoder runs: config.json, names of weights and classification heads, both ways.

To add a family, add an entry to `FAMILIES` and a case to `tests/support/bodies.py`. An entry reads config.json into an
`EncoderConfig` and has a layout: where each module of `Encoder` is in the family's checkpoints. Three names mean that
queries, keys and values are separate matrices there; the encoder has one matrix for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from munjang.errors import ModelError
from munjang.nn.encoder import Activation, Encoder, EncoderConfig, LayerConfig
from munjang.nn.heads import HeadShape

Config = Mapping[str, object]  # a parsed config.json
Names = str | tuple[str, ...]  # of one weight of ours: one tensor, or the tensors that are concatenated
Value = TypeVar("Value")
WeightNames = dict[str, Names]  # our names -> those of Hugging Face
Layout = Mapping[str, Names]  # our modules -> theirs; fields in braces are filled in for every layer
# Names in Hugging Face configs: of the MLPs of a body, and of classification heads.
BODY_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
HEAD_ACTIVATIONS: dict[str, Activation] = {"tanh": "tanh", "sigmoid": "sigmoid", **BODY_ACTIVATIONS}

_MAX_SIZE = 100_000_000  # of any integer; the sizes of the weights are compared with the files later
_MAX_LAYERS = 1000
_ATTENTION_NORM = "layers.{layer}.attention_norm"
_MPNET_BUCKETS = 32  # fixed in the published implementation, regardless of the config


# --- config.json -----------------------------------------------------------------------------------------------------


def read_int(config: Config, *keys: str, default: int | None = None, least: int = 0, most: int = _MAX_SIZE) -> int:
    """Return the integer under the first of `keys` that is set.

    Raises:
        ModelError: The value is not an integer from `least` to `most`, or no key is set and there is no default.
    """
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        if default is None:
            raise ModelError(f"config.json lacks {keys[0]!r}")
        return default
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelError(f"config.json: {key!r} must be a whole number from {least} to {most:,}, got {value!r:.80}")
    return value


def read_float(config: Config, *keys: str, default: float, most: float = 1e12) -> float:
    """Return the number under the first of `keys` that is set; raise `ModelError` unless it is 0 to `most`."""
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        return default
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ModelError(f"config.json: {key!r} must be a number from 0 to {most:g}, got {value!r:.80}")
    return float(value)


def read_activation(
    config: Config, key: str, default: str = "gelu", *, known: Mapping[str, Activation] = BODY_ACTIVATIONS
) -> Activation:
    """Return the activation that config.json names under `key`; raise `ModelError` for an unknown one."""
    name = config.get(key) or default
    if not isinstance(name, str) or name not in known:
        raise ModelError(
            f"config.json: {key}: activation {name!r:.80} is not known; expected one of {', '.join(known)}"
        )
    return known[name]


def read_heads(config: Config, hidden: int, *keys: str) -> int:
    """Return the number of attention heads; raise `ModelError` unless it divides the hidden size."""
    count = read_int(config, *keys, least=1)
    if hidden % count:
        raise ModelError(f"config.json: hidden size {hidden} is not a multiple of {count} attention heads")
    return count


def read_layers(config: Config, *keys: str) -> int:
    """Return the number of layers."""
    return read_int(config, *keys, least=1, most=_MAX_LAYERS)


def _read_bert(config: Config) -> EncoderConfig:
    """BERT: absolute positions from 0, segments."""
    hidden = read_int(config, "hidden_size", least=1)
    rows = read_int(config, "max_position_embeddings")
    return EncoderConfig(
        family=str(config["model_type"]),
        vocab_size=read_int(config, "vocab_size", least=1),
        hidden=hidden,
        heads=read_heads(config, hidden, "num_attention_heads"),
        intermediate=read_int(config, "intermediate_size"),
        max_positions=rows,
        steps=_plain_steps(config, "num_hidden_layers"),
        embedding_size=hidden,
        activation=read_activation(config, "hidden_act"),
        norm_eps=read_float(config, "layer_norm_eps", default=1e-12),
        position_rows=rows,
        segments=read_int(config, "type_vocab_size", default=2, least=1),
        dropout=read_float(config, "hidden_dropout_prob", default=0.1, most=1),
        attention_dropout=read_float(config, "attention_probs_dropout_prob", default=0.1, most=1),
        initializer_range=read_float(config, "initializer_range", default=0.02),
    )


def _plain_steps(config: Config, *keys: str) -> tuple[LayerConfig, ...]:
    return tuple(LayerConfig(stored=i) for i in range(read_layers(config, *keys)))


def _read_roberta(config: Config) -> EncoderConfig:
    """RoBERTa: positions count from pad + 1, so the first rows of the table are unused."""
    offset = read_int(config, "pad_token_id", default=1) + 1
    base = _read_bert(config)
    return replace(base, position_offset=offset, max_positions=base.position_rows - offset)


def _read_electra(config: Config) -> EncoderConfig:
    """ELECTRA: embeddings may be narrower than the hidden size, and are projected then."""
    base = _read_bert(config)
    width = read_int(config, "embedding_size", default=base.hidden)
    return replace(base, embedding_size=width, projected=width != base.hidden)


def _read_albert(config: Config) -> EncoderConfig:
    """ALBERT: factorised embeddings; steps share stored layers (step -> group -> the layers inside the group)."""
    base = _read_bert({"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, **config})
    steps, groups = read_layers(config, "num_hidden_layers"), read_int(config, "num_hidden_groups", default=1)
    inner = read_int(config, "inner_group_num", default=1, least=1, most=100)
    if not 1 <= groups <= steps:
        raise ModelError(f"config.json: num_hidden_groups must be 1..{steps} (the layers), got {groups}")
    return replace(
        base,
        steps=tuple(
            LayerConfig(stored=int(step / (steps / groups)) * inner + i) for step in range(steps) for i in range(inner)
        ),
        embedding_size=read_int(config, "embedding_size", default=128),
        projected=True,
        group_size=inner,
        activation=read_activation(config, "hidden_act", "gelu_new"),
    )


def _read_distilbert(config: Config) -> EncoderConfig:
    """DistilBERT: BERT without segments, under other keys; the epsilon of LayerNorm is fixed in its implementation."""
    hidden = read_int(config, "dim", "hidden_size", least=1)
    rows = read_int(config, "max_position_embeddings")
    return EncoderConfig(
        family="distilbert",
        vocab_size=read_int(config, "vocab_size", least=1),
        hidden=hidden,
        heads=read_heads(config, hidden, "n_heads", "num_attention_heads"),
        intermediate=read_int(config, "hidden_dim"),
        max_positions=rows,
        steps=_plain_steps(config, "n_layers", "num_hidden_layers"),
        embedding_size=hidden,
        activation=read_activation(config, "activation"),
        norm_eps=1e-12,
        position_rows=rows,
        dropout=read_float(config, "dropout", default=0.1, most=1),
        attention_dropout=read_float(config, "attention_dropout", default=0.1, most=1),
        initializer_range=read_float(config, "initializer_range", default=0.02),
    )


def _read_mpnet(config: Config) -> EncoderConfig:
    """MPNet: BERT without segments, with a relative bias; the pad id is 1 in its implementation."""
    buckets = read_int(config, "relative_attention_num_buckets", default=_MPNET_BUCKETS)
    if buckets < _MPNET_BUCKETS:
        raise ModelError(f"config.json: MPNet needs at least {_MPNET_BUCKETS} relative_attention_num_buckets")
    base = _read_bert(config)
    return replace(base, segments=0, position_offset=2, max_positions=base.position_rows - 2, relative_buckets=buckets)


def _read_modernbert(config: Config) -> EncoderConfig:
    """ModernBERT: rotary positions, windows in two layers of three, LayerNorm first, GeGLU."""
    hidden = read_int(config, "hidden_size", least=1)
    return EncoderConfig(
        family="modernbert",
        vocab_size=read_int(config, "vocab_size", least=1),
        hidden=hidden,
        heads=read_heads(config, hidden, "num_attention_heads"),
        intermediate=read_int(config, "intermediate_size"),
        max_positions=read_int(config, "max_position_embeddings"),
        steps=_modernbert_steps(config),
        embedding_size=hidden,
        activation=read_activation(config, "hidden_activation"),
        norm_eps=read_float(config, "norm_eps", default=1e-5),
        pre_norm=True,
        gated=True,
        attention_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        norm_bias=bool(config.get("norm_bias", False)),
        dropout=read_float(config, "mlp_dropout", default=0.0, most=1),
        attention_dropout=read_float(config, "attention_dropout", default=0.0, most=1),
        initializer_range=read_float(config, "initializer_range", default=0.02),
    )


def _modernbert_steps(config: Config) -> tuple[LayerConfig, ...]:
    """Both generations of the config: `global_attn_every_n_layers`, and `layer_types` with `rope_parameters`."""
    count = read_layers(config, "num_hidden_layers")
    every = read_int(config, "global_attn_every_n_layers", default=3, least=1)
    kinds = config.get("layer_types") or ["sliding_attention" if i % every else "full_attention" for i in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count:
        raise ModelError(f"config.json: layer_types must be a list of {count} (the layers), got {kinds!r:.80}")
    window = read_int(config, "local_attention", default=128) // 2
    settings = {
        "full_attention": (0, _rope_theta(config, "full_attention", "global_rope_theta", 160_000.0)),
        "sliding_attention": (window, _rope_theta(config, "sliding_attention", "local_rope_theta", 10_000.0)),
    }
    unknown = [kind for kind in kinds if not isinstance(kind, str) or kind not in settings]
    if unknown:
        raise ModelError(f"config.json: layer_types may be {' or '.join(settings)}, got {unknown[0]!r:.80}")
    return tuple(LayerConfig(i, *settings[kind]) for i, kind in enumerate(kinds))


def _rope_theta(config: Config, kind: str, old_key: str, default: float) -> float:
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping) and isinstance(parameters.get(kind), Mapping):
        rope = parameters[kind]
        if rope.get("rope_type", "default") != "default":
            raise ModelError(f"config.json: rope_type {rope['rope_type']!r} is not known; expected 'default'")
        return read_float(rope, "rope_theta", default=default)
    return read_float(config, old_key, default=default)


# --- names of weights ------------------------------------------------------------------------------------------------


def _layers(prefix: str, modules: Layout) -> dict[str, Names]:
    """The layout of one layer, with the prefix of the layer."""
    return {
        f"layers.{{layer}}.{ours}": (
            f"{prefix}.{theirs}" if isinstance(theirs, str) else tuple(f"{prefix}.{part}" for part in theirs)
        )
        for ours, theirs in modules.items()
    }


_BERT_EMBEDDINGS: Layout = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.segment": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "embeddings.project": "embeddings_project",
}
_BERT_LAYER: Layout = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_BERT: Layout = {**_BERT_EMBEDDINGS, **_layers("encoder.layer.{layer}", _BERT_LAYER)}
_MPNET: Layout = {
    **_BERT_EMBEDDINGS,
    "relative_bias": "encoder.relative_attention_bias",
    **_layers(
        "encoder.layer.{layer}",
        {
            **_BERT_LAYER,
            "attention.qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
            "attention.out": "attention.attn.o",
            "attention_norm": "attention.LayerNorm",
        },
    ),
}
_ALBERT: Layout = {
    **_BERT_EMBEDDINGS,
    "embeddings.project": "encoder.embedding_hidden_mapping_in",
    **_layers(
        "encoder.albert_layer_groups.{group}.albert_layers.{inner}",
        {
            "attention.qkv": ("attention.query", "attention.key", "attention.value"),
            "attention.out": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "mlp.up": "ffn",
            "mlp.down": "ffn_output",
            "mlp_norm": "full_layer_layer_norm",
        },
    ),
}
_DISTILBERT: Layout = {
    **_BERT_EMBEDDINGS,
    **_layers(
        "transformer.layer.{layer}",
        {
            "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "mlp.up": "ffn.lin1",
            "mlp.down": "ffn.lin2",
            "mlp_norm": "output_layer_norm",
        },
    ),
}
_MODERNBERT: Layout = {
    "embeddings.word": "embeddings.tok_embeddings",
    "embeddings.norm": "embeddings.norm",
    "final_norm": "final_norm",
    **_layers(
        "layers.{layer}",
        {
            "attention.qkv": "attn.Wqkv",
            "attention.out": "attn.Wo",
            "attention_norm": "attn_norm",
            "mlp.up": "mlp.Wi",
            "mlp.down": "mlp.Wo",
            "mlp_norm": "mlp_norm",
        },
    ),
}


def _biases(config: EncoderConfig) -> dict[str, bool]:
    """The modules of `Encoder(config)` that have weights, and whether each has a bias."""
    modules = {
        "embeddings.word": False,
        "embeddings.norm": config.norm_bias,
        "layers.{layer}.attention.qkv": config.attention_bias,
        "layers.{layer}.attention.out": config.attention_bias,
        _ATTENTION_NORM: config.norm_bias,
        "layers.{layer}.mlp.up": config.mlp_bias,
        "layers.{layer}.mlp.down": config.mlp_bias,
        "layers.{layer}.mlp_norm": config.norm_bias,
    }
    if config.position_rows:
        modules["embeddings.position"] = False
    if config.segments:
        modules["embeddings.segment"] = False
    if config.projected:
        modules["embeddings.project"] = True
    if config.relative_buckets:
        modules["relative_bias"] = False
    if config.pre_norm:
        modules["final_norm"] = config.norm_bias
    return modules


def import_weights(
    state: Mapping[str, Tensor], names: WeightNames, *, source: str = "the model"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rename Hugging Face weights to ours.

    Args:
        state: Weights under their names, possibly with a prefix ('bert.', 'model.', '0.auto_model.').
        names: What `Family.weight_names` returns.
        source: The file or folder, for messages.

    Returns:
        Our weights, and the unused ones (heads, poolers) under their names without the prefix.

    Raises:
        ModelError: A weight is missing.
    """
    left = _without_prefix(state, names, source)
    ours: dict[str, Tensor] = {}
    for name, theirs in names.items():
        tensors = [left.pop(part) for part in _parts(theirs)]
        ours[name] = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    return ours, left


def export_weights(state: Mapping[str, Tensor], names: WeightNames) -> dict[str, Tensor]:
    """Rename our weights to those of Hugging Face, without a prefix."""
    theirs: dict[str, Tensor] = {}
    for name, target in names.items():
        if isinstance(target, str):
            theirs[target] = state[name]
        else:
            theirs.update(zip(target, state[name].chunk(len(target)), strict=True))
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _without_prefix(stored: Mapping[str, Value], names: WeightNames, source: str) -> dict[str, Value]:
    """Stored weights under their present names without a prefix; raise `ModelError` if one of `names` is missing."""
    # Old checkpoints call the parameters of LayerNorm gamma and beta.
    stored = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): value
        for name, value in stored.items()
    }
    word = names["embeddings.word.weight"]
    assert isinstance(word, str)
    matches = [name for name in stored if name.endswith(word)]
    if not matches:
        some = ", ".join(sorted(stored)[:3])
        raise ModelError(
            f"{source} has no word embeddings: expected a weight named {word!r}, possibly with a prefix, "
            f"among {len(stored)} weights ({some}, ...)"
        )
    prefix = min(matches, key=len).removesuffix(word)
    missing = [part for theirs in names.values() for part in _parts(theirs) if prefix + part not in stored]
    if missing:
        raise ModelError(
            f"{source} lacks {len(missing)} of the weights its config asks for, the first of them {missing[0]!r}: "
            "the weights and config.json do not belong together, or a file is incomplete"
        )
    return {name.removeprefix(prefix): value for name, value in stored.items()}


def _parts(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


# --- classification heads --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandardHead:
    """The head of a family's sequence classifier in transformers, from which `ClassifierHead` is built."""

    shape: HeadShape
    dropout: float
    layers: Mapping[str, str]  # our layers (dense, norm, out) -> theirs
    in_body: frozenset[str] = frozenset()  # our layers that are under the prefix of the body: poolers
    prefix: str = ""  # of the body, in the weights of a sequence classifier
    architecture: str = ""

    def weight_name(self, name: str) -> str:
        """Their name of one of our weights ('dense.weight'), without the prefix of the body."""
        layer, _, kind = name.partition(".")
        return f"{self.layers[layer]}.{kind}"

    def saved_name(self, name: str) -> str:
        """Their name of one of our weights in a saved sequence classifier."""
        in_body = name.partition(".")[0] in self.in_body
        return (self.prefix if in_body else "") + self.weight_name(name)


def sbert_dropout(config: Config) -> float:
    """Dropout of the paper's head: classifier_dropout, or the dropout of the body."""
    return read_float(config, "classifier_dropout", "hidden_dropout_prob", "dropout", default=0.1, most=1)


def _pooler_head(config: Config) -> StandardHead:
    """BERT: the pooler of the body, then one linear layer."""
    layers = {"dense": "pooler.dense", "out": "classifier"}
    return StandardHead(HeadShape("tanh", drop_first=False), sbert_dropout(config), layers, frozenset({"dense"}))


def _albert_head(config: Config) -> StandardHead:
    dropout = read_float(config, "classifier_dropout_prob", default=0.1, most=1)
    layers = {"dense": "pooler", "out": "classifier"}
    return StandardHead(HeadShape("tanh", drop_first=False), dropout, layers, frozenset({"dense"}))


def _roberta_head(config: Config) -> StandardHead:
    layers = {"dense": "classifier.dense", "out": "classifier.out_proj"}
    return StandardHead(HeadShape("tanh"), sbert_dropout(config), layers)


def _electra_head(config: Config) -> StandardHead:
    return replace(_roberta_head(config), shape=HeadShape("gelu"))


def _distilbert_head(config: Config) -> StandardHead:
    dropout = read_float(config, "seq_classif_dropout", default=0.2, most=1)
    layers = {"dense": "pre_classifier", "out": "classifier"}
    return StandardHead(HeadShape("relu", drop_first=False), dropout, layers)


def _modernbert_head(config: Config) -> StandardHead:
    pooling = config.get("classifier_pooling") or "cls"
    if pooling != "cls" and pooling != "mean":
        raise ModelError(f"config.json: classifier_pooling must be 'cls' or 'mean', got {pooling!r:.80}")
    shape = HeadShape(
        read_activation(config, "classifier_activation", known=HEAD_ACTIVATIONS),
        pooling=pooling,
        drop_first=False,
        bias=bool(config.get("classifier_bias", False)),
        norm_eps=read_float(config, "norm_eps", default=1e-5),
        norm_bias=bool(config.get("norm_bias", False)),
    )
    dropout = read_float(config, "classifier_dropout", default=0.0, most=1)
    return StandardHead(shape, dropout, {"dense": "head.dense", "norm": "head.norm", "out": "classifier"})


def _deberta_head(config: Config) -> StandardHead:
    # The first dropout has its own rate (pooler_dropout, 0 in published models); it matters only in training.
    dropout = read_float(config, "cls_dropout", "hidden_dropout_prob", default=0.1, most=1)
    shape = HeadShape(read_activation(config, "pooler_hidden_act", known=HEAD_ACTIVATIONS), drop_first=False)
    return StandardHead(shape, dropout, {"dense": "pooler.dense", "out": "classifier"})


# --- the families ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """How models of one `model_type` are read and written."""

    name: str
    classes: str  # the classes of transformers begin with this: 'Bert' of BertModel
    read: Callable[[Config], EncoderConfig]
    layout: Layout
    prefix: str  # of the body, in the weights of a sequence classifier
    head: Callable[[Config], StandardHead]
    token_types: bool = False  # whether its tokenizers return token_type_ids

    @property
    def architecture(self) -> str:
        """The class of the body in transformers."""
        return f"{self.classes}Model"

    def weight_names(self, config: EncoderConfig) -> WeightNames:
        """The name of every weight of `Encoder(config)` in a checkpoint of this family."""
        names: WeightNames = {}
        layers = range(config.stored_layers)
        for module, bias in _biases(config).items():
            theirs = self.layout[module]
            for layer in layers if "{layer}" in module else (0,):
                if module == _ATTENTION_NORM and config.pre_norm and layer == 0:
                    continue  # the embeddings are normalized already
                group, inner = divmod(layer, config.group_size)
                numbers = {"layer": layer, "group": group, "inner": inner}
                for kind in ("weight", "bias") if bias else ("weight",):
                    names[f"{module.format(**numbers)}.{kind}"] = (
                        f"{theirs.format(**numbers)}.{kind}"
                        if isinstance(theirs, str)
                        else tuple(f"{part.format(**numbers)}.{kind}" for part in theirs)
                    )
        return names

    def empty_encoder(
        self, config: Config, shapes: Mapping[str, list[int]], *, source: str
    ) -> tuple[Encoder, WeightNames]:
        """Build the encoder of a config.json, without values, if the weights of a checkpoint fit it.

        Args:
            config: The content of config.json.
            shapes: Of every weight in the checkpoint.
            source: The folder, for messages.

        Returns:
            The encoder on the meta device, and the names of its weights in the checkpoint.

        Raises:
            ModelError: The config is damaged, or a weight is missing or has another shape.
        """
        settings = self.read(config)
        if settings.max_positions < 1:
            raise ModelError(f"{source}: config.json: max_position_embeddings is too small, no positions are left")
        names = self.weight_names(settings)
        stored = _without_prefix(shapes, names, source)  # before building: a damaged config.json may ask for anything
        with torch.device("meta"):
            encoder = Encoder(settings)
        expected = encoder.state_dict()
        for ours, theirs in names.items():
            parts = _parts(theirs)
            shape = [expected[ours].shape[0] // len(parts), *expected[ours].shape[1:]]
            for name in parts:
                if stored[name] != shape:
                    raise ModelError(
                        f"{source}: the weight {name!r} has shape {stored[name]}, but config.json asks for {shape}: "
                        "the weights and config.json do not belong together"
                    )
        return encoder, names


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("bert", "Bert", _read_bert, _BERT, "bert.", _pooler_head, token_types=True),
        Family("roberta", "Roberta", _read_roberta, _BERT, "roberta.", _roberta_head),
        Family("xlm-roberta", "XLMRoberta", _read_roberta, _BERT, "roberta.", _roberta_head),
        Family("camembert", "Camembert", _read_roberta, _BERT, "roberta.", _roberta_head),
        Family("electra", "Electra", _read_electra, _BERT, "electra.", _electra_head, token_types=True),
        Family("albert", "Albert", _read_albert, _ALBERT, "albert.", _albert_head, token_types=True),
        Family("distilbert", "DistilBert", _read_distilbert, _DISTILBERT, "distilbert.", _distilbert_head),
        Family("mpnet", "MPNet", _read_mpnet, _MPNET, "mpnet.", _roberta_head),
        Family("modernbert", "ModernBert", _read_modernbert, _MODERNBERT, "model.", _modernbert_head),
    )
}
_FOREIGN_CLASSES = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}  # bodies that only transformers runs


def family_of(config: Config) -> Family | None:
    """The family of a config.json, or None where only transformers can run the model."""
    positions = config.get("position_embedding_type", "absolute")
    if positions not in (None, "absolute") or config.get("is_decoder") or config.get("add_cross_attention"):
        return None
    return FAMILIES.get(str(config.get("model_type", "")))


def standard_head(config: Config) -> StandardHead | None:
    """The head of the sequence classifier that transformers builds for a config.json, or None if it is unknown."""
    kind = str(config.get("model_type", ""))
    if kind in FAMILIES:
        family = FAMILIES[kind]
        classes, prefix, head = family.classes, family.prefix, family.head(config)
    elif kind in _FOREIGN_CLASSES:
        classes, prefix, head = _FOREIGN_CLASSES[kind], "deberta.", _deberta_head(config)
    else:
        return None
    return replace(head, prefix=prefix, architecture=f"{classes}ForSequenceClassification")
