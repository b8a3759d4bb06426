"""Searches, documents and maps of the indexes. Handlers check, call, and put the answer into its shape."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from munjang.serve.asking import limits_of, rooms_of, while_connected
from munjang.serve.errors import Empty, Forbidden, Invalid, NotFound, TooLarge
from munjang.serve.indexes import Shelf, Shelved
from munjang.serve.limits import check_count
from munjang.serve.logs import tell
from munjang.serve.maps import Building
from munjang.serve.rooms import RerankRoom
from munjang.serve.schemas_index import (
    AddAnswer,
    AddRequest,
    Asked,
    DeleteAnswer,
    DocumentBody,
    ErrorBody,
    IndexBody,
    MapAnswer,
    MapBuilding,
    MoreLikeRequest,
    PlaceAnswer,
    PlaceRequest,
    SearchAnswer,
    SearchRequest,
)
from munjang.serve.searching import Found, Like, Searcher
from munjang.serve.searching import Query as SearchQuery
from munjang.serve.uploads import added, receive

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": words}
    for status, words in {
        400: "Nothing given, or no valid JSON",
        401: "No key, or an unknown one",
        403: "The key may not do this",
        404: "No index, model or document of that name",
        408: "The body did not come in time",
        413: "More than one request may have",
        422: "A value that cannot be used",
        429: "Too much to do: try again after Retry-After",
        501: "Not set up here",
        503: "Models are being loaded",
        504: "It took too long",
    }.items()
}
_NEAR = 200  # hits that say where a query stands on the map of a part of the index
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "csv, tsv, jsonl, json, parquet, txt (a document in each line), md (one).",
                        },
                        "column": {"type": "string", "description": "The column of the texts."},
                        "whole": {"type": "string", "enum": ["true", "false"], "description": "The file is one text."},
                    },
                }
            }
        },
    }
}

router = APIRouter(tags=["indexes"], responses=ERRORS)


def shelf_of(request: Request) -> Shelf:
    """The indexes; an error while they are being opened."""
    rooms_of(request)
    shelf: Shelf = request.app.state.shelf
    return shelf


def need_write(request: Request) -> None:
    """Raise unless the caller may change documents."""
    if request.state.caller.role != "write":
        raise Forbidden("this key may read, not write: use one with the role write", code="read_only_key")


# --- searching -------------------------------------------------------------------------------------------------------


@router.get("/indexes", response_model=list[IndexBody], response_model_exclude_none=True, summary="All indexes")
async def indexes(request: Request) -> Any:
    """The indexes of this service, with the fields that they can be filtered by."""
    shelf = shelf_of(request)
    return await shelf.searches.run(lambda: [shelved.describe() for shelved in shelf.all()])


@router.post("/search", response_model=SearchAnswer, summary="Search an index")
async def search(request: Request, response: Response, body: SearchRequest) -> Any:
    """Documents for a query: by meaning, by words or both; then, where asked for, in the order of a cross-encoder."""
    shelved = shelf_of(request).get(body.index)
    _check_query(request, body.query)
    query = SearchQuery(
        body.query,
        body.k,
        body.mode or shelved.index.usual_mode(),
        _reranker(request, body),
        body.candidates,
        _budget(request, body),
        body.filter,
        body.sentences,
    )
    found = await while_connected(request, _searcher(request).search(shelved, query))
    return _answer(request, response, shelved, found)


@router.post("/indexes/{name}/more-like", response_model=SearchAnswer, summary="Documents like another")
async def more_like(request: Request, response: Response, name: str, body: MoreLikeRequest) -> Any:
    """The documents nearest to one of the index, without itself."""
    shelved = shelf_of(request).get(name)
    await _document(request, shelved, str(body.id))
    like = Like(
        str(body.id),
        body.k,
        _reranker(request, body),
        body.candidates,
        _budget(request, body),
        body.filter,
        body.sentences,
    )
    found = await while_connected(request, _searcher(request).more_like(shelved, like))
    return _answer(request, response, shelved, found)


def _searcher(request: Request) -> Searcher:
    return Searcher(shelf_of(request).searches, limits_of(request).deadline_s)


def _check_query(request: Request, query: str) -> None:
    most = limits_of(request).query_characters
    if len(query) > most:
        raise TooLarge(
            f"a query may have {most:,} characters, got {len(query):,}",
            limit="query_characters",
            param="query",
            code="query_too_long",
        )
    if not query.strip():
        raise Empty("the query is empty: give a text to search for", param="query")


def _reranker(request: Request, body: Asked) -> RerankRoom | None:
    """The cross-encoder that was asked for; without a word about it, the first one there is."""
    most = limits_of(request).k
    for name in ("k", "candidates"):
        if (getattr(body, name) or 1) > most:
            raise Invalid(f"{name} must be 1..{most:,} in this service, got {getattr(body, name):,}", param=name)
    rooms = rooms_of(request)
    if body.rerank is False or (body.rerank is None and not rooms.rerankers):
        return None
    if not rooms.rerankers:
        raise Invalid(
            "this service has no cross-encoder: ask without rerank, or start it with --reranker", param="rerank"
        )
    return rooms.reranker(body.reranker)


def _budget(request: Request, body: Asked) -> float | None:
    """Seconds for the reranker, unless the request says how many hits it reads."""
    return limits_of(request).rerank_budget if body.candidates is None else None


def _answer(request: Request, response: Response, shelved: Shelved, found: Found) -> dict[str, Any]:
    results = found.results
    request.app.state.metrics.searched(found.seconds)
    tell(request, index=shelved.name, hits=len(results), truncated=found.truncated)
    response.headers["X-Truncated"] = str(found.truncated)
    return {
        "hits": [
            {
                "id": hit.id,
                "text": hit.text,
                "metadata": dict(hit.metadata),
                "passage": asdict(hit.passage),
                "sentence": None if span is None else asdict(span),
                "score": hit.score,
                "stages": [asdict(stage) for stage in hit.stages],
                "moved": hit.moved,
            }
            for hit, span in zip(results, found.sentences, strict=True)
        ],
        "timings": {name: round(seconds * 1000, 3) for name, seconds in found.seconds.items()},
        "mode": results.mode,
        "answered": results.answered,
        "scored": results.scored,
        "truncated": found.truncated,
        "index": shelved.name,
        "request_id": request.state.request_id,
    }


# --- documents -------------------------------------------------------------------------------------------------------


async def _document(request: Request, shelved: Shelved, id: str) -> DocumentBody:
    def find() -> DocumentBody | None:
        if id not in shelved.index:
            return None
        document = shelved.index.get(id)
        return DocumentBody(id=document.id, text=document.text, metadata=dict(document.metadata))

    found = await shelf_of(request).searches.run(find)
    if found is None:
        raise NotFound(f"there is no document {id[:200]!r} in the index {shelved.name!r}", param="id")
    return found


@router.get("/documents/{index}", response_model=DocumentBody, summary="A document by any id")
async def get_by_query(request: Request, index: str, id: str) -> Any:
    """The document of that id, which may be any text: '.', 'a/b', '%2F', a line break."""
    return await _document(request, shelf_of(request).get(index), id)


@router.get("/documents/{index}/{id:path}", response_model=DocumentBody, summary="A document")
async def get_document(request: Request, index: str, id: str) -> Any:
    """Short for `/documents/{index}?id=`, for ids that a path can hold: slashes, but no '.', '..' or line breaks."""
    return await _document(request, shelf_of(request).get(index), id)


@router.post(
    "/documents/{index}", response_model=AddAnswer, dependencies=[Depends(need_write)], summary="Add documents"
)
async def add_documents(request: Request, index: str, body: AddRequest) -> Any:
    """Add documents, or replace those of the same ids. When the answer comes they are on the disk: all, or none."""
    shelved = shelf_of(request).get(index)
    if not body.documents:
        raise Empty("there are no documents in the request: give at least one", param="documents")
    check_count(len(body.documents), limits_of(request).batch, "documents")
    report = await shelved.add([one.model_dump(exclude_none=True) for one in body.documents])
    request.app.state.metrics.wrote(shelved.name, report.added + report.replaced)
    tell(request, index=shelved.name, added=report.added, replaced=report.replaced, truncated=report.truncated)
    return asdict(report)


@router.post(
    "/documents/{index}/file",
    dependencies=[Depends(need_write)],
    openapi_extra=_FORM,
    summary="Add the documents of a file",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "News, then the report or an error"}},
)
async def add_file(request: Request, index: str) -> StreamingResponse:
    """Lines of JSON: {"read": n}, then {"encoded": n, "of": m}, and last {"report": ...} or {"error": ...}."""
    shelved = shelf_of(request).get(index)
    upload = await receive(request)
    metrics = request.app.state.metrics

    async def lines() -> AsyncIterator[bytes]:
        async for news in added(shelved, upload, request.state.request_id):
            if "report" in news:
                metrics.wrote(shelved.name, news["report"]["added"] + news["report"]["replaced"])
            yield json.dumps(news, ensure_ascii=False).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


@router.delete(
    "/documents/{index}",
    response_model=DeleteAnswer,
    dependencies=[Depends(need_write)],
    summary="Delete documents by any ids",
)
async def delete_by_query(request: Request, index: str, id: Annotated[list[str], Query(min_length=1)]) -> Any:
    """Delete the documents of these ids, all at once; says how many of them were there."""
    check_count(len(id), limits_of(request).batch, "ids")
    return await _delete(request, shelf_of(request).get(index), id)


@router.delete(
    "/documents/{index}/{id:path}",
    response_model=DeleteAnswer,
    dependencies=[Depends(need_write)],
    summary="Delete a document",
)
async def delete_document(request: Request, index: str, id: str) -> Any:
    """Delete the document of that id; when the answer comes it is gone from the disk."""
    shelved = shelf_of(request).get(index)
    answer = await _delete(request, shelved, [id])
    if not answer["deleted"]:
        raise NotFound(f"there is no document {id[:200]!r} in the index {shelved.name!r}", param="id")
    return answer


async def _delete(request: Request, shelved: Shelved, ids: list[str]) -> dict[str, int]:
    deleted = await shelved.delete(list(dict.fromkeys(ids)))
    request.app.state.metrics.wrote(shelved.name, deleted)
    tell(request, index=shelved.name, deleted=deleted)
    return {"deleted": deleted}


# --- the map ---------------------------------------------------------------------------------------------------------


@router.get(
    "/indexes/{name}/map",
    response_model=MapAnswer,
    responses={202: {"model": MapBuilding, "description": "It is being made: ask again"}},
    summary="The documents of an index in the plane",
)
async def index_map(request: Request, name: str) -> Any:
    """Points that lie near each other where documents are alike. The first question has the map made."""
    shelf = shelf_of(request)
    shelved = shelf.get(name)
    maps = request.app.state.maps
    found = await shelf.searches.run(lambda: maps.of(shelved))
    if isinstance(found, Building):
        return JSONResponse(
            {"state": "building", "progress": round(found.progress, 3), "stage": found.stage},
            status_code=202,
            headers={"Retry-After": "1"},
        )
    # Written here: checking hundreds of thousands of values against a schema would take longer than sending them.
    body = await shelf.searches.run(lambda: json.dumps({**asdict(found), "index": name}, ensure_ascii=False).encode())
    return Response(body, media_type="application/json")


@router.post("/indexes/{name}/place", response_model=PlaceAnswer, summary="Where a query stands on the map")
async def place(request: Request, name: str, body: PlaceRequest) -> Any:
    """The mean of the places of the documents nearest to the query."""
    shelf = shelf_of(request)
    shelved = shelf.get(name)
    _check_query(request, body.query)
    maps = request.app.state.maps
    found = await shelf.searches.run(lambda: maps.of(shelved))
    if isinstance(found, Building):
        raise NotFound("the map is not there yet: ask for /map until it is")
    k = 8 if found.documents == len(found.ids) else _NEAR
    query = SearchQuery(body.query, k, sentences=False)
    near = await while_connected(request, _searcher(request).search(shelved, query))
    x, y = found.place(near.results.ids, [hit.score for hit in near.results])
    return {"x": x, "y": y}
