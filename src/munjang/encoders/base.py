"""What bi-encoders and cross-encoders share: device and precision, settings, identity, copies and pickling.

The weights stay float32 in `parts`: that is what is saved and trained. What computes is a copy on the device, in the
precision chosen there (`Runtime`). Every method may be called from several threads at once.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import nn

from munjang.checkpoint import BiParts, CrossParts
from munjang.encoders.runtime import Item, Plan, Runtime, plan_for
from munjang.errors import InputError, ModelWarning, PrecisionWarning, TruncationWarning
from munjang.nn.device import choose_device, choose_dtype, cpu_cores, explain
from munjang.text.tokenizer import Tokenizer
from munjang.types import DTypeName, EncodeReport

if TYPE_CHECKING:
    from typing_extensions import Self

Parts = TypeVar("Parts", BiParts, CrossParts)


class BaseEncoder(ABC, Generic[Parts, Item]):
    """A model on a device."""

    parts: Parts

    def __init__(self, parts: Parts, *, device: str | torch.device | None = None, dtype: DTypeName = "auto") -> None:
        self.parts = parts
        self._device = choose_device(device)
        self._requested_dtype: DTypeName = dtype
        self._threads = cpu_cores()
        self.refresh()

    @abstractmethod
    def _make_runtime(self, dtype: torch.dtype) -> Runtime[Item]: ...

    @abstractmethod
    def _identity(self) -> tuple[dict[str, nn.Module], tuple[object, ...]]:
        """Return the modules and the settings that decide the results, for the fingerprint."""

    def refresh(self) -> None:
        """Copy the weights of `parts` to the device again, after they were changed."""
        self._runtime = self._make_runtime(choose_dtype(self._requested_dtype, self._device))
        self._fingerprint: str | None = None

    @property
    def runtime(self) -> Runtime[Item]:
        """The weights on the device, for callers that make their own batches."""
        return self._runtime

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the body; results are always float32."""
        return self._runtime.dtype

    @property
    def tokenizer(self) -> Tokenizer:
        return self.parts.tokenizer

    @property
    def max_length(self) -> int:
        """Most tokens of an input, special tokens included. Longer inputs are truncated, with a warning."""
        return self.parts.tokenizer.max_length

    @max_length.setter
    def max_length(self, value: int) -> None:
        limit = self.parts.body.max_positions
        if value > limit:
            raise InputError(f"max_length must be at most {limit} (the model's positions), got {value}")
        self.parts.tokenizer.max_length = value
        self._fingerprint = None

    @property
    def threads(self) -> int:
        """CPU threads for bulk work (default: the cores that this process may use, container quotas included)."""
        return self._threads

    @threads.setter
    def threads(self, value: int) -> None:
        if value < 1:
            raise InputError(f"threads must be at least 1, got {value}")
        self._threads = value

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides the results: weights, tokenizer, settings, maximum length."""
        if self._fingerprint is None:
            modules, settings = self._identity()
            digest = hashlib.blake2b(digest_size=16)
            for name, module in modules.items():
                for key, tensor in sorted(module.state_dict().items()):
                    digest.update(f"{name}.{key} {tuple(tensor.shape)}".encode())
                    digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
            digest.update(self.tokenizer.backend.to_str().encode())
            digest.update(repr(settings).encode())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def _describe_runtime(self) -> dict[str, object]:
        return {
            "device": str(self.device),
            "dtype": _name(self.dtype),
            "chosen": explain(self.device, self.dtype, str(self._requested_dtype)),
            "threads": self.threads,
            "notes": list(self.parts.notes),
        }

    def _plan(self) -> Plan:
        return plan_for(self._device, self._threads)

    def _empty_report(self) -> EncodeReport:
        return EncodeReport(0, 0, 0, 0, self.max_length, 0.0)

    def _warn_recomputed(self, count: int, what: str) -> None:
        warnings.warn(
            f"{count} {what} were not finite in {_name(self.dtype)} and were computed again in float32; load the "
            "model with dtype='float32' if this happens often",
            PrecisionWarning,
            stacklevel=5,
        )

    # --- copies ------------------------------------------------------------------------------------------------------
    #
    # pickle, deepcopy and joblib copy the parts and settings; the runtime is made again. The weights travel by value,
    # also to processes that multiprocessing starts. A copy is placed on the same device, or on the CPU where that
    # device does not exist.

    def __getstate__(self) -> dict[str, object]:
        state = {name: value for name, value in self.__dict__.items() if name != "_runtime"}
        return {**state, "parts": pickle.dumps(state["parts"], protocol=pickle.HIGHEST_PROTOCOL)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, parts=pickle.loads(state["parts"]))
        try:
            self._device = choose_device(state["_device"])
        except InputError:
            warnings.warn(
                f"device {state['_device']} does not exist here: the copy is on the CPU", ModelWarning, stacklevel=2
            )
            self._device = torch.device("cpu")
            if self._requested_dtype == "float16":  # for GPUs only
                self._requested_dtype = "auto"
        self.refresh()

    def __copy__(self) -> Self:
        """Return a copy that shares everything."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other


def warn_truncated(report: EncodeReport, what: str, effect: str) -> None:
    """Warn where inputs were truncated. To be called by the public method itself (`stacklevel`)."""
    if report.truncated:
        warnings.warn(
            f"truncated: {report.truncated:,} of {report.texts:,} {what} were longer than {report.max_length} tokens "
            f"(the longest has {report.longest:,}) and {effect}; raise max_length where the model allows it, or split "
            "texts with munjang.chunks",
            TruncationWarning,
            stacklevel=3,
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
