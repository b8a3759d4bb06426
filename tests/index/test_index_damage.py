"""What may be lost, and what may not: derived files, the database itself, folders that cannot be written; `verify`."""

from __future__ import annotations

import errno
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.encoders import BiEncoder
from munjang.errors import DataError, MunjangWarning
from munjang.index import schema
from munjang.index.dense import DenseIndex
from munjang.index.index import Index
from support.index_work import save_often
from support.indexing import TEXTS, Plain


@pytest.fixture
def plain(tmp_path: Path, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> Plain:
    """A closed index with all its files, and what it holds."""
    from munjang.index import dense, derived

    for module, name in ((derived, "_SMALL"), (derived, "_SHARE"), (dense, "SMALL")):
        monkeypatch.setattr(module, name, getattr(module, name))
    save_often()
    plain = Plain(model, {str(n): (f"{TEXTS[n % 10]} {n}", {"n": n}) for n in range(40)})
    with Index.create(tmp_path / "index", model) as index:
        index.add([{"id": id, "text": text, **rest} for id, (text, rest) in plain.documents.items()])
    return plain


def _derived(folder: Path) -> list[Path]:
    return [file for file in sorted((folder / "derived").rglob("*")) if file.is_file()]


def _answers(index: Index) -> list[Any]:
    return [
        [(hit.id, round(hit.score, 4)) for hit in index.search(query, 15, mode=mode)]  # type: ignore[arg-type]
        for query in ("비가 온다", "bread people")
        for mode in ("semantic", "keyword", "hybrid")
    ]


@pytest.mark.parametrize("how", ["delete", "truncate", "noise", "empty", "older"])
def test_no_derived_file_changes_an_answer(tmp_path: Path, model: BiEncoder, plain: Plain, how: str) -> None:
    folder = tmp_path / "index"
    shutil.copytree(folder / "derived", tmp_path / "older")
    with Index.open(folder, model) as index:
        index.delete(["3", "4"])
        index.add([{"id": "new", "text": "새로 온 비"}])
        expected = _answers(index)
    del plain.documents["3"], plain.documents["4"]
    plain.documents["new"] = ("새로 온 비", {})
    assert len(_derived(folder)) >= 3
    generator = np.random.default_rng(0)
    for file in _derived(folder):
        saved = file.read_bytes()
        if how == "delete":
            file.unlink()
        elif how == "older":
            old = tmp_path / "older" / file.relative_to(folder / "derived")
            if not old.exists():
                continue
            file.write_bytes(old.read_bytes())
        else:
            noise = generator.bytes(len(saved))
            file.write_bytes({"truncate": saved[: len(saved) // 3], "noise": noise, "empty": b""}[how])
        with Index.open(folder, model) as index:
            assert _answers(index) == expected, file.name
            plain.check_all(index)
            assert index.verify().ok
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(saved)


def test_a_database_put_back_from_a_copy_goes_its_own_way(tmp_path: Path, model: BiEncoder, plain: Plain) -> None:
    folder = tmp_path / "index"
    shutil.copy(folder / "documents.sqlite3", tmp_path / "copy")
    with Index.open(folder, model) as index:
        index.add([{"id": f"lost{n}", "text": f"우산 {n}"} for n in range(30)])
    shutil.copy(tmp_path / "copy", folder / "documents.sqlite3")
    with Index.open(folder, model) as index:
        plain.check_all(index)
        for n in range(30):  # other documents under the numbers that the derived files know
            index.add([{"id": f"other{n}", "text": f"bread {n}"}])
            plain.documents[f"other{n}"] = (f"bread {n}", {})
    with Index.open(folder, model) as index:
        plain.check_all(index)
        assert index.verify().ok


def test_a_damaged_database_is_one_clear_error(tmp_path: Path, model: BiEncoder, plain: Plain) -> None:
    folder = tmp_path / "index"
    whole = (folder / "documents.sqlite3").read_bytes()
    (folder / "documents.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="damaged"):
        Index.open(folder, model)
    broken = bytearray(whole)
    broken[16384 * 2 : 16384 * 6] = bytes(range(256)) * 256
    (folder / "documents.sqlite3").write_bytes(broken)
    try:
        with Index.open(folder, model) as index:
            assert not index.verify().ok
    except DataError as error:
        assert "damaged" in str(error) or "failed" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE passages SET stop = 99999 WHERE number = 7", "passage 7 of document .* of a text of"),
        ("UPDATE vectors SET vector = zeroblob(3) WHERE number = 2", "1 vectors are not of 128 bytes"),
        ("DELETE FROM vectors WHERE number = 2", "1 passages without a vector"),
        ("DELETE FROM documents WHERE id = '5'", "passages without a document"),
        ("DELETE FROM passages WHERE number = 1", "1 vectors without a passage"),
        ("INSERT INTO removals VALUES (3, 1)", "1 removed passages that are there"),
    ],
)
def test_verify_says_what_is_wrong(tmp_path: Path, model: BiEncoder, plain: Plain, statement: str, said: str) -> None:
    with Index.open(tmp_path / "index", model) as index:
        assert index.verify().ok
    database = sqlite3.connect(tmp_path / "index" / "documents.sqlite3", isolation_level=None)
    database.execute(statement)
    database.close()
    with Index.open(tmp_path / "index", model) as index:
        report = index.verify()
        assert not report.ok
        assert any(re.search(said, problem) for problem in report.problems), report.problems


def test_verify_finds_vectors_that_are_no_numbers(tmp_path: Path, model: BiEncoder, plain: Plain) -> None:
    database = sqlite3.connect(tmp_path / "index" / "documents.sqlite3", isolation_level=None)
    database.execute("UPDATE vectors SET vector = ? WHERE number = 4", (np.full(32, np.nan, "<f4").tobytes(),))
    database.close()
    with Index.open(tmp_path / "index", model) as index:
        assert any("passage 4" in problem for problem in index.verify().problems)


def test_verify_finds_a_search_that_lies(
    tmp_path: Path, model: BiEncoder, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    from munjang.index.dense import DenseState
    from munjang.index.passages import Found

    honest = DenseState.search

    def lying(self: DenseState, queries: Any, k: int, **rest: Any) -> Found:
        found = honest(self, queries, min(k * 3, 40), **rest)
        return Found(found.scores[:, -k:], found.numbers[:, -k:])

    monkeypatch.setattr(DenseState, "search", lying)
    with Index.open(tmp_path / "index", model) as index:
        report = index.verify()
        assert not report.ok
        assert report.recall is not None
        assert report.recall < 0.95


def test_derived_files_that_cannot_be_written_are_a_warning(
    tmp_path: Path, model: BiEncoder, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Index.open(tmp_path / "index", model) as index:
        with monkeypatch.context() as patch:
            patch.setattr(DenseIndex, "save", full)
            with pytest.warns(MunjangWarning, match=r"could not be written .*No space left.*no document is lost"):
                index.add([{"id": "new", "text": "새 비"}])
            with pytest.warns(MunjangWarning, match="no document is lost"):
                index.delete(["0"])
        plain.documents["new"] = ("새 비", {})
        del plain.documents["0"]
        plain.check_all(index)
    with Index.open(tmp_path / "index", model) as again:
        plain.check_all(again)


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, model: BiEncoder, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on; writing is one clear error."""
    monkeypatch.setattr(schema.os, "access", lambda path, mode: False)

    def refused(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("munjang.index.store.OutputLock", refused)
    with Index.open(tmp_path / "index", model) as index:
        plain.check_all(index)
        for call in (lambda: index.add(["새 글"]), lambda: index.delete(["1"]), index.compact):
            with pytest.raises(DataError, match=r"cannot be written.*Read-only file system"):
                call()
        plain.check_all(index)
    with pytest.raises(DataError, match=r"cannot be (made|written)"):
        Index.create(tmp_path / "new", model)


def test_sqlite_that_refuses_to_write(tmp_path: Path, model: BiEncoder, plain: Plain) -> None:
    with Index.open(tmp_path / "index", model) as index:
        with pytest.raises(DataError, match="the folder or its files are read-only"):
            _write_to_what_is_read_only(index)
        plain.check_all(index)


def _write_to_what_is_read_only(index: Index) -> None:
    with index._store.writing() as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("DELETE FROM documents")
