"""What a person sees on stderr while a command works: lines, and how far it is.

On a terminal one line is drawn again and again; elsewhere (a log file) a line comes now and then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

_REDRAW = 0.1  # seconds between drawings on a terminal
_LOG = 15.0  # seconds between lines elsewhere
_LATELY = 30.0  # seconds over which the speed is measured: what an earlier run had done soon stops counting
_WIDTH = 24  # characters of the bar


class Reporter:
    """Writes to stderr; `quiet` leaves only warnings and errors."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._quiet = quiet
        self._clock = clock
        self._terminal = stream.isatty()
        self._drawn = 0  # characters of the line that stands there now
        self._last = ""  # line that was written
        self._shown = clock()  # when `show` last wrote

    def say(self, line: str) -> None:
        """Write a line that is good to know."""
        if not self._quiet:
            self._write(line)

    def written(self, path: str) -> None:
        """Name the file or folder that a command wrote, unless its last line did."""
        if path not in self._last:
            self.say(f"written: {path}")

    def warn(self, line: str) -> None:
        """Write a line that must be known."""
        self._write(f"munjang: {line}")

    def progress(self, total: int | None) -> Callable[[int, int | None], None]:
        """A function to call with the number of texts done so far; `total` is used where the caller has none."""
        seen: deque[tuple[float, int]] = deque()  # when how many were done, lately
        last = self._clock()

        def update(done: int, of: int | None) -> None:
            nonlocal last
            now = self._clock()
            seen.append((now, done))
            while len(seen) > 2 and now - seen[0][0] > _LATELY:
                seen.popleft()
            if self._quiet or now - last < (_REDRAW if self._terminal else _LOG):
                return
            last = now
            since, before = seen[0]
            rate = (done - before) / (now - since) if now > since else 0.0
            line = progress_line(done, of if of is not None else total, rate=rate)
            if self._terminal:
                self._draw(line)
            else:
                self._write(line)

        return update

    def show(self, line: str) -> None:
        """Draw a line of progress over the last one; elsewhere than on a terminal, write it now and then."""
        now = self._clock()
        if self._quiet or now - self._shown < (_REDRAW if self._terminal else _LOG):
            return
        self._shown = now
        if self._terminal:
            self._draw(line)
        else:
            self._write(line)

    def _draw(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(line)

    def _write(self, line: str) -> None:
        if self._drawn:
            self._draw("")
            self._stream.write("\r")
        self._drawn = 0
        self._last = line
        self._stream.write(line + "\n")
        self._stream.flush()


def progress_line(done: int, total: int | None, *, rate: float) -> str:
    """One line: a bar where the total is known, texts done, texts per second, time to go."""
    speed = f", {rate:,.0f} texts/s" if rate > 0 else ""
    if not total:
        return f"{done:,} texts{speed}"
    share = min(1.0, done / total)
    full = round(share * _WIDTH)
    left = f", {duration((total - done) / rate)} to go" if rate > 0 and done < total else ""
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%}  {done:,} of {total:,} texts{speed}{left}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 42 s, 3 min 05 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
