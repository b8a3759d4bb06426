"""Heads of cross-encoders: saved ones in each of their forms, new ones, and the names of their labels.

A head has one of three forms in a folder (`form_of`):

- "classifier": the family's own head, as `XForSequenceClassification`; sentence-transformers 3.0 to 6.x read it;
- "electra": the paper's head on a BERT body whose embeddings are as wide as its layers. That is exactly
  `ElectraForSequenceClassification`, and is saved as model_type electra, which the same releases read;
- "modules": any other head, as Pooling and Dense modules beside the body, which sentence-transformers 6.x reads.

A new head is made from a seed and noted: it must be trained before its scores mean anything.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from munjang.checkpoint.parts import (
    BiParts,
    CrossParts,
    HeadName,
    Module,
    Parts,
    ScoreActivation,
    activation_name,
    dense_files,
    describe_head,
    read_pooling,
    write_module,
    write_pooling,
)
from munjang.checkpoint.weights import assign_weights, load_weights
from munjang.errors import InputError, ModelError
from munjang.nn.bodies import StaticEmbedding
from munjang.nn.encoder import Encoder
from munjang.nn.families import StandardHead, sbert_dropout, standard_head
from munjang.nn.heads import DENSE_ACTIVATIONS, SBERT, ClassifierHead, HeadShape
from munjang.nn.pooling import Pooling

Labels = Sequence[str] | int
Form = Literal["classifier", "electra", "modules"]
_GENERIC_LABEL = re.compile(r"(?i)label_\d+|score|\d+")
_MAX_LABELS = 1_000_000


def form_of(parts: CrossParts) -> Form:
    """The form in which the head is saved."""
    standard = standard_head(parts.hf_config)
    if standard is not None and standard.shape == parts.head.shape:
        return "classifier"
    config = parts.body.config
    bert = isinstance(parts.body, Encoder) and config.family == "bert" and parts.hf_config.get("model_type") == "bert"
    if bert and config.embedding_size == config.hidden and parts.head.shape == SBERT:
        return "electra"
    return "modules"


# --- new heads -------------------------------------------------------------------------------------------------------


def cross_from_bi(parts: BiParts, labels: Labels, *, head: HeadName | None = None, seed: int = 0) -> CrossParts:
    """Put a new head on a copy of a bi-encoder's body; its pooling, heads and prompts are not used.

    Raises:
        InputError: The model is static, or labels or head are impossible for it.
    """
    if isinstance(parts.body, StaticEmbedding):
        raise InputError("a static model has no layers to read two texts with: take an encoder as the body")
    body = Parts(
        body=copy.deepcopy(parts.body).eval(),
        tokenizer=parts.tokenizer,
        hf_config=copy.deepcopy(parts.hf_config),
        leftover=dict(parts.leftover),
        source=parts.source,
    )
    return add_head(body, labels, head=head, seed=seed)


def add_head(parts: Parts, labels: Labels | None, *, head: HeadName | None = None, seed: int = 0) -> CrossParts:
    """Put a new head on a body that has none."""
    names = check_labels(1 if labels is None else labels)
    shape, dropout = _shape_of(parts, head or "sbert")
    tokenizer = copy.copy(parts.tokenizer)  # settings may differ; the backend is shared and never changed
    tokenizer.ignores_segments = False  # a first head is trained with all segments of the body
    return _with_new_head(replace(parts, tokenizer=tokenizer), names, shape, dropout, seed, "the model has none")


def replace_head(
    parts: CrossParts, labels: Labels | None = None, *, head: HeadName | None = None, seed: int = 0
) -> CrossParts:
    """Return parts that have the requested outputs and kind of head.

    The head stays if it fits: its outputs may be reordered to the requested labels, and generic labels renamed.
    Otherwise the head is new, and a note says so.

    Raises:
        InputError: Labels or head are impossible for this model.
    """
    names = parts.labels if labels is None else check_labels(labels)
    shape, dropout = (parts.head.shape, parts.head.dropout.p) if head is None else _shape_of(parts, head)
    if len(names) == parts.head.labels and shape == parts.head.shape:
        if labels is None or isinstance(labels, int) or names == parts.labels:
            return parts
        positions = {name.casefold(): position for position, name in enumerate(parts.labels)}
        if len(positions) == len(names) and {name.casefold() for name in names} == positions.keys():
            order = [positions[name.casefold()] for name in names]
            reordered = copy.deepcopy(parts.head)
            reordered.out.weight = nn.Parameter(parts.head.out.weight.detach()[order].clone())
            reordered.out.bias = nn.Parameter(parts.head.out.bias.detach()[order].clone())
            return replace(parts, head=reordered, labels=names)
        if all(_GENERIC_LABEL.fullmatch(name) for name in parts.labels):
            return replace(parts, labels=names)
    if parts.head.labels == len(names) and shape != parts.head.shape:
        reason = f"it was {describe_head(parts.head)}, and another kind was asked for"
    else:
        plural = "s" if parts.head.labels > 1 else ""
        requested = "1 was" if len(names) == 1 else f"{len(names)} ({', '.join(names)}) were"
        reason = f"it had {parts.head.labels} output{plural} ({', '.join(parts.labels)}), {requested} asked for"
    return _with_new_head(parts, names, shape, dropout, seed, reason)


def _shape_of(parts: Parts, head: HeadName) -> tuple[HeadShape, float]:
    """Shape and dropout of a kind of head."""
    if head not in get_args(HeadName):
        raise InputError(f"head must be 'sbert' or 'standard', got {head!r}")
    if head == "sbert":
        return SBERT, sbert_dropout(parts.hf_config)
    standard = standard_head(parts.hf_config)
    if standard is None:
        raise InputError(f"a {parts.body.config.family!r} body has no standard head here: use head='sbert'")
    return standard.shape, standard.dropout


def _with_new_head(
    parts: Parts, labels: tuple[str, ...], shape: HeadShape, dropout: float, seed: int, reason: str
) -> CrossParts:
    head = ClassifierHead(shape, parts.body.hidden, len(labels), dropout=dropout)
    head.initialise(torch.Generator().manual_seed(seed), std=parts.body.config.initializer_range)
    description = describe_head(head)
    # The family's own head starts from the pre-trained pooler, as in transformers.
    standard = standard_head(parts.hf_config)
    if standard is not None and shape == standard.shape and shape != SBERT:
        state = head.state_dict()
        pooler = {
            name: tensor.clone()
            for name, tensor in _head_weights(parts.leftover, standard).items()
            if name in state and not name.startswith("out.") and tensor.shape == state[name].shape
        }
        head.load_state_dict(state | pooler)
        description += "; its first layer is the body's pooler" if pooler else ""
    note = f"the head is new: {reason}; train it before use ({description})"
    common = {name: getattr(parts, name) for name in Parts.__dataclass_fields__}
    common |= {"thresholds": {}, "first_stage_weight": 0.0, "notes": [*parts.notes, note]}
    return CrossParts(**common, head=head.eval(), labels=labels, activation=default_activation(len(labels)))


# --- saved heads -----------------------------------------------------------------------------------------------------


def read_head_modules(modules: Sequence[Module], hidden: int, config: Mapping[str, object]) -> ClassifierHead | None:
    """Read a head of form "modules": Pooling, Dense and a Dense whose output is 'scores'; None if there is none."""
    dense = [module for module in modules if module.kind == "Dense"]
    if not dense or dense[-1].config.get("module_output_name") != "scores":
        return None
    kinds = [module.kind for module in modules]
    where = dense[-1].folder.parent / "modules.json"
    if kinds not in (["Pooling", "Dense"], ["Pooling", "Dense", "Dense"]):
        raise ModelError(f"{where}: a cross-encoder's head is Pooling and one or two Dense, got {', '.join(kinds)}")
    pooling = read_pooling(modules[0], hidden)
    if pooling.modes not in (("cls",), ("mean",)):
        raise ModelError(f"{where}: a cross-encoder pools by 'cls' or 'mean', got {'+'.join(pooling.modes)}")
    settings = [module.config for module in dense]
    names = [activation_name(setting) for setting in settings]
    if names[-1] != "Identity" or names[0] not in DENSE_ACTIVATIONS or any(s.get("use_residual") for s in settings):
        raise ModelError(f"{where}: Dense activations {', '.join(names)} or a residual are not supported in a head")
    sizes = [(setting.get("in_features"), setting.get("out_features")) for setting in settings]
    labels = sizes[-1][1]
    expected = [(hidden, hidden), (hidden, labels)][-len(dense) :]
    if type(labels) is not int or not 1 <= labels <= _MAX_LABELS or sizes != expected:
        raise ModelError(f"{where}: Dense must go from {hidden} to {hidden} to the labels, got {sizes}")
    shape = HeadShape(
        DENSE_ACTIVATIONS[names[0]],
        pooling=pooling.modes[0],
        dense=len(dense) == 2,
        bias=bool(settings[0].get("bias", True)),
    )
    weights = {"out.bias": torch.zeros(labels)}
    for layer, module in zip(("dense", "out")[-len(dense) :], dense, strict=True):
        stored = load_weights(module.folder)
        weights |= {name.replace("linear.", f"{layer}."): tensor for name, tensor in stored.items()}
    return _build_head(shape, hidden, labels, sbert_dropout(config), weights, where.parent)


def write_head_modules(head: ClassifierHead, folder: Path, hidden: int, modules: list[tuple[str, str]]) -> None:
    """Write a head of form "modules", and append its entries to `modules`."""
    names = {activation: name for name, activation in DENSE_ACTIVATIONS.items()}
    if head.norm is not None or head.shape.activation not in names:
        raise ModelError(f"a {head.shape.activation} head with a norm can be saved only as its own family's head")
    modules.append(("Pooling", f"{len(modules)}_Pooling"))
    write_pooling(folder / modules[-1][1], Pooling((head.shape.pooling,)), hidden)
    files = [dense_files(head.dense, names[head.shape.activation])] if head.dense is not None else []
    scores = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
    for config, weights in [*files, dense_files(head.out, "Identity", **scores)]:
        modules.append(("Dense", f"{len(modules)}_Dense"))
        write_module(folder / modules[-1][1], config, weights)


def read_classifier(
    left: Mapping[str, Tensor], hidden: int, config: Mapping[str, object], folder: Path
) -> ClassifierHead | None:
    """Build the head of a sequence classifier from the weights beside its body's; None if there are none."""
    standard = standard_head(config)
    if standard is None or standard.weight_name("out.weight") not in left:
        return None
    labels = left[standard.weight_name("out.weight")].shape[0]
    return _build_head(standard.shape, hidden, labels, standard.dropout, _head_weights(left, standard), folder)


def foreign_head_weights(folder: Path, config: Mapping[str, object]) -> dict[str, Tensor]:
    """The weights beside the body's of a model that only `transformers` runs."""
    standard = standard_head(config)
    weights = load_weights(folder)
    if standard is not None:
        return {name: tensor for name, tensor in weights.items() if not name.startswith(standard.prefix)}
    architectures = config.get("architectures")
    classes = architectures if isinstance(architectures, list) else []
    named = any(str(name).endswith("SequenceClassification") for name in classes)
    if named or any(name.startswith(("classifier.", "score.")) for name in weights):
        raise ModelError(
            f"{folder}: how a {config.get('model_type')!r} model scores pairs is not known here, only its body is; "
            "save its body alone (AutoModel) and train a new head"
        )
    return {}


def _head_weights(left: Mapping[str, Tensor], standard: StandardHead) -> dict[str, Tensor]:
    names = [f"{layer}.{kind}" for layer in standard.layers for kind in ("weight", "bias")]
    return {name: left[standard.weight_name(name)] for name in names if standard.weight_name(name) in left}


def _build_head(
    shape: HeadShape, hidden: int, labels: int, dropout: float, weights: Mapping[str, Tensor], folder: Path
) -> ClassifierHead:
    with torch.device("meta"):
        head = ClassifierHead(shape, hidden, labels, dropout=dropout)
    assign_weights(head, weights, folder)
    return head.eval()


# --- labels and activation -------------------------------------------------------------------------------------------


def check_labels(labels: Labels) -> tuple[str, ...]:
    """Return label names for a number or names; raise `InputError` for anything else."""
    if isinstance(labels, bool | str) or not isinstance(labels, int | Sequence):
        raise InputError(f"labels must be a number or a list of names, got {labels!r}")
    if isinstance(labels, int):
        if labels < 1:
            raise InputError(f"labels must be at least 1, got {labels}")
        return _generic_labels(labels)
    names = tuple(labels)
    if not names or any(not isinstance(name, str) or not name for name in names):
        raise InputError(f"labels must be a number or a list of non-empty names, got {labels!r}")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"label names must be unique, got {', '.join(repeated)} more than once")
    return names


def _generic_labels(count: int) -> tuple[str, ...]:
    return ("score",) if count == 1 else tuple(f"LABEL_{i}" for i in range(count))


def read_labels(config: Mapping[str, object], count: int, notes: list[str]) -> tuple[str, ...]:
    """Names from id2label of config.json, if it fits the head's outputs."""
    table = config.get("id2label")
    if not isinstance(table, Mapping):
        return _generic_labels(count)
    names = [table.get(str(position), table.get(position)) for position in range(count)]
    labels = tuple(str(name) for name in names if name is not None)
    if len(labels) != count or len(table) != count or len(set(labels)) != count:
        notes.append(f"id2label in config.json names {len(table)} labels, the head has {count} outputs: not used")
        return _generic_labels(count)
    return labels


def label_config(labels: Sequence[str]) -> dict[str, object]:
    """id2label and label2id, as config.json has them."""
    return {
        "id2label": {str(position): name for position, name in enumerate(labels)},
        "label2id": {name: position for position, name in enumerate(labels)},
    }


def default_activation(labels: int) -> ScoreActivation:
    """What sentence-transformers applies if nothing is saved."""
    return "Sigmoid" if labels == 1 else "Identity"


def read_activation(
    settings: Mapping[str, object], config: Mapping[str, object], labels: int, notes: list[str]
) -> ScoreActivation:
    """What turns logits into scores; releases of sentence-transformers saved it in three places.

    Args:
        settings: config_sentence_transformers.json.
        config: config.json.
        labels: Outputs of the head.
        notes: A note is appended if the activation is not known.
    """
    nested = config.get("sentence_transformers")
    saved = (
        settings.get("activation_fn")
        or (nested.get("activation_fn") if isinstance(nested, Mapping) else None)
        or config.get("sbert_ce_default_activation_function")
    )
    if saved is None:
        return default_activation(labels)
    path = str(saved)
    name = path.rpartition(".")[2]
    if path.startswith("torch.") and name in get_args(ScoreActivation):
        return cast(ScoreActivation, name)
    activation = default_activation(labels)
    notes.append(f"its activation {path!r} is not known here: {activation} is used (raw=True gives the bare outputs)")
    return activation
