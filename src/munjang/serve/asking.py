"""What the handlers of all model routes share: find a room, wait while the client does, answer in JSON.

Enters: a request and something to await. Leaves: an answer whose headers say how many tokens it took, where the time
went, and how many texts were cut. Vectors are written as JSON in a thread where there are many.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from munjang.serve.answers import Answer
from munjang.serve.errors import ClientGone, Empty, Invalid, Unready
from munjang.serve.limits import check_count
from munjang.serve.logs import tell
from munjang.serve.queues import Priority
from munjang.serve.rooms import BiRoom, RerankRoom, Rooms, Wish
from munjang.serve.settings import Limits
from munjang.text.tokenizer import Tokenizer

Result = TypeVar("Result")

INLINE_ITEMS = 64  # so many vectors are written as JSON in the event loop's own thread


def rooms_of(request: Request) -> Rooms:
    """The models; an error while they are being loaded."""
    rooms: Rooms = request.app.state.rooms
    if not rooms.ready:
        failure = getattr(request.app.state, "failure", None)
        if failure is not None:
            raise Unready(f"a model of this service cannot be loaded: {failure}")
        raise Unready("the models are being loaded: try again soon", headers={"Retry-After": "2"})
    return rooms


def limits_of(request: Request) -> Limits:
    limits: Limits = request.app.state.settings.limits
    return limits


def wish_of(request: Request, priority: Priority | None = None) -> Wish:
    """As long as one request may take."""
    return Wish(priority, limits_of(request).deadline_s)


def check_items(request: Request, count: int, what: str = "texts") -> None:
    """Raise where there is nothing to do, or more than one request may ask for."""
    if not count:
        raise Empty(f"there are no {what} in the request: give at least one")
    check_count(count, limits_of(request).batch, what)


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await the work; it is given up as soon as the client hangs up."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone("the client hung up")
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def respond(
    request: Request, answer: Answer, make: Callable[[], Any], *, device: str, started: float
) -> Response:
    """The JSON that `make` gives, with what the answer took in the headers; times in milliseconds."""
    tell(request, tokens=answer.tokens, truncated=answer.truncated)

    def write() -> bytes:
        return json.dumps(make(), ensure_ascii=False, separators=(",", ":")).encode()

    body = write() if len(answer.values) <= INLINE_ITEMS else await asyncio.to_thread(write)
    timing = answer.timing
    headers = {
        "X-Compute-Type": device,
        "X-Compute-Tokens": str(answer.tokens),
        "X-Truncated": str(answer.truncated),
        "X-Tokenization-Time": _milliseconds(timing.tokenise),
        "X-Queue-Time": _milliseconds(timing.queue),
        "X-Inference-Time": _milliseconds(timing.compute),
        "X-Compute-Time": _milliseconds(timing.compute),
        "X-Total-Time": _milliseconds(time.perf_counter() - started),
    }
    return Response(body, media_type="application/json", headers=headers)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def device_of(room: BiRoom | RerankRoom) -> str:
    return room.model.device.type


async def decoded(
    request: Request, tokenizer: Tokenizer, rows: list[list[int]], *, skip_special: bool = True
) -> list[str]:
    """Texts of token ids; ids that the vocabulary does not have are refused."""
    check_items(request, len(rows), "token ids (lists)")
    check_count(sum(map(len, rows)), limits_of(request).tokens, "tokens", "tokens")
    return await asyncio.to_thread(_decoded, tokenizer, rows, skip_special)


def _decoded(tokenizer: Tokenizer, rows: list[list[int]], skip_special: bool) -> list[str]:
    size = tokenizer.vocab_size
    for place, row in enumerate(rows):
        wrong = next((number for number in row if not 0 <= number < size), None)
        if wrong is not None:
            raise Invalid(
                f"token ids must be 0..{size - 1} (the model's own vocabulary), got {wrong} in row {place}: a client "
                "that counts in tokens of another model must send texts (langchain: check_embedding_ctx_length=False)"
            )
    return list(tokenizer.backend.decode_batch(rows, skip_special_tokens=skip_special))
