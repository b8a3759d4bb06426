"""What an index needs of a database server, and nothing of which server it is.

    RemoteIndex -> (retrying.py) -> Engine: postgres.py, milvus.py

An engine keeps whole documents with their passages and vectors, and finds passages. It does not know models: vectors
come ready. Everything else (cutting, encoding, comparing, fusing, reranking) happens in `RemoteIndex`, once for all
engines.

Every method may be called again after a failure and then does the same thing once: a document is written under its id,
its passages under keys made from the id, so a repeated `put` replaces itself. An engine raises `Unreachable` for what
may pass (a lost connection, a server that starts), and another error of Munjang for what will not. After `Unreachable`
the next call connects anew. A connection is made by the first call, not by the constructor. An engine may be used from
several threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError, InputError
from munjang.index.filters import Filter

Float32 = NDArray[np.float32]

FORMAT = 2  # of what stands in an engine; in the header under "format"; 2: titles are searched


class Unreachable(DataError):
    """The server did not answer, or the connection was lost: the same call may succeed a moment later."""


class NoIndex(InputError):
    """The server answers, but has no index of that name."""


@dataclass(frozen=True)
class Row:
    """One passage of a document, for engines that keep one flat table (see `StoredDocument.rows`)."""

    key: str  # the same for the same document and number, whenever it is written
    document: str  # the document's id
    number: int  # of the passage within the document, from 0
    count: int  # passages of the document; 0: the document has no word, and this row must never be found
    version: str  # of the document
    start: int
    end: int
    text: str  # the whole document's text in passage 0, empty in the others: spans cut the passages out of it
    metadata: Mapping[str, Any]
    vector: Float32  # [d]; zeros where count is 0


@dataclass(frozen=True, eq=False)
class StoredDocument:
    """A document with its passages, as it goes into an engine and comes out again."""

    id: str
    text: str
    metadata: str  # JSON, keys in the order given: what came is what goes out
    spans: tuple[tuple[int, int], ...]  # start and end of every passage, in characters; empty where there is no word
    vectors: Float32 | None  # [len(spans), d]; None where nobody asked for them

    @property
    def version(self) -> str:
        """Two hashes, of the text and of the metadata: 'TEXT.METADATA'."""
        return version_of(self.text, self.metadata)

    @property
    def fields(self) -> dict[str, Any]:
        """The metadata as a dict."""
        return {} if self.metadata == "{}" else dict(json.loads(self.metadata))

    def rows(self, dimension: int) -> Iterator[Row]:
        """Its passages, flat; a document without a word has one row whose count is 0."""
        fields, version = self.fields, self.version
        spans = self.spans or ((0, 0),)
        for number, (start, end) in enumerate(spans):
            vector = np.zeros(dimension, np.float32)
            if self.spans:
                assert self.vectors is not None
                vector = self.vectors[number]
            text = self.text if number == 0 else ""
            count = len(self.spans)
            yield Row(key_of(self.id, number), self.id, number, count, version, start, end, text, fields, vector)


@dataclass(frozen=True)
class Scored:
    """A passage that was found."""

    document: str  # the document's id
    number: int  # of the passage within the document, from 0
    score: float  # semantic: the model's similarity, as munjang.vectors gives it; keyword: BM25
    normalized: float | None = None  # keyword: the score, divided by what the query's terms could reach


class Engine(Protocol):
    """One index on one server."""

    @property
    def name(self) -> str:
        """What it speaks with: "postgresql", "milvus". A plain attribute of a class serves too, here and below."""

    @property
    def can_keyword(self) -> bool:
        """Whether it can search by words."""

    @property
    def keyword_reason(self) -> str:
        """Where it cannot: why, and what could ("Milvus 2.3.5 has no full text; 2.5 and later have")."""

    def create(self, header: Mapping[str, Any], dimension: int, similarity: str) -> None:
        """Make an empty index; InputError where there is one of that name already. Whole, or nothing."""

    def header(self) -> dict[str, Any]:
        """What `create` was given; `NoIndex` where there is no index of that name."""

    def notes(self) -> dict[str, str]:
        """Small facts that are kept beside the header: fields that were seen, how far a copy came."""

    def put_notes(self, notes: Mapping[str, str]) -> None:
        """Write notes, each in the place of the one with its name; durable when it returns."""

    def unfit(self, id: str, text: str, metadata: str) -> str | None:
        """Why the engine cannot keep such a document (an id too long, a character it does not have); None if it can.

        Asked of every document of a call before any is written, so it must not ask the server.
        """

    def put(self, documents: Sequence[StoredDocument]) -> None:
        """Write whole documents in the place of those with the same ids. Each is there whole or as it was before; all
        are durable, and seen by every later search, when it returns. No id comes twice in one call.
        """

    def delete(self, ids: Sequence[str]) -> None:
        """Take documents out; ids that are not there are passed over. Durable, and no longer found, when it returns."""

    def versions(self, ids: Sequence[str]) -> dict[str, str]:
        """Id -> version, of those that are there."""

    def get(self, ids: Sequence[str], *, vectors: bool = False) -> dict[str, StoredDocument]:
        """Id -> document, of those that are there."""

    def count(self) -> tuple[int, int]:
        """How many documents and how many passages there are, exactly."""

    def search(self, vectors: Float32, k: int, filter: Filter | None) -> list[list[Scored]]:
        """For every query vector [q, d] the k nearest passages whose documents meet the filter, best first.

        Fewer than k for a query means: there are no more (or the engine gives no more at once).
        """

    def keyword(self, queries: Sequence[str], k: int, filter: Filter | None) -> list[list[Scored]]:
        """The same by words. Only called where `can_keyword`."""

    def scan(self, after: str | None, limit: int, *, vectors: bool = True) -> list[StoredDocument]:
        """The next documents after an id, ascending by the UTF-8 bytes of the ids; fewer than `limit` at the end."""

    def choose(self, most: int) -> list[str]:
        """Ids of documents that have passages, evenly spread (such as by a hash of the id); all where not more."""

    def ready(self) -> None:
        """Called when an `add` or a copy is through: the time to build what makes searches fast."""

    def describe(self) -> dict[str, object]:
        """What is worth knowing about the server and its structures: versions, parameters, bytes."""

    def drop(self) -> None:
        """Take the whole index away; nothing happens where there is none."""

    def close(self) -> None:
        """Let go of the connections; may be called twice."""


def key_of(id: str, number: int) -> str:
    """The key of a passage: no longer than 43 characters, whatever the id."""
    return f"{hashlib.blake2b(id.encode(), digest_size=16).hexdigest()}:{number}"


def version_of(text: str, metadata: str) -> str:
    """The version of a document: 'TEXT.METADATA', 32 characters each."""
    parts = (hashlib.blake2b(part.encode(), digest_size=16).hexdigest() for part in (text, metadata))
    return ".".join(parts)
