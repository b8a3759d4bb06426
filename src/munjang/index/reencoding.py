"""Move an index to another model: encode the stored texts again, beside the old vectors, then swap in one commit.

The new passages grow in tables of their own (next_documents, next_passages, next_vectors), committed window by window.
Until the swap the index is searched with its old model, and a run that was killed is resumed: what is encoded already
and has not changed since stays. The swap gives the index a new name, by which other processes notice it.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator

from munjang.index.adding import Encode
from munjang.index.codes import Codec
from munjang.index.cutting import Cutter
from munjang.index.documents import title_of
from munjang.index.identity import Identity
from munjang.index.options import IndexOptions
from munjang.index.schema import FORMAT
from munjang.index.state import last_number
from munjang.index.store import commit, next_generation

_KEY = "reencode"  # in the table meta: what an unfinished run encodes with
_DOCUMENTS, _CHARACTERS = 256, 1_000_000  # in one commit, at most
_PARTS = ("documents", "passages", "vectors")
_TABLES = (
    "CREATE TABLE next_documents (row INTEGER PRIMARY KEY, generation INTEGER NOT NULL)",
    """CREATE TABLE next_passages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        document INTEGER NOT NULL REFERENCES documents (row),
        start INTEGER NOT NULL,
        stop INTEGER NOT NULL
    )""",
    "CREATE INDEX next_passages_document ON next_passages (document)",
    "CREATE TABLE next_vectors (number INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
)
# Documents that were changed or deleted since an interrupted run encoded them.
_STALE = (
    "SELECT n.row FROM next_documents n LEFT JOIN documents d ON d.row = n.row "
    "WHERE d.row IS NULL OR d.generation != n.generation"
)
_OPEN = (
    "SELECT d.row, d.generation, d.metadata, d.text FROM documents d LEFT JOIN next_documents n ON n.row = d.row "
    "WHERE n.row IS NULL AND d.row > ? ORDER BY d.row"
)
_Row = tuple[int, int, str, str]  # row, generation, metadata, text


def reencode(
    connection: sqlite3.Connection,
    identity: Identity,
    options: IndexOptions,
    *,
    encode: Encode,
    cutter: Cutter,
    codec: Codec,
    done: Callable[[int], None],
) -> None:
    """Encode every document and swap, on a connection that holds the writer's lock.

    Args:
        connection: To the database.
        identity: Of the new model.
        options: Of the index from then on; complete.
        encode: Makes the vectors of passages.
        cutter: Cuts texts for the new model.
        codec: Of the new vectors.
        done: Told how many further documents are encoded.
    """
    target = json.dumps([identity.as_json(), options.as_json()], sort_keys=True)
    _prepare(connection, target)
    done(int(connection.execute("SELECT count(*) FROM next_documents").fetchone()[0]))
    for window in _windows(connection):
        titles = [title_of(metadata, options.title) for _, _, metadata, _ in window]
        spans, passages = cutter.passages([text for *_, text in window], titles)
        places = [(row[0], span.start, span.end) for row, some in zip(window, spans, strict=True) for span in some]
        vectors = codec.encode(encode(passages, progress=False)) if passages else []
        connection.execute("BEGIN IMMEDIATE")
        for place, vector in zip(places, vectors, strict=True):
            number = connection.execute(
                "INSERT INTO next_passages (document, start, stop) VALUES (?, ?, ?)", place
            ).lastrowid
            connection.execute("INSERT INTO next_vectors VALUES (?, ?)", (number, vector))
        connection.executemany("INSERT INTO next_documents VALUES (?, ?)", [row[:2] for row in window])
        connection.execute("COMMIT")
        done(len(window))
    _swap(connection, identity, options)


def _prepare(connection: sqlite3.Connection, target: str) -> None:
    """Tables for the new passages: those of an interrupted run with the same target, or empty ones."""
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    if found is not None and found[0] == target:
        stale = connection.execute(_STALE).fetchall()
        for query in (
            "DELETE FROM next_vectors WHERE number IN (SELECT number FROM next_passages WHERE document = ?)",
            "DELETE FROM next_passages WHERE document = ?",
            "DELETE FROM next_documents WHERE row = ?",
        ):
            connection.executemany(query, stale)
    else:
        for part in _PARTS:
            connection.execute(f"DROP TABLE IF EXISTS next_{part}")
        for statement in _TABLES:
            connection.execute(statement)
        # Numbers go on where the old ones end: one that was given once is never given again.
        connection.execute("INSERT INTO sqlite_sequence VALUES ('next_passages', ?)", (last_number(connection),))
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, target))
    connection.execute("COMMIT")


def _windows(connection: sqlite3.Connection) -> Iterator[list[_Row]]:
    """The documents that are not encoded yet, a few at a time."""
    last = -1
    while True:
        window: list[_Row] = []
        size = 0
        for row in connection.execute(_OPEN + f" LIMIT {_DOCUMENTS}", (last,)):
            window.append(row)
            size += len(row[3])
            if size > _CHARACTERS:
                break
        if not window:
            return
        last = window[-1][0]
        yield window


def _swap(connection: sqlite3.Connection, identity: Identity, options: IndexOptions) -> None:
    connection.execute("BEGIN IMMEDIATE")
    generation = next_generation(connection)
    connection.execute("DELETE FROM removals")
    for part in ("passages", "vectors"):
        connection.execute(f"DROP TABLE {part}")
        connection.execute(f"ALTER TABLE next_{part} RENAME TO {part}")
    connection.execute("DROP INDEX next_passages_document")
    connection.execute("CREATE INDEX passages_document ON passages (document)")
    connection.execute("DROP TABLE next_documents")
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
    meta = {
        "name": secrets.token_hex(16),
        "model": json.dumps(identity.as_json(), ensure_ascii=False),
        "options": json.dumps(options.as_json()),
        "forgotten": str(generation),
    }
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    commit(connection, generation)
