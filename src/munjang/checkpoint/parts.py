"""`BiParts` and `CrossParts`: what bi-encoders and cross-encoders are made of, and the files of their parts.

    modules.json            the modules of sentence-transformers 2.0 to 6.x in order, each with its type and folder
    1_Pooling/config.json   six booleans (up to 5.x) or pooling_mode (6.x)
    2_Dense/config.json     sizes and activation, beside the weights
    munjang.json            {"format": 1, "thresholds": {TASK: {"value": ..., "meaning": ..., "measured": {...}}}}

Thresholds hold for the weights they were measured with: training, a new head, another pooling or truncate_dim drop
them, and with them `first_stage_weight`, which says how a reranker's logits and the first stage's scores are added
(munjang.index.reranking). To support another module after the pooling, add an entry to `HEADS` and its expected value
to the tests.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from munjang.checkpoint.weights import assign_weights, load_weights, write_weights
from munjang.errors import InputError, ModelError
from munjang.files import read_json, read_object, write_json
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.encoder import Encoder
from munjang.nn.heads import ClassifierHead, Dense, Normalize, VectorNorm
from munjang.nn.pooling import POOLING_MODES, Pooling
from munjang.text.packing import Tokens
from munjang.text.tokenizer import Tokenizer
from munjang.types import Similarity, Threshold

Body = Encoder | StaticEmbedding | TransformersBody
HeadName = Literal["sbert", "standard"]
ScoreActivation = Literal["Sigmoid", "Identity", "Softmax", "Tanh"]
Holder = TypeVar("Holder", bound="Parts")
Config = dict[str, Any]
Files = tuple[Config | None, Mapping[str, Tensor]]  # config.json and weights of a module, as they are written

BODIES = ("Transformer", "StaticEmbedding")
IGNORED = ("Dropout",)  # after the pooling: no effect on vectors
_MAX_MODULES = 64
_MAX_FEATURES = 100_000_000
_THRESHOLDS = "munjang.json"
_THRESHOLDS_FORMAT = 1


@dataclass(kw_only=True)
class Parts:
    """What bi-encoders and cross-encoders have in common."""

    body: Body
    tokenizer: Tokenizer  # max_length and lower-casing are set
    hf_config: dict[str, object] = field(default_factory=dict)  # config.json of the body; empty for a static one
    leftover: dict[str, Tensor] = field(default_factory=dict)  # the pooler: for saved models, and for new heads
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)  # by task
    first_stage_weight: float = 0.0  # of a reranker: added to its logit for each unit of the first stage's score
    notes: list[str] = field(default_factory=list)  # what had to be assumed or repaired
    source: str = ""  # the folder, or hub id@revision

    def with_thresholds(self: Holder, thresholds: Mapping[str, Threshold]) -> Holder:
        """Return parts with these thresholds that share the weights.

        Raises:
            InputError: A threshold is not finite, not under its task, or cannot be written as JSON.
        """
        # Copy the tokenizer, because max_length may differ later; its backend is shared and never changed.
        return replace(self, thresholds=check_thresholds(thresholds), tokenizer=copy.copy(self.tokenizer))

    def _describe(
        self, modules: Sequence[nn.Module], settings: Mapping[str, object], tokenizer: Mapping[str, object]
    ) -> dict[str, object]:
        config = self.body.config
        return {
            "source": self.source,
            "family": config.family,
            "layers": len(config.steps) or None,
            "hidden size": self.body.hidden,
            "attention heads": config.heads if config.steps else None,
            "parameters": sum(weight.numel() for module in modules for weight in module.parameters()),
            **settings,
            "max length": self.tokenizer.max_length,
            "tokenizer": {
                "model": type(self.tokenizer.backend.model).__name__,
                "vocabulary": self.tokenizer.vocab_size,
                **tokenizer,
            },
            "thresholds": describe_thresholds(self.thresholds),
        }


@dataclass(kw_only=True)
class BiParts(Parts):
    """A bi-encoder: `body -> pooling -> heads`."""

    pooling: Pooling
    heads: nn.ModuleList = field(default_factory=nn.ModuleList)  # Dense, Normalize, VectorNorm, in order
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: Similarity = "cosine"
    truncate_dim: int | None = None

    def describe(self) -> dict[str, object]:
        """Summarize the model for people."""
        settings = {
            "pooling": list(self.pooling.modes),
            "heads": [type(head).__name__ for head in self.heads],
            "prompts": dict(self.prompts),
            "default prompt": self.default_prompt_name,
            "similarity": self.similarity,
        }
        tokenizer = {"special tokens around a text": self.tokenizer.specials}
        return self._describe((self.body, self.heads), settings, tokenizer)


@dataclass(kw_only=True)
class CrossParts(Parts):
    """A cross-encoder: `body -> head`."""

    head: ClassifierHead
    labels: tuple[str, ...]  # names of the outputs; a single one is a score
    activation: ScoreActivation = "Sigmoid"  # what sentence-transformers applies to the logits

    def tokenise(self, a: Sequence[str], b: Sequence[str], *, by_words: bool = True) -> Tokens:
        """Tokenize pairs, with the segments that the body knows."""
        return self.tokenizer.encode_pairs(a, b, segments=self.body.config.segments, by_words=by_words)

    @property
    def uses_segments(self) -> bool:
        """Whether the body gets segment ids, which tell the two texts apart."""
        frame = self.tokenizer.pair_frame
        framed = frame is None or not frame.one_segment
        return framed and self.body.config.segments > 1 and not self.tokenizer.ignores_segments

    def describe(self) -> dict[str, object]:
        """Summarize the model for people."""
        frame = self.tokenizer.pair_frame
        settings = {
            "head": describe_head(self.head),
            "labels": list(self.labels),
            "activation": self.activation,
        }
        tokenizer = {
            "special tokens around a pair": None if frame is None else frame.size,
            "segments": self.uses_segments,
        }
        return {"kind": "cross-encoder", **self._describe((self.body, self.head), settings, tokenizer)}


def describe_head(head: ClassifierHead) -> str:
    """Summarize a head: 'first token, linear, gelu, linear to 3'."""
    shape = head.shape
    steps = [{"cls": "first token", "mean": "mean of tokens"}[shape.pooling]]
    steps += ["linear", shape.activation] if shape.dense else []
    steps += ["norm"] if shape.norm_eps is not None else []
    return ", ".join([*steps, f"linear to {head.labels}"])


# --- modules.json ----------------------------------------------------------------------------------------------------


class Module(NamedTuple):
    """One entry of modules.json."""

    kind: str  # the class name, without its package
    folder: Path
    config: Config  # config.json in that folder; empty if there is none


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
    kinds = [entry["type"].rpartition(".")[2] for entry in entries]
    known = (*BODIES, "Pooling", *HEADS, *IGNORED)
    unknown = [entry["type"] for entry, kind in zip(entries, kinds, strict=True) if kind not in known]
    if unknown:
        raise ModelError(f"{path} has modules that are not known: {', '.join(unknown)}; known: {', '.join(known)}")
    rest = kinds[2:] if kinds[1:2] == ["Pooling"] else kinds[1:]
    if kinds[0] not in BODIES or not {*HEADS, *IGNORED}.issuperset(rest):
        raise ModelError(
            f"{path}: expected {' or '.join(BODIES)}, then Pooling, then {', '.join((*HEADS, *IGNORED))} in any order; "
            f"got {', '.join(kinds)}"
        )
    if kinds[0] == "StaticEmbedding" and "Pooling" in kinds:
        raise ModelError(f"{path}: StaticEmbedding averages by itself and takes no Pooling after it")
    modules = []
    for entry, kind in zip(entries, kinds, strict=True):
        relative = str(entry.get("path") or "")
        pure = PurePosixPath(relative.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts:
            raise ModelError(f"{path}: the path of a module must be inside the model, got {relative!r}")
        config = {}
        if kind not in IGNORED:
            required = kind in ("Pooling", "Dense", "LayerNorm")
            config = read_object(folder / pure / "config.json", required=required)
        modules.append(Module(kind, folder / pure, config))
    return modules


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


def read_pooling(module: Module, hidden: int) -> Pooling:
    """Read a Pooling module; `hidden` is the width of the body."""
    path, config = module.folder / "config.json", module.config
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
    for kind, folder, config in modules:
        if kind in IGNORED:
            notes.append(f"its {kind} module has no effect on vectors and is left out")
            continue
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
    with torch.device("meta"):
        dense = Dense(dimension, width, bias=bool(config.get("bias", True)), activation=activation_name(config))
    assign_weights(dense, load_weights(folder), folder)
    return dense


def _read_norm(folder: Path, config: Config, dimension: int) -> VectorNorm:
    _check_width(folder / "config.json", "dimension", config, dimension)
    with torch.device("meta"):
        norm = VectorNorm(dimension)
    assign_weights(norm, {name.removeprefix("norm."): tensor for name, tensor in load_weights(folder).items()}, folder)
    return norm


def _check_width(path: Path, key: str, config: Config, dimension: int) -> None:
    if config.get(key) != dimension:
        raise ModelError(
            f"{path}: {key} is {config.get(key)!r:.80}, but the module before it gives {dimension} values: "
            "the modules do not belong together"
        )


HEADS = {
    "Dense": HeadFormat(Dense, _read_dense, lambda head: dense_files(head.linear, head.activation)),
    "Normalize": HeadFormat(Normalize, lambda folder, config, dimension: Normalize(), lambda head: (None, {})),
    "LayerNorm": HeadFormat(
        VectorNorm,
        _read_norm,
        lambda head: (
            {"dimension": head.dimension},
            {f"norm.{name}": tensor for name, tensor in head.state_dict().items()},
        ),
    ),
}


# --- thresholds ------------------------------------------------------------------------------------------------------


def check_thresholds(thresholds: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """Return the thresholds by task; raise `InputError` unless each is finite and can be written as JSON."""
    for task, threshold in thresholds.items():
        if not isinstance(threshold, Threshold):
            raise InputError(f"thresholds map tasks to Threshold, got {type(threshold).__name__} for {task!r}")
        if threshold.task != task:
            raise InputError(f"a threshold must be under its task, but that of {threshold.task!r} is under {task!r}")
        value: Any = threshold.value
        meaning: Any = threshold.meaning
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"the threshold for {task!r} must be a finite number, got {value!r}")
        if not isinstance(meaning, str):
            raise InputError(f"the meaning of the threshold for {task!r} must be a text, got {meaning!r}")
        try:
            json.dumps(dict(threshold.measured), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"'measured' of the threshold for {task!r} must be fit for JSON: {error}") from error
    return dict(thresholds)


def describe_thresholds(thresholds: Mapping[str, Threshold]) -> dict[str, str]:
    """Summarize thresholds for people: the value and its meaning."""
    return {task: f"{threshold.value:g}: {threshold.meaning}" for task, threshold in thresholds.items()}


def read_thresholds(folder: Path) -> dict[str, Threshold]:
    """Read munjang.json of a model folder; return nothing if there is none."""
    path = Path(folder) / _THRESHOLDS
    if not path.is_file():
        return {}
    remedy = f"fetch the model again, or delete {path.name} to load it without thresholds"
    content = read_object(path)
    version = content.get("format")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ModelError(f"{path} must have a whole number as its 'format', got {version!r}: {remedy}")
    if version > _THRESHOLDS_FORMAT:
        raise ModelError(
            f"{path} has format {version}, which a newer munjang wrote; this one reads up to {_THRESHOLDS_FORMAT}: "
            "pip install --upgrade munjang"
        )
    entries = content.get("thresholds", {})
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: 'thresholds' must map tasks to thresholds, got {entries!r}: {remedy}")
    thresholds: dict[str, Threshold] = {}
    for task, entry in entries.items():
        values = entry if isinstance(entry, dict) else {}
        value, measured = values.get("value"), values.get("measured", {})
        if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(measured, dict):
            raise ModelError(
                f"{path}: the threshold {task!r} needs a number 'value', a text 'meaning' and an object 'measured', "
                f"got {entry!r:.200}: {remedy}"
            )
        try:
            threshold = Threshold(float(value), task, values.get("meaning", ""), measured)
            thresholds |= check_thresholds({task: threshold})
        except (InputError, OverflowError) as error:  # the latter: an integer that no float holds
            raise ModelError(f"{path}: the threshold {task!r}: {error}; {remedy}") from error
    return thresholds


def read_first_stage_weight(folder: Path) -> float:
    """Read the reranker's weight of the first stage from munjang.json; 0 if there is none."""
    path = Path(folder) / _THRESHOLDS
    value = read_object(path).get("first_stage_weight", 0.0) if path.is_file() else 0.0
    try:
        return check_first_stage_weight(value)
    except InputError as error:
        remedy = f"fetch the model again, or delete {path.name} to load it without"
        raise ModelError(f"{path}: {error}: {remedy}") from error


def check_first_stage_weight(value: Any) -> float:
    """Return the weight as a float; raise `InputError` unless it is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise InputError(f"first_stage_weight must be a finite number of at least 0, got {value!r:.60}")
    return float(value)


def write_thresholds(folder: Path, thresholds: Mapping[str, Threshold], first_stage_weight: float = 0.0) -> None:
    """Write munjang.json, unless there is nothing to write."""
    if not thresholds and not first_stage_weight:
        return
    entries = {
        task: {"value": float(threshold.value), "meaning": threshold.meaning, "measured": dict(threshold.measured)}
        for task, threshold in check_thresholds(thresholds).items()
    }
    content: dict[str, object] = {"format": _THRESHOLDS_FORMAT, "thresholds": entries}
    if first_stage_weight:
        content["first_stage_weight"] = check_first_stage_weight(first_stage_weight)
    write_json(folder / _THRESHOLDS, content)
