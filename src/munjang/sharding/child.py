"""`python -m munjang.sharding.child`: one worker process. Its plan and its tasks come through stdin, answers go out.

It is a program of its own, not a fork and not a copy of the caller's main module: that works from notebooks and from
scripts without `if __name__ == "__main__"`, and no lock or thread of the caller is inherited. It ends when the caller
does, however that ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from typing import BinaryIO

from munjang.sharding.frames import receive, send
from munjang.sharding.messages import Message, Ready
from munjang.sharding.worker import Worker, where


def main() -> int:
    """Work until there is no more to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the caller decides what it means
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    warnings.simplefilter("ignore")
    tasks, answers = _pipes()
    guard = threading.Lock()

    def tell(message: Message | Ready) -> None:
        with guard:
            send(answers, message)

    with contextlib.suppress(EOFError, BrokenPipeError):
        worker = Worker(receive(tasks))
        tell(Ready(where()))
        while True:
            worker.work(receive(tasks), tell)
    return 0


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """stdin and stdout for messages alone: whatever else prints goes to stderr."""
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return tasks, answers


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
