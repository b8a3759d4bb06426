"""A model folder to `CrossParts`: what sentence-transformers' CrossEncoder (all releases), transformers or we saved.

    config.json, weights -> body -> head: saved as modules or as a sequence classifier, or new -> labels, activation

A head that is not there, or has another number of outputs than was asked for, is made new from a seed and noted: it
must be trained before its scores mean anything.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

import torch
from torch import Tensor

from munjang.checkpoint import layout
from munjang.checkpoint.cross_parts import CrossParts, HeadName, ScoreActivation, describe_head
from munjang.checkpoint.files import read_object
from munjang.checkpoint.labels import as_labels, generic_labels, is_generic, saved_labels
from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.reading import (
    fill,
    poolers,
    read_tokenizer,
    read_transformer,
    source_of,
    steadily,
)
from munjang.checkpoint.thresholds import read_thresholds
from munjang.checkpoint.unfilled import unfilled
from munjang.checkpoint.weights import load_weights
from munjang.errors import InputError, ModelError
from munjang.nn.bodies import StaticEmbedding, TransformersBody
from munjang.nn.families import StandardHead, sbert_dropout, standard_head
from munjang.nn.heads import DENSE_ACTIVATIONS, SBERT, ClassifierHead, HeadShape

Labels = Sequence[str] | int
TASKS = ("sequence-classification", "feature-extraction")


@dataclass(frozen=True)
class HeadWish:
    """What the caller asks of the head; None leaves it to what was saved."""

    labels: Labels | None = None
    head: HeadName | None = None
    seed: int = 0


def read_cross(folder: Path, *, wish: HeadWish | None = None, max_length: int | None = None) -> CrossParts:
    """Take a saved cross-encoder apart, or put a new head on a body."""
    folder = Path(folder)
    return steadily(folder, lambda: _read(folder, wish or HeadWish(), max_length))


def _read(folder: Path, wish: HeadWish, max_length: int | None) -> CrossParts:
    notes: list[str] = []
    modules = layout.read_modules(folder) or [layout.Module("Transformer", folder)]
    first = modules[0]
    if first.kind != "Transformer":
        raise ModelError(f"{folder} holds a {first.kind}, which has no layers to read two texts with: load an encoder")
    body, config, left = read_transformer(first.folder)
    saved = layout.read_transformer_config(first.folder, TASKS)
    tokenizer = read_tokenizer(first.folder, body, max_length, saved, notes)
    if isinstance(body, TransformersBody):
        left = _foreign_head(first.folder, config)
    head = _modular_head(modules[1:], body.hidden, config) or _classifier_head(left, body.hidden, config, first.folder)
    labels = saved_labels(config, 0 if head is None else head.labels, notes)
    parts = CrossParts(
        body=body.eval(),
        head=head or ClassifierHead(SBERT, 1, 1),  # a place-holder until `with_head`
        tokenizer=tokenizer,
        labels=labels,
        activation="Sigmoid",
        hf_config=config,
        leftover=poolers(left) | {name: left[name] for name in left if name.startswith("head.")},
        notes=notes,
        source=source_of(folder),
    )
    parts = with_head(parts, wish, had=head is not None)
    if parts.head is head:
        parts.activation = _activation(folder, config, len(parts.labels), notes)
        parts.thresholds = read_thresholds(folder)
    _note_prompts(folder, notes)
    return parts


def is_cross(folder: Path) -> bool:
    """Whether a folder was saved as a cross-encoder or a sequence classifier."""
    folder = Path(folder)
    kind = read_object(folder / "config_sentence_transformers.json").get("model_type")
    if kind is not None:
        return bool(kind == "CrossEncoder")
    architectures = read_object(folder / "config.json").get("architectures")
    names = architectures if isinstance(architectures, list) else []
    return not (folder / "modules.json").is_file() and any(str(n).endswith("SequenceClassification") for n in names)


def default_activation(labels: int) -> ScoreActivation:
    """What sentence-transformers applies where nothing is saved."""
    return "Sigmoid" if labels == 1 else "Identity"


def from_model(parts: ModelParts, wish: HeadWish) -> CrossParts:
    """A new head on a copy of a bi-encoder's body; pooling, heads and prompts stay behind."""
    if isinstance(parts.body, StaticEmbedding):
        raise InputError("a static model has no layers to read two texts with: take an encoder as the body")
    cross = CrossParts(
        body=copy.deepcopy(parts.body).eval(),
        head=ClassifierHead(SBERT, 1, 1),  # a place-holder until `with_head`
        tokenizer=copy.copy(parts.tokenizer),  # max_length may then differ; the backend is shared and never changed
        labels=(),
        hf_config=copy.deepcopy(parts.hf_config),
        leftover=dict(parts.leftover),
        source=parts.source,
    )
    return with_head(cross, wish, had=False)


# --- heads that are there --------------------------------------------------------------------------------------------


def _modular_head(modules: list[layout.Module], hidden: int, config: Mapping[str, object]) -> ClassifierHead | None:
    """Pooling, Dense and the Dense whose output is 'scores', as 6.x keeps heads beside a body."""
    dense = [module for module in modules if module.kind == "Dense"]
    if not dense or read_object(dense[-1].folder / "config.json").get("module_output_name") != "scores":
        return None
    kinds = [module.kind for module in modules]
    where = dense[-1].folder.parent / "modules.json"
    if kinds not in (["Pooling", "Dense"], ["Pooling", "Dense", "Dense"]):
        raise ModelError(f"{where}: a cross-encoder's head is Pooling and one or two Dense, got {', '.join(kinds)}")
    pooling = layout.read_pooling(modules[0].folder, hidden)
    if pooling.modes not in (("cls",), ("mean",)):
        raise ModelError(f"{where}: a cross-encoder pools by 'cls' or 'mean', got {'+'.join(pooling.modes)}")
    settings = [read_object(module.folder / "config.json", required=True) for module in dense]
    names = [str(setting.get("activation_function", "Tanh")).rpartition(".")[2] for setting in settings]
    sizes = [(setting.get("in_features"), setting.get("out_features")) for setting in settings]
    labels = sizes[-1][1]
    if names[-1] != "Identity" or names[0] not in DENSE_ACTIVATIONS or any(s.get("use_residual") for s in settings):
        raise ModelError(f"{where}: Dense activations {', '.join(names)} or a residual are not known in a head here")
    if (
        sizes != [*[(hidden, hidden)] * (len(sizes) - 1), (hidden, labels)]
        or type(labels) is not int
        or not 1 <= labels <= 1_000_000
    ):
        raise ModelError(f"{where}: Dense must go from {hidden} to {hidden} to the labels, got {sizes}")
    shape = HeadShape(
        DENSE_ACTIVATIONS[names[0]],
        pooling=pooling.modes[0],
        dense=len(dense) == 2,
        bias=bool(settings[0].get("bias", True)),
    )
    weights: dict[str, Tensor] = {}
    for ours, module in zip(("dense", "out")[-len(dense) :], dense, strict=True):
        found = load_weights(module.folder)
        weights |= {name.replace("linear.", f"{ours}."): tensor for name, tensor in found.items()}
    if "out.bias" not in weights:
        weights["out.bias"] = torch.zeros(labels)
    return _built(shape, hidden, labels, sbert_dropout(config), weights, where.parent)


def _classifier_head(
    left: Mapping[str, Tensor], hidden: int, config: Mapping[str, object], folder: Path
) -> ClassifierHead | None:
    """The head of a sequence classifier, where the folder holds one."""
    standard = standard_head(config)
    if standard is None or standard.weight_name("out.weight") not in left:
        return None
    labels = left[standard.weight_name("out.weight")].shape[0]
    weights = _ours(left, standard)
    return _built(standard.shape, hidden, labels, standard.dropout, weights, folder)


def _foreign_head(folder: Path, config: Mapping[str, object]) -> dict[str, Tensor]:
    """The weights that are not the body's of a model that only `transformers` runs."""
    standard = standard_head(config)
    state = load_weights(folder)
    if standard is None:
        architectures = config.get("architectures")
        named = isinstance(architectures, list) and any(
            str(n).endswith("SequenceClassification") for n in architectures
        )
        if named or any(name.startswith(("classifier.", "score.")) for name in state):
            raise ModelError(
                f"{folder}: how a {config.get('model_type')!r} model scores pairs is not known here, only its body is; "
                "save its body alone (AutoModel) and train a new head"
            )
        return {}
    return {name: tensor for name, tensor in state.items() if not name.startswith(standard.prefix)}


def _ours(left: Mapping[str, Tensor], standard: StandardHead) -> dict[str, Tensor]:
    names = [f"{layer}.{kind}" for layer in standard.layers for kind in ("weight", "bias")]
    return {name: left[standard.weight_name(name)] for name in names if standard.weight_name(name) in left}


def _built(
    shape: HeadShape, hidden: int, labels: int, dropout: float, weights: Mapping[str, Tensor], folder: Path
) -> ClassifierHead:
    with unfilled():
        head = ClassifierHead(shape, hidden, labels, dropout=dropout)
    fill(head, weights, folder)
    return head.eval()


# --- the head asked for ----------------------------------------------------------------------------------------------


def with_head(parts: CrossParts, wish: HeadWish, *, had: bool = True) -> CrossParts:
    """The parts with the head that was asked for: the one that is there, reordered, or a new one, which is noted."""
    wanted = as_labels(wish.labels)
    shape, dropout = _wanted_shape(parts, wish, had)
    count = len(wanted) if wanted is not None else len(parts.labels) if had else 1
    if had and count == parts.head.labels and shape == parts.head.shape:
        if wanted is None or isinstance(wish.labels, int) or wanted == parts.labels:
            return parts
        order = _order(parts.labels, wanted)
        if order is not None:
            return replace(parts, head=_reordered(parts.head, order), labels=wanted)
        if is_generic(parts.labels):
            return replace(parts, labels=wanted)
    labels = wanted if wanted is not None else parts.labels if had else generic_labels(1)
    head = ClassifierHead(shape, parts.body.hidden, count, dropout=dropout)
    head.initialise(torch.Generator().manual_seed(wish.seed), std=parts.body.config.initializer_range)
    from_pooler = _start_from_pooler(head, parts)
    if not had:
        parts.tokenizer.ignores_segments = False  # whoever trains a first head trains it with the segments there are
    made = describe_head(head) + ("; its first layer is the body's pooler" if from_pooler else "")
    parts.notes.append(f"the head is new: {_why_new(parts, labels, shape, had=had)}; train it before use ({made})")
    return replace(parts, head=head.eval(), labels=labels, activation=default_activation(count), thresholds={})


def _wanted_shape(parts: CrossParts, wish: HeadWish, had: bool) -> tuple[HeadShape, float]:
    """The paper's head unless the family's own was asked for, or is there."""
    if wish.head not in (None, *get_args(HeadName)):
        raise InputError(f"head must be 'sbert' or 'standard', got {wish.head!r}")
    if wish.head is None and had:
        return parts.head.shape, parts.head.dropout.p
    if wish.head != "standard":
        return SBERT, sbert_dropout(parts.hf_config)
    standard = standard_head(parts.hf_config)
    if standard is None:
        raise InputError(f"a {parts.body.config.family!r} body has no standard head here: use head='sbert'")
    return standard.shape, standard.dropout


def _start_from_pooler(head: ClassifierHead, parts: CrossParts) -> bool:
    """A family's own head starts from the pre-trained pooler where the body came with one, as in transformers."""
    standard = standard_head(parts.hf_config)
    if standard is None or head.shape != standard.shape or head.shape == SBERT:
        return False
    state = head.state_dict()
    found = {
        name: tensor.clone()
        for name, tensor in _ours(parts.leftover, standard).items()
        if name in state and not name.startswith("out.") and tensor.shape == state[name].shape
    }
    head.load_state_dict(state | found)
    return bool(found)


def _why_new(parts: CrossParts, labels: tuple[str, ...], shape: HeadShape, *, had: bool) -> str:
    if not had:
        return "the model has none"
    if parts.head.labels == len(labels) and shape != parts.head.shape:
        return f"it was {describe_head(parts.head)}, and another kind was asked for"
    plural = "s" if parts.head.labels > 1 else ""
    asked = "1 was" if len(labels) == 1 else f"{len(labels)} ({', '.join(labels)}) were"
    return f"it had {parts.head.labels} output{plural} ({', '.join(parts.labels)}), {asked} asked for"


def _order(saved: tuple[str, ...], wanted: tuple[str, ...]) -> list[int] | None:
    """Where each wanted label stands among the saved ones, if they are the same names."""
    places = {name.casefold(): place for place, name in enumerate(saved)}
    if len(places) != len(saved) or {name.casefold() for name in wanted} != places.keys():
        return None
    return [places[name.casefold()] for name in wanted]


def _reordered(head: ClassifierHead, order: list[int]) -> ClassifierHead:
    head.out.weight = torch.nn.Parameter(head.out.weight.detach()[order].clone())
    head.out.bias = torch.nn.Parameter(head.out.bias.detach()[order].clone())
    return head


# --- what the small files say ----------------------------------------------------------------------------------------


def _activation(folder: Path, config: Mapping[str, object], labels: int, notes: list[str]) -> ScoreActivation:
    """What turns logits into scores, by whichever release saved it."""
    newest = read_object(folder / "config_sentence_transformers.json").get("activation_fn")
    nested = config.get("sentence_transformers")
    newer = nested.get("activation_fn") if isinstance(nested, Mapping) else None
    stated = newest or newer or config.get("sbert_ce_default_activation_function")
    if stated is None:
        return default_activation(labels)
    path = str(stated)
    name = path.rpartition(".")[2]
    if path.startswith("torch.") and name in get_args(ScoreActivation):
        return cast(ScoreActivation, name)
    usual = default_activation(labels)
    notes.append(f"its activation {path!r} is not known here: {usual} is used (raw=True gives the bare outputs)")
    return usual


def _note_prompts(folder: Path, notes: list[str]) -> None:
    config = read_object(folder / "config_sentence_transformers.json")
    prompts, name = config.get("prompts"), config.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, Mapping) and isinstance(name, str) else None
    if config.get("model_type") == "CrossEncoder" and prompt:
        notes.append(f"its default prompt {prompt!r} is not put before texts here: do so yourself")
