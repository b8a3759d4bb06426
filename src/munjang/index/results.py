"""What a search gives back: hits with the passage that was found, every stage's score and rank, and the timings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

Mode = Literal["semantic", "keyword", "hybrid"]
StageName = Literal["semantic", "keyword", "hybrid", "rerank"]


@dataclass(frozen=True)
class Document:
    """A document as it lies in the index."""

    id: str
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Passage:
    """A part of a document: text == document.text[start:end]."""

    text: str
    start: int  # characters
    end: int


@dataclass(frozen=True)
class Stage:
    """The score of a hit in one stage of a search."""

    name: StageName
    score: float  # semantic: the model's similarity; keyword: BM25; hybrid: see index/fusion.py; rerank: a probability
    rank: int  # from 1, among the hits of this stage
    normalized: float | None = None  # the score on one scale: 0 is no relation, 1 the most there can be; None: unknown


@dataclass(frozen=True)
class Hit:
    """A document that was found, by its best passage."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    passage: Passage
    score: float  # of the last stage
    stages: tuple[Stage, ...]  # in the order in which they ran
    moved: int = 0  # places up (+) or down (-) by the reranker


@dataclass(frozen=True)
class Results(Sequence[Hit]):
    """The hits of one query, best first; a sequence."""

    hits: tuple[Hit, ...]
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds: encode, search, keyword, fetch, rerank, total
    mode: Mode = "semantic"
    scored: int = 0  # hits that the reranker read; equal passages are read once
    answered: bool | None = None  # False: nothing reaches the 'answer' threshold of the model; None: it has none

    @overload
    def __getitem__(self, index: int) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @property
    def ids(self) -> list[str]:
        """The ids of the documents, best first."""
        return [hit.id for hit in self.hits]
