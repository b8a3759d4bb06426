"""Small sets that we wrote, Korean and English, and stand-ins of models whose answers can be told in advance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from munjang.data import Examples
from munjang.types import EncodeReport

PAIRS = [
    ("A man plays the guitar.", "Someone is playing a guitar.", 0.9),
    ("A man plays the guitar.", "A woman is cooking rice.", 0.1),
    ("The cat sleeps on the sofa.", "A cat is lying on a couch.", 0.8),
    ("The cat sleeps on the sofa.", "Stocks fell sharply today.", 0.0),
    ("It is raining in Seoul.", "서울에 비가 온다.", 0.7),
    ("기차가 늦게 도착했다.", "열차가 지연되었다.", 0.9),
    ("기차가 늦게 도착했다.", "저녁은 김치찌개다.", 0.2),
    ("Children play in the park.", "Kids are playing outside.", 0.7),
    ("Children play in the park.", "The bank raised its rates.", 0.0),
    ("He reads a book.", "He is reading a novel.", 0.6),
    ("He reads a book.", "He reads a book!", 1.0),
    ("The soup is too hot.", "The soup is very cold.", 0.4),
]
TOPICS = {
    "food": [
        "I cook rice every day.",
        "The soup tastes good.",
        "Fresh bread and butter.",
        "She baked a cake.",
        "We ate noodles for lunch.",
        "This restaurant serves fish.",
        "A recipe for tomato sauce.",
        "Hot coffee and tea.",
    ],
    "sport": [
        "The team won the match.",
        "He scored two goals.",
        "She runs a marathon.",
        "The player was injured.",
        "A tennis tournament in Paris.",
        "The coach praised his players.",
        "Basketball season begins.",
        "They swim every morning.",
    ],
    "money": [
        "The bank raised interest rates.",
        "Stocks fell today.",
        "The company made a profit.",
        "Taxes will increase.",
        "Investors bought shares.",
        "The economy is growing.",
        "Oil prices dropped.",
        "A loan for the new house.",
    ],
}


def scored(name: str = "our STS") -> Examples:
    a, b, scores = zip(*PAIRS, strict=True)
    return Examples(name, "scored", {"a": list(a), "b": list(b)}, np.array(scores, np.float32))


def labelled(name: str = "our pairs") -> Examples:
    a, b, scores = zip(*PAIRS, strict=True)
    labels = (np.array(scores) >= 0.6).astype(np.int64)
    return Examples(name, "labelled", {"a": list(a), "b": list(b)}, labels, ("different", "same"))


def topics(name: str = "our topics") -> Examples:
    texts = [text for some in TOPICS.values() for text in some]
    labels = np.repeat(np.arange(len(TOPICS)), [len(some) for some in TOPICS.values()])
    return Examples(name, "classified", {"text": texts}, labels, tuple(TOPICS))


@dataclass(frozen=True)
class Encoded:
    vectors: np.ndarray
    report: EncodeReport


@dataclass
class Stub:
    """A bi-encoder's shape: a text's vector is looked up, and every call is written down."""

    table: dict[str, Sequence[float]] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str | None, list[str]]] = field(default_factory=list)
    cut: int = 0  # how many texts each report says were cut
    dimension: int = 2
    similarity_name: str = "cosine"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    fingerprint: str = "stub"
    max_length: int = 5

    def encode_report(self, texts: Iterable[str], *, prompt_name: str | None = None) -> Encoded:
        texts = list(texts)
        self.calls.append((prompt_name, texts))
        rows = [self.table.get(text, (len(text), 1.0)) for text in texts]
        report = EncodeReport(len(texts), 0, min(self.cut, len(texts)), 9, 5, 0.0)
        return Encoded(np.array(rows, np.float32).reshape(len(texts), self.dimension), report)

    def encode(self, texts: Iterable[str]) -> np.ndarray:
        return self.encode_report(texts).vectors


@dataclass(frozen=True)
class Predicted:
    scores: np.ndarray
    report: EncodeReport


@dataclass
class CrossStub:
    """A cross-encoder's shape: a pair's answer is looked up."""

    table: dict[tuple[str, str], object] = field(default_factory=dict)
    labels: tuple[str, ...] = ("score",)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    fingerprint: str = "cross"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def predict_report(self, pairs: Sequence[tuple[str, str]]) -> Predicted:
        self.pairs.extend(pairs)
        rows = np.array([self.table.get(pair, len(pair[1]) / 100) for pair in pairs], np.float32)
        return Predicted(rows, EncodeReport(len(pairs), 0, 0, 0, 5, 0.0))

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return self.predict_report(pairs).scores
