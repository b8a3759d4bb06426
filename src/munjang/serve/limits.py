"""Bodies that are too large, too slow or no proper JSON are refused before a handler sees them.

Enters: the pieces of a body, with or without a Content-Length. Leaves: a whole JSON body within its limits, or an
uploaded file piece by piece, counted. What waits in memory is bounded for all requests together: a body is held while
its handler runs, and a service that holds too much already says 429.

JSON as Python reads it allows NaN, Infinity and halves of surrogate pairs. They break models, files and other people's
parsers later on, so they are refused here. A body without the letters that they need is not looked at twice. Bodies
that are nested more than 64 levels deep, hold more than 100,000 lists and objects or are not UTF-8 are refused, too.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.serve.errors import (
    BadRequest,
    ClientGone,
    Invalid,
    Overloaded,
    ServeError,
    TooLarge,
    TooSlow,
    answer,
    routed_path,
)
from munjang.serve.settings import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SUSPECT = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]|[eE]\+?[0-9]{3}")
_MOST_LEVELS = 64  # of lists and objects in one another; validators and writers of JSON recurse
_MOST_PARTS = 100_000  # lists and objects; checking them takes a microsecond each
_HELD_BODIES = 16  # of the largest size, that may wait in memory at once
_UPLOAD = re.compile(r"/documents/[^/]+/file")
_CLOSE = {"Connection": "close"}  # what is still to come of the body is not read


class BodyLimit:
    """Holds bodies to the limits."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._held = 0  # bytes of bodies in memory, of all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "POST" and _UPLOAD.fullmatch(routed_path(scope)) is not None
        limit = "file_bytes" if upload else "body_bytes"
        body = _Body(receive, getattr(self._limits, limit), limit)
        try:
            body.check_announced(scope["headers"])
            if upload:
                await self._app(scope, body.piece_within(self._limits.body_seconds), send)
            else:
                await self._whole(scope, body, send)
        except ServeError as error:
            # Only errors of this layer arrive here: those of handlers have become answers inside.
            if isinstance(error, ClientGone):
                raise
            await answer(routed_path(scope), error)(scope, receive, send)

    async def _whole(self, scope: Scope, body: _Body, send: Send) -> None:
        held = _Held(self)
        try:
            content = await asyncio.wait_for(held.all_of(body), self._limits.body_seconds)
            if b"\0" in content:  # JSON in UTF-16 or UTF-32: Python would read it, and the checks here would not
                raise BadRequest("the body must be JSON in UTF-8, and holds a zero byte")
            if content.count(b"[") + content.count(b"{") > _MOST_LEVELS:
                await asyncio.to_thread(check_shape, content)
            if _SUSPECT.search(content):
                await asyncio.to_thread(check_json, content)
            await self._app(scope, _Replay(content, body.receive), send)
        except asyncio.TimeoutError:
            if held.whole:  # not of the body, but of a handler
                raise
            raise TooSlow(f"the body did not come within {self._limits.body_seconds:g} s", headers=_CLOSE) from None
        finally:
            self._held -= held.size

    def hold(self, size: int) -> None:
        """Count bytes that came into memory."""
        self._held += size
        if self._held > self._limits.body_bytes * _HELD_BODIES:
            self._held -= size
            raise Overloaded(1.0, "too many large requests at once: try again in a second")


class _Held:
    """What one request holds in memory."""

    def __init__(self, limit: BodyLimit) -> None:
        self._limit = limit
        self.size = 0
        self.whole = False

    async def all_of(self, body: _Body) -> bytes:
        pieces = []
        async for piece in body:
            self._limit.hold(len(piece))
            self.size += len(piece)
            pieces.append(piece)
        self.whole = True
        return b"".join(pieces)


class _Body:
    """The pieces of a body as they come, counted."""

    def __init__(self, receive: Receive, limit: int, limit_name: str) -> None:
        self.receive = receive
        self._limit = limit
        self._limit_name = limit_name
        self._count = 0

    def check_announced(self, headers: Any) -> None:
        announced = next((value for name, value in headers if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced) > self._limit:
            raise self._too_large()

    def __aiter__(self) -> _Body:
        self._more = True
        return self

    async def __anext__(self) -> bytes:
        if not self._more:
            raise StopAsyncIteration
        message = await self._counted()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client hung up before its body was whole")
        self._more = message.get("more_body", False)
        return bytes(message.get("body", b""))

    def piece_within(self, seconds: float) -> Receive:
        """The pieces one by one, each within its time, for a handler that does not keep them in memory."""

        done = False

        async def receive() -> Message:
            nonlocal done
            if done:
                return await self.receive()  # a handler that waits for its client to hang up
            try:
                message = await asyncio.wait_for(self._counted(), seconds)
            except asyncio.TimeoutError:
                raise TooSlow(f"nothing came for {seconds:g} s", headers=_CLOSE) from None
            done = not message.get("more_body", False)
            return message

        return receive

    async def _counted(self) -> Message:
        message = await self.receive()
        self._count += len(message.get("body", b""))
        if self._count > self._limit:
            raise self._too_large()
        return message

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"a body may have {self._limit:,} bytes: send less at a time",
            limit=self._limit_name,
            code="body_too_large",
            headers=_CLOSE,
        )


class _Replay:
    """A body that was read already, once, and then whatever else comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def check_shape(body: bytes) -> None:
    """Raise for JSON that is nested too deep, or in too many pieces. It is not parsed: a parser would recurse."""
    data = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.bitwise_xor.accumulate((data == ord('"')).view(np.uint8)) == 0
    opens = outside & ((data == ord("[")) | (data == ord("{")))
    closes = outside & ((data == ord("]")) | (data == ord("}")))
    levels = np.cumsum(opens.view(np.int8) - closes.view(np.int8), dtype=np.int32)
    for what, count, most in (
        ("levels of lists and objects", int(levels.max()), _MOST_LEVELS),
        ("lists and objects", int(opens.sum()), _MOST_PARTS),
    ):
        if count > most:
            raise BadRequest(f"the body may have {most:,} {what}, got {count:,}: send less, or flatten it")


def check_json(body: bytes) -> None:
    """Raise for what Python reads as JSON but JSON does not have, or no text can hold."""
    try:
        given = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Invalid("the body holds half a surrogate pair (\\ud800..\\udfff), which is no character") from None
    except (ValueError, RecursionError):
        return  # no JSON at all: the handler says where it breaks


def _refuse(word: str) -> Any:
    raise BadRequest(f"the body holds {word}, which is not JSON: leave it out, or send null")


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise Invalid(f"the body holds {number[:40]}, a number that is too large")
    return value


def check_count(count: int, most: int, what: str, limit: str | None = "batch") -> None:
    """Raise where a request asks for more than the service gives at once."""
    if count > most:
        raise TooLarge(
            f"one request may have {most:,} {what}, got {count:,}: send less at a time", limit=limit, code="too_many"
        )
