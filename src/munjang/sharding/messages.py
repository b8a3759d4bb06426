"""What the coordinator and the workers say to each other. The same for every engine; nothing here imports torch.

Task ->   one shard, with what an earlier run knew of it
<- Began, Advanced*, Rejects*, Block* (into an index), and one of Done, Skipped, Failed, Stopped
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from munjang.sharding.options import ModelSource, OutputFormat, Reading
from munjang.sharding.shards import Shard

if TYPE_CHECKING:
    import numpy as np


def own_version() -> str:
    """Of munjang here: all machines of a job need the same."""
    try:
        return importlib.metadata.version("munjang")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "unknown"


@dataclass(frozen=True)
class Prompting:
    """How `encode` is called, for vectors in files."""

    prompt: str | None
    prompt_name: str | None
    normalize: bool | None


@dataclass(frozen=True)
class Cutting:
    """How documents are cut into passages, for an index."""

    size: int
    stride: int
    prompt: str
    title: str | None


@dataclass(frozen=True)
class Plan:
    """What a worker must know once. All workers of a job have the same."""

    version: str  # of munjang
    model: ModelSource
    fingerprint: str
    reading: Reading
    threads: int
    format: OutputFormat
    prompting: Prompting
    cutting: Cutting | None  # where the rows go into an index; None: into files
    folder: str  # where outputs are written aside
    token: str  # what that folder holds, so that a worker knows that it sees the same one


@dataclass(frozen=True)
class Task:
    """One shard to do."""

    shard: Shard
    known: str | None  # the content that is done already
    precision: str | None  # what the shards before were computed in


@dataclass(frozen=True)
class Began:
    """The shard was looked through and is being encoded."""

    rows: int | None  # it seems to have


@dataclass(frozen=True)
class Advanced:
    """Rows done so far, bad ones too."""

    rows: int


@dataclass(frozen=True)
class Rejects:
    """Rows that were set aside: line and reason."""

    rows: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Block:
    """Documents on their way into an index, with the vectors of their passages."""

    documents: list[dict[str, Any]]
    lines: list[int]  # of the documents, in the shard
    passages: list[str]
    vectors: np.ndarray[Any, Any]  # float32 [len(passages), d]


@dataclass(frozen=True)
class Done:
    """The shard is encoded."""

    content: str
    rows: int
    rejected: int
    tokens: int
    truncated: int
    precision: str
    aside: str | None  # the whole output, fsynced; None where the rows went into an index
    size: int  # bytes of it
    made_ids: bool = False  # whether documents are called by shard and line
    last_line: int = 0


@dataclass(frozen=True)
class Skipped:
    """The shard is as it was when it was done."""

    content: str


@dataclass(frozen=True)
class Failed:
    """The shard cannot be done. again: it may be tried once more."""

    reason: str
    again: bool


@dataclass(frozen=True)
class Stopped:
    """Nothing more can be done at all: no such model, a full disk."""

    reason: str


@dataclass(frozen=True)
class Ready:
    """A worker has started."""

    where: str


@dataclass(frozen=True)
class Lost:
    """A worker is gone."""

    reason: str


Message: TypeAlias = Began | Advanced | Rejects | Block | Done | Skipped | Failed | Stopped
Event: TypeAlias = Message | Ready | Lost


class Team(Protocol):
    """Workers by number; an engine provides it."""

    size: int

    def start(self, number: int) -> None:
        """Start a worker, in the place of one that is gone; it says Ready, or Lost."""

    def give(self, number: int, task: Task) -> None:
        """Have a worker that is idle do a task."""

    def events(self, seconds: float) -> list[tuple[int, Event]]:
        """What happened, in each worker's order; waits at most so long."""

    def stop(self) -> None:
        """End all workers at once."""
