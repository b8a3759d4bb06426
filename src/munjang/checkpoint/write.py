"""Write model folders that sentence-transformers 3.0 to 6.x (and transformers) read, to the same vectors and scores.

Types in modules.json are `sentence_transformers.models.*`. Pooling is written as booleans for the oldest releases and
by name for the newest; keys that an older release would refuse are written only where they are needed. 2.x is not
supported: it reads Dense and LayerNorm from pickles alone. int8 folders are for this package alone and hold nothing
that can be left out. A folder is written beside its target first and then renamed into place.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from munjang.checkpoint.card import model_card
from munjang.checkpoint.cross import form_of, label_config, write_head_modules
from munjang.checkpoint.parts import (
    BiParts,
    CrossParts,
    Parts,
    torch_path,
    write_heads,
    write_modules,
    write_pooling,
    write_thresholds,
)
from munjang.checkpoint.static import write_static
from munjang.checkpoint.weights import storable, write_weights
from munjang.errors import InputError, ModelError, MunjangError
from munjang.files import DISK_FULL, read_object, repair_folder, replace_folder, write_json
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.families import FAMILIES, export_weights, family_of, standard_head
from munjang.text.tokenizer import Tokenizer
from munjang.types import SavedName

AnyParts = TypeVar("AnyParts", BiParts, CrossParts)
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
_NOT_SAVED = ("auto_map", "_name_or_path", "dtype", "num_labels")  # keys of config.json that hold for the original only
# Rotary bases of full and of sliding attention, where transformers 4 has one key for each.
_ROPE_BASES = {
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "gemma3_text": ("rope_theta", "rope_local_base_freq"),
}

# Entries that belong to a model and are removed when it is replaced; others in the folder (.git, notes) stay.
_MODEL_FILE = re.compile(
    r"modules\.json|config\.json|config_sentence_transformers\.json|sentence_[\w-]+_config\.json|generation_config\.json"
    r"|model[\w.-]*\.(safetensors|onnx)(\.index\.json)?|pytorch_model[\w.-]*\.bin(\.index\.json)?"
    r"|tf_model\.h5|flax_model\.msgpack|rust_model\.ot|onnx|openvino"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|chat_template\.\w+"
    r"|vocab\.txt|vocab\.json|merges\.txt|sentencepiece\.bpe\.model|spiece\.model|spm\.model|tokenizer\.model"
    r"|munjang\.json|README\.md|\d+_[A-Z]\w*"
)


def write_bi(
    parts: BiParts, folder: Path, *, dtype: SavedName | torch.dtype = torch.float32, card: str | None = None
) -> None:
    """Save a bi-encoder, atomically.

    Args:
        parts: The model.
        folder: Replaced as a whole if it is a model folder; files that belong to no model are kept.
        dtype: Of the saved weights.
        card: The README.md, instead of `model_card`.

    Raises:
        InputError: The dtype is impossible for this model, or `folder` holds something other than a model.
        ModelError: The model has parts that cannot be saved, or the disk is full.
    """
    _save(parts, Path(folder), dtype, card, _fill_bi)


def write_cross(
    parts: CrossParts, folder: Path, *, dtype: SavedName | torch.dtype = torch.float32, card: str | None = None
) -> None:
    """Save a cross-encoder, atomically; arguments and errors as in `write_bi`."""
    _save(parts, Path(folder), dtype, card, _fill_cross)


def _save(
    parts: AnyParts,
    folder: Path,
    dtype: SavedName | torch.dtype,
    card: str | None,
    fill: Callable[[AnyParts, Path, torch.dtype], None],
) -> None:
    stored = _DTYPES.get(dtype) if isinstance(dtype, str) else dtype if dtype in _DTYPES.values() else None
    if stored is None:
        raise InputError(f"a model is saved as float32, float16, bfloat16 or int8, got {dtype!r}")
    if stored == torch.int8 and isinstance(parts.body, TransformersBody):
        raise InputError(
            f"a {parts.body.config.family} model runs through transformers, which does not read int8 weights: save it "
            "as float32 or float16"
        )
    text = card or model_card(parts, folder.name, compact=stored == torch.int8)

    def fill_all(aside: Path) -> None:
        fill(parts, aside, stored)
        write_thresholds(aside, parts.thresholds, parts.first_stage_weight)
        (aside / "README.md").write_text(text, encoding="utf-8")

    replace_model_folder(folder, fill_all)


def _fill_bi(parts: BiParts, folder: Path, dtype: torch.dtype) -> None:
    if isinstance(parts.body, StaticEmbedding):
        modules = [("StaticEmbedding", "0_StaticEmbedding")]
        write_static(parts, folder / modules[0][1], dtype)
    else:
        modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
        _write_body(parts, folder, dtype, {})
        segments = parts.body.config.segments > 1 and not parts.tokenizer.ignores_segments
        _write_tokenizer(parts.tokenizer, folder, dtype, segments=segments)
        write_pooling(folder / modules[1][1], parts.pooling, parts.body.hidden)
    write_heads(folder, parts.heads, modules)
    write_modules(folder, modules)
    settings: dict[str, object] = {
        "model_type": "SentenceTransformer",
        "prompts": parts.prompts,
        "default_prompt_name": parts.default_prompt_name,
        "similarity_fn_name": parts.similarity,
    }
    if parts.truncate_dim is not None:
        settings["truncate_dim"] = parts.truncate_dim
    # The version of the schema, not of the writer: no release takes it for newer than itself.
    version = {"sentence_transformers": "2.3.0", "transformers": "4.36.0", "pytorch": "2.1.0"}
    write_json(folder / "config_sentence_transformers.json", {"__version__": version} | settings)


def _fill_cross(parts: CrossParts, folder: Path, dtype: torch.dtype) -> None:
    if isinstance(parts.body, StaticEmbedding):
        raise ModelError("a static model has no layers to read two texts with, so it is no cross-encoder")
    form = form_of(parts)
    activation = torch_path(parts.activation)
    nested = parts.hf_config.get("sentence_transformers")
    config = {
        **label_config(parts.labels),
        # The activation is where each generation of sentence-transformers looks for it.
        "sentence_transformers": {**(nested if isinstance(nested, dict) else {}), "activation_fn": activation},
        "sbert_ce_default_activation_function": activation,
    }
    modules = [("Transformer", "")]
    task = {}
    if form == "modules":
        _write_body(parts, folder, dtype, config)
        write_head_modules(parts.head, folder, parts.body.hidden, modules)
    else:
        _write_classifier(parts, folder, dtype, config, as_electra=form == "electra")
        task = {"transformer_task": "sequence-classification"}
    _write_tokenizer(parts.tokenizer, folder, dtype, segments=parts.uses_segments, **task)
    write_modules(folder, modules)
    settings = {
        "__version__": {"sentence_transformers": "4.0.0", "transformers": "4.48.0", "pytorch": "2.1.0"},
        "model_type": "CrossEncoder",
        "activation_fn": activation,
        "prompts": {},
        "default_prompt_name": None,
    }
    write_json(folder / "config_sentence_transformers.json", settings)


# --- body and tokenizer ----------------------------------------------------------------------------------------------


def _write_body(parts: Parts, folder: Path, dtype: torch.dtype, settings: Mapping[str, object]) -> None:
    """config.json with these settings, and the weights of the body and its pooler."""
    if isinstance(parts.body, TransformersBody):
        weights = {name: storable(tensor, dtype) for name, tensor in parts.body.model.state_dict().items()}
        parts.body.model.save_pretrained(folder, state_dict=weights, safe_serialization=True)
        config = _portable_config({**parts.hf_config, **read_object(folder / "config.json")}, parts, dtype)
    else:
        weights = _body_weights(parts)
        config = _portable_config(parts.hf_config, parts, dtype)
        config["architectures"] = [FAMILIES[str(config["model_type"])].architecture]
        pooler = {name: tensor for name, tensor in parts.leftover.items() if name.startswith("pooler.")}
        write_weights(folder, weights | pooler, dtype)
    write_json(folder / "config.json", {**config, **settings})


def _write_classifier(
    parts: CrossParts, folder: Path, dtype: torch.dtype, settings: Mapping[str, object], *, as_electra: bool
) -> None:
    """config.json with these settings, and the weights under the names of a sequence classifier."""
    config = {**_portable_config(parts.hf_config, parts, dtype), **settings}
    if as_electra:
        config |= {"model_type": "electra", "embedding_size": parts.body.hidden}
    standard = standard_head(config)
    assert standard is not None
    weights = {standard.saved_name(name): tensor for name, tensor in parts.head.state_dict().items()}
    weights |= {standard.prefix + name: tensor for name, tensor in _body_weights(parts).items()}
    write_json(folder / "config.json", config | {"architectures": [standard.architecture]})
    write_weights(folder, weights, dtype)


def _body_weights(parts: Parts) -> dict[str, Tensor]:
    """The weights of the body under the names of Hugging Face, without a prefix."""
    if isinstance(parts.body, TransformersBody):
        weights: dict[str, Tensor] = parts.body.model.state_dict()
        return weights
    family = family_of(parts.hf_config)
    if family is None or not isinstance(parts.body, Encoder):
        raise ModelError("the model has no config.json of a known family, so its weights have no names on disk")
    return export_weights(parts.body.state_dict(), family.weight_names(parts.body.config))


def _write_tokenizer(
    tokenizer: Tokenizer, folder: Path, dtype: torch.dtype, *, segments: bool, **settings: str
) -> None:
    """The files of the tokenizer, and sentence_bert_config.json."""
    tokenizer.save(folder, segments=segments, compact=dtype == torch.int8)
    # do_lower_case makes lower-casing the first normalization step: say so if it is.
    first = {"type": ""}
    if tokenizer.backend.normalizer is not None:
        first = json.loads(tokenizer.backend.normalizer.__getstate__())
        if first["type"] == "Sequence":
            first = next(iter(first["normalizers"]), {"type": ""})
    lower_case = first["type"] == "Lowercase"
    config = {"max_seq_length": tokenizer.max_length, "do_lower_case": lower_case, **settings}
    write_json(folder / "sentence_bert_config.json", config)


def _portable_config(config: Mapping[str, Any], parts: Parts, dtype: torch.dtype) -> dict[str, Any]:
    """config.json to save, with rotary settings both as transformers 5 names them and as transformers 4 does.

    transformers 4 would silently use its defaults instead of `rope_parameters`.
    """
    result = {key: value for key, value in config.items() if key not in _NOT_SAVED}
    result["torch_dtype"] = str(torch.float32 if dtype == torch.int8 else dtype).removeprefix("torch.")
    if isinstance(parts.body, Encoder):
        result["vocab_size"] = parts.body.embeddings.word.weight.shape[0]
    rope = result.get("rope_parameters")
    if not isinstance(rope, dict):
        return result
    kind = str(result.get("model_type"))
    full, sliding = rope.get("full_attention", rope), rope.get("sliding_attention")
    for settings, name in zip((full, sliding), _ROPE_BASES.get(kind, ("rope_theta",)), strict=False):
        if isinstance(settings, dict) and "rope_theta" in settings:
            result[name] = settings["rope_theta"]
    if isinstance(full, dict):
        if "partial_rotary_factor" in full:
            result["partial_rotary_factor"] = full["partial_rotary_factor"]
        if full.get("rope_type", "default") != "default":
            separate = ("rope_theta", "partial_rotary_factor")
            result["rope_scaling"] = {key: value for key, value in full.items() if key not in separate}
    kinds = result.get("layer_types")
    if kind == "modernbert" and isinstance(kinds, list):
        # Layers 0, n, 2n, ... with full attention are all that transformers 4 can express.
        full_layers = [layer == "full_attention" for layer in kinds]
        for n in range(1, len(kinds) + 1):
            if full_layers == [i % n == 0 for i in range(len(kinds))]:
                result["global_attn_every_n_layers"] = n
                break
    return result


# --- replacing a model -----------------------------------------------------------------------------------------------


def replace_model_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Replace a model folder with what `fill` writes into a temporary one; any error leaves the old model untouched."""
    target = Path(os.path.realpath(Path(folder).expanduser()))
    repair_folder(target)
    _check_target(target)
    with _model_errors(target):
        replace_folder(target, fill, owned=_MODEL_FILE.fullmatch)


def _check_target(target: Path) -> None:
    """Refuse a target that is neither a model, nor an empty folder, nor absent."""
    if not target.name:
        raise InputError(f"a model is saved to a folder with a name, not to {target}")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"a model is saved to a folder, but {target} is a file")
    names = {entry.name for entry in target.iterdir()}
    if names and not names & {"modules.json", "config.json"}:
        some = ", ".join(sorted(names)[:5])
        raise InputError(
            f"{target} exists and is not a model (it contains {some}{', ...' if len(names) > 5 else ''}): "
            "nothing was changed; choose another folder, or empty this one"
        )


@contextlib.contextmanager
def _model_errors(target: Path) -> Iterator[None]:
    """Convert disk errors into a ModelError that says what is intact."""
    try:
        yield
    except MunjangError:
        raise
    except Exception as error:  # safetensors and tokenizers raise disk errors as exception types of their own
        number = error.errno if isinstance(error, OSError) else None
        safe = f"{target} is unchanged" if target.exists() else "nothing was saved"
        if number in DISK_FULL or re.search(r"No space left|os error 28|quota", str(error)):
            raise ModelError(f"{target} cannot be saved: the disk is full (or the quota used up); {safe}") from error
        if isinstance(error, OSError) or "os error" in str(error):
            raise ModelError(f"{target} cannot be saved ({error}); {safe}") from error
        raise
