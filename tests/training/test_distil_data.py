"""Taught and plain examples: several columns, and vectors that lie in a file and are never in memory as a whole."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.data import Examples, read_examples
from munjang.data import examples as examples_module
from munjang.data.examples import join
from munjang.errors import DataError, InputError
from munjang.evaluation import StsEvaluator
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.run import data_hash
from munjang.training.stepping import work_of
from munjang.training.trainee import Trainee
from training.material import TEACHERS, bi, plain, same, taught, weights


def mapped(vectors: Any, folder: Path, dtype: str = "float32") -> Any:
    np.save(folder / "vectors.npy", np.asarray(vectors).astype(dtype))
    return np.load(folder / "vectors.npy", mmap_mode="r")


# --- columns ---------------------------------------------------------------------------------------------------------


def test_columns_of_taught_and_plain() -> None:
    vectors = np.eye(2, 3)
    columns = {"text": ["a", "b"], "translation": ["가", "나"], "translation_2": ["ア", "イ"]}
    three = Examples("ours", "taught", columns, vectors)
    assert list(three.texts()) == ["a", "b", "가", "나", "ア", "イ"]
    assert three.row(1)["translation_2"] == "イ"
    assert Examples("ours", "plain", {"text": ["a"], "translation": ["가"]}).targets is None
    for kind, wrong, message in (
        (
            "taught",
            {"text": ["a"], "translation_2": ["가"]},
            r"text and then translation, translation_2, .*; got text, t",
        ),
        ("taught", {"translation": ["a"]}, "have the columns text and then translation"),
        ("plain", columns, "have the columns text and then translation; got text, translation, translation_2"),
        ("classified", {"text": ["a"], "translation": ["b"]}, "have the columns text; got text, translation"),
    ):
        with pytest.raises(InputError, match=message):
            Examples("ours", kind, wrong, vectors[:1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="plain texts have no targets"):
        Examples("ours", "plain", {"text": ["a"]}, np.zeros(1))
    with pytest.raises(InputError, match="kind 'taught' need targets"):
        Examples("ours", "taught", {"text": ["a"]})


def test_taught_rows_from_dicts() -> None:
    rows = [{"text": "a", "translation": "가", "번역_2": "ア", "vector": [1, 2]}, {"text": "b", "translation": "나"}]
    found = Examples.from_dicts(rows, kind="taught")
    assert found.columns == {"text": ["a"], "translation": ["가"], "translation_2": ["ア"]}  # the other has no vector
    assert found.targets is not None
    assert found.targets.tolist() == [[1, 2]]
    assert found.reading.used == 1
    named = Examples.from_dicts(rows[:1], kind="taught", columns={"text": "translation", "vector": "vector"})
    assert named.columns == {"text": ["가"]}  # what is named is all there is
    both = {"text": "text", "translation": "translation", "translation_2": "번역_2", "vector": "vector"}
    assert list(Examples.from_dicts(rows[:1], kind="taught", columns=both).columns) == list(both)[:3]
    with pytest.raises(InputError, match=r"translations are named translation, translation_2, .* without gaps"):
        Examples.from_dicts(rows, kind="taught", columns={"text": "text", "translation_2": "translation"})
    with pytest.raises(InputError, match="columns of examples of kind 'taught' are text, vector and then translation"):
        Examples.from_dicts(rows, kind="taught", columns={"text": "text", "negative": "translation"})


def test_plain_files(tmp_path: Path) -> None:
    (tmp_path / "ours.txt").write_text("one line\n\n한 줄 더\n", encoding="utf-8")
    found = read_examples(tmp_path / "ours.txt", kind="plain")
    assert found.columns == {"text": ["one line", "한 줄 더"]}
    (tmp_path / "ours.tsv").write_text("text\ttranslation\tother\na dog\t개\tx\na cat\t\tx\n", encoding="utf-8")
    pairs = read_examples(tmp_path / "ours.tsv", kind="plain")
    assert pairs.columns == {"text": ["a dog"], "translation": ["개"]}
    assert pairs.reading.rows == 2
    named = {"text": "other", "translation": "text"}
    assert read_examples(tmp_path / "ours.tsv", kind="plain", columns=named).columns["translation"] == [
        "a dog",
        "a cat",
    ]
    with pytest.raises(
        InputError, match="columns of examples of kind 'plain' are text and then translation; got label"
    ):
        read_examples(tmp_path / "ours.tsv", kind="plain", columns={"text": "text", "label": "other"})
    with pytest.raises(DataError, match="a txt file has no columns"):
        read_examples(tmp_path / "ours.txt", kind="scored")
    with pytest.raises(InputError, match="expected examples of kind scored, got plain"):
        StsEvaluator(found)


def test_taken_split_joined_and_freed_of_duplicates(tmp_path: Path) -> None:
    data = taught(4, 9, translations=1)
    assert data.targets is not None
    in_file = replace(data, targets=mapped(data.targets, tmp_path, "float16"))
    taken = in_file.take([4, 1, 4])
    assert taken.columns["translation"] == [data.columns["translation"][i] for i in (4, 1, 4)]
    assert taken.targets is not None
    assert taken.targets.dtype == np.float16
    assert len(taken.without_duplicates()) == 2
    other = replace(taken, targets=taken.targets + np.arange(3, dtype=np.float16)[:, None])
    assert len(other.without_duplicates()) == 3  # the same texts with another vector are another row
    rest, some = in_file.split(0.3)
    assert (len(rest), len(some)) == (6, 3)
    again = join([rest, some], name="again")
    assert sorted(again.columns["text"]) == sorted(data.columns["text"])
    assert again.targets is not None
    assert again.targets.shape == (9, 4)
    in_a_row = in_file.take(np.arange(2, 7))
    assert np.shares_memory(in_a_row.targets, in_file.targets)  # still in the file
    assert np.array_equal(in_a_row.targets, in_file.targets[2:7])  # type: ignore[index]


# --- in a file -------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 40))
def test_the_hash_does_not_depend_on_blocks(rows: int, width: int, block: int) -> None:
    vectors = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
    data = Examples("ours", "taught", {"text": ["a"] * rows}, vectors)
    whole = data_hash(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples_module, "_BLOCK", block)
        assert data_hash(data) == whole
        assert data_hash(replace(data, targets=np.asfortranarray(vectors))) == whole
        changed = vectors.copy()
        changed[rows - 1, width - 1] += 1
        assert data_hash(replace(data, targets=changed)) != whole
        changed[rows - 1, width - 1] = np.nan
        with pytest.raises(InputError, match=f"the first in row {rows - 1}, 1 in all"):
            replace(data, targets=changed)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_hash_is_that_of_an_array_in_memory(dtype: str, tmp_path: Path) -> None:
    data = taught(4)
    assert data.targets is not None
    in_file = mapped(data.targets, tmp_path, dtype)
    kept = replace(data, targets=in_file)
    assert kept.targets is not None
    assert np.shares_memory(kept.targets, in_file)
    assert data_hash(kept) == data_hash(replace(data, targets=np.array(in_file)))
    assert data_hash(kept) == data_hash(replace(data, targets=np.array(in_file).astype(np.float32)))


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, width = 4000, 1000
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, width)).flush()
    monkeypatch.setattr(examples_module, "_BLOCK", 1 << 16)
    tracemalloc.start()
    data = Examples("large", "taught", {"text": ["a"] * rows}, np.load(path, mmap_mode="r"))
    data_hash(data)
    data.without_duplicates()
    assert tracemalloc.get_traced_memory()[1] < 2_000_000  # the file has 8 million bytes
    tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_targets_that_stay_on_the_host(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows gathered in each step give the same weights, to the last bit, as a copy on the device."""
    data = taught(21, 13, translations=1)
    assert data.targets is not None
    found = []
    for in_file in (True, False):
        for limit in (1 << 30, 100):
            monkeypatch.setattr("munjang.training.stepping._ON_DEVICE", limit)
            vectors = mapped(data.targets, tmp_path, dtype) if in_file else data.targets.astype(dtype)
            task = Task(replace(data, targets=vectors), objectives.Distil(TEACHERS))
            model = bi()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # torch warns of arrays that may not be written to
                train(model, [task], TrainingSettings(max_steps=5, batch_size=4, token_budget=60))
            found.append(weights(model))
            work = work_of(task.examples, task.objective, Trainee(bi()))
            assert (work.far is not None) == (limit == 100)
            assert work.recordable == (limit != 100)
    assert all(same(found[0], other) for other in found[1:])


def test_plain_data_is_refused_by_others() -> None:
    with pytest.raises(
        InputError, match="our texts is plain: of plain texts nothing is known; train it with MaskedWords"
    ):
        train(bi(), [Task(plain(), objectives.CosineMse())])
