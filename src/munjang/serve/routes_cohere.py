"""`/v1/rerank` and `/v2/rerank`, as clients of Cohere's API speak them; the score of a pair is the cross-encoder's.

The scores are what `CrossEncoder.predict` gives: for most models probabilities, 0 to 1.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from munjang.serve.answers import Answer
from munjang.serve.asking import check_items, device_of, limits_of, respond, rooms_of, while_connected, wish_of
from munjang.serve.errors import Invalid, TooLarge
from munjang.serve.rooms import RerankRoom
from munjang.serve.schemas_cohere import RerankDocuments, RerankResponse
from munjang.text.tokenizer import Tokenizer

router = APIRouter(tags=["Cohere"])


@router.post("/v1/rerank", response_model=RerankResponse, response_model_exclude_none=True, summary="Rerank (v1)")
async def rerank_v1(request: Request, body: RerankDocuments) -> Response:
    """The documents in the order of their relevance to the query."""
    return await _cohere(request, body, "1")


@router.post("/v2/rerank", response_model=RerankResponse, response_model_exclude_none=True, summary="Rerank (v2)")
async def rerank_v2(request: Request, body: RerankDocuments) -> Response:
    """The documents in the order of their relevance to the query."""
    return await _cohere(request, body, "2")


async def _cohere(request: Request, body: RerankDocuments, version: str) -> Response:
    started = time.perf_counter()
    room = ranking_room(request, body.model)
    answer, order = await rank_documents(request, room, body)
    meta: dict[str, Any] = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    if answer.truncated:
        meta["warnings"] = [f"{answer.truncated} pairs were longer than {room.model.max_length} tokens and were cut"]

    def make() -> dict[str, Any]:
        return {"id": str(uuid.uuid4()), "results": results(body, answer, order), "meta": meta}

    return await respond(request, answer, make, device=device_of(room), started=started)


def ranking_room(request: Request, name: str | None) -> RerankRoom:
    """The cross-encoder of that name; it must give one score."""
    room = rooms_of(request).reranker(name or None)
    if len(room.model.labels) != 1:
        labels = ", ".join(room.model.labels)
        raise Invalid(f"{room.name!r} gives labels ({labels}), not one score: it cannot rank; ask /predict")
    return room


async def rank_documents(request: Request, room: RerankRoom, body: RerankDocuments) -> tuple[Answer, list[int]]:
    """Every document's score, and the places of the best `top_n`, the best first."""
    texts = [_text_of(document, place, body.rank_fields) for place, document in enumerate(body.documents)]
    check_query(request, body.query)
    check_items(request, len(texts), "documents")
    most = body.max_tokens_per_doc
    if most is not None and most < room.model.max_length:
        texts = await asyncio.to_thread(shortened, room.model.tokenizer, texts, most)
    work = room.score([(body.query, text) for text in texts], wish=wish_of(request))
    answer = await while_connected(request, work)
    return answer, best_first(answer.values, body.top_n)


def best_first(scores: np.ndarray[Any, Any], count: int | None = None) -> list[int]:
    """Places of the highest scores; equal ones keep their order."""
    places: list[int] = np.argsort(-scores, kind="stable")[:count].tolist()
    return places


def check_query(request: Request, query: str) -> None:
    """Raise for a query that is longer than one may be."""
    most = limits_of(request).query_characters
    if len(query) > most:
        raise TooLarge(
            f"a query may have {most:,} characters, got {len(query):,}", limit="query_characters", param="query"
        )


def results(body: RerankDocuments, answer: Answer, order: Sequence[int]) -> list[dict[str, Any]]:
    """The results as Cohere's clients read them."""
    found: list[dict[str, Any]] = []
    for place in order:
        row: dict[str, Any] = {"index": place, "relevance_score": float(answer.values[place])}
        if body.return_documents:
            document = body.documents[place]
            row["document"] = {"text": document} if isinstance(document, str) else document
        found.append(row)
    return found


def shortened(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[str]:
    """The texts, each cut after its first `most` tokens."""
    encodings = tokenizer.backend.encode_batch(list(texts), add_special_tokens=False)
    return [
        text[: encoding.offsets[most - 1][1]] if len(encoding.ids) > most else text
        for text, encoding in zip(texts, encodings, strict=True)
    ]


def _text_of(document: str | dict[str, Any], place: int, fields: Sequence[str] | None) -> str:
    if isinstance(document, str):
        return document
    chosen = fields or ("text",)
    missing = [field for field in chosen if not isinstance(document.get(field), str)]
    if missing:
        raise Invalid(
            f"document {place} has no text in {', '.join(map(repr, missing))}: give a string, or an object with "
            "`text` (or the fields named in rank_fields)",
            param=f"documents.{place}",
        )
    return "\n".join(document[field] for field in chosen)
