"""Files of documents: every format to the same dicts, numbers in csv, and errors that name the line."""

from __future__ import annotations

import csv
import datetime
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.data.documents import DocumentFiles, WholeFiles
from munjang.data.files import RowFile
from munjang.data.rows import ReadOptions
from munjang.errors import DataError, DataWarning, InputError


def source(path: Path) -> RowFile:
    return RowFile(path, ReadOptions())


ROWS = [
    {"id": "a1", "text": "비가 온다, 우산을 쓴다", "year": 2020, "score": 4.5, "code": "007"},
    {"id": "a2", "text": 'He said "yes".\nAnd left.', "year": 2021, "score": 3.0, "code": "010"},
    {"id": "a3", "text": "빵", "code": "11"},
]


def write(folder: Path, kind: str) -> Path:
    path = folder / f"d.{kind}"
    names = list(ROWS[0])
    if kind == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([names, *([row.get(name, "") for name in names] for row in ROWS)])
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), encoding="utf-8")
    elif kind == "json":
        path.write_text(json.dumps(ROWS), encoding="utf-8")
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in ROWS]), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_every_format_gives_the_same_documents(kind: str, tmp_path: Path) -> None:
    files = DocumentFiles([source(write(tmp_path, kind))])
    (found,) = files.survey()
    assert list(files) == ROWS
    assert list(files) == ROWS  # as often as one likes
    assert (found.documents, found.column, found.id_column) == (3, "text", "id")
    assert set(found.fields) == {"year", "score", "code"}


def test_columns_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    kept = DocumentFiles([source(path)], "id", ["year"], column="code")
    assert next(iter(kept)) == {"id": "a1", "text": "007", "year": 2020}
    assert list(kept)[2] == {"id": "a3", "text": "11"}
    none = DocumentFiles([source(path)], "code", [])
    assert next(iter(none)) == {"id": "007", "text": ROWS[0]["text"]}
    texts = DocumentFiles([source(path)], as_text=["year"])
    assert next(iter(texts))["year"] == "2020"


def test_lines_and_strings(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("하나\n\n two \n", encoding="utf-8")
    (tmp_path / "s.jsonl").write_text('"셋"\n"four"\n', encoding="utf-8")
    files = DocumentFiles([source(tmp_path / "l.txt"), source(tmp_path / "s.jsonl")])
    assert list(files) == [{"text": "하나"}, {"text": " two "}, {"text": "셋"}, {"text": "four"}]
    assert [(one.documents, one.blank) for one in files.survey()] == [(2, 1), (2, 0)]


def test_rows_of_objects_may_differ(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(
        '{"text": "가"}\n{"text": "나", "tags": ["x", 1], "on": true}\n', encoding="utf-8"
    )
    assert list(DocumentFiles([source(tmp_path / "d.jsonl")])) == [
        {"text": "가"},
        {"text": "나", "tags": ["x", 1], "on": True},
    ]


def test_dates_and_missing_values_of_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"text": "가", "id": 1.0, "day": datetime.date(2024, 5, 1), "n": float("nan"), "list": ["a"]},
        {"text": "나", "id": 2.0, "day": None, "n": 2.0, "list": []},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    assert list(DocumentFiles([source(tmp_path / "d.parquet")])) == [
        {"id": "1", "text": "가", "day": "2024-05-01", "list": ["a"]},
        {"id": "2", "text": "나", "n": 2.0},
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.integers(-(10**14), 10**14).map(str), st.just(""), st.floats(0, 1e6).map(repr)), min_size=1)
)
def test_columns_of_numbers_are_numbers(cells: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "d.tsv")
        path.write_text("text\tn\tm\n" + "".join(f"t\t{cell}\tx{cell}\n" for cell in cells), encoding="utf-8")
        found = list(DocumentFiles([source(path)]))
    plain = all("e" not in cell for cell in cells)  # 1e-05 is no way to write a number in a table
    for cell, document in zip(cells, found, strict=True):
        assert document["m"] == f"x{cell}"
        if not cell:
            assert "n" not in document
        elif plain:
            assert document["n"] == float(cell)
            assert isinstance(document["n"], float if "." in cell else int)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", 'id,text,y\n1,가,2\n2,"나"\n3,다,4\n', "d.csv, line 3: expected 3 fields"),
        ("d.csv", "id,text\n1,가\n2,나\n1,다\n", r"d.csv, line 4: the id '1' repeats that of .*d.csv, line 2"),
        ("d.csv", "id,text\n1,가\n,나\n", "d.csv, line 3: expected an id .* got nothing"),
        ("d.csv", "id,text,a,a\n1,가,x,y\n", "two columns are named 'a'"),
        ("d.csv", "body,text,other\nx,y,z\n", "line 2: the column 'text' cannot be metadata"),
        ("d.csv", "id,one,two\n1,가,x\n", "cannot tell which column holds the texts"),
        ("d.jsonl", '{"text": "가"}\n{"text": null}\n', "line 2: expected a text in 'text', got null"),
        ("d.jsonl", '{"text": "가"}\n{"body": "나"}\n', "line 2: there is no 'text'; it has 'body'"),
        ("d.jsonl", '{"text": "가", "m": {"a": 1}}\n', "line 1: 'm' must be a text, a number"),
        ("d.jsonl", '{"text": "가", "m": [[1]]}\n', "line 1: 'm' must be a text, a number"),
        ("d.jsonl", '{"text": "가", "m": Infinity}\n', "line 1: 'm' holds inf"),
        ("d.jsonl", '{"text": "가"}\n{"text": "x"\n', "line 2: expected a JSON value"),
        ("d.jsonl", '{"text": "\\ud800"}\n', "half a surrogate pair"),
        ("d.jsonl", '{"id": true, "text": "x"}\n', "expected an id .* got True"),
        ("d.jsonl", "[1]\n", "line 1: expected an object with columns"),
    ],
)
def test_a_broken_row_is_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    column = "body" if content.startswith("body") else None
    with pytest.raises(DataError, match=message):
        DocumentFiles([source(tmp_path / name)], column=column).survey()


def test_fields_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    with pytest.raises(DataError, match="no document has the field 'years'; there are none"):
        DocumentFiles([source(path)], metadata=["years"]).survey()
    with pytest.raises(DataError, match="no column 'key' for ids"):
        DocumentFiles([source(path)], "key").survey()
    with pytest.raises(DataError, match="both the text and the id"):
        DocumentFiles([source(path)], "text").survey()
    (tmp_path / "l.txt").write_text("x\n", encoding="utf-8")
    with pytest.raises(DataError, match="a txt file has no columns"):
        DocumentFiles([source(tmp_path / "l.txt")], column="text").survey()


def test_ids_must_differ_between_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("id,text\n7,가\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"b\.csv, line 2: the id '7' repeats that of .*a\.csv, line 2"):
        DocumentFiles([source(tmp_path / "a.csv"), source(tmp_path / "b.csv")]).survey()


def test_whole_files(tmp_path: Path) -> None:
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "notes" / "b.md").write_text("# 제목\n\n본문", encoding="utf-8")
    (tmp_path / "notes" / "deep" / "a.txt").write_text("두 줄\n둘째", encoding="utf-8")
    (tmp_path / "notes" / "x.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.md").write_text("other", encoding="utf-8")
    files = WholeFiles([tmp_path / "notes"])
    with pytest.warns(DataWarning, match=r"1 \.png"):
        documents = list(files)
    assert documents == [{"id": "b.md", "text": "# 제목\n\n본문"}, {"id": "deep/a.txt", "text": "두 줄\n둘째"}]
    assert files.survey()[0].documents == 2
    with pytest.raises(DataError, match=r"would both have the id 'b\.md'"):
        WholeFiles([tmp_path / "notes", tmp_path / "b.md"]).survey()
    with pytest.raises(DataError, match="no such file"):
        WholeFiles([tmp_path / "none.txt"]).survey()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there is no document in this folder"):
        WholeFiles([tmp_path / "empty"]).survey()
    with pytest.raises(InputError, match="has no name"):
        WholeFiles(["-"]).survey()


def test_files_of_a_folder_that_are_not_read_are_counted_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("a.md", "b.HTML", "c.pdf", "deep/d.pdf", "e.docx", "f.csv", "g.txt.gz", "LICENSE", ".git/object"):
        (folder / name).write_text("text")
    (folder / "h.txt").symlink_to("nowhere")
    files = WholeFiles([folder])
    with pytest.warns(DataWarning) as warned:
        read = [*files, *files]
    assert [document["id"] for document in read] == ["a.md", "a.md"]
    assert len(warned) == 1
    message = str(warned[0].message)
    for part in (
        "skipped 8 files",
        "2 .pdf",
        "1 .html",
        "1 without a suffix",
        "b.HTML (not plain text",
        "and 3 more",
    ):
        assert part in message
    (survey,) = files.survey()
    assert len(survey.skipped) == 8
    assert "does not exist" in survey.skipped[folder / "h.txt"]
    assert "compressed" in survey.skipped[folder / "g.txt.gz"]
    assert "file of rows" in survey.skipped[folder / "f.csv"]
    (folder / "a.md").unlink()
    with pytest.raises(DataError, match=r"no document in this folder.*skipped 8 files"):
        files.survey()
