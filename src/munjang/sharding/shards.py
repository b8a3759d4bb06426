"""Folders, globs and files -> shards with a name each; and the hash of a shard's content.

A shard is called by its path below the folder (or the fixed part of the glob) it was found in: that name decides where
its output lies and, in an index, the ids of its rows. Files whose name begins with "." or "_" are no data, as Spark and
Arrow have it.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from munjang.errors import DataError, InputError

_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_PACKED = (".gz", ".xz", ".bz2")
_BLOCK = 1 << 20
EXPECTED = ".parquet, .jsonl or .ndjson (the last two also with .gz, .xz, .bz2)"


@dataclass(frozen=True)
class Shard:
    """One file of rows."""

    name: str  # unique in the job, with "/" between folders
    path: str  # absolute
    size: int  # bytes

    @property
    def key(self) -> str:
        """A name for files about this shard, whatever characters its own name has."""
        return hashlib.blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()

    @property
    def kind(self) -> str:
        kind = kind_of(Path(self.path))
        assert kind is not None
        return kind

    @property
    def is_packed(self) -> bool:
        return Path(self.path).suffix.lower() in _PACKED


@dataclass(frozen=True)
class Content:
    """What a shard holds, by its hash."""

    digest: str
    lines: int  # line feeds


def kind_of(path: Path) -> str | None:
    """jsonl or parquet, as the name says; None for other files."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in _PACKED
    kind = _KINDS.get(suffixes[-2 if packed else -1]) if len(suffixes) > packed else None
    return None if packed and kind == "parquet" else kind


def find_shards(inputs: Sequence[str | Path] | str | Path) -> list[Shard]:
    """All shards, by name; an error where there is none, or where two would have the same name."""
    given = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if not given:
        raise InputError("expected a folder, a glob or files of shards, got nothing")
    found: dict[str, Shard] = {}
    for one in given:
        for name, path in _within(os.fspath(one)):
            if name in found and found[name].path != str(path):
                raise InputError(
                    f"{path} and {found[name].path} would both be called {name!r}: give the folder above them, or do "
                    "them in two jobs"
                )
            found[name] = Shard(name, str(path), path.stat().st_size)
    return [found[name] for name in sorted(found)]


def _within(given: str) -> list[tuple[str, Path]]:
    """Name and path of the shards of one input."""
    path = Path(given).expanduser()
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file.relative_to(path))]
        shards = [file for file in files if kind_of(file) is not None]
        if not shards:
            other = f"; it has {len(files):,} other files, such as {files[0].name}" if files else ""
            raise DataError(f"{given}: there is no shard in this folder: expected {EXPECTED}{other}")
        return [(file.relative_to(path).as_posix(), file.absolute()) for file in shards]
    if path.is_file():
        return [(path.name, _known(path))]
    if glob.has_magic(given):
        root = _fixed(str(path))
        matched = sorted(Path(file) for file in glob.glob(str(path), recursive=True) if Path(file).is_file())
        if not matched:
            raise DataError(f"{given}: no file matches")
        return [(file.relative_to(root).as_posix(), _known(file)) for file in matched]
    raise DataError(f"{given}: there is no such folder or file")


def _known(path: Path) -> Path:
    if kind_of(path) is None:
        raise DataError(f"{path}: cannot be read as a shard: expected {EXPECTED}")
    return path.absolute()


def _is_hidden(below: Path) -> bool:
    return any(part.startswith((".", "_")) for part in below.parts)


def _fixed(pattern: str) -> Path:
    """The folders of a glob before its first wildcard."""
    root = Path(pattern)
    while glob.has_magic(str(root)):
        root = root.parent
    return root


def content_of(shard: Shard) -> Content:
    """The hash of the bytes as they lie there."""
    digest = hashlib.blake2b(digest_size=16)
    lines = 0
    try:
        with open(shard.path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                lines += block.count(b"\n")
    except OSError as error:
        raise DataError(f"{shard.name}: cannot be read: {error}") from error
    return Content(digest.hexdigest(), lines)
