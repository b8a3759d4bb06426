"""The bodies of text-embeddings-inference (TEI), as its clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictInt, StrictStr, Tag

from munjang.serve.schemas import Items
from munjang.serve.schemas_cohere import RerankDocuments
from munjang.serve.schemas_openai import Texts

Direction = Literal["left", "right", "Left", "Right"]


class Inputs(BaseModel):
    """What every request of this family may hold."""

    model: str | None = Field(None, description="Not in TEI, which has one model: a name; by default the first.")
    truncate: bool | None = Field(
        None, description="false: refuse texts that are longer than the model reads. By default they are cut."
    )
    truncation_direction: Direction | None = Field(None, description="Must be the side that the model itself cuts.")


class EmbedRequest(Inputs):
    """Texts to be encoded."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": ["비가 온다.", "It is raining."]}]})

    inputs: Texts
    normalize: bool = Field(True, description="Vectors of unit length.")
    prompt_name: str | None = Field(None, description="One of the model's prompts.")
    dimensions: Annotated[int, Field(ge=1)] | None = None


class EmbedAllRequest(Inputs):
    """Texts whose tokens are to be encoded."""

    inputs: Texts
    prompt_name: str | None = None


class EmbedSparseRequest(Inputs):
    """Refused: the models here make dense vectors."""

    inputs: Texts


class RerankTexts(Inputs):
    """A query, and the texts that are to be put in order."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "비 오는 날", "texts": ["비가 온다.", "Bread is baked at dawn."]}]}
    )

    query: StrictStr
    texts: Items[StrictStr]
    raw_scores: bool = Field(False, description="The model's bare outputs.")
    return_text: bool = False


def _shape(body: Any) -> str:
    """Which of the two shapes of /rerank a body has, by its fields."""
    if isinstance(body, RerankTexts):
        return "TEI"
    return "TEI" if isinstance(body, dict) and "texts" in body and "documents" not in body else "Cohere"


RerankBody = Annotated[
    Annotated[RerankTexts, Tag("TEI")] | Annotated[RerankDocuments, Tag("Cohere")], Discriminator(_shape)
]


class Rank(BaseModel):
    """One text's place and score."""

    index: int
    score: float
    text: str | None = None


class PredictRequest(Inputs):
    """Pairs to be classified: one, as [a, b], or a list of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": [["비가 온다.", "It is raining."]]}]})

    inputs: StrictStr | Items[StrictStr] | Items[Items[StrictStr]]
    raw_scores: bool = False


class Prediction(BaseModel):
    """A label and its score."""

    label: str
    score: float


class TokenizeRequest(BaseModel):
    """Texts to be cut into tokens."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "비가 온다."}]})

    inputs: StrictStr | Items[StrictStr]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


class Token(BaseModel):
    """One token and where it stands in its text."""

    id: int
    text: str
    special: bool
    start: int | None = Field(description="Characters; null for special tokens.")
    stop: int | None


class DecodeRequest(BaseModel):
    """Token ids to be made texts."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [101, 2009, 2003, 102]}]})

    ids: Items[StrictInt] | Items[Items[StrictInt]]
    skip_special_tokens: bool = True
    model: str | None = None


class SimilarityInputs(BaseModel):
    """One sentence, and those that it is compared with."""

    source_sentence: StrictStr
    sentences: Items[StrictStr]


class SimilarityParameters(BaseModel):
    """How the sentences are encoded."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class SimilarityRequest(BaseModel):
    """TEI's shape of /similarity."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters = SimilarityParameters()
    model: str | None = None
