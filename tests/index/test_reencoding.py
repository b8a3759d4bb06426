"""An index is moved to another model: what it finds then, what an interrupted run leaves, and who is told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang import BiEncoder, Index, IndexOptions
from munjang.errors import InputError, ModelError
from munjang.index import reencoding
from support.indexing import TEXTS, Plain
from support.small_models import bi_encoder

DOCUMENTS = [{"id": place, "text": text, "year": 2000 + place} for place, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def other() -> BiEncoder:
    return bi_encoder("roberta")


@pytest.fixture
def folder(tmp_path: Path, model: BiEncoder) -> Path:
    with Index.create(tmp_path / "index", model) as index:
        index.add(DOCUMENTS)
        index.delete("3")
    return tmp_path / "index"


def plain(model: BiEncoder) -> Plain:
    return Plain(model, {str(place): (text, {"year": 2000 + place}) for place, text in enumerate(TEXTS) if place != 3})


class Interrupted(Exception):
    pass


def interrupted(index: Index, model: BiEncoder, monkeypatch: pytest.MonkeyPatch, windows: int) -> None:
    """Start re-encoding, and stop after some windows of two documents."""
    monkeypatch.setattr(reencoding, "_DOCUMENTS", 2)
    calls = itertools.count(1)

    def stop(done: int, total: int | None) -> None:
        if done and next(calls) > windows:
            raise Interrupted

    with pytest.raises(Interrupted):
        index.reencode(model, progress=stop)


def test_an_index_is_searched_with_the_new_model(folder: Path, model: BiEncoder, other: BiEncoder) -> None:
    told: list[tuple[int, int | None]] = []
    with Index.open(folder, model) as index:
        index.search("비", mode="keyword")
        count = index.reencode(other, progress=lambda done, total: told.append((done, total)))
        assert count == index.count == len(DOCUMENTS) - 1
        plain(other).check_all(index)
        assert index.search("umbrella", mode="keyword").ids == ["5", "6"]
        assert index.verify().ok
        index.add([{"id": "new", "text": "비"}])
        assert index.reencode(other) == len(DOCUMENTS)  # nothing to do
    assert told[-1] == (len(DOCUMENTS) - 1, len(DOCUMENTS) - 1)
    with Index.open(folder, other) as again:
        assert again.verify().ok
        assert "new" in again.search("비", 20).ids
    with pytest.raises(ModelError, match=r"made by another model.*munjang index reencode .*index"):
        Index.open(folder, model)


def test_another_width_other_passages_other_vectors(folder: Path, model: BiEncoder) -> None:
    narrow = bi_encoder()
    narrow.truncate_dim = 16
    with Index.open(folder, model) as index:
        before = index.describe()["passages"]
        index.reencode(narrow, options=IndexOptions(vectors="int8", chunk_tokens=8, keyword=False))
        assert (index.dimension, index.options.vectors, index.options.chunk_tokens) == (16, "int8", 8)
        assert int(str(index.describe()["passages"])) > int(str(before))
        assert index.search("비", 3).mode == "semantic"
        assert index.verify().ok


def test_an_interrupted_run_leaves_the_old_index_and_is_resumed(
    folder: Path, model: BiEncoder, other: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Index.open(folder, model) as index:
        interrupted(index, other, monkeypatch, 3)
        plain(model).check_all(index)
        assert index.verify().ok
        index.add([{"id": 0, "text": "다른 글"}, {"id": "late", "text": "늦은 글"}])  # changed after it was encoded
        index.delete("1")
    encoded: list[str] = []

    def remember(texts: list[str], **options: Any) -> np.ndarray:
        encoded.extend(texts)
        return real(texts, **options)

    real = other.encode_document
    monkeypatch.setattr(other, "encode_document", remember)
    with Index.open(folder, model) as index:
        index.reencode(other)
        monkeypatch.undo()
        expected = plain(other)
        expected.documents |= {"0": ("다른 글", {}), "late": ("늦은 글", {})}
        del expected.documents["1"]
        expected.check_all(index)
        assert index.verify().ok
    assert {"다른 글", "늦은 글"} <= set(encoded)
    assert str(DOCUMENTS[2]["text"]) not in encoded  # it was encoded before the interruption


def test_a_run_to_a_third_model_starts_over(
    folder: Path, model: BiEncoder, other: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = bi_encoder("distilbert")
    with Index.open(folder, model) as index:
        interrupted(index, other, monkeypatch, 3)
        index.reencode(third)
        plain(third).check_all(index)
        assert index.verify().ok


def test_others_that_have_it_open_are_told(folder: Path, model: BiEncoder, other: BiEncoder) -> None:
    with Index.open(folder, model) as index, Index.open(folder, model) as stale:
        assert stale.search("비", 3)
        index.reencode(other)
        for call in (lambda: stale.search("비"), lambda: stale.add(["비"]), lambda: stale.delete("1"), stale.compact):
            with pytest.raises(ModelError, match="re-encoded with another model since it was opened: open it again"):
                call()
        assert index.count == len(DOCUMENTS) - 1


def test_titles_come_with_it(tmp_path: Path, model: BiEncoder, other: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model, options=IndexOptions(title=None)) as index:
        index.add([{"id": 1, "title": "jet lag", "text": "비가 온다"}])
        assert index.search("lag", mode="keyword").ids == []
        index.reencode(other)
        assert index.search("lag", mode="keyword").ids == ["1"]


def test_a_model_must_be_a_bi_encoder(folder: Path, model: BiEncoder) -> None:
    with Index.open(folder, model) as index, pytest.raises(InputError, match="bi-encoder"):
        index.reencode("a name")  # type: ignore[arg-type]
