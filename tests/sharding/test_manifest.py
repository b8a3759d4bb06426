"""The record of a job: whole after a kill at any moment, refused where it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from munjang.errors import DataError, ResumeError
from munjang.sharding.manifest import Book
from munjang.sharding.messages import Done
from munjang.sharding.shards import Shard
from munjang.sharding.worker import TOKEN

SHARDS = [Shard(f"조각 {number}.jsonl", "", 10) for number in range(3)]


def fill(book: Book, shard: Shard, *, precision: str = "float32 on cpu", rejects: int = 0) -> None:
    book.begin(shard)
    book.reject(shard, [(line + 1, "왜냐하면") for line in range(rejects)])
    aside = book.aside / shard.key
    aside.write_bytes(shard.name.encode())
    size = len(shard.name.encode())
    done = Done("c" + shard.name, 5, rejects, 50, 0, precision, str(aside), size)
    book.publish(shard, done, output=shard.name + ".out")


def opened(folder: Path, setting: dict[str, Any] | None = None, *, overwrite: bool = False) -> Book:
    return Book(folder, setting or {"model": "m", "keep": ["id"]}, overwrite=overwrite)


def test_a_record_cut_off_anywhere_loses_at_most_its_last_line(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    for shard in SHARDS:
        fill(book, shard)
    book.close()
    path = tmp_path / "out" / "_munjang" / "manifest.jsonl"
    whole = path.read_bytes()
    for cut in (*range(0, len(whole), 23), len(whole) - 1, len(whole)):
        path.write_bytes(whole[:cut])
        book = opened(tmp_path / "out")
        assert len(book.records) == whole[:cut].count(b"\n")
        assert path.read_bytes() == whole[: whole[:cut].rfind(b"\n") + 1]  # what follows begins on a line of its own
        book.close()


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    fill(book, SHARDS[0])
    book.close()
    path = tmp_path / "out" / "_munjang" / "manifest.jsonl"
    path.write_bytes(b'{"shard": 1}\n' + path.read_bytes())
    with pytest.raises(ResumeError, match=r"manifest\.jsonl, line 1: damaged"):
        opened(tmp_path / "out")
    (path.parent / "job.json").write_bytes(b"{")
    with pytest.raises(ResumeError, match=r"job\.json is damaged"):
        opened(tmp_path / "out")
    assert not (path.parent / "lock").exists()


def test_an_output_counts_while_it_is_there_and_whole(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    for shard in SHARDS:
        fill(book, shard)
    (tmp_path / "out" / "조각 0.jsonl.out").unlink()
    (tmp_path / "out" / "조각 1.jsonl.out").write_bytes(b"cut")
    assert [book.known(shard) for shard in SHARDS] == [None, None, "c조각 2.jsonl"]
    book.close()


def test_workers_must_compute_alike(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    fill(book, SHARDS[0])
    with pytest.raises(DataError, match="compute in bfloat16 on cpu and in float32 on cpu"):
        fill(book, SHARDS[1], precision="bfloat16 on cpu")
    book.close()
    again = opened(tmp_path / "out")
    assert again.precision == "float32 on cpu"
    assert not (tmp_path / "out" / "조각 1.jsonl.out").exists()
    again.close()


def test_rejects_of_an_attempt_that_came_to_nothing_are_forgotten(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    book.begin(SHARDS[0])
    book.reject(SHARDS[0], [(7, "x")])
    book.begin(SHARDS[0])
    book.forget(SHARDS[0])
    fill(book, SHARDS[0], rejects=2)
    fill(book, SHARDS[1])
    path = book.collect_rejects()
    assert path is not None
    assert path.read_text(encoding="utf-8").splitlines() == [
        '{"shard": "조각 0.jsonl", "line": 1, "reason": "왜냐하면"}',
        '{"shard": "조각 0.jsonl", "line": 2, "reason": "왜냐하면"}',
    ]
    fill(book, SHARDS[0])
    assert book.collect_rejects() is None
    assert not path.exists()
    book.close()


def test_a_token_tells_the_folder(tmp_path: Path) -> None:
    book = opened(tmp_path / "out")
    assert (book.aside / TOKEN).read_text() == book.token
    book.close()
