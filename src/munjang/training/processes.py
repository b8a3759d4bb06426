"""One process or several: who am I, and the few things that training says to the others.

Several processes are started by `accelerate launch` or torchrun, and found through accelerate; one process needs
neither. Every process computes its share of the rows of a step; what the others computed arrives through `gather`, the
gradients through `add_up`. So a step means the same whatever the number of processes. The first one alone reads and
writes files and evaluates; what the others need of that it tells them. Nobody waits for a process that is gone
(`peers.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from munjang.errors import InputError, MissingExtraError
from munjang.training.peers import ARRIVAL, Peers, meet, patience

_OPERATION = timedelta(minutes=30)  # at most, for everybody to take part in one; the first may come later (`tell`)
_met: Peers | None = None  # a process meets the others once


class Processes:
    """This process among the others."""

    def __init__(
        self, rank: int = 0, count: int = 1, device: torch.device | None = None, peers: Peers | None = None
    ) -> None:
        self.rank, self.count = rank, count
        self.device = device or torch.device("cpu")
        self._peers = peers

    @classmethod
    def find(cls, device: torch.device) -> Processes:
        """As started: alone, or one of several that accelerate or torchrun started."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count < 2:
            return cls(device=device)
        try:
            from accelerate import PartialState
        except ImportError as error:
            raise MissingExtraError("accelerate", "train", "training in several processes") from error
        peers, options = _meet()
        state = PartialState(cpu=device.type == "cpu", **options)
        if device.type == "cuda" and state.device != device:
            raise InputError(
                f"process {state.process_index} computes on {state.device}, but its model is on {device}: load the "
                "model without a device, so that every process takes its own"
            )
        return cls(state.process_index, state.num_processes, state.device, peers)

    @property
    def first(self) -> bool:
        """Whether this one writes: logs, checkpoints, evaluations."""
        return self.rank == 0

    def needed(self) -> contextlib.AbstractContextManager[None]:
        """While it lasts, a process that is gone ends this one too, and what ends this one is told to the others."""
        return contextlib.nullcontext() if self._peers is None else self._peers.needed()

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
        parts = self._everybodys(padded)
        counts = [Processes(rank, self.count).share(size) for rank in range(self.count)]
        return torch.cat([part[: c.stop - c.start] for part, c in zip(parts, counts, strict=True)])

    def add_up(self, tensors: list[Tensor]) -> None:
        """Every tensor becomes the sum of everybody's."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._together():
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
        with self._together():
            torch.distributed.all_reduce(total)
            return bool(total.item() > 0)

    def all_say(self, value: int) -> list[int]:
        """What everybody says, by rank."""
        if self.count == 1:
            return [value]
        with self._together():
            parts = self._everybodys(torch.tensor([value], dtype=torch.int64, device=self.device))
            return [int(part.item()) for part in parts]

    def check_same(self, identity: str) -> None:
        """Refuse to train other models or other data in one run: every process would get weights of its own."""
        self.tell(0.0)
        said = self.all_say(int(identity[:15], 16))
        other = [rank for rank, one in enumerate(said) if one != said[0]]
        if other:
            raise InputError(
                f"process {other[0]} has another model, other data or other settings than process 0: give every "
                "process the same files and arguments, and new weights the same seed"
            )

    def tell(self, *values: float) -> list[float]:
        """What the first process says; the others wait for it, for as long as it works and is alive."""
        if self.count == 1:
            return list(values)
        message = torch.tensor(values, dtype=torch.float64, device=self.device)
        self._from_first(message)
        return [float(value) for value in message.tolist()]

    def tell_state(
        self, state: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and facts that the first process has, if it has any; what the others give is not looked at."""
        if self.count == 1:
            return None if state is None else (dict(state[0]), dict(state[1]))
        text = b"" if state is None else json.dumps([_shapes(state[0]), state[1]]).encode()
        (size,) = self.tell(float(len(text)))
        if not size:
            return None
        message = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.first:
            message.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        self._from_first(message)
        shapes, facts = json.loads(bytes(message.cpu().numpy()))
        tensors = {}
        for name, kind, shape in shapes:
            own = state[0][name] if self.first and state is not None else torch.zeros(shape, dtype=getattr(torch, kind))
            moved = own.to(self.device).contiguous()
            if moved.numel():
                self._from_first(moved.reshape(-1).view(torch.uint8))
            tensors[name] = moved.cpu()
        return tensors, facts

    def _everybodys(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(tensor) for _ in range(self.count)]
        with self._together():
            torch.distributed.all_gather(parts, tensor)
        return parts

    def _from_first(self, tensor: Tensor) -> None:
        """The tensor becomes the first process's."""
        if self._peers is not None:
            self._peers.await_first()
        with self._together():
            torch.distributed.broadcast(tensor, src=0)

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """An operation with the others: a broken one says who is gone, and what to do."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if self._peers is None:
                raise
            raise self._peers.error(self._peers.known(str(error))) from error


def _shapes(tensors: Mapping[str, Tensor]) -> list[tuple[str, str, list[int]]]:
    return [(name, str(one.dtype).removeprefix("torch."), list(one.shape)) for name, one in tensors.items()]


def _meet() -> tuple[Peers, dict[str, Any]]:
    """The others, and how to make the group of all processes; they are met once."""
    global _met
    if _met is not None:
        return _met, {}
    from torch import distributed

    timeout = patience()
    waits = timedelta(seconds=ARRIVAL)
    store, rank, count = next(iter(distributed.rendezvous("env://", timeout=waits)))  # type: ignore[attr-defined]
    shared = meet(store, rank, count)
    _met = Peers(shared, rank, count, timeout=timeout)
    group = distributed.PrefixStore("group", shared)  # type: ignore[attr-defined]
    return _met, {"store": group, "rank": rank, "world_size": count, "timeout": _OPERATION}
