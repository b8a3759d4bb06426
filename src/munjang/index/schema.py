"""The database of an index: its tables, its connections, and its failures in our words.

    documents.sqlite3   meta, documents, passages, vectors, removals: the only source of truth
    derived/            what is made from it: vectors in FAISS, keywords; may be deleted at any time
    writer.lock         held by the one process that writes

WAL with synchronous=FULL: a commit that returned survives a kill and a power cut, and readers keep the state that they
began with while a writer works. Vectors stand apart from the slim rows of `passages`, so that reading all numbers does
not read all vectors; a document's metadata stands before its text, so that filters do not read long texts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from munjang.errors import DataError, InputError

DATABASE = "documents.sqlite3"
DERIVED = "derived"
LOCK = "writer.lock"
FORMAT = 2  # 2: titles are searched; indexes of format 1 are read and written as they are
APPLICATION = 0x4D4A4958  # "MJIX", in the header of the file
WAIT_SECONDS = 10.0

# `generation` of a document: the commit that wrote it last; of a removal: the commit that removed the passage.
TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX documents_generation ON documents (generation);
CREATE TABLE passages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL REFERENCES documents (row),
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL
);
CREATE INDEX passages_document ON passages (document);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE removals (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE INDEX removals_generation ON removals (generation);
"""


def connect(folder: Path, *, write: bool = False) -> sqlite3.Connection:
    """A connection without transactions of its own making; one thread at a time may use it."""
    path = folder / DATABASE
    connection = sqlite3.connect(
        _address(path, write=write), uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA cache_size = -16000")
        if write:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        else:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _address(path: Path, *, write: bool) -> str:
    """The file as a URI. Readers open it for writing where they may: WAL keeps its shared memory in a file."""
    log = path.with_name(path.name + "-wal")
    if write or os.access(path.parent, os.W_OK):
        return path.absolute().as_uri() + "?mode=rw"
    # A folder that nobody can write to, such as a read-only mount: without a log there is nothing to share.
    unlogged = not log.exists() or log.stat().st_size == 0
    return path.absolute().as_uri() + ("?mode=ro&immutable=1" if unlogged else "?mode=ro")


def create_tables(folder: Path, meta: dict[str, str]) -> None:
    """Make the database in one transaction; a database that a killed creation left empty is filled."""
    path = folder / DATABASE
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 16384")  # ten vectors of 384 floats to a page
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    finally:
        connection.close()


def is_index(folder: Path) -> bool:
    """Whether a whole index lies there; a database without tables is what a killed creation leaves."""
    path = folder / DATABASE
    if not path.is_file():
        return False
    if path.stat().st_size == 0 and not path.with_name(path.name + "-wal").exists():
        return False
    with contextlib.closing(connect(folder)) as connection:
        return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0])


def check_folder(folder: Path) -> None:
    """Raise unless an index that this version reads lies in the folder."""
    if folder.is_file():
        raise InputError(f"an index is a folder, but {folder} is a file: give the folder")
    if not folder.is_dir():
        raise InputError(f"there is no index at {folder} (no such folder): Index.create makes one")
    if not (folder / DATABASE).is_file():
        raise InputError(
            f"{folder} is not an index (it has no {DATABASE}): Index.create makes one in an empty folder, Index.open "
            "takes the folder that it made"
        )
    with database_errors(folder, safe="nothing was changed"):
        if not is_index(folder):
            raise InputError(f"{folder} holds an index whose creation was interrupted: Index.create makes it anew")
        with contextlib.closing(connect(folder)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise InputError(f"{folder / DATABASE} is a database of another program, not of an index of Munjang")
    if version > FORMAT:
        raise DataError(
            f"{folder} has index format {version}, which a newer munjang wrote; this one reads up to {FORMAT}: "
            "pip install --upgrade munjang"
        )


def read_meta(folder: Path) -> dict[str, str]:
    """What is stored of the index itself: its model, options, name and generation."""
    with database_errors(folder, safe="nothing was changed"), contextlib.closing(connect(folder)) as connection:
        return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def make_folder(folder: Path) -> None:
    """A folder for a new index: empty, or with what an interrupted creation left."""
    if folder.is_file():
        raise InputError(f"an index is a folder, but {folder} is a file: choose another path")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strange = [entry.name for entry in folder.iterdir() if not entry.name.startswith((DATABASE, LOCK, DERIVED))]
    except OSError as error:
        raise DataError(f"{folder} cannot be made or read ({error.strerror or error}): choose another path") from error
    if strange:
        raise InputError(
            f"{folder} is not empty (it holds {', '.join(sorted(strange)[:5])}): an index needs a folder of its own"
        )


def take_away(folder: Path) -> None:
    """Remove an index that could not be filled; nobody has seen it."""
    for entry in folder.iterdir():
        if entry.name.startswith((DATABASE, LOCK, DERIVED)):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


# What SQLite says -> what that means. Texts, because Python before 3.11 does not tell the codes.
_MEANING = {
    "disk is full": "the disk is full (or the quota is used up)",
    "readonly": "it cannot be written (the folder or its files are read-only)",
    "locked": "it is being written by another process: wait for it, and call again",
    "busy": "it is being written by another process: wait for it, and call again",
    "not a database": "its database is damaged (it is no SQLite file): restore it from a copy or an export",
    "malformed": "its database is damaged: Index.verify says where; restore it from a copy or an export",
    "unable to open": "its database cannot be opened (is the folder readable, and is there room?)",
    "no such table": "its database is damaged (a table is missing): restore it from a copy or an export",
    "no such column": "its database is damaged (a column is missing): restore it from a copy or an export",
}


@contextlib.contextmanager
def database_errors(folder: Path, *, safe: str | Callable[[], str]) -> Iterator[None]:
    """Turn an error of SQLite into one line that says what happened, what is safe and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        meaning = next((said for key, said in _MEANING.items() if key in text), f"its database failed ({text})")
        raise DataError(f"{folder}: {meaning}; {safe if isinstance(safe, str) else safe()}") from error
