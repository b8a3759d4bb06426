"""Kill -9 at random moments: what was acknowledged is there, what was deleted stays away, search equals brute force."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from support import index_work
from support.index_work import apply, load, logged
from support.indexing import Plain

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kill -9 is of POSIX")
KINDS = ("add", "delete", "compact", "rebuild")


def _context() -> Any:
    """Workers that begin with everything imported, but with nothing computed: torch does not survive a fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["munjang.index.index", "kiwipiepy"])
    return context


def _kill_once(folder: Path, model_folder: Path, log: Path, kind: str, seed: int) -> None:
    arguments = (str(folder), str(model_folder), str(log), kind, seed)
    process = _context().Process(target=index_work.work, args=arguments)
    process.start()
    deadline = time.monotonic() + 100
    wanted = random.Random(seed).randint(1, 6)  # operations before the blow
    while time.monotonic() < deadline and process.is_alive():
        if log.exists() and log.read_text(encoding="utf-8").count("done\n") >= wanted:
            break
        time.sleep(0.002)
    time.sleep(random.Random(seed * 31).uniform(0, 0.04))
    assert process.is_alive(), "the worker ended by itself"
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _trials(tmp_path: Path, model_folder: Path, kind: str, seeds: range, *, keyword: bool) -> None:
    """One index through all kills, so that each begins with what the last one left."""
    folder, model = tmp_path / "index", load(model_folder)
    Index.create(folder, model, options=IndexOptions(keyword=keyword)).close()
    plain = Plain(model)
    for seed in seeds:
        log = tmp_path / f"log-{seed}"
        _kill_once(folder, model_folder, log, kind, seed)
        finished, under_way = logged(log)
        for operation in finished:
            plain.documents = apply(plain.documents, operation)
        with Index.open(folder, model) as index:
            there = {one.id: (one.text, dict(one.metadata)) for one in index.documents()}
            if under_way is not None and there != plain.documents:
                plain.documents = apply(plain.documents, under_way)  # whole, or not at all
            plain.check_all(index)
            report = index.verify()
            assert report.ok, report.problems
            index.add([{"id": "after", "text": f"그 뒤에 {seed}"}])
            plain.documents["after"] = (f"그 뒤에 {seed}", {})
            plain.check_all(index)


@pytest.mark.slow  # tests/test_kills.py kills at every step
@pytest.mark.parametrize("kind", KINDS)
def test_kill_at_random_moments(tmp_path: Path, model_folder: Path, kind: str) -> None:
    _trials(tmp_path, model_folder, kind, range(3), keyword=kind == "rebuild")  # the analyser takes a second to load


@pytest.mark.slow
@pytest.mark.parametrize("first", [100, 105, 110])
@pytest.mark.parametrize("kind", KINDS)
def test_kill_at_many_random_moments(tmp_path: Path, model_folder: Path, kind: str, first: int) -> None:
    _trials(tmp_path, model_folder, kind, range(first, first + 5), keyword=True)


def test_two_processes_read_while_one_writes(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "index"
    index = Index.create(folder, load(model_folder))
    index.add([{"id": f"0{half}", "text": f"비가 온다 0 {half}"} for half in "ab"])
    context = _context()
    answers = context.Queue()
    arguments = (str(folder), str(model_folder), 2.5, answers)
    readers = [context.Process(target=index_work.read_for, args=arguments) for _ in range(2)]
    for reader in readers:
        reader.start()
    number = 0
    while any(reader.is_alive() for reader in readers) and answers.qsize() < 2:
        number += 1
        index.add([{"id": f"{number % 17}{half}", "text": f"비가 온다 {number} {half}"} for half in "ab"])
        if number % 3 == 0:
            index.delete([f"{(number * 5) % 17}{half}" for half in "ab"])
        if number % 20 == 0:
            index.compact()
    found = [answers.get(timeout=5) for _ in readers]
    for reader in readers:
        reader.join()
    assert [wrong for _, _, wrong in found] == [[], []]
    assert all(states > 1 for _, states, _ in found)  # they saw the index change
    assert index.verify().ok
    index.close()


def test_a_full_disk_loses_nothing(tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses to grow, as on a full disk, for the connection that writes."""
    folder = tmp_path / "index"
    index = Index.create(folder, model)
    plain = Plain(model, {str(n): (f"비 {n}", {}) for n in range(20)})
    index.add([{"id": id, "text": text} for id, (text, _) in plain.documents.items()])
    from munjang.index import store

    def cramped(folder: Path, *, write: bool = False) -> sqlite3.Connection:
        connection = connect(folder, write=write)
        if write:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        return connection

    connect = store.connect
    with monkeypatch.context() as patch:
        patch.setattr(store, "connect", cramped)
        with pytest.raises(DataError, match=r"the disk is full .*; nothing of this call was kept"):
            index.add([{"id": f"new{n}", "text": "빵 " * 500} for n in range(200)])
        plain.check_all(index)
        with pytest.raises(
            DataError, match=r"the disk is full .*; the first \d+ documents of this call are in the index"
        ):
            index.add(({"id": f"new{n}", "text": "빵 " * 500} for n in range(200)), commit_every=1)
    kept = index.count - 20
    assert kept > 0
    plain.documents |= {f"new{n}": ("빵 " * 500, {}) for n in range(kept)}
    plain.check_all(index)
    index.close()
    with Index.open(folder, model) as again:
        plain.check_all(again)
        assert again.verify().ok


def test_a_temporary_table_that_finds_no_room(tmp_path: Path, model: BiEncoder) -> None:
    """The error of a full disk for anything but the documents says the same."""
    with Index.create(tmp_path / "index", model) as index:
        index.add(["비"])
        with pytest.raises(DataError, match="the disk is full"), index._store.writing():
            raise sqlite3.OperationalError("database or disk is full")
        assert index.count == 1
