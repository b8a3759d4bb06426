"""Mining: against brute force, sentence-transformers and scipy, on every path that a large corpus would take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sentence_transformers import util

from munjang.errors import InputError, MissingExtraError
from munjang.tasks import neighbours, neighbours_best, neighbours_tiles
from munjang.tasks.neighbours import best_pairs
from munjang.tasks.neighbours_tiles import Tiles, UnitRows
from munjang.tasks.paraphrases import MiningOptions, mine_paraphrases, near_duplicates, stream_paraphrases
from support.word_encoder import WordEncoder, measured

QUESTIONS = [
    "환불은 어떻게 하나요?",
    "How do I get a refund?",
    "환불은 어떻게 받나요?",
    "배송은 얼마나 걸리나요?",
    "How do I get my refund?",
    "비밀번호를 잊어버렸어요",
    "I forgot my password",
    "배송은 보통 얼마나 걸리나요?",
    "환불은 어떻게 하나요?",
    "",
]


def grouped(rows: int, dimension: int = 32, *, seed: int = 0, size: int = 8) -> np.ndarray:
    """Rows about random centres, no two alike."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(1, rows // size), dimension))
    spread = 0.2 + generator.random((rows, 1))
    vectors = centres[generator.integers(len(centres), size=rows)] + spread * generator.standard_normal(
        (rows, dimension)
    )
    return vectors.astype(np.float32)


def cosines(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def brute(vectors: np.ndarray, threshold: float) -> dict[tuple[int, int], float]:
    scores = cosines(vectors)
    left, right = np.triu_indices(len(vectors), 1)
    chosen = scores[left, right] >= threshold
    return {(int(a), int(b)): scores[a, b] for a, b in zip(left[chosen], right[chosen], strict=True)}


def keys(found: Any) -> list[tuple[int, int]]:
    return [(pair.left, pair.right) for pair in found]


def agree(found: Any, vectors: np.ndarray, threshold: float) -> None:
    """The same pairs as brute force, but for those whose score is the threshold to the rounding of float32."""
    assert len(set(keys(found))) == len(found)
    surely, maybe = brute(vectors, threshold + 2e-6), brute(vectors, threshold - 2e-6)
    assert set(surely) <= set(keys(found)) <= set(maybe)
    assert all(abs(pair.score - maybe[pair.left, pair.right]) < 2e-6 for pair in found)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that begins with many rows begins with few."""
    monkeypatch.setattr(neighbours_tiles, "_LEAST_ROUGH", 2)
    monkeypatch.setattr(neighbours_tiles, "_EXTRACT", 50)
    monkeypatch.setattr(neighbours_tiles, "_RESCORE", 7)
    monkeypatch.setattr(neighbours, "_SAMPLE", 16)
    monkeypatch.setattr(neighbours, "_COLUMNS", 40)
    monkeypatch.setattr(neighbours_best, "_ROOM", 64)


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_all_above_a_threshold_are_those_of_brute_force(data: st.DataObject) -> None:
    rows, dimension = data.draw(st.integers(2, 150)), data.draw(st.integers(1, 40))
    vectors = grouped(rows, dimension, seed=data.draw(st.integers(0, 10_000)), size=data.draw(st.integers(1, 20)))
    copies = data.draw(st.integers(0, rows - 1))
    vectors[:copies] = vectors[rows - 1]  # many equal rows
    if data.draw(st.booleans()):
        vectors[0] = 0
    threshold = data.draw(st.floats(-1, 0.999))
    found = mine_paraphrases(
        vectors, threshold=threshold, options=MiningOptions(memory_mb=data.draw(st.floats(0.01, 1)))
    )
    agree(found, vectors, threshold)
    assert (np.diff(found.scores) <= 0).all()


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_best_are_those_of_brute_force(data: st.DataObject) -> None:
    rows = data.draw(st.integers(2, 120))
    vectors = grouped(rows, 16, seed=data.draw(st.integers(0, 10_000)))
    top = data.draw(st.integers(1, 400))
    threshold = data.draw(st.none() | st.floats(-0.5, 0.9))
    found = mine_paraphrases(vectors, threshold=threshold, top=top, options=MiningOptions(memory_mb=0.1))
    expected = sorted(brute(vectors, -2 if threshold is None else threshold).values(), reverse=True)[:top]
    assert len(found) == len(expected)
    assert np.allclose(found.scores, expected, atol=2e-6)
    agree_scores(found, vectors)


def agree_scores(found: Any, vectors: np.ndarray) -> None:
    scores = cosines(vectors)
    assert len(set(keys(found))) == len(found)
    assert all(pair.left < pair.right for pair in found)
    assert all(abs(pair.score - scores[pair.left, pair.right]) < 2e-6 for pair in found)


@pytest.mark.usefixtures("small_tiles")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_pairs_of_sentence_transformers(data: st.DataObject) -> None:
    rows, per_text = data.draw(st.integers(2, 150)), data.draw(st.integers(1, 30))
    top = data.draw(st.integers(1, 2000))
    vectors = grouped(rows, 16, seed=data.draw(st.integers(0, 10_000)), size=data.draw(st.integers(2, 60)))
    theirs = util.paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=per_text, max_pairs=top)
    ours = mine_paraphrases(vectors, top=top, per_text=per_text, options=MiningOptions(memory_mb=0.1))
    assert len(ours) == len(theirs)
    assert np.allclose(ours.scores, [score for score, _, _ in theirs], atol=2e-6)
    # Neighbours in rank may swap by rounding; what differs may only be at the very end of the list.
    different = set(keys(ours)) ^ {(i, j) for _, i, j in theirs}
    scores = cosines(vectors)
    assert all(abs(scores[pair] - theirs[-1][0]) < 2e-6 for pair in different)


def test_the_pairs_of_sentence_transformers_where_all_shortcuts_are_taken() -> None:
    vectors = grouped(5000, 48)
    theirs = util.paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=20, max_pairs=5000)
    ours = mine_paraphrases(vectors, top=5000, per_text=20)
    assert set(keys(ours)) == {(i, j) for _, i, j in theirs}
    lists = util.paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=3, max_pairs=10**6)
    all_lists = mine_paraphrases(vectors, top=10**6, per_text=3)
    assert set(keys(all_lists)) == {(i, j) for _, i, j in lists}


@pytest.mark.parametrize("per_text", [None, 5])
def test_a_guess_that_is_wrong_changes_nothing(per_text: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = grouped(600, 16)
    tiles = Tiles(UnitRows(vectors), memory_mb=1)
    right = best_pairs(tiles, top=1500, per_text=per_text)
    monkeypatch.setattr(neighbours, "_guess", lambda *_: 0.999)
    wrong = best_pairs(tiles, top=1500, per_text=per_text)
    assert right.left.tolist() == wrong.left.tolist()
    assert right.right.tolist() == wrong.right.tolist()


def test_row_limits_that_are_wrong_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = grouped(600, 16)
    right = mine_paraphrases(vectors, top=2000, per_text=4)
    limits = np.random.default_rng(0).uniform(0.2, 1.2, len(vectors)).astype(np.float32)
    monkeypatch.setattr(neighbours, "_row_limits", lambda *_: limits)
    assert mine_paraphrases(vectors, top=2000, per_text=4).pairs.tolist() == right.pairs.tolist()


def test_equal_scores_go_to_the_lower_rows() -> None:
    vectors = np.tile(np.eye(3, dtype=np.float32), (5, 1))
    found = mine_paraphrases(vectors, top=4)
    assert keys(found) == [(0, 3), (0, 6), (0, 9), (0, 12)]
    assert keys(mine_paraphrases(vectors, threshold=0.5, per_text=1)) == [
        *((0, row) for row in (3, 6, 9, 12)),
        *((1, row) for row in (4, 7, 10, 13)),
        *((2, row) for row in (5, 8, 11, 14)),
    ]


def test_int8_and_float32_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors with dimensions that stand out, as those of real models do."""
    vectors = grouped(5000, 64)
    vectors[:, 3] += 8
    rough = mine_paraphrases(vectors, threshold=0.93)
    monkeypatch.setattr(neighbours_tiles, "_int8_pays", lambda dimension: False)
    exact = mine_paraphrases(vectors, threshold=0.93)
    assert len(exact) > 1000
    different = set(keys(rough)) ^ set(keys(exact))
    scores = cosines(vectors)
    assert all(abs(scores[pair] - 0.93) < 1e-6 for pair in different)


def test_the_error_of_codes_is_never_beyond_what_is_allowed() -> None:
    rows = UnitRows(grouped(300, 50))
    codes = neighbours_tiles._int8_codes(rows)
    rough = codes.values.double() @ codes.values.double().T * codes.unit
    allowed = codes.errors[:, None] + codes.errors[None] + codes.errors[:, None] * codes.errors[None] + codes.slack
    unit = rows.read(slice(0, 300)).double()
    assert ((rough - unit @ unit.T).abs().numpy() <= allowed).all()
    assert codes.errors.max() < 0.05


@pytest.mark.usefixtures("small_tiles")
def test_a_stream_has_the_same_pairs_each_once() -> None:
    vectors = grouped(400, 16)
    blocks = list(stream_paraphrases(vectors, threshold=0.7, options=MiningOptions(memory_mb=0.1)))
    assert len(blocks) > 3
    streamed = [key for block in blocks for key in keys(block)]
    assert len(streamed) == len(set(streamed))
    assert set(streamed) == set(keys(mine_paraphrases(vectors, threshold=0.7)))


@pytest.mark.parametrize("kind", ["array", "float64", "map", "tensor", "foreign order"])
def test_vectors_of_every_kind(kind: str, tmp_path: Path) -> None:
    vectors: Any = grouped(300, 16)
    expected = keys(mine_paraphrases(vectors, threshold=0.8))
    if kind == "map":
        np.save(tmp_path / "v.npy", vectors)
        vectors = np.load(tmp_path / "v.npy", mmap_mode="r")
    elif kind != "array":
        vectors = {"float64": vectors.astype(np.float64), "tensor": torch.from_numpy(vectors)}.get(
            kind, vectors.astype(">f4")
        )
    assert keys(mine_paraphrases(vectors, threshold=0.8)) == expected


def test_texts_of_two_languages() -> None:
    model: Any = WordEncoder(measured("paraphrase", 0.6))
    found = mine_paraphrases(QUESTIONS, model)
    assert found.threshold == 0.6
    assert {(0, 8), (1, 4), (3, 7), (0, 2)} <= set(keys(found))
    assert not any(9 in key for key in keys(found))  # the empty text is like nothing
    assert found.texts == QUESTIONS
    assert mine_paraphrases(QUESTIONS, model, top=1).threshold is None


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 120), threshold=st.floats(0.3, 0.95), seed=st.integers(0, 1000))
def test_groups_are_connected_components(rows: int, threshold: float, seed: int) -> None:
    vectors = grouped(rows, 8, seed=seed)
    found = near_duplicates(vectors, threshold=threshold, options=MiningOptions(memory_mb=0.05))
    pairs = np.array(keys(mine_paraphrases(vectors, threshold=threshold))).reshape(-1, 2)
    graph = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(rows, rows))
    _, labels = connected_components(graph, directed=False)
    expected = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
    assert sorted(group.tolist() for group in found) == sorted(group for group in expected if len(group) > 1)
    assert len(found.kept) == labels.max() + 1
    assert [len(group) for group in found] == sorted((len(group) for group in found), reverse=True)
    for number, group in enumerate(found):
        assert (found.labels[group] == number).all()


def test_equal_texts_are_encoded_once_and_stand_in_one_group() -> None:
    model: Any = WordEncoder()
    texts = [*QUESTIONS, "환불은 어떻게 하나요?", ""]
    found = near_duplicates(texts, model, threshold=0.7)
    assert [len(batch) for batch in model.encoded] == [len(set(texts))]
    groups = [group.tolist() for group in found]
    assert [9, 11] in groups  # empty, but equal letter by letter
    assert any({0, 8, 10} <= set(group) for group in groups)
    assert set(found.kept) >= {0, 1, 5, 6}
    assert not set(found.kept) & {8, 10, 11}


def test_approximate_finds_nearly_all_and_none_twice() -> None:
    vectors = grouped(6000, 32, size=6)
    exact = set(keys(mine_paraphrases(vectors, threshold=0.85)))
    found = mine_paraphrases(vectors, threshold=0.85, options=MiningOptions(approximate=True))
    assert found.approximate
    assert len(set(keys(found))) == len(found)
    assert len(set(keys(found)) & exact) > 0.97 * len(exact) > 1000
    agree_scores(found, vectors)
    best = mine_paraphrases(vectors, top=50, options=MiningOptions(approximate=True))
    assert len(best) == 50
    assert np.allclose(best.scores, mine_paraphrases(vectors, top=50).scores, atol=0.01)


def test_auto_is_exact_where_that_is_quick() -> None:
    assert not mine_paraphrases(grouped(50), top=3, options=MiningOptions(approximate="auto")).approximate


def test_approximate_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"munjang\[search\]"):
        mine_paraphrases(grouped(50), top=3, options=MiningOptions(approximate=True))


def test_progress_reaches_the_end() -> None:
    told: list[tuple[int, int | None]] = []
    mine_paraphrases(grouped(300), threshold=0.9, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (300, 300)


def test_too_many_pairs_are_an_error_before_memory_is_full() -> None:
    with pytest.raises(InputError, match="more than 1,000 pairs"):
        mine_paraphrases(grouped(300), threshold=-1, options=MiningOptions(most_pairs=1000))


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (np.ones((3, 4)), {}, "needs threshold"),
        (np.ones((3, 4)), {"threshold": 1.5}, "must be -1..1"),
        (np.ones((3, 4)), {"threshold": float("nan")}, "must be a number"),
        (np.ones((3, 4)), {"top": 0}, "top must be"),
        (np.ones((3, 4)), {"top": 1, "per_text": -1}, "per_text must be"),
        (np.ones(4), {"top": 1}, r"vectors \[n, d\]"),
        (np.ones((0, 4)), {"top": 1}, "no vectors"),
        (np.array([[1.0, np.nan]]), {"top": 1}, "row 0 is not finite"),
        ([], {"top": 1}, "no texts"),
        ("비가 온다", {"top": 1}, "list of texts"),
        (["비", 3], {"top": 1}, "text 1 must be a string"),
        (np.ones((3, 4)), {"top": 1, "options": MiningOptions(memory_mb=0)}, "memory_mb"),
        (np.ones((3, 4)), {"top": 1, "options": MiningOptions(device="cuda:9")}, "cuda:9"),
    ],
)
def test_bad_input_is_told(data: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mine_paraphrases(data, WordEncoder() if isinstance(data, list) else None, **arguments)  # type: ignore[arg-type]


def test_one_row_has_no_pairs() -> None:
    assert len(mine_paraphrases(np.ones((1, 4)), threshold=0.5)) == 0
    assert len(near_duplicates(np.ones((1, 4)), threshold=0.5)) == 0


@pytest.mark.gpu
def test_the_same_pairs_on_a_gpu() -> None:
    vectors = grouped(20_000, 64)
    cpu = mine_paraphrases(vectors, threshold=0.9)
    gpu = mine_paraphrases(vectors, threshold=0.9, options=MiningOptions(device="cuda"))
    both = {key: pair.score for key, pair in zip(keys(cpu), cpu, strict=True)}
    there = {key: pair.score for key, pair in zip(keys(gpu), gpu, strict=True)}
    assert all(abs(({**both, **there})[key] - 0.9) < 1e-5 for key in set(both) ^ set(there))
    best = mine_paraphrases(vectors, top=3000, per_text=10, options=MiningOptions(device="cuda"))
    assert np.allclose(best.scores, mine_paraphrases(vectors, top=3000, per_text=10).scores, atol=1e-5)
