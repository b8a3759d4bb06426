"""Documents into the database: checked, compared with what is there, cut, encoded and written, window by window.

One transaction holds the whole call, so that a broken document in the middle leaves nothing behind; `commit_every`
commits on the way, for streams without an end. Several calls can share a transaction (`Adder.run_each`), each in a
savepoint. Memory is that of one window, however many documents come. Whether an
id came twice is asked of a temporary table, not of a set in memory.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from munjang.errors import DataError, InputError, ModelError
from munjang.index.codes import Codec
from munjang.index.cutting import Cutter, Span
from munjang.index.documents import Incoming, title_of, windows
from munjang.index.schema import database_errors
from munjang.index.state import last_number
from munjang.index.store import commit, next_generation, remove_passages
from munjang.progress import Progress


@dataclass(frozen=True)
class AddReport:
    """What adding documents did."""

    added: int  # documents whose id was not there
    replaced: int  # documents whose id was there, with another text or other metadata
    unchanged: int  # documents that were there as they came
    passages: int  # that were encoded
    empty: int  # documents without any token: kept, never found
    truncated: int  # passages longer than the model reads, because nothing in them could be cut
    seconds: float

    @property
    def documents(self) -> int:
        """How many documents were handed in."""
        return self.added + self.replaced + self.unchanged

    def __str__(self) -> str:
        rate = self.documents / self.seconds if self.seconds > 0 else float("inf")
        parts = [f"{self.added:,} added", f"{self.replaced:,} replaced", f"{self.unchanged:,} unchanged"]
        line = f"{', '.join(parts)}; {self.passages:,} passages in {self.seconds:.1f} s ({rate:,.0f} documents/s)"
        if self.empty:
            line += f"; without any token: {self.empty:,}"
        if self.truncated:
            line += f"; truncated: {self.truncated:,} passages"
        return line


class Encode(Protocol):
    """Makes the vectors of passages, float32 [n, d], as `BiEncoder.encode_document` does."""

    def __call__(self, texts: list[str], *, progress: Progress) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Tools:
    """What adding needs beside the documents."""

    folder: Path
    encode: Encode
    cutter: Cutter
    codec: Codec
    title: str | None  # the field that is searched with the text


@dataclass(frozen=True)
class _Change:
    """What happens to one document."""

    document: Incoming
    row: int | None  # of the document that has this id already
    new_text: bool  # or another title: its passages are encoded again


class Telling:
    """Says how many documents of a window are done while their passages are encoded, which takes longest."""

    def __init__(self, done: Callable[[int], None], documents: int) -> None:
        self._done = done
        self._documents = documents
        self._told = 0

    def encoded(self, passages: int, total: int | None) -> None:
        self._tell(passages * (self._documents - 1) // max(1, total or passages))

    def finish(self) -> None:
        self._tell(self._documents)

    def _tell(self, documents: int) -> None:
        self._done(documents - self._told)
        self._told = documents


_COUNTED = ("added", "replaced", "unchanged", "passages", "empty", "truncated")
_SEEN = "CREATE TEMP TABLE seen (id TEXT PRIMARY KEY, position INTEGER) WITHOUT ROWID"


class Adder:
    """One call of `Index.add`, on a connection that holds the writer's lock."""

    def __init__(self, connection: sqlite3.Connection, tools: Tools) -> None:
        self._connection = connection
        self._tools = tools
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._generation = 0
        self._changed = False
        self._kept = 0  # documents that are committed

    def run(self, documents: Iterable[object], done: Callable[[int], None], commit_every: int | None) -> AddReport:
        """Add all; committed when it returns."""
        started = time.perf_counter()
        try:
            with database_errors(self._tools.folder, safe=self._safe):
                self._connection.execute(_SEEN)
                self._begin()
                for window in windows(documents, commit_every):
                    self._add(window, Telling(done, len(window)))
                    last = window[-1].position + 1
                    if commit_every is not None and last % commit_every == 0:
                        self._commit(last)
                        self._begin()
                self._commit(0)
        except (InputError, DataError, ModelError) as error:
            if self._kept and not isinstance(error.__cause__, sqlite3.Error):
                raise type(error)(f"{error} ({self._safe()})") from error
            raise
        return AddReport(**self._counts, seconds=time.perf_counter() - started)

    def run_each(self, requests: Iterable[Iterable[object]]) -> list[AddReport | InputError | ModelError]:
        """Add several requests in one commit: each whole, or not at all where it has an error."""
        with database_errors(self._tools.folder, safe=self._safe):
            self._connection.execute(_SEEN)
            self._begin()
            results = [self._request(documents) for documents in requests]
            self._commit(0)
        return results

    def _request(self, documents: Iterable[object]) -> AddReport | InputError | ModelError:
        started, changed = time.perf_counter(), self._changed
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._connection.execute("SAVEPOINT request")
        try:
            for window in windows(documents):
                self._add(window, Telling(lambda count: None, len(window)))
        except (InputError, ModelError) as error:
            self._connection.execute("ROLLBACK TO request")
            self._connection.execute("RELEASE request")
            self._changed = changed
            return error
        self._connection.execute("DELETE FROM seen")  # another request may replace these documents
        self._connection.execute("RELEASE request")
        return AddReport(**self._counts, seconds=time.perf_counter() - started)

    def _safe(self) -> str:
        if not self._kept:
            return "nothing of this call was kept"
        return f"the first {self._kept:,} documents of this call are in the index, none after them"

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._generation = next_generation(self._connection)
        self._changed = False

    def _commit(self, documents: int) -> None:
        if self._changed:
            commit(self._connection, self._generation)
        else:
            self._connection.execute("COMMIT")
        self._kept = documents

    def _add(self, window: Sequence[Incoming], telling: Telling) -> None:
        changes = [self._compare(self._once(document)) for document in window]
        fresh = [change for change in changes if change is not None and change.new_text]
        documents = [change.document for change in fresh]
        titles = [title_of(document.metadata, self._tools.title) for document in documents]
        spans, passages = self._tools.cutter.passages([document.text for document in documents], titles)
        vectors = np.zeros((0, 0), np.float32)
        if passages:
            vectors = self._tools.encode(passages, progress=telling.encoded)
        rows = [self._write(change) for change in changes if change is not None]
        of_fresh = [row for row, change in zip(rows, (c for c in changes if c), strict=True) if change.new_text]
        self._write_passages(of_fresh, spans, self._tools.codec.encode(vectors))
        self._counts["unchanged"] += sum(change is None for change in changes)
        self._counts["empty"] += sum(not some for some in spans)
        self._counts["truncated"] += sum(span.tokens > self._tools.cutter.limit for some in spans for span in some)
        telling.finish()

    def _once(self, document: Incoming) -> Incoming:
        """The document, unless its id came before in this call; a made id that is taken is made again."""
        while not document.named and self._found(document.id) is not None:
            document = Incoming(document.position, secrets.token_hex(8), document.text, document.metadata, False)
        try:
            self._connection.execute("INSERT INTO seen VALUES (?, ?)", (document.id, document.position))
        except sqlite3.IntegrityError:
            query = "SELECT position FROM seen WHERE id = ?"
            (first,) = self._connection.execute(query, (document.id,)).fetchone()
            raise InputError(
                f"the id {document.id!r} came twice, as document {first} and as document {document.position}: an id "
                "names one document; leave one out, or add them in two calls to replace the first by the second"
            ) from None
        return document

    def _found(self, id: str) -> tuple[int, str, str] | None:
        query = "SELECT row, text, metadata FROM documents WHERE id = ?"
        found: tuple[int, str, str] | None = self._connection.execute(query, (id,)).fetchone()
        return found

    def _compare(self, document: Incoming) -> _Change | None:
        """What to do with a document; None where it is there as it came."""
        found = self._found(document.id) if document.named else None
        if found is None:
            return _Change(document, None, True)
        row, text, metadata = found
        if text == document.text and metadata == document.metadata:
            return None
        titles = (title_of(one, self._tools.title) for one in (metadata, document.metadata))
        return _Change(document, row, text != document.text or len(set(titles)) > 1)

    def _write(self, change: _Change) -> int:
        """The document's own row; its passages follow."""
        document, generation = change.document, self._generation
        self._changed = True
        if change.row is None:
            self._counts["added"] += 1
            cursor = self._connection.execute(
                "INSERT INTO documents (id, generation, metadata, text) VALUES (?, ?, ?, ?)",
                (document.id, generation, document.metadata, document.text),
            )
            return int(cursor.lastrowid or 0)
        self._counts["replaced"] += 1
        if change.new_text:
            remove_passages(self._connection, change.row, generation)
            query = "UPDATE documents SET generation = ?, metadata = ?, text = ? WHERE row = ?"
            self._connection.execute(query, (generation, document.metadata, document.text, change.row))
        else:
            query = "UPDATE documents SET generation = ?, metadata = ? WHERE row = ?"
            self._connection.execute(query, (generation, document.metadata, change.row))
        return change.row

    def _write_passages(self, rows: Sequence[int], spans: Sequence[Sequence[Span]], vectors: Sequence[bytes]) -> None:
        pairs = [(row, span) for row, some in zip(rows, spans, strict=True) for span in some]
        write_passages(self._connection, [(row, span.start, span.end) for row, span in pairs], vectors)
        self._counts["passages"] += len(pairs)


def write_passages(
    connection: sqlite3.Connection, passages: Sequence[tuple[int, int, int]], vectors: Sequence[bytes]
) -> None:
    """New passages (document row, start, end) with their vectors, under the next numbers."""
    first = last_number(connection) + 1
    connection.executemany(
        "INSERT INTO passages VALUES (?, ?, ?, ?)",
        ((first + place, *passage) for place, passage in enumerate(passages)),
    )
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?)",
        ((first + place, vector) for place, vector in zip(range(len(passages)), vectors, strict=True)),
    )
