"""Whole jobs, with workers in this process: what comes out, what a rerun does, who does what when workers die."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from munjang.bi_encoder import BiEncoder
from munjang.errors import DataError, InputError, ModelNotFoundError, ResumeError
from munjang.sharding import JobProgress, ModelSource, Reading, ShardOptions, encode_shards
from munjang.sharding.messages import Began, Done
from munjang.vectors import read_vectors
from support.sharded import Inline, outputs, rows, write_jsonl, write_parquet


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Mixed formats, a folder within, Korean names, an empty one."""
    folder = tmp_path / "in"
    write_jsonl(folder / "a.jsonl", rows(30, "a"))
    write_parquet(folder / "b.parquet", rows(20, "b"))
    write_jsonl(folder / "하위 폴더" / "문장 모음 1.jsonl.gz", rows(10, "ko"))
    write_jsonl(folder / "empty.jsonl", [])
    return folder


NAMES = ["a.jsonl.parquet", "b.parquet", "empty.jsonl.parquet", "하위 폴더/문장 모음 1.jsonl.gz.parquet"]


@pytest.mark.usefixtures("exact")
def test_every_shard_becomes_a_file_of_its_vectors(jobs: Any, shards: Path, tmp_path: Path, model: BiEncoder) -> None:
    import pyarrow.parquet as pq

    seen: list[JobProgress] = []
    result = jobs.run(shards, tmp_path / "out", keep=("id",), progress=seen.append)
    assert (result.shards, result.encoded, result.rows, result.rejected, result.ok) == (4, 4, 60, 0, True)
    assert result.rejects is None
    assert list(outputs(tmp_path / "out")) == NAMES
    for name, count, key in zip(NAMES, [30, 20, 0, 10], ["a", "b", "", "ko"], strict=True):
        expected = rows(count, key)
        table = pq.read_table(tmp_path / "out" / name)
        assert table.column("text").to_pylist() == [row["text"] for row in expected]
        if count:
            assert table.column("id").to_pylist() == [row["id"] for row in expected]
            vectors = read_vectors(tmp_path / "out" / name)
            np.testing.assert_allclose(vectors, model.encode([row["text"] for row in expected]), atol=1e-5)
    assert (seen[-1].done, seen[-1].rows, seen[-1].share) == (4, 60, 1.0)
    assert [one.rows for one in seen] == sorted(one.rows for one in seen)


@pytest.mark.parametrize("format", ["npy", "jsonl"])
@pytest.mark.usefixtures("exact")
def test_other_formats(jobs: Any, shards: Path, tmp_path: Path, model: BiEncoder, format: str) -> None:
    jobs.run(shards, tmp_path / "out", format=format, normalize=True)
    name = "a.jsonl" if format == "jsonl" else "a.jsonl.npy"
    vectors = read_vectors(tmp_path / "out" / name)
    expected = model.encode([row["text"] for row in rows(30)], normalize=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_rerun_does_only_what_is_not_done(jobs: Any, shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs.run(shards, out)
    before = {name: (out / name).stat().st_mtime_ns for name in NAMES}
    again = jobs.run(shards, out)
    assert (again.encoded, again.skipped, again.rows) == (0, 4, 0)
    # Another content of the same size and the same time of change: only the hash can tell.
    changed, stamp = shards / "a.jsonl", (shards / "a.jsonl").stat()
    changed.write_bytes(changed.read_bytes().replace(b"raining", b"snowing"))
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (out / "b.parquet").unlink()
    os.utime(shards / "empty.jsonl")  # touched, not changed
    write_jsonl(shards / "new.jsonl", rows(3))
    third = jobs.run(shards, out)
    assert (third.encoded, third.skipped, third.rows) == (3, 2, 53)
    assert {name for name, _ in outputs(out).items() if (out / name).stat().st_mtime_ns != before.get(name)} == {
        "a.jsonl.parquet",
        "b.parquet",
        "new.jsonl.parquet",
    }
    (shards / "new.jsonl").unlink()
    assert jobs.run(shards, out).gone == ("new.jsonl",)


def test_another_model_or_setting_is_refused_until_told(jobs: Any, shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs.run(shards, out)
    before = outputs(out)
    for other, match in [
        ({"normalize": True}, "normalize"),
        ({"format": "jsonl"}, "format"),
        ({"column": "id"}, "column"),
        ({"model": ModelSource(jobs.model, max_length=16)}, "model"),
    ]:
        with pytest.raises(ResumeError, match=f"was begun with {match}"):
            jobs.run(shards, out, **other)
        assert outputs(out) == before
    jobs.run(shards, out, format="jsonl", overwrite=True)
    assert not [name for name in outputs(out) if name.endswith("parquet")]  # no vectors of two kinds side by side


def test_bad_rows_are_set_aside_with_their_reason(jobs: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = rows(5, "가")
    write_jsonl(folder / "나쁜 줄.jsonl", [good[0], {"id": 1}, *good[1:3], {"text": None}, 7])
    with open(folder / "나쁜 줄.jsonl", "ab") as file:
        file.write(b'{"id": "x", "te\n' + json.dumps(good[4]).encode() + b"\n")
    write_parquet(folder / "b.parquet", [{"text": "비"}, {"text": None}])
    result = jobs.run(folder, tmp_path / "out", column="text")
    assert (result.rows, result.rejected, result.ok) == (5, 5, True)
    assert result.rejects == tmp_path / "out" / "_rejects.jsonl"
    found = [json.loads(line) for line in result.rejects.read_text(encoding="utf-8").splitlines()]
    assert [(row["shard"], row["line"]) for row in found] == [
        ("b.parquet", 2),
        *(("나쁜 줄.jsonl", line) for line in (2, 5, 6, 7)),
    ]
    assert all(row["reason"] for row in found)
    assert len(read_vectors(tmp_path / "out" / "나쁜 줄.jsonl.parquet")) == 4
    again = jobs.run(folder, tmp_path / "out", column="text")  # the list is of all shards, not of this run's
    assert again.rejected == 0
    assert again.rejects is not None
    assert len(again.rejects.read_text(encoding="utf-8").splitlines()) == 5
    write_parquet(folder / "b.parquet", [{"text": "비"}, {"text": "나았다"}])
    repaired = jobs.run(folder, tmp_path / "out", column="text")
    assert "b.parquet" not in repaired.rejects.read_text(encoding="utf-8")


def test_a_shard_that_cannot_be_done_does_not_stop_the_others(jobs: Any, shards: Path, tmp_path: Path) -> None:
    (shards / "broken.parquet").write_bytes(b"PAR1 no")
    (shards / "wrong.jsonl").write_bytes(b"no json\n" * 3)
    (shards / "cut.jsonl.gz").write_bytes((shards / "하위 폴더" / "문장 모음 1.jsonl.gz").read_bytes()[:-9])
    result = jobs.run(shards, tmp_path / "out")
    assert [shard.name for shard in result.failed] == ["broken.parquet", "cut.jsonl.gz", "wrong.jsonl"]
    assert "none of its 3 rows can be used; line 1: expected a JSON value" in result.failed[2].reason
    assert not result.ok
    assert list(outputs(tmp_path / "out")) == NAMES
    assert len(jobs.teams[-1].given) == 7  # what is wrong with a file does not change by trying again
    write_jsonl(shards / "wrong.jsonl", rows(2))
    assert [shard.name for shard in jobs.run(shards, tmp_path / "out").failed] == ["broken.parquet", "cut.jsonl.gz"]


def test_dead_workers_are_replaced_and_their_shards_given_again(jobs: Any, shards: Path, tmp_path: Path) -> None:
    jobs.run(shards, tmp_path / "plain")
    deaths = {2, 5, 9}
    jobs.dies = lambda number, message: number in deaths
    result = jobs.run(shards, tmp_path / "out")
    assert result.ok
    assert jobs.teams[-1].started == 5
    assert jobs.teams[-1].stopped
    assert outputs(tmp_path / "out") == outputs(tmp_path / "plain")
    assert not (tmp_path / "out" / "_munjang" / "aside").exists()


def test_a_shard_that_kills_its_workers_fails_alone(jobs: Any, shards: Path, tmp_path: Path) -> None:
    write_jsonl(shards / "poison.jsonl", rows(200))  # the only one with so many rows
    jobs.dies = lambda _, message: isinstance(message, Done) and message.rows == 200
    result = jobs.run(shards, tmp_path / "out", attempts=3)
    assert [shard.name for shard in result.failed] == ["poison.jsonl"]
    assert result.failed[0].reason == "tried 3 times, the last: killed by the test"
    assert result.encoded == 4
    assert list(outputs(tmp_path / "out")) == NAMES
    jobs.dies = lambda *_: False
    assert jobs.run(shards, tmp_path / "out").encoded == 1


def test_workers_that_all_die_end_the_job(jobs: Any, shards: Path, tmp_path: Path) -> None:
    jobs.dies = lambda number, message: isinstance(message, Began)
    assert len(jobs.run(shards, tmp_path / "out").failed) == 4
    for number in range(5):
        write_jsonl(shards / f"more {number}.jsonl", rows(1))
    with pytest.raises(DataError, match="21 workers were lost one after another, the last: killed by the test"):
        jobs.run(shards, tmp_path / "out")
    assert jobs.teams[-1].stopped


def test_workers_that_cannot_start_end_the_job(
    jobs: Any, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inline, "start", lambda team, number: team.loses(number, "no such module"))
    with pytest.raises(DataError, match="workers were lost one after another, the last: no such module"):
        jobs.run(shards, tmp_path / "out")
    monkeypatch.setattr(Inline, "start", lambda *_: None)
    with pytest.raises(DataError, match="no worker has started for 0 s"):
        jobs.run(shards, tmp_path / "out", start_seconds=0.1)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=st.sets(st.integers(1, 25), max_size=6), ends=st.integers(1, 30), workers=st.integers(1, 3))
def test_whoever_dies_and_whenever_the_job_ends_the_bytes_are_the_same(
    deaths: set[int], ends: int, workers: int, jobs: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in "abcd":
        write_jsonl(folder / "in" / f"{name}.jsonl", [*rows(3, name), 5])
    jobs.dies = lambda *_: False
    jobs.run(folder / "in", folder / "plain", keep=("id",))

    def dies(number: int, message: object) -> bool:
        if number == ends:
            raise KeyboardInterrupt
        return number in deaths

    jobs.dies = dies
    try:
        first = jobs.run(folder / "in", folder / "out", keep=("id",), workers=workers, attempts=10).encoded
    except KeyboardInterrupt:
        first = len((folder / "out" / "_munjang" / "manifest.jsonl").read_bytes().splitlines())
    jobs.dies = lambda *_: False
    second = jobs.run(folder / "in", folder / "out", keep=("id",))
    assert (second.encoded, second.skipped) == (4 - first, first)  # exactly once
    assert outputs(folder / "out") == outputs(folder / "plain")


def test_a_shard_that_changes_while_it_is_read_is_tried_again(jobs: Any, shards: Path, tmp_path: Path) -> None:
    changed: list[int] = []

    def dies(number: int, message: object) -> bool:
        if isinstance(message, Began) and message.rows == 30 and not changed:
            changed.append(number)
            with open(shards / "a.jsonl", "ab") as file:
                file.write(b'{"id": "more", "text": "x", "year": 1}\n')
        return False

    jobs.dies = dies
    assert jobs.run(shards, tmp_path / "out").ok
    assert len(read_vectors(tmp_path / "out" / "a.jsonl.parquet")) == 31


def test_bad_input_is_told_before_anything_starts(jobs: Any, shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    write_jsonl(tmp_path / "twins" / "a.jsonl", rows(1))
    write_parquet(tmp_path / "twins" / "a.jsonl.parquet", rows(1))
    for call, error, match in [
        (lambda: jobs.run(shards), InputError, "either output"),
        (lambda: jobs.run(shards, out, into="x"), InputError, "either output"),
        (lambda: jobs.run(shards, shards / "out"), InputError, "lies in the input folder"),
        (lambda: jobs.run(shards, shards), InputError, "lies in the input folder"),
        (lambda: jobs.run(shards, shards / "a.jsonl"), DataError, "is a file"),
        (lambda: jobs.run(shards, tmp_path / "full"), DataError, "a folder with other files"),
        (lambda: jobs.run(shards, out, model="./nothing"), ModelNotFoundError, "there is no folder"),
        (lambda: jobs.run(shards, out, prompt_name="none"), InputError, "prompt_name must be"),
        (lambda: jobs.run(shards, out, state="x"), InputError, "state is for into"),
        (lambda: jobs.run(tmp_path / "twins", out), InputError, "would both be written to"),
        (lambda: jobs.run(shards, into="postgresql://h/d?index=x"), InputError, "--state FOLDER"),
        (lambda: ShardOptions(workers=0), InputError, "workers must be"),
        (lambda: ShardOptions(engine="dask"), InputError, "engine must be"),  # type: ignore[arg-type]
        (lambda: ShardOptions(address="auto"), InputError, "needs engine='ray'"),
        (lambda: ShardOptions(format="npy", reading=Reading(keep=("id",))), InputError, "keep needs"),
        (lambda: Reading(keep=("vector",)), InputError, "'text' or 'vector'"),
        (lambda: encode_shards(shards, out, model=object()), InputError, "by its name"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(error, match=match):
            call()
    assert not out.exists()
    assert not jobs.teams


def test_one_job_at_a_time(jobs: Any, shards: Path, tmp_path: Path) -> None:
    def second(_: JobProgress) -> None:
        with pytest.raises(DataError, match="being written by another process"):
            jobs.run(shards, tmp_path / "out")

    assert jobs.run(shards, tmp_path / "out", progress=second).ok


def test_progress_and_time_left() -> None:
    from munjang.sharding.progress import Tracker
    from munjang.sharding.shards import Shard

    tracker = Tracker([Shard("a", "", 300), Shard("b", "", 100), Shard("c", "", 100)], False)
    assert "0%" in tracker.now().line()
    tracker.ended("c", "skipped")
    tracker.began("a", 10)
    tracker.advanced("a", 5)
    now = tracker.now()
    assert now.share == pytest.approx((100 + 150) / 500)
    assert now.seconds_left is not None
    assert now.seconds_left > 0
    assert "1 of 3 shards, 5 rows" in now.line()
    tracker.stopped("a")
    assert tracker.now().share == pytest.approx(0.2)
    tracker.ended("a", "done", rows=9, rejected=1)
    tracker.ended("b", "failed")
    assert tracker.now().share == 1
    assert "2 of 3 shards, 10 rows" in tracker.now().line()
    assert "1 set aside" in tracker.now().line()
