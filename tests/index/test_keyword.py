"""Keyword search against BM25 computed by hand, whatever was added, removed, saved, damaged or killed."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from munjang.errors import DataError, InputError, MunjangWarning
from munjang.index import keyword, keyword_files, keyword_state
from munjang.index.keyword import KeywordIndex
from munjang.index.passages import Found
from munjang.text import morphemes
from munjang.text.morphemes import Analyser

PAIRS = Analyser(korean=False)
WORDS = ["비", "학교", "서울", "은행", "rain", "school", "bank", "Seoul", "금리", "영화", "the", "of", "2024"]


class Memory:
    """Passages in a dictionary."""

    dimension = 2

    def __init__(self, texts: list[str] | None = None) -> None:
        self.texts: dict[int, str] = {}
        self.last = self.generation = 0
        self.read = 0
        self.add(texts or [])

    def add(self, texts: list[str]) -> None:
        for text in texts:
            self.last += 1
            self.texts[self.last] = text
        self.generation += 1

    def remove(self, *numbers: int) -> None:
        for number in numbers:
            del self.texts[number]
        self.generation += 1

    def last_number(self) -> int:
        return self.last

    def numbers(self) -> NDArray[np.int64]:
        return np.array(sorted(self.texts), np.int64)

    def vectors(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        raise AssertionError("keyword search reads no vectors")

    def stream_vectors(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        raise AssertionError("keyword search reads no vectors")

    def stream_texts(self, after: int, upto: int) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
        asked = [number for number in sorted(self.texts) if after < number <= upto]
        self.read += len(asked)
        for start in range(0, len(asked), 7):
            block = asked[start : start + 7]
            yield np.array(block, np.int64), [self.texts[number] for number in block]


def by_hand(
    passages: Memory,
    query: str,
    k: int,
    *,
    analyser: Analyser = PAIRS,
    required: str = "",
    allowed: set[int] | None = None,
) -> list[tuple[int, float]]:
    """BM25 as its formula says: (number, score), best first."""
    documents = {number: Counter(analyser.terms([text])[0]) for number, text in passages.texts.items()}
    mean = sum(sum(own.values()) for own in documents.values()) / max(1, len(documents)) or 1.0
    found = []
    for number, own in documents.items():
        score = 0.0
        for term in analyser.terms([query])[0]:
            frequency = sum(term in other for other in documents.values())
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            norm = 1.2 * (0.25 + 0.75 * sum(own.values()) / mean)
            score += idf * own[term] * 2.2 / (own[term] + norm)
        has_all = all(term in own for term in analyser.terms([required])[0])
        if score > 0 and has_all and (allowed is None or number in allowed):
            found.append((number, score))
    return sorted(found, key=lambda item: (-np.float32(item[1]), item[0]))[:k]


def agrees(found: Found, row: int, wanted: list[tuple[int, float]]) -> None:
    """Same scores; same numbers, but for those whose scores differ in the last digits only."""
    count = len(wanted)
    numbers, scores = found.numbers[row], found.scores[row]
    assert (numbers[count:] == -1).all()
    assert np.isneginf(scores[count:]).all()
    np.testing.assert_allclose(scores[:count], [score for _, score in wanted], rtol=2e-6)
    exact = dict(wanted)
    for number, score in zip(numbers[:count].tolist(), scores[:count].tolist(), strict=True):
        assert exact.get(number, wanted[-1][1]) == pytest.approx(score, rel=2e-6)
    ties = np.flatnonzero(np.diff(scores[:count]) == 0)
    assert (numbers[ties] < numbers[ties + 1]).all()


def same(first: Found, second: Found) -> None:
    assert first.numbers.tolist() == second.numbers.tolist()
    assert first.scores.tobytes() == second.scores.tobytes()


def rows_of(random_: random.Random, count: int) -> list[str]:
    weights = [1 / (place + 1) for place in range(len(WORDS))]
    return [" ".join(random_.choices(WORDS, weights, k=random_.randint(0, 12))) for _ in range(count)]


QUERIES = ["비 rain", "the school of Seoul 학교", "금리 금리 은행", "nowhere", "2024", "the of 비 학교 서울"]


@pytest.fixture(autouse=True)
def _files_are_always_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword, "_WORTH", 0)


def fresh(folder: Path, passages: Memory) -> KeywordIndex:
    index = KeywordIndex(folder, analyser=PAIRS)
    index.refresh(passages)
    return index


@pytest.mark.parametrize("k", [1, 3, 50])
def test_scores_are_those_of_the_formula(tmp_path: Path, k: int) -> None:
    passages = Memory(rows_of(random.Random(k), 60))
    passages.remove(3, 17, 60)
    index = fresh(tmp_path, passages)
    found = index.search(QUERIES, k)
    assert (found.scores.dtype, found.numbers.dtype) == (np.float32, np.int64)
    for row, query in enumerate(QUERIES):
        agrees(found, row, by_hand(passages, query, k))


def test_korean_words_are_found_behind_particles(tmp_path: Path) -> None:
    passages = Memory(
        [
            "한국은행이 기준금리를 올렸다",
            "비가 오는 날에는 학교에서 책을 읽는다",
            "The bank raised its rates",
            "자리가 비었다",
            "BERT 모델을 학습했다",
        ]
    )
    index = KeywordIndex(tmp_path, analyser=Analyser(korean=True))
    index.refresh(passages)
    queries = ["비는 언제 오나요?", "학교까지", "은행", "rate", "bert를", "기준 금리"]
    found = index.search(queries, 1)
    assert found.numbers[:, 0].tolist() == [2, 2, 1, 3, 5, 1]
    for row, query in enumerate(queries):
        agrees(found, row, by_hand(passages, query, 1, analyser=Analyser(korean=True)))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_filters_are_exact_and_change_no_score(tmp_path: Path, share: float) -> None:
    chance = random.Random(1)
    passages = Memory(rows_of(chance, 300))
    passages.remove(*range(10, 40))
    index = fresh(tmp_path, passages)
    allowed = np.array([chance.random() < share for _ in passages.texts])
    kept = set(passages.numbers()[allowed].tolist())
    found = index.search(QUERIES, 20, allowed=allowed)
    everything = index.search(QUERIES, 300)
    for row in range(len(QUERIES)):
        pairs = list(zip(everything.numbers[row].tolist(), everything.scores[row].tolist(), strict=True))
        wanted = [pair for pair in pairs if pair[0] in kept][:20]
        assert found.numbers[row, : len(wanted)].tolist() == [number for number, _ in wanted]
        assert found.scores[row, : len(wanted)].tolist() == [score for _, score in wanted]
        assert (found.numbers[row, len(wanted) :] == -1).all()


def test_stopping_early_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = Memory(rows_of(random.Random(2), 2_000))
    index = fresh(tmp_path, passages)
    plain = index.search(QUERIES, 5)
    monkeypatch.setattr(keyword_state, "_LONG", 0)
    same(index.search(QUERIES, 5), plain)
    monkeypatch.setattr(keyword_state, "_LONG", 1 << 30)
    same(index.search(QUERIES, 5), plain)


def test_words_in_quotes_must_be_there(tmp_path: Path) -> None:
    passages = Memory(["서울 은행 bank", "서울 학교", "bank of Seoul", "은행 은행 은행"])
    index = fresh(tmp_path, passages)
    found = index.search(['bank "서울 은행"', "bank “서울”", '"nowhere" bank', '5" bank', '"..." bank'], 4)
    agrees(found, 0, by_hand(passages, "bank 서울 은행", 4, required="서울 은행"))
    assert found.numbers[0].tolist() == [1, -1, -1, -1]
    agrees(found, 1, by_hand(passages, "bank 서울", 4, required="서울"))
    assert found.numbers[2].tolist() == [-1] * 4
    assert sorted(found.numbers[3].tolist()) == [-1, -1, 1, 3]
    assert sorted(found.numbers[4].tolist()) == [-1, -1, 1, 3]
    masked = index.search(['"서울"'], 4, allowed=np.array([False, True, True, True]))
    assert masked.numbers[0].tolist() == [2, -1, -1, -1]


def test_equal_scores_go_to_the_lower_number(tmp_path: Path) -> None:
    passages = Memory(["rain school"] * 50)
    assert fresh(tmp_path, passages).search(["rain"], 5).numbers[0].tolist() == [1, 2, 3, 4, 5]
    passages.remove(1, 4)
    assert fresh(tmp_path, passages).search(["rain"], 5).numbers[0].tolist() == [2, 3, 5, 6, 7]


def test_an_empty_index_and_texts_without_words(tmp_path: Path) -> None:
    passages = Memory()
    index = fresh(tmp_path, passages)
    index.save(passages)
    assert index.search(["rain", ""], 2).numbers.tolist() == [[-1, -1], [-1, -1]]
    passages.add(["!!!", "", "\n"])
    assert fresh(tmp_path, passages).search(["rain", "!"], 2).numbers.tolist() == [[-1, -1], [-1, -1]]
    assert index.search([], 2).numbers.shape == (0, 2)


@pytest.mark.parametrize(
    ("queries", "k", "allowed", "words"),
    [
        ("rain", 1, None, "put it into a list"),
        ([3], 1, None, "query 0 must be a text, got int"),
        (["rain"], 0, None, "k must be"),
        (["rain"], 1.5, None, "k must be"),
        (["rain"], 1, np.ones(7, bool), "each of the 2 passages"),
        (["rain"], 1, np.ones(2, int), "each of the 2 passages"),
    ],
)
def test_bad_input(tmp_path: Path, queries: list[str], k: int, allowed: NDArray[np.bool_] | None, words: str) -> None:
    index = fresh(tmp_path, Memory(["rain", "비"]))
    with pytest.raises(InputError, match=words):
        index.search(queries, k, allowed=allowed)
    with pytest.raises(InputError, match="refresh"):
        KeywordIndex(tmp_path).search(["rain"], 1)


class Following(RuleBasedStateMachine):
    """A writer that saves and a reader that only follows, against an index made anew."""

    @initialize()
    def start(self) -> None:
        self.chance = random.Random(0)
        self.folder = Path(os.environ["MUNJANG_KEYWORD_FOLDER"]) / os.urandom(8).hex()
        self.passages = Memory()
        self.writer, self.reader = (KeywordIndex(self.folder, analyser=PAIRS) for _ in range(2))

    @rule(count=st.integers(1, 30))
    def add(self, count: int) -> None:
        self.passages.add(rows_of(self.chance, count))

    @rule(share=st.sampled_from([0.05, 0.5, 1.0]))
    def remove(self, share: float) -> None:
        self.passages.remove(*[number for number in self.passages.texts if self.chance.random() < share])

    @rule()
    def save(self) -> None:
        self.writer.save(self.passages)

    @rule()
    def follow(self) -> None:
        self.check(self.reader)  # from time to time only: the files may be far ahead of it

    @rule()
    def reopen(self) -> None:
        self.writer = KeywordIndex(self.folder, analyser=PAIRS)

    @invariant()
    def all_answer_alike(self) -> None:
        if not hasattr(self, "passages"):
            return
        self.check(self.writer)
        self.check(KeywordIndex(self.folder, analyser=PAIRS))

    def check(self, index: KeywordIndex) -> None:
        state = index.refresh(self.passages)
        assert len(state.segments) < 12
        same(index.search(QUERIES, 8), fresh(self.folder / "nowhere", self.passages).search(QUERIES, 8))


def test_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setenv("MUNJANG_KEYWORD_FOLDER", str(tmp_path))
    run_state_machine_as_test(Following, settings=settings(max_examples=25, stateful_step_count=12, deadline=None))


def saved(tmp_path: Path) -> tuple[Memory, Path, Found]:
    """An index with several files, and what it answers."""
    chance = random.Random(3)
    passages = Memory(rows_of(chance, 90))
    index = fresh(tmp_path, passages)
    index.save(passages)
    for count in (20, 5):
        passages.add(rows_of(chance, count))
        index.save(passages)
    passages.remove(5, 50, 112)
    index.save(passages)
    folder = tmp_path / keyword_files.FOLDER
    assert len(list(folder.iterdir())) == 4
    return passages, folder, fresh(tmp_path / "nowhere", passages).search(QUERIES, 10)


def test_files_save_the_analysis(tmp_path: Path) -> None:
    passages, _, wanted = saved(tmp_path)
    passages.add(["비 rain new"])
    wanted = fresh(tmp_path / "nowhere", passages).search(QUERIES, 10)
    passages.read = 0
    same(fresh(tmp_path, passages).search(QUERIES, 10), wanted)
    assert passages.read <= keyword._WITNESSES + 1


def test_damage_changes_no_answer_and_is_mended(tmp_path: Path) -> None:
    passages, folder, wanted = saved(tmp_path)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    noise = random.Random(4)
    for path, content in whole.items():
        place = noise.randrange(len(content))
        flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        other = next(other for name, other in whole.items() if name != path)
        middle = content[: len(content) // 2]
        for damaged in (None, b"", middle, content + b"x", noise.randbytes(len(content)), flipped, other):
            path.unlink(missing_ok=True)
            if damaged is not None:
                path.write_bytes(damaged)
            index = fresh(tmp_path, passages)
            same(index.search(QUERIES, 10), wanted)
        index.save(passages)
        passages.read = 0
        same(fresh(tmp_path, passages).search(QUERIES, 10), wanted)
        assert passages.read <= keyword._WITNESSES  # the files are whole again
        for old in folder.iterdir():
            old.unlink()
        for name, old_content in whole.items():
            name.write_bytes(old_content)


def test_damage_under_an_open_index(tmp_path: Path) -> None:
    passages, folder, wanted = saved(tmp_path)
    index = fresh(tmp_path, passages)
    for path in folder.iterdir():
        path.write_bytes(b"noise")
    same(index.search(QUERIES, 10), wanted)
    passages.add(["비"])
    index.refresh(passages)
    index.save(passages)
    same(fresh(tmp_path, passages).search(QUERIES, 10), fresh(tmp_path / "nowhere", passages).search(QUERIES, 10))


def test_files_of_something_else_are_not_used(tmp_path: Path) -> None:
    passages, _, _ = saved(tmp_path)
    other = Memory([f"school {place}" for place in range(passages.last)])
    other.generation = passages.generation
    wanted = fresh(tmp_path / "nowhere", other).search(QUERIES, 10)
    same(fresh(tmp_path, other).search(QUERIES, 10), wanted)
    named = KeywordIndex(tmp_path, analyser=PAIRS, identity="another")
    passages.read = 0
    named.refresh(passages)
    assert passages.read == len(passages.texts)
    older = Memory(list(passages.texts.values()))  # generation 1: the files are newer
    older.read = 0
    fresh(tmp_path, older)
    assert older.read == len(older.texts)


def test_another_analyser_makes_its_own_terms(tmp_path: Path) -> None:
    passages = Memory(["학교에서 비가 온다", "rain at school"])
    fresh(tmp_path, passages).save(passages)
    index = KeywordIndex(tmp_path, analyser=Analyser(korean=True))
    index.refresh(passages)
    found = index.search(["교에"], 1)  # a pair of syllables, no word
    assert found.numbers.tolist() == [[-1]]
    index.save(passages)
    assert fresh(tmp_path, passages).search(["교에"], 1).numbers.tolist() == [[1]]


def test_without_kiwi_it_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(morphemes.util, "find_spec", lambda name: None)
    index, passages = KeywordIndex(tmp_path), Memory(["plain English"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.refresh(passages)
    passages.add(["학교에서"])
    with pytest.warns(MunjangWarning, match=r"munjang\[korean\]"):
        index.refresh(passages)
    passages.add(["학교까지"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.refresh(passages)
    assert index.search(["학교"], 3).numbers[0].tolist()[2] == -1
    assert sorted(index.search(["학교"], 2).numbers[0].tolist()) == [2, 3]


def test_a_full_disk_leaves_the_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages, folder, _ = saved(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    index = fresh(tmp_path, passages)
    passages.add(["비 rain"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ("munjang.index.dense_file.write_all", "munjang.files.write_all"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(DataError, match="disk is full"):
                index.save(passages)
        assert before.items() <= {path.name: path.read_bytes() for path in folder.iterdir()}.items()
        same(fresh(tmp_path, passages).search(QUERIES, 5), fresh(tmp_path / "nowhere", passages).search(QUERIES, 5))
    index.save(passages)
    assert len(list(folder.iterdir())) == 1 + len(index.refresh(passages).segments)  # nothing lies about


def test_removed_passages_leave_the_files(tmp_path: Path) -> None:
    passages, folder, _ = saved(tmp_path)
    index = fresh(tmp_path, passages)
    size = sum(path.stat().st_size for path in folder.iterdir())
    passages.remove(*[number for number in passages.texts if number % 8])
    index.save(passages)
    assert sum(path.stat().st_size for path in folder.iterdir()) < size / 2
    same(fresh(tmp_path, passages).search(QUERIES, 5), fresh(tmp_path / "nowhere", passages).search(QUERIES, 5))


def test_progress_counts_the_passages_that_are_analysed(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    passages = Memory(rows_of(random.Random(5), 30))
    KeywordIndex(tmp_path, analyser=PAIRS).refresh(passages, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (30, 30)


def test_threads_search_while_one_follows(tmp_path: Path) -> None:
    passages = Memory(["rain"] * 20)
    index, wrong, done = fresh(tmp_path, passages), [], threading.Event()

    def search() -> None:
        while not done.is_set():
            found = index.search(["rain"], 1000)
            scores = found.scores[0][found.numbers[0] >= 0]
            if len(set(scores.tolist())) != 1 or len(scores) % 20:
                wrong.append(scores)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        passages.add(["rain"] * 20)
        index.save(passages)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


WRITER = """
import sys, random
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_keyword import Memory, KeywordIndex, PAIRS, rows_of
chance, passages = random.Random(0), Memory()
index = KeywordIndex(Path({folder!r}), analyser=PAIRS)
for turn in range(10_000):
    passages.add(rows_of(chance, 20))
    if turn % 3 == 2:
        passages.remove(*[number for number in passages.texts if chance.random() < 0.2])
    index.save(passages)
    print(turn, flush=True)
"""


def test_a_writer_that_is_killed_leaves_right_answers(tmp_path: Path) -> None:
    chance = random.Random(6)
    for trial in range(3):
        folder = tmp_path / str(trial)
        code = WRITER.format(tests=str(Path(__file__).parent), folder=str(folder))
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(chance.random() * 0.3)
        writer.send_signal(signal.SIGKILL)
        turns = 1 + len(writer.stdout.read().split())
        writer.wait()
        # The same passages again, up to what was acknowledged and a little further.
        again, passages = random.Random(0), Memory()
        for turn in range(turns + 2):
            passages.add(rows_of(again, 20))
            if turn % 3 == 2:
                passages.remove(*[number for number in passages.texts if again.random() < 0.2])
        index = fresh(folder, passages)
        wanted = fresh(folder / "nowhere", passages).search(QUERIES, 10)
        same(index.search(QUERIES, 10), wanted)
        index.save(passages)
        assert len(list((folder / keyword_files.FOLDER).glob("*.tmp"))) == 0
        passages.read = 0
        same(fresh(folder, passages).search(QUERIES, 10), wanted)
        assert passages.read <= keyword._WITNESSES
