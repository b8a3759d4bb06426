"""The sample corpus: jsonl files in this package -> documents for an index.

    corpus/NAME.jsonl     one category each; a line has id, title, text, category, language, date
    corpus/groups.json    which passages say the same: group -> ids, kept out of the index

Written for this package: everyday subjects in Korean and English, themes that overlap, passages that say the same in
other words or in the other language. So a search has near misses for a reranker to sort, and mining has pairs to find.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CATEGORIES = (
    "food",
    "travel",
    "health",
    "home",
    "money",
    "pets",
    "sport",
    "weather",
    "work",
    "school",
    "tech",
    "culture",
    "garden",
    "transport",
)  # the files, in the order in which they are read
EXAMPLES = (
    "삶은 달걀 껍데기가 잘 안 까져요",
    "My dog ate chocolate. Is it dangerous?",
    "전기차는 밤에 충전하는 게 좋은가요?",
)  # queries whose answers are in the corpus, in both languages

FIRST = "food-ko-01"  # an id that tells the sample from other documents

_FOLDER = Path(__file__).parent / "corpus"


def documents() -> list[dict[str, Any]]:
    """All passages: id, text, title, category, language ("ko", "en"), date (as 2025-03-14) and year (a number)."""
    return [_document(json.loads(line)) for name in CATEGORIES for line in _lines(name)]


def groups() -> dict[str, list[str]]:
    """Passages that say the same, in one language or in both: name of the group -> ids of 2 to 4 documents."""
    found: dict[str, list[str]] = json.loads((_FOLDER / "groups.json").read_text(encoding="utf-8"))
    return found


def digest(documents: Iterable[Mapping[str, Any]]) -> str:
    """A hash of documents, in their order; a stream of any length passes through."""
    total = hashlib.sha256()
    for document in documents:
        total.update(json.dumps(document, ensure_ascii=False, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


def _lines(name: str) -> list[str]:
    return (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


def _document(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "year": int(row["date"][:4])}
