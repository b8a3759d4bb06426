"""A narrower body: fewer hidden units, whole attention heads, a smaller MLP.

Enters: a model, a width, and perhaps texts. Leaves: a model that needs teaching. Cutting units out of a trained body
breaks what its layers agreed on, so its vectors are a starting point for distillation and little more; a body that was
only shortened (`layers`) starts much nearer.

Heads keep their size, so the width must be a multiple of it. With texts, what is kept is what they make most of: units
of the stream by their variance over all layers, heads by what they add to the stream, MLP units by their activation and
the length of their outgoing weights. Without texts everything is spread evenly.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from munjang.checkpoint import BiParts
from munjang.encoders.bi import Array
from munjang.errors import InputError, ModelError
from munjang.nn.encoder import Encoder, EncoderConfig, Layer
from munjang.nn.families import family_of
from munjang.nn.heads import Dense, VectorNorm
from munjang.nn.packed import to_packed
from munjang.students.coverage import sample
from munjang.students.layers import evenly
from munjang.students.rebuilding import known_body, rebuilt
from munjang.text.packing import pack

SAMPLE = 512  # texts whose activations are looked at
BUDGET = 4_096  # tokens that pass at once


@dataclass(frozen=True)
class Narrowed:
    """A narrower model."""

    parts: BiParts
    report: dict[str, object]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Kept:
    """What stays, ascending: units of the stream, and heads and MLP units of every stored layer."""

    units: Tensor  # [hidden]
    heads: list[Tensor]  # each [heads]
    inner: list[Tensor]  # each [intermediate]


def narrower(parts: BiParts, hidden: int, texts: Sequence[str] = ()) -> BiParts:
    """The model with a body of this width."""
    return narrow(parts, hidden, texts).parts


def check_hidden(parts: BiParts, hidden: int) -> None:
    """Raise where a body cannot have this width."""
    config = known_body(parts.body, "a narrower student").config
    if hidden > config.hidden or hidden < 1 or hidden % config.head_size:
        widths = ", ".join(str(config.head_size * heads) for heads in range(1, config.heads + 1))
        raise InputError(
            f"hidden must be a multiple of {config.head_size} (the size of an attention head) and at most "
            f"{config.hidden} (the model's), so one of {widths}; got {hidden}"
        )
    if config.family == "electra" and config.projected and hidden == config.embedding_size:
        raise InputError(
            f"hidden must not be {hidden}: this ELECTRA's embeddings of {hidden} are projected, which its config.json "
            f"cannot say of a body of the same width; choose {hidden + config.head_size} or another"
        )


def narrow(parts: BiParts, hidden: int, texts: Sequence[str] = ()) -> Narrowed:
    """`narrower`, with a report."""
    check_hidden(parts, hidden)
    body = known_body(parts.body, "a narrower student")
    family = family_of(parts.hf_config)
    if family is None:
        raise ModelError("the model has no config.json of a known family, so its width cannot be changed")
    old = body.config
    target = _config(parts.hf_config, family.name, old, hidden)
    new = family.read(target)
    kept = _choose(body, new, _importance(parts, texts) if len(texts) else None)
    made = replace(
        parts,
        body=rebuilt(new, _cut(body, kept)),
        heads=_cut_heads(parts, kept.units),
        hf_config=target,
        leftover={},
        truncate_dim=None,
    )
    report: dict[str, object] = {
        "before": old.hidden,
        "after": hidden,
        "attention heads": new.heads,
        "intermediate": new.intermediate,
        "chosen by": "activations" if len(texts) else "even spread",
    }
    notes = ["a narrower body is only a starting point: distil it before use"]
    if parts.leftover:
        notes.append("the pooler was left out: it belongs to the wider body")
    return Narrowed(made, report, tuple(notes))


def _config(hf_config: Mapping[str, object], family: str, old: EncoderConfig, hidden: int) -> dict[str, object]:
    """config.json of the narrower body; the MLP shrinks in proportion, to a multiple of 8 where it had one."""
    heads, inner = hidden // old.head_size, max(1, round(old.intermediate * hidden / old.hidden))
    if old.intermediate % 8 == 0:
        inner = max(8, round(inner / 8) * 8)
    names = ("dim", "n_heads", "hidden_dim") if family == "distilbert" else (
        "hidden_size", "num_attention_heads", "intermediate_size",
    )  # fmt: skip
    config = dict(hf_config) | dict(zip(names, (hidden, heads, inner), strict=True))
    if family == "distilbert":
        for other in ("hidden_size", "num_attention_heads", "intermediate_size"):
            config.pop(other, None)
    elif family == "electra" and not old.projected:
        config["embedding_size"] = hidden
    return config


@dataclass(frozen=True)
class _Importance:
    units: Array  # [hidden]
    heads: Array  # [stored layers, heads]
    inner: Array  # [stored layers, intermediate]


def _choose(body: Encoder, new: EncoderConfig, importance: _Importance | None) -> _Kept:
    old, layers = body.config, range(body.config.stored_layers)
    if importance is None:
        heads = torch.tensor(evenly(old.heads, new.heads))
        inner = torch.tensor(evenly(old.intermediate, new.intermediate))
        units = torch.tensor(evenly(old.hidden, new.hidden))
        return _Kept(units, [heads for _ in layers], [inner for _ in layers])
    by_layer = importance.heads
    if body.relative_bias is not None:
        # MPNet's layers share one bias by head, so that they must keep the same heads.
        by_layer = np.broadcast_to(by_layer.sum(axis=0), by_layer.shape)
    return _Kept(
        _largest(importance.units, new.hidden),
        [_largest(by_layer[i], new.heads) for i in layers],
        [_largest(importance.inner[i], new.intermediate) for i in layers],
    )


def _largest(values: Array, count: int) -> Tensor:
    """Places of the largest values, ascending."""
    return torch.from_numpy(np.sort(np.argsort(-values, kind="stable")[:count]))


def _importance(parts: BiParts, texts: Sequence[str]) -> _Importance:
    """What a sample of the texts makes of every unit, head and MLP unit."""
    body = copy.deepcopy(known_body(parts.body, "a narrower student")).eval()
    watch = _Watch(body)
    device = body.embeddings.word.weight.device
    with watch, torch.no_grad():
        for batch in pack(parts.tokenizer.encode(sample(texts, SAMPLE)), BUDGET):
            body(to_packed(batch.ids, batch.lengths, device))
    return watch.importance()


class _Watch:
    """Adds up what passes through a body while it is open."""

    def __init__(self, body: Encoder) -> None:
        self._body, config = body, body.config
        self._sums = np.zeros((config.stored_layers, 2, config.hidden))  # of values, and of their squares
        self._tokens = np.zeros(config.stored_layers)
        self._heads = np.zeros((config.stored_layers, config.heads))
        self._inner = np.zeros((config.stored_layers, config.intermediate))
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> None:
        for number, layer in enumerate(self._body.layers):
            assert isinstance(layer, Layer)
            hooks = [
                layer.attention.out.register_forward_pre_hook(partial(self._attended, number)),
                layer.mlp.down.register_forward_pre_hook(partial(self._activated, number)),
                layer.register_forward_hook(partial(self._left, number)),
            ]
            self._handles += hooks

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _attended(self, layer: int, out: nn.Module, given: tuple[Tensor]) -> None:  # [total, hidden]
        config = self._body.config
        assert isinstance(out, nn.Linear)
        weight = out.weight.view(config.hidden, config.heads, config.head_size)
        for head in range(config.heads):
            values = given[0].view(-1, config.heads, config.head_size)[:, head]
            added = values @ weight[:, head].t()  # [total, hidden]: what this head adds to the stream
            self._heads[layer, head] += float(added.norm(dim=1).sum())

    def _activated(self, layer: int, down: nn.Module, given: tuple[Tensor]) -> None:  # [total, intermediate]
        assert isinstance(down, nn.Linear)
        self._inner[layer] += (given[0].abs().sum(dim=0) * down.weight.norm(dim=0)).double().cpu().numpy()

    def _left(self, layer: int, module: nn.Module, given: tuple[Any, ...], values: Tensor) -> None:  # [total, hidden]
        values = values.double()
        self._sums[layer] += torch.stack([values.sum(dim=0), values.square().sum(dim=0)]).cpu().numpy()
        self._tokens[layer] += len(values)

    def importance(self) -> _Importance:
        """Every layer's variance counts alike."""
        mean, square = (self._sums / self._tokens[:, None, None]).swapaxes(0, 1)  # each [stored layers, hidden]
        variance = np.maximum(square - mean**2, 0)
        units = (variance / np.maximum(variance.mean(axis=1, keepdims=True), 1e-12)).sum(axis=0)
        return _Importance(units, self._heads, self._inner)


def _cut(body: Encoder, kept: _Kept) -> dict[str, Tensor]:
    """The weights of what stays."""
    config = body.config
    own_width = config.projected  # embeddings of another width than the stream keep it
    state: dict[str, Tensor] = {}
    for name, tensor in body.state_dict().items():
        tensor = tensor.detach().cpu()
        if name.startswith("layers."):
            _, number, part = name.split(".", 2)
            state[name] = _cut_layer(part, tensor, config, kept, int(number))
        elif name.startswith("relative_bias"):
            state[name] = tensor[:, kept.heads[0]]
        elif name.startswith("embeddings.project"):
            state[name] = tensor[kept.units]
        elif name.startswith("embeddings.") and own_width:
            state[name] = tensor
        else:  # tables [rows, hidden] and norms [hidden]
            state[name] = tensor[..., kept.units]
    return {name: tensor.contiguous() for name, tensor in state.items()}


def _cut_layer(part: str, tensor: Tensor, config: EncoderConfig, kept: _Kept, number: int) -> Tensor:
    """One weight of one layer; part is its name inside the layer."""
    heads, inner = kept.heads[number], kept.inner[number]
    of_heads = (heads[:, None] * config.head_size + torch.arange(config.head_size)).flatten()
    if part.startswith("attention.qkv"):
        rows = torch.cat([of_heads + place * config.hidden for place in range(3)])
        tensor = tensor[rows]
        return tensor[:, kept.units] if part.endswith("weight") else tensor
    if part.startswith("mlp.up"):
        rows = torch.cat([inner, inner + config.intermediate]) if config.gated else inner
        tensor = tensor[rows]
        return tensor[:, kept.units] if part.endswith("weight") else tensor
    if part == "attention.out.weight":
        return tensor[kept.units][:, of_heads]
    if part == "mlp.down.weight":
        return tensor[kept.units][:, inner]
    return tensor[kept.units]  # biases of what writes to the stream, and norms


def _cut_heads(parts: BiParts, units: Tensor) -> nn.ModuleList:
    """What follows pooling, up to the first Dense, takes the columns of the units that stay."""
    width = parts.body.hidden
    columns = torch.cat([units + mode * width for mode in range(len(parts.pooling.modes))])
    heads = copy.deepcopy(parts.heads)
    for place, head in enumerate(heads):
        if isinstance(head, VectorNorm):
            norm = VectorNorm(len(columns), eps=head.eps)
            norm.load_state_dict(
                {name: tensor[columns.to(tensor.device)] for name, tensor in head.state_dict().items()}
            )
            heads[place] = norm
        elif isinstance(head, Dense):
            bias = head.linear.bias is not None
            dense = Dense(len(columns), head.dimension, bias=bias, activation=head.activation)
            state = head.state_dict()
            state["linear.weight"] = state["linear.weight"][:, columns.to(state["linear.weight"].device)]
            dense.load_state_dict(state)
            heads[place] = dense
            break
    return heads.eval()
