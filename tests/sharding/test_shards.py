"""Which files are shards, what they are called, and the hash of what they hold."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from munjang.errors import DataError, InputError
from munjang.sharding.shards import content_of, find_shards, kind_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ["b.jsonl", "a.parquet", "하위 폴더/문장 1.jsonl.gz", "sub/b.jsonl", "_SUCCESS", ".x.jsonl", "_old/c.jsonl"]
    for name in [*names, "README.md", "sub/x.parquet.gz", "c.ndjson.XZ"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_a_folder_gives_its_shards_by_name(folder: Path) -> None:
    shards = find_shards(folder)
    assert [shard.name for shard in shards] == [
        "a.parquet",
        "b.jsonl",
        "c.ndjson.XZ",
        "sub/b.jsonl",
        "하위 폴더/문장 1.jsonl.gz",
    ]
    assert [shard.kind for shard in shards] == ["parquet", "jsonl", "jsonl", "jsonl", "jsonl"]
    assert all(Path(shard.path).is_absolute() and shard.size == Path(shard.path).stat().st_size for shard in shards)
    assert len({shard.key for shard in shards}) == 5
    assert all(shard.key.isalnum() for shard in shards)


def test_a_glob_is_named_from_its_fixed_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [shard.name for shard in find_shards(str(folder / "*" / "*.jsonl*"))] == [
        "_old/c.jsonl",
        "sub/b.jsonl",
        "하위 폴더/문장 1.jsonl.gz",
    ]
    monkeypatch.chdir(folder)
    assert [shard.name for shard in find_shards("**/b.jsonl")] == ["b.jsonl", "sub/b.jsonl"]


def test_files_and_folders_together(folder: Path) -> None:
    assert [shard.name for shard in find_shards([folder / "sub", folder / "a.parquet"])] == ["a.parquet", "b.jsonl"]
    with pytest.raises(InputError, match=r"would both be called 'b\.jsonl'"):
        find_shards([folder / "sub", folder])
    assert len(find_shards([folder, folder])) == 5  # the same twice is no other


def test_what_is_no_shard(folder: Path, tmp_path: Path) -> None:
    for given, match in [
        (folder / "README.md", "cannot be read as a shard"),
        (str(folder / "*.md"), "cannot be read as a shard"),
        (folder / "nothing", "no such folder"),
        (str(folder / "*.csv"), "no file matches"),
    ]:
        with pytest.raises(DataError, match=match):
            find_shards(given)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(DataError, match="there is no shard in this folder"):
        find_shards(other)
    (other / "x.csv").write_text("text\n")
    with pytest.raises(DataError, match=r"1 other files, such as x\.csv"):
        find_shards(other)
    with pytest.raises(InputError, match="got nothing"):
        find_shards([])
    assert kind_of(Path("gz")) is kind_of(Path(".gz")) is kind_of(Path("a.gz")) is None


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    data = os.urandom(3_000_000) + b"\n\n"
    (tmp_path / "a.jsonl").write_bytes(data)
    content = content_of(find_shards(tmp_path)[0])
    assert content.digest == hashlib.blake2b(data, digest_size=16).hexdigest()
    assert content.lines == data.count(b"\n")
