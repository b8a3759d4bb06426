"""Child processes: one probe after another, and the neighbour that keeps a core busy. None outlives its caller."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.timing import progress

ROOT = Path(__file__).resolve().parent.parent
# Ends by itself when the parent is gone, however that ended.
BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def environment() -> dict[str, str]:
    """Ours, with the sources to be found and no network."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}


def probe(kind: str, *arguments: str, timeout: float = 3600) -> dict[str, float]:
    """Run one probe in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.probe", kind, *arguments]
    with _ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())) as child:
        output, errors = child.communicate(timeout=timeout)
    if child.returncode:
        raise RuntimeError(f"the probe {kind} {' '.join(arguments)} failed:\n{errors.decode(errors='replace')[-2000:]}")
    found: dict[str, float] = json.loads(output.decode().strip().splitlines()[-1])
    return found


def repeated(kind: str, sides: Mapping[str, Sequence[str]], repeats: int) -> dict[str, dict[str, float]]:
    """Medians of each side's probe, the sides taking turns; '@now' becomes the time at which the child is started.

    A first turn that fills the file caches is not counted.
    """
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, arguments in sides.items():
            progress(f"{kind}: {name}, {turn} of {repeats}")
            given = [repr(time.time()) if argument == "@now" else argument for argument in arguments]
            runs[name].append(probe(kind, *given))
    progress("")
    return {
        name: {key: statistics.median(run[key] for run in found[1:]) for key in found[0]}
        for name, found in runs.items()
    }


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Another process computes without pause on one core."""
    with _ended(subprocess.Popen([sys.executable, "-c", BUSY])):
        time.sleep(0.3)
        yield


@contextlib.contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
