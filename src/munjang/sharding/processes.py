"""The engine `processes`: a worker is a child process on this machine; on a machine with GPUs each gets its own."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from munjang.sharding.frames import receive, send
from munjang.sharding.messages import Event, Lost, Plan, Task

_AHEAD = 4  # messages that wait: blocks of vectors are large
_TAIL = 4000  # bytes of what a worker said before it died


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    said: BinaryIO  # its stderr


class Processes:
    """Workers as child processes."""

    def __init__(self, plan: Plan, size: int, gpus: int) -> None:
        self.size = size
        self._plan = plan
        self._gpus = gpus
        self._children: dict[int, _Child] = {}
        self._events: queue.Queue[tuple[int, _Child, Event]] = queue.Queue(_AHEAD)
        self._stopping = threading.Event()

    def start(self, number: int) -> None:
        said = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (as long as the worker lives)
        process = subprocess.Popen(
            [sys.executable, "-m", "munjang.sharding.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=_environment(),
        )
        child = self._children[number] = _Child(process, said)
        self._send(child, self._own_plan(number))
        threading.Thread(target=self._listen, args=(number, child), daemon=True).start()

    def _own_plan(self, number: int) -> Plan:
        if not self._gpus:
            return self._plan
        return replace(self._plan, model=replace(self._plan.model, device=f"cuda:{number % self._gpus}"))

    def give(self, number: int, task: Task) -> None:
        self._send(self._children[number], task)

    def _send(self, child: _Child, value: object) -> None:
        assert child.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone: the listener says so
            send(cast(BinaryIO, child.process.stdin), value)

    def _listen(self, number: int, child: _Child) -> None:
        """Runs in a thread: one for each worker."""
        assert child.process.stdout is not None
        try:
            while not self._stopping.is_set():
                self._put(number, child, receive(cast(BinaryIO, child.process.stdout)))
        except (EOFError, OSError):
            self._put(number, child, Lost(_last_words(child)))
        finally:
            child.process.stdout.close()

    def _put(self, number: int, child: _Child, event: Event) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put((number, child, event), timeout=0.5)
                return

    def events(self, seconds: float) -> list[tuple[int, Event]]:
        try:
            number, child, event = self._events.get(timeout=seconds)
        except queue.Empty:
            return []
        if self._children.get(number) is not child:  # of one that was replaced
            return []
        if isinstance(event, Lost):
            self._end(self._children.pop(number))
        return [(number, event)]

    def stop(self) -> None:
        self._stopping.set()
        children, self._children = self._children, {}
        for child in children.values():
            child.process.kill()
        for child in children.values():
            self._end(child)

    def _end(self, child: _Child) -> None:
        child.process.kill()
        child.process.wait()
        for pipe in (child.process.stdin, child.said):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _environment() -> dict[str, str]:
    """Ours, so that the child finds the same package; one thread for each matrix product."""
    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def _last_words(child: _Child) -> str:
    """How a worker ended, and the last line that it said."""
    status = child.process.wait()
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    try:
        child.said.seek(0, os.SEEK_END)
        child.said.seek(max(0, child.said.tell() - _TAIL))
        lines = child.said.read().decode(errors="replace").strip().splitlines()
    except (OSError, ValueError):
        lines = []
    memory = " (the system does so when memory runs out)" if status == -9 else ""
    return f"worker process {child.process.pid} {how}{memory}" + (f": {lines[-1][:300]}" if lines else "")
