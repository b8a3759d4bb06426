"""Searches, documents and maps over HTTP, against the same calls of the library."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from munjang.index.index import Index
from munjang.index.options import IndexOptions
from munjang.index.results import Results
from support.indexed import DOCUMENTS, bi_encoder, make_index, reranker, service, settings_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("read") / "sample")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """A service whose index is only read."""
    with service(settings_for(folder)) as client:
        yield client


@pytest.fixture(scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("write")
    with service(settings_for(make_index(folder / "mine"), make_index(folder / "other", []))) as client:
        yield client


@pytest.fixture
def writable(_written: TestClient) -> TestClient:
    """A service with an index `mine`, and one that is empty, `other`."""
    index = _written.app.state.shelf.get("other").index  # type: ignore[attr-defined]
    index.delete(list(index.ids()))
    return _written


def _check_hits(answer: Any, wanted: Results, k: int) -> None:
    """The k best of `wanted`, which holds all; hits whose scores differ by rounding only may stand in either order."""
    own = {hit.id: hit for hit in wanted}
    assert len({hit["id"] for hit in answer["hits"]}) == len(answer["hits"]) == k
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit.score for hit in wanted[:k]], abs=1e-5)
    for hit in answer["hits"]:
        same = own[hit["id"]]
        assert hit["score"] == pytest.approx(same.score, abs=1e-5)
        assert (hit["text"], hit["metadata"]) == (same.text, dict(same.metadata))
        assert (hit["passage"]["start"], hit["passage"]["end"]) == (same.passage.start, same.passage.end)
        assert hit["passage"]["text"] == hit["text"][hit["passage"]["start"] : hit["passage"]["end"]]
        assert [stage["name"] for stage in hit["stages"]] == [stage.name for stage in same.stages]
        first = [stage["rank"] for stage in hit["stages"] if stage["name"] != "rerank"][-1]
        assert hit["moved"] == (first - hit["stages"][-1]["rank"])


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
@pytest.mark.parametrize("rerank", [False, True])
@pytest.mark.parametrize("where", [None, "year>=2010 and not draft=true", {"place": {"in": ["부산", "Rome"]}}])
def test_a_search_finds_what_the_library_finds(
    client: TestClient, folder: Path, mode: Any, rerank: bool, where: Any
) -> None:
    body = {"query": "비 오는 날의 빵 rain", "k": 5, "mode": mode, "rerank": rerank, "candidates": 12, "filter": where}
    answer = client.post("/search", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    with Index.open(folder, bi_encoder()) as index:
        cross = reranker() if rerank else None
        all_of_them = index.search("비 오는 날의 빵 rain", 12, mode=mode, filter=where, reranker=cross, candidates=12)
        wanted = index.search("비 오는 날의 빵 rain", 5, mode=mode, filter=where, reranker=cross, candidates=12)
    _check_hits(found, all_of_them, 5)
    assert found["mode"] == mode
    assert found["scored"] == wanted.scored
    assert found["index"] == "sample"
    assert found["request_id"] == answer.headers["x-request-id"]
    assert found["timings"]["total"] >= max(value for name, value in found["timings"].items() if name != "total")
    assert ("rerank" in found["timings"]) == rerank


def test_what_a_search_does_that_says_nothing(client: TestClient, folder: Path) -> None:
    answer = client.post("/search", json={"query": "비 rain", "k": 3}).json()
    assert answer["mode"] == "hybrid"
    assert [stage["name"] for stage in answer["hits"][0]["stages"]][-2:] == ["hybrid", "rerank"]
    assert 8 <= answer["scored"] <= 24  # what the time allows
    for hit in answer["hits"]:
        shares = {stage["name"]: stage["normalized"] for stage in hit["stages"]}
        assert shares["rerank"] == hit["score"]
        assert all(isinstance(share, float) for share in shares.values())
    assert client.post("/search", json={"query": "비", "k": 3, "candidates": 5}).json()["scored"] == 5


def test_an_index_without_keywords_is_searched_by_meaning(tmp_path: Path) -> None:
    with Index.create(tmp_path / "bare", bi_encoder(), options=IndexOptions(keyword=False)) as index:
        index.add(["비가 온다"])
    with service(settings_for(tmp_path / "bare")) as client:
        assert client.post("/search", json={"query": "비"}).json()["mode"] == "semantic"


def test_the_marked_sentence_is_the_nearest_one(client: TestClient) -> None:
    query = "It is raining in 부산."
    for hit in client.post("/search", json={"query": query, "k": 4, "rerank": False}).json()["hits"]:
        start, end = hit["sentence"]["start"], hit["sentence"]["end"]
        sentences = re.split(r"(?<=[.!?])\s+", hit["passage"]["text"])
        model = bi_encoder()
        scores = model.similarity(model.encode_query([query]), model.encode_document(sentences))[0]
        assert scores[sentences.index(hit["text"][start:end])] >= scores.max() - 2e-3  # kept in half precision


def test_sentences_can_be_left_out(client: TestClient) -> None:
    answer = client.post("/search", json={"query": "비", "sentences": False}).json()
    assert {hit["sentence"] for hit in answer["hits"]} == {None}
    assert "sentences" not in answer["timings"]


def test_more_like_is_that_of_the_library(client: TestClient, folder: Path) -> None:
    found = client.post("/indexes/sample/more-like", json={"id": "doc/3", "k": 4, "rerank": False}).json()
    with Index.open(folder, bi_encoder()) as index:
        _check_hits(found, index.more_like("doc/3", 23), 4)
    assert "doc/3" not in {hit["id"] for hit in found["hits"]}


def test_a_long_query_is_reported_as_truncated(client: TestClient) -> None:
    answer = client.post("/search", json={"query": "비가 온다 " * 100, "k": 1, "rerank": False})
    assert answer.json()["truncated"] == 1
    assert answer.headers["x-truncated"] == "1"


def test_indexes_tell_their_fields(client: TestClient) -> None:
    (told,) = client.get("/indexes").json()
    assert (told["name"], told["documents"], told["passages"], told["keyword"]) == ("sample", 24, 48, True)
    assert told["model"] == "tiny"
    fields = {field["name"]: field for field in told["fields"]}
    assert fields["place"]["kind"] == "text"
    assert {one["value"]: one["count"] for one in fields["place"]["values"]} == dict.fromkeys(
        ["부산", "서울", "Paris", "Rome"], 6
    )
    assert (fields["year"]["kind"], fields["year"]["min"], fields["year"]["max"]) == ("number", 2000, 2023)
    assert (fields["date"]["min"], fields["date"]["max"]) == ("2024-03-01", "2024-03-24")
    assert [(one["value"], one["count"]) for one in fields["draft"]["values"]] == [(True, 8), (False, 16)]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"query": "  "}, 400, "empty"),
        ({"query": "비", "k": 0}, 422, "k"),
        ({"query": "비", "k": 100_000}, 422, "1..1,000"),
        ({"query": "비", "k": "5"}, 422, "k"),
        ({"query": "비", "mode": "magic"}, 422, "mode"),
        ({"query": "비", "filter": "nowhere=1"}, 422, "nowhere"),
        ({"query": "비", "filter": "year>=("}, 422, "year"),
        ({"query": "비", "index": "../../etc"}, 404, "sample"),
        ({"query": "비", "reranker": "nobody"}, 404, "cross"),
        ({"query": "비" * 5000}, 413, "4,096"),
        ({"query": "비", "kk": 3}, 422, "kk"),
        ({}, 422, "query"),
        ([1], 422, ""),
    ],
)
def test_what_cannot_be_searched_is_told(client: TestClient, body: Any, status: int, words: str) -> None:
    answer = client.post("/search", json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "error_type"}
    assert words in answer.json()["error"]


def test_a_service_without_a_cross_encoder_says_so(folder: Path) -> None:
    with service(settings_for(folder), rerank=False) as client:
        assert client.post("/search", json={"query": "비"}).json()["scored"] == 0  # without a word: not reranked
        refused = client.post("/search", json={"query": "비", "rerank": True})
        assert refused.status_code == 422
        assert "--reranker" in refused.json()["error"]


# --- documents -------------------------------------------------------------------------------------------------------

ODD_IDS = [
    "a/b", "../x", "..", ".", "a/../b", "a//b", "//", "한국어 문서", "%2F", "%", "a?b#c", "a&id=b", "+", "\\",
    " spaced ", "/lead", "file", "q\"'<", "42", "line\nbreak", "\t0\x00", "e\u0301", "😀", "x" * 1000, "😀" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("id", ODD_IDS)
def test_documents_of_any_id_come_and_go(writable: TestClient, id: str) -> None:
    added = writable.post("/documents/mine", json={"documents": [{"id": id, "text": "새 문서다.", "year": 1}]})
    assert added.json() | {"seconds": 0} == {
        "added": 1, "replaced": 0, "unchanged": 0, "passages": 1, "empty": 0, "truncated": 0, "seconds": 0,
    }  # fmt: skip
    found = writable.get("/documents/mine", params={"id": id})
    assert found.json() == {"id": id, "text": "새 문서다.", "metadata": {"year": 1}}
    assert writable.delete("/documents/mine", params={"id": [id]}).json() == {"deleted": 1}
    assert writable.get("/documents/mine", params={"id": id}).status_code == 404


@pytest.mark.parametrize("id", ["", " ", "\n"])
def test_no_document_gets_an_empty_id(writable: TestClient, id: str) -> None:
    refused = writable.post("/documents/other", json={"documents": [{"id": id, "text": "새 문서다."}]})
    assert refused.status_code == 422
    assert "empty" in refused.json()["error"]
    missing = writable.get("/documents/other", params={"id": id})
    assert missing.status_code == 404
    assert repr(id) in missing.json()["error"]
    assert writable.delete("/documents/other", params={"id": id}).json() == {"deleted": 0}


def test_an_empty_id_that_is_there_can_be_read_and_deleted(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "mine")
    with contextlib.closing(sqlite3.connect(folder / "documents.sqlite3")) as connection, connection:
        connection.execute("UPDATE documents SET id = '' WHERE id = 'doc/3'")
    with service(settings_for(folder)) as client:
        assert client.get("/documents/mine", params={"id": ""}).json()["metadata"]["year"] == 2003
        body = {"id": "", "k": 3, "rerank": False}
        assert len(client.post("/indexes/mine/more-like", json=body).json()["hits"]) == 3
        assert client.delete("/documents/mine", params={"id": ""}).json() == {"deleted": 1}
        assert client.get("/documents/mine", params={"id": ""}).status_code == 404


def test_an_id_with_slashes_stands_in_the_path(writable: TestClient) -> None:
    assert writable.get("/documents/mine/doc/7").json()["metadata"]["year"] == 2007
    assert writable.get("/documents/mine/doc%2F7").json()["metadata"]["year"] == 2007
    assert writable.delete("/documents/mine/doc/7").json() == {"deleted": 1}
    assert writable.delete("/documents/mine/doc/7").status_code == 404
    assert writable.get("/documents/mine/doc/7").status_code == 404


def test_what_is_added_is_found_and_what_is_deleted_is_not(writable: TestClient) -> None:
    documents = [{"id": "new", "text": "골목 끝의 빵집 bakery"}, {"text": "an id is made"}]
    assert writable.post("/documents/other", json={"documents": documents}).json()["added"] == 2
    body = {"index": "other", "query": "골목 끝의 빵집 bakery", "rerank": False}
    assert writable.post("/search", json=body).json()["hits"][0]["id"] == "new"
    writable.delete("/documents/other/new")
    assert "new" not in [hit["id"] for hit in writable.post("/search", json=body).json()["hits"]]


@pytest.mark.parametrize(
    ("documents", "status", "words"),
    [
        ([], 400, "no documents"),
        ([{"id": "x"}], 422, "text"),
        ([{"text": "a", "id": "x"}, {"text": "b", "id": "x"}], 422, "twice"),
        ([{"text": "a", "id": "y"}, {"text": "b", "nested": {"a": 1}}], 422, "nested"),
        ([{"text": 7}], 422, "text"),
        ([{"text": "a", "id": 1.5}], 422, "id"),
        ([{"text": "a", "big": 2**70}], 422, "64 bits"),
    ],
)
def test_a_bad_document_leaves_nothing_behind(writable: TestClient, documents: Any, status: int, words: str) -> None:
    answer = writable.post("/documents/other", json={"documents": documents})
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]
    assert {one["name"]: one["documents"] for one in writable.get("/indexes").json()}["other"] == 0


def test_many_writers_stand_in_line(writable: TestClient) -> None:
    statuses: list[int] = []

    def write(number: int) -> None:
        body = {"documents": [{"id": f"{number}-{part}", "text": f"비 {number} {part}"} for part in range(3)]}
        statuses.append(writable.post("/documents/other", json=body).status_code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 8
    assert {one["name"]: one["documents"] for one in writable.get("/indexes").json()}["other"] == 24


def test_requests_that_wait_are_committed_together_and_a_bad_one_fails_alone(writable: TestClient) -> None:
    index = writable.app.state.shelf.get("other").index  # type: ignore[attr-defined]
    begun, release = threading.Event(), threading.Event()
    answers: dict[int, Any] = {}

    def slowly() -> Iterator[dict[str, str]]:
        begun.set()
        yield {"id": "slow", "text": "천천히"}
        assert release.wait(60)

    def write(number: int) -> None:
        own = [{"id": f"{number}", "text": f"비 {number}"}, {"id": "shared", "text": f"rain {number % 2}"}]
        documents = own if number != 3 else [own[0], own[0]]  # an id that comes twice
        answers[number] = writable.post("/documents/other", json={"documents": documents})

    def generation() -> int:
        return {one["name"]: one["generation"] for one in writable.get("/indexes").json()}["other"]

    before = generation()
    threads = [threading.Thread(target=lambda: index.add(slowly()))]
    threads[0].start()
    assert begun.wait(60)
    threads += [threading.Thread(target=write, args=(number,)) for number in range(10)]
    for thread in threads[1:]:
        thread.start()
    time.sleep(1.0)
    assert not [number for number in answers if number != 3], "acknowledged before it was written"
    release.set()
    for thread in threads:
        thread.join()
    assert {number: answer.status_code for number, answer in answers.items()} == {
        number: 422 if number == 3 else 200 for number in range(10)
    }
    assert "twice" in answers[3].json()["error"]
    assert sum(answer.json()["added"] for number, answer in answers.items() if number != 3) == 9 + 1  # and "shared"
    assert generation() - before <= 4  # not one for each of ten requests
    assert {
        hit["id"] for hit in writable.post("/search", json={"index": "other", "query": "비", "k": 50}).json()["hits"]
    } == {"slow", "shared", *(str(number) for number in range(10) if number != 3)}
    assert index.verify().ok


def _lines(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("a.csv", "id,text,year\n1,비가 온다,2020\n2,It is raining,2021\n", 2),
        ("b.jsonl", '{"text": "빵"}\n{"text": "bread", "tag": ["x", "y"]}\n', 2),
        ("c.txt", "첫 줄\n\nsecond line\n", 2),
        ("d.md", "# 제목\n\n본문이다.\n", 1),
        ("../../evil.csv", "text\n밖으로 나가려는 이름\n", 1),
        ("C:\\docs\\win.csv", "text\nwindows\n", 1),
        (".csv", "text\nno name\n", 1),
        ("..csv", "text\na dot\n", 1),
        ("😀" * 60 + ".csv", "text\nlong in bytes\n", 1),
    ],
)
def test_a_file_is_added_with_news(writable: TestClient, name: str, content: str, count: int) -> None:
    answer = writable.post("/documents/other/file", files={"file": (name, content.encode())})
    *news, last = _lines(answer)
    assert news[0]["read"] == count
    assert news[-1] == {"encoded": count, "of": count}
    assert last["report"]["added"] == count
    assert {one["name"]: one["documents"] for one in writable.get("/indexes").json()}["other"] == count


def test_numbers_of_a_csv_can_be_filtered_by(writable: TestClient) -> None:
    content = "id,text,year\nold,비가 온다,1999\nnew,비가 온다,2021\n"
    _lines(writable.post("/documents/other/file", files={"file": ("a.csv", content.encode())}))
    body = {"index": "other", "query": "비", "filter": "year>2000", "rerank": False}
    assert [hit["id"] for hit in writable.post("/search", json=body).json()["hits"]] == ["new"]


def test_a_broken_file_is_told_by_its_line_and_adds_nothing(writable: TestClient) -> None:
    content = "id,text\n1,one\n2,two,three\n"
    last = _lines(writable.post("/documents/other/file", files={"file": ("broken.csv", content.encode())}))[-1]
    assert "broken.csv, line 3" in last["error"]
    assert last["error_type"] == "validation"
    assert {one["name"]: one["documents"] for one in writable.get("/indexes").json()}["other"] == 0


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({"file": ("a.exe", b"MZ")}, 422, ".csv"),
        ({"file": ("..", b"x")}, 400, "name"),
        ({"other": ("a.csv", b"text\nx\n")}, 400, "'file'"),
    ],
)
def test_a_file_of_no_use_is_refused_at_once(writable: TestClient, files: Any, status: int, words: str) -> None:
    answer = writable.post("/documents/other/file", files=files)
    assert answer.status_code == status
    assert words in answer.json()["error"]


# --- the map ---------------------------------------------------------------------------------------------------------


def _map(client: TestClient, name: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        answer = client.get(f"/indexes/{name}/map")
        if answer.status_code == 200:
            found: dict[str, Any] = answer.json()
            return found
        assert answer.status_code == 202, answer.text
        assert answer.json()["state"] == "building"
        assert 0 <= answer.json()["progress"] <= 1
        time.sleep(0.05)
    raise AssertionError("the map was not made")


def test_the_map_is_made_kept_and_made_again_after_a_change(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "mapped")
    with service(settings_for(folder)) as client:
        assert client.post("/indexes/mapped/place", json={"query": "비"}).status_code == 404
        first = _map(client, "mapped")
        assert first["ids"] == [document["id"] for document in DOCUMENTS]
        assert len(first["points"]) == len(first["texts"]) == len(first["clusters"]) == 24
        assert set(map(str, first["clusters"])) == set(first["names"])
        assert not first["stale"]
        place = client.post("/indexes/mapped/place", json={"query": "비가 온다"}).json()
        for axis, name in enumerate(("x", "y")):
            places = [point[axis] for point in first["points"]]
            assert min(places) <= place[name] <= max(places)
    with service(settings_for(folder)) as client:
        assert client.get("/indexes/mapped/map").json()["built_at"] == first["built_at"]  # it was kept on the disk
        client.delete("/documents/mapped/doc/0")
        stale = client.get("/indexes/mapped/map").json()
        assert stale["stale"]
        assert stale["ids"] == first["ids"]
        until = time.monotonic() + 60
        while (fresh := client.get("/indexes/mapped/map").json())["stale"] and time.monotonic() < until:
            time.sleep(0.05)
        assert "doc/0" not in fresh["ids"]
        assert fresh["documents"] == 23


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1, "generation": 1, "points": 3}'])
def test_a_damaged_map_is_made_again(tmp_path: Path, damage: bytes) -> None:
    folder = make_index(tmp_path / "mapped", DOCUMENTS[:5])
    (folder / "derived").mkdir(exist_ok=True)
    (folder / "derived" / "map.json").write_bytes(damage)
    with service(settings_for(folder)) as client:
        assert len(_map(client, "mapped")["points"]) == 5


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_documents_have_a_map_too(tmp_path: Path, count: int) -> None:
    with service(settings_for(make_index(tmp_path / "few", DOCUMENTS[:count]))) as client:
        assert len(_map(client, "few")["points"]) == count


# --- models ----------------------------------------------------------------------------------------------------------


def test_indexes_of_one_model_share_its_room_and_another_brings_its_own(tmp_path: Path) -> None:
    from support import small_models

    other = small_models.bi_encoder(max_length=32)
    other.save(tmp_path / "other-model")
    from munjang.loading import load

    with Index.create(tmp_path / "apart", load(tmp_path / "other-model", device="cpu", dtype="float32")) as index:
        index.add(DOCUMENTS[:3])
    one, two = make_index(tmp_path / "one"), make_index(tmp_path / "two")
    with service(settings_for(one, two, tmp_path / "apart")) as client:
        told = {one["name"]: one["model"] for one in client.get("/indexes").json()}
        assert told == {"one": "tiny", "two": "tiny", "apart": "other-model"}
        assert len(client.post("/search", json={"index": "apart", "query": "비"}).json()["hits"]) == 3


def test_another_process_that_writes_is_no_fault_of_the_client(tmp_path: Path) -> None:
    from munjang.files import OutputLock

    folder = make_index(tmp_path / "locked", [])
    with service(settings_for(folder)) as client:
        lock = OutputLock(folder / "writer.lock", folder)
        try:
            refused = client.post("/documents/locked", json={"documents": [{"text": "비"}]})
        finally:
            lock.release()
        assert refused.status_code == 503
        assert "another process" in refused.json()["error"]
        assert client.post("/documents/locked", json={"documents": [{"text": "비"}]}).json()["added"] == 1


def test_small_limits_do_not_stop_long_documents(tmp_path: Path) -> None:
    from munjang.serve.settings import Limits

    limits = Limits(tokens=100, queue_tokens=300)
    documents = [{"id": str(number), "text": f"{number} 비가 온다. It is raining. " * 20} for number in range(30)]
    with service(settings_for(make_index(tmp_path / "long", []), limits=limits)) as client:
        report = client.post("/documents/long", json={"documents": documents}).json()
        assert report["added"] == 30
        assert report["passages"] > 60
    with Index.open(tmp_path / "long", bi_encoder()) as index:
        assert index.verify().ok
        first = index.get("7")
        assert first.text == documents[7]["text"]
