"""The families that the packed encoder runs: each maps a Hugging Face config and its weight names to ours and back.

A family file holds two pure functions: `read(config) -> EncoderConfig` and `names(EncoderConfig) -> {ours: theirs}`.
Where queries, keys and values are three tensors there, `theirs` is a tuple of three names and ours is one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from munjang.errors import ModelError
from munjang.nn.config import EncoderConfig
from munjang.nn.families import albert, bert, distilbert, modernbert, mpnet
from munjang.nn.families.reading import Config

Names = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Family:
    """How one kind of Hugging Face body is read and written."""

    name: str
    read: Callable[[Config], EncoderConfig]
    names: Callable[[EncoderConfig], Names]


_FAMILIES = {
    "bert": Family("bert", bert.read, bert.names),
    "roberta": Family("roberta", bert.read_roberta, bert.names),
    "xlm-roberta": Family("xlm-roberta", bert.read_roberta, bert.names),
    "camembert": Family("camembert", bert.read_roberta, bert.names),
    "electra": Family("electra", bert.read_electra, bert.names),
    "albert": Family("albert", albert.read, albert.names),
    "distilbert": Family("distilbert", distilbert.read, distilbert.names),
    "mpnet": Family("mpnet", mpnet.read, mpnet.names),
    "modernbert": Family("modernbert", modernbert.read, modernbert.names),
}


def family_of(config: Mapping[str, object]) -> Family | None:
    """The family of a Hugging Face config, or None where only `transformers` can run it."""
    family = _FAMILIES.get(str(config.get("model_type", "")))
    if family is None or _unusual(config):
        return None
    return family


def _unusual(config: Mapping[str, object]) -> bool:
    """Options of these families that the packed encoder does not do; `transformers` does them."""
    positions = config.get("position_embedding_type", "absolute")
    return bool(positions not in (None, "absolute") or config.get("is_decoder") or config.get("add_cross_attention"))


def from_theirs(
    state: Mapping[str, Tensor], names: Names, *, source: str = "the model"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Hugging Face weights -> ours, and what was left over (heads, poolers), names without their prefix.

    Weights may carry a prefix ('bert.', 'model.', '0.auto_model.'): whatever stands before the word embeddings' name.
    Old checkpoints call LayerNorm's parameters gamma and beta.
    """
    prefix = check_names(state, names, source=source)
    stripped = {_modern(name).removeprefix(prefix): tensor for name, tensor in state.items()}
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, theirs in names.items():
        wanted = (theirs,) if isinstance(theirs, str) else theirs
        used.update(wanted)
        ours[name] = stripped[wanted[0]] if len(wanted) == 1 else torch.cat([stripped[w] for w in wanted])
    return ours, {name: tensor for name, tensor in stripped.items() if name not in used}


def check_names(stored: Iterable[str], names: Names, *, source: str) -> str:
    """The prefix of stored weights; raise `ModelError` if one of `names` is not among them."""
    modern = {_modern(name) for name in stored}
    prefix = _prefix(modern, names, source)
    wanted = [part for theirs in names.values() for part in ((theirs,) if isinstance(theirs, str) else theirs)]
    missing = [name for name in wanted if prefix + name not in modern]
    if missing:
        raise ModelError(
            f"{source} lacks {len(missing)} of the weights its config asks for, the first of them {missing[0]!r}: "
            "the weights and config.json do not belong together, or a file is incomplete"
        )
    return prefix


def to_theirs(state: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Our weights -> Hugging Face's names and shapes, without prefix."""
    theirs: dict[str, Tensor] = {}
    for name, target in names.items():
        if isinstance(target, str):
            theirs[target] = state[name]
        else:
            theirs.update(zip(target, state[name].chunk(len(target)), strict=True))
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _modern(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _prefix(state: Collection[str], names: Names, source: str) -> str:
    word = names["embeddings.word.weight"]
    assert isinstance(word, str)
    found = [name for name in state if name.endswith(word)]
    if not found:
        some = ", ".join(sorted(state)[:3])
        raise ModelError(
            f"{source} has no word embeddings: expected a weight named {word!r}, possibly with a prefix, "
            f"among {len(state)} weights ({some}, ...)"
        )
    return min(found, key=len).removesuffix(word)
