"""The bodies of comparisons and clusterings, as clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, StrictInt, StrictStr, Tag

from munjang.serve.schemas import Body, Items
from munjang.serve.schemas_tei import SimilarityRequest

Method = Literal["kmeans", "communities", "agglomerative", "hdbscan"]


class CompareRequest(Body):
    """Texts to be compared with each other, or two lists with one another."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"a": ["비가 온다."], "b": ["It is raining.", "빵을 굽는다."]}]}
    )

    a: Items[StrictStr]
    b: Items[StrictStr] | None = None
    model: StrictStr | None = Field(None, description="The name of the bi-encoder; by default the first.")


class CompareAnswer(BaseModel):
    """How alike every text of `a` is to every one of `b`."""

    scores: list[list[float]]
    unrelated: float = Field(description="What the model gives unrelated texts, about: the lower end of its scale.")
    same: float = Field(description="What it gives equal texts: the upper end.")
    truncated: int


def _shape(body: Any) -> str:
    """Which of the two shapes of /similarity a body has."""
    if isinstance(body, SimilarityRequest):
        return "TEI"
    return "TEI" if isinstance(body, dict) and "inputs" in body else "ours"


SimilarityBody = Annotated[
    Annotated[CompareRequest, Tag("ours")] | Annotated[SimilarityRequest, Tag("TEI")], Discriminator(_shape)
]


class ClusterRequest(Body):
    """Texts, or an index, to be grouped."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"texts": ["비가 온다.", "It is raining.", "빵을 굽는다.", "Bread is baked."], "k": 2}]
        },
    )

    index: StrictStr | None = Field(
        None, description="The name of an index; by default the first, if there are no texts."
    )
    texts: Items[StrictStr] | None = None
    model: StrictStr | None = Field(None, description="Of texts: the bi-encoder; by default the first.")
    method: Method = "kmeans"
    k: Annotated[StrictInt, Field(ge=1)] | None = Field(None, description="How many; by default as many as fit best.")
    threshold: Annotated[FiniteFloat, Field(ge=-1, le=1)] | None = Field(None, description="A cosine.")
    min_size: Annotated[StrictInt, Field(ge=1)] | None = Field(None, description="Of communities and HDBSCAN.")
    limit: Annotated[StrictInt, Field(ge=1)] = Field(5000, description="Documents of an index, evenly chosen.")


class RepresentativeBody(BaseModel):
    """The text that stands for a cluster."""

    id: str | int
    text: str


class ClusterBody(BaseModel):
    """Texts that belong together."""

    number: int
    size: int
    keywords: list[str]
    representative: RepresentativeBody
    members: list[str] | list[int] = Field(description="Ids of documents, or places of texts.")
    cohesion: float


class ClusterAnswer(BaseModel):
    """The clusters, the largest first."""

    clusters: list[ClusterBody]
    method: Method
    threshold: float | None
    texts: int = Field(description="How many were grouped.")
    unassigned: int = Field(description="How many are in none.")
    truncated: int
