"""The cache of teacher vectors: every text once, whole after any tear, one writer at a time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.errors import DataError, InputError, ModelError
from munjang.files import OutputLock
from munjang.recipes.distilling import teacher_vectors
from munjang.recipes.distilling.teacher_vectors import TeacherVectors, open_vectors

WIDTH = 3


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_vectors, "BLOCK", 4)


class Teacher:
    """A vector tells its text; every text that was encoded is remembered."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.seen += texts
        return np.array([vector(text) for text in texts], np.float64)


def vector(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 1009), 1.0]


def opened(cache: Path, **more: object) -> TeacherVectors:
    return open_vectors(cache, {"fingerprint": "f"}, width=WIDTH, **more)  # type: ignore[arg-type]


def check(store: TeacherVectors, texts: Sequence[str]) -> None:
    rows = store.rows_for(texts)
    assert (rows >= 0).all()
    assert store.array[rows].tolist() == [vector(text) for text in texts]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.text(max_size=6), max_size=12), max_size=5))
def test_every_text_once_whatever_comes(batches: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        teacher = Teacher()
        known: set[str] = set()
        for batch in batches:
            store = opened(Path(folder))
            assert (store.rows_for(batch) >= 0).tolist() == [text in known for text in batch]
            assert store.add(batch, teacher) == len(set(batch) - known)
            known |= set(batch)
            check(store, batch)
        check(opened(Path(folder)), sorted(known))
        assert sorted(teacher.seen) == sorted(known)


def test_half_keys_that_are_equal_are_told_apart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store._keys = np.array([[7, 1], [7, 2], [5, 9], [7, 3]], np.uint64)
    store._order = np.argsort(store._keys[:, 0], kind="stable")
    wanted = np.array([[7, 3], [7, 1], [7, 4], [8, 1], [5, 9], [4, 9]], np.uint64)
    assert store._find(wanted).tolist() == [3, 0, -1, -1, 2, -1]


@pytest.mark.parametrize("texts", [["가나다", "a"], [f"문장 {number}" for number in range(11)]])
def test_a_torn_end_is_dropped_and_written_again(tmp_path: Path, texts: list[str]) -> None:
    opened(tmp_path).add(["first", "둘째"], Teacher())
    (folder,) = tmp_path.iterdir()
    for name, junk in (("vectors.bin", b"\x01" * 17), ("keys.bin", b"\x02" * 33)):
        with open(folder / name, "ab") as file:
            file.write(junk)
    store = opened(tmp_path)
    assert len(store) == 2
    store.add(texts, Teacher())
    check(opened(tmp_path), ["둘째", *texts, "first"])


def test_a_failing_teacher_keeps_the_blocks_before(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(10)]
    teacher = Teacher()

    def failing(block: list[str]) -> np.ndarray:
        if len(teacher.seen) >= 8:
            raise KeyboardInterrupt
        return teacher(block)

    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path).add(texts, failing)
    assert opened(tmp_path).add(texts, teacher) == 2
    assert teacher.seen == texts
    check(opened(tmp_path), texts)


def test_one_writer_and_readers_beside_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(["a"], Teacher())
    lock = OutputLock(store.folder / ".lock", store.folder)
    try:
        assert store.add(["a"], Teacher()) == 0  # nothing to write, nothing to lock
        with pytest.raises(DataError, match="another process"):
            store.add(["b"], Teacher())
        check(opened(tmp_path), ["a"])
    finally:
        lock.release()
    assert store.add(["b"], Teacher()) == 1


def test_what_another_process_wrote_meanwhile_is_not_encoded_again(tmp_path: Path) -> None:
    mine, other = opened(tmp_path), opened(tmp_path)
    other.add(["a", "나"], Teacher())
    teacher = Teacher()
    assert mine.add(["a", "나", "c"], teacher) == 1
    assert teacher.seen == ["c"]
    check(mine, ["나", "c", "a"])


def test_other_teachers_and_storages_lie_apart(tmp_path: Path) -> None:
    opened(tmp_path).add(["a"], Teacher())
    assert len(open_vectors(tmp_path, {"fingerprint": "other"}, width=WIDTH)) == 0
    half = opened(tmp_path, storage="float16")
    half.add(["a"], Teacher())
    assert half.array.dtype == np.float16
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(InputError, match="float32, float16, got 'int8'"):
        opened(tmp_path, storage="int8")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (np.zeros((1, 4)), r"vectors \[1, 3\] for 1 texts, got \[1, 4\]"),
        (np.array([[1.0, np.nan, 0.0]]), "1 of 1 teacher vectors are not finite in float32, the first for 'a'"),
    ],
)
def test_a_teacher_that_gives_something_else(tmp_path: Path, found: np.ndarray, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        opened(tmp_path).add(["a"], lambda texts: found)
    assert len(opened(tmp_path)) == 0


def test_damage_is_said(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(["a", "b"], Teacher())
    (store.folder / "vectors.bin").write_bytes(b"short")
    with pytest.raises(DataError, match="is damaged"):
        opened(tmp_path)
    (store.folder / "about.json").write_text(json.dumps({"format": 9, "rows": 1}), encoding="utf-8")
    with pytest.raises(DataError, match=r"remove .* computed again"):
        opened(tmp_path)
