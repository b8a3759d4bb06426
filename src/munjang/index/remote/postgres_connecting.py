"""Connections to PostgreSQL: an address enters, transactions leave, and every failure in our words.

A few idle connections are kept for the threads that come next. A broken one is thrown away with all the others, because
a server that went away took them too; the next call connects anew. What may pass (no answer, a server that starts or
stops, a deadlock) is `Unreachable`; what will not (a wrong password, no such database, a full disk) is another error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from munjang.errors import DataError, InputError, MissingExtraError, MunjangError
from munjang.index.remote.address import Address
from munjang.index.remote.engine import Unreachable

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]
    Cursor = psycopg.Cursor[tuple[Any, ...]]

TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding")
_IDLE = 8  # connections that wait for the next thread

_INHERITED: list[Any] = []  # connections from before a fork

# What a refused connection says -> what that means. There is no code yet where the server was not reached.
_REFUSED = {
    "password authentication failed": "the server refuses this user or password: check both (or PGUSER, PGPASSWORD)",
    "no password supplied": "the server wants a password: write it into the address, or set PGPASSWORD",
    "authentication failed": "the server refuses this user: check user, password and its pg_hba.conf",
    "no pg_hba.conf entry": "the server does not let this user in from here: see its pg_hba.conf, and sslmode",
    "translate host name": "there is no host of that name: check the address",
    "not known": "there is no host of that name: check the address",
    "does not support SSL": "the server has no TLS, but sslmode asks for it: change sslmode, or set the server up",
    "root certificate file": "the file of sslrootcert is not there: check the path",
    "certificate": "the server's certificate does not hold: check sslrootcert and the host name",
    "SSL error": "the TLS connection failed: check sslmode and the certificates",
    "invalid sslmode": "sslmode must be disable, allow, prefer, require, verify-ca or verify-full",
    "does not exist": "there is no such database or user: create it, or check the address",
}
# SQLSTATE -> what that means.
_MEANING = {
    "53100": "the server's disk is full",
    "53200": "the server has no memory left",
    "42501": "the user may not do this: grant it the right (a new index needs CREATE on the database)",
    "25006": "the server is read-only (a standby?): give the address of the primary",
    "42P01": "a table of the index is missing: it was dropped meanwhile, or is damaged",
    "3F000": "the index is not there any more: it was dropped meanwhile",
    "54000": "a limit of the server was reached",
}
_PASSING = ("08", "40", "57P", "55P03", "53300")  # connections, rollbacks, a server going down or up, locks, too many


class Connections:
    """The connections of one engine; for any number of threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        try:
            import pgvector.psycopg
            import psycopg
        except ImportError as error:
            raise MissingExtraError("psycopg and pgvector", "postgres", "an index in PostgreSQL") from error
        self._psycopg = psycopg
        self._register = pgvector.psycopg.register_vector

    @contextlib.contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Cursor]:
        """A transaction; committed, and so durable, when the block ends. Reading, it sees one state throughout."""
        with self.connection() as connection:
            level = self._psycopg.IsolationLevel
            connection.isolation_level = level.READ_COMMITTED if write else level.REPEATABLE_READ
            connection.read_only = not write
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for one thread, in autocommit; errors leave as ours."""
        connection = self._take()
        try:
            yield connection
        except self._psycopg.Error as error:
            raise self._explained(error, connection) from error
        finally:
            self._give(connection)

    def renew(self) -> None:
        """Let the next calls connect anew."""
        self._drop_idle()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._drop_idle()

    def _take(self) -> Connection:
        with self._lock:
            if self._closed:
                raise InputError(f"the index {self._address} was closed: open it again")
            if self._process != os.getpid():  # after a fork: two processes must not share a connection, nor end it
                _INHERITED.extend(self._idle)
                self._process, self._idle = os.getpid(), []
            if self._idle:
                return self._idle.pop()
        try:
            return self._connected()
        except self._psycopg.Error as error:
            raise self._refused(error) from error

    def _give(self, connection: Connection) -> None:
        sound = not connection.closed and not connection.broken
        if sound and connection.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            sound = False
        with self._lock:
            if sound and not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        with contextlib.suppress(self._psycopg.Error):
            connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(self._psycopg.Error):
                connection.close()

    def _connected(self) -> Connection:
        address = self._address
        milliseconds = max(1, int(address.timeout * 1000))
        asked: dict[str, Any] = {key: address.parameters[key] for key in TLS if key in address.parameters}
        connection = self._psycopg.connect(
            host=address.host,
            port=address.port,
            dbname=address.database,
            user=address.user,
            password=address.password,
            connect_timeout=max(2, int(address.timeout)),
            tcp_user_timeout=milliseconds,  # a network that swallows packets must not hold us longer
            keepalives_idle=max(1, int(address.timeout)),
            application_name="munjang",
            options=f"-c statement_timeout={milliseconds}",
            autocommit=True,
            **asked,
        )
        try:
            self.adapt(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def adapt(self, connection: Connection) -> None:
        """Have vectors travel as numpy arrays, where the extension is there already."""
        place = "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
        found = connection.execute(place + " WHERE e.extname = 'vector'").fetchone()
        if found is not None:
            name = str(found[0]).replace('"', '""')
            connection.execute(f'SET search_path TO "{name}", pg_catalog'.encode())
            self._register(connection)

    def _refused(self, error: psycopg.Error) -> MunjangError:
        said = " ".join(str(error).split())
        if self._address.password:
            said = said.replace(self._address.password, "***")
        if isinstance(error, self._psycopg.OperationalError):
            for key, meaning in _REFUSED.items():
                if key in said:
                    return InputError(f"{self._address}: {meaning} ({said})")
            return Unreachable(f"{self._address}: the server cannot be reached ({said})")
        return DataError(f"{self._address}: no connection could be made ({said})")

    def _explained(self, error: psycopg.Error, connection: Connection) -> MunjangError:
        code, said = error.sqlstate, " ".join(str(error).split())
        if code == "57014":
            return DataError(
                f"{self._address}: the server took longer than {self._address.timeout:g} s and was stopped; nothing of "
                "this step was written: give it more time with ?timeout=SECONDS"
            )
        lost = connection.closed or connection.broken
        if lost or (code is not None and code.startswith(_PASSING)):
            if lost:
                self._drop_idle()
            return Unreachable(f"{self._address}: the connection was lost ({said})")
        if code in _MEANING:
            return DataError(f"{self._address}: {_MEANING[code]} ({said}); nothing of this step was written")
        return DataError(f"{self._address}: PostgreSQL refused ({code}: {said}); nothing of this step was written")
