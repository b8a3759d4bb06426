"""Documents with passages and vectors into an engine, and as rows of an exported file; nothing is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from munjang.errors import DataError, InputError
from munjang.index import transfer
from munjang.index.remote.adding import batches, stamp
from munjang.index.remote.engine import Engine, StoredDocument
from munjang.index.remote.fields import Fields
from munjang.vectors.files import import_pyarrow

_NOTE = "copy"


def put(engine: Engine, fields: Fields, documents: Iterable[StoredDocument]) -> int:
    """Write documents, batch by batch; returns how many. All are checked against the engine's limits batch by batch."""
    written = 0
    for batch in batches(documents):
        for one in batch:
            reason = engine.unfit(one.id, one.text, one.metadata)
            if reason is not None:
                raise InputError(f"document {one.id!r:.60} cannot be kept: {reason}")
        fields.learn(one.fields for one in batch)
        engine.put(batch)
        written += len(batch)
    if written:
        stamp(engine)
    return written


class RemoteEnd:
    """A remote index as one end of a copy."""

    def __init__(self, engine: Engine, fields: Fields) -> None:
        self._engine = engine
        self._fields = fields

    def count(self) -> tuple[int, int]:
        return self._engine.count()

    def page(self, after: str | None, limit: int) -> list[StoredDocument]:
        return self._engine.scan(after, limit)

    def put(self, documents: Sequence[StoredDocument], note: str) -> None:
        put(self._engine, self._fields, documents)
        self._engine.put_notes({_NOTE: note})

    def note(self) -> str | None:
        return self._engine.notes().get(_NOTE)

    def finish(self) -> None:
        self._engine.ready()


def row_of(document: StoredDocument) -> dict[str, Any]:
    """A document as a row of an exported file."""
    return {
        "id": document.id,
        "text": document.text,
        "metadata": document.metadata,
        "start": [start for start, _ in document.spans],
        "end": [end for _, end in document.spans],
        "vectors": document.vectors,
    }


def groups(documents: Iterable[StoredDocument]) -> Iterator[list[dict[str, Any]]]:
    """Rows in groups that memory can hold."""
    group: list[dict[str, Any]] = []
    size = 0
    for document in documents:
        group.append(row_of(document))
        size += len(document.text) + (0 if document.vectors is None else document.vectors.nbytes) + 200
        if size >= transfer.GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def fill(engine: Engine, fields: Fields, path: Path, dimension: int, done: Callable[[int], None]) -> None:
    """Put the documents of an exported file into an empty index, checked."""
    arrow = import_pyarrow("importing an index")
    expected = transfer.read_header(path)["documents"]
    count = 0
    for group in transfer.read_groups(arrow, path):
        rows = [transfer.checked(row, count + place, path, dimension) for place, row in enumerate(group)]
        count += put(engine, fields, map(_document, rows))
        done(len(rows))
    if count != expected or engine.count()[0] != expected:
        raise DataError(f"{path} holds {count:,} documents, but says that it has {expected:,}: it is damaged")


def _document(row: dict[str, Any]) -> StoredDocument:
    spans = tuple(zip(row["start"], row["end"], strict=True))
    return StoredDocument(row["id"], row["text"], row["metadata"], spans, np.asarray(row["vectors"], np.float32))
