"""How far a whole job is: shards, rows, rate, time left.

Nobody knows how many rows there are before all shards were read, so the share that is done is measured in bytes.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from munjang.progress import duration
from munjang.sharding.shards import Shard

_LATELY = 60.0  # seconds over which the speed is measured


@dataclass(frozen=True)
class JobProgress:
    """A moment of a job."""

    shards: int
    done: int  # shards encoded by this run
    skipped: int
    failed: int
    rows: int  # read by this run, bad ones too
    rejected: int
    share: float  # of the bytes, 0..1
    rows_per_second: float
    seconds_left: float | None  # None where nothing can be said yet

    def line(self) -> str:
        """For people."""
        line = f"{self.share:4.0%}  {self.done + self.skipped:,} of {self.shards:,} shards, {self.rows:,} rows"
        if self.rows_per_second:
            line += f", {self.rows_per_second:,.0f} rows/s"
        if self.rejected:
            line += f", {self.rejected:,} set aside"
        if self.failed:
            line += f", {self.failed:,} shards failed"
        if self.seconds_left is not None and self.share < 1:
            line += f", {duration(self.seconds_left)} left"
        return line


JobTeller: TypeAlias = bool | Callable[[JobProgress], None]


class Tracker:
    """Counts what the workers tell."""

    def __init__(self, shards: list[Shard], progress: JobTeller) -> None:
        self._sizes = {shard.name: max(1, shard.size) for shard in shards}
        self._total = sum(self._sizes.values())
        self._tell: Callable[[JobProgress], None] | None = _Line() if progress is True else progress or None
        self._under_way: dict[str, tuple[int, int | None, int]] = {}  # rows done, rows there seem to be, rejected
        self._finished_bytes = self._skipped_bytes = 0
        self._rows = self._rejected = 0
        self._seen: deque[tuple[float, int, float]] = deque()  # when, rows, bytes
        self.done = self.skipped = self.failed = 0

    def began(self, name: str, rows: int | None) -> None:
        self._under_way[name] = (0, rows, 0)
        self._say()

    def advanced(self, name: str, rows: int) -> None:
        before, expected, rejected = self._under_way.get(name, (0, None, 0))
        self._under_way[name] = (max(before, rows), expected, rejected)
        self._say()

    def rejected(self, name: str, rows: int) -> None:
        done, expected, rejected = self._under_way.get(name, (0, None, 0))
        self._under_way[name] = (done, expected, rejected + rows)

    def stopped(self, name: str) -> None:
        """An attempt came to nothing."""
        self._under_way.pop(name, None)

    def ended(self, name: str, outcome: str, *, rows: int = 0, rejected: int = 0) -> None:
        """outcome: done, skipped or failed."""
        self._under_way.pop(name, None)
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "done":
            self._finished_bytes += self._sizes[name]
        else:
            self._skipped_bytes += self._sizes[name]
        self._rows += rows + rejected
        self._rejected += rejected
        self._say()

    def now(self) -> JobProgress:
        """This moment."""
        moving = self._finished_bytes + sum(map(self._share_of, self._under_way))
        rows = self._rows + sum(done for done, _, _ in self._under_way.values())
        when = time.monotonic()
        self._seen.append((when, rows, moving))
        while len(self._seen) > 2 and when - self._seen[0][0] > _LATELY:
            self._seen.popleft()
        since, rows_before, bytes_before = self._seen[0]
        past = when - since
        rate = max(0.0, (rows - rows_before) / past) if past > 0 else 0.0
        speed = (moving - bytes_before) / past if past > 0 else 0.0
        rest = self._total - self._skipped_bytes - moving
        return JobProgress(
            shards=len(self._sizes),
            done=self.done,
            skipped=self.skipped,
            failed=self.failed,
            rows=rows,
            rejected=self._rejected + sum(bad for _, _, bad in self._under_way.values()),
            share=min(1.0, (self._skipped_bytes + moving) / self._total) if self._total else 1.0,
            rows_per_second=rate,
            seconds_left=rest / speed if speed > 0 else None,
        )

    def _share_of(self, name: str) -> float:
        """Bytes of a shard that is under way."""
        rows, expected, _ = self._under_way[name]
        return self._sizes[name] * min(1.0, rows / expected) if expected else 0.0

    def _say(self) -> None:
        if self._tell is not None:
            self._tell(self.now())

    def close(self) -> None:
        if isinstance(self._tell, _Line):
            self._tell.close()


class _Line:
    """One line on stderr, rewritten at most ten times a second."""

    def __init__(self) -> None:
        self._last = 0.0
        self._shown = False

    def __call__(self, progress: JobProgress) -> None:
        now = time.monotonic()
        if now - self._last < 0.1 and progress.share < 1:
            return
        self._last = now
        sys.stderr.write(f"\r{progress.line():<100}")
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
