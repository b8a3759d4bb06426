"""Questions as people ask them over the sample corpus of `munjang demo`, with the ids of the passages that answer each.

everyday.jsonl has 440 in Korean and English, 160 of them without an answer there. They were written for Munjang; no
model learned from them. Questions made of sentences share words with their passages, and a reranker is surer of them
than of a person's question.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Question:
    query: str
    answers: frozenset[str]  # ids of passages


def read_questions() -> list[Question]:
    lines = Path(__file__).with_name("everyday.jsonl").read_text(encoding="utf-8").splitlines()
    return [Question(row["query"], frozenset(row["answers"])) for row in map(json.loads, lines)]
