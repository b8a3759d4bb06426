"""Comparing and grouping texts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from munjang import vectors
from munjang.errors import InputError
from munjang.serve.asking import check_items, device_of, limits_of, respond, rooms_of, while_connected, wish_of
from munjang.serve.errors import Invalid
from munjang.serve.indexes import Shelf
from munjang.serve.limits import check_count
from munjang.serve.logs import tell
from munjang.serve.routes_index import ERRORS, shelf_of
from munjang.serve.routes_tei import tei_similarity
from munjang.serve.schemas_tei import SimilarityRequest
from munjang.serve.schemas_tools import ClusterAnswer, ClusterRequest, CompareAnswer, CompareRequest, SimilarityBody
from munjang.tasks.cluster import Cluster, Clustering, ClusterOptions, cluster

_MOST_AGGLOMERATIVE = 5000  # it holds all distances: 200 MB

router = APIRouter(tags=["tools"], responses=ERRORS)


@router.post("/similarity", response_model=CompareAnswer | list[float], summary="How alike texts are")
async def similarity(request: Request, body: SimilarityBody) -> Response:
    """Every text of `a` against every one of `b`, or of `a`. TEI's body, with `inputs`, is answered as TEI does."""
    if isinstance(body, SimilarityRequest):
        return await tei_similarity(request, body)
    return await _compare(request, body)


async def _compare(request: Request, body: CompareRequest) -> Response:
    started = time.perf_counter()
    room = rooms_of(request).bi(body.model)
    others = body.b if body.b is not None else []
    check_items(request, len(body.a) + len(others))
    if not body.a or body.b == []:
        raise Invalid("both lists need at least one text", param="a" if not body.a else "b")
    answer = await while_connected(request, room.embed([*body.a, *others], wish=wish_of(request)))

    def make() -> dict[str, Any]:
        a, b = answer.values[: len(body.a)], answer.values[len(body.a) :]
        scores = vectors.similarity(a, b if body.b is not None else a, room.model.similarity_name)
        return {
            "scores": np.asarray(scores, np.float64).round(6).tolist(),
            "unrelated": round(room.scale.unrelated, 6),
            "same": round(room.scale.same, 6),
            "truncated": answer.truncated,
        }

    return await respond(request, answer, make, device=device_of(room), started=started)


@router.post("/cluster", response_model=ClusterAnswer, summary="Texts that belong together")
async def clusters(request: Request, body: ClusterRequest) -> Any:
    """Group texts, or the documents of an index; each group has its words and a text that stands for it."""
    if body.texts is not None and body.index is not None:
        raise Invalid("give texts or an index, not both")
    shelf = shelf_of(request)
    texts, ids, rows, truncated = await _rows(request, body, shelf)
    if body.method == "agglomerative":
        check_count(len(rows), _MOST_AGGLOMERATIVE, "texts for method 'agglomerative'", None)
    if body.k is not None and body.k > len(rows):
        raise Invalid(f"k must be 1..{len(rows):,} (the texts), got {body.k:,}", param="k")

    def group() -> Clustering:
        return cluster(
            rows,
            method=body.method,
            k=body.k,
            threshold=_threshold(request, body),
            min_size=body.min_size,
            options=ClusterOptions(texts=texts),
        )

    found = await while_connected(request, shelf.heavy.run(group))
    tell(request, texts=len(rows), clusters=len(found), truncated=truncated)
    return {
        "clusters": [_cluster(one, texts, ids) for one in found],
        "method": found.method,
        "threshold": found.threshold,
        "texts": len(rows),
        "unassigned": int((found.labels < 0).sum()),
        "truncated": truncated,
    }


def _cluster(one: Cluster, texts: list[str], ids: list[str] | None) -> dict[str, Any]:
    """A cluster whose members are ids of documents, or places in the list of texts."""
    middle = one.representative.index
    return {
        "number": one.number,
        "size": one.size,
        "keywords": list(one.keywords),
        "representative": {"id": middle if ids is None else ids[middle], "text": texts[middle]},
        "members": one.members.tolist() if ids is None else [ids[place] for place in one.members.tolist()],
        "cohesion": one.cohesion,
    }


async def _rows(
    request: Request, body: ClusterRequest, shelf: Shelf
) -> tuple[list[str], list[str] | None, np.ndarray[Any, Any], int]:
    """Texts, ids where they are an index's, vectors [n, d], and how many texts were cut."""
    most = limits_of(request).cluster_texts
    if body.texts is not None:
        room = rooms_of(request).bi(body.model)
        check_items(request, len(body.texts))
        answer = await while_connected(request, room.embed_document(body.texts, wish=wish_of(request, "bulk")))
        return body.texts, None, answer.values, answer.truncated
    shelved = shelf.get(body.index)
    check_count(body.limit, most, "documents to be grouped (limit)", "cluster_texts")
    sample = await shelf.heavy.run(lambda: shelved.index.sample(body.limit))
    if not len(sample):
        raise InputError(f"the index {shelved.name!r} has no documents with words: add some")
    return sample.texts, sample.ids, sample.vectors, 0


def _threshold(request: Request, body: ClusterRequest) -> float | None:
    """The one that was given, or that the model was measured for: `cluster` sees vectors only."""
    needs = body.method == "communities" or (body.method == "agglomerative" and body.k is None)
    if body.threshold is not None or not needs:
        return body.threshold
    room = rooms_of(request).bi(body.model) if body.texts is not None else shelf_of(request).get(body.index).room
    measured = room.model.thresholds.get("cluster")
    if measured is None:
        raise Invalid(
            f"the model {room.name!r} was not measured for clustering: give a threshold (a cosine; what "
            "separates groups differs from model to model)",
            param="threshold",
        )
    return measured.value
