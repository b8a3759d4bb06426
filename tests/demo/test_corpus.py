"""The sample corpus: what it promises to whoever searches, filters or mines it."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from importlib import resources
from typing import Any

import pytest

from munjang import demo
from munjang.demo import corpus

DOCUMENTS = demo.documents()
BY_ID = {document["id"]: document for document in DOCUMENTS}
HANGUL = re.compile("[가-힣]")


def of(language: str) -> list[dict[str, Any]]:
    return [document for document in DOCUMENTS if document["language"] == language]


def test_there_are_enough_and_none_twice() -> None:
    assert len(DOCUMENTS) >= 640
    for field in ("id", "text"):
        counts = Counter(document[field] for document in DOCUMENTS)
        assert [value for value, count in counts.items() if count > 1] == []
    titles = Counter((document["title"], document["category"]) for document in DOCUMENTS)
    assert max(titles.values()) == 1


def test_about_three_fifths_are_korean_in_every_category() -> None:
    assert {document["language"] for document in DOCUMENTS} == {"ko", "en"}
    assert 0.55 <= len(of("ko")) / len(DOCUMENTS) <= 0.65
    categories = Counter(document["category"] for document in DOCUMENTS)
    assert 10 <= len(categories) <= 14
    assert min(categories.values()) >= 40
    for category in categories:
        korean = sum(document["category"] == category for document in of("ko"))
        assert 0.5 <= korean / categories[category] <= 0.7, category


def test_texts_are_in_the_language_that_they_claim() -> None:
    for document in of("ko"):
        letters = [c for c in document["text"] if c.isalpha()]
        assert sum(bool(HANGUL.match(c)) for c in letters) >= 0.95 * len(letters), document["id"]
        assert HANGUL.search(document["title"]), document["id"]
    for document in of("en"):
        assert not HANGUL.search(document["text"] + document["title"]), document["id"]


def test_passages_are_short_and_whole() -> None:
    for document in DOCUMENTS:
        text = document["text"]
        assert 30 <= len(text) <= 320, document["id"]
        assert text == text.strip(), document["id"]
        assert text == unicodedata.normalize("NFC", text), document["id"]
        assert text[-1] in ".?!", document["id"]
        assert 1 <= len(re.findall(r"[.?!](?=\s|$)", text)) <= 4, document["id"]
        assert "  " not in text, document["id"]
        assert "\n" not in text, document["id"]
        assert 2 <= len(document["title"]) <= 60, document["id"]


def test_dates_are_days_of_the_years_that_were_promised() -> None:
    for document in DOCUMENTS:
        day = datetime.date.fromisoformat(document["date"])
        assert datetime.date(2023, 1, 1) <= day <= datetime.date(2026, 10, 31), document["id"]
        assert document["year"] == day.year
    months = {document["date"][:7] for document in DOCUMENTS}
    assert len(months) == 46  # none is empty


def test_ids_tell_category_and_language() -> None:
    for document in DOCUMENTS:
        category, language, _ = document["id"].split("-")
        assert document["category"].endswith("/" + category)
        assert document["language"] == language
    assert corpus.FIRST in BY_ID


def test_no_passage_is_filled_into_a_template() -> None:
    """Passages that do not say the same do not begin with the same words either."""
    together = {frozenset(pair) for ids in demo.groups().values() for pair in itertools.combinations(ids, 2)}
    starts: dict[str, list[str]] = {}
    for document in DOCUMENTS:
        starts.setdefault(document["text"][: 14 if document["language"] == "ko" else 25], []).append(document["id"])
    alike = [pair for ids in starts.values() for pair in itertools.combinations(ids, 2)]
    assert [pair for pair in alike if frozenset(pair) not in together] == []


def test_groups_say_the_same_in_one_language_or_in_both() -> None:
    groups = demo.groups()
    assert len(groups) >= 60
    assert all(2 <= len(ids) <= 4 for ids in groups.values())
    members = list(itertools.chain.from_iterable(groups.values()))
    assert len(members) == len(set(members))
    assert set(members) <= set(BY_ID)
    languages = [Counter(BY_ID[key]["language"] for key in ids) for ids in groups.values()]
    assert sum(len(found) == 2 for found in languages) >= 40  # free translations
    assert sum(found["ko"] >= 2 for found in languages) >= 20
    assert sum(found["en"] >= 2 for found in languages) >= 10
    assert {len(ids) for ids in groups.values()} >= {2, 3, 4}


def test_groups_are_kept_out_of_the_documents() -> None:
    fields = {"id", "text", "title", "category", "language", "date", "year"}
    assert all(set(document) == fields for document in DOCUMENTS)


def test_passages_that_say_the_same_share_more_words_than_others() -> None:
    """Within a language; a check on the groups that needs no model."""

    def pieces(key: str) -> set[str]:
        text = re.sub(r"\W+", " ", BY_ID[key]["text"].lower())
        return {text[place : place + 3] for place in range(len(text) - 2)}

    def overlap(a: str, b: str) -> float:
        first, second = pieces(a), pieces(b)
        return len(first & second) / len(first | second)

    pairs = [
        (a, b)
        for ids in demo.groups().values()
        for a, b in itertools.combinations(ids, 2)
        if BY_ID[a]["language"] == BY_ID[b]["language"]
    ]
    same = [overlap(a, b) for a, b in pairs]
    others = [overlap(a, pairs[place - 1][1]) for place, (a, _) in enumerate(pairs)]
    assert sum(same) / len(same) > 5 * sum(others) / len(others)


def test_the_files_are_utf8_json_lines_in_the_package() -> None:
    folder = resources.files("munjang.demo") / "corpus"
    names = {entry.name for entry in folder.iterdir()}
    assert names == {f"{name}.jsonl" for name in corpus.CATEGORIES} | {"groups.json"}
    lines = [line for name in corpus.CATEGORIES for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
    assert len([json.loads(line) for line in lines]) == len(DOCUMENTS)
    assert "\\u" not in "".join(lines)  # readable as it stands


def test_documents_are_the_callers_own() -> None:
    demo.documents()[0]["text"] = "changed"
    assert demo.documents() == DOCUMENTS


def test_examples_are_in_both_languages() -> None:
    assert len(corpus.EXAMPLES) == 3
    assert {bool(HANGUL.search(query)) for query in corpus.EXAMPLES} == {True, False}


def test_the_digest_tells_every_change() -> None:
    digest = corpus.digest(DOCUMENTS)
    assert digest == corpus.digest(iter(demo.documents()))
    changed = [dict(document) for document in DOCUMENTS]
    changed[-1]["title"] += "."
    assert len({digest, corpus.digest(changed), corpus.digest(DOCUMENTS[::-1]), corpus.digest(DOCUMENTS[:-1])}) == 4


@pytest.mark.parametrize("module", ["torch", "fastapi", "sqlite3"])
def test_importing_it_is_light(module: str) -> None:
    code = f"import munjang.demo, sys; munjang.demo.documents(); sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
