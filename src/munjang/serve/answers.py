"""What a batcher gives back: a request's values with where its time went, and counts of all that was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Where a request's time went, in seconds."""

    tokenise: float
    queue: float
    compute: float  # from the beginning of its first batch to the end of its last


@dataclass(frozen=True)
class Answer:
    """A request's values, in the order of its items."""

    values: Any  # float32 [n, width]; for kinds of values that differ in shape a list of arrays
    timing: Timing
    tokens: int  # of the whole request, special tokens included, after cutting
    truncated: int  # items that were longer than the model reads


@dataclass(frozen=True)
class Stats:
    """What a batcher has done since its start, and what waits now."""

    waiting_tokens: int = 0
    waiting_requests: int = 0
    requests: int = 0  # admitted
    refused: int = 0
    batches: int = 0
    items: int = 0  # computed
    tokens: int = 0  # computed
    joined: int = 0  # items whose computation was already under way
    dropped: int = 0  # items that nobody waited for any more
    truncated: int = 0
