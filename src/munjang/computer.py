"""`Computer`: a model's parts on one device in one precision, and one packed batch through them.

Enters: a `Batch` of token ids. Leaves: float32 vectors (`Computer`) or logits (`CrossComputer`) on the device. A batch
that does not fit into the device's memory is halved until it does.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from munjang.checkpoint import CrossParts, ModelParts
from munjang.errors import InputError, ModelWarning
from munjang.nn.device import choose_device
from munjang.nn.encoder import Encoder
from munjang.nn.heads import apply_heads
from munjang.nn.packed import check_ids, padding_of, to_packed
from munjang.text.packing import Batch, Int32
from munjang.text.tokenizer import Tokenizer
from munjang.types import DTypeName

if TYPE_CHECKING:
    from typing_extensions import Self


class Copyable(ABC):
    """A model that pickle, deepcopy and joblib copy: its parts and settings; what computes is made again.

    The weights travel by value, also to processes that multiprocessing starts, so that no copy shares any with the
    model. A copy lands on the same device, or on the CPU where that device does not exist.
    """

    _device: torch.device
    _asked: DTypeName

    @abstractmethod
    def refresh(self) -> None:
        """Make the computing copy again."""

    def __getstate__(self) -> dict[str, object]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_computer", "_exact")}
        return {**state, "parts": pickle.dumps(state["parts"], protocol=pickle.HIGHEST_PROTOCOL)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, parts=pickle.loads(state["parts"]))
        try:
            self._device = choose_device(state["_device"])
        except InputError:
            warnings.warn(
                f"there is no device {state['_device']} here: the copy is on the CPU", ModelWarning, stacklevel=2
            )
            self._device = torch.device("cpu")
            if self._asked == "float16":  # for GPUs only
                self._asked = "auto"
        self.refresh()

    def __copy__(self) -> Self:
        """Share everything."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other


class Computer:
    """Body, pooling and heads on one device in one precision; reads only, so that threads may share it."""

    def __init__(self, parts: ModelParts, device: torch.device, dtype: torch.dtype) -> None:
        self._pooling, self._checks = parts.pooling, parts.body.config
        self.device = device
        self.dtype = dtype if _fits(parts.body, dtype) else torch.float32
        same = device.type == "cpu" and self.dtype == torch.float32
        self._body = parts.body if same else copy.deepcopy(parts.body).to(device=device, dtype=self.dtype)
        self._heads = parts.heads if same else copy.deepcopy(parts.heads).to(device=device)
        self._body.eval()

    def __call__(self, batch: Batch, prompt_tokens: int, dimension: int) -> Tensor:  # float32 [n, dimension]
        if self._checks.family != "static":
            check_ids(batch.ids, batch.lengths, self._checks)
        try:
            padding = _padding(batch, self._body, self.device)
            packed = to_packed(batch.ids, batch.lengths, self.device, prompt_tokens=prompt_tokens, padding=padding)
            pooled = self._pooling(self._body(packed), packed)[: len(batch.lengths)]
            return apply_heads(self._heads, pooled, dimension).contiguous()
        except torch.OutOfMemoryError:
            if len(batch.lengths) == 1:
                raise
        # The error is out of scope here, and with it the tensors its traceback held.
        return torch.cat([self(half, prompt_tokens, dimension) for half in _halves(batch)])

    def token_vectors(self, batch: Batch) -> Tensor:  # float32 [total_tokens, hidden]
        """The body's output for every token, before pooling."""
        if self._checks.family != "static":
            check_ids(batch.ids, batch.lengths, self._checks)
        padding = _padding(batch, self._body, self.device)
        hidden: Tensor = self._body(to_packed(batch.ids, batch.lengths, self.device, padding=padding))
        return hidden[: len(batch.ids)].float()


class CrossComputer:
    """A body and a classifier head on one device in one precision; the head computes in float32."""

    def __init__(self, parts: CrossParts, device: torch.device, dtype: torch.dtype) -> None:
        self._checks = parts.body.config
        self.device = device
        self.dtype = dtype if _fits(parts.body, dtype) else torch.float32
        same = device.type == "cpu" and self.dtype == torch.float32
        self._body = parts.body if same else copy.deepcopy(parts.body).to(device=device, dtype=self.dtype)
        self._head = parts.head if same else copy.deepcopy(parts.head).to(device=device)
        self._body.eval()
        self._head.eval()

    def __call__(self, batch: Batch) -> Tensor:  # float32 [n, labels]
        check_ids(batch.ids, batch.lengths, self._checks, batch.segments)
        try:
            padding = _padding(batch, self._body, self.device)
            packed = to_packed(batch.ids, batch.lengths, self.device, segments=batch.segments, padding=padding)
            logits: Tensor = self._head(self._body(packed), packed)
            return logits[: len(batch.lengths)]
        except torch.OutOfMemoryError:
            if len(batch.lengths) == 1:
                raise
        return torch.cat([self(half) for half in _halves(batch)])


def _padding(batch: Batch, body: nn.Module, device: torch.device) -> int:
    """Tokens to append for the packed encoder on the CPU, where every new batch size costs memory (`padding_of`)."""
    return padding_of(len(batch.ids)) if device.type == "cpu" and isinstance(body, Encoder) else 0


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.lengths) // 2
    cut = int(batch.lengths[:middle].sum())
    return (
        Batch(batch.ids[:cut], batch.lengths[:middle], batch.rows[:middle], _part(batch, slice(None, cut))),
        Batch(batch.ids[cut:], batch.lengths[middle:], batch.rows[middle:], _part(batch, slice(cut, None))),
    )


def _part(batch: Batch, tokens: slice) -> Int32 | None:
    return None if batch.segments is None else batch.segments[tokens]


def _fits(body: nn.Module, dtype: torch.dtype) -> bool:
    """Whether every weight is finite in that precision (float16 ends at 65,504)."""
    if dtype != torch.float16:
        return True
    largest = [parameter.detach().abs().max().float() for parameter in body.parameters() if parameter.numel()]
    # One look at all of them: every look waits for the device. A NaN is the largest of all, and does not fit.
    return not largest or bool(torch.stack(largest).max() <= torch.finfo(dtype).max)


def fingerprint_of(parts: ModelParts) -> str:
    """A hash of everything that decides the vectors."""
    heads = [repr(head) + getattr(head, "activation", "") for head in parts.heads]
    return _fingerprint(
        (("body", parts.body), ("heads", parts.heads)),
        parts.tokenizer,
        (parts.pooling, heads, parts.tokenizer.max_length, parts.body.config),
    )


def cross_fingerprint_of(parts: CrossParts) -> str:
    """A hash of everything that decides the scores."""
    settings = (parts.head.shape, parts.labels, parts.activation, parts.tokenizer.max_length, parts.body.config)
    return _fingerprint((("body", parts.body), ("head", parts.head)), parts.tokenizer, settings)


def _fingerprint(modules: tuple[tuple[str, nn.Module], ...], tokenizer: Tokenizer, settings: tuple[object, ...]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, module in modules:
        for key, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name}.{key} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    digest.update(tokenizer.backend.to_str().encode())
    digest.update(repr(settings).encode())
    return digest.hexdigest()
