"""`Packed`: a batch of sequences as one flat run of tokens, without padding.

Token ids are checked against the model's tables on the host: an id, a position or a segment out of range is a readable
error here, and an opaque CUBLAS failure on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from munjang.errors import InputError

if TYPE_CHECKING:
    from munjang.nn.encoder import EncoderConfig

Array = np.ndarray[Any, Any]


class Group(NamedTuple):
    """Neighbouring sequences of equal length; attention on the CPU takes them together."""

    start: int  # first token
    sequences: int
    length: int  # tokens in each


@dataclass(frozen=True)
class Packed:
    """A batch of sequences without padding."""

    ids: Tensor  # int32 [total]
    positions: Tensor  # int32 [total], 0 at every sequence's first token
    lengths: Tensor  # int32 [n]
    offsets: Tensor  # int32 [n + 1], first token of each sequence, and the total
    longest: int
    groups: tuple[Group, ...]
    segments: Tensor | None = None  # int32 [total]; None means all zero
    prompt_tokens: int = 0  # leading tokens that pooling must leave out

    @property
    def count(self) -> int:
        return self.lengths.shape[0]

    @property
    def total(self) -> int:
        return self.ids.shape[0]


def check_ids(ids: Array, lengths: Array, config: EncoderConfig, segments: Array | None = None) -> None:
    """Check a batch against the model's tables.

    Raises:
        InputError: An id, a length or a segment is out of range.
    """
    if len(ids) == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size:
        raise InputError(
            f"token ids must be 0..{config.vocab_size - 1} (the model's vocabulary), got {low if low < 0 else high}: "
            "the tokenizer does not belong to this model"
        )
    if int(lengths.min()) < 1:
        raise InputError("every sequence needs at least one token, got an empty one")
    longest = int(lengths.max())
    if longest > config.max_positions:
        raise InputError(
            f"a sequence may have at most {config.max_positions} tokens (the model's positions), got {longest}: "
            "lower max_length"
        )
    if segments is not None and int(segments.max()) >= max(config.segments, 1):
        raise InputError(
            f"segment ids must be below {max(config.segments, 1)} (the model's segments), got {int(segments.max())}"
        )


def to_packed(
    ids: Array,
    lengths: Array,
    device: torch.device,
    *,
    segments: Array | None = None,
    prompt_tokens: int = 0,
    padding: int = 0,
) -> Packed:
    """Copy a checked batch to the device, in one transfer, from pinned memory if the device is a GPU.

    Args:
        ids: int32 [total], the tokens of all sequences.
        lengths: int32 [n].
        device: Where to.
        segments: int32 [total], or None if all are zero.
        prompt_tokens: Leading tokens of each sequence that pooling leaves out.
        padding: Append this many sequences of one token, which the caller drops from the result (`padding_of`).
    """
    if padding:
        ids = np.pad(ids, (0, padding))
        lengths = np.pad(lengths, (0, padding), constant_values=1)
        segments = None if segments is None else np.pad(segments, (0, padding))
    count, total = len(lengths), len(ids)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.arange(total, dtype=np.int32) - np.repeat(offsets[:-1], lengths)
    arrays = [ids, positions, lengths, offsets] + ([] if segments is None else [segments])
    flat = torch.from_numpy(np.concatenate([array.astype(np.int32, copy=False) for array in arrays]))
    if device.type == "cuda":
        flat = flat.pin_memory()
    tensors = flat.to(device, non_blocking=True).split([len(array) for array in arrays])
    return Packed(
        ids=tensors[0],
        positions=tensors[1],
        lengths=tensors[2],
        offsets=tensors[3],
        longest=int(lengths.max()) if count else 0,
        groups=_groups(lengths),
        segments=None if segments is None else tensors[4],
        prompt_tokens=prompt_tokens,
    )


def padding_of(total: int) -> int:
    """Tokens to add so that batches have few sizes: multiples of 8, from 128 tokens on 16 sizes per octave.

    oneDNN compiles and caches a primitive for every shape, and the allocator keeps blocks of every size: on the CPU,
    batches of arbitrary size make the memory of a long-running process grow.
    """
    step = max(8, 1 << max(0, (total - 1).bit_length() - 5))
    return -total % step


def _groups(lengths: Array) -> tuple[Group, ...]:
    """Runs of equal lengths, in order. Batches are sorted by length, so there are few."""
    if len(lengths) == 0:
        return ()
    firsts = np.flatnonzero(np.diff(lengths, prepend=lengths[0] - 1))
    counts = np.diff(firsts, append=len(lengths))
    starts = np.concatenate([[0], np.cumsum(lengths[firsts].astype(np.int64) * counts)])[:-1]
    return tuple(
        Group(int(start), int(count), int(lengths[first]))
        for start, count, first in zip(starts, counts, firsts, strict=True)
    )
