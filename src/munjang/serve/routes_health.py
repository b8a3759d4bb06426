"""What machines and people ask a service about itself: is it alive, is it ready, what does it hold, how does it do."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from munjang.serve.rooms import Rooms
from munjang.serve.routes_index import ERRORS

router = APIRouter(tags=["service"], responses={status: ERRORS[status] for status in (401, 403, 503)})


@router.get("/health", summary="Is it alive?")
async def health() -> dict[str, str]:
    """200 for as long as the service answers, also while it loads its models."""
    return {"status": "ok"}


@router.get("/ready", summary="Is it ready for work?", responses={200: {"content": {"application/json": {}}}})
async def ready(request: Request) -> Response:
    """200 when models and indexes are there, 503 before that and when the service is ending."""
    if request.app.state.rooms.ready:
        return JSONResponse({"status": "ready"})
    body = {"error": "models and indexes are being loaded, or the service is ending", "error_type": "unhealthy"}
    return JSONResponse(body, status_code=503, headers={"Retry-After": "2"})


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests, times, queues, batches, tokens, sizes."""
    numbers = request.app.state.metrics
    return Response(await asyncio.to_thread(numbers.text), media_type=numbers.type)


@router.get("/info", summary="What is here")
async def info(request: Request) -> dict[str, Any]:
    """Models, indexes and limits; the fields at the top are those of text-embeddings-inference."""
    settings, rooms = request.app.state.settings, request.app.state.rooms
    limits = settings.limits
    first = rooms.bi_rooms[0] if rooms.bi_rooms else None
    return {
        "model_id": None if first is None else first.name,
        "model_sha": None if first is None else first.model.fingerprint,
        "model_dtype": None if first is None else str(first.model.dtype).removeprefix("torch."),
        "model_type": {"embedding": {"pooling": "mean" if first is None else _pooling(first)}},
        "max_concurrent_requests": limits.searches,
        "max_input_length": None if first is None else first.model.max_length,
        "max_batch_tokens": limits.tokens,
        "max_client_batch_size": limits.batch,
        "auto_truncate": True,
        "version": request.app.version,
        "ready": rooms.ready,
        "title": settings.title,
        "models": _models(rooms),
        "rerankers": [room.name for room in rooms.rerankers],
        "indexes": list(settings.indexes),
        "examples": list(settings.examples),
        "limits": {
            "body_bytes": limits.body_bytes,
            "file_bytes": limits.file_bytes,
            "batch": limits.batch,
            "tokens": limits.tokens,
            "query_characters": limits.query_characters,
            "k": limits.k,
            "cluster_texts": limits.cluster_texts,
        },
        "may_write": request.state.caller.role == "write",
    }


def _models(rooms: Rooms) -> list[dict[str, Any]]:
    return [
        {
            "name": room.name,
            "dimension": room.model.dimension,
            "max_length": room.model.max_length,
            "similarity": room.model.similarity_name,
        }
        for room in rooms.bi_rooms
    ]


def _pooling(room: Any) -> str:
    return ", ".join(room.model.parts.pooling.modes) or "mean"
