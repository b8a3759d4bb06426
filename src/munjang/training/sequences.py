"""`Sequences`: a data set as token ids, tokenised once, and any rows of it as packed batches.

A row has one sequence in every stream (a bi-encoder's columns, a cross-encoder's pairs). All streams of a row go
through the device together, in one packed batch: two columns are one forward pass, not two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from munjang.nn.packed import Packed, to_packed
from munjang.text.packing import Tokens, positions, starts_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PackedRows:
    """Some rows, ready for the device, and the way back from its order."""

    batch: Packed
    streams: int
    order: Tensor | None  # int64 [streams * rows]: where each sequence, stream by stream, lies in the batch
    fillers: int = 0  # sequences at the end that nobody looks at

    def by_stream(self, outputs: Tensor) -> tuple[Tensor, ...]:  # [streams * rows, d] -> streams x [rows, d]
        if self.order is not None:
            outputs = outputs.index_select(0, self.order)
        if self.fillers:
            outputs = outputs[: -self.fillers]
        return outputs.view(self.streams, -1, outputs.shape[1]).unbind(0)


def to_device(values: Array, device: torch.device) -> Tensor:
    """A tensor on the device, for which the host does not wait."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def joined_segments(parts: Sequence[Tokens]) -> Array | None:
    """The segments of all parts, int32 [total]; a part without has zeros. None where none has any."""
    if all(part.segments is None for part in parts):
        return None
    return np.concatenate([np.zeros_like(part.ids) if part.segments is None else part.segments for part in parts])


class Sequences:
    """The tokenised rows of one data set."""

    def __init__(self, streams: Sequence[Tokens]) -> None:
        self.streams = len(streams)
        self.rows = len(streams[0].lengths)
        self.truncated = sum(stream.truncated for stream in streams)
        self.longest = max(stream.longest for stream in streams)
        self._ids = np.concatenate([stream.ids for stream in streams])
        self._segments = joined_segments(streams)
        offsets = np.cumsum([0] + [len(stream.ids) for stream in streams[:-1]])
        self._lengths = np.stack([stream.lengths for stream in streams])  # int32 [streams, rows]
        self._starts = np.stack(
            [starts_of(stream.lengths) + offset for stream, offset in zip(streams, offsets, strict=True)]
        )
        self._totals = self._lengths.sum(axis=0, dtype=np.int64)  # [rows]

    @property
    def tokens(self) -> int:
        return len(self._ids)

    def count(self, rows: Array) -> int:
        """Tokens of some rows."""
        return int(self._totals[rows].sum())

    def longest_of(self, rows: Array) -> int:
        """Tokens of the longest sequence of some rows."""
        return int(self._lengths[:, rows].max())

    def flat(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """Ids [total], lengths [streams * rows] and segments [total] of some rows, stream by stream."""
        lengths, places, _ = self.lay_out(rows, sort=False)
        ids, segments = self.at(places)
        return ids, lengths, segments

    def cut(self, rows: Array, budget: int) -> list[Array]:
        """Positions into `rows`, parted so that each part has at most `budget` tokens; rows of like length together."""
        totals = self._totals[rows]
        if int(totals.sum()) <= budget:
            return [np.arange(len(rows))] if len(rows) else []
        order = np.argsort(totals, kind="stable")[::-1]
        parts: list[Array] = []
        at, sums = 0, np.concatenate([[0], np.cumsum(totals[order])])
        while at < len(rows):
            end = max(at + 1, int(np.searchsorted(sums, sums[at] + budget, side="right")) - 1)
            parts.append(order[at:end])
            at = end
        return parts

    def lay_out(self, rows: Array, *, sort: bool) -> tuple[Array, Array, Array | None]:
        """Lengths [streams * rows], places [total] of the tokens in the data set, and the order by length if `sort`."""
        lengths = self._lengths[:, rows].ravel()
        starts = self._starts[:, rows].ravel()
        order: Array | None = None
        if sort:
            order = np.argsort(lengths, kind="stable")
            lengths, starts = lengths[order], starts[order]
        return lengths, positions(starts, lengths), order

    def at(self, places: Array) -> tuple[Array, Array | None]:
        """Ids and segments of the tokens at some places."""
        return self._ids[places], None if self._segments is None else self._segments[places]

    def pack(self, rows: Array, device: torch.device, *, sort: bool) -> PackedRows:
        """The rows as one batch. sort: by length, for devices that compute sequences of one length together."""
        lengths, places, order = self.lay_out(rows, sort=sort)
        back: Tensor | None = None
        if order is not None:
            inverse = np.empty(len(order), np.int64)
            inverse[order] = np.arange(len(order))
            back = to_device(inverse, device)
        ids, segments = self.at(places)
        return PackedRows(to_packed(ids, lengths, device, segments=segments), self.streams, back)
