"""Candidate pairs: the rules under every strategy and mix, brute force, going on after an interruption, memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.data.examples import Examples
from munjang.data.overlaps import normalise, same_key
from munjang.errors import InputError, MissingExtraError, ResumeError
from munjang.recipes.augmenting import candidates, neighbours
from munjang.recipes.augmenting.bm25 import BM25
from munjang.recipes.augmenting.candidates import STRATEGIES, Candidates, find_candidates, random_pairs
from munjang.recipes.augmenting.pairs import CandidatePairs, PairFilter, origin_counts
from munjang.recipes.augmenting.sentences import Sentences, collect
from recipes.material import sentences as material

EVERY = material(336, 0)  # all the sentences that the material has, Korean and English


def scored(rows: list[tuple[str, str]]) -> Examples:
    columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    return Examples("set", "scored", columns, np.zeros(len(rows), np.float32))


def vectors_of(sentences: Sentences, seed: int = 0, width: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(sentences), width)).astype(np.float32)


def as_set(pairs: CandidatePairs) -> set[tuple[int, int]]:
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "WINDOW", 16)
    monkeypatch.setattr(candidates, "MERGED", 20)


ROWS = st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=12)


@given(
    st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=4, unique=True),
    st.integers(2, 25),
    st.tuples(ROWS, ROWS),
    st.tuples(st.integers(1, 4), st.none() | st.integers(1, 40), st.integers(0, 3)),
)
@settings(max_examples=80, deadline=None)
def test_no_rule_is_ever_broken(
    strategies: list[str],
    count: int,
    rows: tuple[list[tuple[int, int]], list[tuple[int, int]]],
    numbers: tuple[int, int | None, int],
) -> None:
    # Spelled otherwise on purpose: neither case nor spaces nor, for evaluation, a full stop may let a pair through.
    known = [(EVERY[a].upper(), f" {EVERY[b]} ") for a, b in rows[0]]
    forbidden = [(EVERY[b].rstrip("."), EVERY[a]) for a, b in rows[1]]
    sentences = collect([], EVERY[:count])
    rules = PairFilter(sentences, known=[scored(known)], forbidden=[scored(forbidden)])
    top_k, wanted, seed = numbers
    plan = Candidates(tuple(strategies), top_k, wanted, seed=seed)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(candidates, "WINDOW", 7)
        patch.setattr(candidates, "MERGED", 5)
        patch.setattr(os, "fsync", lambda handle: None)  # hundreds of small files
        try:
            pairs = find_candidates(sentences, plan, rules=rules, folder=Path(folder), vectors=vectors_of(sentences))
        except InputError as error:
            if "not one candidate pair" not in str(error):
                raise
            return
        found = list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
        origins = pairs.origin.tolist()
    assert all(one < other for one, other in pairwise(found))  # ascending: so each once
    gold = {frozenset(map(same_key, row)) for row in known}
    evaluation = {frozenset(map(normalise, row)) for row in forbidden}
    for left, right in found:
        assert left < right  # so not itself, and not mirrored
        assert same_key(sentences[left]) != same_key(sentences[right])
        assert frozenset((same_key(sentences[left]), same_key(sentences[right]))) not in gold
        assert frozenset((normalise(sentences[left]), normalise(sentences[right]))) not in evaluation
    allowed = sum(bool(rules.allowed(np.array(a), np.array(b))) for a, b in combinations(range(count), 2))
    per = {"random": plan.wanted(count), "kde": 5 * plan.wanted(count)}
    for name, bit in (("random", 4), ("kde", 8)):
        if name in strategies:
            assert sum(bool(bits & bit) for bits in origins) == min(allowed, per[name])


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("strategy", ["semantic", "bm25"])
def test_neighbours_as_brute_force_finds_them(strategy: str, tmp_path: Path) -> None:
    sentences = collect([], EVERY[:50])
    near = [(EVERY[n], EVERY[n + 1]) for n in range(0, 40, 2)]
    rules = PairFilter(sentences, known=[scored(near)])
    vectors = vectors_of(sentences)
    if strategy == "semantic":
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        scores = units @ units.T
    else:
        index = BM25.of(sentences.texts)
        scores = np.array([index.scores(text) for text in sentences.texts])
    expected: set[tuple[int, int]] = set()
    for row in range(50):
        order = [int(n) for n in np.lexsort((np.arange(50), -scores[row])) if scores[row, n] > 0 or strategy != "bm25"]
        fits = [n for n in order if rules.allowed(np.array(row), np.array(n))][:3]
        expected |= {(min(row, n), max(row, n)) for n in fits}
    plan = Candidates((strategy,), top_k=3)  # type: ignore[arg-type]
    pairs = find_candidates(sentences, plan, rules=rules, folder=tmp_path, vectors=vectors)
    assert as_set(pairs) == expected
    assert origin_counts(pairs.origin) == {strategy: len(expected)}


@pytest.mark.usefixtures("small_windows")
def test_a_mix_is_the_union_and_carries_all_names(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:60])
    rules, vectors = PairFilter(sentences), vectors_of(sentences)
    alone = {}
    for strategy in STRATEGIES:
        plan = Candidates((strategy,), top_k=2)  # type: ignore[arg-type]
        alone[strategy] = as_set(
            find_candidates(sentences, plan, rules=rules, folder=tmp_path / strategy, vectors=vectors)
        )
    plan = Candidates(("bm25", "kde", "random", "semantic"), top_k=2)
    mixed = find_candidates(sentences, plan, rules=rules, folder=tmp_path / "mix", vectors=vectors)
    assert as_set(mixed) == set().union(*alone.values())
    bits = {"semantic": 1, "bm25": 2, "random": 4, "kde": 8}
    for left, right, origin in zip(mixed.left.tolist(), mixed.right.tolist(), mixed.origin.tolist(), strict=True):
        assert origin == sum(bit for name, bit in bits.items() if (left, right) in alone[name])
    assert alone["random"] != alone["kde"]
    assert len(alone["random"]) == 120


class Stop(Exception):
    pass


class Stopping:
    """Progress that breaks the work off at one of its calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, done: int, total: int | None) -> None:
        assert total is not None
        assert done <= total
        self.left -= 1
        if not self.left:
            raise Stop


@pytest.mark.usefixtures("small_windows")
def test_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = collect([], EVERY[:100])
    rules, vectors = PairFilter(sentences), vectors_of(sentences)
    plan = Candidates(("semantic", "random", "bm25"), top_k=3, seed=1)
    whole = find_candidates(sentences, plan, rules=rules, folder=tmp_path / "whole", vectors=vectors)
    searched: list[int] = []
    real = neighbours.top_k

    def counted(queries: np.ndarray, *given: object, **named: object) -> object:
        searched.append(len(queries))
        return real(queries, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(neighbours, "top_k", counted)
    calls = 7 + 1 + 7  # windows of semantic and of bm25, one piece of random
    for calls_left in range(1, calls + 1):
        with pytest.raises(Stop):
            find_candidates(
                sentences, plan, rules=rules, folder=tmp_path / "broken", vectors=vectors, progress=Stopping(calls_left)
            )
    assert sum(searched) == 100  # every sentence once, over all attempts
    again = find_candidates(sentences, plan, rules=rules, folder=tmp_path / "broken", vectors=vectors)
    for name in ("left", "right", "origin"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
        assert (tmp_path / "broken" / f"{name}.npy").read_bytes() == (tmp_path / "whole" / f"{name}.npy").read_bytes()
    assert sorted(path.name for path in (tmp_path / "broken").iterdir()) == [
        "candidates.json",
        "left.npy",
        "origin.npy",
        "right.npy",
    ]


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    """SIGKILL between two windows, in another process: nothing that Python does at its end helps."""
    program = """
import os, signal, sys
from pathlib import Path
from munjang.recipes.augmenting import candidates
from munjang.recipes.augmenting import Candidates, PairFilter, collect, find_candidates
candidates.WINDOW = 16
sentences = collect([], Path(sys.argv[1]).read_text(encoding="utf-8").split("\\n"))
def progress(done, total):
    if done == 48:
        os.kill(os.getpid(), signal.SIGKILL)
plan = Candidates(("bm25",), top_k=3)
find_candidates(sentences, plan, rules=PairFilter(sentences), folder=Path(sys.argv[2]), progress=progress)
"""
    sentences = collect([], EVERY[:100])
    texts, folder = tmp_path / "texts.txt", tmp_path / "killed"
    texts.write_text("\n".join(sentences.texts), encoding="utf-8")
    killed = subprocess.run([sys.executable, "-c", program, str(texts), str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [(folder / "parts" / f"bm25-{n:06}.npy").exists() for n in range(4)] == [True, True, True, False]
    plan, rules = Candidates(("bm25",), top_k=3), PairFilter(sentences)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "WINDOW", 16)
        again = find_candidates(sentences, plan, rules=rules, folder=folder)
    whole = find_candidates(sentences, plan, rules=rules, folder=tmp_path / "whole")
    assert as_set(again) == as_set(whole)


def test_a_broken_merge_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = collect([], EVERY[:40])
    rules, plan = PairFilter(sentences), Candidates(("random",), pairs=60)
    real = candidates._merged
    monkeypatch.setattr(candidates, "_merged", lambda pieces: (_ for _ in ()).throw(Stop()))
    with pytest.raises(Stop):
        find_candidates(sentences, plan, rules=rules, folder=tmp_path)
    (tmp_path / "left.npy.tmp").write_bytes(b"half")
    monkeypatch.setattr(candidates, "_merged", real)
    assert len(find_candidates(sentences, plan, rules=rules, folder=tmp_path)) == 60


def test_a_finished_folder_is_read_and_not_made_of_something_else(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:40])
    rules, plan = PairFilter(sentences), Candidates(("random",), pairs=60)
    first = as_set(find_candidates(sentences, plan, rules=rules, folder=tmp_path))
    assert json.loads((tmp_path / "candidates.json").read_text())["pairs"] == 60
    assert as_set(find_candidates(sentences, plan, rules=rules, folder=tmp_path)) == first
    (tmp_path / "origin.npy").unlink()
    assert as_set(find_candidates(sentences, plan, rules=rules, folder=tmp_path)) == first
    with pytest.raises(ResumeError, match="other plan"):
        find_candidates(sentences, Candidates(("random",), pairs=61), rules=rules, folder=tmp_path)
    other = PairFilter(sentences, known=[scored([(EVERY[0], EVERY[1])])])
    with pytest.raises(ResumeError, match="sentences and rules"):
        find_candidates(sentences, plan, rules=other, folder=tmp_path)


def test_random_pairs_are_uniform_and_seeded() -> None:
    rules = PairFilter(collect([], EVERY[:9]), known=[scored([(EVERY[0], EVERY[1])])])
    counts = np.zeros(81)
    for seed in range(2000):  # 8 of 35: by enumeration; 2 of 35: by drawing
        counts[random_pairs(rules, 2 if seed % 2 else 8, np.random.default_rng(seed))] += 1
    drawn = counts[counts > 0]
    assert len(drawn) == 35
    assert drawn.sum() == 1000 * 10
    # Each of 35 pairs is met 10000 / 35 times; five standard deviations to both sides.
    assert np.abs(drawn - 10_000 / 35).max() < 5 * np.sqrt(10_000 / 35)
    one, two = (random_pairs(rules, 5, np.random.default_rng(3)) for _ in range(2))
    assert (one == two).all()


def test_random_pairs_of_many_draws_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_DRAWN", 7)
    rules = PairFilter(collect([], EVERY[:40]))
    keys = random_pairs(rules, 300, np.random.default_rng(0))
    assert len(np.unique(keys)) == len(keys) == 300
    left, right = rules.sides(keys)
    assert (left < right).all()


def test_hubs_do_not_take_the_neighbours_of_others(tmp_path: Path) -> None:
    """A sentence whose nearest ones are labelled already still gets its pairs."""
    sentences = collect([], EVERY[:80])
    vectors = vectors_of(sentences)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest = np.argsort(-(units @ units[0]))[1:21]
    rules = PairFilter(sentences, known=[scored([(EVERY[0], EVERY[n]) for n in nearest.tolist()])])
    pairs = find_candidates(sentences, Candidates(top_k=4), rules=rules, folder=tmp_path, vectors=vectors)
    assert int((pairs.left == 0).sum()) >= 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"strategies": ()}, "each once; got none"), ({"strategies": ("bm25", "bm25")}, "each once"),
     ({"strategies": ("words",)}, "semantic, bm25, random, kde"), ({"top_k": 0}, "top_k must be at least 1"),
     ({"pairs": 0}, "pairs must be"), ({"pool_factor": 0}, "pool_factor must be")],
)  # fmt: skip
def test_plans_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Candidates(**changes)  # type: ignore[arg-type]


def test_one_strategy_needs_no_tuple() -> None:
    assert Candidates("bm25") == Candidates(("bm25",))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_vectors_may_be_a_memory_map(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:30])
    rules, vectors = PairFilter(sentences), vectors_of(sentences)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    found = [
        find_candidates(sentences, Candidates(), rules=rules, folder=tmp_path / name, vectors=given)
        for name, given in (("array", vectors), ("map", mapped))
    ]
    assert as_set(found[0]) == as_set(found[1])
    assert isinstance(found[0].left, np.memmap)


def test_vectors_that_are_not_finite(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:30])
    vectors = vectors_of(sentences)
    vectors[7, 2] = np.nan
    for approximate in (False, True):
        if approximate:
            pytest.importorskip("faiss")
        plan = Candidates(approximate=approximate)
        with pytest.raises(InputError, match="finite"):
            find_candidates(
                sentences, plan, rules=PairFilter(sentences), folder=tmp_path / str(approximate), vectors=vectors
            )


def test_bad_input_is_told_before_anything_is_written(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:5])
    rules = PairFilter(sentences)
    folder = tmp_path / "none"
    for vectors, message in (
        (None, "need the vectors"),
        (vectors_of(sentences)[:4], "5 sentences and 4 vectors"),
        (np.zeros((5, 2), np.int8), "must be floats"),
    ):
        with pytest.raises(InputError, match=message):
            find_candidates(sentences, Candidates(), rules=rules, folder=folder, vectors=vectors)
    with pytest.raises(InputError, match="other sentences"):
        find_candidates(collect([], EVERY[:6]), Candidates(("random",)), rules=rules, folder=folder)
    single = collect([], EVERY[:1])
    with pytest.raises(InputError, match="at least two"):
        find_candidates(single, Candidates(("random",)), rules=PairFilter(single), folder=folder)
    assert not folder.exists()


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    sentences = collect([], EVERY[:2])
    rules = PairFilter(sentences, known=[scored([(EVERY[0], EVERY[1])])])
    with pytest.raises(InputError, match="not one candidate pair"):
        find_candidates(sentences, Candidates(("random", "bm25")), rules=rules, folder=tmp_path)


def test_approximate_search_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    sentences = collect([], EVERY[:20])
    with pytest.raises(MissingExtraError, match=r"munjang\[search\]"):
        find_candidates(
            sentences, Candidates(approximate=True), rules=PairFilter(sentences), folder=tmp_path,
            vectors=vectors_of(sentences),
        )  # fmt: skip


def test_when_search_is_approximate() -> None:
    import torch

    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [neighbours.is_approximate(None, count, cpu) for count in (200_000, 200_001)] == [False, True]
    assert not neighbours.is_approximate(None, 10_000_000, cuda)
    assert neighbours.is_approximate(True, 2, cuda)
    assert not neighbours.is_approximate(False, 10_000_000, cpu)


def test_approximate_finds_nearly_all_and_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    sentences = collect([], [f"문장 {n}" for n in range(3000)])
    rules, vectors = PairFilter(sentences), vectors_of(sentences, width=16)
    found = {}
    for name, approximate in (("exact", False), ("first", True), ("second", True)):
        plan = Candidates(approximate=approximate)
        found[name] = as_set(
            find_candidates(sentences, plan, rules=rules, folder=tmp_path / name, vectors=vectors, device="cpu")
        )
    assert found["first"] == found["second"]
    assert len(found["first"] & found["exact"]) > 0.97 * len(found["exact"])


def test_the_graph_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss")
    monkeypatch.setattr(candidates, "WINDOW", 50)
    sentences = collect([], EVERY[:120])
    rules, vectors = PairFilter(sentences), vectors_of(sentences)
    plan = Candidates(approximate=True, top_k=2)
    built: list[int] = []
    real = faiss.IndexHNSWFlat
    monkeypatch.setattr(faiss, "IndexHNSWFlat", lambda *given: built.append(1) or real(*given))
    told: list[int] = []

    def progress(done: int, total: int | None) -> None:
        assert total == 240  # the graph, then the search
        told.append(done)
        if done == 170:
            raise Stop

    with pytest.raises(Stop):
        find_candidates(sentences, plan, rules=rules, folder=tmp_path, vectors=vectors, progress=progress)
    again: list[int] = []
    find_candidates(
        sentences, plan, rules=rules, folder=tmp_path, vectors=vectors, progress=lambda done, _: again.append(done)
    )
    assert built == [1]
    assert (told, again) == ([120, 170], [120, 170, 220, 240])
