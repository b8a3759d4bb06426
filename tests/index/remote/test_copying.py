"""Copying an index: from folder to server and back, broken off and resumed, and what is not a copy refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.index import ends
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from munjang.index.remote import copying
from munjang.index.remote.copying import copy
from munjang.index.remote.engine import StoredDocument
from support.indexing import TEXTS, Plain
from support.postgres_server import PostgresServer
from support.small_models import bi_encoder

DOCUMENTS = [
    {"id": f"글 {place % 7}-{place}", "text": text, "year": 2000 + place, "tags": ["a", "b"]}
    for place, text in enumerate(TEXTS * 3)
]


@pytest.fixture
def source(tmp_path: Path, model: BiEncoder) -> Iterator[Index]:
    with Index.create(tmp_path / "source", model) as index:
        index.add(DOCUMENTS)
        yield index


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_PAGE", 5)


def _holds(index: Index, model: BiEncoder) -> None:
    plain = Plain(model)
    for one in DOCUMENTS:
        plain.documents[str(one["id"])] = (str(one["text"]), {"year": one["year"], "tags": one["tags"]})
    plain.check_all(index)


def test_from_folder_to_folder(source: Index, tmp_path: Path, model: BiEncoder) -> None:
    told: list[int] = []
    report = copy(source, tmp_path / "to", progress=lambda done, total: told.append(done))
    assert (report.documents, report.copied) == (len(DOCUMENTS), len(DOCUMENTS))
    assert told[-1] == 2 * len(DOCUMENTS)
    with Index.open(tmp_path / "to", model) as copied:
        _holds(copied, model)
        assert copied.verify().ok
    again = copy(source, tmp_path / "to")
    assert (again.copied, again.checksum) == (0, report.checksum)


class _Broken(Exception):
    """Stands for Ctrl-C or a kill."""


def test_a_copy_that_was_broken_off_goes_on(
    source: Index, tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ends.FolderEnd.put
    left = 4

    def breaking(self: ends.FolderEnd, documents: list[StoredDocument], note: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise _Broken
        whole(self, documents, note)

    with monkeypatch.context() as patch:
        patch.setattr(ends.FolderEnd, "put", breaking)
        with pytest.raises(_Broken):
            copy(source, tmp_path / "to")
    with Index.open(tmp_path / "to", model) as half:
        assert half.count == 10  # the note, and two pages
    report = copy(source, tmp_path / "to")
    assert (report.documents, report.copied) == (len(DOCUMENTS), len(DOCUMENTS) - 10)
    with Index.open(tmp_path / "to", model) as copied:
        _holds(copied, model)


def test_small_vectors_come_out_as_they_are_searched(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "int8", model, options=IndexOptions(vectors="int8")) as source:
        source.add(DOCUMENTS)
        copy(source, tmp_path / "to")
        with Index.open(tmp_path / "to", model) as copied:
            assert copied.options.vectors == "float32"
            ours, theirs = copied.search("비", 5), source.search("비", 5)
            assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=1e-3)


def test_a_source_that_changed_is_noticed(source: Index, tmp_path: Path) -> None:
    copy(source, tmp_path / "to")
    source.add([{"id": "글 3-3", "text": "다른 글"}])
    with pytest.raises(DataError, match="differ, first in document '글 3-3'"):
        copy(source, tmp_path / "to")


def test_what_is_no_copy_is_refused(source: Index, tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "other", model) as other:
        other.add(["비"])
        with pytest.raises(InputError, match="with 1 documents, that no copy began"):
            copy(source, tmp_path / "other")
        copy(other, tmp_path / "copy of other")
        with pytest.raises(InputError, match="a copy of another index"):
            copy(source, tmp_path / "copy of other")
    with pytest.raises(InputError, match="to itself"):
        copy(source, tmp_path / "source")
    Index.create(tmp_path / "foreign", bi_encoder("distilbert")).close()
    with pytest.raises(InputError, match="of another model"):
        copy(source, tmp_path / "foreign")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not empty"):
        copy(source, tmp_path / "full")
    with pytest.raises(InputError, match="begins with postgresql"):
        copy(source, "ftp://somewhere/else")


@pytest.mark.server
def test_to_a_server_and_back(source: Index, postgres: PostgresServer, tmp_path: Path, model: BiEncoder) -> None:
    first, second = (postgres.address(f"c{secrets.token_hex(5)}") for _ in range(2))
    there = copy(source, first)
    with Index.open(first, model) as remote:
        _holds(remote, model)
        ours, theirs = (one.search("비", 3, filter={"year": {">": 2010}}) for one in (remote, source))
        assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=2e-5)
        across = copy(remote, second)
        back = copy(remote, tmp_path / "back")
    assert there.checksum == across.checksum == back.checksum
    with Index.open(tmp_path / "back", model) as index:
        _holds(index, model)


@pytest.mark.server
def test_a_copy_to_a_server_goes_on(
    source: Index, postgres: PostgresServer, model: BiEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from munjang.index.remote.postgres import PostgresEngine

    address = postgres.address(f"c{secrets.token_hex(5)}")
    whole, left = PostgresEngine.put_notes, 6

    def breaking(self: PostgresEngine, notes: dict[str, str]) -> None:
        nonlocal left
        left -= "copy" in notes
        if not left:
            raise KeyboardInterrupt  # after the documents of a page, before its note
        whole(self, notes)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresEngine, "put_notes", breaking)
        with pytest.raises(KeyboardInterrupt):
            copy(source, address)
    report = copy(source, address)
    assert report.documents == len(DOCUMENTS)
    assert report.copied == len(DOCUMENTS) - 20
    with Index.open(address, model) as copied:
        _holds(copied, model)
