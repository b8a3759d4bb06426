"""An index in Milvus: documents enter and leave, passages are found by vectors and filters.

    milvus_connecting.py   address -> calls, failures in our words
    milvus_rows.py         documents <-> rows, and why a document is always whole
    milvus_filters.py      metadata and filters -> what Milvus can compare
    milvus_schema.py       the two collections
    milvus_reading.py      rows by keys and conditions, whole while others write
    milvus_searching.py    nearest passages

Milvus has no transactions: see milvus_rows.py. A write is acknowledged when it stands in the log of the server, from
which it comes back after a kill; flushing (`ready`) only makes segments with graphs of it. Reads are strongly
consistent, so that every process sees what any other was told is written; that waits for the server's clock, about 0.2
seconds, and `consistency=session` (own writes) or `bounded` (some seconds old) in the address does not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from munjang.errors import InputError
from munjang.index.filters import Filter
from munjang.index.remote.address import Address
from munjang.index.remote.engine import Float32, Scored, StoredDocument, Unreachable
from munjang.index.remote.milvus_connecting import Connection
from munjang.index.remote.milvus_reading import MOST_KEYS, Reading
from munjang.index.remote.milvus_rows import (
    HEAD_FIELDS,
    MORE,
    Fields,
    Head,
    Packed,
    batches,
    describing,
    head_key,
    more_row,
    pack,
    short_hash,
    slices,
    split,
    spread_of,
    unfit,
    unpack,
)
from munjang.index.remote.milvus_schema import Facts, Layout, create_more, create_passages, facts_of, make_ready
from munjang.index.remote.milvus_searching import Searcher

_BODIES = 400  # documents in one answer: each has up to 64 KB
_TRIES = 5  # readings of documents that change meanwhile
_FLUSH_ROWS = 4_096  # rows without a graph from which on a flush is worth its time: Milvus is rough from 4,992 on
_LEAST_GRAPH = 1_024  # rows from which on Milvus builds a graph of a segment
_READY_SECONDS = 600.0
_NOTE = "note!"  # before the keys of notes; all other keys of NAME__more begin with a smaller letter or a digit
_NOTE_BYTES = 8_000  # of a note in its first row: escaped, they become six times as many at worst


class MilvusEngine:
    """One index in one database of Milvus."""

    name = "milvus"
    can_keyword = False
    keyword_reason = (
        "an index in Milvus is searched by meaning only, mode 'semantic' (Milvus has full text from 2.5 on, which is "
        "not used): a folder and PostgreSQL have keywords"
    )

    def __init__(self, address: Address) -> None:
        self._address = address
        self._layout = Layout.of(address)  # checked here: a wrong parameter is an error before anything is connected
        self._connection = Connection(address)
        self._reading = Reading(self._connection, address, self._layout.level)
        self._main, self._more = address.name, address.name + MORE
        self._lock = threading.Lock()
        self._known: Facts | None = None
        self._unflushed = 0

    # --- the index itself --------------------------------------------------------------------------------------------

    def create(self, header: Mapping[str, Any], dimension: int, similarity: str) -> None:
        """Make the collections. The one with the header is the index; what else is missing, the opening makes."""
        self._layout.check(self._address, dimension, similarity)
        facts = Facts(dict(header), self._layout, dimension, similarity)

        def make(client: Any) -> None:
            if client.has_collection(self._main, timeout=self._address.timeout):
                facts_of(client, self._address)  # raises where it is not ours
                raise InputError(f"there is an index at {self._address} already: Index.open opens it")
            if client.has_collection(self._more, timeout=self._address.timeout):  # of an index that is gone
                client.drop_collection(self._more, timeout=self._address.timeout)
            create_passages(client, self._address, facts, describing(facts.as_json()))

        self._connection.call(make)
        self._facts()

    def header(self) -> dict[str, Any]:
        return dict(self._facts().header)

    def _facts(self) -> Facts:
        """What the index is; the first time, everything that a search needs is made and loaded."""
        with self._lock:
            if self._known is None:
                facts = self._connection.call(lambda client: facts_of(client, self._address))

                def ready(client: Any) -> None:
                    create_more(client, self._address, self._more)
                    make_ready(client, self._address, (self._main, self._more), facts)

                self._connection.call(ready)
                self._known = facts
            return self._known

    def notes(self) -> dict[str, str]:
        self._facts()
        found: dict[str, str] = {}
        for row in chain.from_iterable(self._reading.pages(self._more, f'key >= "{_NOTE}"', ("text",))):
            name, version, pieces, first = json.loads(row["text"])
            keys = [_piece_of_note(name, version, piece) for piece in range(1, pieces + 1)]
            found[name] = first + "".join(self._texts(keys).get(key, "") for key in keys)
        return found

    def put_notes(self, notes: Mapping[str, str]) -> None:
        self._facts()
        rows, heads = [], []
        for name, value in notes.items():
            first, *more = split(value, room=_NOTE_BYTES)
            version = short_hash(value)
            rows += [more_row(_piece_of_note(name, version, at), text) for at, text in enumerate(more, start=1)]
            head = json.dumps([name, version, len(more), first], ensure_ascii=False)
            heads.append(more_row(_NOTE + short_hash(name), head))
        self._upsert(self._more, rows)
        self._upsert(self._more, heads)

    def drop(self) -> None:
        def away(client: Any) -> None:
            if client.has_collection(self._main, timeout=self._address.timeout):
                facts_of(client, self._address)  # another program's collection is not ours to drop
                client.drop_collection(self._main, timeout=self._address.timeout)
            client.drop_collection(self._more, timeout=self._address.timeout)

        self._connection.call(away)
        with self._lock:
            self._known = None

    def close(self) -> None:
        self._connection.close()

    # --- documents ---------------------------------------------------------------------------------------------------

    def unfit(self, id: str, text: str, metadata: str) -> str | None:
        return unfit(id, metadata)

    def put(self, documents: Sequence[StoredDocument]) -> None:
        dimension = self._facts().dimension
        packed = [pack(document, dimension) for document in documents]
        # The server's clock need not be waited for here: a version that is missed is never seen, it only takes room.
        own = replace(self._reading, level="Session")
        before = {head.id: head for head in self._heads([one.head.id for one in packed], reading=own)}
        self._upsert(self._more, (row for one in packed for row in one.pieces))
        self._upsert(self._main, (row for one in packed for row in one.passages))
        self._upsert(self._main, (one.first for one in packed))  # from here on the new versions hold
        self._delete(*_left_over(before, packed))
        self._unflushed += sum(1 + len(one.passages) for one in packed)

    def delete(self, ids: Sequence[str]) -> None:
        self._facts()
        heads = self._heads(ids)
        self._delete([head_key(head.id) for head in heads], [])  # from here on they are gone
        self._delete(
            [key for head in heads for key in head.passage_keys()], [key for head in heads for key in head.piece_keys()]
        )

    def versions(self, ids: Sequence[str]) -> dict[str, str]:
        self._facts()
        return {head.id: head.version for head in self._heads(ids)}

    def get(self, ids: Sequence[str], *, vectors: bool = False) -> dict[str, StoredDocument]:
        self._facts()
        fields = (*HEAD_FIELDS, "body", *(("vector",) if vectors else ()))
        found: dict[str, StoredDocument] = {}
        for keys in slices([head_key(id) for id in ids], _BODIES):
            for _ in range(_TRIES):
                rows = list(self._reading.by_keys(self._main, keys, fields))
                read = self._documents(rows, vectors=vectors)
                found |= {one.id: one for one in read if one is not None}
                keys = [row["key"] for row, one in zip(rows, read, strict=True) if one is None]
                if not keys:
                    break
            else:
                raise Unreachable(f"{self._address}: documents change faster than they can be read")
        return found

    def scan(self, after: str | None, limit: int, *, vectors: bool = True) -> list[StoredDocument]:
        self._facts()
        fields = (*HEAD_FIELDS, "body", *(("vector",) if vectors else ()))
        found: list[StoredDocument] = []
        key = "" if after is None else head_key(after)
        pages = self._reading.pages(self._main, "number == 0", fields, after=key, size=min(_BODIES, limit))
        for rows in pages:
            read = self._documents(rows, vectors=vectors)
            ids = [Head.of(row).id for row in rows]
            changed = [id for id, one in zip(ids, read, strict=True) if one is None]
            again = self.get(changed, vectors=vectors) if changed else {}
            now = (one or again.get(id) for id, one in zip(ids, read, strict=True))
            found += (one for one in now if one is not None)
            if len(found) >= limit:
                break
        return found[:limit]

    def _documents(self, rows: Sequence[Fields], *, vectors: bool) -> list[StoredDocument | None]:
        """The documents of heads; None where another version was written while this one was read."""
        heads = [Head.of(row) for row in rows]
        texts = self._texts([key for head in heads for key in head.piece_keys()])
        others: dict[str, Any] = {}
        if vectors:
            keys = [key for head in heads for key in head.passage_keys()]
            others = {row["key"]: row["vector"] for row in self._reading.by_keys(self._main, keys, ("vector",))}
        found: list[StoredDocument | None] = []
        for head, row in zip(heads, rows, strict=True):
            pieces = [texts.get(key) for key in head.piece_keys()]
            own = [row["vector"], *(others.get(key) for key in head.passage_keys())] if vectors else []
            if None in pieces or any(vector is None for vector in own):
                found.append(None)
                continue
            matrix = np.array(own, np.float32)[: head.count] if vectors else None  # a head without a word has one too
            found.append(unpack(head, row["body"] + "".join(piece or "" for piece in pieces), matrix))
        return found

    def _texts(self, keys: Sequence[str]) -> dict[str, str]:
        return {row["key"]: row["text"] for row in self._reading.by_keys(self._more, keys, ("text",), most=_BODIES)}

    def count(self) -> tuple[int, int]:
        """From the heads: rows that a killed writer left are no passages. Exact when nothing is being replaced."""
        self._facts()
        documents = self._reading.count(self._main, "number == 0")
        passages = self._reading.count(self._main, "number == 0 and count == 1")
        for rows in self._reading.pages(self._main, "number == 0 and count > 1", ("count",)):
            passages += sum(int(row["count"]) for row in rows)
        return documents, passages

    def choose(self, most: int) -> list[str]:
        self._facts()
        there = self._reading.count(self._main, "number == 0 and count > 0")
        limit = 2**31 if there <= most else int(2**31 * min(1.0, 1.2 * most / there + 50 / there))
        asked = f"number == 0 and count > 0 and spread < {limit}"
        ids = [Head.of(row).id for rows in self._reading.pages(self._main, asked, HEAD_FIELDS) for row in rows]
        return sorted(ids, key=lambda id: (spread_of(id), id))[:most]

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(self, vectors: Float32, k: int, filter: Filter | None) -> list[list[Scored]]:
        return Searcher(self._reading, self._facts(), self._layout).search(vectors, k, filter)

    def keyword(self, queries: Sequence[str], k: int, filter: Filter | None) -> list[list[Scored]]:
        raise InputError(f"{self._address}: {self.keyword_reason}")

    # --- keeping -----------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Have graphs built of what was written, and wait until searches use them.

        Until then Milvus searches new rows by a rough structure of its own, which finds some 95 % of the nearest.
        """
        self._facts()
        if not self._unflushed:
            return
        if self._unflushed < _FLUSH_ROWS:
            outside = self._reading.count(self._main, "count >= 0") - self._in_graphs()
            if outside < _FLUSH_ROWS:
                return  # few rows outside of graphs are compared one by one
        timeout = max(self._address.timeout, _READY_SECONDS)
        for name in (self._main, self._more):
            self._connection.call(partial(_flushed, name, timeout))
        self._unflushed = 0
        deadline = time.monotonic() + _READY_SECONDS
        while self._in_graphs() < self._stored_rows() and time.monotonic() < deadline:
            time.sleep(0.5)

    def _in_graphs(self) -> int:
        """Rows of the segments that searches use with a graph, or that are too small for one."""
        segments = self._connection.call(
            lambda client: client.list_loaded_segments(self._main, timeout=self._address.timeout)
        )
        return sum(int(one.num_rows) for one in segments if one.index_name or one.num_rows < _LEAST_GRAPH)

    def _stored_rows(self) -> int:
        """Flushed rows, those included that compaction will take away."""
        asked = self._connection.call(
            lambda client: client.get_collection_stats(self._main, timeout=self._address.timeout)
        )
        return int(asked["row_count"])

    def describe(self) -> dict[str, object]:
        facts = self._facts()
        return {
            "server": f"Milvus {self._connection.version}",
            **facts.layout.as_json(),
            "ef_search": self._layout.ef_search,
            "consistency": self._layout.consistency,
            "rows": self._stored_rows(),
        }

    # --- rows --------------------------------------------------------------------------------------------------------

    def _heads(self, ids: Sequence[str], *, reading: Reading | None = None) -> list[Head]:
        rows = (reading or self._reading).by_keys(self._main, [head_key(id) for id in ids], HEAD_FIELDS)
        return [Head.of(row) for row in rows]

    def _upsert(self, collection: str, rows: Iterable[dict[str, Any]]) -> None:
        for batch in batches(rows):
            self._connection.call(partial(_upserted, collection, batch, self._address.timeout))

    def _delete(self, passages: Sequence[str], pieces: Sequence[str]) -> None:
        for collection, keys in ((self._main, passages), (self._more, pieces)):
            for some in slices(keys, MOST_KEYS):
                self._connection.call(partial(_deleted, collection, list(some), self._address.timeout))


def _upserted(collection: str, rows: list[dict[str, Any]], timeout: float, client: Any) -> None:
    client.upsert(collection, rows, timeout=timeout)


def _flushed(collection: str, timeout: float, client: Any) -> None:
    client.flush(collection, timeout=timeout)


def _deleted(collection: str, keys: list[str], timeout: float, client: Any) -> None:
    client.delete(collection, ids=keys, timeout=timeout)


def _left_over(before: Mapping[str, Head], packed: Sequence[Packed]) -> tuple[list[str], list[str]]:
    """The keys of passages and pieces that earlier versions had and the new ones do not."""
    passages: list[str] = []
    pieces: list[str] = []
    for one in packed:
        old = before.get(one.head.id)
        if old is not None:
            passages += sorted(set(old.passage_keys()) - set(one.head.passage_keys()))
            pieces += sorted(set(old.piece_keys()) - set(one.head.piece_keys()))
    return passages, pieces


def _piece_of_note(name: str, version: str, piece: int) -> str:
    return f"more!{short_hash(name)}!{version}!{piece:06d}"
