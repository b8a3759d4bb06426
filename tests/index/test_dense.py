"""Dense vectors of an index against brute force: every kind, similarity and filter; growing, shrinking, threads."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from munjang.errors import InputError, MunjangWarning
from munjang.index import dense, dense_metric
from munjang.index.dense import DenseIndex
from munjang.index.passages import Found
from support.dense_passages import FakePassages, brute_force, clustered, recall, similarities

KINDS = ("float32", "int8", "binary")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


@pytest.fixture(params=["faiss", "without faiss"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without faiss":
        monkeypatch.setattr(dense_metric, "faiss_or_none", lambda: None)
    else:
        pytest.importorskip("faiss")
    return str(request.param)


def _same(found: Found, expected: Found, *, equal_numbers: bool = True) -> None:
    np.testing.assert_allclose(found.scores, expected.scores, rtol=2e-5, atol=2e-5)
    if equal_numbers:
        np.testing.assert_array_equal(found.numbers, expected.numbers)
    assert found.scores.dtype == np.float32
    assert found.numbers.dtype == np.int64


def _index(folder: Path, **options: object) -> DenseIndex:
    return DenseIndex(folder, **options)  # type: ignore[arg-type]


# --- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_answers_as_brute_force(data: st.DataObject, kind: str, similarity: str, engine: str) -> None:
    """Whole numbers: every score is exact, so that ties are ties, and the lower number must win."""
    dimension = data.draw(st.sampled_from([1, 3, 8, 17]))
    values = st.integers(-2, 2) if similarity != "cosine" else st.sampled_from([-1, 0, 1])
    vector = st.lists(values, min_size=dimension, max_size=dimension)
    vectors = st.lists(vector, max_size=25).map(lambda rows: np.array(rows, np.float32).reshape(-1, dimension))
    index = _index(Path("nowhere"), dimension=dimension, similarity=similarity, vectors=kind)
    passages = FakePassages(dimension, block=7)
    for _ in range(data.draw(st.integers(1, 4))):
        gone = data.draw(st.lists(st.integers(1, 60), max_size=10))
        passages = passages.after(data.draw(vectors), gone)
        state = index.refresh(passages)
    queries = data.draw(st.lists(vector, min_size=1, max_size=3).map(lambda rows: np.array(rows, np.float32)))
    k, count = data.draw(st.integers(1, 30)), len(passages.held)
    mask = data.draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count))
    allowed = None if mask is None else np.array(mask, dtype=np.bool_)
    expected = brute_force(passages, queries, k, similarity, allowed)
    exact = similarity in ("dot", "manhattan", "euclidean")
    for found in (index.search(queries, k, allowed=allowed), state.search(queries, k, allowed=allowed)):
        _same(found, expected, equal_numbers=exact)
        scores = similarities(similarity, queries, passages.vectors(passages.numbers()))
        for row, (numbers, want) in enumerate(zip(found.numbers, found.scores, strict=True)):
            at = np.searchsorted(passages.numbers(), numbers[numbers >= 0])
            np.testing.assert_allclose(scores[row, at], want[numbers >= 0], atol=2e-5)
            assert allowed is None or allowed[at].all()
            assert len(set(at.tolist())) == len(at)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_flat_search_is_exact_for_real_numbers(kind: str, similarity: str, engine: str, tmp_path: Path) -> None:
    vectors = clustered(4000, 32)
    passages = FakePassages(32).after(vectors).after(clustered(300, 32, seed=1), remove=np.arange(1, 4000, 9))
    index = _index(tmp_path, dimension=32, similarity=similarity, vectors=kind)
    index.refresh(passages)
    queries = clustered(30, 32, seed=2)
    for allowed in (
        None,
        *(np.random.default_rng(3).random(len(passages.held)) < share for share in (0.5, 0.05, 0.002)),
    ):
        expected = brute_force(passages, queries, 10, similarity, allowed)
        _same(index.search(queries, 10, allowed=allowed), expected)
        for row in range(3):  # one at a time takes another way
            one = index.search(queries[row], 10, allowed=allowed)
            _same(one, Found(expected.scores[row : row + 1], expected.numbers[row : row + 1]))


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_crowd_of_equal_vectors_goes_to_the_lowest_numbers(kind: str, engine: str, tmp_path: Path) -> None:
    """More equal ones than candidates: the proof fails until all of them were looked at."""
    few, crowd = clustered(50, 16), np.repeat(clustered(1, 16, seed=5), 3000, axis=0)
    mixed = np.concatenate((crowd[:1500], few, crowd[1500:]))
    passages = FakePassages(16).after(mixed).after(crowd[:100], remove=[1, 2, 700])
    index = _index(tmp_path, dimension=16, vectors=kind)
    index.refresh(passages)
    queries = np.concatenate((crowd[:1], few[:1]))
    _same(index.search(queries, 20), brute_force(passages, queries, 20, "cosine", None))


def test_scores_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    passages = FakePassages(24).after(clustered(3000, 24))
    index = _index(tmp_path, dimension=24)
    index.refresh(passages)
    queries = clustered(60, 24, seed=4)
    many = index.search(queries, 5)
    for row, query in enumerate(queries):
        one = index.search(query, 5)
        np.testing.assert_array_equal(one.scores[0], many.scores[row])
        np.testing.assert_array_equal(one.numbers[0], many.numbers[row])


def test_bits_with_rescoring_find_nearly_all(engine: str, tmp_path: Path) -> None:
    passages = FakePassages(128).after(clustered(5000, 128))
    index = _index(tmp_path, dimension=128, vectors="binary")
    index.refresh(passages)
    queries = clustered(50, 128, seed=2)
    found, expected = index.search(queries, 10), brute_force(passages, queries, 10, "cosine", None)
    assert recall(found, expected) >= 0.98
    np.testing.assert_allclose(
        found.scores[:, 0], expected.scores[:, 0], atol=0.05
    )  # what is found has its true score, not one of bits


def test_lengths_beyond_float32_squares(tmp_path: Path) -> None:
    passages = FakePassages(4).after(np.array([[1e30, 0, 0, 0], [0, 1e-30, 0, 0], [0, 0, 0, 0]]))
    index = _index(tmp_path, dimension=4)
    index.refresh(passages)
    found = index.search(np.array([1e25, 0, 0, 0]), 3)
    assert found.numbers.tolist() == [[1, 2, 3]]
    np.testing.assert_allclose(found.scores, [[1, 0, 0]])


# --- the graph -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd() -> tuple[FakePassages, np.ndarray]:
    return FakePassages(24, block=5000).after(clustered(20_000, 24)), clustered(100, 24, seed=9)


@pytest.mark.parametrize("kind", [pytest.param("float32", marks=pytest.mark.slow), "int8"])
def test_recall_through_the_graph(kind: str, crowd: tuple[FakePassages, np.ndarray], tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    passages, queries = crowd
    index = _index(tmp_path, dimension=24, vectors=kind, exact_up_to=0)
    told: list[int] = []
    index.save(passages, progress=lambda done, total: told.append(done))
    assert told[-1] == 20_000
    state = index.refresh(passages)
    assert state.main.graph is not None
    shares = (None, 0.5, 0.05, 0.001) if kind == "float32" else (None, 0.5)
    for share in shares:
        allowed = None if share is None else np.random.default_rng(1).random(20_000) < share
        expected = brute_force(passages, queries, 10, "cosine", allowed)
        assert recall(index.search(queries, 10, allowed=allowed), expected) >= 0.99, share
    # Removed ones are never found, new ones at once; a fresh reader takes the graph from the file.
    nearest = brute_force(passages, queries, 1, "cosine", None).numbers[:, 0]
    later = passages.after(queries[:20] * 2, remove=nearest)
    for reader in (index, _index(tmp_path, dimension=24, vectors=kind, exact_up_to=0)):
        state = reader.refresh(later)
        assert state.main.graph is not None
        found = reader.search(queries, 10)
        assert not np.isin(found.numbers, nearest).any()
        assert found.numbers[:20, 0].tolist() == list(range(20_001, 20_021))
        assert recall(found, brute_force(later, queries, 10, "cosine", None)) >= 0.99


def test_a_graph_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(dense, "SMALL", 100)
    passages = FakePassages(16).after(clustered(3000, 16))
    index = _index(tmp_path, dimension=16, exact_up_to=1000)
    index.save(passages)
    before = index.refresh(passages)
    passages = passages.after(clustered(400, 16, seed=3), remove=[5, 6])
    told: list[int] = []
    index.save(passages, progress=lambda done, total: told.append(done))
    assert told == [400]  # not 3,400
    after = index.refresh(passages)
    assert after.main.graph is not None
    assert len(after.main.numbers) == 3400
    assert len(before.main.numbers) == 3000  # the old state is as it was
    queries = clustered(40, 16, seed=4)
    fresh = _index(tmp_path, dimension=16, exact_up_to=1000)
    fresh.refresh(passages)
    for reader in (index, fresh):
        assert recall(reader.search(queries, 10), brute_force(passages, queries, 10, "cosine", None)) >= 0.99
    # Many removed: the graph is built anew without them; few left: no graph.
    passages = passages.after(remove=np.arange(1, 1500))
    index.save(passages)
    assert len(index.refresh(passages).main.numbers) == 1901 - 2 + 2
    passages = passages.after(remove=np.arange(1, 3000))
    index.save(passages)
    assert index.refresh(passages).main.graph is None


def test_a_crowd_of_equal_vectors_in_a_graph(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    random = np.random.default_rng(0)
    rows = clustered(3000, 16)
    rows[random.permutation(3000)[:1500]] = rows[:3][random.integers(0, 3, 1500)]
    passages = FakePassages(16).after(rows)
    index = _index(tmp_path, dimension=16, exact_up_to=0)
    index.save(passages)
    queries = np.concatenate((rows[:3], clustered(100, 16, seed=3)))
    assert index.refresh(passages).main.graph is not None
    assert recall(index.search(queries, 10), brute_force(passages, queries, 10, "cosine", None)) >= 0.99


# --- following the index ---------------------------------------------------------------------------------------------


def test_a_few_new_passages_are_all_that_is_read(tmp_path: Path) -> None:
    passages = FakePassages(8).after(clustered(5000, 8))
    index = _index(tmp_path, dimension=8)
    index.refresh(passages)
    passages.streamed.clear()
    for step in range(3):
        passages = passages.after(clustered(10, 8, seed=step), remove=[step + 1])
        index.refresh(passages)
    assert passages.streamed == [10, 10, 10]
    index.refresh(passages)
    assert passages.streamed == [10, 10, 10]


@pytest.mark.parametrize("kind", KINDS)
def test_much_that_is_new_joins_the_main_part(kind: str, tmp_path: Path) -> None:
    passages = FakePassages(8).after(clustered(5000, 8))
    index = _index(tmp_path, dimension=8, vectors=kind)
    index.refresh(passages)
    passages = passages.after(clustered(3000, 8, seed=1) * 3, remove=np.arange(1, 100))
    state = index.refresh(passages)
    assert len(state.tail.numbers) == 0
    assert state.main.dead is None
    if kind != "binary":
        queries = clustered(20, 8, seed=2)
        _same(index.search(queries, 7), brute_force(passages, queries, 7, "cosine", None))


def test_an_earlier_state_is_answered_as_it_was(tmp_path: Path) -> None:
    """A thread may come with a transaction that began before another's."""
    first = FakePassages(8).after(clustered(3000, 8))
    second = first.after(clustered(5, 8, seed=1), remove=[1, 2, 3])
    index = _index(tmp_path, dimension=8)
    index.refresh(second)
    query = first.vectors(np.array([2]))
    assert index.refresh(first).search(query, 1).numbers.tolist() == [[2]]
    assert 2 not in index.search(query, 5).numbers
    with pytest.raises(InputError, match="generation"):
        index.search(query, 5, passages=first)
    assert index.search(query, 5, passages=second).numbers.shape == (1, 5)


def test_searches_go_on_while_others_follow(tmp_path: Path) -> None:
    index = _index(tmp_path, dimension=8)
    states = [FakePassages(8).after(clustered(2000, 8))]
    for step in range(12):
        states.append(states[-1].after(clustered(400, 8, seed=step), remove=np.arange(step * 50, step * 50 + 40)))
    queries = clustered(3, 8, seed=50)
    wrong: list[object] = []
    stop = threading.Event()

    def search(number: int) -> None:
        while not stop.is_set():
            for passages in states[number::3]:
                found = index.refresh(passages).search(queries, 6)
                if not np.array_equal(found.numbers, brute_force(passages, queries, 6, "cosine", None).numbers):
                    wrong.append(passages.generation)

    threads = [threading.Thread(target=search, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for passages in states:
        index.save(passages)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


# --- bad input -------------------------------------------------------------------------------------------------------


def test_an_empty_index(engine: str, tmp_path: Path) -> None:
    index = _index(tmp_path, dimension=4)
    with pytest.raises(InputError, match="refresh"):
        index.search(np.zeros(4), 3)
    index.refresh(FakePassages(4))
    index.save(FakePassages(4))
    found = index.search(np.zeros((2, 4)), 3)
    assert (found.numbers == -1).all()
    assert np.isneginf(found.scores).all()
    assert found.numbers.shape == (2, 3)
    assert index.search(np.zeros((0, 4)), 3).numbers.shape == (0, 3)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    index = _index(tmp_path, dimension=4)
    index.refresh(FakePassages(4).after(np.eye(4)))
    with pytest.raises(InputError, match=r"\[q, 4\]"):
        index.search(np.zeros(5), 1)
    with pytest.raises(InputError, match="not finite"):
        index.search(np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]), 1)
    with pytest.raises(InputError, match="k must be"):
        index.search(np.zeros(4), 0)
    with pytest.raises(InputError, match="4 passages"):
        index.search(np.zeros(4), 1, allowed=np.ones(3, np.bool_))
    with pytest.raises(InputError, match="dimensions"):
        index.refresh(FakePassages(5))
    with pytest.raises(InputError, match="vectors must be one of"):
        _index(tmp_path, dimension=4, vectors="int4")
    with pytest.raises(InputError, match="similarity must be one of"):
        _index(tmp_path, dimension=4, similarity="near")


def test_without_faiss_a_large_index_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_metric, "faiss_or_none", lambda: None)
    passages = FakePassages(8).after(clustered(60, 8))
    index = _index(tmp_path, dimension=8, exact_up_to=50)
    with pytest.warns(MunjangWarning, match=r"pip install 'munjang\[search\]'"):
        index.refresh(passages)
    queries = clustered(4, 8, seed=1)
    _same(index.search(queries, 5), brute_force(passages, queries, 5, "cosine", None))
    index.refresh(passages.after(clustered(1, 8)))  # once is enough (warnings are errors here)
