"""Rows of shards: good ones as they are, bad ones with their place and a reason, nothing lost between."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.errors import DataError, InputError
from munjang.sharding.options import Reading
from munjang.sharding.rows import Bad, Good, read_rows
from munjang.sharding.shards import Shard, find_shards
from support.sharded import write_parquet

LARGEST = 200


def shard_of(path: Path, data: bytes) -> Shard:
    path.write_bytes(data)
    return find_shards(path)[0]


def read(shard: Shard, *, whole: bool = False, **reading: Any) -> list[Good | Bad]:
    return list(read_rows(shard, Reading(**reading), whole=whole))


_LINES = st.one_of(
    st.text(max_size=20).map(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "replace")),
    st.text(max_size=20).map(lambda text: json.dumps({"text": text}).encode()),  # escapes, halves of pairs too
    st.integers(150, 260).map(lambda count: b'{"text": "' + b"x" * count + b'"}'),
    st.sampled_from([b"", b"  \t", b"{", b"[1]", b"{}", b'{"text": 3}', b'{"text": null}', b'{"other": 1}', b'"bare"']),
    st.binary(max_size=300).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"")),
)


def _expected(number: int, line: bytes) -> tuple[int, str | None] | None:
    """Line and text of a row; no text for a bad one; None where there is no row. By the plainest means."""
    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    if not line.strip():
        return None
    try:
        value = json.loads(line.decode()) if len(line) <= LARGEST else None
    except (ValueError, RecursionError):
        return number, None
    text = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
    try:
        return number, text if isinstance(text, str) and text.encode() is not None else None
    except UnicodeEncodeError:
        return number, None


@given(lines=st.lists(_LINES, max_size=12), end=st.sampled_from([b"\n", b"\r\n"]), last=st.booleans())
def test_every_line_is_a_good_or_a_bad_row(
    lines: list[bytes], end: bytes, last: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = end.join(lines) + (end if last else b"")
    shard = shard_of(tmp_path_factory.getbasetemp() / "any.jsonl", data)
    found = [(row.line, row.text if isinstance(row, Good) else None) for row in read(shard, largest_row=LARGEST)]
    assert found == [row for row in map(_expected, range(1, len(lines) + 1), lines) if row is not None]


def test_reasons(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "text": "\xeb\xb9\x84"}',
        b'{"id": 1, "text": "\xb9"}',
        b'{"id": 1, "te',
        b'{"id": 1, "text": 7}',
        b'{"text": "no id"}',
        b'{"id": "x", "text": "another type"}',
        b'{"id": null, "text": "none is of any type"}',
        b'{"id": NaN, "text": "x"}',
        b'{"id": 1, "text": "' + b"y" * 300 + b'"}',
        b'{"id": 2, "text": "\\ud83d"}',
        b"[" * 100_000,
    ]
    rows = read(shard_of(tmp_path / "a.jsonl", b"\n".join(lines)), keep=("id",), largest_row=250)
    assert [row for row in rows if isinstance(row, Good)] == [
        Good(1, "비", "text", {"id": 1}),
        Good(7, "none is of any type", "text", {"id": None}),
    ]
    reasons = {row.line: row.reason for row in rows if isinstance(row, Bad)}
    for line, words in {
        2: "byte 0xb9 at byte 19 of the row is not valid utf-8",
        3: "expected a JSON value",
        4: "expected a text in 'text', got a number",
        5: "there is no 'id' to keep",
        6: "'id' holds a string, in the rows before it a number",
        8: "'id' holds nan",
        9: "too large: more than 250 bytes",
        10: "half a surrogate pair",
        11: "too large",
    }.items():
        assert words in reasons[line], (line, reasons[line])
    deep = read(shard_of(tmp_path / "deep.jsonl", b"[" * 100_000))
    assert isinstance(deep[0], Bad)


def test_the_column_of_the_texts(tmp_path: Path) -> None:
    data = '{"제목": "t", "본문": "가", "n": 1}\n{"본문": "나"}\n"다"\n{"x": "1", "y": "2"}\n'.encode()
    shard = shard_of(tmp_path / "a.jsonl", data)
    found = read(shard, whole=True)
    assert found[:3] == [
        Good(1, "가", "본문", {"제목": "t", "본문": "가", "n": 1}),
        Good(2, "나", "본문", {"본문": "나"}),
        Good(3, "다", None, {}),
    ]
    assert isinstance(found[3], Bad)
    assert "cannot tell which column" in found[3].reason
    assert [row.text for row in read(shard, column="제목") if isinstance(row, Good)] == ["t"]
    assert [row.text for row in read(shard, column=0) if isinstance(row, Good)] == ["t", "나", "1"]


def test_encodings_and_packed_files(tmp_path: Path) -> None:
    lines = '{"text": "한국어 문장"}\n{"text": "English"}\n'
    korean = shard_of(tmp_path / "a.jsonl", lines.encode("cp949"))
    assert [row.text for row in read(korean, encoding="cp949") if isinstance(row, Good)] == ["한국어 문장", "English"]
    assert [type(row) for row in read(korean)] == [Bad, Good]
    marked = shard_of(tmp_path / "b.jsonl", b"\xef\xbb\xbf" + lines.encode())
    packed = shard_of(tmp_path / "c.jsonl.gz", gzip.compress(lines.encode()))
    assert read(marked) == read(packed) == [Good(1, "한국어 문장", "text", {}), Good(2, "English", "text", {})]
    cut = shard_of(tmp_path / "d.jsonl.gz", gzip.compress(lines.encode())[:-10])
    with pytest.raises(DataError, match=r"d\.jsonl\.gz: cannot be read to the end"):
        read(cut)
    for wrong in ("utf-16", "no-such"):
        with pytest.raises(InputError):
            Reading(encoding=wrong)


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = [{"id": 1, "text": "비"}, {"id": 2, "text": None}, {"id": 3, "text": "x" * 500}, {"id": None, "text": ""}]
    shard = find_shards(write_parquet(tmp_path / "a.parquet", records))[0]
    assert read(shard, keep=("id",), largest_row=400) == [
        Good(1, "비", "text", {"id": 1}),
        Bad(2, "expected a text in 'text', got null"),
        Bad(3, "too large: more than 400 bytes"),
        Good(4, "", "text", {"id": None}),
    ]
    broken = pa.array([b"ok", b"\xff\xfe", "비".encode()], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": broken}), tmp_path / "b.parquet")
    found = read(find_shards(tmp_path / "b.parquet")[0])
    assert [row.text if isinstance(row, Good) else row.line for row in found] == ["ok", 2, "비"]
    for column, match in [("id", "expected texts in column 'id'"), ("none", "there is no column 'none'")]:
        with pytest.raises(DataError, match=match):
            read(shard, column=column)
    with pytest.raises(DataError, match=r"c\.parquet: cannot be read as Parquet"):
        read(shard_of(tmp_path / "c.parquet", b"PAR1 no"))
