"""Segments <-> files: one file for each segment, and a list of them that is written last.

    keyword/segments.json      which files, up to which passage and commit, made by which analyser; with a checksum
    keyword/*.terms            one segment each, never changed once it is listed

A list names files that are already on the disk whole, and files are removed only after a list without them is there:
whenever the process dies, the list that is found belongs to files that are found. Files are read into memory and
checked against their checksums; whatever does not fit is `Unusable`, and is made again from the passages.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from munjang.files import atomic_write, disk_errors
from munjang.index import dense_file
from munjang.index.dense_file import Unusable
from munjang.index.keyword_segment import Segment, from_arrays

FORMAT = 1
FOLDER = "keyword"
_LIST = "segments.json"
_SUFFIX = ".terms"


@dataclass(frozen=True)
class Listed:
    """What the list says."""

    format: int
    analyser: str
    identity: str  # the index's own
    generation: int
    upto: int
    files: tuple[str, ...]


def read_list(folder: Path) -> Listed:
    try:
        checksum, _, body = (folder / _LIST).read_bytes().partition(b"\n")
        if int(checksum, 16) != zlib.crc32(body):
            raise Unusable("the list of segments is not what was written")
        found: dict[str, Any] = json.loads(body)
        return Listed(**{**found, "files": tuple(found["files"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"no list of segments: {error!r}") from error


def read_segments(folder: Path, files: Sequence[str], known: Mapping[str, Segment]) -> list[Segment]:
    """The segments of a list; those in `known` are not read again."""
    return [known[name] if name in known else _read_segment(folder / name) for name in files]


def _read_segment(path: Path) -> Segment:
    def check(header: dense_file.Header) -> None:
        if header.get("segment") != path.name:
            raise Unusable(f"{path.name} holds {header.get('segment')}")

    _, arrays = dense_file.read(path, check, lambda name, before, shape: None)
    try:
        return replace(from_arrays(arrays), file=path.name)
    except (KeyError, ValueError) as error:
        raise Unusable(f"{path.name}: {error!r}") from error


def write_segment(folder: Path, segment: Segment) -> Segment:
    """Write a segment under a name of its own; it comes back with that."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{int(segment.numbers[0])}-{int(segment.numbers[-1])}-{secrets.token_hex(4)}{_SUFFIX}"
    dense_file.write(folder / name, {"segment": name}, segment.arrays())
    return replace(segment, file=name)


def write_list(folder: Path, listed: Listed) -> None:
    """Make these the segments, and remove all other files of ours."""
    body = json.dumps(asdict(listed)).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with disk_errors(folder / _LIST, safe="the documents are safe; searches build what it would have held in memory"):
        atomic_write(folder / _LIST, b"%08x\n" % zlib.crc32(body) + body)
    for path in folder.iterdir():
        is_ours = path.name.endswith((_SUFFIX, _SUFFIX + ".tmp"))
        if is_ours and path.name not in listed.files:
            with contextlib.suppress(OSError):  # open elsewhere on Windows: removed the next time
                path.unlink()


def present(folder: Path, files: Sequence[str]) -> set[str]:
    """Those files whose headers and sizes are right; their contents are checked when they are read."""
    found = set()
    for name in files:
        with contextlib.suppress(Unusable):
            if dense_file.read_header(folder / name).get("segment") == name:
                found.add(name)
    return found
