"""Documents into a remote index: checked, compared with what is there, cut, encoded and put, batch by batch.

A server cannot keep one transaction open for as long as encoding takes, so what must not happen half is done before
anything is sent: the whole stream is read into a temporary file and checked there, and one broken document in it means
that nothing is written. With `commit_every` the documents before it are written, as in a folder. Then batches go out,
each durable when it is acknowledged; a call that fails on the way says how many are in. Memory is that of one window.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from munjang.errors import DataError, InputError, ModelError
from munjang.index.adding import AddReport, Encode, Telling
from munjang.index.cutting import Cutter
from munjang.index.documents import Incoming, title_of, windows
from munjang.index.remote.engine import Engine, Float32, StoredDocument, version_of
from munjang.index.remote.fields import Fields

PUT_DOCUMENTS = 512  # in one transaction
PUT_BYTES = 16 << 20
_WINDOW = 2048
_WINDOW_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class Tools:
    """What adding needs beside the documents."""

    engine: Engine
    fields: Fields
    encode: Encode
    cutter: Cutter
    dimension: int
    title: str | None  # the field that is searched with the text


class RemoteAdder:
    """One call of `RemoteIndex.add`."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._counts = dict.fromkeys(("added", "replaced", "unchanged", "passages", "empty", "truncated"), 0)
        self._kept = 0  # documents that are in the index

    def run(self, documents: Iterable[object], done: Callable[[int], None], commit_every: int | None) -> AddReport:
        """Add all; durable when it returns."""
        started = time.perf_counter()
        try:
            with Spool(self._tools.engine) as spool:
                if commit_every is None:
                    for window in windows(documents):
                        spool.keep([spool.once(document) for document in window])
                    found = spool.windows()
                else:
                    found = ([spool.once(one) for one in window] for window in windows(documents, commit_every))
                for window in found:
                    self._add(window, Telling(done, len(window)))
        except (InputError, DataError, ModelError) as error:
            if self._kept:
                said = f"the first {self._kept:,} documents of this call are in the index"
                raise type(error)(f"{error} ({said})") from error
            raise
        return AddReport(**self._counts, seconds=time.perf_counter() - started)

    def _add(self, window: Sequence[Incoming], telling: Telling) -> None:
        tools, counts = self._tools, self._counts
        window, known = self._named(window)
        changed = [one for one in window if known.get(one.id) != version_of(one.text, one.metadata)]
        texts_there = {id: version.partition(".")[0] for id, version in known.items()}
        same_text = [one for one in changed if texts_there.get(one.id) == version_of(one.text, "").partition(".")[0]]
        stored = tools.engine.get([one.id for one in same_text], vectors=True) if same_text else {}
        kept = {id: document for id, document in stored.items() if document.vectors is not None}
        fresh = [one for one in changed if one.id not in kept or self._differs(one, kept[one.id])]
        ready = self._encoded(fresh, telling)
        for one in changed:
            old = kept.get(one.id)
            if one.id not in ready and old is not None:
                ready[one.id] = StoredDocument(one.id, one.text, one.metadata, old.spans, old.vectors)
        self._put([ready[one.id] for one in changed], len(window) - len(changed))
        counts["added"] += sum(one.id not in known for one in changed)
        counts["replaced"] += sum(one.id in known for one in changed)
        counts["unchanged"] += len(window) - len(changed)
        telling.finish()

    def _differs(self, document: Incoming, stored: StoredDocument) -> bool:
        """Whether the passages of a stored document cannot be kept."""
        titles = {title_of(one.metadata, self._tools.title) for one in (document, stored)}
        return document.text != stored.text or len(titles) > 1

    def _named(self, window: Sequence[Incoming]) -> tuple[list[Incoming], dict[str, str]]:
        """The documents, made ids that are taken made again; and the versions of those that are there."""
        found = list(window)
        while True:
            known = self._tools.engine.versions([one.id for one in found])
            taken = [at for at, one in enumerate(found) if not one.named and one.id in known]
            if not taken:
                return found, known
            for at in taken:
                one = found[at]
                found[at] = Incoming(one.position, secrets.token_hex(8), one.text, one.metadata, False)

    def _encoded(self, fresh: Sequence[Incoming], telling: Telling) -> dict[str, StoredDocument]:
        tools, counts = self._tools, self._counts
        titles = [title_of(one.metadata, tools.title) for one in fresh]
        spans, passages = tools.cutter.passages([one.text for one in fresh], titles)
        vectors = np.zeros((0, tools.dimension), np.float32)
        if passages:
            vectors = _checked(tools.encode(passages, progress=telling.encoded), len(passages), tools.dimension)
        counts["passages"] += len(passages)
        counts["empty"] += sum(not some for some in spans)
        counts["truncated"] += sum(span.tokens > tools.cutter.limit for some in spans for span in some)
        found, first = {}, 0
        for one, some in zip(fresh, spans, strict=True):
            own = vectors[first : first + len(some)]
            places = tuple((span.start, span.end) for span in some)
            found[one.id] = StoredDocument(one.id, one.text, one.metadata, places, own)
            first += len(some)
        return found

    def _put(self, documents: Sequence[StoredDocument], unchanged: int) -> None:
        self._tools.fields.learn(one.fields for one in documents)
        for batch in batches(documents):
            self._tools.engine.put(batch)
            self._kept += len(batch)
        self._kept += unchanged
        if documents:
            stamp(self._tools.engine)


def stamp(engine: Engine) -> None:
    """Write down that something changed: whoever keeps what it has read asks for this note."""
    engine.put_notes({"generation": str(time.time_ns() // 1000)})


def batches(documents: Iterable[StoredDocument]) -> Iterator[list[StoredDocument]]:
    """Documents in batches for one `put`, bounded by count and size."""
    batch: list[StoredDocument] = []
    size = 0
    for document in documents:
        own = len(document.text) + (0 if document.vectors is None else document.vectors.nbytes)
        if batch and (len(batch) >= PUT_DOCUMENTS or size + own > PUT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += own
    if batch:
        yield batch


def _checked(vectors: Any, count: int, dimension: int) -> Float32:
    found = np.ascontiguousarray(vectors, np.float32)
    if found.shape != (count, dimension):
        raise ModelError(f"the model must make vectors ({count}, {dimension}), got {found.shape}")
    if not np.isfinite(found).all():
        raise ModelError("the model made a vector that is not finite; nothing of these documents was written")
    return found


class Spool:
    """The documents of a call in a temporary database of their own, which is gone when it is closed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection = sqlite3.connect("", isolation_level=None)  # "": a file without a name
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, position INTEGER) WITHOUT ROWID")
        self._connection.execute("CREATE TABLE kept (position INTEGER PRIMARY KEY, content TEXT NOT NULL)")

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def once(self, document: Incoming) -> Incoming:
        """The document, unless its id came before in this call or the engine cannot keep it."""
        reason = self._engine.unfit(document.id, document.text, document.metadata)
        if reason is not None:
            raise InputError(f"document {document.position} ({document.id!r:.60}) cannot be kept: {reason}")
        try:
            self._connection.execute("INSERT INTO seen VALUES (?, ?)", (document.id, document.position))
        except sqlite3.IntegrityError:
            asked = self._connection.execute("SELECT position FROM seen WHERE id = ?", (document.id,))
            raise InputError(
                f"the id {document.id!r} came twice, as document {asked.fetchone()[0]} and as document "
                f"{document.position}: an id names one document; leave one out, or add them in two calls to replace "
                "the first by the second"
            ) from None
        return document

    def keep(self, window: Sequence[Incoming]) -> None:
        self._connection.executemany(
            "INSERT INTO kept VALUES (?, ?)",
            ((one.position, json.dumps([one.id, one.text, one.metadata, one.named])) for one in window),
        )

    def windows(self) -> Iterator[list[Incoming]]:
        """Everything that was kept, in its order."""
        window: list[Incoming] = []
        characters = 0
        for position, content in self._connection.execute("SELECT position, content FROM kept ORDER BY position"):
            one = Incoming(position, *json.loads(content))
            if window and (len(window) >= _WINDOW or characters + len(one.text) > _WINDOW_CHARACTERS):
                yield window
                window, characters = [], 0
            window.append(one)
            characters += len(one.text)
        if window:
            yield window
