"""The engine `ray`: a worker is an actor somewhere in a Ray cluster. Nothing is imported from Ray before it is used.

Shards and the output folder must lie on a disk that all machines share (with `into`, only the shards), and munjang and
the model must be there on each.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

from munjang.errors import InputError, MissingExtraError
from munjang.sharding.messages import Event, Lost, Message, Plan, Ready, Task
from munjang.sharding.worker import Worker, where

_PATIENCE = 10.0  # seconds for a cluster to answer
_MOST_THREADS = 4  # of a worker, where nobody says how many
_AHEAD = 4  # messages that wait on either side: blocks of vectors are large


class _Actor:
    """Runs in a process of the cluster."""

    def __init__(self, plan: Plan) -> None:
        self._worker = Worker(plan)

    def hello(self) -> Ready:
        return Ready(where())

    def work(self, task: Task) -> Iterator[Message]:
        """The messages as they come: the work runs in a thread, because progress is told from several."""
        messages: queue.Queue[Message | None] = queue.Queue(_AHEAD)

        def run() -> None:
            try:
                self._worker.work(task, messages.put)
            finally:
                messages.put(None)

        threading.Thread(target=run, daemon=True).start()
        while (message := messages.get()) is not None:
            yield message


class RayTeam:
    """Workers as Ray actors."""

    def __init__(self, ray: Any, plan: Plan, size: int, *, gpus: bool, own: bool) -> None:
        self.size = size
        self._ray = ray
        self._own = own  # whether this job connected to the cluster
        self._plan = plan
        resources = {"num_cpus": plan.threads, "num_gpus": 1 if gpus else 0}
        self._class = ray.remote(max_restarts=0, max_task_retries=0, **resources)(_Actor)
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, tuple[int, Any]] = {}  # what is waited for -> the worker's number and actor

    def start(self, number: int) -> None:
        actor = self._class.remote(self._plan)
        self._actors[number] = actor
        self._waiting[actor.hello.remote()] = number, actor

    def give(self, number: int, task: Task) -> None:
        actor = self._actors[number]
        method = actor.work.options(num_returns="streaming", _generator_backpressure_num_objects=_AHEAD)
        self._waiting[method.remote(task)] = number, actor

    def events(self, seconds: float) -> list[tuple[int, Event]]:
        if not self._waiting:
            return []
        ready, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=seconds)
        found: list[tuple[int, Event]] = []
        for waited in ready:
            number, actor = self._waiting[waited]
            event = self._next(waited)
            if event is None or isinstance(event, Ready | Lost):
                del self._waiting[waited]
            if event is None or self._actors.get(number) is not actor:  # a task's end; or of one that was replaced
                continue
            if isinstance(event, Lost):
                self._end(number)
            found.append((number, event))
        return found

    def _next(self, waited: Any) -> Event | None:
        """The next message of what is ready; None at the end of a task."""
        try:
            reference = next(waited) if hasattr(waited, "__next__") else waited
            event: Event = self._ray.get(reference)
            return event
        except StopIteration:
            return None
        except self._ray.exceptions.RayError as error:  # the actor, its node, or an object on it is gone
            first = str(error).strip().splitlines() or [""]
            return Lost(f"a worker of the cluster is gone: {type(error).__name__}: {first[0][:300]}")

    def _end(self, number: int) -> None:
        actor = self._actors.pop(number, None)
        if actor is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    def stop(self) -> None:
        self._waiting = {}
        for number in list(self._actors):
            self._end(number)
        if self._own:
            self._ray.shutdown()


def check(address: str | None) -> Any:
    """Ray, imported; an error where it is missing, or where nobody answers at the address.

    Ray itself waits for minutes before it gives up, hence a look at the port first.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "engine='ray'") from error
    if address is None or address in ("auto", "local") or ray.is_initialized():
        return ray
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(f"the address of a Ray cluster must be 'auto' or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise InputError(_unreachable(address, str(error))) from error
    return ray


def connect(address: str | None) -> tuple[Any, bool]:
    """Ray, connected; and whether that was our doing."""
    ray = check(address)
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray throws many kinds, its own and others
        raise InputError(_unreachable(address, str(error))) from error
    return ray, True


def _unreachable(address: str | None, why: str) -> str:
    return (
        f"no Ray cluster can be reached at {address or 'this machine'} ({why.strip()[:300]}): start one (`ray start "
        "--head`), or give its address (--address HOST:6379)"
    )


def cluster_size(ray: Any, threads: int | None, *, device: str | None) -> tuple[int, int, bool]:
    """Workers that fit, CPU threads of each, and whether each has a GPU."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores = [int(node.get("CPU", 0)) for node in nodes if node.get("CPU", 0) >= 1]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if gpus and (device is None or device.startswith("cuda")):
        return gpus, threads or max(1, min(_MOST_THREADS, sum(cores) // gpus)), True
    each = threads or min([_MOST_THREADS, *cores])
    return max(1, sum(count // each for count in cores)), each, False
