"""How much memory a process uses, at most, and how much the machine has. Where a system does not say: None, 0."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_EVERY = 0.02  # seconds between two looks
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Watched:
    """The most memory that was seen in use, in bytes."""

    def __init__(self) -> None:
        self.peak: float | None = None

    def look(self) -> None:
        now = used_memory()
        if now is not None:
            self.peak = max(now, self.peak or 0.0)


@contextlib.contextmanager
def peak_memory() -> Iterator[Watched]:
    """Watch this process while the block runs."""
    watched, ended = Watched(), threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY):
            watched.look()

    watched.look()
    thread = threading.Thread(target=watch, name="munjang-memory", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join()
        watched.look()


def used_memory() -> float | None:
    """Bytes that this process has in memory now."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return float(pages * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def machine_memory() -> float:
    """Bytes of the machine, or of the container; 0 where nobody says."""
    try:
        found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        found = 0.0
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limit = float(Path(path).read_text(encoding="ascii"))
            found = min(found, limit) if found else limit
    return found
