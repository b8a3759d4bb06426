"""`ModelParts` to a model folder that sentence-transformers 3.0 to 6.x read, to the same vectors.

Types in modules.json are `sentence_transformers.models.*`, pooling is written as booleans, as the oldest releases want
it, and by name, as the newest do; keys that an older release would stumble over are written only where they say
something. 2.x is not supported: it reads Dense and LayerNorm from pickles alone. Everything is written aside first
(`swap`).

int8 is the exception: a compact folder (`compact`) for this package alone, with nothing in it that could be left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from munjang.checkpoint.card import model_card
from munjang.checkpoint.compact import pack
from munjang.checkpoint.files import read_object
from munjang.checkpoint.parts import ModelBody, ModelParts
from munjang.checkpoint.static import ENDLESS
from munjang.checkpoint.swap import replace_model_folder
from munjang.checkpoint.thresholds import write_thresholds
from munjang.checkpoint.weights import COMPACT, SAFE
from munjang.errors import InputError, ModelError
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.families import export_weights, family_of
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import POOLING_MODES, Pooling
from munjang.text.tokenizer import Tokenizer
from munjang.types import SavedName

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
_DROPPED = ("auto_map", "_name_or_path", "dtype")  # of config.json: true of the model it was, not of the one saved
# Rotary bases of full and of sliding attention, where transformers 4 has one for each.
_ROPE_BASES = {
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "gemma3_text": ("rope_theta", "rope_local_base_freq"),
}


def write(
    parts: ModelParts, folder: Path, *, dtype: SavedName | torch.dtype = torch.float32, card: str | None = None
) -> None:
    """Save a model, whole or not at all. `card` replaces the README.md that is written otherwise."""
    kind = stored_dtype(dtype, parts.body)
    text = card or model_card(parts, Path(folder).name, compact=kind == torch.int8)
    replace_model_folder(Path(folder), lambda aside: _fill(parts, aside, kind, text))


def stored_dtype(asked: SavedName | torch.dtype, body: ModelBody) -> torch.dtype:
    """The type that weights are saved in, by its name or as torch has it, if such a body can be saved in it."""
    found = _DTYPES.get(asked) if isinstance(asked, str) else asked if asked in _DTYPES.values() else None
    if found is None:
        raise InputError(f"a model is saved as float32, float16, bfloat16 or int8, got {asked!r}")
    if found == torch.int8 and isinstance(body, TransformersBody):
        raise InputError(
            f"a {body.config.family} model runs through transformers, which does not read int8 weights: save it as "
            "float32 or float16"
        )
    return found


def _fill(parts: ModelParts, folder: Path, dtype: torch.dtype, card: str) -> None:
    static = isinstance(parts.body, StaticEmbedding)
    modules = [("StaticEmbedding", "0_StaticEmbedding") if static else ("Transformer", "")]
    if static:
        _write_static(parts, folder / modules[0][1], dtype)
    else:
        _write_transformer(parts, folder, dtype)
        modules.append(("Pooling", "1_Pooling"))
        (folder / "1_Pooling").mkdir()
        write_json(folder / "1_Pooling" / "config.json", pooling_config(parts.pooling, parts.body.hidden))
    for head in parts.heads:
        kind = {Dense: "Dense", Normalize: "Normalize", VectorNorm: "LayerNorm"}.get(type(head))
        if kind is None:
            raise ModelError(f"a head of type {type(head).__name__} has no form on disk")
        modules.append((kind, f"{len(modules)}_{kind}"))
        (folder / modules[-1][1]).mkdir()
        _write_head(head, folder / modules[-1][1])
    write_json(folder / "modules.json", modules_table(modules))
    write_json(folder / "config_sentence_transformers.json", _model_config(parts))
    write_thresholds(folder, parts.thresholds)
    (folder / "README.md").write_text(card, encoding="utf-8")


def modules_table(modules: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """modules.json of (class, folder), in order, under the names that every release knows."""
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]


def pooling_config(pooling: Pooling, hidden: int) -> dict[str, Any]:
    """1_Pooling/config.json for all releases; modes or an order that flags cannot express are written for 6.x alone."""
    config: dict[str, Any] = {"word_embedding_dimension": hidden}
    specs = [POOLING_MODES[mode] for mode in pooling.modes]
    if pooling.modes == tuple(mode for mode, spec in POOLING_MODES.items() if spec.flag and mode in pooling.modes):
        for spec in POOLING_MODES.values():
            if spec.flag and (spec.first_release or spec in specs):
                config[spec.flag] = spec in specs
        # Before 6.x, a list of names is refused.
        if len(specs) == 1 and specs[0].beside_flag:
            config["pooling_mode"] = specs[0].name
    else:
        config["pooling_mode"] = [spec.name for spec in specs]
    if not pooling.include_prompt:
        config["include_prompt"] = False
    return config


def _model_config(parts: ModelParts) -> dict[str, Any]:
    config: dict[str, Any] = {
        # What the schema is, not what wrote it: a number that no release takes for newer than itself.
        "__version__": {"sentence_transformers": "2.3.0", "transformers": "4.36.0", "pytorch": "2.1.0"},
        "model_type": "SentenceTransformer",
        "prompts": parts.prompts,
        "default_prompt_name": parts.default_prompt_name,
        "similarity_fn_name": parts.similarity,
    }
    if parts.truncate_dim is not None:
        config["truncate_dim"] = parts.truncate_dim
    return config


def _write_head(head: nn.Module, folder: Path) -> None:
    if isinstance(head, Dense):
        linear, name = head.linear, head.activation
        write_json(folder / "config.json", dense_config(linear, activation_class(name)))
        write_weights(folder, head.state_dict(), torch.float32)
    elif isinstance(head, VectorNorm):
        write_json(folder / "config.json", {"dimension": head.dimension})
        write_weights(folder, {f"norm.{name}": tensor for name, tensor in head.state_dict().items()}, torch.float32)


def dense_config(linear: nn.Linear, activation: str) -> dict[str, Any]:
    """2_Dense/config.json; the activation is named from torch.nn.modules on."""
    return {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"torch.nn.modules.{activation}",
    }


def activation_class(name: str) -> str:
    """The class of torch.nn below torch.nn.modules: 'Tanh' -> 'activation.Tanh'."""
    return f"linear.{name}" if name == "Identity" else f"activation.{name}"


def _write_static(parts: ModelParts, folder: Path, dtype: torch.dtype) -> None:
    if parts.pooling.modes != ("mean",):
        raise ModelError(f"a static model is saved with mean pooling only, got {'+'.join(parts.pooling.modes)}")
    folder.mkdir()
    write_weights(folder, parts.body.state_dict(), dtype)
    parts.tokenizer.save(folder, compact=dtype == torch.int8)
    limit = parts.tokenizer.max_length
    if limit < ENDLESS:
        # sentence-transformers knows no max_seq_length here, but does what tokenizer.json says.
        path = folder / "tokenizer.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        content["truncation"] = {"direction": "Right", "max_length": limit, "strategy": "LongestFirst", "stride": 0}
        write_json(path, content, compact=dtype == torch.int8)


def _write_transformer(parts: ModelParts, folder: Path, dtype: torch.dtype) -> None:
    if isinstance(parts.body, TransformersBody):
        write_foreign(parts.body, parts, folder, dtype)
    else:
        assert isinstance(parts.body, Encoder)
        _write_encoder(parts.body, parts, folder, dtype)
    segments = parts.body.config.segments > 1 and not parts.tokenizer.ignores_segments
    parts.tokenizer.save(folder, segments=segments, compact=dtype == torch.int8)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": parts.tokenizer.max_length, "do_lower_case": lower_cases(parts.tokenizer)},
    )


def lower_cases(tokenizer: Tokenizer) -> bool:
    """Whether lower-casing stands before everything else the tokenizer does, as do_lower_case puts it there."""
    if tokenizer.backend.normalizer is None:
        return False
    first = json.loads(tokenizer.backend.normalizer.__getstate__())
    if first["type"] == "Sequence":
        first = next(iter(first["normalizers"]), {"type": ""})
    return bool(first["type"] == "Lowercase")


def _write_encoder(body: Encoder, parts: ModelParts, folder: Path, dtype: torch.dtype) -> None:
    family = family_of(parts.hf_config)
    if family is None:
        raise ModelError("the model has no config.json of a known family, so its weights have no names on disk")
    rows = body.embeddings.word.weight.shape[0]
    config = portable_config(parts.hf_config)
    config |= {"architectures": [family.architecture], "vocab_size": rows, "torch_dtype": dtype_name(dtype)}
    write_json(folder / "config.json", config)
    theirs = export_weights(body.state_dict(), family.weight_names(body.config))
    write_weights(folder, theirs | parts.leftover, dtype)


def write_foreign(body: TransformersBody, parts: ModelParts, folder: Path, dtype: torch.dtype) -> None:
    held = {name: _plain(tensor, dtype) for name, tensor in body.model.state_dict().items()}
    body.model.save_pretrained(folder, state_dict=held, safe_serialization=True)
    config = portable_config({**parts.hf_config, **read_object(folder / "config.json")})
    write_json(folder / "config.json", config | {"torch_dtype": dtype_name(dtype)})


def portable_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json to save, with rotary settings both as transformers 5 names them and as transformers 4 does.

    transformers 4 would silently use its defaults instead of `rope_parameters`.
    """
    result = {key: value for key, value in config.items() if key not in _DROPPED}
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
    if kind == "modernbert" and (every := _full_attention_every(result.get("layer_types"))):
        result["global_attn_every_n_layers"] = every
    return result


def _full_attention_every(kinds: object) -> int | None:
    """n where exactly the layers 0, n, 2n, ... have full attention; None where the layers follow no such rule."""
    if not isinstance(kinds, list):
        return None
    full = [kind == "full_attention" for kind in kinds]
    return next((n for n in range(1, len(full) + 1) if full == [i % n == 0 for i in range(len(full))]), None)


def write_weights(folder: Path, state: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """One file of weights: compact where the type is int8, else as everybody reads it."""
    if dtype == torch.int8:
        safetensors.torch.save_file(pack(state), folder / COMPACT, metadata={"format": "munjang-int8"})
        return
    tensors = {name: _plain(tensor, dtype) for name, tensor in state.items()}
    safetensors.torch.save_file(tensors, folder / SAFE, metadata={"format": "pt"})


def _plain(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """On the CPU, in the type asked for, and not a part of another tensor, which safetensors would refuse."""
    tensor = tensor.detach()
    if tensor.is_floating_point():
        tensor = tensor.to("cpu", dtype)
    shared = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
    return tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.cpu().contiguous()


def dtype_name(dtype: torch.dtype) -> str:
    """What config.json says of the weights; compact ones are float32 once they are read."""
    return str(torch.float32 if dtype == torch.int8 else dtype).removeprefix("torch.")


def write_json(path: Path, content: object, *, compact: bool = False) -> None:
    layout: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    path.write_text(json.dumps(content, ensure_ascii=False, **layout) + "\n", encoding="utf-8")
