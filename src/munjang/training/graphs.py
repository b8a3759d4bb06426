"""CUDA graphs: a whole training step, recorded once per shape and replayed with one launch.

A step of a small model is hundreds of small kernels. Launching them one by one takes the host several times as long as
the GPU needs to compute them; a recorded step is one launch. A recording has fixed shapes, so a packed batch is filled
up to a round number of tokens with a few short sequences that nobody looks at (6 % more tokens on average): there are
then few shapes, and each is recorded when it comes for the second time. What is recorded is exactly what `Stepper` and
`Updates` do; everything that changes from step to step lies in tensors: the tokens, the rows, the learning rates, the
seed of dropout.

Steps that do not fit (several pieces, several processes, float32, an objective whose shapes depend on values) go their
usual way.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from munjang.errors import TrainingWarning
from munjang.nn.packed import Packed
from munjang.training.sequences import PackedRows, Sequences
from munjang.training.stepping import Stepper, Work, seed_dropout
from munjang.training.updates import Updates

Array = np.ndarray[Any, Any]

_MOST = 48  # recordings of one run
_FILLER = 32  # tokens, about, in a sequence that fills up


@dataclass(frozen=True)
class Shape:
    """What must be the same for a recording to serve."""

    work: int
    rows: int
    tokens: int  # with the filling
    fillers: int  # sequences that fill up
    longest: int


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor  # int32: ids, positions, lengths, offsets, segments
    rows: Tensor  # int64 [rows]
    loss: Tensor
    norm: Tensor


def shape_of(work: int, rows: int, tokens: int, longest: int) -> Shape:
    """The round shape that a batch of so many tokens is filled up to."""
    grain = max(128, 1 << (max(tokens // 16, 1).bit_length() - 1))
    fillers = grain // _FILLER
    filled = -(-(tokens + fillers) // grain) * grain
    return Shape(work, rows, filled, fillers, max(64, 1 << (longest - 1).bit_length()))


def filled(sequences: Sequences, rows: Array, shape: Shape) -> Array:
    """ids, positions, lengths, offsets and segments of the rows and their filling, one after the other, int32."""
    ids, lengths, segments = sequences.flat(rows)
    missing = shape.tokens - len(ids)
    least, more = divmod(missing, shape.fillers)
    extra = np.full(shape.fillers, least, np.int32)
    extra[:more] += 1
    lengths = np.concatenate([lengths, extra])
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.arange(shape.tokens, dtype=np.int32) - np.repeat(offsets[:-1], lengths)
    nothing = np.zeros(missing, np.int32)
    parts = [ids, nothing, positions, lengths, offsets]
    if segments is not None:
        parts += [segments, nothing]
    return np.concatenate(parts).astype(np.int32, copy=False)


class StepGraphs:
    """Replays the steps whose shape it has recorded."""

    def __init__(self, stepper: Stepper, updates: Updates, seed: int) -> None:
        self._stepper, self._updates, self._seed = stepper, updates, seed
        self._device = stepper.trainee.device
        self._seen: dict[Shape, int] = {}
        self._recordings: dict[Shape, _Recording] = {}
        self._pool: Any = None
        self._off = False

    @staticmethod
    def serve(stepper: Stepper) -> bool:
        """Whether recording is possible at all."""
        trainee = stepper.trainee
        half = trainee.dtype in (torch.bfloat16, torch.float16)
        return trainee.device.type == "cuda" and half and stepper.processes.count == 1 and trainee.packs

    def __call__(self, work: Work, number: int, rows: Array, step: int) -> tuple[Tensor, Tensor] | None:
        """Loss and gradient norm of a step that was replayed; None where it must go the usual way."""
        tokens = work.sequences.count(rows)
        if self._off or not work.objective.recordable or tokens > self._stepper.budget:
            return None
        shape = shape_of(number, len(rows), tokens, work.sequences.longest_of(rows))
        self._seen[shape] = self._seen.get(shape, 0) + 1
        recording = self._recordings.get(shape)
        if recording is None:
            if self._seen[shape] < 2 or len(self._recordings) >= _MOST:
                return None
            recording = self._record(work, rows, shape)
            if recording is None:
                return None
        _fill(recording.inputs, filled(work.sequences, rows, shape))
        _fill(recording.rows, rows)
        seed_dropout(self._device, self._seed, step, 0, 0)
        recording.graph.replay()
        return recording.loss.clone(), recording.norm.clone()

    def _record(self, work: Work, rows: Array, shape: Shape) -> _Recording | None:
        flat = filled(work.sequences, rows, shape)
        inputs = torch.from_numpy(flat).to(self._device)
        places = torch.from_numpy(rows).to(self._device)
        packed = _packed(inputs, work.sequences, shape)
        graph = torch.cuda.CUDAGraph()
        try:
            torch.cuda.synchronize(self._device)
            with torch.cuda.graph(graph, pool=self._pool):
                loss, norm = self._whole_step(work, packed, places)
        except torch.OutOfMemoryError:
            self._off = True
            return None
        except RuntimeError as error:
            self._off = True
            warnings.warn(
                f"steps cannot be recorded as CUDA graphs ({error}); training goes on without",
                TrainingWarning,
                stacklevel=5,
            )
            return None
        self._pool = graph.pool()
        self._recordings[shape] = recording = _Recording(graph, inputs, places, loss, norm)
        return recording

    def _whole_step(self, work: Work, packed: PackedRows, places: Tensor) -> tuple[Tensor, Tensor]:
        updates = self._updates
        updates.begin()
        outputs = packed.by_stream(self._stepper.trainee(packed.batch))
        loss = work.objective(outputs, work.picked(places)) * work.weight
        (loss * updates.scale if updates.scaled else loss).backward()
        updates.fold()
        loss = loss.detach()
        return loss, updates.apply(loss)


def _fill(target: Tensor, values: Array) -> None:
    target.copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)


def _packed(inputs: Tensor, sequences: Sequences, shape: Shape) -> PackedRows:
    """Views of the input tensor as the encoder wants them."""
    count = sequences.streams * shape.rows + shape.fillers
    sizes = [shape.tokens, shape.tokens, count, count + 1]
    sizes.append(inputs.shape[0] - sum(sizes))
    ids, positions, lengths, offsets, segments = inputs.split(sizes)
    batch = Packed(
        ids=ids,
        positions=positions,
        lengths=lengths,
        offsets=offsets,
        longest=shape.longest,
        groups=(),
        segments=segments if len(segments) else None,
    )
    return PackedRows(batch, sequences.streams, order=None, fillers=shape.fillers)
