"""`Subject`: the words that sentences about one matter are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """Any verb goes with any thing of the same subject."""

    people: list[str]
    verbs: list[str]
    things: list[str]
    adjectives: list[str]
    places: list[str]
