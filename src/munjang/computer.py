"""`Computer`: a model's parts on one device in one precision, and one packed batch through them.

Enters: a `Batch` of token ids. Leaves: float32 vectors on the device. A batch that does not fit into the device's
memory is halved until it does.
"""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import Tensor, nn

from munjang.checkpoint import ModelParts
from munjang.nn.heads import apply_heads
from munjang.nn.packed import check_ids, to_packed
from munjang.text.batches import Batch


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
            packed = to_packed(batch.ids, batch.lengths, self.device, prompt_tokens=prompt_tokens)
            pooled = self._pooling(self._body(packed), packed)
            return apply_heads(self._heads, pooled, dimension).contiguous()
        except torch.OutOfMemoryError:
            if len(batch.lengths) == 1:
                raise
        # The error is out of scope here, and with it the tensors its traceback held.
        return torch.cat([self(half, prompt_tokens, dimension) for half in _halves(batch)])


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch.lengths) // 2
    cut = int(batch.lengths[:middle].sum())
    return (
        Batch(batch.ids[:cut], batch.lengths[:middle], batch.rows[:middle]),
        Batch(batch.ids[cut:], batch.lengths[middle:], batch.rows[middle:]),
    )


def _fits(body: nn.Module, dtype: torch.dtype) -> bool:
    """Whether every weight is finite in that precision (float16 ends at 65,504)."""
    if dtype != torch.float16:
        return True
    limit = torch.finfo(dtype).max
    return all(bool(parameter.abs().max() <= limit) for parameter in body.parameters() if parameter.numel())


def fingerprint_of(parts: ModelParts) -> str:
    """A hash of everything that decides the vectors."""
    digest = hashlib.blake2b(digest_size=16)
    for name, module in (("body", parts.body), ("heads", parts.heads)):
        for key, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name}.{key} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    heads = [repr(head) + getattr(head, "activation", "") for head in parts.heads]
    digest.update(parts.tokenizer.backend.to_str().encode())
    digest.update(repr((parts.pooling, heads, parts.tokenizer.max_length, parts.body.config)).encode())
    return digest.hexdigest()
