"""One process or several: who am I, and the three things that training says to the others.

Several processes are started by `accelerate launch` or torchrun, and found through accelerate; one process needs
neither. Every process computes its share of the rows of a step; what the others computed arrives through `gather`, the
gradients through `add_up`. So a step means the same whatever the number of processes.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from munjang.errors import InputError, MissingExtraError


class Processes:
    """This process among the others."""

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.count = rank, count
        self.device = device or torch.device("cpu")

    @classmethod
    def find(cls, device: torch.device) -> Processes:
        """As started: alone, or one of several that accelerate or torchrun started."""
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return cls(device=device)
        try:
            from accelerate import PartialState
        except ImportError as error:
            raise MissingExtraError("accelerate", "train", "training in several processes") from error
        state = PartialState(cpu=device.type == "cpu")
        if device.type == "cuda" and state.device != device:
            raise InputError(
                f"process {state.process_index} computes on {state.device}, but its model is on {device}: load the "
                "model without a device, so that every process takes its own"
            )
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def first(self) -> bool:
        """Whether this one writes: logs, checkpoints, evaluations."""
        return self.rank == 0

    def share(self, size: int) -> slice:
        """This process's part of so many rows; the parts of all, in order of rank, are the whole."""
        least, more = divmod(size, self.count)
        start = self.rank * least + min(self.rank, more)
        return slice(start, start + least + (self.rank < more))

    def gather(self, rows: Tensor, size: int) -> Tensor:
        """Everybody's rows [share, ...] as one tensor [size, ...]; without gradient."""
        if self.count == 1:
            return rows
        most = -(-size // self.count)
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        torch.distributed.all_gather(parts, padded)
        counts = [Processes(rank, self.count).share(size) for rank in range(self.count)]
        return torch.cat([part[: c.stop - c.start] for part, c in zip(parts, counts, strict=True)])

    def add_up(self, tensors: list[Tensor]) -> None:
        """Every tensor becomes the sum of everybody's."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        torch.distributed.all_reduce(flat)
        at = 0
        for tensor in tensors:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()

    def any(self, flag: bool) -> bool:
        """Whether anybody says so; all find out together."""
        if self.count == 1:
            return flag
        total = torch.tensor([float(flag)], device=self.device)
        torch.distributed.all_reduce(total)
        return bool(total.item() > 0)

    def tell(self, *values: float) -> list[float]:
        """What the first process says; the others wait for it."""
        if self.count == 1:
            return list(values)
        message = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(message, src=0)
        return [float(value) for value in message.tolist()]
