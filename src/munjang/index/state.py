"""One committed state of an index, read in one transaction: what a search sees from beginning to end.

Layout   numbers and documents of all living passages, as arrays; kept in memory, carried from commit to commit
State    a Layout and the transaction it belongs to; implements `Passages`
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError
from munjang.index.codes import Codec
from munjang.index.documents import title_of, titled
from munjang.index.results import Document, Passage

Numbers = NDArray[np.int64]
_BLOCK_BYTES = 8 << 20  # of vectors
_BLOCK_TEXTS = 1024
_BLOCK_CHARACTERS = 4_000_000
_AT_ONCE = 500  # values in one IN (...); SQLite before 3.32 takes 999


@dataclass(frozen=True)
class Layout:
    """The living passages of one generation."""

    generation: int
    last: int  # the highest number ever given
    numbers: Numbers  # [n], ascending
    owners: Numbers  # [n], the row of each passage's document
    name: str = ""  # of the index; another one after it was re-encoded

    @functools.cached_property
    def rows(self) -> Numbers:
        """The rows of the documents that have passages, ascending: [documents]."""
        return np.unique(self.owners)

    @functools.cached_property
    def positions(self) -> Numbers:
        """For every passage, the place of its document in `rows`: [n]."""
        return np.searchsorted(self.rows, self.owners)

    def owners_of(self, numbers: Numbers) -> Numbers:
        """The document rows of living passages, in any order."""
        return self.owners[np.searchsorted(self.numbers, numbers)]


def read_layout(connection: sqlite3.Connection, known: Layout | None) -> Layout:
    """The layout of the transaction's state; from that of an earlier one only what changed is read."""
    keys = "('generation', 'forgotten', 'name')"
    meta = dict(connection.execute(f"SELECT key, value FROM meta WHERE key IN {keys}").fetchall())
    generation, name = int(meta["generation"]), meta["name"]
    if known is not None and known.generation == generation:
        return known
    last = last_number(connection)
    # Removals up to the generation 'forgotten' are no longer recorded.
    if known is None or not int(meta["forgotten"]) <= known.generation < generation:
        numbers, owners = _read_pairs(connection, after=0)
        return Layout(generation, last, numbers, owners, name)
    gone = _integers(
        connection.execute("SELECT number FROM removals WHERE generation > ?", (known.generation,)).fetchall()
    )
    kept = ~np.isin(known.numbers, gone, assume_unique=True) if gone.size else slice(None)
    numbers, owners = _read_pairs(connection, after=known.last)
    return Layout(
        generation,
        last,
        np.concatenate([known.numbers[kept], numbers]),
        np.concatenate([known.owners[kept], owners]),
        name,
    )


def last_number(connection: sqlite3.Connection) -> int:
    """The highest passage number ever given."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'passages'").fetchone()
    return int(found[0]) if found else 0


def _read_pairs(connection: sqlite3.Connection, after: int) -> tuple[Numbers, Numbers]:
    cursor = connection.execute("SELECT number, document FROM passages WHERE number > ? ORDER BY number", (after,))
    parts = [np.zeros((0, 2), np.int64)]
    while block := cursor.fetchmany(100_000):
        parts.append(np.array(block, dtype=np.int64))
    pairs = np.concatenate(parts)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _integers(rows: Sequence[tuple[int]]) -> Numbers:
    return np.array(rows, dtype=np.int64).reshape(-1)


class State:
    """A committed state; good for as long as its transaction is open, in one thread."""

    def __init__(self, connection: sqlite3.Connection, layout: Layout, codec: Codec, title: str | None = None) -> None:
        self.connection = connection
        self.layout = layout
        self.title = title  # the field that is searched with the text
        self._codec = codec

    # --- `Passages` --------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self.layout.generation

    @property
    def dimension(self) -> int:
        return self._codec.dimension

    def last_number(self) -> int:
        return self.layout.last

    def numbers(self) -> Numbers:
        return self.layout.numbers

    def vectors(self, numbers: Numbers) -> NDArray[np.float32]:
        asked = np.asarray(numbers, dtype=np.int64)
        different, places = np.unique(asked, return_inverse=True)
        found: list[tuple[int, bytes]] = []
        for query, values in _in_blocks("SELECT number, vector FROM vectors WHERE number IN ({})", different.tolist()):
            found += self.connection.execute(query, values).fetchall()
        if len(found) != len(different):
            missing = sorted(set(different.tolist()) - {number for number, _ in found})
            raise DataError(
                f"passages {missing[:5]} have no vector in the index: Index.verify says whether it is whole"
            )
        found.sort()
        return self._codec.decode([vector for _, vector in found])[places.reshape(-1)]

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[Numbers, NDArray[np.float32]]]:
        size = max(1, _BLOCK_BYTES // (4 * self.dimension))
        query = "SELECT number, vector FROM vectors WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
        # Block by block instead of one long cursor: what reads may stop at any time, and nothing stays open.
        while block := self.connection.execute(query, (after, upto, size)).fetchall():
            numbers, vectors = zip(*block, strict=True)
            after = numbers[-1]
            yield np.array(numbers, dtype=np.int64), self._codec.decode(vectors)

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[Numbers, list[str]]]:
        # The document's text is read once for all its passages in a block: they stand side by side.
        query = (
            "SELECT number, document, start, stop FROM passages WHERE number > ? AND number <= ? "
            "ORDER BY number LIMIT ?"
        )
        row, title, text = 0, "", ""
        while block := self.connection.execute(query, (after, upto, _BLOCK_TEXTS)).fetchall():
            numbers: list[int] = []
            texts: list[str] = []
            characters = 0
            for number, document, start, stop in block:
                if document != row:
                    row, (title, text) = document, self._text(document)
                numbers.append(number)
                texts.append(titled(title, text[start:stop]))
                characters += stop - start
                if characters > _BLOCK_CHARACTERS:
                    break
            after = numbers[-1]
            yield np.array(numbers, dtype=np.int64), texts

    def _text(self, row: int) -> tuple[str, str]:
        """The title and the text of a document."""
        found = self.connection.execute("SELECT metadata, text FROM documents WHERE row = ?", (row,)).fetchone()
        if found is None:
            raise DataError(f"a passage belongs to document {row}, which is not there: Index.verify tells more")
        return title_of(found[0], self.title), str(found[1])

    # --- documents ---------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def row_of(self, id: str) -> int | None:
        """The row of a document; None where there is none of that id."""
        found = self.connection.execute("SELECT row FROM documents WHERE id = ?", (id,)).fetchone()
        return None if found is None else int(found[0])

    def document(self, id: str) -> Document | None:
        found = self.connection.execute("SELECT id, text, metadata FROM documents WHERE id = ?", (id,)).fetchone()
        return None if found is None else Document(found[0], found[1], metadata_of(found[2]))

    def passages_of(self, row: int) -> Numbers:
        """The numbers of a document's passages, ascending."""
        query = "SELECT number FROM passages WHERE document = ? ORDER BY number"
        return _integers(self.connection.execute(query, (row,)).fetchall())

    def spans(self, numbers: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        """Number -> document row, start, end."""
        found: dict[int, tuple[int, int, int]] = {}
        query = "SELECT number, document, start, stop FROM passages WHERE number IN ({})"
        for block, values in _in_blocks(query, sorted(set(numbers))):
            found.update(
                (number, (row, start, stop)) for number, row, start, stop in self.connection.execute(block, values)
            )
        return found

    def passages(self, numbers: Sequence[int], *, whole: bool) -> dict[int, tuple[Document, Passage]]:
        """Number -> its document and itself. Without `whole` the document's text is left out: it may be long."""
        spans = self.spans(numbers)
        wanted: dict[int, list[int]] = {}
        for number, (row, _, _) in spans.items():
            wanted.setdefault(row, []).append(number)
        found: dict[int, tuple[Document, Passage]] = {}
        query = "SELECT row, id, text, metadata FROM documents WHERE row IN ({})"
        for block, values in _in_blocks(query, sorted(wanted)):
            for row, id, text, metadata in self.connection.execute(block, values):
                document = Document(id, text if whole else "", metadata_of(metadata))
                for number in wanted[row]:
                    _, start, stop = spans[number]
                    found[number] = (document, Passage(text[start:stop], start, stop))
        return found

    def texts(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Id -> text and metadata."""
        found: dict[str, tuple[str, str]] = {}
        for block, values in _in_blocks("SELECT id, text, metadata FROM documents WHERE id IN ({})", sorted(set(ids))):
            found.update((id, (text, metadata)) for id, text, metadata in self.connection.execute(block, values))
        return found

    def changed_metadata(self, since: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Row and metadata of every document that was written after a generation."""
        where = "" if since < 0 else "WHERE generation > ?"
        cursor = self.connection.execute(
            f"SELECT row, metadata FROM documents {where} ORDER BY row", () if since < 0 else (since,)
        )
        for row, metadata in cursor:
            yield row, metadata_of(metadata)


def metadata_of(text: str) -> dict[str, Any]:
    return {} if text == "{}" else dict(json.loads(text))


def _in_blocks(query: str, values: Sequence[int] | Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
    """`query` with as many places as there are values, at most _AT_ONCE at a time."""
    for first in range(0, len(values), _AT_ONCE):
        part = values[first : first + _AT_ONCE]
        yield query.format(", ".join("?" * len(part))), part
