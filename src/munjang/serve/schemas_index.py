"""The bodies of searches and of documents, as clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from munjang.serve.schemas import Body, Items

Mode = Literal["semantic", "keyword", "hybrid"]
Filter = dict[str, Any] | StrictStr
Count = Annotated[StrictInt, Field(ge=1)]
MAX_FIELDS = 1000  # of a document
_FILTER = "A condition on metadata: an object such as {'year': {'>=': 2020}}, or a text such as 'year>=2020'."


class ErrorBody(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "k must be at least 1, got 0", "error_type": "validation"}]}
    )

    error: str
    error_type: str


class Asked(Body):
    """What both kinds of searches take."""

    k: Count = Field(10, description="How many hits.")
    rerank: StrictBool | None = Field(
        None, description="Let a cross-encoder put the best candidates in order; by default where there is one."
    )
    reranker: StrictStr | None = Field(None, description="The name of the cross-encoder; by default the first.")
    candidates: Count | None = Field(
        None,
        description="How many hits of the first stage the cross-encoder reads; by default as many as the service's "
        "rerank_budget allows, at least k.",
    )
    filter: Filter | None = Field(None, description=_FILTER)
    sentences: StrictBool = Field(True, description="Say which sentence of each passage is nearest to the query.")


class SearchRequest(Asked):
    """A query and where to look."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "환불은 어떻게 하나요?", "k": 5, "rerank": False},
                {"query": "how to get a refund", "mode": "hybrid", "filter": "year>=2020", "rerank": False},
            ]
        },
    )

    index: StrictStr | None = Field(None, description="The name of the index; by default the first.")
    query: StrictStr
    mode: Mode | None = Field(None, description="By default hybrid, or semantic where the index has no keywords.")


class MoreLikeRequest(Asked):
    """A document that others shall be like."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "42", "k": 5, "rerank": False}]})

    id: StrictStr | StrictInt


class PlaceRequest(Body):
    """A query to be put on the map."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "비 오는 날"}]})

    query: StrictStr


class Offsets(BaseModel):
    """A part of the document's text, in characters."""

    start: int
    end: int


class PassageBody(Offsets):
    """The passage that was found."""

    text: str


class StageBody(BaseModel):
    """The score of a hit in one stage."""

    name: Literal["semantic", "keyword", "hybrid", "rerank"]
    score: float
    rank: int
    normalized: float | None = Field(
        description="The score on one scale for all stages: 0 is no relation, 1 the most there can be."
    )


class HitBody(BaseModel):
    """A document that was found, by its best passage."""

    id: str
    text: str
    metadata: dict[str, Any]
    passage: PassageBody
    sentence: Offsets | None = Field(description="The sentence of the passage that is nearest to the query.")
    score: float = Field(
        description="Of the last stage. Of a reranked hit its probability; the order also heeds the first stage."
    )
    stages: list[StageBody]
    moved: int = Field(description="Places up (+) or down (-) by the reranker.")


class SearchAnswer(BaseModel):
    """The hits, best first."""

    hits: list[HitBody]
    timings: dict[str, float] = Field(description="Milliseconds by stage, and total.")
    mode: Mode
    answered: bool | None = Field(description="false: nothing here answers the query; null: the model cannot say.")
    scored: int = Field(description="Hits that the reranker read.")
    truncated: int = Field(description="Texts that were longer than a model reads, and were cut.")
    index: str
    request_id: str


class PlaceAnswer(BaseModel):
    """A point on the map."""

    x: float
    y: float


class FieldValue(BaseModel):
    """A value and how often it stands there."""

    value: str | bool
    count: int


class FieldBody(BaseModel):
    """A field of metadata."""

    name: str
    kind: Literal["text", "number", "bool"]
    count: int
    distinct: int | None = None
    values: list[FieldValue] | None = Field(None, description="The commonest.")
    min: int | float | str | None = Field(None, description="Of numbers, and of dates as texts.")
    max: int | float | str | None = None


class IndexBody(BaseModel):
    """An index and what it can be filtered by."""

    name: str
    documents: int
    passages: int
    model: str
    dimension: int
    generation: int
    keyword: bool
    fields: list[FieldBody]


class DocumentBody(BaseModel):
    """A document as it lies in the index."""

    id: str
    text: str
    metadata: dict[str, Any]


class NewDocument(BaseModel):
    """A document to be added; every other field is metadata."""

    model_config = ConfigDict(extra="allow")

    text: StrictStr
    id: StrictStr | StrictInt | None = None

    @model_validator(mode="before")
    @classmethod
    def check_fields(cls, given: Any) -> Any:
        """Refuse documents with more fields than an index should have columns."""
        if isinstance(given, dict) and len(given) > MAX_FIELDS:
            raise ValueError(f"a document may have {MAX_FIELDS:,} fields, got {len(given):,}")
        return given


class AddRequest(Body):
    """Documents to be added, or to replace those of the same ids."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"documents": [{"id": "1", "text": "비가 온다.", "year": 2024}, {"id": "2", "text": "It is raining."}]}
            ]
        },
    )

    documents: Items[NewDocument]


class AddAnswer(BaseModel):
    """What adding did; the documents are on the disk."""

    added: int
    replaced: int
    unchanged: int
    passages: int
    empty: int
    truncated: int
    seconds: float


class DeleteAnswer(BaseModel):
    """How many documents were deleted."""

    deleted: int


class MapAnswer(BaseModel):
    """The documents of an index in the plane."""

    points: list[list[float]]
    ids: list[str]
    texts: list[str]
    clusters: list[int] = Field(description="The cluster of each, -1 for none.")
    names: dict[str, str] = Field(description="Words of the clusters, by number.")
    method: str
    documents: int
    generation: int
    built_at: str
    stale: bool = Field(description="The index has changed since, and a new map is being made.")
    index: str


class MapBuilding(BaseModel):
    """A map that is being made: ask again."""

    state: Literal["building"] = "building"
    progress: float
    stage: str
