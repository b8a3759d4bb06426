"""Titles are searched and embedded with the text, and shown apart from it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from munjang import BiEncoder, Index, IndexOptions, TextCollection

NOTES: list[dict[str, object]] = [
    {"id": "lag", "title": "Getting over jet lag", "text": "Go to bed at the local time and walk in the morning."},
    {"id": "rice", "title": "밥 짓기", "text": "쌀을 씻어 삼십 분쯤 불린 다음 물을 맞추고 불을 켠다."},
    {"id": "plain", "text": "A note that has no title."},
    {"id": "odd", "title": 7, "text": "A title that is no text is metadata only."},
]


@pytest.fixture
def index(tmp_path: Path, model: BiEncoder) -> Index:
    index = Index.create(tmp_path / "index", model)
    index.add(NOTES)
    return index


def vector(index: Index, id: str) -> np.ndarray:
    return index.sample(100).vectors[index.sample(100).ids.index(id)]


def test_the_words_of_a_title_find_its_document(index: Index, model: BiEncoder) -> None:
    for found in (index.search("jet lag", 1, mode="keyword"), index.search('"jet lag"', 1, mode="keyword")):
        (hit,) = found
        assert (hit.id, hit.text, hit.passage.text) == ("lag", NOTES[0]["text"], NOTES[0]["text"])
        assert hit.metadata["title"] == "Getting over jet lag"
    assert TextCollection(NOTES, model).search("jet lag", 1, mode="keyword").ids == ["lag"]
    assert index.verify().ok


def test_a_title_is_embedded_above_each_passage(index: Index, model: BiEncoder) -> None:
    expected = model.encode_document(["Getting over jet lag\n" + str(NOTES[0]["text"]), str(NOTES[2]["text"])])
    np.testing.assert_allclose(vector(index, "lag"), expected[0], atol=1e-5)
    np.testing.assert_allclose(vector(index, "plain"), expected[1], atol=1e-5)
    ahead = index.passages_to_encode([{**NOTES[0], "id": "new"}, NOTES[1]])
    assert ahead == ["Getting over jet lag\n" + str(NOTES[0]["text"])]


def test_another_title_is_another_vector(index: Index) -> None:
    report = index.add([{**NOTES[0], "title": "Trains"}, {**NOTES[1], "year": 2026}])
    assert (report.replaced, report.passages) == (2, 1)
    assert index.search("jet", mode="keyword").ids == []
    assert index.search("trains", mode="keyword").ids == ["lag"]


def test_other_fields_and_none(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "named", model, options=IndexOptions(title="제목")) as index:
        index.add([{"id": 1, "제목": "jet lag", "title": "other", "text": "비"}])
        assert index.search("lag", mode="keyword").ids == ["1"]
        assert index.search("other", mode="keyword").ids == []
    with Index.create(tmp_path / "none", model, options=IndexOptions(title=None)) as index:
        index.add(NOTES)
        assert index.search("lag", mode="keyword").ids == []


def test_a_long_title_leaves_room_for_the_text(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model, options=IndexOptions(chunk_tokens=60)) as index:
        report = index.add([{"id": 1, "title": "제목 title " * 2, "text": "비가 온다 bread " * 40}])
        assert report.truncated == 0  # the passages became shorter
        assert index.add([{"id": 2, "title": "제목 title " * 80, "text": "비가 온다"}]).truncated == 0  # and this title
        assert index.verify().ok


def test_an_index_of_before_goes_on_without_titles(tmp_path: Path, model: BiEncoder) -> None:
    folder = tmp_path / "index"
    with Index.create(folder, model, options=IndexOptions(title=None)) as index:
        index.add(NOTES)
    with sqlite3.connect(folder / "documents.sqlite3") as database:  # as munjang 0.1.0 wrote it
        (text,) = database.execute("SELECT value FROM meta WHERE key = 'options'").fetchone()
        options = {name: value for name, value in json.loads(text).items() if name != "title"}
        database.execute("UPDATE meta SET value = ? WHERE key = 'options'", (json.dumps(options),))
        database.execute("PRAGMA user_version = 1")
    database.close()
    with Index.open(folder, model) as old:
        assert old.options.title is None
        assert old.search("lag", mode="keyword").ids == []
        assert old.add([{"id": "more", "title": "jet lag", "text": "비"}]).added == 1
        assert old.search("lag", mode="keyword").ids == []
        assert old.verify().ok
