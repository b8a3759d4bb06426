"""CUDA graphs: a whole training step, recorded once per shape and replayed with one launch.

A step of a small model is hundreds of small kernels. Launching them one by one takes the host several times as long as
the GPU needs to compute them; a recorded step is one launch. A recording has fixed shapes, so batches are filled up to
round ones (`filling.py`); each shape is recorded when it comes for the second time. What is recorded is exactly what
`Stepper` and `Updates` do; everything that changes from step to step lies in tensors: the tokens, the rows, the
learning rates, the seed of dropout.

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
from munjang.training.filling import Shape, filled
from munjang.training.sequences import PackedRows, Sequences
from munjang.training.stepping import Stepper, Work, seed_dropout

Array = np.ndarray[Any, Any]

_MOST = 128  # recordings of one run: a few shapes of every task


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor  # int32: ids, positions, lengths, offsets, segments
    rows: Tensor  # int64 [rows]
    loss: Tensor
    norm: Tensor


class StepGraphs:
    """Replays the steps whose shape it has recorded."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper, self._updates = stepper, stepper.updates
        self._device = stepper.trainee.device
        self._seen: set[tuple[int, Shape]] = set()  # (task, shape) that came before
        self._recordings: dict[tuple[int, Shape], _Recording] = {}
        # Of this device: torch's own stream for recording is of the device that was recorded on first.
        self._stream = torch.cuda.Stream(self._device)
        self._pool: Any = None
        self._off = False

    def __call__(self, work: Work, number: int, rows: Array, step: int) -> tuple[Tensor, Tensor] | None:
        """Loss and gradient norm of a step that was replayed; None where it must go the usual way."""
        shape = None if self._off else self._stepper.shape(work, rows)
        if shape is None:
            return None
        recording = self._recordings.get((number, shape))
        if recording is None:
            if (number, shape) not in self._seen or len(self._recordings) >= _MOST:
                self._seen.add((number, shape))
                return None
            recording = self._record(work, rows, shape)
            if recording is None:
                return None
            self._recordings[number, shape] = recording
        _fill(recording.inputs, flat_inputs(work.sequences, rows, shape))
        _fill(recording.rows, rows)
        seed_dropout(self._device, self._stepper.seed, step, 0, 0)
        recording.graph.replay()
        return recording.loss.clone(), recording.norm.clone()

    def _record(self, work: Work, rows: Array, shape: Shape) -> _Recording | None:
        inputs = torch.from_numpy(flat_inputs(work.sequences, rows, shape)).to(self._device)
        places = torch.from_numpy(rows).to(self._device)
        packed = as_packed(inputs, work.sequences, shape)
        graph = torch.cuda.CUDAGraph()
        try:
            torch.cuda.synchronize(self._device)
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
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
        return _Recording(graph, inputs, places, loss, norm)

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
    target.copy_(torch.from_numpy(values).pin_memory(), non_blocking=True)  # the host does not wait


def flat_inputs(sequences: Sequences, rows: Array, shape: Shape) -> Array:
    """ids, positions, lengths, offsets and segments of the rows and their filling, one after the other, int32."""
    ids, lengths, segments = filled(sequences, rows, shape)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.arange(shape.tokens, dtype=np.int32) - np.repeat(offsets[:-1], lengths)
    parts = [ids, positions, lengths, offsets] + ([] if segments is None else [segments])
    return np.concatenate(parts).astype(np.int32, copy=False)


def as_packed(inputs: Tensor, sequences: Sequences, shape: Shape) -> PackedRows:
    """Views of the inputs as the encoder wants them; attention on CUDA needs no groups."""
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
