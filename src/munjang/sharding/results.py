"""What a job of many shards did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FailedShard:
    """A shard that could not be done, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ShardResult:
    """What a job did; `ok` tells whether every shard is done."""

    shards: int
    encoded: int  # shards that this run did
    skipped: int  # shards that an earlier run had done
    failed: tuple[FailedShard, ...]
    gone: tuple[str, ...]  # done earlier, but no longer among the inputs: what came of them is still there
    rows: int  # that this run encoded
    rejected: int  # rows that this run set aside
    tokens: int
    truncated: int
    seconds: float
    rejects: Path | None  # the file of all rows that were set aside, of earlier runs too; None where there are none

    @property
    def ok(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds > 0 else float("inf")
        line = (
            f"{self.encoded:,} of {self.shards:,} shards, {self.rows:,} rows, {self.tokens:,} tokens in "
            f"{self.seconds:.1f} s ({rate:,.0f} rows/s)"
        )
        if self.skipped:
            line += f"; {self.skipped:,} shards were already done"
        if self.truncated:
            line += f"; truncated: {self.truncated:,} rows"
        if self.rejected:
            line += f"; set aside: {self.rejected:,} rows"
        if self.failed:
            line += f"; failed: {len(self.failed):,} shards"
        return line
