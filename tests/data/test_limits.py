"""How much of a file is read at most: counted in what comes out of it, through every format and compression."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from munjang.data.documents import DocumentFiles, WholeFiles
from munjang.data.files import RowFile
from munjang.data.rows import ReadLimits, ReadOptions
from munjang.errors import DataError, LimitError

LIMITS = ReadLimits(unpacked_bytes=1000, file_rows=10, file_columns=3)


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    suffix = path.suffixes[0]
    if suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), path)
        return path
    lines = {
        ".json": [json.dumps(rows)],
        ".jsonl": map(json.dumps, rows),
        ".csv": [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)],
        ".tsv": ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)],
        ".txt": [str(row["text"]) for row in rows],
    }[suffix]
    content = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _documents(path: Path, limits: ReadLimits = LIMITS) -> list[Any]:
    return list(DocumentFiles([RowFile(path, ReadOptions(limits=limits))]))


FORMATS = ["a.json", "a.jsonl", "a.csv", "a.tsv", "a.txt", "a.parquet", "a.csv.gz", "a.jsonl.gz"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_at_its_limits_is_read(tmp_path: Path, name: str) -> None:
    rows = [{"text": f"word {number}", "n": number, "m": number} for number in range(10)]
    assert len(_documents(_write(tmp_path / name, rows))) == 10


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        ("file_rows", [{"text": "word"}] * 11),
        ("file_columns", [{"text": "word", "a": 1, "b": 2, "c": 3}]),
        ("unpacked_bytes", [{"text": "word " * 60}] * 4),
    ],
)
def test_a_file_beyond_a_limit_names_it(tmp_path: Path, name: str, limit: str, rows: list[dict[str, Any]]) -> None:
    path = _write(tmp_path / name, rows)
    if name == "a.txt" and limit == "file_columns":
        return  # it has none
    with pytest.raises(LimitError, match=r"a\.[a-z]+.*expected at most .* got") as told:
        _documents(path)
    assert told.value.limit == limit
    assert isinstance(told.value, DataError)
    assert len(list(DocumentFiles([RowFile(path, ReadOptions())]))) == len(rows)  # none without limits


def test_columns_are_counted_over_all_rows(tmp_path: Path) -> None:
    rows = [{"text": "word", f"field{number}": 1} for number in range(4)]
    with pytest.raises(LimitError) as told:
        _documents(_write(tmp_path / "a.jsonl", rows))
    assert told.value.limit == "file_columns"


def test_a_whole_document_has_the_limit_on_bytes(tmp_path: Path) -> None:
    for name, content in (("a.txt", b"word " * 300), ("b.txt.gz", gzip.compress(b"word " * 300))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LimitError) as told:
            list(WholeFiles([tmp_path / name], limits=LIMITS))
        assert told.value.limit == "unpacked_bytes"


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"use_dictionary": False, "delta": True}])
def test_limited_parquet_files_are_read_as_unlimited_ones(tmp_path: Path, options: dict[str, Any]) -> None:
    pa = pytest.importorskip("pyarrow")
    if options.pop("delta", False):
        options["column_encoding"] = {"text": "DELTA_BYTE_ARRAY"}
    table = pa.table(
        {
            "text": [" ".join(f"비가 {day}일째 온다" for day in range(number % 50 + 1)) for number in range(5000)],
            "tags": [["x", "y"] if number % 3 else None for number in range(5000)],
            "n": [number if number % 2 else None for number in range(5000)],
            "ok": [bool(number % 2) for number in range(5000)],
            "d": pa.array([["u", "v"][number % 2] for number in range(5000)]).dictionary_encode(),
        }
    )
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet", row_group_size=1500, **options)
    wide = ReadLimits(unpacked_bytes=10**9, file_rows=10**6, file_columns=10)
    assert _documents(tmp_path / "a.parquet", wide) == list(
        DocumentFiles([RowFile(tmp_path / "a.parquet", ReadOptions())])
    )
