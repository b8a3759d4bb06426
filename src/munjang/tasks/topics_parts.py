"""One topic, its texts, and what assigning a text to a topic gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.tasks.class_tfidf import Word

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Representative:
    """A text that lies near the middle of its topic."""

    row: int
    text: str
    similarity: float  # cosine with the topic's vector


@dataclass(frozen=True)
class Topic:
    """One topic."""

    number: int
    size: int  # texts
    words: tuple[Word, ...]  # heaviest first
    representatives: tuple[Representative, ...]  # nearest first

    @property
    def name(self) -> str:
        """The first three words; without any, the number."""
        return ", ".join(word.text for word in self.words[:3]) or f"topic {self.number}"

    def as_dict(self) -> dict[str, object]:
        """Fit for JSON."""
        return {
            "number": self.number,
            "name": self.name,
            "size": self.size,
            "words": [[word.text, word.weight] for word in self.words],
            "representatives": [[one.row, one.text, one.similarity] for one in self.representatives],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Topic:
        return cls(
            int(saved["number"]),
            int(saved["size"]),
            tuple(Word(str(text), float(weight)) for text, weight in saved["words"]),
            tuple(Representative(int(row), str(text), float(near)) for row, text, near in saved["representatives"]),
        )


@dataclass(frozen=True)
class Assigned:
    """Which topics texts belong to."""

    topics: Array  # int64 [n], -1 for none
    similarities: Array  # float32 [n], cosines with the nearest topic's vector
