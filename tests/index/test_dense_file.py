"""The file of dense vectors: read back alike, recognised when it is damaged, foreign or newer, and never believed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.errors import DataError
from munjang.index import dense, dense_file
from munjang.index.dense import FILE, DenseIndex
from munjang.index.dense_file import Unusable
from support.dense_passages import FakePassages, brute_force, clustered, recall

DIMENSION = 12


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "SMALL", 50)


@pytest.fixture(scope="module")
def passages() -> FakePassages:
    return FakePassages(DIMENSION).after(clustered(1500, DIMENSION)).after(remove=[3, 4, 1500])


LAYOUTS = {
    "float32": {"vectors": "float32"},
    "int8": {"vectors": "int8"},
    "binary": {"vectors": "binary"},
    "graph": {"vectors": "float32", "exact_up_to": 0},
    "int8 graph": {"vectors": "int8", "exact_up_to": 0},
}


def _index(folder: Path, layout: str, **more: object) -> DenseIndex:
    return DenseIndex(folder, dimension=DIMENSION, **{**LAYOUTS[layout], **more})  # type: ignore[arg-type]


def _answers(index: DenseIndex, passages: FakePassages) -> bool:
    """As brute force does, or as good as (graphs, bits)."""
    state = index.refresh(passages)
    queries = clustered(25, DIMENSION, seed=7)
    found, expected = state.search(queries, 8), brute_force(passages, queries, 8, "cosine", None)
    return bool(recall(found, expected) >= 0.99 and np.isin(found.numbers, passages.numbers()).all())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_saved_is_read_and_nothing_else(layout: str, passages: FakePassages, tmp_path: Path) -> None:
    _index(tmp_path, layout).save(passages)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    passages.streamed.clear()
    index = _index(tmp_path, layout)
    state = index.refresh(passages)
    assert passages.streamed == []
    assert (state.main.graph is not None) == ("graph" in layout)
    assert _answers(index, passages)
    later = passages.after(clustered(20, DIMENSION, seed=3), remove=np.arange(100, 130))
    assert _answers(_index(tmp_path, layout), later)
    assert passages.streamed == [20]


def _truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _noise_at(place: float) -> object:
    def damage(data: bytes) -> bytes:
        at = int(len(data) * place)
        noise = np.random.default_rng(1).bytes(64)
        return data[:at] + noise + data[at + 64 :]

    return damage


DAMAGES = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "truncated": _truncated,
    "longer": lambda data: data + b"x",
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
    "noise at the start": _noise_at(0),
    "noise in the header": _noise_at(0.001),
    "noise in the middle": _noise_at(0.5),
    "noise at the end": _noise_at(0.995),
    "zeros in the middle": lambda data: data[: len(data) // 2] + bytes(4096) + data[len(data) // 2 + 4096 :],
    "one bit": lambda data: data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :],
}


@pytest.mark.parametrize("layout", ["float32", "int8", "binary", "graph"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_changes_no_answer(layout: str, damage: str, passages: FakePassages, tmp_path: Path) -> None:
    _index(tmp_path, layout).save(passages)
    path = tmp_path / FILE
    data = path.read_bytes()
    after = DAMAGES[damage](data)  # type: ignore[operator]
    path.unlink() if after is None else path.write_bytes(after)
    passages.streamed.clear()
    index = _index(tmp_path, layout)
    assert _answers(index, passages)
    assert passages.streamed  # the rows came from the index
    # Whoever may write puts it right.
    index.save(passages)
    passages.streamed.clear()
    assert _answers(_index(tmp_path, layout), passages)
    assert not passages.streamed


def test_damage_under_an_open_index_changes_nothing(passages: FakePassages, tmp_path: Path) -> None:
    """A file that were mapped would take the process with it."""
    _index(tmp_path, "float32").save(passages)
    index = _index(tmp_path, "float32")
    index.refresh(passages)
    with open(tmp_path / FILE, "r+b") as file:
        file.truncate(10)
    assert _answers(index, passages)


@pytest.mark.parametrize("layout", ["float32", "int8", "binary", "graph"])
def test_a_file_of_another_index(layout: str, passages: FakePassages, tmp_path: Path) -> None:
    """Same numbers, same shape, other vectors."""
    other = FakePassages(DIMENSION).after(clustered(1500, DIMENSION, seed=5)).after(remove=[3, 4, 1500])
    _index(tmp_path, layout).save(other)
    assert _answers(_index(tmp_path, layout), passages)


@pytest.mark.parametrize(
    "options",
    [{"dimension": 13}, {"vectors": "int8"}, {"similarity": "dot"}, {"identity": "another"}],
    ids=lambda options: next(iter(options)),
)
def test_a_file_of_another_kind_is_not_used(options: dict[str, object], passages: FakePassages, tmp_path: Path) -> None:
    _index(tmp_path, "float32").save(passages)
    dimension = int(options.get("dimension", DIMENSION))  # type: ignore[call-overload]
    mine = FakePassages(dimension).after(clustered(1500, dimension)).after(remove=[3, 4, 1500])
    index = DenseIndex(tmp_path, **{"dimension": dimension, **options})  # type: ignore[arg-type]
    state = index.refresh(mine)
    assert mine.streamed
    query = mine.vectors(np.array([77]))
    if options.get("similarity") != "dot":
        assert state.search(query, 1).numbers.tolist() == [[77]]


def test_a_newer_file_is_not_used(passages: FakePassages, tmp_path: Path) -> None:
    """The documents were put back to an earlier state."""
    later = passages.after(clustered(700, DIMENSION, seed=8))
    _index(tmp_path, "float32").save(later)
    index = _index(tmp_path, "float32")
    assert _answers(index, passages)
    different = passages.after(clustered(700, DIMENSION, seed=9)).after()  # the same numbers again, other vectors
    assert _answers(_index(tmp_path, "float32"), different)


def test_it_is_written_only_when_enough_has_changed(passages: FakePassages, tmp_path: Path) -> None:
    index = _index(tmp_path, "float32")
    few = FakePassages(DIMENSION).after(clustered(50, DIMENSION))
    index.save(few)
    assert not (tmp_path / FILE).exists()
    index = _index(tmp_path, "float32")
    index.save(passages)
    first = os.stat(tmp_path / FILE).st_ino
    small = passages.after(clustered(100, DIMENSION, seed=2))
    index.save(small)
    assert os.stat(tmp_path / FILE).st_ino == first
    large = small.after(clustered(300, DIMENSION, seed=3))
    index.save(large)
    assert dense_file.read_header(tmp_path / FILE)["upto"] == large.last
    index.save(large.after(remove=[7]), whole=True)
    assert dense_file.read_header(tmp_path / FILE)["rows"] == len(large.held) - 1


def test_a_reader_takes_the_graph_that_a_writer_made_later(passages: FakePassages, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    writer, reader = _index(tmp_path, "graph"), _index(tmp_path, "graph")
    reader.refresh(passages)
    writer.save(passages)
    for step in range(3):
        passages = passages.after(clustered(200, DIMENSION, seed=20 + step))
        writer.save(passages)
        state = reader.refresh(passages)
        assert _answers(reader, passages)
    assert state.main.graph is not None
    assert len(state.tail.numbers) <= 200


def test_a_full_disk_leaves_the_old_file(
    passages: FakePassages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = _index(tmp_path, "float32")
    index.save(passages)
    before = (tmp_path / FILE).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    later = passages.after(clustered(900, DIMENSION, seed=2))
    with pytest.raises(DataError, match="disk is full"):
        index.save(later)
    assert (tmp_path / FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert _answers(index, later)


KILLED = """
import os, sys, threading, time
sys.path[:0] = [sys.argv[2]]
from pathlib import Path
from support.dense_passages import FakePassages, clustered
from munjang.index import dense
dense.SMALL = 50
index = dense.DenseIndex(Path(sys.argv[1]), dimension=12)
passages = FakePassages(12).after(clustered(1500, 12)).after(remove=[3, 4, 1500])
index.save(passages, whole=True)
print("ready", flush=True)
for step in range(1000):
    index.save(passages, whole=True)
"""


def test_killed_while_writing(passages: FakePassages, tmp_path: Path) -> None:
    for trial in range(3):
        arguments = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).resolve().parents[1])]
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        try:
            child.wait(0.05 + 0.037 * trial)
        except subprocess.TimeoutExpired:
            child.kill()
        child.wait()
        child.stdout.close()
        passages.streamed.clear()
        assert _answers(_index(tmp_path, "float32"), passages)
        assert not passages.streamed  # what was renamed is whole


# --- bytes -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    data=st.binary(min_size=1, max_size=3000),
    at=st.integers(0, 10_000),
    flip=st.integers(1, 255),
    repeat=st.sampled_from([1, 200]),
)
def test_every_changed_byte_changes_the_checksum(data: bytes, at: int, flip: int, repeat: int) -> None:
    whole = np.frombuffer(data * repeat, dtype=np.uint8)
    changed = whole.copy()
    changed[at % len(changed)] ^= flip
    assert dense_file.checksum(whole) != dense_file.checksum(changed)
    assert dense_file.checksum(whole) == dense_file.checksum(whole.copy())
    assert dense_file.checksum(whole) != dense_file.checksum(whole[:-1])


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(7, dtype=np.int64),
        "empty": np.empty((0, 5), dtype=np.float32),
        "wide": np.random.default_rng(0).standard_normal((700, 999)).astype(np.float32),
        "odd": np.arange(5, dtype=np.uint8),
    }
    path = tmp_path / "file"
    dense_file.write(path, {"fact": "사실"}, arrays)
    header, found = dense_file.read(path, lambda header: None, lambda name, before, shape: None)
    assert header["fact"] == "사실"
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    with pytest.raises(Unusable):
        dense_file.read_header(tmp_path / "none")


def test_a_header_with_impossible_shapes_allocates_nothing(tmp_path: Path) -> None:
    import zlib

    head = json.dumps({"arrays": [{"name": "rows", "dtype": "<f4", "shape": [10**9, 10**4], "checksum": ""}]}).encode()
    path = tmp_path / "file"
    path.write_bytes(dense_file._LENGTHS.pack(dense_file.MAGIC, len(head), zlib.crc32(head)) + head)
    with pytest.raises(Unusable, match="bytes"):
        dense_file.read(path, lambda header: None, lambda name, before, shape: None)
