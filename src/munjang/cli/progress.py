"""What a command writes to stderr: lines, warnings and a progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from munjang.progress import ProgressBar

_LOG_INTERVAL = 15.0  # seconds between progress lines where stderr is no terminal
_REDRAW_INTERVAL = 0.1  # seconds between drawings of a status line on a terminal


class Reporter:
    """Writes to stderr; `quiet` leaves only warnings and errors."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._last = ""
        self._bar: ProgressBar | None = None
        self._status = 0  # characters of the status line on the screen
        self._shown = time.monotonic()

    def say(self, line: str) -> None:
        """Write an informational line."""
        if not self._quiet:
            self._write(line)

    def written(self, path: str) -> None:
        """Name the file or folder that a command wrote, unless its last line did."""
        if path not in self._last:
            self.say(f"written: {path}")

    def warn(self, line: str) -> None:
        """Write a warning or an error, also where `quiet`."""
        self._write(f"munjang: {line}")

    def progress(self, total: int | None, unit: str = "texts") -> Callable[[int, int | None], None]:
        """Return a function of (done, total) that draws a bar; `total` is used where the caller passes None."""
        self._close_bar()
        if self._quiet:
            return lambda done, of: None
        bar = self._bar = ProgressBar(unit=unit, stream=self._stream, keep=False, log_interval=_LOG_INTERVAL)
        return lambda done, of: bar.update(done, total if of is None else of)

    def show(self, line: str) -> None:
        """Draw a status line over the previous one; where stderr is no terminal, write it now and then."""
        now, live = time.monotonic(), self._stream.isatty()
        if self._quiet or now - self._shown < (_REDRAW_INTERVAL if live else _LOG_INTERVAL):
            return
        self._shown = now
        if not live:
            self._write(line)
            return
        self._stream.write("\r" + line.ljust(self._status))
        self._stream.flush()
        self._status = len(line)

    def close(self) -> None:
        """Remove what is drawn."""
        self._close_bar()
        if self._status:
            self._stream.write("\r" + " " * self._status + "\r")
            self._status = 0

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _write(self, line: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        if self._status:
            self._stream.write("\r" + " " * self._status + "\r")
            self._status = 0
        self._last = line
        self._stream.write(line + "\n")
        self._stream.flush()
