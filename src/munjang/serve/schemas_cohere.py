"""The bodies of Cohere's rerank API (v1 and v2), and of the many that follow it (Jina, infinity)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from munjang.serve.schemas import Items

_EXAMPLE: dict[str, Any] = {
    "query": "비 오는 날 뭐 하지?",
    "documents": ["비가 오면 박물관에 간다.", "Bread is baked at dawn."],
    "top_n": 1,
}


class RerankDocuments(BaseModel):
    """A query, and the documents that are to be put in order."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    query: StrictStr
    documents: Items[StrictStr | dict[str, Any]] = Field(description="Texts, or objects with a `text`.")
    model: str | None = Field(None, description="A cross-encoder's name; by default the first.")
    top_n: Annotated[int, Field(ge=1)] | None = Field(None, description="Only the best so many.")
    return_documents: bool = Field(False, description="Give the documents back with their scores.")
    max_tokens_per_doc: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Cut every document after so many tokens, before the model's own limit cuts the pair."
    )
    rank_fields: Items[str] | None = Field(
        None, description="Of documents that are objects: the fields that are read, in this order (Cohere v1)."
    )


class ReturnedDocument(BaseModel):
    """A document as it came; of an object all its fields."""

    model_config = ConfigDict(extra="allow")

    text: str | None = None


class RerankResult(BaseModel):
    """One document's place and score."""

    index: int = Field(description="Its place in the request.")
    relevance_score: float
    document: ReturnedDocument | None = None


class RerankResponse(BaseModel):
    """The best documents, the best first."""

    id: str
    results: list[RerankResult]
    meta: dict[str, Any]


class RerankUsage(BaseModel):
    """What a request took."""

    prompt_tokens: int
    total_tokens: int


class PlainRerankResponse(BaseModel):
    """The same, in the shape of Jina and infinity."""

    object: str = "rerank"
    model: str
    results: list[RerankResult]
    usage: RerankUsage
    truncated: int = Field(description="Pairs that were longer than the model reads.")
