"""`CrossParts` to a model folder that sentence-transformers' CrossEncoder and transformers load, to the same scores.

A head has one of three forms on disk:

- a family's own head: `XForSequenceClassification`, which sentence-transformers 3.0 to 6.x read;
- the paper's head on a BERT body whose embeddings are as wide as its layers: that *is*
  `ElectraForSequenceClassification`, and is saved as model_type electra, which the same releases read;
- any other: the body, and Pooling and Dense modules beside it, which sentence-transformers 6.x reads. Older ones would
  read the body alone and make up a head; the card says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from munjang.checkpoint.cross_card import cross_card
from munjang.checkpoint.cross_parts import CrossParts
from munjang.checkpoint.labels import to_config
from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.reading import poolers
from munjang.checkpoint.swap import replace_model_folder
from munjang.checkpoint.thresholds import write_thresholds
from munjang.checkpoint.writing import (
    activation_class,
    dense_config,
    dtype_name,
    lower_cases,
    modules_table,
    pooling_config,
    portable_config,
    stored_dtype,
    write_foreign,
    write_json,
    write_weights,
)
from munjang.errors import ModelError
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.families import FAMILIES, export_weights, family_of, standard_head
from munjang.nn.heads import DENSE_ACTIVATIONS, SBERT
from munjang.nn.pooling import Pooling
from munjang.types import SavedName

_DENSE_NAMES = {ours: activation_class(theirs) for theirs, ours in DENSE_ACTIVATIONS.items()}


def write_cross(
    parts: CrossParts, folder: Path, *, dtype: SavedName | torch.dtype = torch.float32, card: str | None = None
) -> None:
    """Save a cross-encoder, whole or not at all. `card` replaces the README.md that is written otherwise."""
    kind = stored_dtype(dtype, parts.body)
    text = card or cross_card(parts, Path(folder).name, form_of(parts), compact=kind == torch.int8)
    replace_model_folder(Path(folder), lambda aside: _fill(parts, aside, kind, text))


def form_of(parts: CrossParts) -> str:
    """How the head is saved: 'classifier', 'electra' or 'modules'."""
    standard = standard_head(parts.hf_config)
    if standard is not None and standard.shape == parts.head.shape:
        return "classifier"
    config = parts.body.config
    if (
        isinstance(parts.body, Encoder)
        and config.family == "bert"
        and parts.hf_config.get("model_type") == "bert"
        and config.embedding_size == config.hidden
        and parts.head.shape == SBERT
    ):
        return "electra"
    return "modules"


def _fill(parts: CrossParts, folder: Path, dtype: torch.dtype, card: str) -> None:
    if isinstance(parts.body, StaticEmbedding):
        raise ModelError("a static model has no layers to read two texts with, so it is no cross-encoder")
    form = form_of(parts)
    config = portable_config(parts.hf_config)
    config.pop("num_labels", None)
    activation = f"torch.nn.modules.{activation_class(parts.activation)}"
    nested = config.get("sentence_transformers")
    config |= to_config(parts.labels)
    config |= {
        # Where each generation of sentence-transformers looks for it.
        "sentence_transformers": {**(nested if isinstance(nested, dict) else {}), "activation_fn": activation},
        "sbert_ce_default_activation_function": activation,
        "torch_dtype": dtype_name(dtype),
        "vocab_size": parts.body.config.vocab_size,
    }
    if form == "electra":
        config |= {"model_type": "electra", "embedding_size": parts.body.hidden}
    if form == "modules":
        _write_modules(parts, folder, config, dtype)
    else:
        _write_classifier(parts, folder, config, dtype)
    _write_small_files(parts, folder, activation, form, compact=dtype == torch.int8)
    write_thresholds(folder, parts.thresholds)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _write_classifier(parts: CrossParts, folder: Path, config: dict[str, Any], dtype: torch.dtype) -> None:
    """One file of weights under the names of a sequence classifier."""
    standard = standard_head(config)
    assert standard is not None
    state = {standard.saved_name(name): tensor for name, tensor in parts.head.state_dict().items()}
    for name, tensor in _body_weights(parts, config).items():
        state[standard.prefix + name] = tensor
    write_json(folder / "config.json", config | {"architectures": [standard.architecture]})
    write_weights(folder, state, dtype)


def _body_weights(parts: CrossParts, config: dict[str, Any]) -> dict[str, Tensor]:
    """The body's weights under Hugging Face's names, without a prefix."""
    if isinstance(parts.body, TransformersBody):
        state: dict[str, Tensor] = parts.body.model.state_dict()
        return state
    family = family_of(config)
    if family is None or not isinstance(parts.body, Encoder):
        raise ModelError("the model has no config.json of a known family, so its weights have no names on disk")
    return export_weights(parts.body.state_dict(), family.weight_names(parts.body.config))


def _write_modules(parts: CrossParts, folder: Path, config: dict[str, Any], dtype: torch.dtype) -> None:
    """The body alone, and the head as Pooling and Dense beside it."""
    head, hidden = parts.head, parts.body.hidden
    if head.norm is not None or head.shape.activation not in _DENSE_NAMES:
        raise ModelError(f"a {head.shape.activation} head with a norm has no form on disk but its own family's")
    if isinstance(parts.body, TransformersBody):
        bare = ModelParts(parts.body, parts.tokenizer, Pooling(), hf_config=parts.hf_config)
        write_foreign(parts.body, bare, folder, dtype)
        write_json(folder / "config.json", config)
    else:
        family = FAMILIES[str(config["model_type"])]
        write_json(folder / "config.json", config | {"architectures": [family.architecture]})
        write_weights(folder, _body_weights(parts, config) | poolers(parts.leftover), dtype)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", pooling_config(Pooling((head.shape.pooling,)), hidden))
    layers = [(head.dense, head.shape.activation, None)] if head.dense is not None else []
    for linear, activation, output in [*layers, (head.out, "identity", "scores")]:
        place = f"{len(modules)}_Dense"
        modules.append(("Dense", place))
        (folder / place).mkdir()
        extra = {} if output is None else {"module_input_name": "sentence_embedding", "module_output_name": output}
        write_json(folder / place / "config.json", dense_config(linear, _DENSE_NAMES[activation]) | extra)
        weights = {f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}
        write_weights(folder / place, weights, torch.float32)
    write_json(folder / "modules.json", modules_table(modules))


def _write_small_files(parts: CrossParts, folder: Path, activation: str, form: str, *, compact: bool) -> None:
    tokenizer = parts.tokenizer
    tokenizer.save(folder, segments=parts.uses_segments, compact=compact)
    transformer: dict[str, Any] = {"max_seq_length": tokenizer.max_length, "do_lower_case": lower_cases(tokenizer)}
    if form != "modules":
        transformer["transformer_task"] = "sequence-classification"
    write_json(folder / "sentence_bert_config.json", transformer)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {"sentence_transformers": "4.0.0", "transformers": "4.48.0", "pytorch": "2.1.0"},
            "model_type": "CrossEncoder",
            "activation_fn": activation,
            "prompts": {},
            "default_prompt_name": None,
        },
    )
    if form != "modules":
        write_json(folder / "modules.json", modules_table([("Transformer", "")]))
