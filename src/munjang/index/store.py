"""The database of an index in use: many readers, one writer, each in its transaction.

Readers take a connection from a pool and see one committed state. A writer holds a lock of the kernel (`writer.lock`)
for the length of its call: a second process gets an error at once, a second thread of the same object waits. What a
killed process had not committed was never there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from munjang.errors import DataError, InputError, ModelError
from munjang.files import OutputLock
from munjang.index.codes import Codec
from munjang.index.schema import LOCK, connect, database_errors
from munjang.index.state import Layout, State, read_layout

_SPARE = 8  # connections that wait for their next use
_INHERITED: list[sqlite3.Connection] = []  # from before a fork: SQLite wants them neither used nor closed


class Store:
    """Connections to one index folder; may be used from several threads."""

    def __init__(self, folder: Path, codec: Codec, title: str | None = None, name: str | None = None) -> None:
        """title: the field that is searched with the text; name: of the index that was opened, to notice another."""
        self.folder = folder
        self._title = title
        self._name = name
        self._codec = codec
        self._spare: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._writer = threading.RLock()
        self._layout: Layout | None = None
        self._process = os.getpid()
        self._closed = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[State]:
        """The last committed state, the same for the length of the block."""
        connection = None
        with database_errors(self.folder, safe="nothing was changed"):
            connection = self._take()
            whole = False
            try:
                connection.execute("BEGIN")
                layout = read_layout(connection, self._layout)
                self._check_name(layout.name)
                with self._guard:
                    if self._layout is None or layout.generation > self._layout.generation:
                        self._layout = layout
                yield State(connection, layout, self._codec, self._title)
                whole = True
            finally:
                self._give_back(connection, whole=whole)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection for the one writer, without a transaction; what is open at the end is rolled back."""
        if self._closed:
            raise InputError(f"this Index of {self.folder} is closed: Index.open opens it again")
        with self._writer:
            lock = self.lock()
            try:
                with (
                    database_errors(self.folder, safe="nothing of this call was kept"),
                    contextlib.closing(connect(self.folder, write=True)) as connection,
                ):
                    self._check_name(str(connection.execute("SELECT value FROM meta WHERE key = 'name'").fetchone()[0]))
                    try:
                        yield connection
                    finally:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
            finally:
                lock.release()

    def _check_name(self, name: str) -> None:
        if self._name is not None and name != self._name:
            raise ModelError(
                f"{self.folder} was re-encoded with another model since it was opened: open it again (Index.open), or "
                "restart the service"
            )

    def close(self) -> None:
        with self._guard:
            self._closed = True
            connections, self._spare = self._spare, []
        if self._process != os.getpid():
            _INHERITED.extend(connections)
            return
        for connection in connections:
            connection.close()

    def lock(self) -> OutputLock:
        """The writer's lock, or an error at once."""
        try:
            return OutputLock(self.folder / LOCK, self.folder)
        except DataError as error:
            raise DataError(
                f"{self.folder} is being written by another process (or another Index object of this one), and an "
                "index has one writer at a time: wait for it, and call again"
            ) from error
        except OSError as error:
            raise DataError(
                f"{self.folder} cannot be written ({error.strerror or error}); nothing of this call was kept"
            ) from error

    def _take(self) -> sqlite3.Connection:
        with self._guard:
            if self._closed:
                raise InputError(f"this Index of {self.folder} is closed: Index.open opens it again")
            if self._process != os.getpid():  # after a fork: a connection must not be used by two processes
                _INHERITED.extend(self._spare)
                self._process, self._spare = os.getpid(), []
            if self._spare:
                return self._spare.pop()
        return connect(self.folder)

    def _give_back(self, connection: sqlite3.Connection, *, whole: bool) -> None:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        with self._guard:
            if whole and not self._closed and len(self._spare) < _SPARE:
                self._spare.append(connection)
                return
        connection.close()


def next_generation(connection: sqlite3.Connection) -> int:
    """The generation that the open transaction will have made."""
    (value,) = connection.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
    return int(value) + 1


def commit(connection: sqlite3.Connection, generation: int) -> None:
    """Commit what changed, under its generation; returns when it is on the disk."""
    connection.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (str(generation),))
    connection.execute("COMMIT")


def remove_passages(connection: sqlite3.Connection, row: int, generation: int) -> int:
    """Take a document's passages out, and record that they are gone; how many there were."""
    connection.execute("INSERT INTO removals SELECT number, ? FROM passages WHERE document = ?", (generation, row))
    connection.execute("DELETE FROM vectors WHERE number IN (SELECT number FROM passages WHERE document = ?)", (row,))
    return connection.execute("DELETE FROM passages WHERE document = ?", (row,)).rowcount
