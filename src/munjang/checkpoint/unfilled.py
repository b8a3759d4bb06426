"""`unfilled()`: modules built inside it have shapes and no values, and cost nothing; their weights come from a file.

The meta device alone does not do: torch's random `normal_` on it imports the whole compiler, two seconds at first use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _NoRandom(TorchFunctionMode):
    """Leaves out torch.nn.init's random fillings."""

    _skipped = (torch.nn.init.normal_, torch.nn.init.uniform_, torch.nn.init.kaiming_uniform_)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._skipped:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextlib.contextmanager
def unfilled() -> Iterator[None]:
    """Build modules on the meta device, without initialising them."""
    with torch.device("meta"), _NoRandom():
        yield
