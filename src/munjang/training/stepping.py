"""One step: rows of a task -> outputs -> loss -> gradients, exactly, however little fits into the device at a time.

Rows are packed without padding and cut into pieces of at most `token_budget` tokens.

- A row-wise objective (softmax, cosine, BCE...) is a mean over rows: pieces are computed and forgotten one by one.
- An objective of single tokens (hidden words) is a mean over all of them, so its pieces are forgotten one by one too.
- Every other objective needs all outputs at once (in-batch negatives, CoSENT, lists). If they do not fit, or if there
  are several processes, gradients are cached (Gao et al. 2021, 'Scaling deep contrastive learning batch size under
  memory limited setup'): outputs first, piece by piece; then the loss on all of them, everybody's included, and its
  gradient with respect to the outputs; then the pieces again, with that gradient, and with the same dropout. The result
  is the gradient of the whole batch, whatever the budget and the number of processes.

The random numbers of dropout follow from the seed, the step, the process and the piece, not from what came before: the
second pass over a piece sees the same dropout as the first, a repeated step the same as the one that failed, and a
resumed run the same as an unbroken one (on a GPU also whether a step is recorded or not: `filling.py`). A step that
does not fit into the device's memory is repeated with half the budget.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from munjang.data import Examples
from munjang.errors import TrainingError, TrainingWarning
from munjang.nn.encoder import MAX_PADDED, MAX_SEQUENCES
from munjang.nn.packed import to_packed
from munjang.training.filling import LONGEST_FILLER, Shape, pack_filled, shape_of
from munjang.training.masking import Masked
from munjang.training.objectives import Given, MaskedWords, Objective
from munjang.training.processes import Processes
from munjang.training.sequences import Sequences, to_device
from munjang.training.trainee import Trainee
from munjang.training.updates import Updates

Array = np.ndarray[Any, Any]

_LOGITS = 1 << 26  # values of logits over the vocabulary at a time
_ON_DEVICE = 1 << 30  # bytes of targets that are copied to the device; larger ones are sent row by row


@dataclass(frozen=True)
class Work:
    """A task made ready: its sequences, its objective, what the objective compares with."""

    name: str
    sequences: Sequences
    objective: Objective
    weight: float
    picked: Callable[[Tensor], Given]  # rows, on the device -> what is known of them
    groups: Tensor | None = None  # int64, on the CPU: losses over lists read it to find their shapes
    far: Array | None = None  # targets that are too large for the device, in memory or in a file

    @property
    def recordable(self) -> bool:
        """Whether a CUDA graph may hold its steps: everything that it needs lies on the device."""
        return self.objective.recordable and self.far is None

    def given(self, rows: Array, device: torch.device) -> Given:
        known = self.picked(to_device(rows, device))
        if self.far is not None:
            known = replace(known, targets=to_device(np.ascontiguousarray(self.far[rows]), device))
        return known if self.groups is None else replace(known, groups=self.groups[torch.from_numpy(rows)])


def work_of(examples: Examples, objective: Objective, trainee: Trainee, *, weight: float = 1.0) -> Work:
    """Tokenise the data of a task, and put what is known of its rows on the device, if it is not too much."""
    device, targets = trainee.device, examples.targets
    far = targets if targets is not None and targets.nbytes > _ON_DEVICE else None
    known = None if targets is None or far is not None else torch.from_numpy(_own(targets)).to(device)
    groups = None if examples.groups is None else torch.from_numpy(np.ascontiguousarray(examples.groups))
    guides = [torch.from_numpy(vectors).to(device) for vectors in objective.guide(examples)]

    def picked(rows: Tensor) -> Given:
        found = None if known is None else known.index_select(0, rows)
        return Given(found, guides=tuple(guide.index_select(0, rows) for guide in guides))

    return Work(examples.name, Sequences(trainee.streams(examples)), objective, weight, picked, groups, far)


def _own(targets: Array) -> Array:
    """The array as torch takes it: one that may not be written to (a file's) is copied."""
    return np.ascontiguousarray(targets) if targets.flags.writeable else np.array(targets, order="C")


def default_budget(device: torch.device, parameters: int) -> int:
    """Tokens at a time that should fit: a third of the memory, by a generous guess of what a token takes.

    What does not fit all the same is halved on the way.
    """
    if device.type != "cuda":
        return 16_384
    memory = torch.cuda.get_device_properties(device).total_memory
    per_token = 400_000 if parameters < 50_000_000 else 2_500_000  # bytes; guesses, not measured
    return max(4096, min(262_144, memory // 3 // per_token))


class Stepper:
    """Computes the gradients of one step after another."""

    def __init__(self, trainee: Trainee, updates: Updates, processes: Processes, *, budget: int, seed: int) -> None:
        self.trainee, self.updates, self.processes = trainee, updates, processes
        self.budget, self.seed = budget, seed
        half = trainee.dtype in (torch.bfloat16, torch.float16)
        packs = trainee.device.type == "cuda" and half and trainee.packs
        self._sort = not packs  # other ways of attention take sequences of one length together
        pads = trainee.device.type == "cuda" and half and trainee.pads
        self._longest = MAX_PADDED if pads else None  # tokens, of a sequence whose step can be recorded
        positions = trainee.model.parts.body.max_positions
        self.fills = (packs or pads) and processes.count == 1 and positions >= LONGEST_FILLER

    def shape(self, work: Work, rows: Array) -> Shape | None:
        """The round shape that these rows are filled up to; None where the step cannot be recorded."""
        if not self.fills or not work.recordable:
            return None
        sequences = work.sequences
        tokens = sequences.count(rows)
        if tokens > self.budget:
            return None
        shape = shape_of(len(rows), tokens, sequences.longest_of(rows))
        if self._longest is not None and shape.longest > self._longest:
            return None
        return shape if sequences.streams * len(rows) + shape.fillers <= MAX_SEQUENCES else None

    def __call__(self, work: Work, rows: Array, step: int) -> Tensor:
        """The gradients of this step lie in `updates`; the loss over all rows is returned."""
        while True:
            self.updates.begin()
            try:
                loss = self._gradients(work, rows, step)
                self.processes.add_up([*self.updates.gradients, loss])
                return loss
            except torch.OutOfMemoryError as error:
                self._halve(work, rows, error)
            # The error is out of scope here, and with it the tensors its traceback held.
            if self.trainee.device.type == "cuda":
                torch.cuda.empty_cache()

    def _halve(self, work: Work, rows: Array, error: Exception) -> None:
        longest = max((work.sequences.count(rows[i : i + 1]) for i in range(len(rows))), default=0)
        if self.budget <= longest:
            smaller = "" if work.objective.rowwise else ", lower the batch size (the loss compares all rows)"
            raise TrainingError(
                f"a single row of {work.name} ({longest:,} tokens) does not fit into the device's memory; "
                f"lower max_length{smaller} or take a smaller model"
            ) from error
        if self.processes.count > 1:
            raise TrainingError(
                f"out of memory with {self.budget:,} tokens at a time; with several processes the budget cannot be "
                f"changed on the way: resume with token_budget={self.budget // 2}"
            ) from error
        self.budget = max(longest, min(self.budget, work.sequences.count(rows)) // 2)
        warnings.warn(
            f"out of memory: the step is repeated with at most {self.budget:,} tokens at a time (token_budget)",
            TrainingWarning,
            stacklevel=4,
        )

    def _gradients(self, work: Work, rows: Array, step: int) -> Tensor:
        mine = rows[self.processes.share(len(rows))]
        pieces = work.sequences.cut(mine, self.budget)
        if isinstance(work.objective, MaskedWords):
            return self._hidden_words(work, rows, [mine[piece] for piece in pieces], step)
        if work.objective.rowwise:
            return self._row_by_row(work, len(rows), [mine[piece] for piece in pieces], step)
        if len(pieces) == 1 and self.processes.count == 1:
            outputs = self._forward(work, mine, step, shape=self.shape(work, mine))
            return self._backward(work.objective(outputs, work.given(mine, self.trainee.device)) * work.weight)
        return self._cached(work, rows, pieces, step)

    def _row_by_row(self, work: Work, size: int, parts: list[Array], step: int) -> Tensor:
        total = torch.zeros((), device=self.trainee.device)
        shape = self.shape(work, parts[0]) if len(parts) == 1 else None
        for number, part in enumerate(parts):
            outputs = self._forward(work, part, step, number, shape=shape)
            loss = work.objective(outputs, work.given(part, self.trainee.device))
            total += self._backward(loss * (work.weight * len(part) / size))
        return total

    def _hidden_words(self, work: Work, rows: Array, parts: list[Array], step: int) -> Tensor:
        """The mean over all hidden tokens of all rows: how many there are is known before anything is computed."""
        objective = work.objective
        assert isinstance(objective, MaskedWords)
        numbers = (self.seed, step)
        total = len(objective.mask(work.sequences, rows, numbers=numbers).where)
        loss = torch.zeros((), device=self.trainee.device)
        for number, part in enumerate(parts):
            masked = objective.mask(work.sequences, part, numbers=numbers, sort=self._sort)
            if len(masked.where):
                seed_dropout(self.trainee.device, self.seed, step, self.processes.rank, number)
                loss += self._found_words(objective, masked, work.weight / total)
        return loss

    def _found_words(self, objective: MaskedWords, masked: Masked, weight: float) -> Tensor:
        """One piece. Logits over a whole vocabulary are large: so many tokens at a time, their gradients gathered."""
        device = self.trainee.device
        batch = to_packed(masked.ids, masked.lengths, device, segments=masked.segments)
        where, labels = to_device(masked.where, device), to_device(masked.labels, device)
        states = objective.states(self.trainee.hidden(batch).index_select(0, where))  # [m, width]
        leaf, table = states.detach().requires_grad_(), self.trainee.word_table
        loss = torch.zeros((), device=device)
        most = max(1, _LOGITS // len(table))
        for at in range(0, len(leaf), most):
            some = slice(at, at + most)
            loss += self._backward(objective.cross_entropy(leaf[some], table, labels[some]) * weight)
        states.backward(leaf.grad)
        self.updates.fold()
        return loss

    def _cached(self, work: Work, rows: Array, pieces: list[Array], step: int) -> Tensor:
        device = self.trainee.device
        share = self.processes.share(len(rows))
        mine = rows[share]
        places = [to_device(piece.copy(), device) for piece in pieces]
        local = torch.zeros(len(mine), work.sequences.streams, self.trainee.dimension, device=device)
        for number, (piece, place) in enumerate(zip(pieces, places, strict=True)):
            # With gradients switched on, though they are not wanted: the same kernels both times, the same numbers.
            local[place] = torch.stack(self._forward(work, mine[piece], step, number), dim=1).detach()
        leaf = self.processes.gather(local, len(rows)).requires_grad_()
        loss = self._backward(work.objective(leaf.unbind(1), work.given(rows, self.trainee.device)) * work.weight)
        assert leaf.grad is not None
        wanted = leaf.grad[share]
        if self.processes.count > 1:
            # Everybody computed the same loss over all rows: its own weights' gradient must not be counted twice.
            for weight in work.objective.parameters():
                if weight.grad is not None:
                    weight.grad /= self.processes.count
        for number, (piece, place) in enumerate(zip(pieces, places, strict=True)):
            outputs = self._forward(work, mine[piece], step, number)
            torch.stack(outputs, dim=1).backward(wanted[place])
            self.updates.fold()
        return loss / self.processes.count  # `add_up` sums over the processes

    def _forward(
        self, work: Work, rows: Array, step: int, piece: int = 0, *, shape: Shape | None = None
    ) -> tuple[Tensor, ...]:
        device = self.trainee.device
        if shape is None:
            packed = work.sequences.pack(rows, device, sort=self._sort)
        else:
            packed = pack_filled(work.sequences, rows, shape, device)
        seed_dropout(device, self.seed, step, self.processes.rank, piece)
        return packed.by_stream(self.trainee(packed.batch))

    def _backward(self, loss: Tensor) -> Tensor:
        (loss * self.updates.scale if self.updates.scaled else loss).backward()
        self.updates.fold()
        return loss.detach()


def seed_dropout(device: torch.device, *numbers: int) -> None:
    """The generators that dropout draws from, set from a few numbers."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
