"""A model folder to `ModelParts`: what sentence-transformers 2.x to 6.x, transformers or model2vec saved.

    modules.json -> body (config.json, weights, tokenizer) -> pooling -> heads -> prompts and similarity

Whatever does not fit together is an error that names the file; whatever had to be assumed is a note. No code that lies
beside a model is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from munjang import bundled
from munjang.checkpoint import layout
from munjang.checkpoint.files import contents, read_object
from munjang.checkpoint.parts import ModelBody, ModelParts
from munjang.checkpoint.static import read_static
from munjang.checkpoint.thresholds import read_thresholds
from munjang.checkpoint.unfilled import unfilled
from munjang.checkpoint.weights import COMPACT, load_weights, stored_shapes, weight_files
from munjang.errors import InputError, ModelError, ModelNotFoundError
from munjang.files import repair_folder
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.families import Family, WeightNames, check_weights, family_of, import_weights
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import Pooling, PoolingMode
from munjang.text.tokenizer import VOCABULARY_FILES, Tokenizer

Modes = PoolingMode | Sequence[PoolingMode]
Made = TypeVar("Made")
_SIZES = re.compile(r"(?:^|_)(?:size|sizes|dim|d_\w+|embd)$|^d_")  # keys of config.json: sizes of weights
_WIDTHS = ("hidden_size", "d_model", "n_embd", "emb_dim")  # some weight has each of them
_FREE = re.compile("position|theta|rope|window|length|distance|_id$")  # numbers that no weight bounds
_UNRELATED = 1 << 40
_ATTEMPTS = 5  # at reading a folder that somebody replaces meanwhile


def read(folder: Path, *, pooling: Modes | None = None, max_length: int | None = None) -> ModelParts:
    """Take a saved model apart. `pooling` and `max_length` win over what was saved."""
    folder = Path(folder)
    return steadily(folder, lambda: _read(folder, pooling, max_length))


def steadily(folder: Path, read_once: Callable[[], Made]) -> Made:
    """Read a folder that somebody may replace meanwhile: all of it is the old model or the new one."""
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            parts = read_once()
        except ModelError:
            if _identity(folder) == before:
                raise
            continue
        # A folder that was replaced meanwhile may have been read half old, half new: once more.
        if _identity(folder) == before:
            return parts
    raise ModelError(f"{folder} is replaced all the time and cannot be read")


def _identity(folder: Path) -> tuple[int, int]:
    repair_folder(folder)
    if not folder.is_dir():
        raise ModelNotFoundError(f"there is no model folder {folder}")
    status = folder.stat()
    return status.st_dev, status.st_ino


def _read(folder: Path, pooling: Modes | None, max_length: int | None) -> ModelParts:
    notes: list[str] = []
    modules = layout.read_modules(folder) or _assumed(folder, notes)
    saved = layout.read_model_config(folder)
    if saved.model_type not in (None, "SentenceTransformer"):
        notes.append(f"saved as a {saved.model_type}, not as a sentence encoder: only its body is used")
    first, rest = modules[0], modules[1:]
    body, tokenizer, config, leftover = _read_body(first, max_length, notes)
    pooled, changed = _pooling(body, rest, pooling, notes)
    heads, dimension = _read_heads(rest, pooled.dimension(body.hidden), notes)
    truncate = saved.truncate_dim
    if truncate is not None and truncate > dimension:
        notes.append(f"truncate_dim {truncate} is more than the model's {dimension} dimensions and has no effect")
        truncate = None
    return ModelParts(
        body=body.eval(),
        tokenizer=tokenizer,
        pooling=pooled,
        heads=heads.eval(),
        hf_config=config,
        prompts=saved.prompts,
        default_prompt_name=saved.default_prompt_name,
        similarity=saved.similarity,
        truncate_dim=truncate,
        leftover=leftover,
        thresholds={} if changed else read_thresholds(folder),  # another pooling gives other vectors
        notes=notes,
        source=source_of(folder),
    )


def _assumed(folder: Path, notes: list[str]) -> list[layout.Module]:
    """The modules of a folder without modules.json: a body alone."""
    config = read_object(folder / "config.json")
    if config.get("model_type") == "model2vec":
        normalize = [layout.Module("Normalize", folder)] if config.get("normalize") else []
        return [layout.Module("StaticEmbedding", folder), *normalize]
    return [layout.Module("Transformer", folder)]


def source_of(folder: Path) -> str:
    """Where a folder came from: a bundled model by its name, a snapshot in the hub's cache by its id and revision."""
    own = bundled.name_of(folder)
    if own is not None:
        return own
    parts = folder.absolute().parts
    if len(parts) >= 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return f"{parts[-3].removeprefix('models--').replace('--', '/')}@{parts[-1]}"
    return str(folder)


def _read_body(
    module: layout.Module, max_length: int | None, notes: list[str]
) -> tuple[ModelBody, Tokenizer, dict[str, object], dict[str, Tensor]]:
    folder = module.folder
    if not folder.is_dir():
        raise ModelError(f"modules.json names {folder} for {module.kind}, but there is no such folder")
    if module.kind == "StaticEmbedding":
        body, tokenizer = read_static(folder, max_length=max_length)
        return body, tokenizer, {}, {}
    saved = layout.read_transformer_config(folder)
    transformer, config, left = read_transformer(folder)
    tokenizer = read_tokenizer(folder, transformer, max_length, saved, notes)
    return transformer, tokenizer, config, poolers(left)


def read_transformer(folder: Path) -> tuple[Encoder | TransformersBody, dict[str, object], dict[str, Tensor]]:
    """A body, its config.json, and the weights that are not the body's, names without the body's prefix."""
    config = _hf_config(folder)
    family = family_of(config)
    body, left = _read_foreign(folder, config) if family is None else _read_family(folder, config, family)
    return body, config, left


def poolers(left: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the weights that are not the body's: those that a saved body keeps."""
    return {name: tensor for name, tensor in left.items() if name.startswith("pooler.")}


def _hf_config(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            weight_files(folder)  # says that an adapter alone is no model
        raise ModelError(f"{folder} has no config.json, so it is not a model folder; {contents(folder)}")
    config = read_object(folder / "config.json")
    custom = config.get("auto_map")
    if isinstance(custom, dict) and "AutoModel" in custom:
        raise ModelError(
            f"{folder / 'config.json'} asks for code of its own ({custom['AutoModel']!r}): code beside a model is "
            "never run here. Choose a model of a known architecture, or convert this one"
        )
    if not isinstance(config.get("model_type"), str):
        raise ModelError(f"{folder / 'config.json'} has no 'model_type', which says what kind of model it is")
    return config


def _read_foreign(folder: Path, config: Mapping[str, object]) -> tuple[TransformersBody, dict[str, Tensor]]:
    """A body that only `transformers` runs."""
    if weight_files(folder)[0].name == COMPACT:
        raise ModelError(
            f"{folder} holds {COMPACT}, but its kind of model runs through transformers, which does not read that: "
            "save it as float32 or float16 where the original is"
        )
    _check_foreign(config, stored_shapes(folder), folder)
    return TransformersBody.load(folder), {}


def _check_foreign(config: Mapping[str, object], shapes: Mapping[str, list[int]], folder: Path) -> None:
    """Raise `ModelError` for numbers in config.json that the weights rule out, before transformers builds from them."""
    sizes = {size for shape in shapes.values() for size in shape}
    largest = max(sizes, default=0)
    table = any("position" in name or "wpe" in name for name in shapes)
    entries: list[tuple[str, object]] = list(config.items())
    while entries:
        key, value = entries.pop()
        if isinstance(value, Mapping):
            entries += value.items()
        elif isinstance(value, list):
            entries += [(key, item) for item in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            if "layer" in key:
                most = max(len(shapes), 100)
            elif _FREE.search(key):
                most = largest if "position" in key and table else _UNRELATED
            else:
                most = largest if _SIZES.search(key) else max(largest, 100_000)
            if abs(value) > most or (key in _WIDTHS and value not in sizes):
                raise ModelError(
                    f"{folder / 'config.json'}: {key!r} is {value!r:.80}, which does not fit the weights beside it: "
                    "they do not belong together; fetch the model again"
                )


def _read_family(folder: Path, config: Mapping[str, object], family: Family) -> tuple[Encoder, dict[str, Tensor]]:
    """A body that the packed encoder runs, built without ever being initialised at random."""
    settings = family.read(config)
    if settings.max_positions < 1:
        raise ModelError(
            f"{folder / 'config.json'} leaves no positions for tokens, got max_position_embeddings too small"
        )
    names = family.weight_names(settings)
    # Sizes are compared with the files before anything of these sizes is built or read.
    shapes = stored_shapes(folder)
    check_weights(shapes, names, source=str(folder))
    with unfilled():
        encoder = Encoder(settings)
    _check_shapes(shapes, names, {name: tensor.shape for name, tensor in encoder.state_dict().items()}, folder)
    ours, left = import_weights(load_weights(folder), names, source=str(folder))
    encoder.load_state_dict(ours, assign=True)
    return encoder, left


def _check_shapes(
    shapes: Mapping[str, list[int]], names: WeightNames, expected: Mapping[str, torch.Size], folder: Path
) -> None:
    """Every weight that is there has the shape that config.json asks for."""
    word = names["embeddings.word.weight"]
    assert isinstance(word, str)
    prefix = min((name for name in shapes if name.endswith(word)), key=len, default=word).removesuffix(word)
    for ours, theirs in names.items():
        parts = (theirs,) if isinstance(theirs, str) else theirs
        wanted = [expected[ours][0] // len(parts), *expected[ours][1:]]
        for part in parts:
            for name in (prefix + part, prefix + _old(part)):
                if name in shapes and shapes[name] != wanted:
                    raise ModelError(
                        f"{folder}: the weight {name!r} has shape {shapes[name]}, but config.json asks for "
                        f"{wanted}: the weights and config.json do not belong together"
                    )


def _old(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def read_tokenizer(
    folder: Path,
    body: Encoder | TransformersBody,
    asked: int | None,
    saved: layout.TransformerConfig,
    notes: list[str],
) -> Tokenizer:
    """The tokenizer, checked against the body, with the length asked for, saved, or the body's."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", *VOCABULARY_FILES)):
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json or a vocabulary); {contents(folder)}")
    tokenizer = Tokenizer.from_folder(folder, lower_case=saved.lower_case)
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
    stated = asked or saved.max_length or _stated_length(folder)
    limit = body.max_positions
    if stated is None:
        stated = limit if limit < 1_000_000 else tokenizer.max_length
    elif stated > limit and asked:
        raise InputError(f"max_length must be at most {limit} (the model's positions), got {asked}")
    elif stated > limit and saved.max_length:
        notes.append(f"max_seq_length {stated} is more than the model's {limit} positions: {limit} is used")
    tokenizer.max_length = min(stated, limit)
    return tokenizer


def _stated_length(folder: Path) -> int | None:
    """model_max_length, unless it is the huge number by which transformers says 'no limit'."""
    value = read_object(folder / "tokenizer_config.json").get("model_max_length")
    return int(value) if isinstance(value, int | float) and 1 < value < 1_000_000 else None  # True is no length


def _pooling(body: ModelBody, rest: list[layout.Module], asked: Modes | None, notes: list[str]) -> tuple[Pooling, bool]:
    """The saved pooling, the one asked for, or mean; and whether it is another than the saved one."""
    module = next((module for module in rest if module.kind == "Pooling"), None)
    saved = None if module is None else layout.read_pooling(module.folder, body.hidden)
    if isinstance(body, StaticEmbedding):
        saved = Pooling()
    if asked is not None:
        chosen = Pooling.parse(asked, include_prompt=saved is None or saved.include_prompt)
        changed = saved is not None and saved.modes != chosen.modes
        if saved is not None and changed:
            notes.append(f"pooling {_words(chosen)} was asked for; the model was saved with {_words(saved)}")
        return chosen, changed
    if saved is None:
        notes.append("the model does not say how to pool: mean pooling is assumed (pooling= chooses another)")
    return saved or Pooling(), False


def _words(pooling: Pooling) -> str:
    return "+".join(pooling.modes)


def _read_heads(modules: list[layout.Module], dimension: int, notes: list[str]) -> tuple[nn.ModuleList, int]:
    """Dense, Normalize and LayerNorm in order, and the dimension that leaves."""
    heads = nn.ModuleList()
    for module in modules:
        if module.kind == "Normalize":
            _check_input(read_object(module.folder / "config.json"), module)
            heads.append(Normalize())
        elif module.kind == "Dense":
            dense = _read_dense(module, dimension)
            dimension = dense.dimension
            heads.append(dense)
        elif module.kind == "LayerNorm":
            heads.append(_read_norm(module, dimension))
        elif module.kind == "Dropout":
            notes.append("its Dropout module has no effect on vectors and is left out")
    return heads, dimension


def _check_input(config: Mapping[str, object], module: layout.Module) -> None:
    for key in ("module_input_name", "module_output_name"):
        name = config.get(key) or "sentence_embedding"
        if name != "sentence_embedding":
            raise ModelError(
                f"{module.folder / 'config.json'}: {key} is {name!r}; {module.kind} is known here only over "
                "'sentence_embedding'"
            )


def _read_dense(module: layout.Module, dimension: int) -> Dense:
    path = module.folder / "config.json"
    config = read_object(path, required=True)
    _check_input(config, module)
    if config.get("use_residual"):
        raise ModelError(f"{path}: a Dense module with use_residual is not known here")
    enters, leaves = config.get("in_features"), config.get("out_features")
    if isinstance(leaves, bool) or not isinstance(leaves, int) or not 1 <= leaves <= 100_000_000:
        raise ModelError(f"{path}: out_features must be a positive whole number, got {leaves!r:.80}")
    if enters != dimension:
        raise ModelError(f"{path}: in_features is {enters!r}, but what comes before it gives {dimension} values")
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    with unfilled():
        dense = Dense(dimension, leaves, bias=bool(config.get("bias", True)), activation=activation)
    fill(dense, load_weights(module.folder), module.folder)
    return dense


def _read_norm(module: layout.Module, dimension: int) -> VectorNorm:
    path = module.folder / "config.json"
    stated = read_object(path, required=True).get("dimension")
    if stated != dimension:
        raise ModelError(f"{path}: dimension is {stated!r}, but what comes before it gives {dimension} values")
    with unfilled():
        norm = VectorNorm(dimension)
    weights = load_weights(module.folder)
    fill(norm, {name.removeprefix("norm."): tensor for name, tensor in weights.items()}, module.folder)
    return norm


def fill(head: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Put a head's weights in, each there and of its shape."""
    for name, wanted in head.state_dict().items():
        if name not in weights:
            raise ModelError(f"{folder} lacks the weight {name!r}; it has {', '.join(sorted(weights))}")
        if weights[name].shape != wanted.shape:
            raise ModelError(
                f"{folder}: the weight {name!r} has shape {list(weights[name].shape)}, but config.json asks for "
                f"{list(wanted.shape)}"
            )
    head.load_state_dict({name: weights[name] for name in head.state_dict()}, assign=True)
