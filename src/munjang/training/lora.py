"""LoRA: train small matrices beside a body's weights, and fold them into the weights when done.

    W x  becomes  W x + (alpha / rank) B A x,  A [rank, in] random, B [out, rank] zero     (Hu et al. 2021, equation 3)

So a body computes at first what it did before, and of its numbers only a per cent or so is trained: less memory for
the optimiser, which holds two more for each. `merge_lora` adds B A to W. The model is then an ordinary one, with the
names it had before, and is saved and loaded as such. The adapters are peft's (extra `lora`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from munjang.errors import InputError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class LoraSettings:
    """How large the adapters are and where they go."""

    rank: int = 8
    alpha: float = 16  # the adapters' output counts alpha / rank
    dropout: float = 0.0  # of the adapters' input
    targets: tuple[str, ...] = ("qkv", "out", "up", "down")  # names of the linear layers that get one
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise InputError(f"rank must be 1 or more, got {self.rank}")
        if not self.alpha > 0:
            raise InputError(f"alpha must be above 0, got {self.alpha}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be 0 or more and below 1, got {self.dropout}")
        if not self.targets:
            raise InputError("targets must name at least one linear layer, got none")


def apply_lora(module: nn.Module, settings: LoraSettings | None = None) -> int:
    """Put adapters into a body, in place: only they are trained from here on. Returns how many numbers that is.

    Heads are other modules, and go on training whole.
    """
    settings = settings or LoraSettings()
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise MissingExtraError("peft", "lora", "training with LoRA") from None
    if has_lora(module):
        raise InputError("this model has LoRA adapters already: merge_lora(module) folds them into its weights")
    _check_targets(module, settings)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
    )
    training = module.training
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they were
        torch.manual_seed(settings.seed)
        inject_adapter_in_model(config, module)
    module.train(training)
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def merge_lora(module: nn.Module) -> None:
    """Fold the adapters into the weights, in place: afterwards the names are as before, and everything can train."""
    if not has_lora(module):
        raise InputError("this model has no LoRA adapters to merge")
    for parent, name, layer in list(_adapted(module)):
        try:
            layer.merge(safe_merge=True)
        except ValueError as error:
            raise ModelError(f"the LoRA adapter of {name} cannot be merged: {error}") from error
        setattr(parent, name, layer.get_base_layer())
    if hasattr(module, "peft_config"):
        del module.peft_config  # peft's note of what it put in
    module.requires_grad_(True)


def merged_copy(module: ModuleT) -> ModuleT:
    """A copy with the adapters folded in, while the original goes on training: to save or evaluate in between."""
    copied = copy.deepcopy(module)
    if has_lora(copied):
        merge_lora(copied)
    return copied


def has_lora(module: nn.Module) -> bool:
    """Whether adapters are in this model."""
    return any(".lora_A." in f".{name}" for name, _ in module.named_parameters())


def describe_lora(module: nn.Module) -> dict[str, object] | None:
    """Factor and dropout of the adapters, which are not among the weights; None where there are none."""
    if not has_lora(module):
        return None
    layers = [layer for _, _, layer in _adapted(module)]
    dropouts = {float(getattr(part, "p", 0.0)) for layer in layers for part in layer.lora_dropout.values()}
    return {
        "factors": sorted({float(factor) for layer in layers for factor in layer.scaling.values()}),
        "dropouts": sorted(dropouts),
    }


def _adapted(module: nn.Module) -> Iterator[tuple[nn.Module, str, LoraLayer]]:
    """Every layer with an adapter: what holds it, its name there, and itself."""
    from peft.tuners.lora import LoraLayer

    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, LoraLayer):
                yield parent, name, child


def _check_targets(module: nn.Module, settings: LoraSettings) -> None:
    linear = {name.rpartition(".")[2] for name, child in module.named_modules() if isinstance(child, nn.Linear)}
    missing = [target for target in settings.targets if target.rpartition(".")[2] not in linear]
    if missing:
        raise InputError(
            f"LoRA targets {', '.join(missing)} are no linear layers of this model; it has"
            f" {', '.join(sorted(linear)) or 'none'}"
        )
