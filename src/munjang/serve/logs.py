"""One line for every request, and the id under which a person finds it; texts of users never stand in it.

Enters: requests. Leaves: answers with `X-Request-Id`, lines on stderr (for people, or JSON for machines), and numbers
for `metrics`. An id that the client sent is taken over where it is plain, so that a request can be followed through
several services. This is the outermost layer: whatever fails inside ends here as an answer.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from munjang.serve.errors import ClientGone, answer, as_serve_error, hidden, routed_path
from munjang.serve.settings import LogFormat

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOGGER = "munjang.serve"
_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_QUIET = ("/health", "/ready", "/metrics")  # asked every few seconds by machines: below the usual level
_log = logging.getLogger(LOGGER)
_PLAIN = set(vars(logging.makeLogRecord({})))


@dataclass(frozen=True)
class Served:
    """A request that was answered."""

    method: str
    route: str  # the pattern, such as /documents/{index}/{id}: what stands in its place may be a person's text
    status: int
    seconds: float
    received: int  # bytes of the body
    sent: int


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        extras = " ".join(f"{name}={value}" for name, value in _extras(record).items() if value not in (None, ""))
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.getMessage()}" + (f"  {extras}" if extras else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN and name != "message"}


def configure(log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send the service's lines to stderr, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    _log.handlers[:] = [handler]
    _log.setLevel(logging.INFO)
    _log.propagate = False


class RequestLog:
    """Gives every request its id, its line, and an answer whatever happens inside."""

    def __init__(self, app: ASGIApp, observe: Callable[[Served], None] | None = None) -> None:
        self._app = app
        self._observe = observe or (lambda served: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        watch = _Watch(scope, receive, send)
        try:
            await self._app(scope, watch.receive, watch.send)
        except Exception as error:
            await self._fail(scope, watch, error)
        finally:
            self._tell(scope, watch)

    async def _fail(self, scope: Scope, watch: _Watch, error: Exception) -> None:
        known = as_serve_error(error) or hidden(error, watch.id)
        if watch.status:  # the answer had begun: all that can be done is to end the connection
            raise error
        with contextlib.suppress(OSError):
            await answer(routed_path(scope), known)(scope, watch.receive, watch.send)

    def _tell(self, scope: Scope, watch: _Watch) -> None:
        route = getattr(scope.get("route"), "path", None) or "(none)"
        status = watch.status or ClientGone.status
        served = Served(scope["method"], route, status, time.perf_counter() - watch.started, watch.received, watch.sent)
        self._observe(served)
        state: dict[str, Any] = scope.get("state", {})
        level = logging.DEBUG if route in _QUIET and status < 400 else logging.INFO
        told = state.get("told", {})  # numbers that handlers add: tokens, truncated, index...
        caller = getattr(state.get("caller"), "name", "")
        _log.log(
            level,
            "request",
            extra={
                "method": served.method,
                "route": route,
                "status": status,
                "ms": round(served.seconds * 1000, 1),
                "bytes_in": served.received,
                "bytes_out": served.sent,
                "caller": caller,
                "client": (scope.get("client") or ("",))[0],
                **told,
                "request_id": watch.id,
            },
        )


class _Watch:
    """Both directions of one request, counted."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.started = time.perf_counter()
        self.status = self.received = self.sent = 0
        self.id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = self.id

    async def receive(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)


def _request_id(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


def tell(request: Any, **facts: int | float | str | None) -> None:
    """Add facts about a request to its line in the log. Never texts of users."""
    request.scope.setdefault("state", {}).setdefault("told", {}).update(facts)
