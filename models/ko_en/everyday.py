"""Questions as people ask them, over the sample corpus, with what answers each -> lists that calibrate the reranker.

    everyday.jsonl          one line each: query, answers (ids of passages; none: nothing in the corpus answers it)
    demo/corpus/*.jsonl     the passages, which are read as files: the package `demo` stands above this one

Both were written for Munjang, in Korean and English; no model learned from them. Questions that are made out of
sentences share their words, and a reranker is surer of them than of a person's question: calibrated by those, it would
call nearly every real answer doubtful.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import munjang.demo
from munjang.bi_encoder import BiEncoder
from munjang.data import Examples
from munjang.vectors import top_k

NAME = "Everyday questions"
_QUESTIONS = Path(__file__).with_name("everyday.jsonl")
_CORPUS = Path(munjang.demo.__file__).parent / "corpus"


@dataclass(frozen=True)
class Question:
    """A query and the ids of the passages that answer it."""

    query: str
    answers: frozenset[str]


def read_questions() -> list[Question]:
    """All of them, in their order."""
    rows = [json.loads(line) for line in _QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return [Question(row["query"], frozenset(row["answers"])) for row in rows]


def read_passages() -> dict[str, str]:
    """The texts of the sample corpus by their ids."""
    lines = [line for file in sorted(_CORPUS.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
    return {row["id"]: row["text"] for row in map(json.loads, lines)}


def everyday_lists(
    model: BiEncoder,
    candidates: int,
    *,
    questions: Sequence[Question] | None = None,
    passages: dict[str, str] | None = None,
) -> Examples:
    """Every question with the first `candidates` passages that the model finds, and with all that answer it: ranked."""
    questions = read_questions() if questions is None else questions
    passages = read_passages() if passages is None else passages
    names, texts = list(passages), list(passages.values())
    queries = [one.query for one in questions]
    near = top_k(model.encode(queries), model.encode(texts), min(candidates, len(texts))).indices.tolist()
    columns: dict[str, list[str]] = {"query": [], "document": []}
    relevant: list[float] = []
    groups: list[int] = []
    for row, (question, places) in enumerate(zip(questions, near, strict=True)):
        found = [names[place] for place in places]
        found += sorted(question.answers - set(found))  # the first search may have missed one
        columns["query"] += [question.query] * len(found)
        columns["document"] += [passages[name] for name in found]
        relevant += [float(name in question.answers) for name in found]
        groups += [row] * len(found)
    return Examples(NAME, "ranked", columns, np.array(relevant, np.float32), groups=np.array(groups))
