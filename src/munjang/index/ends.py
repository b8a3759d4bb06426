"""One end of a copy: an index read or written in the order of its ids, with passages and vectors as they are.

    FolderEnd here; RemoteEnd in remote/moving.py

A note at the target says how far a copy came. It is written with, or just after, the documents that it speaks of, never
before them, so a copy that was broken off goes on from the note and at most writes a few documents again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from munjang.index.adding import write_passages
from munjang.index.codes import Codec
from munjang.index.derived import Derived
from munjang.index.remote.engine import StoredDocument
from munjang.index.store import Store, commit, next_generation, remove_passages

_NOTE = "copy"  # in the table meta


class End(Protocol):
    """What copying needs of an index."""

    def count(self) -> tuple[int, int]:
        """Documents and passages."""

    def page(self, after: str | None, limit: int) -> list[StoredDocument]:
        """The next documents after an id, ascending by the bytes of the ids."""

    def put(self, documents: Sequence[StoredDocument], note: str) -> None:
        """Write documents, and the note; durable when it returns."""

    def note(self) -> str | None:
        """The last note; None where no copy was begun."""

    def finish(self) -> None:
        """Build what makes searches fast."""


class FolderEnd:
    """An index in a folder."""

    def __init__(self, store: Store, derived: Derived, codec: Codec) -> None:
        self._store = store
        self._derived = derived
        self._codec = codec

    def count(self) -> tuple[int, int]:
        with self._store.reading() as state:
            return state.count(), len(state.numbers())

    def page(self, after: str | None, limit: int) -> list[StoredDocument]:
        found = []
        with self._store.reading() as state:
            query = "SELECT row, id, text, metadata FROM documents WHERE id > ? ORDER BY id LIMIT ?"
            for row, id, text, metadata in state.connection.execute(query, (after or "", limit)).fetchall():
                numbers = state.passages_of(row)
                spans = state.spans(numbers.tolist())
                places = tuple(spans[number][1:] for number in numbers.tolist())
                vectors = state.vectors(numbers) if len(numbers) else np.zeros((0, state.dimension), np.float32)
                found.append(StoredDocument(id, text, metadata, places, vectors))
        return found

    def put(self, documents: Sequence[StoredDocument], note: str) -> None:
        with self._store.writing() as connection:
            connection.execute("BEGIN IMMEDIATE")
            generation = next_generation(connection)
            for document in documents:
                self._write(connection, document, generation)
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_NOTE, note))
            commit(connection, generation)

    def _write(self, connection: sqlite3.Connection, document: StoredDocument, generation: int) -> None:
        found = connection.execute("SELECT row FROM documents WHERE id = ?", (document.id,)).fetchone()
        if found is not None:
            remove_passages(connection, found[0], generation)
            connection.execute("DELETE FROM documents WHERE row = ?", found)
        cursor = connection.execute(
            "INSERT INTO documents (id, generation, metadata, text) VALUES (?, ?, ?, ?)",
            (document.id, generation, document.metadata, document.text),
        )
        row = int(cursor.lastrowid or 0)
        vectors = np.zeros((0, self._codec.dimension), np.float32) if document.vectors is None else document.vectors
        write_passages(connection, [(row, *span) for span in document.spans], self._codec.encode(vectors))

    def note(self) -> str | None:
        with self._store.reading() as state:
            found = state.connection.execute("SELECT value FROM meta WHERE key = ?", (_NOTE,)).fetchone()
            return None if found is None else str(found[0])

    def finish(self) -> None:
        with self._store.writing() as connection:
            self._derived.save(connection, always=True)
