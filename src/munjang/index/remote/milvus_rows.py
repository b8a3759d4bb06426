"""A document -> the rows that keep it in Milvus, and back.

    NAME         one row for every passage; the first (the head) also has the document itself, as a text in JSON
    NAME__more   what is longer than a field of Milvus holds (65,535 bytes), in pieces; and the notes

A head has a key of the id alone, so that writing it replaces the document in one step: that is the moment from which
the new version holds. All other rows carry their version in their key. They are written before the head and taken away
after it, and nobody takes notice of rows whose version is not the head's: so a document is there whole, in its new or
its old version, wherever a writer or the server was killed. The key is the id in hexadecimal digits, which keep the
order of its bytes and need no quotes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.errors import DataError
from munjang.index.remote.engine import Float32, StoredDocument
from munjang.index.remote.milvus_filters import facets

MORE = "__more"
LONGEST_ID = 2_000  # bytes
LONGEST_KEY = 2 * LONGEST_ID + 40
LONGEST_TEXT = 65_535  # bytes of a VARCHAR, and of a JSON field but one
HEAD_FIELDS = ("version", "number", "count", "pieces")
FILLER = (1.0, 0.0)  # every collection needs a vector; NAME__more has no other use for one

_BATCH_ROWS = 2_000
_BATCH_BYTES = 8 << 20
_MAIN = "munjang index"

Fields = Mapping[str, Any]  # of one row


@dataclass(frozen=True)
class Head:
    """What a document's first row says of the others."""

    id: str
    version: str
    count: int  # passages
    pieces: int  # of the body beyond the first

    @classmethod
    def of(cls, row: Fields) -> Head:
        return cls(id_of_key(row["key"]), row["version"], int(row["count"]), int(row["pieces"]))

    def passage_keys(self) -> list[str]:
        """The keys of all passages but the first, which is the head."""
        return [part_key(self.id, self.version, number) for number in range(1, self.count)]

    def piece_keys(self) -> list[str]:
        return [part_key(self.id, self.version, number) for number in range(1, self.pieces + 1)]


@dataclass(frozen=True)
class Packed:
    """A document, made ready for Milvus."""

    head: Head
    first: dict[str, Any]  # the head's row
    passages: list[dict[str, Any]]  # the other rows
    pieces: list[dict[str, Any]]  # rows of NAME__more


def head_key(id: str) -> str:
    return id.encode().hex()


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def part_key(id: str, version: str, number: int) -> str:
    """'!' sorts before every digit: the parts of a document stand right behind it."""
    return f"{head_key(id)}!{short_hash(version)}!{number:06d}"


def id_of_key(key: str) -> str:
    return bytes.fromhex(key.partition("!")[0]).decode()


def spread_of(id: str) -> int:
    """A number of 31 bits that has nothing to do with the order of ids."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "big") >> 1


def pack(document: StoredDocument, dimension: int) -> Packed:
    """The rows of a document. One without a word has a head whose vector no search looks at."""
    version, count = document.version, len(document.spans)
    body, *more = split(json.dumps([document.text, document.metadata, document.spans], ensure_ascii=False))
    head = Head(document.id, version, count, len(more))
    common = {
        "document": document.id,
        "version": version,
        "count": count,
        "spread": spread_of(document.id),
        "facets": facets(document.fields),
    }
    vectors = document.vectors if count else _no_vector(document.id, dimension)
    assert vectors is not None
    first = {"key": head_key(document.id), **common, "number": 0, "pieces": len(more), "body": body}
    others = [
        {"key": key, **common, "number": number, "pieces": 0, "body": "", "vector": vectors[number]}
        for number, key in enumerate(head.passage_keys(), start=1)
    ]
    pieces = [more_row(key, text) for key, text in zip(head.piece_keys(), more, strict=True)]
    return Packed(head, {**first, "vector": vectors[0]}, others, pieces)


def unpack(head: Head, body: str, vectors: Float32 | None) -> StoredDocument:
    """The document of a head and of its whole body."""
    try:
        text, metadata, spans = json.loads(body)
        return StoredDocument(head.id, text, metadata, tuple((start, end) for start, end in spans), vectors)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"document {head.id!r} is damaged on the server ({error}): add it again, or restore the collection"
        ) from error


def more_row(key: str, text: str) -> dict[str, Any]:
    """A row of NAME__more."""
    return {"key": key, "text": text, "vector": np.array(FILLER, np.float32)}


def split(text: str, *, room: int = LONGEST_TEXT) -> list[str]:
    """A text in pieces of so many bytes; at least one, which may be empty."""
    data = text.encode()
    pieces, start = [], 0
    while len(data) - start > room:
        end = start + room
        while data[end] & 0xC0 == 0x80:  # within a character
            end -= 1
        pieces.append(data[start:end].decode())
        start = end
    return [*pieces, data[start:].decode()]


def unfit(id: str, metadata: str) -> str | None:
    """Why Milvus cannot keep a document; None if it can."""
    if len(id.encode()) > LONGEST_ID:
        return f"Milvus keeps ids of at most {LONGEST_ID:,} bytes here, this one has {len(id.encode()):,}"
    if metadata == "{}":
        return None
    size = len(json.dumps(facets(json.loads(metadata))))
    if size > LONGEST_TEXT:
        return (
            f"its metadata takes {size:,} bytes as filters read it, and Milvus keeps {LONGEST_TEXT:,} in a field: "
            "leave long lists out, or put them into the text"
        )
    return None


def batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows for one request, bounded by count and size."""
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        own = row["vector"].nbytes + 4 * len(row.get("body", "") or row.get("text", "")) + 500
        if batch and (len(batch) >= _BATCH_ROWS or size + own > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield batch


def slices(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """A long list of keys, part by part."""
    for first in range(0, len(words), size):
        yield words[first : first + size]


def describing(facts: Mapping[str, Any]) -> str:
    """What stands in the description of NAME: whose collection it is, and the header."""
    return json.dumps({_MAIN: facts}, ensure_ascii=False)


def described(description: str) -> dict[str, Any] | None:
    """The facts in a description; None where the collection is not ours."""
    try:
        found = json.loads(description)
    except ValueError:
        return None
    facts = found.get(_MAIN) if isinstance(found, dict) else None
    return facts if isinstance(facts, dict) else None


def _no_vector(id: str, dimension: int) -> Float32:
    """Any direction, another for every id: many equal vectors would spoil the graph. [1, d]"""
    vector = np.random.default_rng(spread_of(id)).standard_normal((1, dimension))
    return np.asarray(vector / np.linalg.norm(vector), np.float32)
