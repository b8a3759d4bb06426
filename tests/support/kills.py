"""Kill a call with SIGKILL before a chosen step on the disk: an opened file, a rename, a removal, an SQL statement.

Steps are counted by an audit hook in a forked child, so that a test names a public call and no inner function of it.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

FILE_STEPS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
SQL_STEPS = ("BEGIN", "INSERT", "UPDATE", "DELETE", "CREATE", "COMMIT", "VACUUM", "PRAGMA WAL_CHECKPOINT")
State = Any  # what is on the disk, as a test reads it; compared with ==


class KillServer:
    """A process that has imported everything and computed nothing; each call runs in a fork of it."""

    def __enter__(self) -> KillServer:
        self._requests = 0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-c", "from support.kills import serve; serve()"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, call: str, folder: Path, *, kill_at: int = 0) -> int:
        """Run a function of `support.kill_work` in a fork, killed before step `kill_at` (0: never).

        Returns the number of steps that it took, or 0 when it was killed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests += 1
        print(json.dumps([self._requests, call, str(folder), kill_at]), file=self._process.stdin, flush=True)
        answered = 0
        while answered < self._requests:  # a test that ran out of time may have left an answer behind
            answered, status, steps = json.loads(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), f"{call} failed, see stderr"
        return int(steps) if status == 0 else 0


def serve() -> None:
    """Answer the requests of a `KillServer` until its stdin is closed."""
    from support import kill_work

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the calls print is no answer
    steps = mmap.mmap(-1, 8)  # shared with the forks
    for line in sys.stdin:
        number, call, folder, kill_at = json.loads(line)
        steps[:8] = bytes(8)
        child = os.fork()
        if child == 0:
            _run_in_fork(getattr(kill_work, call), Path(folder), kill_at, steps)
        _, status = os.waitpid(child, 0)
        answer = [number, os.waitstatus_to_exitcode(status), int.from_bytes(steps[:8], "little")]
        print(json.dumps(answer), file=answers, flush=True)


def _run_in_fork(call: Callable[[Path], None], folder: Path, kill_at: int, steps: mmap.mmap) -> None:
    def step() -> None:
        count = int.from_bytes(steps[:8], "little") + 1
        steps[:8] = count.to_bytes(8, "little")
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def inside(path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and (
            not os.path.isabs(name := os.fsdecode(path)) or name.startswith(str(folder))
        )

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if (event in FILE_STEPS and inside(arguments[0])) or (
            event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and inside(arguments[0])
        ):
            step()

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = plain_connect(*arguments, **options)
        connection.set_trace_callback(lambda sql: step() if sql.lstrip().upper().startswith(SQL_STEPS) else None)
        return connection

    try:
        plain_connect, sqlite3.connect = sqlite3.connect, connect  # type: ignore[assignment]
        sys.addaudithook(watch)
        call(folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def moments(steps: int, count: int, seed: int = 0) -> list[int]:
    """The first and the last step, and others at random."""
    others = random.Random(seed).sample(range(2, steps), min(count - 2, max(0, steps - 2)))
    return sorted({1, steps, *others})


def killed_anywhere(
    server: KillServer, call: str, before: Path, state: Callable[[Path], State], *, count: int = 10
) -> None:
    """Whatever the moment of the kill, the old state or the new one is on the disk, and the same call completes it.

    before: the folder as it is before the call; each kill gets a copy.
    """
    old, whole = state(before), _copy(before, "whole")
    steps = server.run(call, whole)
    new = state(whole)
    assert steps >= 2, "nothing was written"
    for moment in moments(steps, count):
        folder = _copy(before, f"killed-{moment}")
        assert server.run(call, folder, kill_at=moment) == 0
        assert state(folder) in (old, new), f"killed before step {moment} of {steps}"
        server.run(call, folder)
        assert state(folder) == new, f"killed before step {moment} of {steps}, then called again"
        shutil.rmtree(folder)


def killed_until_done(
    server: KillServer, call: str, before: Path, state: Callable[[Path], State], *, kills: int = 4
) -> None:
    """Killed several times, each time further on, and then left alone: it resumes, and ends as an unbroken run does."""
    whole, folder = _copy(before, "whole"), _copy(before, "killed")
    steps, killed, chance = server.run(call, whole), 0, random.Random(0)
    part = steps / (kills + 1)
    for number in range(1, kills + 1):
        taken = server.run(call, folder, kill_at=max(1, round(part * (number + chance.uniform(-0.5, 0.5)))))
        if taken:
            break
        killed += 1
    else:
        taken = server.run(call, folder)
    assert killed >= 2, f"{steps} steps: not killed often enough to show anything"
    assert taken <= 0.75 * steps, f"the last run took {taken} steps, an unbroken one {steps}: nothing was resumed"
    assert state(folder) == state(whole)


def _copy(before: Path, name: str) -> Path:
    return Path(shutil.copytree(before, before.with_name(name), symlinks=True))
