"""An index in PostgreSQL with pgvector: documents enter and leave, passages are found by vectors, words and filters.

    postgres_connecting.py   address -> transactions, failures in our words
    postgres_schema.py       the tables
    postgres_filters.py      Filter -> SQL
    postgres_keyword.py      BM25 in SQL

A batch is one transaction, so it is there whole or not at all, and durable when `put` returns. A search is exact up to
`exact_up_to` passages; beyond, an HNSW graph answers. Under a filter the graph is asked only where pgvector (0.8 and
later) can go on until enough passages meet it; before, and wherever the graph gives too few, the search is exact: it
never loses what a filter allows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from munjang.errors import InputError
from munjang.index.documents import title_of, titled
from munjang.index.filters import Filter
from munjang.index.remote.address import Address
from munjang.index.remote.engine import Float32, NoIndex, Scored, StoredDocument
from munjang.index.remote.postgres_connecting import Connections
from munjang.index.remote.postgres_filters import Condition, condition, normal, storable_text
from munjang.index.remote.postgres_keyword import Words
from munjang.index.remote.postgres_schema import CLASSES, HNSW, OPERATORS, Layout, create_tables, fold, graph

if TYPE_CHECKING:
    from munjang.index.remote.postgres_connecting import Cursor

_LONGEST_ID = 2_000  # bytes; an entry of an index in PostgreSQL holds a third of a page
_MOST_CANDIDATES = 1_000  # of hnsw.ef_search
_MOST_GRAPH_DIMENSIONS = 2_000
_LEAST_VERSION = (0, 5)  # of pgvector: HNSW
_ITERATIVE = (0, 8)

_PUT = """
INSERT INTO {s}.documents (id, version, text, metadata, fields, spans, passages, words)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::jsonb[], %s::text[], %s::int[], %s::int[])
ON CONFLICT (id) DO UPDATE SET version = excluded.version, text = excluded.text, metadata = excluded.metadata,
    fields = excluded.fields, spans = excluded.spans, passages = excluded.passages, words = excluded.words
RETURNING id, row
"""
_COPY = "COPY {s}.passages (row, number, vector, terms, counts, length) FROM STDIN (FORMAT BINARY)"
_GET = "SELECT row, id, text, metadata, spans FROM {s}.documents WHERE "
_TOTALS = "SELECT coalesce(sum(documents), 0), coalesce(sum(passages), 0), coalesce(sum(words), 0) FROM {s}.tally"
_GRAPH = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('{s}." + HNSW + "')"
_NEAREST = """
SELECT d.id, n.number, n.distance FROM (
    SELECT p.row, p.number, {distance} AS distance FROM {s}.passages p ORDER BY {order} LIMIT %(k)s
) n JOIN {s}.documents d ON d.row = n.row ORDER BY n.distance, n.row, n.number
"""
# A condition asks for fields of the document, so it stands beside the join, and the limit comes after it.
_NEAREST_WHERE = """
SELECT d.id, p.number, {distance} AS distance FROM {s}.passages p JOIN {s}.documents d ON d.row = p.row
WHERE {where} ORDER BY {order} LIMIT %(k)s
"""


@dataclass(frozen=True)
class _Facts:
    """What was fixed when the index was made."""

    header: dict[str, Any]
    layout: Layout
    dimension: int
    similarity: str
    analyser: str  # empty: no keywords
    exact_up_to: int


class PostgresEngine:
    """One index in one database."""

    name = "postgresql"
    can_keyword = True
    keyword_reason = ""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._layout = Layout.of(address)  # checked here: a wrong parameter is an error before anything is connected
        self._ef_search = address.whole("ef_search", 100, most=_MOST_CANDIDATES)
        self._schema = f'"munjang_{address.name}"'  # the name is letters, digits and _
        self._connections = Connections(address)
        self._words = Words(self._schema)
        self._known: _Facts | None = None
        self._iterative = False

    # --- the index itself --------------------------------------------------------------------------------------------

    def create(self, header: Mapping[str, Any], dimension: int, similarity: str) -> None:
        """Make the tables, in one transaction."""
        keyword = bool(header.get("options", {}).get("keyword", True))
        with self._connections.transaction(write=True) as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self._schema])
            if self._is_there(cursor):
                raise InputError(f"there is an index at {self._address} already: Index.open opens it")
            self._check_extension(cursor, make=True)
            create_tables(cursor, self._schema, dimension, self._layout, keyword=keyword)
            content = {
                "header": dict(header),
                "layout": self._layout.as_json(),
                "dimension": dimension,
                "similarity": similarity,
                "analyser": self._words.identity if keyword else "",
            }
            cursor.execute(self._sql("INSERT INTO {s}.header (content) VALUES (%s)"), [json.dumps(content)])
        self._connections.renew()  # the connections that were made before the extension do not know its type

    def header(self) -> dict[str, Any]:
        return dict(self._facts().header)

    def _facts(self) -> _Facts:
        if self._known is None:
            with self._connections.transaction() as cursor:
                if not self._is_there(cursor):
                    raise NoIndex(f"there is no index at {self._address}: Index.create makes one")
                self._check_extension(cursor)
                (content,) = _one(cursor.execute(self._sql("SELECT content FROM {s}.header")).fetchone())
            found = json.loads(content)
            self._known = _Facts(
                found["header"],
                Layout(**found["layout"]),
                found["dimension"],
                found["similarity"],
                found["analyser"],
                int(found["header"].get("options", {}).get("exact_up_to", 0)),
            )
        return self._known

    def _is_there(self, cursor: Cursor) -> bool:
        asked = cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{self._schema}.header"])
        return bool(_one(asked.fetchone())[0])

    def _check_extension(self, cursor: Cursor, *, make: bool = False) -> None:
        """Raise unless pgvector is there; `make` switches it on where the server has it."""
        found = cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        if found is None:
            offered = cursor.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
            if offered is None or not make:
                raise InputError(
                    f"{self._address}: the server has no pgvector: install the extension (postgresql-16-pgvector on "
                    "Debian), then CREATE EXTENSION vector"
                )
            cursor.execute("CREATE EXTENSION vector")
            found = cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        text = str(_one(found)[0])
        version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
        if version < _LEAST_VERSION:
            raise InputError(f"{self._address}: pgvector {text} is too old, 0.5 or later is needed: update it")
        self._iterative = version >= _ITERATIVE

    def notes(self) -> dict[str, str]:
        with self._connections.transaction() as cursor:
            return dict(cursor.execute(self._sql("SELECT name, value FROM {s}.notes")).fetchall())

    def put_notes(self, notes: Mapping[str, str]) -> None:
        names = sorted(notes)
        with self._connections.transaction(write=True) as cursor:
            cursor.execute(
                self._sql(
                    "INSERT INTO {s}.notes SELECT * FROM unnest(%s::text[], %s::text[]) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
                ),
                [names, [notes[name] for name in names]],
            )

    def drop(self) -> None:
        with self._connections.transaction(write=True) as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute(self._sql("DROP SCHEMA IF EXISTS {s} CASCADE"))
        self._known = None

    def close(self) -> None:
        self._connections.close()

    # --- documents ---------------------------------------------------------------------------------------------------

    def unfit(self, id: str, text: str, metadata: str) -> str | None:
        if len(id.encode()) > _LONGEST_ID:
            return f"PostgreSQL keeps ids of at most {_LONGEST_ID:,} bytes, this one has {len(id.encode()):,}"
        named = {"id": id, "text": text, "metadata": metadata.replace("\\u0000", "\0")}
        broken = [name for name, value in named.items() if not storable_text(value)]
        if broken:
            return f"its {broken[0]} has the character NUL, which PostgreSQL cannot keep: take it out"
        return None

    def put(self, documents: Sequence[StoredDocument]) -> None:
        facts = self._facts()
        documents = sorted(documents, key=lambda one: one.id)  # two writers take the rows in the same order
        title = facts.header.get("options", {}).get("title")
        passages = [
            titled(title_of(one.metadata, title), one.text[start:end]) for one in documents for start, end in one.spans
        ]
        terms: Sequence[tuple[list[str] | None, list[int] | None, int]] = [(None, None, 0)] * len(passages)
        if facts.analyser:
            self._words.check(facts.analyser)
            terms = self._words.terms(passages)
        edges = np.cumsum([0, *(len(one.spans) for one in documents)]).tolist()
        words = [sum(own[2] for own in terms[edges[at] : edges[at + 1]]) for at in range(len(documents))]
        with self._connections.transaction(write=True) as cursor:
            rows = dict(cursor.execute(self._sql(_PUT), _columns(documents, words)).fetchall())
            cursor.execute(self._sql("DELETE FROM {s}.passages WHERE row = ANY(%s)"), [list(rows.values())])
            copied = self._sql(
                "COPY {s}.passages (row, number, vector, terms, counts, length) FROM STDIN (FORMAT BINARY)"
            )
            with cursor.copy(copied) as copy:
                copy.set_types(["int8", "int4", "vector", "text[]", "int4[]", "int4"])
                for first, document in zip(edges, documents, strict=False):
                    for number in range(len(document.spans)):
                        assert document.vectors is not None
                        copy.write_row((rows[document.id], number, document.vectors[number], *terms[first + number]))
            fold(cursor, self._schema)

    def delete(self, ids: Sequence[str]) -> None:
        with self._connections.transaction(write=True) as cursor:
            locked = "SELECT row FROM {s}.documents WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
            rows = [row for (row,) in cursor.execute(self._sql(locked), [_askable(ids)]).fetchall()]
            cursor.execute(self._sql("DELETE FROM {s}.passages WHERE row = ANY(%s)"), [rows])
            cursor.execute(self._sql("DELETE FROM {s}.documents WHERE row = ANY(%s)"), [rows])
            fold(cursor, self._schema)

    def versions(self, ids: Sequence[str]) -> dict[str, str]:
        with self._connections.transaction() as cursor:
            query = "SELECT id, version FROM {s}.documents WHERE id = ANY(%s)"
            return dict(cursor.execute(self._sql(query), [_askable(ids)]).fetchall())

    def get(self, ids: Sequence[str], *, vectors: bool = False) -> dict[str, StoredDocument]:
        with self._connections.transaction() as cursor:
            rows = cursor.execute(self._sql(_GET + "id = ANY(%s)"), [_askable(ids)]).fetchall()
            return {one.id: one for one in self._documents(cursor, rows, vectors=vectors)}

    def scan(self, after: str | None, limit: int, *, vectors: bool = True) -> list[StoredDocument]:
        with self._connections.transaction() as cursor:
            where = "true" if after is None else "id > %s"
            asked = [limit] if after is None else [after, limit]
            rows = cursor.execute(self._sql(_GET + where + " ORDER BY id LIMIT %s"), asked).fetchall()
            return self._documents(cursor, rows, vectors=vectors)

    def _documents(self, cursor: Cursor, rows: Sequence[tuple[Any, ...]], *, vectors: bool) -> list[StoredDocument]:
        found: dict[int, list[Float32]] = {row: [] for row, *_ in rows}
        if vectors and rows:
            query = "SELECT row, vector FROM {s}.passages WHERE row = ANY(%s) ORDER BY row, number"
            for row, vector in cursor.execute(self._sql(query), [list(found)], binary=True):
                found[row].append(_array(vector))
        dimension = self._facts().dimension if vectors else 0
        documents = []
        for row, id, text, metadata, spans in rows:
            own = np.array(found[row], np.float32).reshape(-1, dimension) if vectors else None
            places = tuple((start, end) for start, end in json.loads(spans))
            documents.append(StoredDocument(id, text, metadata, places, own))
        return documents

    def count(self) -> tuple[int, int]:
        with self._connections.transaction() as cursor:
            documents, passages, _ = self._totals(cursor)
            return documents, passages

    def choose(self, most: int) -> list[str]:
        with self._connections.transaction() as cursor:
            query = "SELECT id FROM {s}.documents WHERE passages > 0 ORDER BY hashtext(id), id LIMIT %s"
            return [id for (id,) in cursor.execute(self._sql(query), [most]).fetchall()]

    # --- searching ---------------------------------------------------------------------------------------------------

    def search(self, vectors: Float32, k: int, filter: Filter | None) -> list[list[Scored]]:
        facts = self._facts()
        where = ("true", []) if filter is None else condition(filter)
        with self._connections.transaction() as cursor:
            _, passages, _ = self._totals(cursor)
            graph_there = cursor.execute(self._sql(_GRAPH)).fetchone()
            by_graph = graph_there == (True,) and passages > facts.exact_up_to and k <= _MOST_CANDIDATES
            by_graph = by_graph and (filter is None or self._iterative)
            if by_graph:
                cursor.execute(f"SET LOCAL hnsw.ef_search = {max(self._ef_search, k)}".encode())
                if self._iterative:
                    cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            return [self._nearest(cursor, vector, min(k, passages), where, by_graph=by_graph) for vector in vectors]

    def _nearest(self, cursor: Cursor, vector: Float32, k: int, where: Condition, *, by_graph: bool) -> list[Scored]:
        similarity = self._facts().similarity
        distance = "l1_distance(p.vector, %(vector)s)"
        if similarity in OPERATORS:
            distance = f"p.vector {OPERATORS[similarity]} %(vector)s"
        # Anything but the bare operator keeps PostgreSQL from the graph.
        order = distance if by_graph else f"({distance}) + 0, p.row, p.number"
        named = {f"v{place}": value for place, value in enumerate(where[1])}
        text = (
            (_NEAREST_WHERE if where[0] != "true" else _NEAREST)
            .replace("{distance}", distance)
            .replace("{order}", order)
        )
        text = text.replace("{where}", where[0] % tuple(f"%({name})s" for name in named))
        rows = cursor.execute(self._sql(text), {**named, "vector": vector, "k": k}).fetchall()
        if by_graph and len(rows) < k:
            return self._nearest(cursor, vector, k, where, by_graph=False)
        return [Scored(id, number, _score(similarity, away)) for id, number, away in rows]

    def keyword(self, queries: Sequence[str], k: int, filter: Filter | None) -> list[list[Scored]]:
        self._words.check(self._facts().analyser)
        where = ("true", []) if filter is None else condition(filter)
        with self._connections.transaction() as cursor:
            _, passages, words = self._totals(cursor)
            return [self._words.search(cursor, query, k, where, passages=passages, words=words) for query in queries]

    def _totals(self, cursor: Cursor) -> tuple[int, int, int]:
        documents, passages, words = _one(cursor.execute(self._sql(_TOTALS)).fetchone())
        return int(documents), int(passages), int(words)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Build the HNSW graph where there are enough passages for one, and have PostgreSQL count for its plans."""
        facts = self._facts()
        if facts.similarity not in CLASSES or facts.dimension > _MOST_GRAPH_DIMENSIONS:
            return
        if self.count()[1] <= facts.exact_up_to:
            return
        with self._connections.connection() as connection:
            # One process builds; another that comes meanwhile leaves it to that one.
            lock = f"{self._schema} graph"
            (mine,) = _one(connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", [lock]).fetchone())
            if not mine:
                return
            try:
                connection.execute("SET statement_timeout = 0")
                there = connection.execute(self._sql(_GRAPH)).fetchone()
                if there == (True,):
                    return
                if there is not None:  # a build that was killed
                    connection.execute(self._sql("DROP INDEX {s}." + HNSW))
                connection.execute(self._sql(graph("{s}", facts.similarity, facts.layout)))
                connection.execute(self._sql("ANALYZE {s}.passages"))
            finally:
                if not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(hashtext(%s))", [lock])
                    connection.execute("RESET statement_timeout")

    def describe(self) -> dict[str, object]:
        facts = self._facts()
        with self._connections.transaction() as cursor:
            (server,) = _one(cursor.execute("SELECT current_setting('server_version')").fetchone())
            (extension,) = _one(
                cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            )
            there = cursor.execute(self._sql(_GRAPH)).fetchone()
            sizes = (
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"
            )
            (size,) = _one(cursor.execute(sizes.encode(), [self._schema.strip('"')]).fetchone())
        return {
            "server": f"PostgreSQL {server}, pgvector {extension}",
            "graph": there == (True,),
            **facts.layout.as_json(),
            "ef_search": self._ef_search,
            "bytes": {"tables": size},
        }

    def _sql(self, text: str) -> bytes:
        return text.replace("{s}", self._schema).encode()


def _one(row: tuple[Any, ...] | None) -> tuple[Any, ...]:
    assert row is not None  # an aggregate always has a row
    return row


def _columns(documents: Sequence[StoredDocument], words: Sequence[int]) -> list[list[Any]]:
    return [
        [one.id for one in documents],
        [one.version for one in documents],
        [one.text for one in documents],
        [one.metadata for one in documents],
        [normal(one.fields) for one in documents],
        [json.dumps(one.spans) for one in documents],
        [len(one.spans) for one in documents],
        list(words),
    ]


def _askable(ids: Sequence[str]) -> list[str]:
    """Ids that could be there: none with the character NUL is, and PostgreSQL refuses the question."""
    return [id for id in ids if storable_text(id)]


def _array(vector: Any) -> Float32:
    return np.asarray(vector.to_numpy() if hasattr(vector, "to_numpy") else vector, np.float32)


def _score(similarity: str, distance: float) -> float:
    """The model's similarity; a vector of zeros has no direction, which pgvector calls NaN and Munjang 0."""
    if distance != distance:
        return 0.0
    return 1.0 - distance if similarity == "cosine" else -distance
