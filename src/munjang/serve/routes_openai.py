"""`/v1/embeddings` and `/v1/models`, as clients of OpenAI's API speak them.

A client written for OpenAI works when its base URL is changed. Vectors are exactly `model.encode`'s; `base64` is what
the official client asks for, and the quicker of the two by far.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from munjang.serve.answers import Answer
from munjang.serve.asking import check_items, decoded, device_of, respond, rooms_of, while_connected, wish_of
from munjang.serve.errors import Empty, NotFound
from munjang.serve.rooms import BiRoom
from munjang.serve.schemas_openai import EmbeddingRequest, EmbeddingResponse, Model, ModelList, Texts

router = APIRouter(tags=["OpenAI"])

_STARTED = int(time.time())


@router.post("/v1/embeddings", response_model=EmbeddingResponse, summary="Vectors of texts")
async def embeddings(request: Request, body: EmbeddingRequest) -> Response:
    """The vector of every text. Texts that are longer than the model reads are cut, and `truncated` says how many."""
    started = time.perf_counter()
    room = rooms_of(request).bi(body.model or None)
    texts = await texts_of(request, body.input, room)
    check_items(request, len(texts))
    prompts = {"query": ("query",), None: ()}.get(body.input_type, ("document", "passage", "corpus"))
    work = room.embed(
        texts,
        prompt_name=room.model.prompt_for(*prompts) if prompts else None,
        dimensions=body.dimensions,
        wish=wish_of(request),
    )
    answer = await while_connected(request, work)

    def make() -> dict[str, Any]:
        return {
            "object": "list",
            "data": _data(answer, body.encoding_format == "base64"),
            "model": room.name,
            "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
            "truncated": answer.truncated,
        }

    return await respond(request, answer, make, device=device_of(room), started=started)


@router.get("/v1/models", summary="The models of the service")
async def models(request: Request) -> ModelList:
    """Bi-encoders first, then cross-encoders; the first of each is the default one."""
    rooms = rooms_of(request)
    names = [room.name for room in rooms.bi_rooms] + [room.name for room in rooms.rerankers]
    return ModelList(data=[Model(id=name, created=_STARTED) for name in names])


@router.get("/v1/models/{name}", summary="One model of the service")
async def model(request: Request, name: str) -> Model:
    """Whether there is a model of that name."""
    found = await models(request)
    for one in found.data:
        if one.id == name:
            return one
    known = ", ".join(repr(one.id) for one in found.data) or "none"
    raise NotFound(f"there is no model {name!r:.100}; there are: {known}", param="model", code="model_not_found")


async def texts_of(request: Request, given: Texts, room: BiRoom) -> list[str]:
    """Texts; token ids are decoded with the model's own tokenizer."""
    if isinstance(given, str):
        return [given]
    if not given or isinstance(given[0], str):
        return list(given)  # type: ignore[arg-type]
    rows: list[list[int]] = [given] if isinstance(given[0], int) else given
    if not all(rows):
        raise Empty("a list of token ids is empty: leave it out")
    return await decoded(request, room.model.tokenizer, rows)


def _data(answer: Answer, packed: bool) -> list[dict[str, Any]]:
    if packed:
        rows: list[Any] = [base64.b64encode(row).decode() for row in np.asarray(answer.values, "<f4")]
    else:
        rows = answer.values.tolist()
    return [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
