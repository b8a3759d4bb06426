"""From any index to any other: folder, PostgreSQL, Milvus; nothing is encoded again.

    source, in the order of its ids -> batches -> target, with a note how far it came -> both read again and compared

A copy that was broken off, by Ctrl-C or a kill, goes on from its note when it is called again. At the end both sides
are read in step: every id, text, metadata, passage and vector must be the same, and a checksum over all of them is
reported. Memory is that of two pages.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from munjang.errors import DataError, InputError
from munjang.index.ends import End
from munjang.index.index import Index
from munjang.index.remote.address import is_address
from munjang.index.remote.engine import NoIndex, StoredDocument
from munjang.index.remote.moving import row_of
from munjang.index.schema import DATABASE
from munjang.index.transfer import absorb
from munjang.progress import Progress, track

_PAGE = 256  # documents


@dataclass(frozen=True)
class CopyReport:
    """What a copy did."""

    documents: int
    passages: int
    copied: int  # documents that this call wrote; fewer than `documents` where an earlier one had begun
    checksum: str  # over ids, texts, metadata, passages and vectors of both sides
    seconds: float

    def __str__(self) -> str:
        line = f"{self.documents:,} documents, {self.passages:,} passages"
        if self.copied != self.documents:
            line += f" ({self.copied:,} documents now, the others before)"
        return f"{line} in {self.seconds:.1f} s; both sides are the same, checksum {self.checksum}"


@dataclass(frozen=True)
class _Note:
    """How far a copy came."""

    source: str  # the name of the index that is copied
    after: str | None  # the last id that is there
    done: bool = False

    def __str__(self) -> str:
        return json.dumps({"source": self.source, "after": self.after, "done": self.done})

    @classmethod
    def of(cls, text: str) -> _Note:
        return cls(**json.loads(text))


def copy(source: Index, to: str | Path, *, progress: Progress = False) -> CopyReport:
    """Copy an index to a folder or address where none is yet, or go on with such a copy; then compare both."""
    started = time.perf_counter()
    target = _target(source, to)
    with target:
        ours, theirs = source.end(), target.end()
        note = _begun(source, target)
        with track(progress, 2 * ours.count()[0]) as done:
            copied = _copied(ours, theirs, note, done) if not note.done else 0
            checksum = _compared(ours, theirs, _Names(str(source.path), str(target.path)), done)
        theirs.finish()
        documents, passages = theirs.count()
        if (documents, passages) != ours.count():
            raise DataError(
                f"{source.path} has {ours.count()[0]:,} documents, {target.path} {documents:,}: one of them was "
                "written meanwhile; call again when nobody writes"
            )
    return CopyReport(documents, passages, copied, checksum, time.perf_counter() - started)


def _target(source: Index, to: str | Path) -> Index:
    """The index to copy to: made, or opened where a copy was begun."""
    there = Path(to).expanduser() / DATABASE
    if is_address(to) or there.is_file():
        try:
            return _same_model(source, Index.open(to))
        except NoIndex:
            pass
        except InputError as error:
            if "was interrupted" not in str(error):  # a creation that was killed is made again
                raise
    # What is kept small in a folder comes out as float32, and stays so: a copy has the same numbers.
    options = replace(source.options, vectors="float32")
    return Index.make(to, source.identity, options, None)


def _same_model(source: Index, target: Index) -> Index:
    theirs, ours = target.identity, source.identity
    if (theirs.fingerprint, theirs.dimension) != (ours.fingerprint, ours.dimension):
        target.close()
        raise InputError(
            f"there is an index at {target.path} already, of another model "
            f"({theirs.source or theirs.fingerprint[:12]}, dimension {theirs.dimension}): copy to another place"
        )
    return target


def _begun(source: Index, target: Index) -> _Note:
    """The note to go on from; an error where the target is no copy of this source."""
    if source.name == target.name:
        raise InputError(f"{source.path} cannot be copied to itself")
    end = target.end()
    text = end.note()
    if text is not None:
        note = _Note.of(text)
        if note.source != source.name:
            raise InputError(f"{target.path} is a copy of another index, not of {source.path}: copy to another place")
        return note
    if end.count()[0]:
        raise InputError(
            f"there is an index at {target.path} already, with {end.count()[0]:,} documents, that no copy began: copy "
            "to another place"
        )
    note = _Note(source.name, None)
    end.put([], str(note))
    return note


def _copied(source: End, target: End, note: _Note, done: Callable[[int], None]) -> int:
    copied = 0
    if note.after is not None:
        done(target.count()[0])
    while page := source.page(note.after, _PAGE):
        note = replace(note, after=page[-1].id)
        target.put(page, str(note))
        copied += len(page)
        done(len(page))
    target.put([], str(replace(note, done=True)))
    return copied


@dataclass(frozen=True)
class _Names:
    source: str
    target: str


def _compared(source: End, target: End, names: _Names, done: Callable[[int], None]) -> str:
    """The checksum that both sides have; an error names the first document in which they differ."""
    digest = hashlib.blake2b(digest_size=16)
    for ours, theirs in zip_longest(_all(source), _all(target)):
        if ours is None or theirs is None or ours.id != theirs.id or _digest(ours) != _digest(theirs):
            named = min(one.id for one in (ours, theirs) if one is not None)
            raise DataError(
                f"{names.source} and {names.target} differ, first in document {named!r}: one of them was written since "
                "the copy began; delete the copy and copy again when nobody writes"
            )
        absorb(digest, row_of(ours))
        done(1)
    return digest.hexdigest()


def _all(end: End) -> Iterator[StoredDocument]:
    after: str | None = None
    while page := end.page(after, _PAGE):
        yield from page
        after = page[-1].id


def _digest(document: StoredDocument) -> str:
    digest: Any = hashlib.blake2b(digest_size=16)
    absorb(digest, row_of(document))
    return str(digest.hexdigest())
