"""Reading a Hugging Face config.json: typed access with errors that name the key and what was expected."""

from __future__ import annotations

from collections.abc import Mapping

from munjang.errors import ModelError
from munjang.nn.config import ACTIVATIONS, Activation, LayerConfig

Config = Mapping[str, object]
_MOST = 100_000_000  # of any size; the weights must have these sizes too, but that is compared later
_MOST_LAYERS = 1000


def whole(config: Config, *keys: str, default: int | None = None, least: int = 0, most: int = _MOST) -> int:
    """A whole number of `least` to `most` under the first of `keys` that is there."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ModelError(f"config.json: {key!r} must be a whole number from {least} to {most:,}, got {value!r:.80}")
        return value
    if default is None:
        raise ModelError(f"config.json lacks {keys[0]!r}")
    return default


def number(config: Config, *keys: str, default: float, most: float = 1e12) -> float:
    """A number of 0 to `most` under the first of `keys` that is there."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ModelError(f"config.json: {key!r} must be a number from 0 to {most:g}, got {value!r:.80}")
        return float(value)
    return default


def activation(config: Config, *keys: str, default: str) -> Activation:
    """The activation that the config names, in our words."""
    name = next((config[key] for key in keys if config.get(key)), default)
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"config.json: activation {name!r} is not known here; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def heads(config: Config, hidden: int, *keys: str) -> int:
    """The number of attention heads, which must divide the hidden size."""
    count = whole(config, *keys, least=1)
    if hidden % count:
        raise ModelError(f"config.json: hidden size {hidden} is not a multiple of {count} attention heads")
    return count


def layers(config: Config, *keys: str) -> int:
    """The number of layers."""
    return whole(config, *keys, least=1, most=_MOST_LAYERS)


def plain_steps(config: Config, *keys: str) -> tuple[LayerConfig, ...]:
    """A stack in which every step has a layer of its own."""
    return tuple(LayerConfig(stored=i) for i in range(layers(config, *keys)))
