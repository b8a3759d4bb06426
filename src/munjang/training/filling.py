"""Round shapes: the rows of a step filled up to a round number of tokens with short sequences that nobody looks at.

Recorded steps (`graphs.py`) have fixed shapes, and packed batches have any number of tokens; filled up (a few percent
more tokens, more of them in small batches), there are few shapes. A step that could be recorded but is not yet is
filled up too: dropout draws by shape, so that both see the same, and a resumed run, which records other steps than an
unbroken one, goes the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from munjang.nn.packed import to_packed
from munjang.training.sequences import PackedRows, Sequences

Array = np.ndarray[Any, Any]

_FILLER = 32  # tokens, about, in a sequence that fills up
LONGEST_FILLER = 34  # tokens: none is longer, whatever the shape


@dataclass(frozen=True)
class Shape:
    """What is the same for all batches that one recording serves."""

    rows: int
    tokens: int  # with the filling
    fillers: int  # sequences that fill up
    longest: int


def shape_of(rows: int, tokens: int, longest: int) -> Shape:
    """The round shape that a batch of so many tokens is filled up to."""
    grain = max(128, 1 << (max(tokens // 16, 1).bit_length() - 1))
    fillers = grain // _FILLER
    filled = -(-(tokens + fillers) // grain) * grain
    return Shape(rows, filled, fillers, max(64, 1 << (longest - 1).bit_length()))


def filled(sequences: Sequences, rows: Array, shape: Shape) -> tuple[Array, Array, Array | None]:
    """Ids [tokens], lengths [streams * rows + fillers] and segments [tokens] of the rows, then of their filling."""
    ids, lengths, segments = sequences.flat(rows)
    missing = shape.tokens - len(ids)
    least, more = divmod(missing, shape.fillers)
    extra = np.full(shape.fillers, least, np.int32)
    extra[:more] += 1
    nothing = np.zeros(missing, np.int32)
    return (
        np.concatenate([ids, nothing]),
        np.concatenate([lengths, extra]),
        None if segments is None else np.concatenate([segments, nothing]),
    )


def pack_filled(sequences: Sequences, rows: Array, shape: Shape, device: torch.device) -> PackedRows:
    """The rows and their filling as one batch on the device, in the order of the rows."""
    ids, lengths, segments = filled(sequences, rows, shape)
    batch = replace(to_packed(ids, lengths, device, segments=segments), longest=shape.longest)
    return PackedRows(batch, sequences.streams, order=None, fillers=shape.fillers)
