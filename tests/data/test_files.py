"""Reading files of texts: every format gives back what was written, and says where it cannot."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from munjang.data import ReadOptions, open_texts
from munjang.data.rows import TextRow
from munjang.errors import DataError, InputError

# Everything that UTF-8 can carry; csv and tsv tests narrow it where the format itself cannot carry a character.
anything = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
rough = st.text(st.sampled_from(list("가나abc ,\t\"'\\\n\r\u2028\x85\x0b\x00😀")), max_size=20)
texts = st.lists(anything | rough, max_size=12)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows(path: Path, *, column: str | int | None = None, keep: Sequence[str] = (), **options: Any) -> list[TextRow]:
    return list(open_texts(path, column=column, keep=keep, options=ReadOptions(**options)).rows())


def found(path: Path, **options: Any) -> list[str]:
    return [row.text for row in rows(path, **options)]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@many
@given(st.lists((anything | rough).filter(lambda t: "\n" not in t and not t.endswith("\r")), max_size=12))
def test_txt_gives_back_every_line(tmp_path: Path, values: list[str]) -> None:
    file = write(tmp_path / "a.txt", "".join(value + "\n" for value in values))
    # A text that begins with U+FEFF begins with what is, in a file, a byte-order mark.
    if values and values[0].startswith("\ufeff"):
        values[0] = values[0][1:]
    assert found(file, encoding="utf-8") == values


def test_txt_keeps_blank_lines_and_spaces(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "  가 \r\n\r\n\nb\r\r\nlast")
    assert found(file) == ["  가 ", "", "", "b\r", "last"]


@pytest.mark.parametrize(("content", "expected"), [("", []), ("\n", [""]), ("a", ["a"]), ("a\n", ["a"])])
def test_txt_ends(tmp_path: Path, content: str, expected: list[str]) -> None:
    assert found(write(tmp_path / "a.txt", content)) == expected


@many
@given(texts.map(lambda values: [value.replace("\x00", "") for value in values]))
def test_csv_gives_back_what_the_csv_module_wrote(tmp_path: Path, values: list[str]) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows((number, value) for number, value in enumerate(values))
    assert rows(path, keep=["id"], encoding="utf-8") == [
        TextRow(value, {"id": str(number)}) for number, value in enumerate(values)
    ]


@many
@given(st.lists((anything | rough).map(lambda t: t.replace("\t", "").replace("\n", "").rstrip("\r")), max_size=12))
def test_tsv_takes_quotation_marks_as_text(tmp_path: Path, values: list[str]) -> None:
    path = write(tmp_path / "a.tsv", "text\tscore\n" + "".join(f"{value}\t1.0\n" for value in values))
    assert found(path, encoding="utf-8") == values


@many
@given(texts, st.booleans())
def test_jsonl_gives_back_objects_and_strings(tmp_path: Path, values: list[str], ascii_only: bool) -> None:
    path = tmp_path / "a.jsonl"
    objects = [json.dumps({"n": n, "text": value}, ensure_ascii=ascii_only) for n, value in enumerate(values)]
    write(path, "\n".join(objects))
    assert rows(path, keep=["n"]) == [TextRow(value, {"n": n}) for n, value in enumerate(values)]
    write(path, "".join(json.dumps(value, ensure_ascii=ascii_only) + "\r\n \t\n" for value in values))
    assert found(path) == values


@many
@given(texts, st.integers(1, 7), st.sampled_from([None, 0, 2]))
def test_json_list_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], block: int, indent: int | None
) -> None:
    monkeypatch.setattr("munjang.data.files.BLOCK", block)
    path = write(tmp_path / "a.json", json.dumps([{"text": value, "x": [1]} for value in values], indent=indent))
    assert rows(path, keep=["x"]) == [TextRow(value, {"x": [1]}) for value in values]
    write(path, json.dumps(values, ensure_ascii=False))
    assert found(path) == values


@many
@given(texts, st.sampled_from(["string", "large_string", "dictionary"]))
def test_parquet_gives_back_what_pyarrow_wrote(tmp_path: Path, values: list[str], kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    kinds = {"string": pa.string(), "large_string": pa.large_string()}
    column = pa.array(values, kinds.get(kind, pa.string()))
    column = column.dictionary_encode() if kind == "dictionary" else column
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(len(values))), "text": column}), path, row_group_size=5)
    assert rows(path, keep=["n"]) == [TextRow(value, {"n": n}) for n, value in enumerate(values)]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_compressed(tmp_path: Path, suffix: str, pack: object) -> None:
    content = "text\n" + "가나다\n" * 1000
    path = write(tmp_path / f"a.csv{suffix}", pack(content.encode()))  # type: ignore[operator]
    assert found(path) == ["가나다"] * 1000
    write(path, path.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be read to the end"):
        found(path)
    write(path, content)
    with pytest.raises(DataError, match="cannot be read to the end"):
        found(path)


def test_pieces_do_not_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["가나다 라마", "", "x" * 5000, "끝"]
    path = write(tmp_path / "a.txt", "\r\n".join(lines))
    for block in (1, 2, 3, 1000):
        monkeypatch.setattr("munjang.data.files.BLOCK", block)
        monkeypatch.setattr("munjang.data.files.BLOCK", block)
        assert found(path) == lines


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    line = json.dumps({"text": "가나다라마바사 " * 10, "more": "x" * 100}, ensure_ascii=False)
    peaks = []
    for count in (20_000, 60_000):
        path = write(tmp_path / "a.json", "[" + ",\n".join([line] * count) + "]")
        tracemalloc.start()
        assert sum(1 for _ in open_texts(path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


# Columns


def test_the_only_column_and_the_telling_names(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.csv", "anything\nx\n")) == ["x"]
    assert found(write(tmp_path / "a.csv", "id,Sentence\n1,x\n")) == ["x"]
    assert found(write(tmp_path / "a.csv", "번호,본문\n1,x\n")) == ["x"]


def test_column_by_name_and_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\t7\n1\t2\t3\n")
    assert found(path, column="b") == ["2"]
    assert found(path, column=0) == ["1"]
    assert found(path, column="0") == ["1"]
    assert found(path, column="7") == ["3"]  # a name goes before a number


@pytest.mark.parametrize("column", ["c", 2, -1, "2"])
def test_a_column_that_is_not_there(tmp_path: Path, column: str | int) -> None:
    path = write(tmp_path / "a.csv", "sentence1,sentence2\n1,2\n")
    with pytest.raises(DataError, match=r"'sentence1', 'sentence2'"):
        found(path, column=column)
    with pytest.raises(DataError, match=r"'sentence1', 'sentence2'.*--column"):
        found(path)
    with pytest.raises(DataError, match="no column 'id'"):
        found(path, column=0, keep=["id"])


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x,x\n1,2\n")
    with pytest.raises(DataError, match="2 columns are named 'x'"):
        found(path, column="x")
    assert found(path, column=1) == ["2"]


def test_without_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "가\tb\nc\td\n")
    assert found(path, header=False, column=0) == ["가", "c"]
    assert found(write(tmp_path / "b.csv", "가\nb\n"), header=False) == ["가", "b"]


def test_txt_has_no_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no columns"):
        found(write(tmp_path / "a.txt", "x\n"), column="text")


# Tables that are not in order


def test_the_wrong_number_of_fields_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 4: expected 2 fields \(id, text\), got 3"):
        found(write(tmp_path / "a.csv", 'id,text\n1,"two\nlines"\n2,a,b\n'))
    with pytest.raises(DataError, match="line 3: expected 2 fields"):
        found(write(tmp_path / "a.tsv", "id\ttext\n1\tx\n2\n"))


def test_an_unclosed_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,text\n1,x\n2,"open\n3,y\n')
    with pytest.raises(DataError, match=r"starts at line 3.*--quoting off"):
        found(path)
    assert found(path, quoting=False) == ["x", '"open', "y"]


def test_quoting_can_be_turned_on_for_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'id\ttext\n1\t"a ""b"""\n')
    assert found(path) == ['"a ""b"""']
    assert found(path, quoting=True) == ['a "b"']


def test_blank_lines_in_tables(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.csv", "id,text\n\n1,x\n\n")) == ["x"]
    assert found(write(tmp_path / "b.csv", 'text\n\nx\n""\n')) == ["", "x", ""]
    assert found(write(tmp_path / "b.tsv", "text\n\nx\n")) == ["", "x"]
    assert found(write(tmp_path / "c.csv", "")) == []


def test_old_mac_line_ends_in_csv(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.csv", 'id,text\r1,x\r2,"y\rz"\r')) == ["x", "y\rz"]


def test_fields_beyond_the_limit_of_csv(tmp_path: Path) -> None:
    long = "가" * 200_000
    assert found(write(tmp_path / "a.csv", f'text,id\n"{long}",1\n')) == [long]
    assert found(write(tmp_path / "a.tsv", f"text\tid\n{long}\t1\n")) == [long]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="csv refuses NUL before Python 3.11")
def test_nul_in_csv(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.csv", "id,text\n1,a\x00b\n")) == ["a\x00b"]


# Values that are no texts


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "null"), (float("nan"), "a missing value"), (3, "a number"), (True, "true or false"), (["a"], "a list")],
)
@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_json_values_that_are_no_text(tmp_path: Path, value: object, says: str, kind: str) -> None:
    items = [{"text": "x"}, {"text": value}]
    content = json.dumps(items) if kind == "json" else "\n".join(map(json.dumps, items))
    with pytest.raises(DataError, match=rf"(line|item) 2: expected a text in 'text', got {says}"):
        found(write(tmp_path / f"a.{kind}", content))


@pytest.mark.parametrize("line", ["12", "null", "[1]", "true"])
def test_jsonl_lines_that_are_neither_object_nor_string(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"line 3: expected an object .* or a string"):
        found(write(tmp_path / "a.jsonl", f'"x"\n\n{line}\n'))


@pytest.mark.parametrize("line", ["{", '{"text": "x"} {}', "x", '"\\ud800"'])
def test_jsonl_lines_that_are_broken(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match="line 2"):
        found(write(tmp_path / "a.jsonl", f'"x"\n{line}\n'))


def test_jsonl_objects_that_differ(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: there is no 'text'; it has 'other'"):
        found(write(tmp_path / "a.jsonl", '{"text": "x"}\n{"other": "y"}\n'))
    assert found(write(tmp_path / "a.jsonl", '{"text": "x"}\n"y"\n')) == ["x", "y"]  # a string is its text


@pytest.mark.parametrize("content", ['{"a": 1}', '["x"', '["x",]', '["x"] 1', '["x" "y"]', '["x", nothing]'])
def test_json_that_is_no_list(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"expected"):
        found(write(tmp_path / "a.json", content))


def test_parquet_nulls_and_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x"] * 5000 + [None], "n": [None] * 5001}), path)
    with pytest.raises(DataError, match=r"row 5001: expected a text in 'text', got null"):
        found(path)
    with pytest.raises(DataError, match="row 1: expected a text in 'n', got null"):
        found(path, column="n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        found(write(tmp_path / "b.parquet", b"no parquet"))


# Sources


def test_a_survey_counts_and_names_the_column(tmp_path: Path) -> None:
    texts = open_texts(write(tmp_path / "a.csv", 'id,text\n1,"x\ny"\n2,z\n'))
    assert (texts.survey(), texts.column) == (2, "text")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        found(tmp_path / "a.txt")
    with pytest.raises(DataError, match="no such file"):
        found(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="got a folder"):
        found(tmp_path, format="txt")
    with pytest.raises(DataError, match="--format"):
        found(write(tmp_path / "a.docx", "x"))
    with pytest.raises(InputError, match="unknown encoding"):
        found(tmp_path / "a.txt", encoding="base64")
    assert found(write(tmp_path / "a.log", "x\n"), format="txt") == ["x"]


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    give("가\n\nb\n".encode())
    assert found(Path("-")) == ["가", "", "b"]
    give("text,id\n가,1\n".encode())
    assert found(Path("-"), format="csv") == ["가"]


@pytest.mark.data
@pytest.mark.parametrize(("part", "rows"), [("train", 5749), ("dev", 1500), ("test", 1379)])
def test_no_row_of_korsts_is_lost(data_path: Path, part: str, rows: int) -> None:
    for column in ("sentence1", "sentence2"):
        assert open_texts(data_path / "korsts" / f"sts-{part}.tsv", column=column).survey() == rows
