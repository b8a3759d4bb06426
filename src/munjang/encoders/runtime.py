"""`Runtime`: a model's weights on one device in one precision, and one packed batch through them.

Called by the encoding pipeline, by `encode_tokens` and by the service's batcher. It only reads, so threads may share
it. A batch that does not fit into the device's memory is halved until it does. Rows that are not finite in a lower
precision are computed again in float32.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from munjang.checkpoint import BiParts, CrossParts
from munjang.errors import ModelError
from munjang.nn.encoder import Encoder
from munjang.nn.heads import apply_heads
from munjang.nn.packed import Packed, check_ids, padding_of, to_packed
from munjang.text.packing import Batch, Tokens

Array = np.ndarray[Any, Any]
Pair = tuple[str, str]
Item = TypeVar("Item")


@dataclass(frozen=True)
class CallOptions:
    """Options of one call. Calls may share a batch where all but `prompt` and `normalize` are equal."""

    prompt: str = ""  # put before every text
    prompt_tokens: int = 0  # leading tokens that pooling leaves out
    dimension: int | None = None  # keep the first values of every vector; None: all
    normalize: bool = False
    every_token: bool = False  # the hidden state of every token instead of a vector per text


class Runtime(ABC, Generic[Item]):
    """Weights on a device: tokenize items, compute batches."""

    def __init__(self, parts: BiParts | CrossParts, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype if _fits(parts.body, dtype) else torch.float32
        self._parts = parts
        self._config = parts.body.config
        self._body = self._place(parts.body, self.dtype)
        self._float32: Runtime[Item] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def tokenize(self, items: Sequence[Item], call: CallOptions, *, by_words: bool = True) -> Tokens:
        """Tokenize items; `by_words=False` bypasses the word table, for use in a second thread."""

    @abstractmethod
    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        """Compute the rows of a batch from the body's output [total, hidden]; rows of padding may follow."""

    @abstractmethod
    def _segments(self, batch: Batch) -> Any:
        """Return the segment ids that the body takes, or None."""

    def forward(self, batch: Batch, call: CallOptions) -> Tensor:
        """Compute a batch.

        Returns:
            On the device, float32 [n, width] in the order of the batch, or [total tokens, hidden] for `every_token`.
        """
        segments = self._segments(batch)
        if self._config.family != "static":
            check_ids(batch.ids, batch.lengths, self._config, segments)
        try:
            # On the CPU, every new batch size costs memory: sizes are rounded up.
            rounds = self.device.type == "cpu" and isinstance(self._body, Encoder)
            packed = to_packed(
                batch.ids,
                batch.lengths,
                self.device,
                segments=segments,
                prompt_tokens=call.prompt_tokens,
                padding=padding_of(len(batch.ids)) if rounds else 0,
            )
            hidden: Tensor = self._body(packed)  # [total, hidden]
            if call.every_token:
                return hidden[: len(batch.ids)].float()
            return self._outputs(hidden, packed, call)[: len(batch.lengths)].contiguous()
        except torch.OutOfMemoryError:
            if len(batch.lengths) == 1:
                raise
        # Outside the except block nothing refers to the tensors of the failed attempt any more.
        return torch.cat([self.forward(half, call) for half in _halves(batch)])

    def ensure_finite(self, rows: Array, batches: Sequence[Batch], call: CallOptions) -> tuple[Array, int]:
        """Replace rows that are not finite by their values in float32.

        Args:
            rows: [n, width]; row `batch.rows[i]` belongs to sequence i of a batch. For `every_token`, the rows of one
                batch.
            batches: The batches that the rows came from.
            call: The options that they were computed with.

        Returns:
            The rows, and how many were computed again.

        Raises:
            ModelError: Values are not finite in float32 either.
        """
        # One sum of squares is cheap; only where it is not finite are all values examined.
        if np.isfinite(np.vdot(rows, rows)) or np.isfinite(rows).all():
            return rows, 0
        rows, count = rows.copy(), 0
        for batch in batches if self.dtype != torch.float32 else ():
            places = slice(None) if call.every_token else batch.rows
            bad = np.asarray(~np.isfinite(rows[places]).all(axis=1))
            if bad.any():
                with torch.inference_mode():
                    exact = self._in_float32().forward(batch, call).cpu().numpy()
                rows[places] = np.where(bad[:, None], exact, rows[places])
                count += int(bad.sum())
        bad = np.asarray(~np.isfinite(rows).all(axis=1))
        if bad.any():
            raise ModelError(
                f"{int(bad.sum()):,} of {len(rows):,} results of {self._parts.source or 'the model'} are not finite "
                "even in float32: the model's weights are damaged"
            )
        return rows, count

    def _in_float32(self) -> Runtime[Item]:
        with self._lock:
            if self._float32 is None:
                self._float32 = type(self)(self._parts, self.device, torch.float32)
            return self._float32

    def _place(self, module: Any, dtype: torch.dtype | None = None) -> Any:
        """Return the module in evaluation mode on the device: itself where it is there, a copy otherwise."""
        if self.device.type != "cpu" or self.dtype != torch.float32:
            module = copy.deepcopy(module).to(device=self.device, dtype=dtype)
        return module.eval()


class BiRuntime(Runtime[str]):
    """Texts to vectors: body, pooling, heads."""

    def __init__(self, parts: BiParts, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(parts, device, dtype)
        self._tokenizer, self._pooling = parts.tokenizer, parts.pooling
        self._heads: nn.ModuleList = self._place(parts.heads)

    def tokenize(self, items: Sequence[str], call: CallOptions, *, by_words: bool = True) -> Tokens:
        texts = [call.prompt + text for text in items] if call.prompt else items
        return self._tokenizer.encode(texts, by_words=by_words)

    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        return apply_heads(self._heads, self._pooling(hidden, packed), call.dimension)

    def _segments(self, batch: Batch) -> Any:
        return None


class CrossRuntime(Runtime[Pair]):
    """Pairs to logits: body, classifier head. The head computes in float32."""

    def __init__(self, parts: CrossParts, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(parts, device, dtype)
        self._pairs, self._head = parts, self._place(parts.head)

    def tokenize(self, items: Sequence[Pair], call: CallOptions, *, by_words: bool = True) -> Tokens:
        return self._pairs.tokenise([pair[0] for pair in items], [pair[1] for pair in items], by_words=by_words)

    def _outputs(self, hidden: Tensor, packed: Packed, call: CallOptions) -> Tensor:
        logits: Tensor = self._head(hidden, packed)  # float32 [n, labels]
        return logits

    def _segments(self, batch: Batch) -> Any:
        return batch.segments


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.lengths) // 2
    cut = int(batch.lengths[:middle].sum())
    first, second = (None, None) if batch.segments is None else (batch.segments[:cut], batch.segments[cut:])
    return (
        Batch(batch.ids[:cut], batch.lengths[:middle], batch.rows[:middle], first),
        Batch(batch.ids[cut:], batch.lengths[middle:], batch.rows[middle:], second),
    )


def _fits(body: nn.Module, dtype: torch.dtype) -> bool:
    """Whether every weight is finite in that precision (float16 ends at 65,504)."""
    if dtype != torch.float16:
        return True
    largest = [parameter.detach().abs().max().float() for parameter in body.parameters() if parameter.numel()]
    # One comparison for all of them, because each waits for the device. NaN compares false.
    return not largest or bool(torch.stack(largest).max() <= torch.finfo(dtype).max)
