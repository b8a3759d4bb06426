"""The small JSON files of a saved sentence-transformers model, of every release from 2.0 to 6.x, as typed values.

modules.json                          which modules, in which order, in which folders
sentence_bert_config.json and kin     max_seq_length, do_lower_case
1_Pooling/config.json                 six booleans (up to 5.x) or pooling_mode (6.x)
2_Dense/config.json                   shapes and activation
config_sentence_transformers.json     prompts, similarity, truncate_dim
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from munjang.checkpoint.files import read_json, read_object
from munjang.errors import ModelError
from munjang.nn.pooling import POOLING_MODES, Pooling
from munjang.types import Similarity

BODIES = ("Transformer", "StaticEmbedding")
HEADS = ("Dense", "Normalize", "LayerNorm", "Dropout")
KNOWN = (*BODIES, "Pooling", *HEADS)
_MOST_MODULES = 64

TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

_SIMILARITIES: dict[str, Similarity] = {
    "cosine": "cosine",
    "dot": "dot",
    "dot_product": "dot",
    "euclidean": "euclidean",
    "manhattan": "manhattan",
}


@dataclass(frozen=True)
class Module:
    """One entry of modules.json."""

    kind: str  # the class name, without its package
    folder: Path


@dataclass(frozen=True)
class TransformerConfig:
    """sentence_bert_config.json."""

    max_length: int | None = None
    lower_case: bool = False


@dataclass(frozen=True)
class ModelConfig:
    """config_sentence_transformers.json."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: Similarity = "cosine"
    truncate_dim: int | None = None
    model_type: str | None = None


def read_modules(folder: Path) -> list[Module] | None:
    """The modules in order, or None where the folder has no modules.json."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ModelError(f"{path} must hold a list of modules, got {type(entries).__name__}")
    if len(entries) > _MOST_MODULES:
        raise ModelError(f"{path} lists {len(entries):,} modules, at most {_MOST_MODULES} are supported")
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise ModelError(f"{path}: every module needs a 'type', got {entry!r}")
    if all(isinstance(entry.get("idx"), int) for entry in entries):
        entries = sorted(entries, key=lambda entry: int(entry["idx"]))
    modules = [Module(entry["type"].rpartition(".")[2], _inside(folder, entry, path)) for entry in entries]
    unknown = [entry["type"] for entry, module in zip(entries, modules, strict=True) if module.kind not in KNOWN]
    if unknown:
        raise ModelError(f"{path} has modules that are not known here: {', '.join(unknown)}; known: {', '.join(KNOWN)}")
    _check_order([module.kind for module in modules], path)
    return modules


def _inside(folder: Path, entry: dict[str, Any], path: Path) -> Path:
    relative = str(entry.get("path") or "")
    pure = PurePosixPath(relative.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts:
        raise ModelError(f"{path}: a module's path must lie inside the model, got {relative!r}")
    return folder / pure


def _check_order(kinds: list[str], path: Path) -> None:
    """One body first, then at most one Pooling, then heads."""
    rest = kinds[2:] if kinds[1:2] == ["Pooling"] else kinds[1:]
    if kinds[0] not in BODIES or any(kind not in HEADS for kind in rest):
        raise ModelError(
            f"{path}: expected {' or '.join(BODIES)}, then Pooling, then {', '.join(HEADS)} in any order; "
            f"got {', '.join(kinds)}"
        )
    if kinds[0] == "StaticEmbedding" and "Pooling" in kinds:
        raise ModelError(f"{path}: StaticEmbedding averages by itself and takes no Pooling after it")


def read_transformer_config(folder: Path, tasks: Sequence[str] = ("feature-extraction",)) -> TransformerConfig:
    """The first of sentence_*_config.json that is there; its task must be one of `tasks`."""
    path = next((folder / name for name in TRANSFORMER_CONFIGS if (folder / name).is_file()), None)
    if path is None:
        return TransformerConfig()
    config = read_object(path)
    task = config.get("transformer_task", "feature-extraction")
    if task not in tasks:
        if len(tasks) > 1:
            raise ModelError(f"{path}: transformer_task must be one of {', '.join(tasks)}, got {task!r}")
        raise ModelError(
            f"{path}: transformer_task must be 'feature-extraction' for a sentence encoder, got {task!r}: "
            "a cross-encoder is loaded with munjang.load_cross_encoder"
        )
    length = config.get("max_seq_length")
    for key in ("tokenizer_args", "processor_kwargs"):
        nested = config.get(key)
        if length is None and isinstance(nested, dict):
            length = nested.get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise ModelError(f"{path}: max_seq_length must be a positive whole number or null, got {length!r}")
    return TransformerConfig(length, bool(config.get("do_lower_case", False)))


def read_pooling(folder: Path, hidden: int) -> Pooling:
    """1_Pooling/config.json, both generations."""
    path = folder / "config.json"
    config = read_object(path, required=True)
    width = config.get("embedding_dimension", config.get("word_embedding_dimension", hidden))
    if width != hidden:
        raise ModelError(
            f"{path} says the body gives {width} values per token, but it gives {hidden}: "
            "the pooling and the body do not belong together"
        )
    include_prompt = bool(config.get("include_prompt", True))
    named = config.get("pooling_mode")
    if named is not None:
        known = {spec.name: mode for mode, spec in POOLING_MODES.items()}
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list) or not names or any(str(name).lower() not in known for name in names):
            raise ModelError(f"{path}: pooling_mode must be one or several of {', '.join(known)}, got {named!r}")
        return Pooling(tuple(known[name.lower()] for name in names), include_prompt)
    modes = tuple(mode for mode, spec in POOLING_MODES.items() if spec.flag and config.get(spec.flag))
    return Pooling(modes or ("mean",), include_prompt)  # mean is the default of sentence-transformers


def read_model_config(folder: Path) -> ModelConfig:
    """config_sentence_transformers.json; defaults where it is not there."""
    path = folder / "config_sentence_transformers.json"
    config = read_object(path)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or any(not isinstance(text, str | None) for text in prompts.values()):
        raise ModelError(f"{path}: 'prompts' must map names to texts, got {prompts!r}")
    default = config.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise ModelError(
            f"{path}: default_prompt_name {default!r} is not among the prompts ({', '.join(prompts) or 'none'})"
        )
    similarity = config.get("similarity_fn_name") or "cosine"
    if not isinstance(similarity, str) or similarity not in _SIMILARITIES:
        raise ModelError(f"{path}: similarity_fn_name must be one of {', '.join(_SIMILARITIES)}, got {similarity!r}")
    dimension = config.get("truncate_dim")
    if dimension is not None and (isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1):
        raise ModelError(f"{path}: truncate_dim must be a positive whole number or null, got {dimension!r}")
    kind = config.get("model_type")
    return ModelConfig(
        {str(name): text or "" for name, text in prompts.items()},
        default,
        _SIMILARITIES[similarity],
        dimension,
        kind if isinstance(kind, str) else None,
    )
