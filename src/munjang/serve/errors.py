"""What a client is told when something cannot be done: a status, and one shape per family of requests.

    ours and text-embeddings-inference   {"error": message, "error_type": kind}
    OpenAI  (/v1/embeddings, /v1/models) {"error": {"message", "type", "param", "code"}}
    Cohere  (/v1/rerank, /v2/rerank)     {"message": message}

Enters: any exception of a handler. Leaves: an answer. An exception that nobody foresaw is logged with its trace and
answered with its request id; a client never sees a trace.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from munjang.errors import (
    DataError,
    InputError,
    LimitError,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    MunjangError,
)
from munjang.index.remote.engine import Unreachable

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope

Family = Literal["ours", "openai", "cohere"]
Kind = Literal[  # the `error_type`; the first words are those of text-embeddings-inference
    "empty", "validation", "overloaded", "unhealthy", "tokenizer", "backend",
    "unauthorized", "forbidden", "not_found", "too_large", "timeout", "unavailable", "method",
]  # fmt: skip

_log = logging.getLogger("munjang.serve")
_LONGEST = 1000  # characters of a message; values of a request may be megabytes long
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class ServeError(MunjangError):
    """Something that a client is told with a status of its own."""

    status = 500
    kind: Kind = "backend"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(_short(message))
        self.param = None if param is None else _short(param)  # of the request, which is to blame
        self.code = code  # for programs
        self.headers = dict(headers or {})


class Empty(ServeError):
    """Nothing was given."""

    status, kind = 400, "empty"


class Invalid(ServeError):
    """The request is understood but cannot be done."""

    status, kind = 422, "validation"


class BadRequest(ServeError):
    """The request cannot be read."""

    status, kind = 400, "validation"


class Unauthorized(ServeError):
    """No key, or an unknown one."""

    status, kind = 401, "unauthorized"


class Forbidden(ServeError):
    """A key that may not do this."""

    status, kind = 403, "forbidden"


class NotFound(ServeError):
    """There is no model, index or document of that name."""

    status, kind = 404, "not_found"


class TooSlow(ServeError):
    """The client did not send its body in time."""

    status, kind = 408, "timeout"


class TooLarge(ServeError):
    """More than one request may ask for. `limit` names the field of `Limits`, and the message says how to raise it."""

    status, kind = 413, "too_large"

    def __init__(self, message: str, *, limit: str | None = None, **others: Any) -> None:
        hint = "" if limit is None else f" (limit {limit}: `munjang serve --limit {limit}=N` raises it)"
        super().__init__(_short(message) + hint, **others)


class Overloaded(ServeError):
    """The queue is full; the whole request was refused."""

    status, kind = 429, "overloaded"

    def __init__(self, retry_after: float, message: str | None = None) -> None:
        seconds = max(1, math.ceil(retry_after)) if math.isfinite(retry_after) else 60
        text = message or f"the service has more to do than it can take on: try again in {seconds} s"
        super().__init__(text, code="overloaded", headers={"Retry-After": str(seconds)})
        self.retry_after = retry_after


class ClientGone(ServeError):
    """The client hung up: nobody reads the answer (nginx's status)."""

    status, kind = 499, "timeout"


class Unready(ServeError):
    """Models are being loaded, or the service is ending."""

    status, kind = 503, "unhealthy"


class Unavailable(ServeError):
    """This service was not set up for it."""

    status, kind = 501, "unavailable"


class DeadlinePassed(ServeError):
    """It took longer than a request may take."""

    status, kind = 504, "timeout"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def routed_path(scope: Scope) -> str:
    """The path that routes are matched against: without the prefix under which an application is mounted.

    Decide on this, not on `request.url`: that is built from the Host header.
    """
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) and path[len(root) :][:1] in ("", "/") else path


def family_of(path: str) -> Family:
    """Which client's errors a path speaks."""
    if path.startswith(("/v1/rerank", "/v2/")):
        return "cohere"
    return "openai" if path.startswith("/v1/") else "ours"


def body_of(family: Family, error: ServeError) -> dict[str, Any]:
    """The JSON of an error."""
    if family == "cohere":
        return {"message": str(error)}
    if family == "openai":
        kind = _OPENAI_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
        return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code or error.kind}}
    return {"error": str(error), "error_type": error.kind}


def as_serve_error(error: BaseException) -> ServeError | None:
    """What a library error means for a client; None where it is not one of ours."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, MissingExtraError):
        return Unavailable(str(error))
    if isinstance(error, Unreachable):  # its words name the server, which is not the client's business
        _log.error("%s", error)
        return Unready("the server of this index cannot be reached: try again later", headers={"Retry-After": "5"})
    if isinstance(error, LimitError):
        return TooLarge(str(error), limit=error.limit)
    if isinstance(error, InputError | DataError):
        return Invalid(str(error))
    if isinstance(error, ModelNotFoundError):
        return NotFound(str(error))
    if isinstance(error, ModelError):
        return Unready(str(error))
    return Invalid(str(error)) if isinstance(error, MunjangError) else None


def answer(path: str, error: ServeError) -> Response:
    """The answer that tells an error."""
    from starlette.responses import JSONResponse

    return JSONResponse(body_of(family_of(path), error), status_code=error.status, headers=error.headers)


def install(app: FastAPI) -> None:
    """Let the application tell every error in the shape that its client reads."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    async def ours(request: Request, error: Exception) -> Response:
        known = as_serve_error(error)
        assert known is not None
        return answer(routed_path(request.scope), known)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(routed_path(request.scope), _of_validation(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(routed_path(request.scope), _of_http(error))

    async def unforeseen(request: Request, error: Exception) -> Response:
        return answer(routed_path(request.scope), hidden(error, getattr(request.state, "request_id", "")))

    app.add_exception_handler(MunjangError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


def hidden(error: BaseException, request_id: str) -> ServeError:
    """A fault of the service: the trace goes to the log, the client gets the id under which it stands there."""
    _log.error("fault", exc_info=error, extra={"request_id": request_id})
    return ServeError(f"a fault in the service; its log has it under the request id {request_id!r}")


def _of_validation(error: Any) -> ServeError:
    """The first thing that is wrong, by its place in the body."""
    found = error.errors()
    if not found:
        return Invalid("the request cannot be read")
    first = found[0]
    if first.get("type") == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return BadRequest(f"the body is no valid JSON ({reason} at character {first['loc'][-1]})")
    place = ".".join(map(str, first["loc"][1:]))  # the first part says body, query or path
    said = f"{place}: {first['msg']}" if place else str(first["msg"])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Invalid(said + more, param=place or None)


def _of_http(error: Any) -> ServeError:
    """What the framework itself refuses: unknown paths, wrong methods, broken forms."""
    kinds: dict[int, type[ServeError]] = {400: BadRequest, 404: NotFound, 413: TooLarge, 422: Invalid}
    message = str(error.detail)
    if error.status_code == 404 and message == "Not Found":
        message = "there is nothing at this address: GET /docs lists what there is"
    told = kinds.get(error.status_code, ServeError)(message, headers=error.headers)
    if error.status_code == 405:
        told.kind = "method"
    told.status = error.status_code
    return told
