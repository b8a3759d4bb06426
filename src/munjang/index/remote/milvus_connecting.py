"""The connection to Milvus: an address enters, answers leave, and every failure in our words.

One client serves all threads of a process. What may pass (no answer, a server that starts, loads or is busy) is
`Unreachable`, and the next call connects anew; what will not (a wrong password, an unknown host, a full disk) is
another error. A server that is up but still takes its collections back after a restart is waited for, up to the
time-out of the address, because that takes longer than a lost connection does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from munjang.errors import DataError, InputError, MissingExtraError, MunjangError
from munjang.index.remote.address import Address
from munjang.index.remote.engine import NoIndex, Unreachable

Result = TypeVar("Result")
Call = Callable[[Any], Result]  # of a pymilvus.MilvusClient

TLS = ("secure", "ca_pem", "client_pem", "client_key", "server_name")
LEAST_VERSION = (2, 3)  # upsert, JSON fields, json_contains_any

_CONNECT_FAILED, _RATE_LIMIT, _FORCE_DENY, _NOT_FOUND, _NO_DATABASE = 2, 8, 9, 100, 800
_POLL = 0.3  # seconds between two looks at a server that recovers

# What a server says while it starts or moves its data about: the same call succeeds a moment later.
_RECOVERING = (
    "not loaded",
    "not fully loaded",
    "not serving",
    "not available",
    "not healthy",
    "not ready",
    "not match",
    "no available",
    "no shard leader",
    "node offline",
    "node not found",
    "channel not found",
    "channel lack",
    "segment not",
    "server id mismatch",
    "timestamp lag too large",
    "failed to get shard",
    "unavailable",
)
_LOST = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN")  # codes of gRPC
_FULL = ("no space left", "disk quota", "disk full", "memory quota", "force deny", "quota exceeded", "quota exhausted")


class Connection:
    """The client of one engine; made by the first call, and anew after it was lost."""

    def __init__(self, address: Address) -> None:
        if importlib.util.find_spec("pymilvus") is None:
            raise MissingExtraError("pymilvus", "milvus", "an index in Milvus")
        self._address = address
        self._arguments = _arguments(address)
        self._lock = threading.Lock()
        self._made: Any = None
        self._process = os.getpid()
        self._closed = False
        self.version = ""  # of the server, once there was a call

    def call(self, function: Call[Result]) -> Result:
        """What the function makes of the client; failures leave as ours."""
        deadline = time.monotonic() + self._address.timeout
        while True:
            client = self._client()
            try:
                return function(client)
            except MunjangError:
                raise
            except Exception as error:
                if not _is_driver_error(error):
                    raise
                if _is_recovering(error) and time.monotonic() < deadline:
                    time.sleep(_POLL)
                    continue
                raise self._explained(error, client) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._drop(self._made)

    def _client(self) -> Any:
        with self._lock:
            if self._closed:
                raise InputError(f"the index {self._address} was closed: open it again")
            if self._process != os.getpid():  # after a fork: the parent's connection is its own
                self._process, self._made = os.getpid(), None
            if self._made is None:
                self._made = self._connected()
            return self._made

    def _connected(self) -> Any:
        # What goes wrong is said by our errors; pymilvus would print every failure with its stack beside them.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        import pymilvus

        with self._refusals():
            client = pymilvus.MilvusClient(**self._arguments)
            self.version = str(client.get_server_version()).removeprefix("v")
            if self._address.database:
                client.list_collections(timeout=self._address.timeout)  # the first call that misses a database
        found = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        if found < LEAST_VERSION:
            client.close()
            raise InputError(
                f"{self._address}: the server is Milvus {self.version}, at least 2.3 is needed: update the server"
            )
        return client

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """A connection that was not made, told apart: host, port, TLS, user, database."""
        try:
            yield
        except Exception as error:
            if not _is_driver_error(error):
                raise
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> MunjangError:
        address, said = self._address, _said(error)
        if getattr(error, "code", None) == _NO_DATABASE or "database not found" in said:
            return InputError(f"{address}: there is no database {address.database!r}: create it, or check the address")
        if "unauthenticated" in said or "auth check failure" in said:
            return InputError(
                f"{address}: the server refuses this user or password: check both (or MILVUS_USER, MILVUS_PASSWORD, "
                "MILVUS_TOKEN)"
            )
        try:
            socket.create_connection((address.host, address.port), timeout=address.timeout).close()
        except socket.gaierror:
            return InputError(f"{address}: there is no host of the name {address.host!r}: check the address")
        except OSError as reason:
            return Unreachable(f"{address}: no answer ({reason.strerror or reason})")
        if "certificate" in said or "ssl" in said:
            return InputError(f"{address}: the TLS connection failed: check secure, ca_pem and server_name")
        return Unreachable(
            f"{address}: something listens there, but does not speak as Milvus does (it may be starting; or is TLS "
            "wanted and missing, or the other way round? secure=true or false; or is it another program's port?)"
        )

    def _explained(self, error: Exception, client: Any) -> MunjangError:
        address, said, code = self._address, _said(error), getattr(error, "code", None)
        if any(word in said for word in _FULL) or code == _FORCE_DENY:
            return DataError(f"{address}: the server takes no more ({_short(error)}): its disk or memory is full")
        if "unauthenticated" in said or "auth check failure" in said:
            self._drop(client)
            return InputError(f"{address}: the server refuses this user or password: check both")
        if "permission" in said or "privilege" in said:
            return InputError(f"{address}: the user may not do this: grant it the right ({_short(error)})")
        if code == _NOT_FOUND or "collection not found" in said:
            return NoIndex(f"there is no index at {address}, or not any more: Index.create makes one")
        lost = code == _CONNECT_FAILED or _is_lost(error)
        if lost:
            self._drop(client)
        if lost or code == _RATE_LIMIT or _is_recovering(error):
            return Unreachable(f"{address}: no answer ({_short(error)})")
        return DataError(f"{address}: Milvus {self.version} failed ({_short(error)})")

    def _drop(self, client: Any) -> None:
        """Have the next call connect anew, unless another thread has seen to it."""
        with self._lock:
            if client is None or self._made is not client:
                return
            self._made = None
        with contextlib.suppress(Exception):  # it is lost anyway
            client.close()


def _arguments(address: Address) -> dict[str, Any]:
    """What pymilvus connects by; files of certificates are looked for first."""
    files = {
        key: address.parameters[key] for key in ("ca_pem", "client_pem", "client_key") if key in address.parameters
    }
    for key, path in files.items():
        if not Path(path).is_file():
            raise InputError(f"{address}: the file of {key} is not there: {path}")
    secure = address.truth("secure", default=bool(files))
    if files and not secure:
        raise InputError(f"{address}: {', '.join(files)} need secure=true")
    if ("client_pem" in files) != ("client_key" in files) or ("client_pem" in files and "ca_pem" not in files):
        raise InputError(
            f"{address}: client_pem, client_key and ca_pem belong together: give all three, or ca_pem alone"
        )
    host = f"[{address.host}]" if ":" in address.host else address.host
    arguments: dict[str, Any] = {
        "uri": f"{'https' if secure else 'http'}://{host}:{address.port}",
        "db_name": address.database,
        "timeout": address.timeout,
        "dedicated": True,
    }
    if secure:
        arguments["secure"] = True
    if address.token is not None:
        arguments["token"] = address.token
    elif address.user is not None or address.password is not None:
        arguments["token"] = f"{address.user or ''}:{address.password or ''}"
    if "client_pem" in files:
        arguments |= {f"{key}_path": path for key, path in files.items()}
    elif "ca_pem" in files:
        arguments["server_pem_path"] = files["ca_pem"]  # pymilvus' word for it where the client shows no certificate
    if "server_name" in address.parameters:
        arguments["server_name"] = address.parameters["server_name"]
    return arguments


def _is_driver_error(error: Exception) -> bool:
    return type(error).__module__.startswith(("pymilvus", "grpc"))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from; pymilvus raises errors from themselves, so a circle ends here."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _said(error: Exception) -> str:
    """Everything that an error and its causes say, in small letters; codes of gRPC included."""
    return " ".join(f"{getattr(one, 'message', '')} {one}" for one in _causes(error)).lower()


def _is_lost(error: Exception) -> bool:
    for one in _causes(error):
        code = getattr(one, "code", None)  # gRPC's errors have a method, Milvus' a number
        if getattr(code() if callable(code) else None, "name", "") in _LOST:
            return True
    said = _said(error)
    return any(
        word in said for word in ("retry run out", "retry timeout", "closed channel", "should create connection")
    )


def _is_recovering(error: Exception) -> bool:
    if _is_lost(error):
        return False
    message = str(getattr(error, "message", error)).lower()
    return any(word in message for word in _RECOVERING)


def _short(error: Exception) -> str:
    """The first line of what a driver says; it never has the password, which goes as a header of its own."""
    text = str(getattr(error, "message", "") or error).strip() or type(error).__name__
    return re.sub(r"\s+", " ", text)[:200]
