"""Reading a Hugging Face config.json: typed access with errors that name the key and what was expected."""

from __future__ import annotations

from collections.abc import Mapping

from munjang.errors import ModelError
from munjang.nn.config import ACTIVATIONS, Activation, LayerConfig

Config = Mapping[str, object]


def whole(config: Config, *keys: str, default: int | None = None) -> int:
    """A whole number under the first of `keys` that is there."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"config.json: {key!r} must be a whole number, got {value!r}")
        return value
    if default is None:
        raise ModelError(f"config.json lacks {keys[0]!r}")
    return default


def number(config: Config, *keys: str, default: float) -> float:
    """A number under the first of `keys` that is there."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"config.json: {key!r} must be a number, got {value!r}")
        return float(value)
    return default


def activation(config: Config, *keys: str, default: str) -> Activation:
    """The activation that the config names, in our words."""
    name = next((config[key] for key in keys if config.get(key)), default)
    if name not in ACTIVATIONS:
        raise ModelError(f"config.json: activation {name!r} is not known here; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[str(name)]


def heads(config: Config, hidden: int, *keys: str) -> int:
    """The number of attention heads, which must divide the hidden size."""
    count = whole(config, *keys)
    if count < 1 or hidden % count:
        raise ModelError(f"config.json: hidden size {hidden} is not a multiple of {count} attention heads")
    return count


def plain_steps(layers: int) -> tuple[LayerConfig, ...]:
    """A stack in which every step has a layer of its own."""
    return tuple(LayerConfig(stored=i) for i in range(layers))
