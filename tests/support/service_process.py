"""A service in a process of its own, as `munjang serve` runs it: it can be sent signals, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_PROGRAM = """
import json, sys
from munjang.serve.running import run
from munjang.serve.settings import Limits, ServeSettings
given = json.loads(sys.argv[1])
given["limits"] = Limits(**given.get("limits", {}))
run(ServeSettings(**given), on_ready=lambda address: print(address, flush=True))
"""


@dataclass
class Served:
    """A running service."""

    process: subprocess.Popen[str]
    address: str
    log: list[str]

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0


@contextlib.contextmanager
def served(index: Path, model: Path, **settings: Any) -> Iterator[Served]:
    """A service of one index, ready; killed at the end if it still runs."""
    given = {"indexes": {index.name: str(index)}, "models": {"tiny": str(model)}, "port": 0, "page": False, **settings}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    log: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
    reading.start()
    try:
        address = process.stdout.readline().strip()
        assert address, "".join(log)
        yield Served(process, address, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        reading.join(5)
        process.stdout.close()
        process.stderr.close()
