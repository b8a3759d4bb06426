"""What is Milvus' own: whole documents without transactions, long ones, the graph, users, foreign collections."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.index.filters import Filter
from munjang.index.index import Index
from munjang.index.remote import milvus as engines
from munjang.index.remote.address import parse
from munjang.index.remote.engine import StoredDocument, Unreachable
from munjang.index.remote.milvus import MilvusEngine
from munjang.index.remote.milvus_rows import pack
from munjang.vectors import similarity
from support.milvus_server import MilvusServer, free_ports, milvus_server

pytestmark = [pytest.mark.server, pytest.mark.slow]
WIDTH = 8


def document(id: str, passages: int, *, text: str = "비가 온다 rain ", seed: int = 0) -> StoredDocument:
    """A document of so many passages with random vectors."""
    whole = text * max(1, passages)
    spans = tuple((at * len(text), (at + 1) * len(text)) for at in range(passages))
    numbers = np.random.default_rng([seed, *id.encode()]).standard_normal((passages, WIDTH))
    return StoredDocument(id, whole, f'{{"seed": {seed}}}', spans, numbers.astype(np.float32))


def same(one: StoredDocument, other: StoredDocument) -> bool:
    assert one.vectors is not None
    assert other.vectors is not None
    plain = (one.id, one.text, one.metadata, one.spans) == (other.id, other.text, other.metadata, other.spans)
    return plain and np.array_equal(one.vectors, other.vectors)


@pytest.fixture
def engine(milvus: MilvusServer) -> Iterator[MilvusEngine]:
    engine = MilvusEngine(parse(milvus.address(f"own_{secrets.token_hex(4)}", shards=2)))
    engine.create({"name": "한"}, WIDTH, "cosine")
    yield engine
    engine.drop()
    engine.close()


def test_documents_come_back_as_they_were(engine: MilvusEngine) -> None:
    long = StoredDocument(
        "긴 글", "가나다 abc\n" * 30_000, '{"a": "\\u0000"}', ((0, 5), (5, 9)), np.eye(2, WIDTH, dtype=np.float32)
    )
    given = [long, document("none", 0), *(document(f"글 {number}", number % 4) for number in range(40))]
    engine.put(given)
    engine.put(given)  # as after a lost answer
    assert engine.count() == (42, 2 + sum(number % 4 for number in range(40)))
    found = engine.get([one.id for one in given] + ["no"], vectors=True)
    assert set(found) == {one.id for one in given}
    assert all(same(found[one.id], one) for one in given)
    read: list[StoredDocument] = []
    while page := engine.scan(read[-1].id if read else None, 9):
        read += page
    assert [one.id for one in read] == sorted(found, key=str.encode)
    assert all(same(one, found[one.id]) for one in read)
    assert set(engine.choose(100)) == {one.id for one in given if one.spans}
    assert len(set(engine.choose(7))) == 7
    with pytest.raises(InputError, match="by meaning only"):
        engine.keyword(["비"], 3, None)


def test_a_version_holds_whole_or_not_at_all(engine: MilvusEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is killed before the head leaves the old document, after it the new one; nothing is half."""
    old, new = document("글", 5, seed=1), document("글", 3, seed=2)
    engine.put([old, document("other", 1)])
    upsert = MilvusEngine._upsert
    calls = 0

    def dies(self: MilvusEngine, collection: str, rows: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        upsert(self, collection, rows)

    with monkeypatch.context() as patch:
        patch.setattr(MilvusEngine, "_upsert", dies)
        with pytest.raises(KeyboardInterrupt):
            engine.put([new])
    assert same(engine.get(["글"], vectors=True)["글"], old)
    assert engine.count() == (2, 6)
    assert old.vectors is not None
    assert new.vectors is not None
    for number in range(1, 3):  # rows of the new version are there, and nobody sees them
        found = engine.search(new.vectors[number][None], 6, None)[0]
        assert len(found) == 6
        assert max(one.score for one in found) < 0.999
    with monkeypatch.context() as patch:
        patch.setattr(MilvusEngine, "_delete", lambda *_: None)  # killed right after the head
        engine.put([new])
    assert same(engine.get(["글"], vectors=True)["글"], new)
    assert engine.count() == (2, 4)
    hits = engine.search(old.vectors[4][None], 10, None)[0]
    assert sorted((one.document, one.number) for one in hits) == [("other", 0), *(("글", at) for at in range(3))]
    engine.delete(["글"])
    assert engine.count() == (1, 1)


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean"])
def test_scores_and_a_depth_beyond_the_graph(milvus: MilvusServer, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MilvusEngine(
        parse(milvus.address(f"{kind}_{secrets.token_hex(4)}", m=8, ef_construction=40, partitions=3))
    )
    engine.create({}, WIDTH, kind)
    try:
        given = [document(f"{number:04}", 1, seed=number) for number in range(3_000)]
        for first in range(0, len(given), 500):
            engine.put(given[first : first + 500])
        monkeypatch.setattr(engines, "_FLUSH_ROWS", 1_000)
        engine.ready()
        matrix: NDArray[np.float32] = np.concatenate([one.vectors for one in given if one.vectors is not None])
        queries = np.random.default_rng(5).standard_normal((20, WIDTH)).astype(np.float32)
        right = -np.sort(-similarity(queries, matrix, kind), axis=1)
        found = engine.search(queries, 10, None)
        scores = np.array([[one.score for one in own] for own in found])
        assert np.isclose(scores, right[:, :10], atol=1e-4).mean() >= 0.98
        deep = engine.search(queries[:1], 2_500, None)[0]
        assert [one.score for one in deep] == pytest.approx(right[0, :2_500].tolist(), abs=0.05)
        assert len({one.document for one in deep}) == 2_500
        few = engine.search(queries, 10, Filter.from_dict({"seed": {"in": [5, 17, 2_999]}}))
        assert all({one.document for one in own} == {"0005", "0017", "2999"} for own in few)
        assert engine.count() == (3_000, 3_000)
        assert [one.id for one in engine.scan("2980", 100)] == [f"{number:04}" for number in range(2_981, 3_000)]
    finally:
        engine.drop()
        engine.close()


def test_readers_never_see_half_a_document(engine: MilvusEngine) -> None:
    versions = [document("글", passages, seed=seed) for seed, passages in enumerate((4, 1, 6, 2, 0, 3))]
    engine.put([versions[-1]])
    by_text = {one.metadata: one for one in versions}
    stop = threading.Event()
    failures: list[object] = []

    def read() -> None:
        while not stop.is_set():
            found = engine.get(["글"], vectors=True).get("글")
            if found is None or not same(found, by_text[found.metadata]):
                failures.append(found)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(3):
        for version in versions:
            engine.put([version])
    stop.set()
    thread.join()
    assert failures == []
    assert engine.count() == (1, 3)
    assert engine._reading.count(engine._main, "number > 0") == 2  # rows of earlier versions are gone


def test_a_collection_of_another_program_is_left_alone(milvus: MilvusServer, model: BiEncoder) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(uri=f"http://127.0.0.1:{milvus.port}")
    client.create_collection("theirs", dimension=4)
    for call in (Index.open, lambda where: Index.create(where, model)):
        with pytest.raises(InputError, match="another program"):
            call(milvus.address("theirs"))
    with pytest.raises(InputError, match="another program"):
        MilvusEngine(parse(milvus.address("theirs"))).drop()
    assert client.has_collection("theirs")
    client.drop_collection("theirs")
    client.close()


def test_what_does_not_fit_is_said_before_anything_is_written(milvus: MilvusServer, model: BiEncoder) -> None:
    with Index.create(milvus.address(f"fit_{secrets.token_hex(4)}"), model) as index:
        for broken in ({"id": "x" * 2_001, "text": "a"}, {"text": "a", "list": list(range(5_000))}):
            with pytest.raises(InputError, match="cannot be kept"):
                index.add(["비", broken])
        assert index.count == 0
        index.drop()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="manhattan"):
        MilvusEngine(parse(milvus.address("other"))).create({}, 4, "manhattan")


def test_users_and_passwords(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    with milvus_server(COMMON_SECURITY_AUTHORIZATIONENABLED="true") as server:
        for credentials in ("root:geheim@", "nobody:Milvus@", ""):
            with pytest.raises(InputError, match="refuses this user or password") as refused:
                Index.create(server.address("one", credentials=credentials, attempts=2), model)
            assert "geheim" not in str(refused.value)
        with Index.create(server.address("one", credentials="root:Milvus@"), model) as index:
            index.add(["비가 온다"])
        monkeypatch.setenv("MILVUS_TOKEN", "root:Milvus")
        with Index.open(server.address("one"), model) as index:
            assert index.count == 1
            assert "Milvus@" not in repr(index)
        with pytest.raises(InputError, match="no database 'nowhere'"):
            Index.open(server.address("one", database="nowhere"), model)


def test_wrong_addresses(milvus: MilvusServer, model: BiEncoder) -> None:
    (nobody,) = free_ports(1)
    with pytest.raises(InputError, match=r"no host of the name 'no-such-host\.invalid'"):
        Index.open("milvus://no-such-host.invalid/x", model)
    with pytest.raises(DataError, match="tried 2 times"):
        Index.open(f"milvus://127.0.0.1:{nobody}/x?attempts=2&timeout=2", model)
    with pytest.raises((InputError, Unreachable, DataError), match="TLS"):
        Index.open(milvus.address("x", secure="true", attempts=1, timeout=3), model)


def test_a_note_may_be_long(engine: MilvusEngine) -> None:
    notes = {"한글 " * 500: "1", "big": "가\n\x01" * 20_000, "small": ""}
    engine.put_notes(notes)
    engine.put_notes({"small": "2"})
    assert engine.notes() == notes | {"small": "2"}
    assert engine.header() == {"name": "한"}


def test_a_packed_document_is_found_by_its_version_only() -> None:
    one, other = document("글", 3), replace(document("글", 3), metadata='{"seed": 9}')
    first, second = pack(one, WIDTH), pack(other, WIDTH)
    assert first.first["key"] == second.first["key"]
    assert not set(first.head.passage_keys()) & set(second.head.passage_keys())
