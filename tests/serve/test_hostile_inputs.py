"""Hostile inputs against a real service: each is refused with a 4xx in seconds, and everybody else is served meanwhile.

A service should answer within 2 s, and /health within 1 s; a test machine may be several times slower. Before they were
bounded, these inputs took minutes, gigabytes or ended in a 500.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import small_models
from support.indexed import bi_encoder, make_index, service, settings_for
from support.service_process import Served, served

psutil = pytest.importorskip("psutil")

READ, WRITE = "read-key-123", "write-key-123"
ANSWER_S, HEALTH_S = 8.0, 4.0
LONGEST_ANSWER = 5000  # bytes of an error
UNPACKED = 20 << 20
LIMITS = {"unpacked_bytes": UNPACKED, "file_rows": 2000, "file_columns": 100}

MEGABYTES = "x" * 4_000_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    bi_encoder().save(folder / "tiny")
    small_models.cross_encoder().save(folder / "cross")
    settings: dict[str, Any] = {
        "keys": {READ: "read", WRITE: "write"},
        "rerankers": {"cross": str(folder / "cross")},
        "limits": LIMITS,
    }
    with served(make_index(folder / "sample"), folder / "tiny", **settings) as found:
        yield found
        assert not [line for line in found.log if "fault" in line]


@dataclass
class Outcome:
    """What came of an attack."""

    answer: httpx.Response
    seconds: float
    health: float  # the longest that /health took meanwhile
    grown: int  # bytes of memory that the service took meanwhile, at its largest


def _attack(running: Served, path: str, key: str = READ, **content: Any) -> Outcome:
    """Send it, and ask for /health all the while."""
    ended, times = threading.Event(), list[float]()
    process = psutil.Process(running.process.pid)
    sizes = [process.memory_info().rss]

    def watch() -> None:
        with httpx.Client(timeout=60) as client:
            while not times or not ended.wait(0.01):
                sizes.append(process.memory_info().rss)
                started = time.perf_counter()
                assert client.get(f"{running.address}/health").status_code == 200
                times.append(time.perf_counter() - started)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        headers = {"X-API-Key": key} | ({} if "files" in content else {"Content-Type": "application/json"})
        started = time.perf_counter()
        answer = httpx.post(f"{running.address}{path}", headers=headers, timeout=60, **content)
        seconds = time.perf_counter() - started
    finally:
        ended.set()
        watching.join()
    return Outcome(answer, seconds, max(times), max(sizes) - sizes[0])


def _check(outcome: Outcome, status: int, words: str) -> None:
    answer = outcome.answer
    assert answer.status_code == status, answer.text[:500]
    assert words in answer.text[:LONGEST_ANSWER]
    assert len(answer.content) < LONGEST_ANSWER
    assert outcome.seconds < ANSWER_S
    assert outcome.health < HEALTH_S


def _nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def _negated(levels: int) -> Any:
    found: Any = {"year": 1}
    for _ in range(levels):
        found = {"not": found}
    return found


FILTERS: list[tuple[str, Any, str]] = [
    ("signs", "=" * 4_000_000, "characters"),
    ("spaces", " " * 4_000_000, "characters"),
    ("brackets", "(" * 500, "levels"),
    ("brackets of a body", "(" * 4_000_000, "characters"),
    ("negations", "not " * 2000, "levels"),
    ("a list as a text", "year in " + ",".join(map(str, range(400_000))), "characters"),
    ("a list", {"year": {"in": list(range(400_000))}}, "10,000 values"),
    ("a list by itself", {"year": list(range(400_000))}, "10,000 values"),
    ("many lists", {"or": [{"year": list(range(9000))} for _ in range(20)]}, "10,000 values"),
    ("conditions as a text", " or ".join(f"year={year}" for year in range(1000)), "500 conditions"),
    ("conditions", {"or": [{"year": year} for year in range(9000)]}, "500 conditions"),
    ("fields", {f"field{number}": 1 for number in range(300_000)}, "entries"),
    ("objects", {"or": [{"year": year} for year in range(150_000)]}, "lists and objects"),
    ("levels", _negated(40), "levels"),
    ("a float beyond the range", "year>1e999", "range of a float"),
    ("an integer beyond the range", "year=1" + "0" * 400, "range of a float"),
    ("an integer that int() refuses", "year=" + "9" * 5000, "range of a float"),
    ("digits that are no number", "year=" + "1" * 90_000 + "x", "texts|number"),
    ("a field of megabytes", {MEGABYTES: 1}, "characters"),
    ("a field of megabytes as a text", MEGABYTES + "=1", "characters"),
    ("a long field", {"x" * 90_000: 1}, "no document has the field"),
    ("a value of megabytes", {"year": {"=": MEGABYTES}}, "characters"),
    ("a sign of megabytes", {"year": {MEGABYTES: 1}}, "characters"),
]


@pytest.mark.parametrize("door", ["/search", "/indexes/sample/more-like"])
@pytest.mark.parametrize(("given", "words"), [one[1:] for one in FILTERS], ids=[one[0] for one in FILTERS])
def test_filters(running: Served, door: str, given: Any, words: str) -> None:
    query = {"query": "비"} if door == "/search" else {"id": "doc/1"}
    outcome = _attack(running, door, content=json.dumps({**query, "filter": given, "rerank": False}))
    status = outcome.answer.status_code
    assert status in (400, 422), outcome.answer.text[:500]
    assert any(word in outcome.answer.text for word in words.split("|")), outcome.answer.text[:500]
    _check(outcome, status, "")


def test_numbers_in_a_filter_that_json_can_hold(running: Served) -> None:
    for number in (b"1" + b"0" * 400, b"1e999", b"-1E+0999"):
        for wanted in (number, b"[" + number + b"]", b'{">": ' + number + b"}"):
            body = b'{"query": "a", "filter": {"year": ' + wanted + b"}}"
            _check(_attack(running, "/search", content=body), 422, "")


@pytest.mark.parametrize("levels", [100, 900, 990, 5000, 1_000_000])
@pytest.mark.parametrize(
    ("path", "key", "begin", "end"),
    [
        ("/search", READ, b'{"query": "a", "filter": {"year": ', b"}}"),
        ("/search", READ, b'{"query": ', b"}"),
        ("/documents/sample", WRITE, b'{"documents": [{"text": "a", "m": ', b"}]}"),
        ("/rerank", READ, b'{"query": "a", "return_documents": true, "documents": [{"text": "a", "m": ', b"}]}"),
        ("/v1/embeddings", READ, b'{"input": ', b"}"),
        ("/cluster", READ, b"", b""),
    ],
)
def test_deep_json(running: Served, path: str, key: str, begin: bytes, end: bytes, levels: int) -> None:
    _check(_attack(running, path, key, content=begin + _nested(levels) + end), 400, "64 levels")


def test_brackets_in_texts_are_no_levels(running: Served) -> None:
    body = {"inputs": ["[" * 200, '\\"[[[' * 50, "\\" * 3 + '"' + "{" * 90]}
    answer = httpx.post(f"{running.address}/embed", headers={"X-API-Key": READ}, json=body)
    assert answer.status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_json_that_is_not_utf_8(running: Served, encoding: str) -> None:
    body = '{"query": "a", "filter": {"year": NaN}}'.encode(encoding)
    _check(_attack(running, "/search", content=body), 400, "UTF-8")


@pytest.mark.parametrize(
    ("path", "key", "body"),
    [
        ("/documents/sample", WRITE, b'{"documents": [' + b"1," * 3_900_000 + b"1]}"),
        ("/v1/embeddings", READ, b'{"input": [' + b"1.5," * 1_900_000 + b"1]}"),
        ("/v1/embeddings", READ, b'{"input": [' + b"[]," * 2_600_000 + b"1]}"),
        ("/rerank", READ, b'{"query": "a", "documents": [' + b"1," * 3_900_000 + b"1]}"),
        ("/predict", READ, b'{"inputs": [' + b"1," * 3_900_000 + b"1]}"),
        ("/similarity", READ, b'{"a": [' + b"1," * 3_900_000 + b"1]}"),
        ("/cluster", READ, b'{"texts": [' + b"1," * 3_900_000 + b"1]}"),
        ("/search", READ, json.dumps({str(number): 1 for number in range(600_000)}).encode()),
        ("/documents/sample", WRITE, json.dumps({"documents": [{"text": "a"} | {str(n): 1 for n in range(300_000)}]})),
    ],
)
def test_millions_of_mistakes(running: Served, path: str, key: str, body: bytes) -> None:
    """Each was an error of its own: 8 MB took two minutes."""
    outcome = _attack(running, path, key, content=body)
    assert outcome.answer.status_code in (400, 422)
    _check(outcome, outcome.answer.status_code, "")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"input": "a", "model": MEGABYTES}, 404),
        ("/embed", {"inputs": "a", "model": MEGABYTES}, 404),
        ("/embed", {"inputs": "a", "prompt_name": MEGABYTES}, 422),
        ("/tokenize", {"inputs": "a", "prompt_name": MEGABYTES}, 422),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "model": MEGABYTES}, 404),
        ("/rerank", {"query": "a", "documents": [{"text": "b"}], "rank_fields": [MEGABYTES]}, 422),
        ("/search", {"query": "a", "index": MEGABYTES}, 404),
        ("/search", {"query": "a", "reranker": MEGABYTES}, 404),
        ("/search", {"query": "a", "mode": MEGABYTES}, 422),
        ("/search", {"query": "a", MEGABYTES: 1}, 422),
        ("/search", {"query": MEGABYTES}, 413),
        ("/indexes/sample/place", {"query": MEGABYTES}, 413),
        ("/indexes/sample/more-like", {"id": MEGABYTES}, 404),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "model": MEGABYTES}, 404),
        ("/documents/sample", {"documents": [{"text": "a", MEGABYTES: {}}]}, 422),
        ("/documents/sample", {"documents": [{"text": "a", "id": MEGABYTES}] * 2}, 422),
    ],
)
def test_errors_do_not_echo_megabytes(running: Served, path: str, body: Any, status: int) -> None:
    _check(_attack(running, path, WRITE, content=json.dumps(body)), status, "")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"inputs": "a b " * 1_900_000}),
        ("/tokenize", {"inputs": ["a b " * 300] * 1000}),
        ("/decode", {"ids": [5] * 2_000_000}),
        ("/decode", {"ids": [[5] * 1000] * 1000}),
        ("/v1/embeddings", {"input": [5] * 2_000_000}),
        ("/embed", {"inputs": [[5] * 1000] * 1000}),
    ],
)
def test_tokens_have_a_limit(running: Served, path: str, body: Any) -> None:
    _check(_attack(running, path, content=json.dumps(body, separators=(",", ":"))), 413, "--limit tokens=N")


def test_token_ids_have_the_limit_on_texts(running: Served) -> None:
    for path, field in (("/decode", "ids"), ("/embed", "inputs"), ("/v1/embeddings", "input")):
        body = json.dumps({field: [[5]] * 2000})
        _check(_attack(running, path, content=body), 413, "--limit batch=N")


# --- files -----------------------------------------------------------------------------------------------------------


def _parquet(table: Any, **options: Any) -> bytes:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd", store_schema=False, **options)  # read as plain texts
    return file.getvalue()


def _bomb(kind: str) -> bytes:
    """A Parquet file of a few kilobytes that unpacks to far more, or has far too many rows or columns."""
    pa = pytest.importorskip("pyarrow")
    word = "a" * 1_000_000
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), pa.array([word]))  # written as it is
    if kind == "dictionary":
        return _parquet(pa.table({"text": repeated}))
    if kind == "metadata":
        return _parquet(pa.table({"text": ["a"] * 600, "m": repeated}))
    if kind == "lists":
        return _parquet(pa.table({"text": ["a"], "m": pa.ListArray.from_arrays([0, 50], repeated[:50].cast("string"))}))
    if kind == "one text":
        return _parquet(pa.table({"text": ["a" * 50_000_000]}), use_dictionary=False)
    if kind == "prefixes":
        texts = pa.array([word[:300_000] + str(number) for number in range(100)])
        return _parquet(pa.table({"text": texts}), use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    if kind == "fixed width":
        blobs = pa.array([b"a" * 1_000_000] * 50, pa.binary(1_000_000))
        return _parquet(pa.table({"text": ["a"] * 50, "m": blobs}))
    if kind == "numbers":
        return _parquet(pa.table({"text": ["a"], "m": [[1] * 5_000_000]}))
    if kind == "rows":
        return _parquet(pa.table({"text": ["a"] * 3000}))
    return _parquet(pa.table({"text": ["a"]} | {f"m{number}": [1] for number in range(200)}))


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("dictionary", "unpacked_bytes"),
        ("metadata", "unpacked_bytes"),
        ("lists", "unpacked_bytes"),
        ("one text", "unpacked_bytes"),
        ("prefixes", "unpacked_bytes"),
        ("fixed width", "unpacked_bytes"),
        ("numbers", "unpacked_bytes"),
        ("rows", "file_rows"),
        ("columns", "file_columns"),
    ],
)
def test_parquet_files_that_unpack_to_much(running: Served, kind: str, limit: str) -> None:
    content = _bomb(kind)
    outcome = _attack(running, "/documents/sample/file", WRITE, files={"file": ("a.parquet", content)})
    _check(outcome, 413, f"--limit {limit}=N")
    assert outcome.grown < 300 << 20


LONG_LINE = b'{"text": "' + b"a" * (2 * UNPACKED) + b'"}'


@pytest.mark.parametrize(
    ("name", "content", "limit"),
    [
        ("a.jsonl.gz", gzip.compress(LONG_LINE, 1, mtime=0), "unpacked_bytes"),
        ("a.json.xz", lzma.compress(LONG_LINE, preset=0), "unpacked_bytes"),
        ("a.csv.bz2", bz2.compress(LONG_LINE, 1), "unpacked_bytes"),
        ("a.txt.gz", gzip.compress(b"\n" * 10_000, mtime=0), "file_rows"),
        ("a.txt", b"word\n" * 3000, "file_rows"),
        ("a.csv", b"text,n\n" + b"word,1\n" * 3000, "file_rows"),
        ("a.csv", b",".join(b"c%d" % number for number in range(200_000)) + b"\n1", "file_columns"),
        ("a.jsonl", json.dumps({"text": "a"} | {str(number): 1 for number in range(200)}).encode(), "file_columns"),
        ("a.jsonl", "\n".join(f'{{"text": "a", "m{n}": 1}}' for n in range(500)).encode(), "file_columns"),
        ("a.json", json.dumps([{"text": "a"}] * 3000).encode(), "file_rows"),
    ],
)
def test_files_that_unpack_to_much(running: Served, name: str, content: bytes, limit: str) -> None:
    outcome = _attack(running, "/documents/sample/file", WRITE, files={"file": (name, content)})
    _check(outcome, 413, f"--limit {limit}=N")


@pytest.mark.parametrize("levels", [900, 5000, 1_000_000])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_files_of_deep_json(running: Served, name: str, levels: int) -> None:
    content = b'[{"text": "a", "m": ' + _nested(levels) + b"}]"
    content = content if name == "a.json" else content[1:-1]
    outcome = _attack(running, "/documents/sample/file", WRITE, files={"file": (name, content)})
    _check(outcome, 200, '"error"')  # the last of its lines is the error


def test_a_whole_file_is_added_within_the_limits(running: Served) -> None:
    pa = pytest.importorskip("pyarrow")
    delta = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    table = pa.table({"text": ["비가 온다.", "It rains."], "tags": [["x", "y"], None], "n": [1, 2]})
    files = [_parquet(table), _parquet(table.select(["text"]), **delta)]
    for number, content in enumerate(files):
        outcome = _attack(running, "/documents/sample/file", WRITE, files={"file": (f"{number}.parquet", content)})
        assert outcome.answer.status_code == 200
        last = json.loads(outcome.answer.text.splitlines()[-1])
        assert last["report"]["added"] == 2


# --- temporary files -------------------------------------------------------------------------------------------------

_KILLED = """
import sys, tempfile
from munjang.serve.uploads import Workspace
tempfile.tempdir = sys.argv[1]
workspace = Workspace()
folder = workspace.folder()
open(folder.name + "/left.csv", "w").write("text")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_temporary_files_of_killed_services_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stranger = tmp_path / "munjang-notes"
    stranger.mkdir()
    with service(settings_for(make_index(tmp_path / "sample"))) as living:
        kept = set(tmp_path.glob("munjang-*"))
        assert living.post("/documents/sample/file", files={"file": ("a.txt", b"word")}).status_code == 200
        command = [sys.executable, "-c", _KILLED, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == "ready\n"
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        assert list(tmp_path.glob("munjang-serve-*/*/left.csv"))
        with service(settings_for(tmp_path / "sample")) as next_one:
            assert not list(tmp_path.glob("munjang-serve-*/*/left.csv"))
            assert kept <= set(tmp_path.glob("munjang-*"))
            for client in (living, next_one):
                answer = client.post("/documents/sample/file", files={"file": ("b.txt", b"other words")})
                assert '"report"' in answer.text
        assert set(tmp_path.glob("munjang-*")) == kept
    assert set(tmp_path.glob("munjang-*")) == {stranger}
