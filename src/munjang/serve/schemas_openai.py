"""The bodies of OpenAI's embeddings API, as its clients send and read them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from munjang.serve.schemas import Items

Texts = StrictStr | Items[StrictStr] | Items[StrictInt] | Items[Items[StrictInt]]


class EmbeddingRequest(BaseModel):
    """Texts, or token ids of the model's own vocabulary, to be encoded."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": ["비가 온다.", "It is raining."], "encoding_format": "float"}]}
    )

    input: Texts = Field(description="A text, a list of texts, or token ids (one list, or a list of lists).")
    model: str | None = Field(None, description="A name out of /v1/models; by default the first.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Only the first so many values, made unit length again (Matryoshka models)."
    )
    user: str | None = Field(None, description="Accepted and not used.")
    input_type: Literal["query", "document", "passage"] | None = Field(
        None, description="Not in OpenAI's API: use the model's prompt for queries or documents, where it has one."
    )


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str = Field(description="Numbers, or base64 of little-endian float32.")


class Usage(BaseModel):
    """What a request took."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(BaseModel):
    """The vectors, in the order of the input."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage
    truncated: int = Field(description="Not in OpenAI's API: how many inputs were longer than the model reads.")


class Model(BaseModel):
    """A model of the service."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When the service was started, in seconds since 1970.")
    owned_by: str = "munjang"


class ModelList(BaseModel):
    """Every model of the service."""

    object: Literal["list"] = "list"
    data: list[Model]
