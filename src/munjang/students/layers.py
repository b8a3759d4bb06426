"""Fewer layers, chosen evenly from the first to the last or named: the body, its config.json, and which they are.

Enters: a body and its config.json. Leaves: new ones; the given stay as they are. What belongs to a layer moves with it:
ModernBERT's windows and rotary bases, ALBERT's groups. Tables that all layers share stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from munjang.checkpoint import BiParts, Body
from munjang.errors import InputError, ModelError
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of, read_int
from munjang.students.rebuilding import known_body, rebuilt


@dataclass(frozen=True)
class Cut:
    """A body with fewer layers."""

    body: Encoder
    hf_config: dict[str, object]
    chosen: tuple[int, ...]  # the old layers, counted from 0 (ALBERT: the groups of shared layers)
    notes: tuple[str, ...] = ()


def fewer_layers(parts: BiParts, layers: int | Sequence[int]) -> BiParts:
    """The model with so many of its layers, or with those that are named (from 0); everything else as it was."""
    cut = cut_layers(parts.body, parts.hf_config, layers)
    return replace(parts, body=cut.body, hf_config=cut.hf_config, notes=[*parts.notes, *cut.notes])


def layer_count(hf_config: Mapping[str, object]) -> int:
    """The layers that config.json states."""
    return read_int(hf_config, "n_layers", "num_hidden_layers")


def evenly(total: int, count: int) -> tuple[int, ...]:
    """`count` of 0..total-1, the first and the last among them where count is at least 2."""
    return tuple(int(place) for place in np.round(np.linspace(0, total - 1, count)))


def cut_layers(body: Body, hf_config: Mapping[str, object], layers: int | Sequence[int]) -> Cut:
    """`fewer_layers` of a body and its config.json, for cross-encoders too."""
    encoder = known_body(body, "a student with fewer layers")
    named = chosen_layers(hf_config, layers)
    family = family_of(hf_config)
    assert family is not None
    count = len(named)
    config = dict(hf_config)
    config["n_layers" if family.name == "distilbert" else "num_hidden_layers"] = count
    notes: tuple[str, ...] = ()
    if family.name == "albert":
        chosen, stored = _albert(config, count)
    else:
        chosen = stored = named
    if family.name == "distilbert":
        config.pop("num_hidden_layers", None)  # another name of the same, which must not contradict it
    if family.name == "modernbert":
        notes = _modernbert(config, encoder, chosen)
    state = _state(encoder.state_dict(), stored)
    return Cut(rebuilt(family.read(config), state), config, chosen, notes)


def chosen_layers(hf_config: Mapping[str, object], layers: int | Sequence[int]) -> tuple[int, ...]:
    """The layers that stay, counted from 0; refused where the model has no such layers."""
    family = family_of(hf_config)
    if family is None:
        raise ModelError("the model has no config.json of a known family, so its layers cannot be chosen")
    total = layer_count(hf_config)
    if isinstance(layers, int):
        if not 1 <= layers <= total:
            raise InputError(f"layers must be 1..{total} (the layers that the model has), got {layers}")
        return evenly(total, layers)
    if family.name == "albert":
        raise InputError("ALBERT's layers share their weights, so none can be named: say how many")
    named = tuple(layers)
    if not named or list(named) != sorted(set(named)) or named[0] < 0 or named[-1] >= total:
        raise InputError(f"layers must be some of 0..{total - 1}, each once and in order, got {list(named)}")
    return named


def _state(state: Mapping[str, Tensor], stored: tuple[int, ...]) -> dict[str, Tensor]:
    """The weights, stored layers renumbered."""
    numbers = {f"layers.{old}.": f"layers.{new}." for new, old in enumerate(stored)}
    result: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if not name.startswith("layers."):
            result[name] = tensor
            continue
        head = ".".join(name.split(".", 2)[:2]) + "."
        if head in numbers:
            result[numbers[head] + name.removeprefix(head)] = tensor
    return result


def _albert(config: dict[str, object], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ALBERT: the same groups go through fewer steps; where there are more groups than steps, groups are chosen."""
    groups = read_int(config, "num_hidden_groups", default=1)
    inner = read_int(config, "inner_group_num", default=1)
    chosen = evenly(groups, min(groups, count))
    config["num_hidden_groups"] = len(chosen)
    return chosen, tuple(group * inner + i for group in chosen for i in range(inner))


def _modernbert(config: dict[str, object], encoder: Encoder, chosen: tuple[int, ...]) -> tuple[str, ...]:
    """Each layer's kind of attention, as both generations of the config say it."""
    kinds = ["sliding_attention" if encoder.config.steps[i].window else "full_attention" for i in chosen]
    config["layer_types"] = kinds
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    every = full[1] if len(full) > 1 else len(kinds)
    config["global_attn_every_n_layers"] = every
    if full == list(range(0, len(kinds), every)):
        return ()
    return (
        "the windows of the chosen ModernBERT layers do not repeat evenly: transformers reads them right from "
        "'layer_types' (5.x), but not before",
    )
