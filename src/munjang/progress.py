"""Progress bars with rate and ETA, over tqdm, on terminals and in notebooks; log lines or silence elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TextIO

_RATE_WINDOW = 30.0  # seconds

Progress = bool | Callable[[int, int | None], None]


@contextlib.contextmanager
def track(progress: Progress, total: int | None, *, unit: str = "texts") -> Iterator[Callable[[int], None]]:
    """Report progress as the caller of a public function asked for it.

    Args:
        progress: True for a bar on stderr (a widget in notebooks, nothing where stderr is no terminal), a function that
            is called with (done, total), or False.
        total: The number of items, where it is known.
        unit: What is counted, in the plural.

    Yields:
        `advance(n)`: n more items are done. Thread-safe.
    """
    if progress is False:
        yield lambda n: None
        return
    bar = ProgressBar(unit=unit)
    report = bar.update if progress is True else progress
    lock = threading.Lock()
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        with lock:
            done += n
            if n:
                report(done, total)

    try:
        yield advance
    finally:
        bar.close()


class ProgressBar:
    """A tqdm bar that is set to absolute positions.

    Args:
        unit: What is counted, in the plural.
        stream: Where to draw; stderr by default.
        keep: Leave the finished bar on the screen.
        log_interval: Seconds between plain lines where `stream` is neither a terminal nor a notebook; None: no lines.
    """

    def __init__(
        self,
        *,
        unit: str = "texts",
        stream: TextIO | None = None,
        keep: bool = True,
        log_interval: float | None = None,
    ) -> None:
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._keep = keep
        self._log_interval = log_interval
        self._logged = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque()  # times and positions of the last half minute
        self._bar: Any = None
        self._draws = self._stream.isatty() or _in_notebook()

    def update(self, done: int, total: int | None = None) -> None:
        """Move to `done` of `total` items."""
        if not self._draws:
            self._log(done, total)
            return
        if self._bar is None:
            self._bar = _make_bar(self._stream, total=total, unit=f" {self._unit}", leave=self._keep)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def clear(self) -> None:
        """Remove the bar from the screen, so that a line can be written; the next update draws it again."""
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        """Draw the last position and end the line. Idempotent."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None

    def _log(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        self._recent.append((now, done))
        # A rate over recent positions only: what an earlier run had done arrives as one large step.
        while len(self._recent) > 2 and now - self._recent[0][0] > _RATE_WINDOW:
            self._recent.popleft()
        if self._log_interval is None or now - self._logged < self._log_interval:
            return
        self._logged = now
        since, before = self._recent[0]
        rate = (done - before) / (now - since) if now > since else 0.0
        line = f"{done:,} of {total:,} {self._unit} ({done / total:.0%})" if total else f"{done:,} {self._unit}"
        if rate > 0:
            line += f", {rate:,.0f} {self._unit}/s"
            line += f", {duration((total - done) / rate)} left" if total and done < total else ""
        self._stream.write(line + "\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Format seconds for people: 4.2 s, 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


def _make_bar(stream: TextIO, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns where ipywidgets is not installed, and draws a text bar
        from tqdm.auto import tqdm

        return tqdm(file=stream, dynamic_ncols=True, disable=False, **options)
