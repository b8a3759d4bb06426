"""Read a model folder that sentence-transformers 2.x to 6.x, transformers, model2vec or Munjang saved.

    modules.json -> body (config.json, weights, tokenizer) -> pooling, heads or a classification head -> settings

Files that do not belong together are an error that names them; an assumption is a note. Code beside a model never runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from munjang.checkpoint.cross import (
    Labels,
    add_head,
    foreign_head_weights,
    read_activation,
    read_classifier,
    read_head_modules,
    read_labels,
    replace_head,
)
from munjang.checkpoint.hub import source_of
from munjang.checkpoint.parts import (
    BiParts,
    Body,
    CrossParts,
    HeadName,
    Module,
    Parts,
    read_first_stage_weight,
    read_heads,
    read_modules,
    read_pooling,
    read_thresholds,
)
from munjang.checkpoint.static import read_static
from munjang.checkpoint.weights import INT8, load_weights, stored_shapes, weight_files
from munjang.errors import InputError, ModelError, ModelNotFoundError
from munjang.files import list_contents, read_object, repair_folder
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.families import Family, family_of, import_weights
from munjang.nn.pooling import Pooling, PoolingMode
from munjang.text.tokenizer import VOCABULARY_FILES, Tokenizer
from munjang.types import Similarity

_SENTENCE_CONFIGS = tuple(
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
Result = TypeVar("Result")
_ATTEMPTS = 5  # to read a folder that is being replaced
_NO_LIMIT = 1_000_000  # max_length from here on means that there is none

# Keys of config.json and what bounds their values.
_WEIGHT_SIZES = re.compile(r"(?:^|_)(?:size|sizes|dim|d_\w+|embd)$|^d_")
_WIDTHS = ("hidden_size", "d_model", "n_embd", "emb_dim")  # some weight has exactly this size
_UNBOUNDED = re.compile("position|theta|rope|window|length|distance|_id$")
_MAX_UNBOUNDED = 1 << 40


def read_bi(
    folder: Path, *, pooling: PoolingMode | Sequence[PoolingMode] | None = None, max_length: int | None = None
) -> BiParts:
    """Read a bi-encoder.

    Args:
        folder: A model folder; see `resolve`.
        pooling: Use this pooling instead of the saved one.
        max_length: Use this many tokens at most instead of the saved limit.

    Raises:
        ModelError: The folder is damaged, unsafe, unknown or inconsistent.
        InputError: The pooling is unknown, or max_length exceeds the positions of the model.
    """
    return _read_consistently(Path(folder), partial(_read_bi, pooling=pooling, max_length=max_length))


def read_cross(
    folder: Path,
    *,
    labels: Labels | None = None,
    head: HeadName | None = None,
    seed: int = 0,
    max_length: int | None = None,
) -> CrossParts:
    """Read a cross-encoder or a sequence classifier, or put a new head on a body.

    Args:
        folder: A model folder; see `resolve`.
        labels: The number or the names of the outputs. If the saved head has others, the head is new.
        head: "sbert" (the paper's) or "standard" (the family's own); by default the saved one, else "sbert".
        seed: Of the weights of a new head. A new head is noted: it must be trained before its scores mean anything.
        max_length: Use this many tokens at most instead of the saved limit.

    Raises:
        ModelError: The folder is damaged, unsafe, unknown or inconsistent.
        InputError: Labels, head or max_length are impossible for this model.
    """
    return _read_consistently(
        Path(folder), partial(_read_cross, labels=labels, head=head, seed=seed, max_length=max_length)
    )


def is_cross(folder: Path) -> bool:
    """Whether a folder was saved as a cross-encoder or a sequence classifier."""
    folder = Path(folder)
    kind = read_object(folder / "config_sentence_transformers.json").get("model_type")
    if kind is not None:
        return bool(kind == "CrossEncoder")
    architectures = read_object(folder / "config.json").get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return not (folder / "modules.json").is_file() and any(str(n).endswith("SequenceClassification") for n in names)


def _read_consistently(folder: Path, read: Callable[[Path], Result]) -> Result:
    """Call `read(folder)`, again if the folder was replaced meanwhile: the result is never half old, half new."""
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            result = read(folder)
        except ModelError:
            if _identity(folder) == before:
                raise
            continue
        if _identity(folder) == before:
            return result
    raise ModelError(f"{folder} was replaced {_ATTEMPTS} times while it was read; wait until it is no longer written")


def _identity(folder: Path) -> tuple[int, int]:
    repair_folder(folder)
    if not folder.is_dir():
        raise ModelNotFoundError(f"there is no model folder {folder}")
    status = folder.stat()
    return status.st_dev, status.st_ino


def _read_bi(folder: Path, pooling: PoolingMode | Sequence[PoolingMode] | None, max_length: int | None) -> BiParts:
    modules = read_modules(folder) or _assume_modules(folder)
    path = folder / "config_sentence_transformers.json"
    config = read_object(path)
    settings = _read_settings(config, path)
    parts, _ = _read_body(folder, modules[0], ("feature-extraction",), max_length)
    notes = parts.notes
    kind = config.get("model_type") or "SentenceTransformer"
    if kind != "SentenceTransformer":
        notes.insert(0, f"saved as a {kind}, not as a sentence encoder: only its body is used")
    chosen, changed = _choose_pooling(parts.body, modules[1:2], pooling, notes)
    rest = [module for module in modules[1:] if module.kind != "Pooling"]
    heads, dimension = read_heads(rest, chosen.dimension(parts.body.config.hidden), notes)
    truncate_dim = settings["truncate_dim"]
    if truncate_dim is not None and truncate_dim > dimension:
        notes.append(f"truncate_dim {truncate_dim} is more than the model's {dimension} dimensions and has no effect")
        settings["truncate_dim"] = None
    if not changed:  # another pooling gives other vectors
        parts.thresholds = read_thresholds(folder)
    return BiParts(**vars(parts), **settings, pooling=chosen, heads=heads)


def _read_cross(
    folder: Path, labels: Labels | None, head: HeadName | None, seed: int, max_length: int | None
) -> CrossParts:
    modules = read_modules(folder) or [Module("Transformer", folder, read_object(folder / "config.json"))]
    settings = read_object(folder / "config_sentence_transformers.json")
    if modules[0].kind != "Transformer":
        raise ModelError(
            f"{folder} holds a {modules[0].kind}, which has no layers to read two texts with: load an encoder"
        )
    parts, left = _read_body(folder, modules[0], ("sequence-classification", "feature-extraction"), max_length)
    config, hidden = parts.hf_config, parts.body.config.hidden
    if isinstance(parts.body, TransformersBody):
        left = foreign_head_weights(modules[0].folder, config)
    parts.leftover = {name: tensor for name, tensor in left.items() if name.startswith(("pooler.", "head."))}
    saved = read_head_modules(modules[1:], hidden, config) or read_classifier(left, hidden, config, modules[0].folder)
    if saved is None:
        cross = add_head(parts, labels, head=head, seed=seed)
    else:
        names = read_labels(config, saved.labels, parts.notes)
        activation = read_activation(settings, config, saved.labels, parts.notes)
        parts.thresholds = read_thresholds(folder)
        parts.first_stage_weight = read_first_stage_weight(folder)
        cross = CrossParts(**vars(parts), head=saved, labels=names, activation=activation)
        cross = replace_head(cross, labels, head=head, seed=seed)
    prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if settings.get("model_type") == "CrossEncoder" and prompt:
        cross.notes.append(f"its default prompt {prompt!r} is not put before texts here: do so yourself")
    return cross


def _assume_modules(folder: Path) -> list[Module]:
    """The modules of a folder without modules.json: only a body."""
    config = read_object(folder / "config.json")
    if config.get("model_type") == "model2vec":
        normalize = [Module("Normalize", folder, {})] * bool(config.get("normalize"))
        return [Module("StaticEmbedding", folder, config), *normalize]
    return [Module("Transformer", folder, config)]


def _read_settings(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Prompts, similarity and truncate_dim, as fields of `BiParts`."""
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
    return {
        "prompts": {str(name): text or "" for name, text in prompts.items()},
        "default_prompt_name": default,
        "similarity": _SIMILARITIES[similarity],
        "truncate_dim": dimension,
    }


def _choose_pooling(
    body: Body, modules: Sequence[Module], requested: PoolingMode | Sequence[PoolingMode] | None, notes: list[str]
) -> tuple[Pooling, bool]:
    """The requested pooling, the saved one, or mean; and whether it differs from the saved one."""
    saved = Pooling() if isinstance(body, StaticEmbedding) else None
    for module in modules:
        if module.kind == "Pooling":
            saved = read_pooling(module, body.config.hidden)
    if requested is not None:
        chosen = Pooling.parse(requested, include_prompt=saved is None or saved.include_prompt)
        if saved is None or saved.modes == chosen.modes:
            return chosen, False
        notes.append(
            f"pooling {'+'.join(chosen.modes)} was requested; the model was saved with {'+'.join(saved.modes)}"
        )
        return chosen, True
    if saved is None:
        notes.append("the model does not say how to pool: mean pooling is assumed (pooling= chooses another)")
    return saved or Pooling(), False


# --- body and tokenizer ----------------------------------------------------------------------------------------------


def _read_body(
    folder: Path, module: Module, tasks: Sequence[str], max_length: int | None
) -> tuple[Parts, dict[str, Tensor]]:
    """Body and tokenizer, and the weights beside those of the body, under their names without its prefix."""
    if not module.folder.is_dir():
        raise ModelError(f"modules.json names {module.folder} for {module.kind}, but there is no such folder")
    if module.kind == "StaticEmbedding":
        static, tokenizer = read_static(module.folder, max_length=max_length)
        return Parts(body=static, tokenizer=tokenizer, source=source_of(folder)), {}
    saved_length, lower_case = _read_sentence_config(module.folder, tasks)
    config = module.config
    _check_hf_config(module.folder, config)
    family = family_of(config)
    body: Body
    left: dict[str, Tensor] = {}
    if family is None:
        body = _read_foreign(module.folder, config)
    else:
        body, left = _read_family(module.folder, config, family)
    notes: list[str] = []
    tokenizer = _read_tokenizer(module.folder, body, lower_case)
    tokenizer.max_length = _choose_length(module.folder, body, tokenizer, max_length, saved_length, notes)
    poolers = {name: tensor for name, tensor in left.items() if name.startswith("pooler.")}
    source = source_of(folder)
    return Parts(
        body=body.eval(), tokenizer=tokenizer, hf_config=config, leftover=poolers, notes=notes, source=source
    ), left


def _read_sentence_config(folder: Path, tasks: Sequence[str]) -> tuple[int | None, bool]:
    """max_seq_length and do_lower_case of sentence_bert_config.json; its task must be one of `tasks`."""
    path = next((folder / name for name in _SENTENCE_CONFIGS if (folder / name).is_file()), None)
    if path is None:
        return None, False
    config = read_object(path)
    task = config.get("transformer_task", "feature-extraction")
    if task not in tasks:
        hint = "" if len(tasks) > 1 else "; munjang.load_cross_encoder loads a cross-encoder"
        raise ModelError(f"{path}: transformer_task must be {' or '.join(map(repr, tasks))}, got {task!r}{hint}")
    length = config.get("max_seq_length")
    for key in ("tokenizer_args", "processor_kwargs"):
        nested = config.get(key)
        if length is None and isinstance(nested, dict):
            length = nested.get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise ModelError(f"{path}: max_seq_length must be a positive whole number or null, got {length!r}")
    return length, bool(config.get("do_lower_case", False))


def _check_hf_config(folder: Path, config: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            weight_files(folder)  # raises that an adapter alone is no model
        raise ModelError(f"{folder} has no config.json, so it is not a model folder; {list_contents(folder)}")
    custom = config.get("auto_map")
    if isinstance(custom, dict) and "AutoModel" in custom:
        raise ModelError(
            f"{path} asks for its own code ({custom['AutoModel']!r}): code beside a model is never run. Choose a model "
            "of a known architecture, or convert this one"
        )
    if not isinstance(config.get("model_type"), str):
        raise ModelError(f"{path} has no 'model_type', which says what kind of model it is")


def _read_family(folder: Path, config: Mapping[str, object], family: Family) -> tuple[Encoder, dict[str, Tensor]]:
    """A body that the packed encoder runs; sizes are compared with the files before anything of these sizes is read."""
    encoder, names = family.empty_encoder(config, stored_shapes(folder), source=str(folder))
    ours, left = import_weights(load_weights(folder), names, source=str(folder))
    encoder.load_state_dict(ours, assign=True)
    return encoder, left


def _read_foreign(folder: Path, config: Mapping[str, object]) -> TransformersBody:
    """A body that only `transformers` runs."""
    if weight_files(folder)[0].name == INT8:
        raise ModelError(
            f"{folder} holds {INT8}, but its kind of model runs through transformers, which does not read that: "
            "save it as float32 or float16 where the original is"
        )
    _check_numbers(config, stored_shapes(folder), folder)
    return TransformersBody.load(folder)


def _check_numbers(config: Mapping[str, object], shapes: Mapping[str, list[int]], folder: Path) -> None:
    """Refuse numbers in config.json that the weights rule out, before transformers builds anything from them."""
    sizes = {size for shape in shapes.values() for size in shape}
    largest = max(sizes, default=0)
    has_positions = any("position" in name or "wpe" in name for name in shapes)
    entries: list[tuple[str, object]] = list(config.items())
    while entries:
        key, value = entries.pop()
        if isinstance(value, Mapping):
            entries += value.items()
        elif isinstance(value, list):
            entries += [(key, item) for item in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            if "layer" in key:
                limit = max(len(shapes), 100)
            elif _UNBOUNDED.search(key):
                limit = largest if "position" in key and has_positions else _MAX_UNBOUNDED
            else:
                limit = largest if _WEIGHT_SIZES.search(key) else max(largest, 100_000)
            if abs(value) > limit or (key in _WIDTHS and value not in sizes):
                raise ModelError(
                    f"{folder / 'config.json'}: {key!r} is {value!r:.80}, which does not fit the weights beside it: "
                    "they do not belong together; fetch the model again"
                )


def _read_tokenizer(folder: Path, body: Body, lower_case: bool) -> Tokenizer:
    if not any((folder / name).is_file() for name in ("tokenizer.json", *VOCABULARY_FILES)):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json or a vocabulary); {list_contents(folder)}")
    tokenizer = Tokenizer.from_folder(folder, lower_case=lower_case)
    rows = body.config.vocab_size
    if body.config.family == "xlnet" and "token_type_ids" in (tokenizer.config.get("model_input_names") or ()):
        raise ModelError(
            f"{folder}: XLNet with token_type_ids is not supported: remove them from model_input_names in "
            "tokenizer_config.json, as transformers 5 does by default"
        )
    if tokenizer.vocab_size > rows:
        raise ModelError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens, but the model's embedding only {rows} rows: "
            "they do not belong together"
        )
    return tokenizer


def _choose_length(
    folder: Path, body: Body, tokenizer: Tokenizer, requested: int | None, saved: int | None, notes: list[str]
) -> int:
    """The requested, the saved, or the tokenizer's maximum length; never more than the positions of the body."""
    positions = body.config.max_positions
    if requested:
        if requested > positions:
            raise InputError(f"max_length must be at most {positions} (the model's positions), got {requested}")
        return requested
    if saved:
        if saved > positions:
            notes.append(f"max_seq_length {saved} is more than the model's {positions} positions: {positions} is used")
        return min(saved, positions)
    stated = read_object(folder / "tokenizer_config.json").get("model_max_length")
    if isinstance(stated, int | float) and 1 < stated < _NO_LIMIT:
        return min(int(stated), positions)
    return positions if positions < _NO_LIMIT else min(tokenizer.max_length, positions)
