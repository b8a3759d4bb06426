"""Files of vectors: what went in comes out, and no interruption changes that."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from munjang.errors import DataError, InputError, MissingExtraError, MunjangError, ResumeError
from munjang.vectors import VectorWriter, open_writer, read_vectors
from munjang.vectors.files import create_npy, shortest_decimals

DIM = 5
SUFFIXES = [".npy", ".parquet", ".jsonl"]
HARD_TEXTS = [
    "",
    "한국어 문장입니다.",
    "emoji 👩‍👩‍👧‍👦🎉",
    "two\nlines\r\n\ttab",
    'quote " and \\',
    "\u2028\u0085\x00",
    "ab",
    "a" * 3000,
]

every_format = pytest.mark.parametrize("suffix", SUFFIXES)


def make_rows(count: int, seed: int = 0) -> tuple[np.ndarray, list[str], dict[str, list[object]]]:
    """count rows that differ from each other: vectors, texts, columns."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    texts = [HARD_TEXTS[row % len(HARD_TEXTS)] + (str(row) if row >= len(HARD_TEXTS) else "") for row in range(count)]
    labels: list[object] = [None if row % 3 else f"라벨 {row}" for row in range(count)]
    return vectors, texts, {"id": list(range(count)), "label": labels}


def columns_for(path: Path, columns: dict[str, list[object]], rows: slice) -> dict[str, list[object]] | None:
    return None if path.suffix == ".npy" else {name: values[rows] for name, values in columns.items()}


def drive(path: Path, count: int, window: int = 7, **options: object) -> tuple[int, Path]:
    """Write rows as a caller should: skip what is done, append the rest. How many rows were appended."""
    vectors, texts, columns = make_rows(count)
    appended = 0
    with open_writer(path, width=DIM, setting="model-a", **options) as writer:  # type: ignore[arg-type]
        for start in range(0, count, window):
            rows = slice(start, start + window)
            done = writer.skip(texts[rows], columns_for(path, columns, rows))
            rest = slice(start + done, min(start + window, count))
            writer.append(vectors[rest], texts[rest], columns_for(path, columns, rest))
            appended += rest.stop - rest.start
        return appended, writer.finish()


def check_file(path: Path, count: int) -> None:
    vectors, texts, columns = make_rows(count)
    found = read_vectors(path)
    assert found.dtype == np.float32
    assert found.shape == ((count, DIM) if count or path.suffix != ".jsonl" else (0, 0))
    if count:
        np.testing.assert_array_equal(found, vectors)
    if path.suffix == ".npy":
        loaded = np.load(path, mmap_mode="r")
        assert loaded.flags.c_contiguous
        assert loaded.shape == (count, DIM)
        return
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        assert str(table.schema.field("vector").type).startswith("fixed_size_list<")
        assert table.schema.field("text").type == "string"
        assert table.schema.metadata[b"munjang.fingerprint"] == b"model-a"
        records = table.to_pylist()
    else:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert [record["text"] for record in records] == texts
    assert [record["id"] for record in records] == columns["id"] if count else records == []
    assert [record["label"] for record in records] == columns["label"] if count else True


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@every_format
@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_what_goes_in_comes_out_and_nothing_is_left_beside(tmp_path: Path, suffix: str, count: int) -> None:
    path = tmp_path / f"벡터 out{suffix}"
    appended, finished = drive(path, count)
    assert (appended, finished) == (count, path)
    check_file(path, count)
    assert names(tmp_path) == [path.name]


@every_format
def test_the_final_name_appears_only_at_finish(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    vectors, texts, _ = make_rows(4)
    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.append(vectors, texts)
        assert not path.exists()
    assert not path.exists()
    with pytest.raises(DataError, match="unfinished"):
        read_vectors(path)


def test_a_run_without_rows_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError), open_writer(tmp_path / "out.npy", width=DIM, setting="f") as writer:
        writer.append(np.zeros((1, DIM + 1), np.float32), ["a"])
    assert names(tmp_path) == []


def garble(folder: Path, path: Path, extra: bytes) -> None:
    """What a kill may leave behind the durable rows: bytes, parts, files that were being written aside."""
    partial = folder / f"{path.name}.partial"
    (folder / f"{path.name}.progress.json.tmp").write_bytes(extra)
    if partial.exists():
        with open(partial, "ab") as file:
            file.write(extra)
        if path.suffix == ".parquet":
            (folder / f"{path.name}.partial.joined").write_bytes(extra)


@every_format
@given(
    count=st.integers(1, 40),
    runs=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40), st.binary(max_size=60)), max_size=4),
    last=st.integers(1, 50),
)
@settings(max_examples=25, deadline=None)
def test_interruptions_and_other_windows_change_nothing(
    suffix: str, count: int, runs: list[tuple[int, int, bytes]], last: int
) -> None:
    vectors, texts, columns = make_rows(count)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"out{suffix}"
        reached = 0
        for window, stop, extra in runs:
            with open_writer(path, width=DIM, setting="model-a") as writer:
                assert writer.rows_done == reached
                for start in range(0, min(stop, count), window):
                    rows = slice(start, start + window)
                    done = writer.skip(texts[rows], columns_for(path, columns, rows))
                    rest = slice(start + done, min(start + window, count))
                    writer.append(vectors[rest], texts[rest], columns_for(path, columns, rest))
                reached = writer.rows
            garble(Path(name), path, extra)
        appended, _ = drive(path, count, last)
        assert appended == count - reached
        check_file(path, count)


class Killed(BaseException):
    """Stands for a kill: raised after the folder has been copied as a kill would leave it."""


@every_format
@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_before_any_step_to_the_disk(
    tmp_path: Path, suffix: str, replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fsync, rename, truncation and removal is a place to die; after each the run goes on to the same file."""
    count, steps = 12, 0
    while True:
        work, after = tmp_path / f"work{steps}", tmp_path / f"after{steps}"
        work.mkdir()
        path = work / f"out{suffix}"
        if replaces:
            path.write_bytes(b"an old file")
        with monkeypatch.context() as patch:
            left = [steps]
            for name in ("fsync", "replace", "unlink", "rmdir", "mkdir"):
                patch.setattr(os, name, dying(getattr(os, name), left, work, after))
            try:
                drive(path, count, 5, overwrite=replaces)
                break
            except Killed:
                pass
        copied = after / path.name
        try:
            drive(copied, count, 4)
            check_file(copied, count)
        except DataError:
            # Killed before the run had begun, or after it had finished: the file that is there is whole.
            if not (replaces and copied.read_bytes() == b"an old file"):
                check_file(copied, count)
                assert names(after) == [copied.name]
        steps += 1
    assert steps > 15


def dying(call: Callable[..., object], left: list[int], work: Path, after: Path) -> Callable[..., object]:
    def wrapped(*args: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == -1:
            shutil.copytree(work, after)
            raise Killed
        return call(*args, **options)

    return wrapped


KILL_SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_files import drive
print("ready", flush=True)
drive(Path(sys.argv[1]), 900, 3)
"""


@pytest.mark.slow  # tests/test_kills.py kills at every step
@every_format
def test_kill_nine_at_random_moments(tmp_path: Path, suffix: str) -> None:
    path, chance = tmp_path / f"out{suffix}", random.Random(suffix)
    kills = 0
    for _ in range(5):
        command = [sys.executable, "-c", KILL_SCRIPT, str(path), str(Path(__file__).parent)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(chance.uniform(0.01, 0.1) if kills < 4 else 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        process.stdout.close()
        assert process.returncode in (0, -signal.SIGKILL)
        if path.exists():
            break
    assert kills >= 1
    check_file(path, 900)
    with pytest.raises(DataError, match="already exists"):
        drive(path, 900)
    assert names(tmp_path) == [path.name]


KILL_AT_PUBLISHING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_files import drive
rename = os.replace
def rename_and_die(source, target):
    rename(source, target)
    if str(target) == os.path.realpath(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = rename_and_die
drive(Path(sys.argv[1]), 9)
"""


@pytest.fixture
def killed_at_publishing(tmp_path: Path, suffix: str) -> Path:
    """A finished file of nine rows whose run was killed before it removed what lay beside it."""
    path = tmp_path / f"out{suffix}"
    command = [sys.executable, "-c", KILL_AT_PUBLISHING, str(path), str(Path(__file__).parent)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert {f"{path.name}.lock", f"{path.name}.progress.json"} <= set(names(tmp_path))
    return path


@every_format
def test_the_same_call_completes_what_was_killed_after_publishing(killed_at_publishing: Path, suffix: str) -> None:
    path = killed_at_publishing
    appended, _ = drive(path, 9)
    assert appended == 0
    check_file(path, 9)
    assert names(path.parent) == [path.name]


@every_format
@pytest.mark.parametrize("other", ["fewer texts", "more texts", "other texts", "another model"])
def test_another_call_refuses_the_finished_file_and_leaves_nothing_beside_it(
    killed_at_publishing: Path, suffix: str, other: str
) -> None:
    path = killed_at_publishing
    vectors, texts, columns = make_rows(10)
    count = {"fewer texts": 8, "more texts": 10}.get(other, 9)
    texts = [f"{text}!" for text in texts] if other == "other texts" else texts
    setting = "model-b" if other == "another model" else "model-a"

    def call() -> None:
        with open_writer(path, width=DIM, setting=setting) as writer:
            done = writer.skip(texts[:count], columns_for(path, columns, slice(count)))
            writer.append(vectors[done:count], texts[done:count], columns_for(path, columns, slice(done, count)))
            writer.finish()

    with pytest.raises(DataError, match="already exists"):
        call()
    check_file(path, 9)
    assert names(path.parent) == [path.name]
    drive(path, 10, overwrite=True)
    check_file(path, 10)


def interrupted(path: Path, count: int = 10) -> None:
    vectors, texts, _ = make_rows(count)
    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.append(vectors, texts)


@every_format
def test_other_texts_are_refused_and_the_rows_kept(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    interrupted(path)
    _, texts, _ = make_rows(10)
    for wrong in ([*texts[:9], "other"], ["a", "b", *texts[2:]], [texts[1], texts[0], *texts[2:]]):
        with open_writer(path, width=DIM, setting="model-a") as writer:
            assert writer.skip(wrong[:4]) == 4
            with pytest.raises(ResumeError, match=r"10 rows.*other texts.*overwrite=True"):
                writer.skip(wrong[4:])
            with pytest.raises(InputError, match="closed"):
                writer.append(np.zeros((1, DIM), np.float32), ["x"])
    with open_writer(path, width=DIM, setting="model-a") as writer:
        assert writer.skip([*texts, "next"]) == 10


def test_moved_text_borders_and_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.append(np.ones((2, DIM), np.float32), ["ab", "c"], {"id": [1, 2]})
    for texts, columns in ((["a", "bc"], {"id": [1, 2]}), (["ab", "c"], {"id": [2, 1]}), (["ab", "c"], None)):
        with (
            open_writer(path, width=DIM, setting="model-a") as writer,
            pytest.raises(ResumeError, match="other texts or columns"),
        ):
            writer.skip(texts, columns)


def test_fewer_texts_than_rows_done_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    interrupted(path)
    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.skip(make_rows(10)[1][:4])
        assert writer.rows_to_skip == 6
        with pytest.raises(InputError, match="6 rows are done"):
            writer.append(np.zeros((1, DIM), np.float32), ["x"])
        with pytest.raises(ResumeError, match="10 rows, but this run has only 4 texts"):
            writer.finish()
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": DIM, "setting": "model-b"}, "'model-a'.*'model-b'"),
        ({"width": 6, "setting": "model-a"}, "width.*5, now 6"),
    ],
)
def test_another_run_is_refused_until_overwritten(tmp_path: Path, options: dict[str, object], message: str) -> None:
    path = tmp_path / "out.jsonl"
    interrupted(path)
    with pytest.raises(ResumeError, match=message):
        open_writer(path, **options)  # type: ignore[arg-type]
    with open_writer(path, overwrite=True, **options) as writer:  # type: ignore[arg-type]
        assert writer.rows_done == 0
        writer.finish()
    assert names(tmp_path) == [path.name]


@every_format
def test_a_finished_file_is_never_replaced_silently(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    drive(path, 3)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"already exists.*overwrite=True"):
        drive(path, 5)
    assert path.read_bytes() == before
    with open_writer(path, width=DIM, setting="model-a", overwrite=True) as writer:
        writer.append(*make_rows(2)[:2])
    assert path.read_bytes() == before  # until the new one is whole
    with open_writer(path, width=DIM, setting="model-a") as writer:
        assert writer.skip(make_rows(2)[1]) == 2  # leave to replace was given when the run began
        writer.finish()
    assert len(read_vectors(path)) == 2


@every_format
def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    interrupted(path)
    path.write_bytes(b"somebody else's")
    with pytest.raises(DataError, match="already exists"):
        open_writer(path, width=DIM, setting="model-a")
    path.rename(tmp_path / "elsewhere")
    with open_writer(path, width=DIM, setting="model-a") as writer:
        assert writer.rows_done == 10


@every_format
@pytest.mark.parametrize("syncs", [0, 1, 2, 3])
def test_finishing_after_an_interrupted_append(
    tmp_path: Path, suffix: str, syncs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two steps of an append, then finish: the rows before it, and not a byte more."""
    path = tmp_path / f"out{suffix}"
    vectors, texts, _ = make_rows(10)
    left, sync = [syncs], os.fsync

    def interrupt(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        sync(handle)

    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.append(vectors[:6], texts[:6])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupt)
            try:
                writer.append(vectors[6:], texts[6:])
            except KeyboardInterrupt:
                assert writer.rows == 6
        writer.finish()
        np.testing.assert_array_equal(read_vectors(path), vectors[: writer.rows])


@every_format
def test_a_second_writer_is_refused(tmp_path: Path, suffix: str) -> None:
    path, link = tmp_path / f"out{suffix}", tmp_path / f"link{suffix}"
    link.symlink_to(path)
    with open_writer(path, width=DIM, setting="model-a") as writer:
        for name in (path, link):
            with pytest.raises(DataError, match="another process"):
                open_writer(name, width=DIM, setting="model-a", overwrite=True)
        writer.append(*make_rows(2)[:2])
        writer.finish()
    assert len(read_vectors(link)) == 2


@every_format
@pytest.mark.parametrize("damage", ["shorter", "record", "version"])
def test_a_damaged_partial_is_found(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"out{suffix}"
    interrupted(path)
    partial, record = tmp_path / f"{path.name}.partial", tmp_path / f"{path.name}.progress.json"
    if damage == "shorter":
        partial.write_bytes(partial.read_bytes()[:-1])
    elif damage == "record":
        record.write_text("{")
    else:
        record.write_text(json.dumps({**json.loads(record.read_text()), "format": 99}))
    with pytest.raises(ResumeError, match=r"damaged|format 99"):
        open_writer(path, width=DIM, setting="model-a")
    drive(path, 5, overwrite=True)
    check_file(path, 5)


@every_format
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_error_says_what_is_safe(
    tmp_path: Path, suffix: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"out{suffix}"
    vectors, texts, _ = make_rows(10)

    def fail(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    with open_writer(path, width=DIM, setting="model-a") as writer:
        writer.append(vectors[:6], texts[:6])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(DataError, match=r"6 rows are safe.*same command again") as caught:
                writer.append(vectors[6:], texts[6:])
            assert ("disk is full" in str(caught.value)) == (code == errno.ENOSPC)
        writer.append(vectors[6:8], texts[6:8])  # the same writer may go on, too
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(DataError, match="8 rows are safe"):
                writer.finish()
    with open_writer(path, width=DIM, setting="model-a") as writer:
        assert writer.skip(texts) == 8
        writer.append(vectors[8:], texts[8:])
        writer.finish()
    np.testing.assert_array_equal(read_vectors(path), vectors)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, where the system lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@every_format
def test_a_full_disk_and_on_when_there_is_room(small_disk: Path, suffix: str) -> None:
    ballast, path, count = small_disk / "ballast", small_disk / f"out{suffix}", 120
    ballast.write_bytes(b"x" * (230 << 10))
    # A finish needs room as well (for .parquet a second copy), so rows that fill the disk may be all rows.
    with pytest.raises(DataError, match=r"disk is full.*rows are safe"):
        drive(path, 10_000 if suffix == ".npy" else count)
    assert not path.exists()
    record = json.loads((small_disk / f"{path.name}.progress.json").read_text())
    ballast.unlink()
    count = max(count, record["rows"] + 5)
    appended, _ = drive(path, count)
    assert appended == count - record["rows"] < count
    check_file(path, count)
    assert names(small_disk) == [path.name]


def open_at(tmp_path: Path, suffix: str = ".parquet") -> VectorWriter:
    return open_writer(tmp_path / f"out{suffix}", width=DIM, setting="model-a")


def test_parquet_column_types(tmp_path: Path) -> None:
    one = np.ones((2, DIM), np.float32)
    with open_at(tmp_path) as writer:
        writer.append(one, ["a", "b"], {"n": [None, None], "f": [0.5, 1.5], "s": [{"x": 1}, None], "never": [None] * 2})
        writer.append(one, ["c", "d"], {"n": [3, None], "f": [1, None], "s": [None, None], "never": [None] * 2})
    with open_at(tmp_path) as writer:  # types are known again after an interruption
        writer.skip(
            ["a", "b", "c", "d"],
            {"n": [None, None, 3, None], "f": [0.5, 1.5, 1, None], "s": [{"x": 1}, *[None] * 3], "never": [None] * 4},
        )
        good: dict[str, list[object]] = {"n": [5], "f": [0.1], "s": [{"x": 2}], "never": [None]}
        for wrong in ({"n": ["five"]}, {"f": ["x"]}, {"s": [{"x": 1, "y": 2}]}, {"n": [1.5]}):
            with pytest.raises(InputError, match=r"column '.' must be of the type its first rows had"):
                writer.append(one[:1], ["e"], {**good, **wrong})
        with pytest.raises(InputError, match="columns were"):
            writer.append(one[:1], ["e"], {"n": [5]})
        writer.append(one[:1], ["e"], {name: good[name] for name in reversed(good)})
        writer.finish()
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["text", "vector", "n", "f", "s", "never"]
    assert table["n"].to_pylist() == [None, None, 3, None, 5]
    assert table["f"].to_pylist() == [0.5, 1.5, 1.0, None, 0.1]
    assert table["s"].to_pylist() == [{"x": 1}, None, None, None, {"x": 2}]


def test_row_groups_are_cut_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.vectors.files.ROW_GROUP_BYTES", 800)
    drive(tmp_path / "out.parquet", 60, 4)
    assert 1 < pq.ParquetFile(tmp_path / "out.parquet").num_row_groups < 15
    check_file(tmp_path / "out.parquet", 60)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    vector = np.ones((1, DIM), np.float32)
    with open_at(tmp_path, ".jsonl") as writer:
        writer.append(vector, ["x\ud83d"])
        writer.finish()
    assert json.loads((tmp_path / "out.jsonl").read_bytes())["text"] == "x\ud83d"
    with open_at(tmp_path) as writer, pytest.raises(InputError, match=r"'text'.*rows 0 to 0"):
        writer.append(vector, ["x\ud83d"])


@pytest.mark.parametrize(
    ("vectors", "texts", "columns", "message"),
    [
        (np.zeros((1, 4), np.float32), ["a"], None, r"\(1, 5\).*\(1, 4\)"),
        (np.zeros((2, 5), np.float32), ["a"], None, r"\(1, 5\).*\(2, 5\)"),
        (np.zeros((1, 5), np.int64), ["a"], None, "floats.*int64"),
        (np.full((1, 5), np.nan, np.float32), ["a"], None, "row 3 is not finite"),
        (np.full((1, 5), 1e300), ["a"], None, "row 3 is not finite"),
        (np.zeros((1, 5), np.float32), [None], None, "text 3 must be a string, got NoneType"),
        (np.zeros((1, 5), np.float32), ["a"], {"vector": [1]}, "cannot be called 'vector'"),
        (np.zeros((1, 5), np.float32), ["a"], {"id": [1, 2]}, "2 values for 1 texts"),
        (np.zeros((1, 5), np.float32), ["a"], {"id": [1]}, "columns were"),
    ],
)
def test_bad_rows_are_refused(
    tmp_path: Path, vectors: np.ndarray, texts: list[str], columns: dict[str, list[object]] | None, message: str
) -> None:
    with open_at(tmp_path, ".jsonl") as writer:
        writer.append(*make_rows(3)[:2])
        with pytest.raises(InputError, match=message):
            writer.append(vectors, texts, columns)
        writer.finish()
    assert len(read_vectors(tmp_path / "out.jsonl")) == 3


def test_bad_columns_of_npy_and_jsonl(tmp_path: Path) -> None:
    vector = np.zeros((1, DIM))
    with open_at(tmp_path, ".npy") as writer, pytest.raises(InputError, match="holds vectors only, not id"):
        writer.append(vector, ["a"], {"id": [1]})
    for value in (float("nan"), object(), b"bytes"):
        with open_at(tmp_path, ".jsonl") as writer, pytest.raises(InputError, match=r"row 0 cannot.*columns: id"):
            writer.append(vector, ["a"], {"id": [value]})


def test_bad_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.npy").mkdir()
    for name, message in (("out.csv", ".npy, .parquet, .jsonl"), ("no/out.npy", "no folder"), ("folder.npy", "folder")):
        with pytest.raises(MunjangError, match=message):
            open_writer(tmp_path / name, width=DIM, setting="f")
    with pytest.raises(InputError, match="at least 1"):
        open_writer(tmp_path / "out.npy", width=0, setting="f")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[parquet\]"):
        open_writer(tmp_path / "out.parquet", width=DIM, setting="f")


def test_damaged_files_are_not_read(tmp_path: Path) -> None:
    def damaged(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    for suffix in SUFFIXES:
        drive(tmp_path / f"good{suffix}", 4)
    npy, parquet, jsonl = ((tmp_path / f"good{suffix}").read_bytes() for suffix in SUFFIXES)
    assert len(npy) == 128 + 4 * 4 * DIM
    cases = [
        (damaged("a.npy", npy[:-1]), "it has 207 bytes"),
        (damaged("b.npy", npy[:50]), "no .npy file"),
        (damaged("c.npy", b""), "no .npy file"),
        (damaged("h.npy", npy + b"x"), "needs 208 bytes, it has 209"),
        (damaged("d.parquet", parquet[:-9]), "no .parquet file"),
        (damaged("e.jsonl", jsonl[:-9]), "line 4 cannot be read"),
        (damaged("f.jsonl", jsonl + b'{"vector": [1.0]}\n'), r"line 5 has a vector of shape \(1,\)"),
        (damaged("g.jsonl", b'{"text": "a"}\n'), "line 1 has no 'vector'"),
        (tmp_path / "none.npy", "does not exist"),
    ]
    for path, message in cases:
        with pytest.raises(DataError, match=message):
            read_vectors(path)
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"float64 \(3,\)"):
        read_vectors(tmp_path / "flat.npy")


@given(stn.arrays(np.float32, (1, 8), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
@settings(max_examples=300, deadline=None)
def test_decimals_are_the_shortest_that_read_back(vectors: np.ndarray) -> None:
    (row,) = shortest_decimals(vectors)
    np.testing.assert_array_equal(np.array(row, np.float32), vectors[0])
    for decimal, value in zip(row, vectors[0], strict=True):
        digits = [
            len(f"{number!r}".lstrip("-").split("e")[0].replace(".", "").strip("0"))
            for number in (decimal, float(str(value)))
        ]
        assert digits[0] <= digits[1]


def test_appending_does_not_slow_down(tmp_path: Path) -> None:
    """The record is of one size: the thousandth window costs what the first did."""
    vectors, texts, _ = make_rows(1)
    with open_at(tmp_path, ".npy") as writer:
        sizes = []
        for _ in range(300):
            writer.append(vectors, texts)
            sizes.append((tmp_path / "out.npy.progress.json").stat().st_size)
    assert sizes[-1] - sizes[0] < 20


def test_a_file_filled_in_pieces_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "matrix.npy"
    with create_npy(path, (3, 2), np.float16) as matrix:
        matrix[:2], matrix[2:] = 1, 2
        assert not path.exists()
    assert np.load(path).tolist() == [[1, 1], [1, 1], [2, 2]]
    with pytest.raises(ValueError, match="stop"), create_npy(path, (3, 2), np.float16) as matrix:
        raise ValueError("stop")
    assert np.load(path).tolist() == [[1, 1], [1, 1], [2, 2]]
    assert names(tmp_path) == [path.name]


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"no \.npy file"):
        read_vectors(tmp_path / "objects.npy")


@every_format
def test_what_an_earlier_version_left_is_refused_until_overwritten(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    (tmp_path / f"{path.name}.partial").mkdir()
    (tmp_path / f"{path.name}.partial" / "part-000000000000000.arrow").write_bytes(b"rows")
    (tmp_path / f"{path.name}.progress.json").write_text('{"format": 1, "rows": 7}')
    with pytest.raises(ResumeError, match=r"another version.*overwrite"):
        drive(path, 5)
    drive(path, 5, overwrite=True)
    check_file(path, 5)
    assert names(tmp_path) == [path.name]


def test_a_full_disk_stops_a_file_that_is_filled_in_pieces(small_disk: Path) -> None:
    with pytest.raises(DataError, match="disk is full"), create_npy(small_disk / "m.npy", (1 << 20,), np.float32):
        raise AssertionError("there is no room")
    assert names(small_disk) == []
