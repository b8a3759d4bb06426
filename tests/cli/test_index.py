"""`munjang index`, in this process, with a tiny real model: making, filling, keeping; and what can go wrong."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from munjang.cli import main
from munjang.index.adding import Adder
from munjang.index.index import Index
from munjang.index.schema import DATABASE
from support import small_models

Run = Callable[..., tuple[int, str, str]]
CSV = "id,text,kind,year\nr1,비가 온다.,날씨,2020\nr2,It is raining.,날씨,2021\nb1,빵 냄새,음식,\n"


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "small"
    small_models.bi_encoder().save(path)
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in the test's folder: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUNJANG_MODEL", raising=False)

    def command(*arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        status = main(["index", *arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


@pytest.fixture
def made(run: Run, model_path: str, tmp_path: Path) -> Path:
    """An index of three documents."""
    (tmp_path / "d.csv").write_text(CSV, encoding="utf-8")
    assert run("create", "i", "d.csv", "--model", model_path)[0] == 0
    return tmp_path / "i"


def documents(path: Path) -> dict[str, tuple[str, dict[str, object]]]:
    with Index.open(path) as index:
        return {one.id: (one.text, dict(one.metadata)) for one in index.documents()}


def test_create(run: Run, made: Path, tmp_path: Path, model_path: str) -> None:
    assert documents(made) == {
        "r1": ("비가 온다.", {"kind": "날씨", "year": 2020}),
        "r2": ("It is raining.", {"kind": "날씨", "year": 2021}),
        "b1": ("빵 냄새", {"kind": "음식"}),
    }
    layout = ("--vectors", "int8", "--chunk-tokens", "16", "--stride", "8", "--no-keyword", "--metadata", "none")
    status, out, err = run("create", "j", "d.csv", "--model", model_path, *layout)
    assert (status, out) == (0, "")
    assert "d.csv: 3 documents, text in 'text', id in 'id'\n" in err
    assert "3 added" in err
    with Index.open(tmp_path / "j") as index:
        options = index.options
        assert (options.vectors, options.chunk_tokens, options.stride, options.keyword) == ("int8", 16, 8, False)
        assert index.get("r1").metadata == {}


def test_the_model_is_told(run: Run, made: Path, model_path: str) -> None:
    status, _, err = run("create", "k", "d.csv", "--model", model_path)
    assert status == 0
    assert f"model: {model_path}\n" in err
    assert "metadata: kind, year (number)" in err
    assert run("create", "quiet", "d.csv", "--model", model_path, "-q")[1:] == ("", "")


def test_add_replaces_by_id(run: Run, made: Path, tmp_path: Path) -> None:
    lines = [
        {"id": "r2", "text": "It rains."},
        {"id": "n1", "text": "우산", "tags": ["a", "b"]},
        {"id": "r1", "text": "x"},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps(one) for one in lines), encoding="utf-8")
    status, _, err = run("add", "i", "m.jsonl")
    assert status == 0
    assert "1 added, 2 replaced, 0 unchanged" in err
    assert "4 documents now" in err
    found = documents(made)
    assert found["r2"] == ("It rains.", {})
    assert found["n1"] == ("우산", {"tags": ["a", "b"]})


def test_from_a_pipe(run: Run, made: Path) -> None:
    status, _, err = run("add", "i", "-", "--format", "csv", stdin=b"id,text,year\np,pipe,7\n")
    assert status == 0
    assert "stdin: 1 documents" in err
    assert documents(made)["p"] == ("pipe", {"year": 7})
    status, _, err = run("add", "i", "-", "--format", "csv", stdin=b"id,text,year\nq,pipe,7\nq\n")
    assert status == 1
    assert "munjang: error: stdin, line 3: expected 3 fields" in err
    assert "q" not in documents(made)


def test_whole_files(run: Run, tmp_path: Path, model_path: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# 비\n\n비가 온다", encoding="utf-8")
    (tmp_path / "notes" / "b.txt").write_text("It is raining.", encoding="utf-8")
    assert run("create", "i", "notes", "--whole-files", "--model", model_path)[0] == 0
    assert set(documents(tmp_path / "i")) == {"a.md", "b.txt"}
    assert "pass --whole-files" in run("add", "i", "notes")[2]
    assert "pass --whole-files" in run("add", "i", "notes/a.md")[2]


def test_skipped_files_of_a_folder_are_named_even_with_quiet(run: Run, tmp_path: Path, model_path: str) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("a.md", "b.html", "c.pdf", "d.pdf"):
        (tmp_path / "notes" / name).write_text("본문")
    status, _, errors = run("create", "i", "notes", "--whole-files", "--model", model_path, "-q")
    assert status == 0
    assert errors.count("skipped 3 files (2 .pdf, 1 .html)") == 1
    assert "b.html (not plain text" in errors
    assert "skipped 3 files" in run("add", "i", "notes", "--whole-files")[2]


def test_delete_is_all_or_nothing(run: Run, made: Path) -> None:
    status, _, err = run("delete", "i", "r1", "x", "y")
    assert status == 1
    assert "i has no document 'x', 'y'; nothing was deleted" in err
    assert len(documents(made)) == 3
    assert run("delete", "i", "-", "--missing-ok", stdin=b"r1\r\nx\n\nr1\n")[0] == 0
    assert set(documents(made)) == {"r2", "b1"}


def test_get(run: Run, made: Path) -> None:
    status, out, _ = run("get", "i", "r1", "b1")
    assert status == 0
    assert out == "id: r1\nkind: 날씨\nyear: 2020\n\n비가 온다.\n\nid: b1\nkind: 음식\n\n빵 냄새\n"
    _, out, _ = run("get", "i", "r2", "--json")
    assert json.loads(out) == {"id": "r2", "text": "It is raining.", "metadata": {"kind": "날씨", "year": 2021}}
    status, out, err = run("get", "i", "r1", "none")
    assert (status, out) == (1, "")
    assert "there is no document 'none'" in err


def test_info_verify_compact(run: Run, made: Path, model_path: str) -> None:
    _, out, _ = run("info", "i")
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (facts["documents"], facts["passages"], facts["model"]) == ("3", "3", model_path)
    assert json.loads(run("info", "i", "--json")[1])["documents"] == 3
    status, out, _ = run("verify", "i")
    assert status == 0
    assert out
    status, _, err = run("compact", "i")
    assert status == 0
    assert "MB before" in err
    assert len(documents(made)) == 3


def test_verify_finds_damage(run: Run, made: Path) -> None:
    with sqlite3.connect(made / DATABASE) as connection:
        connection.execute("DELETE FROM vectors WHERE number = 2")
    status, _, err = run("verify", "i")
    assert status == 1
    assert "munjang: error: " in err


def test_export_and_import(run: Run, made: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert run("export", "i", "e.parquet")[0] == 0
    assert "there already; pass --overwrite" in run("export", "i", "e.parquet")[2]
    assert run("export", "i", "e.parquet", "--overwrite")[0] == 0
    status, _, err = run("import", "copy", "e.parquet")
    assert status == 0
    assert "copy: 3 documents" in err
    assert documents(tmp_path / "copy") == documents(made)
    assert "an index already" in run("import", "copy", "e.parquet")[2]
    with pytest.raises(SystemExit):
        run("export", "i", "e.csv")


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text\n1,가\n2,나,다\n3,라\n", "bad.csv, line 3: expected 2 fields"),
        ("id,text\n1,가\n1,나\n", "bad.csv, line 3: the id '1' repeats"),
        ("id,text\n1,가\n,나\n", "bad.csv, line 3: expected an id"),
        ('id,text\n1,"가\n2,나\n', "bad.csv, in the record that starts at line 2"),
        ("id,text,\n1,가,x\n", "bad.csv: .*a field must be named"),
        ("", "there is no document in bad.csv"),
    ],
)
def test_a_broken_row_adds_nothing(content: str, message: str, run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(content, encoding="utf-8")
    before = documents(made)
    status, out, err = run("add", "i", "bad.csv")
    assert (status, out) == (1, "")
    assert re.search(f"munjang: error: {message}", err), err
    assert documents(made) == before
    assert run("create", "new", "bad.csv")[0] == 1
    assert not (tmp_path / "new").exists()


def test_ctrl_c_leaves_everything_as_it_was(
    run: Run, made: Path, tmp_path: Path, model_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.txt").write_text("하나\nzwei\n", encoding="utf-8")
    whole = Adder._add

    def interrupted(self: Adder, *arguments: Any) -> None:
        whole(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Adder, "_add", interrupted)
    status, _, err = run("add", "i", "m.txt")
    assert status == 130
    assert "interrupted; i is as it was: 3 documents" in err
    status, _, err = run("create", "new", "m.txt", "--model", model_path)
    assert status == 130
    assert "interrupted; new was not made" in err
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    assert run("create", "empty", "m.txt", "--model", model_path)[0] == 130
    assert list((tmp_path / "empty").iterdir()) == []  # what was there before stays
    monkeypatch.undo()
    assert len(documents(made)) == 3


def test_places_that_will_not_do(run: Run, made: Path, tmp_path: Path, model_path: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x", encoding="utf-8")
    for path, message in (
        ("i", "i is an index already: `munjang index add i FILE...` adds to it"),
        ("full", "full is a folder with other files"),
        ("d.csv", "an index is a folder, but d.csv is a file"),
    ):
        status, _, err = run("create", path, "d.csv", "--model", model_path)
        assert status == 1
        assert message in err
    assert (tmp_path / "full" / "mine.txt").read_text(encoding="utf-8") == "x"
    for path, message in (
        ("none", "there is no index at none"),
        ("full", "full is not an index"),
        ("d.csv", "an index is a folder, but d.csv is a file"),
    ):
        for action in (["info", path], ["add", path, "d.csv"], ["delete", path, "a"], ["verify", path]):
            status, _, err = run(*action)
            assert status == 1
            assert message in err


def test_another_model_and_a_newer_version(run: Run, made: Path, tmp_path: Path) -> None:
    other = small_models.bi_encoder("electra")
    other.save(tmp_path / "other")
    status, _, err = run("add", "i", "d.csv", "--model", str(tmp_path / "other"))
    assert status == 1
    assert "i was made by another model" in err
    with sqlite3.connect(made / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 99")
    status, _, err = run("info", "i")
    assert status == 1
    assert "a newer munjang wrote" in err


def test_reencoding(run: Run, made: Path, tmp_path: Path) -> None:
    other = small_models.bi_encoder("electra")
    other.save(tmp_path / "other")
    status, _, err = run("reencode", "i", "--model", "other", "--chunk-tokens", "12")
    assert status == 0, err
    assert "3 documents, searched with" in err
    assert "other" in err
    with Index.open(made, other) as index:
        assert (index.options.chunk_tokens, index.count) == (12, 3)
        assert index.search("rain", 1, mode="semantic").ids
        assert index.verify().ok


def test_titles(run: Run, tmp_path: Path, model_path: str) -> None:
    (tmp_path / "t.csv").write_text("id,title,headline,text\n1,jet lag,빵,비가 온다\n", encoding="utf-8")
    for name, option, finds in (("a", (), "lag"), ("b", ("--title", "headline"), "빵"), ("c", ("--no-title",), "비")):
        assert run("create", name, "t.csv", "--model", model_path, *option)[0] == 0
        with Index.open(tmp_path / name) as index:
            assert [word for word in ("lag", "빵", "비") if index.search(word, mode="keyword").ids] == sorted(
                {finds, "비"}, key=("lag", "빵", "비").index
            )


def test_the_model_may_move(run: Run, made: Path, model_path: str, tmp_path: Path) -> None:
    shutil.copytree(model_path, tmp_path / "moved")
    assert run("add", "i", "d.csv", "--model", "moved", "--device", "cpu", "--threads", "1")[0] == 0
    assert run("add", "i", "d.csv", "--device", "cpu", "--dtype", "float32")[0] == 0


def test_an_empty_document_and_a_long_one(run: Run, made: Path, tmp_path: Path) -> None:
    rows = [{"id": "empty", "text": ""}, {"id": "long", "text": "비가 온다 rain " * 1500}]
    (tmp_path / "m.json").write_text(json.dumps(rows), encoding="utf-8")
    status, _, err = run("add", "i", "m.json")
    assert status == 0
    assert "without any token: 1" in err
    assert "1 empty (m.json" in err
    assert documents(made)["empty"] == ("", {})


def test_wrong_usage(run: Run, made: Path, model_path: str) -> None:
    for arguments in (
        [],
        ["create", "x"],
        ["add", "i", "d.csv", "--whole-files", "--column", "text"],
        ["create", "x", "d.csv", "--vectors", "float8"],
        ["create", "x", "d.csv", "--stride", "0"],
    ):
        with pytest.raises(SystemExit) as left:
            run(*arguments)
        assert left.value.code == 2
    layout = ("--chunk-tokens", "8", "--stride", "50")
    status, _, err = run("create", "x", "d.csv", *layout, "--model", model_path)
    assert status == 1
    assert "stride must be 1..6" in err
    assert not Path("x").exists()
