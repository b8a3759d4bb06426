"""`Updates`: from gradients to weights: clipping, AdamW, the learning rates, loss scaling, the average of weights.

Nothing here waits for the device. Whether a step was finite is found out on the device too: a step whose loss or
gradient is not finite changes no weight, and none after it does, until the loop looks (`Updates.broken`), stops and
names the batch. The weights are then those from before the bad step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from munjang.errors import InputError
from munjang.training.settings import TrainingSettings
from munjang.training.trainee import Trainee

_EMBEDDING = re.compile(r"body\.(model\.)?embeddings?\.")  # ours, transformers', a static model's table
_SCALE = 2.0**14  # the first loss scale of float16
_GROWTH = 2.0, 0.5, 1000  # float16: twice after so many good steps, half after a bad one


class Updates:
    """The optimiser of one run, over the float32 weights of a model and of its objectives."""

    def __init__(self, trainee: Trainee, objectives: Iterable[nn.Module], settings: TrainingSettings) -> None:
        self._settings = settings
        self._copies = trainee.copies()
        self.named = dict(trainee.named_weights())
        found = list(dict.fromkeys(objectives))  # tasks may share one
        if found and not any(getattr(one, "trains_heads", True) for one in found):
            # Without a gradient nothing but weight decay would change them.
            self.named = {name: weight for name, weight in self.named.items() if not name.startswith("head.")}
        for number, objective in enumerate(found):
            self.named |= {f"objective.{number}.{name}": weight for name, weight in objective.named_parameters()}
        self.named = {name: weight for name, weight in self.named.items() if weight.requires_grad}
        if not self.named:
            raise InputError("the model has no weight that wants a gradient (requires_grad): there is nothing to train")
        self._weights = list(self.named.values())
        device = trainee.device
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight)
        groups = _groups(self.named, settings)
        self._base = torch.tensor([float(str(group["lr"])) for group in groups])
        # In a tensor each, so that a recorded step finds the rates of the day.
        self._rates = self._base.to(device, copy=True)
        for group, rate in zip(groups, self._rates.unbind(), strict=True):
            group["lr"] = rate
        self._optimiser = torch.optim.AdamW(
            groups, lr=self._rates[0], betas=settings.betas, fused=True, capturable=device.type == "cuda"
        )
        self.scale = torch.full((), _SCALE if trainee.dtype == torch.float16 else 1.0, device=device)
        self.scaled = trainee.dtype == torch.float16
        self._growth = torch.zeros((), dtype=torch.int32, device=device)
        self.broken = torch.zeros((), device=device)  # 1 from the first step on that was not finite
        self.average: dict[str, Tensor] = {}
        if settings.ema is not None:
            self.average = {name: weight.detach().clone() for name, weight in self.named.items()}

    @property
    def gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self._weights if weight.grad is not None]

    @torch.no_grad()
    def begin(self) -> None:
        """Forget the last step's gradients."""
        torch._foreach_zero_(self.gradients)
        for _, copied in self._copies:
            copied.grad = None

    @torch.no_grad()
    def fold(self) -> None:
        """Add the gradients of the computing copy to the float32 ones."""
        pairs = [(weight.grad, copied.grad) for weight, copied in self._copies if copied.grad is not None]
        if not pairs:
            return
        targets, sources = [t for t, _ in pairs if t is not None], [s.float() for _, s in pairs if s is not None]
        torch._foreach_add_(targets, sources)
        for _, copied in self._copies:
            copied.grad = None

    def set_rates(self, factor: float) -> None:
        """The learning rates of the step to come: `factor` times those of the settings."""
        rates = self._base * factor
        self._rates.copy_(rates.pin_memory() if self._rates.is_cuda else rates, non_blocking=True)

    @torch.no_grad()
    def apply(self, loss: Tensor) -> Tensor:
        """One update; the norm of the gradient before clipping."""
        gradients = self.gradients
        if self.scaled:
            torch._foreach_div_(gradients, self.scale)
        norm = torch.nn.utils.get_total_norm(gradients)
        clip = (self._settings.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, clip)
        bad_loss = (~torch.isfinite(loss)).float()
        bad = (~torch.isfinite(norm)).float()
        if self.scaled:  # an overflow is expected now and then: the step is left out and the scale halved
            torch._amp_update_scale_(self.scale, self._growth, bad, *_GROWTH)
            self.broken.copy_(torch.maximum(self.broken, torch.maximum(bad_loss, (self.scale < 1e-3).float())))
        else:
            self.broken.copy_(torch.maximum(self.broken, torch.maximum(bad_loss, bad)))
        # A fused optimiser leaves everything as it was where this says so, without waiting for the device.
        self._optimiser.found_inf = torch.maximum(self.broken, bad)  # type: ignore[attr-defined]
        self._optimiser.step()
        if self._copies:
            torch._foreach_copy_([copied for _, copied in self._copies], [weight for weight, _ in self._copies])
        if self.average:
            assert self._settings.ema is not None
            torch._foreach_lerp_(list(self.average.values()), list[Tensor](self._weights), 1.0 - self._settings.ema)
        return norm

    @torch.no_grad()
    def swap_average(self) -> None:
        """Exchange the weights and their average, for evaluating and saving; a second call puts them back."""
        for name, value in self.average.items():
            weight = self.named[name]
            kept = weight.detach().clone()
            weight.data.copy_(value)
            value.copy_(kept)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that a resumed run needs, by name."""
        for name, weight in self.named.items():
            for key, value in self._optimiser.state.get(weight, {}).items():
                yield f"adam.{key}.{name}", value
        yield from ((f"weight.{name}", weight.detach()) for name, weight in self.named.items())
        yield from ((f"average.{name}", value) for name, value in self.average.items())
        yield "scale", self.scale
        yield "growth", self._growth

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave."""
        with torch.no_grad():
            for name, weight in self.named.items():
                weight.copy_(state[f"weight.{name}"])
            for weight, copied in self._copies:
                copied.copy_(weight)
            for name, value in self.average.items():
                value.copy_(state[f"average.{name}"])
        self.scale.copy_(state["scale"])
        self._growth.copy_(state["growth"])
        for name, weight in self.named.items():
            mine = {
                key: state[f"adam.{key}.{name}"].to(weight.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in state
            }
            if mine:
                self._optimiser.state[weight] = mine


def _groups(named: dict[str, nn.Parameter], settings: TrainingSettings) -> list[dict[str, object]]:
    """Parameter groups: no decay for biases and norms; the embeddings' and the heads' own learning rates."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, weight in named.items():
        rate = settings.learning_rate
        if _EMBEDDING.match(name) and settings.embedding_rate is not None:
            rate = settings.embedding_rate
        if name.startswith(("head.", "objective.")) and settings.head_rate is not None:
            rate = settings.head_rate
        decay = settings.weight_decay if weight.dim() > 1 else 0.0
        groups.setdefault((rate, decay), []).append(weight)
    return [{"params": weights, "lr": rate, "weight_decay": decay} for (rate, decay), weights in groups.items()]
