"""What a run says while it works: a line on stderr, `log.jsonl` for every step, TensorBoard where it is installed.

A resumed run cuts the log back to the step it resumes from, so that the log of a run is one story whatever happened.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from munjang.files import atomic_write, disk_errors
from munjang.progress import Progress


class RunLog:
    """Appends records; every record has its step."""

    def __init__(self, folder: Path | None, *, steps: int, progress: Progress, first: bool = True) -> None:
        self._path = None if folder is None or not first else folder / "log.jsonl"
        self._board = None if self._path is None else _tensorboard(self._path.parent / "tensorboard")
        self._steps = steps
        self._progress = progress if first else False
        self._last = 0.0
        self._open_line = False

    def cut_back(self, step: int) -> None:
        """Forget what came after `step`."""
        if self._path is None or not self._path.is_file():
            return
        kept = [record for record in read_log(self._path) if int(record["step"]) <= step]
        atomic_write(self._path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept).encode())

    def write(self, records: list[dict[str, object]]) -> None:
        if self._path is None:
            return
        safe = "the model and its checkpoints are as they were"
        with disk_errors(self._path, safe=safe), open(self._path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        if self._board is not None:
            for record in records:
                for name, value in record.items():
                    if isinstance(value, float):
                        self._board.add_scalar(name, value, record["step"])

    def tell(self, step: int, facts: Mapping[str, object], *, always: bool = False) -> None:
        """Progress: a function of (done, total), or a line that is written over."""
        if callable(self._progress):
            self._progress(step, self._steps)
            return
        now = time.monotonic()
        if not self._progress or (now - self._last < 0.5 and not always and step < self._steps):
            return
        self._last = now
        words = "  ".join(f"{name} {value}" for name, value in facts.items())
        live = sys.stderr.isatty()
        begin, end = ("\r", "    ") if live else ("", "\n")
        sys.stderr.write(f"{begin}step {step:,}/{self._steps:,}  {words}{end}")
        sys.stderr.flush()
        self._open_line = live

    def say(self, line: str) -> None:
        """A line of its own."""
        if self._progress is True:
            sys.stderr.write(("\n" if self._open_line else "") + line + "\n")
            self._open_line = False

    def close(self) -> None:
        if self._open_line:
            sys.stderr.write("\n")
            self._open_line = False
        if self._board is not None:
            self._board.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log; a last line that a kill cut short is left out."""
    records: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # noqa: PERF203
                break
    return records


def _tensorboard(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
