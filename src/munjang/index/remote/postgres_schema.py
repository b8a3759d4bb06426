"""The tables of an index in PostgreSQL: a schema of its own, munjang_NAME, made and dropped as one.

    header      one row: what the index is
    notes       small facts beside it
    documents   id, version, text, metadata as it came (text) and as filters read it (jsonb), spans of the passages
    passages    vectors and terms; in as many hash partitions as was asked for
    tally       sums to how many documents, passages and words there are

`fields` of a document holds every value in a list, without nulls, so that one rule serves single values and lists.
Triggers write the difference that a statement makes into `tally`, instead of one counter that all writers would wait
for; `fold` sums the rows up from time to time. So counts are exact, cheap and part of the transaction. Ids are in the
order of their bytes (COLLATE "C"), as everywhere in Munjang.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from munjang.errors import InputError
from munjang.index.remote.address import Address
from munjang.index.remote.postgres_connecting import TLS

if TYPE_CHECKING:
    from munjang.index.remote.postgres_connecting import Cursor

OPERATORS = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}  # manhattan is a function before pgvector 0.7
CLASSES = {"cosine": "vector_cosine_ops", "dot": "vector_ip_ops", "euclidean": "vector_l2_ops"}
HNSW = "passages_hnsw"
_MOST_DIMENSIONS = 16_000
_TALLY_ROWS = 512

TABLES = """
CREATE SCHEMA {s};
CREATE TABLE {s}.header (one boolean PRIMARY KEY DEFAULT true CHECK (one), content text NOT NULL);
CREATE TABLE {s}.notes (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE {s}.tally (documents bigint NOT NULL, passages bigint NOT NULL, words bigint NOT NULL);
CREATE TABLE {s}.documents (
    row bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id text COLLATE "C" PRIMARY KEY,
    version text NOT NULL,
    text text NOT NULL,
    metadata text NOT NULL,
    fields jsonb NOT NULL,
    spans text NOT NULL,
    passages integer NOT NULL,
    words integer NOT NULL
);
CREATE INDEX documents_fields ON {s}.documents USING gin (fields jsonb_path_ops);
CREATE TABLE {s}.passages (
    row bigint NOT NULL,
    number integer NOT NULL,
    vector vector({dimension}) NOT NULL,
    terms text[] COLLATE "C",
    counts integer[],
    length integer NOT NULL,
    PRIMARY KEY (row, number)
) {partitioned};
CREATE FUNCTION {s}.came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {s}.tally SELECT count(*), sum(passages), sum(words) FROM new HAVING count(*) > 0; RETURN NULL;
END $$;
CREATE FUNCTION {s}.went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {s}.tally SELECT -count(*), -sum(passages), -sum(words) FROM old HAVING count(*) > 0; RETURN NULL;
END $$;
CREATE FUNCTION {s}.changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {s}.tally SELECT 0, a.p - b.p, a.w - b.w
        FROM (SELECT sum(passages) p, sum(words) w FROM new) a, (SELECT sum(passages) p, sum(words) w FROM old) b
        WHERE a.p <> b.p OR a.w <> b.w;
    RETURN NULL;
END $$;
CREATE TRIGGER came AFTER INSERT ON {s}.documents REFERENCING NEW TABLE AS new
    FOR EACH STATEMENT EXECUTE FUNCTION {s}.came();
CREATE TRIGGER went AFTER DELETE ON {s}.documents REFERENCING OLD TABLE AS old
    FOR EACH STATEMENT EXECUTE FUNCTION {s}.went();
CREATE TRIGGER changed AFTER UPDATE ON {s}.documents REFERENCING NEW TABLE AS new OLD TABLE AS old
    FOR EACH STATEMENT EXECUTE FUNCTION {s}.changed();
"""
TERMS = "CREATE INDEX passages_terms ON {s}.passages USING gin (terms) WITH (fastupdate = off);"


@dataclass(frozen=True)
class Layout:
    """What an address says about a new index; stored in the header, the same for its whole life."""

    m: int  # neighbours of a passage in the HNSW graph
    ef_construction: int  # candidates while the graph is built
    partitions: int  # hash partitions of the passages; 1: one table

    @classmethod
    def of(cls, address: Address) -> Layout:
        address.check_parameters((*TLS, "m", "ef_construction", "ef_search", "partitions"))
        m = address.whole("m", 16, least=2, most=100)
        ef_construction = address.whole("ef_construction", max(64, 2 * m), least=4, most=1000)
        if ef_construction < 2 * m:
            raise InputError(f"{address}: ef_construction must be at least 2 * m = {2 * m}, got {ef_construction}")
        return cls(m, ef_construction, address.whole("partitions", 1, most=1024))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def create_tables(cursor: Cursor, schema: str, dimension: int, layout: Layout, *, keyword: bool) -> None:
    """All tables of an index, in the transaction of the cursor."""
    if dimension > _MOST_DIMENSIONS:
        raise InputError(
            f"pgvector keeps vectors of at most {_MOST_DIMENSIONS:,} dimensions, the model has {dimension:,}"
        )
    partitioned = "PARTITION BY HASH (row)" if layout.partitions > 1 else ""
    parts = [TABLES.format(s=schema, dimension=dimension, partitioned=partitioned)]
    if layout.partitions > 1:
        parts += (
            f"CREATE TABLE {schema}.passages_{part} PARTITION OF {schema}.passages "
            f"FOR VALUES WITH (MODULUS {layout.partitions}, REMAINDER {part});"
            for part in range(layout.partitions)
        )
    if keyword:
        parts.append(TERMS.format(s=schema))
    cursor.execute("\n".join(parts).encode())


def graph(schema: str, similarity: str, layout: Layout) -> str:
    """The statement that builds the HNSW graph; beside the work of others where PostgreSQL can."""
    beside = "CONCURRENTLY" if layout.partitions == 1 else ""
    return (
        f"CREATE INDEX {beside} {HNSW} ON {schema}.passages USING hnsw (vector {CLASSES[similarity]}) "
        f"WITH (m = {layout.m}, ef_construction = {layout.ef_construction})"
    )


def fold(cursor: Cursor, schema: str) -> None:
    """Sum the tally up where it has become long; rows that another writer is summing are left to it."""
    (rows,) = cursor.execute(f"SELECT count(*) FROM {schema}.tally".encode()).fetchone() or (0,)
    if rows > _TALLY_ROWS:
        cursor.execute(
            f"WITH mine AS (SELECT ctid FROM {schema}.tally FOR UPDATE SKIP LOCKED), "
            f"gone AS (DELETE FROM {schema}.tally WHERE ctid IN (SELECT ctid FROM mine) RETURNING *) "
            f"INSERT INTO {schema}.tally SELECT sum(documents), sum(passages), sum(words) FROM gone "
            "HAVING count(*) > 0".encode()
        )
