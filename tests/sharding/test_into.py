"""Shards straight into an index: every row once, whatever dies; and the record of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.index.index import Index
from munjang.sharding.messages import Block
from support import small_models
from support.sharded import rows, write_jsonl, write_parquet


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    write_jsonl(folder / "a.jsonl", rows(40, "a"))
    write_parquet(folder / "b.parquet", rows(30, "b"))
    write_jsonl(folder / "이름 없이.jsonl", [{"text": "비 rain 빵 bread " * 40}, {"text": "빵"}, {"text": "street"}])
    return folder


@pytest.fixture
def index(tmp_path: Path, model: BiEncoder) -> Path:
    Index.create(tmp_path / "index", model).close()
    return tmp_path / "index"


def held(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    with Index.open(folder) as index:
        return {one.id: (one.text, dict(one.metadata)) for one in index.documents()}


EXPECTED = {row["id"]: (row["text"], {"year": row["year"]}) for row in [*rows(40, "a"), *rows(30, "b")]}


@pytest.mark.usefixtures("exact")
def test_rows_become_documents_with_the_vectors_that_the_index_would_make(
    jobs: Any, shards: Path, index: Path, tmp_path: Path, model: BiEncoder
) -> None:
    result = jobs.run(shards, into=index)
    assert (result.rows, result.encoded) == (73, 3)
    found = held(index)
    nameless = {id: value for id, value in found.items() if id not in EXPECTED}
    assert {id: found[id] for id in EXPECTED} == EXPECTED
    assert set(nameless) == {"이름 없이.jsonl#1", "이름 없이.jsonl#2", "이름 없이.jsonl#3"}
    with Index.create(tmp_path / "other", model) as other, Index.open(index, model) as one:
        other.add([{"id": id, "text": text, **metadata} for id, (text, metadata) in found.items()])
        for query in ("비가 온다", "bread for the street"):
            mine, theirs = one.search(query, k=80), other.search(query, k=80)
            mine_scores, their_scores = ({hit.id: hit.score for hit in hits} for hits in (mine, theirs))
            assert mine_scores.keys() == their_scores.keys()
            np.testing.assert_allclose(
                [mine_scores[id] for id in mine_scores], [their_scores[id] for id in mine_scores], atol=1e-5
            )
        assert one.describe()["passages"] == other.describe()["passages"] > 73
        assert one.verify().ok


def test_killed_workers_and_a_second_run_leave_every_row_once(jobs: Any, shards: Path, index: Path) -> None:
    deaths = {3, 6}
    jobs.dies = lambda number, message: number in deaths
    assert jobs.run(shards, into=index).ok
    first = held(index)
    assert len(first) == 73
    jobs.dies = lambda *_: False
    again = jobs.run(shards, into=index)
    assert (again.encoded, again.skipped) == (0, 3)
    assert held(index) == first


def test_a_shard_counts_only_when_the_index_has_acknowledged_it(
    jobs: Any, shards: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = Index.add

    def fails(self: Index, documents: Any, **given: Any) -> Any:
        calls.append(len(documents))
        if len(calls) == 2:
            raise DataError("the server is gone")
        return real(self, documents, **given)

    monkeypatch.setattr(Index, "add", fails)
    with pytest.raises(DataError, match="the server is gone"):
        jobs.run(shards, into=index)
    record = (index.parent / "index.shards" / "_munjang" / "manifest.jsonl").read_text(encoding="utf-8")
    assert len(record.splitlines()) == 1
    monkeypatch.setattr(Index, "add", real)
    again = jobs.run(shards, into=index)
    assert (again.encoded, again.skipped) == (2, 1)
    assert len(held(index)) == 73


def test_a_changed_shard_replaces_its_rows_and_takes_out_those_that_are_gone(
    jobs: Any, shards: Path, index: Path
) -> None:
    jobs.run(shards, into=index)
    write_jsonl(shards / "이름 없이.jsonl", [{"text": "다른 글"}, {"text": 7}])
    result = jobs.run(shards, into=index)
    assert (result.encoded, result.rejected) == (1, 1)
    found = held(index)
    assert {id: text for id, (text, _) in found.items() if "#" in id} == {"이름 없이.jsonl#1": "다른 글"}
    assert len(found) == 71


def test_an_index_that_was_made_anew_is_filled_again(jobs: Any, shards: Path, index: Path, model: BiEncoder) -> None:
    import shutil

    jobs.run(shards, into=index)
    shutil.rmtree(index)
    Index.create(index, model).close()
    assert jobs.run(shards, into=index).encoded == 3
    assert len(held(index)) == 73


def test_rows_that_an_index_cannot_hold_are_set_aside(jobs: Any, tmp_path: Path, index: Path) -> None:
    bad = [{"id": "1", "text": "비", "n": {"deep": 1}}, {"id": "2", "text": "빵"}, {"id": "2", "text": "again"}]
    write_jsonl(
        tmp_path / "in" / "a.jsonl", [*bad, {"id": "", "text": "x"}, {"id": True, "text": "x"}, {"id": 5, "text": "오"}]
    )
    result = jobs.run(tmp_path / "in", into=index)
    assert (result.rows, result.rejected) == (2, 4)
    assert set(held(index)) == {"2", "5"}
    assert result.rejects is not None
    reasons = result.rejects.read_text(encoding="utf-8")
    assert "the id '2' came before in this shard" in reasons
    assert "'n' must be a text, a number" in reasons


def test_columns_of_ids_and_metadata(jobs: Any, tmp_path: Path, index: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"키": 3, "본문": "비", "year": 1, "x": 2}, {"본문": "빵", "year": 1}])
    result = jobs.run(tmp_path / "in", into=index, id_column="키", metadata=("year",))
    assert (result.rows, result.rejected) == (1, 1)
    assert held(index) == {"3": ("비", {"year": 1})}


def test_the_index_decides_about_the_model(jobs: Any, shards: Path, index: Path, tmp_path: Path) -> None:
    small_models.bi_encoder("roberta").save(tmp_path / "other")
    with pytest.raises(ModelError, match="was made by another model"):
        jobs.run(shards, into=index, model=tmp_path / "other")
    for wrong in ({"normalize": True}, {"prompt": "x"}, {"keep": ("id",)}):
        with pytest.raises(InputError):
            jobs.run(shards, into=index, **wrong)
    assert jobs.run(shards, into=index, model=jobs.model, state=tmp_path / "기록").ok
    assert (tmp_path / "기록" / "_munjang" / "manifest.jsonl").is_file()


def test_large_shards_come_in_blocks(jobs: Any, tmp_path: Path, index: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": n, "text": f"빵 {n}"} for n in range(2100)])
    sizes: list[int] = []

    def sees(_: int, message: object) -> bool:
        if isinstance(message, Block):
            sizes.append(len(message.documents))
        return False

    jobs.dies = sees
    assert jobs.run(tmp_path / "in", into=index).rows == 2100
    assert sizes == [2048, 52]
    assert len(held(index)) == 2100


@pytest.mark.server
def test_into_a_server(jobs: Any, shards: Path, tmp_path: Path, model: BiEncoder) -> None:
    from support.postgres_server import postgres_server

    with postgres_server() as server:
        address = server.address("shards")
        Index.create(address, model).close()
        jobs.dies = lambda number, _: number in (3, 6)
        assert jobs.run(shards, into=address, model=jobs.model, state=tmp_path / "state").rows == 73
        record = (tmp_path / "state" / "_munjang" / "job.json").read_text()
        assert "127.0.0.1" in record
        assert "postgres@" not in record
        assert len(held_at(address, model)) == 73
        jobs.dies = lambda *_: False
        write_jsonl(shards / "이름 없이.jsonl", [{"text": "다른 글"}])
        assert jobs.run(shards, into=address, model=jobs.model, state=tmp_path / "state").encoded == 1
        found = held_at(address, model)
        assert {id: text for id, (text, _) in found.items() if "#" in id} == {"이름 없이.jsonl#1": "다른 글"}
        assert {id: found[id] for id in EXPECTED} == EXPECTED


def held_at(address: str, model: BiEncoder) -> dict[str, tuple[str, dict[str, Any]]]:
    with Index.open(address, model) as index:
        return {one.id: (one.text, dict(one.metadata)) for one in index.documents()}
