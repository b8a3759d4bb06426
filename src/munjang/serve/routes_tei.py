"""The routes of text-embeddings-inference (TEI), and `/rerank` in both shapes: `texts` is TEI's, `documents` is that
of Cohere, Jina and infinity.

What differs from TEI: several models may be asked for by `model`; texts that are too long are cut and counted in the
header X-Truncated, unless `truncate` is false; there are no sparse vectors.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from munjang import vectors
from munjang.serve.asking import (
    check_items,
    decoded,
    device_of,
    limits_of,
    respond,
    rooms_of,
    while_connected,
    wish_of,
)
from munjang.serve.errors import Invalid, TooLarge
from munjang.serve.limits import check_count
from munjang.serve.rooms import BiRoom, Pair, RerankRoom
from munjang.serve.routes_cohere import best_first, check_query, rank_documents, ranking_room, results
from munjang.serve.routes_openai import texts_of
from munjang.serve.schemas_cohere import PlainRerankResponse, RerankDocuments
from munjang.serve.schemas_tei import (
    DecodeRequest,
    Direction,
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    Prediction,
    PredictRequest,
    Rank,
    RerankBody,
    RerankTexts,
    SimilarityRequest,
    Token,
    TokenizeRequest,
)
from munjang.text.tokenizer import Tokenizer

_CHARACTERS_OF_A_TOKEN = 8  # no language needs as many on average

router = APIRouter(tags=["TEI"])


@router.post("/embed", response_model=list[list[float]], summary="Vectors of texts")
async def embed(request: Request, body: EmbedRequest) -> Response:
    """The vector of every text, of unit length unless `normalize` is false."""
    started = time.perf_counter()
    room = rooms_of(request).bi(body.model or None)
    texts = await texts_of(request, body.inputs, room)
    check_items(request, len(texts))
    await check_cut(room, texts, body.truncate, body.truncation_direction)
    work = room.embed(
        texts,
        prompt_name=body.prompt_name,
        normalize=body.normalize,
        dimensions=body.dimensions,
        wish=wish_of(request),
    )
    answer = await while_connected(request, work)
    return await respond(request, answer, answer.values.tolist, device=device_of(room), started=started)


@router.post("/embed_all", response_model=list[list[list[float]]], summary="Vectors of every token")
async def embed_all(request: Request, body: EmbedAllRequest) -> Response:
    """For every text the vectors of its tokens before pooling, special tokens included."""
    started = time.perf_counter()
    room = rooms_of(request).bi(body.model or None)
    texts = await texts_of(request, body.inputs, room)
    check_items(request, len(texts))
    await check_cut(room, texts, body.truncate, body.truncation_direction)
    work = room.embed_tokens(texts, prompt_name=body.prompt_name, wish=wish_of(request))
    answer = await while_connected(request, work)

    def make() -> list[Any]:
        return [rows.tolist() for rows in answer.values]

    return await respond(request, answer, make, device=device_of(room), started=started)


@router.post("/embed_sparse", summary="Not offered", response_model=list[list[dict[str, float]]])
async def embed_sparse(request: Request, body: EmbedSparseRequest) -> Response:
    """Always refused: the models here make dense vectors."""
    raise Invalid("sparse vectors are not offered here: ask /embed for dense ones, or /search with mode=keyword")


@router.post(
    "/rerank",
    response_model=list[Rank] | PlainRerankResponse,
    response_model_exclude_none=True,
    summary="Texts in the order of their relevance",
)
async def rerank(request: Request, body: RerankBody) -> Response:
    """`texts` is answered as TEI does, `documents` as Jina and infinity do."""
    started = time.perf_counter()
    if isinstance(body, RerankTexts):
        return await _rerank_texts(request, body, started)
    return await _rerank_documents(request, body, started)


async def _rerank_texts(request: Request, body: RerankTexts, started: float) -> Response:
    room = ranking_room(request, body.model)
    check_query(request, body.query)
    check_items(request, len(body.texts))
    pairs = [(body.query, text) for text in body.texts]
    await check_cut(room, pairs, body.truncate, body.truncation_direction)
    answer = await while_connected(request, room.score(pairs, raw=body.raw_scores, wish=wish_of(request)))

    def make() -> list[dict[str, Any]]:
        return [
            {"index": place, "score": float(answer.values[place])}
            | ({"text": body.texts[place]} if body.return_text else {})
            for place in best_first(answer.values)
        ]

    return await respond(request, answer, make, device=device_of(room), started=started)


async def _rerank_documents(request: Request, body: RerankDocuments, started: float) -> Response:
    room = ranking_room(request, body.model)
    answer, order = await rank_documents(request, room, body)

    def make() -> dict[str, Any]:
        return {
            "object": "rerank",
            "model": room.name,
            "results": results(body, answer, order),
            "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
            "truncated": answer.truncated,
        }

    return await respond(request, answer, make, device=device_of(room), started=started)


@router.post("/predict", response_model=list[Prediction] | list[list[Prediction]], summary="Labels of pairs")
async def predict(request: Request, body: PredictRequest) -> Response:
    """The labels of a pair with their probabilities, the likeliest first; of several pairs a list of such lists."""
    started = time.perf_counter()
    room = rooms_of(request).reranker(body.model or None)
    pairs, single = _pairs_of(body.inputs)
    check_items(request, len(pairs), "pairs")
    await check_cut(room, pairs, body.truncate, body.truncation_direction)
    work = (
        room.score(pairs, raw=True, wish=wish_of(request))
        if body.raw_scores
        else room.probabilities(pairs, wish=wish_of(request))
    )
    answer = await while_connected(request, work)

    def make() -> list[Any]:
        rows = [_labelled(room, row.reshape(-1)) for row in answer.values]
        return rows[0] if single else rows

    return await respond(request, answer, make, device=device_of(room), started=started)


async def tei_similarity(request: Request, body: SimilarityRequest) -> Response:
    """How alike a sentence is to others, by the cosine: one number for each."""
    started = time.perf_counter()
    room = rooms_of(request).bi(body.model or None)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    check_items(request, len(body.inputs.sentences))
    parameters = body.parameters
    await check_cut(room, texts, parameters.truncate, parameters.truncation_direction)
    work = room.embed(texts, prompt_name=parameters.prompt_name, wish=wish_of(request))
    answer = await while_connected(request, work)

    def make() -> list[float]:
        scores: list[float] = vectors.similarity(answer.values[:1], answer.values[1:])[0].tolist()
        return scores

    return await respond(request, answer, make, device=device_of(room), started=started)


@router.post("/tokenize", response_model=list[list[Token]], summary="Texts to tokens")
async def tokenize(request: Request, body: TokenizeRequest) -> Response:
    """The tokens of every text, uncut."""
    room = rooms_of(request).bi(body.model or None)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    check_items(request, len(texts))
    prompt = room.model.job(None, body.prompt_name, None).prompt if body.prompt_name else ""
    whole = [prompt + text for text in texts]
    most = limits_of(request).tokens
    check_count(sum(map(len, whole)) // _CHARACTERS_OF_A_TOKEN, most, "tokens", "tokens")  # before any are made
    content = await asyncio.to_thread(_tokens, room.model.tokenizer, whole, body.add_special_tokens, most)
    return Response(content, media_type="application/json")


@router.post("/decode", summary="Tokens to texts")
async def decode(request: Request, body: DecodeRequest) -> list[str]:
    """The texts of token ids; one list of ids is one text."""
    room = rooms_of(request).bi(body.model or None)
    rows: list[list[int]] = [body.ids] if body.ids and isinstance(body.ids[0], int) else body.ids  # type: ignore[assignment]
    return await decoded(request, room.model.tokenizer, rows, skip_special=body.skip_special_tokens)


async def check_cut(
    room: BiRoom | RerankRoom, items: Sequence[str] | Sequence[Pair], truncate: bool | None, side: Direction | None
) -> None:
    """Raise where a text would be cut and that is not wanted, or not on that side."""
    own = "left" if room.model.tokenizer.keep_end else "right"
    if side is not None and side.lower() != own:
        raise Invalid(f"the model {room.name!r} cuts long texts on the {own}, not on the {side.lower()}")
    if truncate is not False:
        return
    count: Callable[[Any], int] = room.longest
    longest = await asyncio.to_thread(count, items)
    if longest > room.model.max_length:
        raise TooLarge(
            f"the longest text has {longest:,} tokens, the model reads {room.model.max_length:,}, and truncate is "
            "false: shorten it, or let it be cut",
            code="too_long",
        )


def _tokens(tokenizer: Tokenizer, texts: list[str], special: bool, most: int) -> bytes:
    """The JSON of a list of `Token` for each text; text by text, so that other threads have their turn."""
    encodings = tokenizer.backend.encode_batch(texts, add_special_tokens=special)
    check_count(sum(len(encoding.ids) for encoding in encodings), most, "tokens", "tokens")
    found = []
    for encoding in encodings:
        rows = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
        tokens = [
            {
                "id": id,
                "text": text,
                "special": bool(mask),
                "start": None if mask else span[0],
                "stop": None if mask else span[1],
            }
            for id, text, mask, span in rows
        ]
        found.append(json.dumps(tokens, ensure_ascii=False, separators=(",", ":")))
    return f"[{','.join(found)}]".encode()


def _pairs_of(inputs: str | list[str] | list[list[str]]) -> tuple[list[Pair], bool]:
    """The pairs, and whether it is a single one."""
    if isinstance(inputs, str) or (inputs and isinstance(inputs[0], str) and len(inputs) != 2):
        raise Invalid("the models here read two texts together: one pair is [a, b], several are [[a, b], ...]")
    if inputs and isinstance(inputs[0], str):
        return [(inputs[0], inputs[1])], True
    for place, pair in enumerate(inputs):
        if len(pair) != 2:
            raise Invalid(f"pair {place} must be two texts [a, b], got {len(pair)}", param=f"inputs.{place}")
    return [(pair[0], pair[1]) for pair in inputs], False


def _labelled(room: RerankRoom, scores: Any) -> list[dict[str, Any]]:
    return [{"label": room.model.labels[place], "score": float(scores[place])} for place in best_first(scores)]
