"""How an index is laid out: chosen when it is created, stored with it, the same for its whole life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from munjang.errors import InputError

VectorKind = Literal["float32", "int8", "binary"]


@dataclass(frozen=True)
class IndexOptions:
    """vectors: how they are kept; int8 and binary are rescored. chunk_tokens: tokens of a passage, special ones
    included; None is three quarters of what the model reads, at most 256, which leaves a reranker room for the query.
    stride: tokens from one passage of a document to the next; None is half a passage. exact_up_to: up to this number
    of passages every search is exact. title: the metadata field whose text is searched and embedded with each passage
    of its document, where a document has it; None: no field.
    """

    vectors: VectorKind = "float32"
    chunk_tokens: int | None = None
    stride: int | None = None
    keyword: bool = True  # whether mode "keyword" and "hybrid" are possible
    exact_up_to: int = 200_000
    title: str | None = "title"

    def __post_init__(self) -> None:
        if self.vectors not in get_args(VectorKind):
            raise InputError(f"vectors must be one of {', '.join(get_args(VectorKind))}, got {self.vectors!r}")
        if not isinstance(self.keyword, bool):
            raise InputError(f"keyword must be True or False, got {self.keyword!r}")
        if self.title is not None and (not isinstance(self.title, str) or not self.title.strip()):
            raise InputError(f"title must be the name of a field, or None, got {self.title!r}")
        for name in ("chunk_tokens", "stride", "exact_up_to"):
            value, least = getattr(self, name), 0 if name == "exact_up_to" else 1
            if value is None and name != "exact_up_to":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> IndexOptions:
        """Read stored options. Indexes that were made before titles were searched go on without."""
        return cls(**{"title": None, **stored})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
