"""Types that packages share: choices as Literals, and small frozen results. Imports neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
DTypeName = Literal["auto", "float32", "float16", "bfloat16"]
SavedName = Literal["float32", "float16", "bfloat16", "int8"]  # how weights are saved


@dataclass(frozen=True)
class Threshold:
    """A decision threshold measured for a model: at `value` or above, the answer is yes."""

    value: float
    task: str  # paraphrase, cluster, answer
    meaning: str  # of a score above it, in words
    measured: Mapping[str, object] = field(default_factory=dict)  # the data and the quality there, as JSON values


@dataclass(frozen=True)
class EncodeReport:
    """Statistics of an encoding."""

    texts: int
    tokens: int  # after truncation
    truncated: int  # texts that were longer than max_length
    longest: int  # tokens in the longest text, before truncation
    max_length: int
    seconds: float
    skipped: int = 0  # texts that an interrupted run had encoded before
    unusual: Mapping[str, int] = field(default_factory=dict)  # texts that look empty or missing, by reason

    def plus(self, part: EncodeReport) -> EncodeReport:
        """Add the counts of another part; the time stays."""
        return replace(
            self,
            texts=self.texts + part.texts,
            tokens=self.tokens + part.tokens,
            truncated=self.truncated + part.truncated,
            longest=max(self.longest, part.longest),
            unusual={
                reason: self.unusual.get(reason, 0) + part.unusual.get(reason, 0)
                for reason in (*self.unusual, *part.unusual)
            },
        )

    def __str__(self) -> str:
        rate = self.texts / self.seconds if self.seconds > 0 else float("inf")
        line = f"{self.texts:,} texts, {self.tokens:,} tokens in {self.seconds:.1f} s ({rate:,.0f} texts/s)"
        if self.skipped:
            line += f"; {self.skipped:,} were already done"
        if self.truncated:
            line += (
                f"; truncated: {self.truncated:,} of {self.texts:,} to {self.max_length} tokens"
                f" (longest {self.longest:,})"
            )
        return line
