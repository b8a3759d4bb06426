"""The modules of sentence-transformers, of all releases from 2.0 to 6.x: modules.json and the files of each module.

    modules.json            the modules in order, each with its type and folder
    1_Pooling/config.json   six booleans (up to 5.x) or pooling_mode (6.x)
    2_Dense/config.json     sizes and activation, beside the weights

To support another module after the pooling, add an entry to `HEADS` and its expected value to the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from munjang.checkpoint.folder import read_object, write_json
from munjang.checkpoint.weights import assign_weights, load_weights, uninitialized, write_weights
from munjang.errors import ModelError
from munjang.nn.heads import Dense, Normalize, VectorNorm
from munjang.nn.pooling import POOLING_MODES, Pooling
from munjang.text.tokenizer import read_json

BODIES = ("Transformer", "StaticEmbedding")
IGNORED = ("Dropout",)  # after the pooling: no effect on vectors
_MAX_MODULES = 64
_MAX_FEATURES = 100_000_000
Config = dict[str, Any]
Files = tuple[Config | None, Mapping[str, Tensor]]  # config.json and weights of a module, as they are written


class Module(NamedTuple):
    """One entry of modules.json."""

    kind: str  # the class name, without its package
    folder: Path


# --- modules.json ----------------------------------------------------------------------------------------------------


def read_modules(folder: Path) -> list[Module] | None:
    """Read modules.json: one body, at most one Pooling, then heads; return None if there is no modules.json."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ModelError(f"{path} must hold a list of modules, got {type(entries).__name__}")
    if len(entries) > _MAX_MODULES:
        raise ModelError(f"{path} lists {len(entries):,} modules, at most {_MAX_MODULES} are supported")
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise ModelError(f"{path}: every module needs a 'type', got {entry!r}")
    if all(isinstance(entry.get("idx"), int) for entry in entries):
        entries.sort(key=lambda entry: entry["idx"])
    known = (*BODIES, "Pooling", *HEADS, *IGNORED)
    unknown = [entry["type"] for entry in entries if _kind(entry) not in known]
    if unknown:
        raise ModelError(f"{path} has modules that are not known: {', '.join(unknown)}; known: {', '.join(known)}")
    kinds = [_kind(entry) for entry in entries]
    rest = kinds[2:] if kinds[1:2] == ["Pooling"] else kinds[1:]
    if kinds[0] not in BODIES or not {*HEADS, *IGNORED}.issuperset(rest):
        raise ModelError(
            f"{path}: expected {' or '.join(BODIES)}, then Pooling, then {', '.join((*HEADS, *IGNORED))} in any order; "
            f"got {', '.join(kinds)}"
        )
    if kinds[0] == "StaticEmbedding" and "Pooling" in kinds:
        raise ModelError(f"{path}: StaticEmbedding averages by itself and takes no Pooling after it")
    return [Module(_kind(entry), _folder_of(entry, path)) for entry in entries]


def _kind(entry: Config) -> str:
    return str(entry["type"].rpartition(".")[2])


def _folder_of(entry: Config, path: Path) -> Path:
    relative = str(entry.get("path") or "")
    pure = PurePosixPath(relative.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts:
        raise ModelError(f"{path}: the path of a module must be inside the model, got {relative!r}")
    return path.parent / pure


def write_modules(folder: Path, modules: Iterable[tuple[str, str]]) -> None:
    """Write modules.json for (type, folder) pairs, with the type names that all releases know."""
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    write_json(folder / "modules.json", entries)


def write_module(folder: Path, config: Config | None, weights: Mapping[str, Tensor]) -> None:
    """Write the folder of one module."""
    folder.mkdir()
    if config is not None:
        write_json(folder / "config.json", config)
    if weights:
        write_weights(folder, weights, torch.float32)


# --- Pooling ---------------------------------------------------------------------------------------------------------


def read_pooling(folder: Path, hidden: int) -> Pooling:
    """Read 1_Pooling/config.json; `hidden` is the width of the body."""
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
    if named is None:  # sentence-transformers takes the mean if no boolean is set
        modes = tuple(mode for mode, spec in POOLING_MODES.items() if spec.flag is not None and config.get(spec.flag))
        return Pooling(modes or ("mean",), include_prompt)
    by_name = {spec.name: mode for mode, spec in POOLING_MODES.items()}
    names = [str(name).lower() for name in named] if isinstance(named, list) else [str(named).lower()]
    if not names or not by_name.keys() >= set(names):
        raise ModelError(f"{path}: pooling_mode must be one or several of {', '.join(by_name)}, got {named!r:.200}")
    return Pooling(tuple(by_name[name] for name in names), include_prompt)


def write_pooling(folder: Path, pooling: Pooling, hidden: int) -> None:
    """Write the folder of a Pooling module: booleans for all releases, or names for 6.x where booleans cannot do."""
    config: Config = {"word_embedding_dimension": hidden}
    specs = [POOLING_MODES[mode] for mode in pooling.modes]
    in_order = [mode for mode in POOLING_MODES if mode in pooling.modes]
    if list(pooling.modes) == in_order and all(spec.flag is not None for spec in specs):
        # An old release refuses a flag or name that it does not know, so these are written only where they are needed.
        for mode, spec in POOLING_MODES.items():
            if spec.flag is not None and (spec.first_release or mode in pooling.modes):
                config[spec.flag] = mode in pooling.modes
        if len(specs) == 1 and specs[0].beside_flag:
            config["pooling_mode"] = specs[0].name
    else:
        config["pooling_mode"] = [spec.name for spec in specs]
    if not pooling.include_prompt:
        config["include_prompt"] = False
    write_module(folder, config, {})


# --- heads -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadFormat:
    """How one module after the pooling is read and written."""

    head: type[nn.Module]
    read: Callable[[Path, Config, int], nn.Module]  # folder, config.json, width of the vectors
    write: Callable[[Any], Files]


def read_heads(modules: Sequence[Module], dimension: int, notes: list[str]) -> tuple[nn.ModuleList, int]:
    """Read the modules after the pooling; return them with the width of the vectors that they give."""
    heads = nn.ModuleList()
    for kind, folder in modules:
        if kind in IGNORED:
            notes.append(f"its {kind} module has no effect on vectors and is left out")
            continue
        config = read_object(folder / "config.json", required=kind != "Normalize")
        for key in ("module_input_name", "module_output_name"):
            name = config.get(key) or "sentence_embedding"
            if name != "sentence_embedding":
                raise ModelError(
                    f"{folder / 'config.json'}: {key} is {name!r}; {kind} is supported only over 'sentence_embedding'"
                )
        head = HEADS[kind].read(folder, config, dimension)
        dimension = int(getattr(head, "dimension", dimension))
        heads.append(head)
    return heads.eval(), dimension


def write_heads(folder: Path, heads: nn.ModuleList, modules: list[tuple[str, str]]) -> None:
    """Write a folder for each head, and append its entry to `modules`."""
    kinds = {layout.head: kind for kind, layout in HEADS.items()}
    for head in heads:
        kind = kinds.get(type(head))
        if kind is None:
            raise ModelError(f"a head of type {type(head).__name__} cannot be saved; known: {', '.join(HEADS)}")
        modules.append((kind, f"{len(modules)}_{kind}"))
        write_module(folder / modules[-1][1], *HEADS[kind].write(head))


def dense_files(linear: nn.Linear, activation: str, **settings: str) -> tuple[Config, dict[str, Tensor]]:
    """config.json and weights of a Dense module; the activation is the name of a class of torch.nn."""
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": torch_path(activation),
        **settings,
    }
    return config, {f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}


def torch_path(name: str) -> str:
    """The full name of a class of torch.nn: 'torch.nn.modules.activation.Tanh'."""
    return f"{getattr(nn, name).__module__}.{name}"


def activation_name(config: Config) -> str:
    """The class name of the activation of a Dense module."""
    return str(config.get("activation_function", "Tanh")).rpartition(".")[2]


def _read_dense(folder: Path, config: Config, dimension: int) -> Dense:
    path = folder / "config.json"
    if config.get("use_residual"):
        raise ModelError(f"{path}: a Dense module with use_residual is not supported")
    width = config.get("out_features")
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= _MAX_FEATURES:
        raise ModelError(f"{path}: out_features must be a positive whole number, got {width!r:.80}")
    _check_width(path, "in_features", config, dimension)
    with uninitialized():
        dense = Dense(dimension, width, bias=bool(config.get("bias", True)), activation=activation_name(config))
    assign_weights(dense, load_weights(folder), folder)
    return dense


def _write_dense(head: Dense) -> Files:
    return dense_files(head.linear, head.activation)


def _read_norm(folder: Path, config: Config, dimension: int) -> VectorNorm:
    _check_width(folder / "config.json", "dimension", config, dimension)
    with uninitialized():
        norm = VectorNorm(dimension)
    assign_weights(norm, {name.removeprefix("norm."): tensor for name, tensor in load_weights(folder).items()}, folder)
    return norm


def _write_norm(head: VectorNorm) -> Files:
    return {"dimension": head.dimension}, {f"norm.{name}": tensor for name, tensor in head.state_dict().items()}


def _check_width(path: Path, key: str, config: Config, dimension: int) -> None:
    if config.get(key) != dimension:
        raise ModelError(
            f"{path}: {key} is {config.get(key)!r:.80}, but the module before it gives {dimension} values: "
            "the modules do not belong together"
        )


HEADS = {
    "Dense": HeadFormat(Dense, _read_dense, _write_dense),
    "Normalize": HeadFormat(Normalize, lambda folder, config, dimension: Normalize(), lambda head: (None, {})),
    "LayerNorm": HeadFormat(VectorNorm, _read_norm, _write_norm),
}
