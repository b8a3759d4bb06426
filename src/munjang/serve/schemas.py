"""What the bodies of all requests share: lists and objects whose errors cost no more than their size.

pydantic collects an error for every wrong item and every unknown field: a body of 8 MB can hold millions, which take
minutes and gigabytes. A list stops at its first wrong item, and an object with many unknown fields is one error.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from munjang.errors import brief

Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]

_MOST_UNKNOWN = 20  # fields, of which each is told


class Body(BaseModel):
    """A body that may hold the fields it names and no others."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_fields(cls, given: Any) -> Any:
        """Refuse many unknown fields at once."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + _MOST_UNKNOWN:
            unknown = next(name for name in given if name not in cls.model_fields)
            raise PydanticCustomError(
                "extra_forbidden",
                "Expected the fields {known}, got {count} fields, among them {unknown}",
                {"known": ", ".join(cls.model_fields), "count": f"{len(given):,}", "unknown": brief(unknown)},
            )
        return given
