"""What is PostgreSQL's own: its graph, its counts, its limits, filters against the folder's, and its failures."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from munjang.encoders import BiEncoder
from munjang.errors import DataError, InputError
from munjang.index.columns import columns_of
from munjang.index.filters import as_filter
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from munjang.index.remote.address import parse
from munjang.index.remote.engine import FORMAT, Engine, StoredDocument
from munjang.index.remote.opening import engine_at
from munjang.index.remote.postgres import PostgresEngine
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.server


def _name() -> str:
    return f"t{secrets.token_hex(5)}"


def _document(
    id: str, vectors: Any, metadata: dict[str, Any] | None = None, text: str = "비가 온다 rain"
) -> StoredDocument:
    rows = np.asarray(vectors, np.float32)
    spans = tuple((at, at + 2) for at in range(len(rows)))
    return StoredDocument(id, "비가 온다 rain", json.dumps(metadata or {}, ensure_ascii=False), spans, rows)


def _engine(address: str, dimension: int, similarity: str = "cosine", exact_up_to: int = 0) -> Engine:
    engine = engine_at(parse(address))
    engine.create({"name": "x", "options": {"exact_up_to": exact_up_to}}, dimension, similarity)
    return engine


@pytest.fixture
def small(postgres: PostgresServer) -> Iterator[Engine]:
    engine = _engine(postgres.address(_name()), 3, exact_up_to=100)
    yield engine
    engine.drop()
    engine.close()


# --- searching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_graph_finds_what_brute_force_finds(postgres: PostgresServer, similarity: str, partitions: int) -> None:
    """Beyond `exact_up_to`; also under a filter that little meets, where a graph alone would find nothing."""
    generator = np.random.default_rng(3)
    vectors = generator.standard_normal((600, 16)).astype(np.float32)
    address = postgres.address(_name(), partitions=partitions, m=12, ef_construction=80, ef_search=200)
    engine = _engine(address, 16, similarity)
    engine.put([_document(f"d{at:03}", vectors[at : at + 1], {"rare": at % 60 == 0}) for at in range(600)])
    assert engine.describe()["graph"] is False
    engine.ready()
    engine.ready()  # once is enough
    assert engine.describe()["graph"] is (similarity != "manhattan")
    queries = generator.standard_normal((5, 16)).astype(np.float32)
    true = _similarities(similarity, queries, vectors)
    for query, (found, few) in enumerate(
        zip(engine.search(queries, 10, None), engine.search(queries, 10, as_filter({"rare": True})), strict=True)
    ):
        best = np.argsort(-true[query])[:10]
        assert len({f"d{at:03}" for at in best} & {one.document for one in found}) >= 9
        for one in found:
            assert one.score == pytest.approx(true[query, int(one.document[1:])], abs=1e-4)
        rare = np.argsort(-true[query, ::60])[:10] * 60
        assert [one.document for one in few] == [f"d{at:03}" for at in rare]
    assert len(engine.search(queries[:1], 5000, None)[0]) == 600
    engine.drop()
    engine.close()


def _similarities(kind: str, queries: Any, rows: Any) -> Any:
    queries, rows = queries.astype(np.float64), rows.astype(np.float64)
    if kind == "cosine":
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if kind in ("cosine", "dot"):
        return queries @ rows.T
    apart = queries[:, None] - rows[None]
    return -np.abs(apart).sum(-1) if kind == "manhattan" else -np.linalg.norm(apart, axis=-1)


def test_a_graph_whose_building_was_killed_is_built_again(postgres: PostgresServer) -> None:
    name = _name()
    engine = _engine(postgres.address(name), 3)
    engine.put([_document("a", [[1, 0, 0]]), _document("b", [[0, 1, 0]])])
    engine.ready()
    postgres.execute(
        f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'munjang_{name}.passages_hnsw'::regclass"
    )
    assert engine.describe()["graph"] is False
    assert [one.document for one in engine.search(np.array([[0, 1, 0]], np.float32), 1, None)[0]] == ["b"]
    engine.ready()
    assert engine.describe()["graph"] is True
    engine.drop()
    engine.close()


def test_a_vector_of_zeros_is_like_nothing(small: Engine) -> None:
    small.put([_document("zero", [[0, 0, 0]]), _document("one", [[1, 0, 0]])])
    found = small.search(np.array([[1, 0, 0], [0, 0, 0]], np.float32), 2, None)
    assert [(one.document, one.score) for one in found[0]] == [("one", pytest.approx(1)), ("zero", 0.0)]
    assert [one.score for one in found[1]] == [0.0, 0.0]


# --- filters ----------------------------------------------------------------------------------------------------------

_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [0, 1, -1, 2**53, 2**53 + 1, 2**62, 0.1, 0.5, -0.0, 1e300, 5e-324, float(2**53), float(2**63), 1e22]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "A", "가", "나", "'", '"', "%s", "\\", "🙂", "1", "true", "ﾊ", "\U00010000", "\uffff"]),
    st.text(max_size=5),
)
_KINDS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "exists"])


@st.composite
def _filters(draw: st.DrawFn) -> dict[str, Any]:
    field, sign = draw(st.sampled_from(["x", "y"])), draw(_KINDS)
    if sign == "exists":
        return {field: {sign: draw(st.booleans())}}
    if sign in ("in", "not in"):
        return {field: {sign: draw(st.lists(_SCALARS, max_size=3))}}
    value = draw(_SCALARS)
    if draw(st.booleans()):
        return {"not": {field: {sign: value}}}
    return {field: {sign: value}}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.lists(
        st.fixed_dictionaries({}, optional={n: _SCALARS | st.none() | st.lists(_SCALARS, max_size=3) for n in "xy"}),
        min_size=1,
        max_size=6,
    ),
    filters=st.lists(_filters(), min_size=1, max_size=6),
)
def test_any_filter_means_what_it_means_in_a_folder(
    small: Engine, documents: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> None:
    documents = [one for one in documents if small.unfit("a", "", json.dumps(one, ensure_ascii=False)) is None]
    small.delete([one.id for one in small.scan(None, 100, vectors=False)])
    small.put([_document(str(at), [[1, 0, 0]], one) for at, one in enumerate(documents)])
    columns = columns_of([{"x": None, "y": None}, *documents])
    for given_filter in filters:
        asked = as_filter(given_filter)
        assert asked is not None
        try:
            wanted = asked.documents(columns)[1:]
        except InputError:
            continue  # kinds that cannot meet: refused before any engine is asked
        try:
            found = small.search(np.array([[1, 0, 0]], np.float32), 100, asked)[0]
        except InputError:
            assert "\0" in str(given_filter)  # the one thing that PostgreSQL cannot compare with
            continue
        assert sorted(int(one.document) for one in found) == np.flatnonzero(wanted).tolist(), given_filter


# --- documents --------------------------------------------------------------------------------------------------------


def test_counts_are_exact_whatever_happens(small: Engine, postgres: PostgresServer) -> None:
    generator = np.random.default_rng(5)
    there: dict[str, int] = {}
    for _ in range(40):
        ids = [f"d{number}" for number in generator.choice(12, size=4, replace=False)]
        if generator.random() < 0.3:
            small.delete(ids)
            for id in ids:
                there.pop(id, None)
        else:
            sizes = generator.integers(0, 4, size=4).tolist()
            small.put([_document(id, np.ones((size, 3))) for id, size in zip(ids, sizes, strict=True)])
            there |= dict(zip(ids, sizes, strict=True))
        assert small.count() == (len(there), sum(there.values()))
    assert [one.id for one in small.scan(None, 100)] == sorted(there)
    assert {one.id: len(one.spans) for one in small.scan(None, 100)} == there
    assert set(small.choose(100)) == {id for id, size in there.items() if size}


def test_the_tally_is_summed_up(small: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.index.remote.postgres_schema._TALLY_ROWS", 3)
    for number in range(12):
        small.put([_document(f"d{number}", np.ones((2, 3)))])
    assert small.count() == (12, 24)


def test_what_postgresql_cannot_keep_is_refused_before_anything_is_written(
    postgres: PostgresServer, model: BiEncoder
) -> None:
    with Index.create(postgres.address(_name()), model) as index:
        for broken in (
            {"text": "a\0b"},
            {"id": "a\0", "text": "a"},
            {"text": "a", "note": "\0"},
            {"text": "a", "no\0te": 1},
            {"id": "x" * 2001, "text": "a"},
        ):
            with pytest.raises(InputError, match=r"document 1 .*PostgreSQL"):
                index.add(["fine", broken])
        assert index.count == 0
        index.add([{"text": "a \\u0000 b", "id": "가" * 600}])
        assert index.get("가" * 600).text == "a \\u0000 b"
        assert "a\0" not in index


# --- failures ---------------------------------------------------------------------------------------------------------


def test_wrong_doors(postgres: PostgresServer, model: BiEncoder) -> None:
    hba = postgres.folder / "pg_hba.conf"
    hba.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
    postgres.execute("CREATE ROLE guarded LOGIN PASSWORD 'open sesame'")
    postgres.execute("SELECT pg_reload_conf()")
    name = _name()
    port = postgres.port
    own = f"postgresql://postgres@127.0.0.1:{port}/postgres?index={name}"
    for address, said in {
        f"postgresql://guarded:wrong-secret@127.0.0.1:{port}/postgres?index={name}": "refuses this user or password",
        f"postgresql://guarded@127.0.0.1:{port}/postgres?index={name}": "wants a password",
        f"postgresql://nobody@127.0.0.1:{port}/postgres?index={name}": "no such database or user",
        f"postgresql://postgres@127.0.0.1:{port}/nothing?index={name}": "no such database or user",
        f"postgresql://postgres@no-such-host.invalid/postgres?index={name}": "no host of that name",
        f"{own}&sslmode=require": "no TLS",
        f"{own}&sslmode=verify-full&sslrootcert=/no": "sslrootcert",
        f"{own}&ef_serch=3": "unknown parameter 'ef_serch'",
        f"{own}&m=1": "m must be",
        f"{own}&m=40&ef_construction=50": "at least 2 \\* m",
    }.items():
        with pytest.raises(InputError, match=said) as told:
            Index.open(address, model)
        assert "wrong-secret" not in str(told.value)
    address = f"postgresql://guarded:open sesame@127.0.0.1:{port}/postgres?index={name}"
    with pytest.raises(InputError, match="no index"):
        Index.open(address, model)
    with pytest.raises(DataError, match="grant it the right"):
        Index.create(address, model)
    with pytest.raises(DataError, match="tried 2 times"):
        Index.open(f"postgresql://postgres@127.0.0.1:1/postgres?index={name}&attempts=2&timeout=2", model)


class _Bare:
    """A cursor of a server that has no pgvector, or an old one."""

    def __init__(self, version: str | None) -> None:
        self._version = version

    def execute(self, query: str) -> _Bare:
        return self

    def fetchone(self) -> tuple[str] | None:
        return None if self._version is None else (self._version,)


@pytest.mark.parametrize(("version", "said"), [(None, "no pgvector: install"), ("0.4.4", "too old, 0.5 or later")])
def test_a_server_without_pgvector_says_so(version: str | None, said: str) -> None:
    engine = PostgresEngine(parse("postgresql://postgres@127.0.0.1:1/bare?index=x"))
    with pytest.raises(InputError, match=said):
        engine._check_extension(_Bare(version), make=True)  # type: ignore[arg-type]


def test_the_extension_is_switched_on_where_the_server_has_it(postgres: PostgresServer, model: BiEncoder) -> None:
    postgres.execute("CREATE DATABASE bare")
    with Index.create(f"postgresql://postgres@127.0.0.1:{postgres.port}/bare?index=x", model) as index:
        index.add(["비가 온다"])
        assert len(index.search("비")) == 1


def test_a_slow_server_is_stopped(postgres: PostgresServer, model: BiEncoder) -> None:
    name = _name()
    with Index.create(postgres.address(name, timeout=1), model) as index:
        index.add(["하나"])
        postgres.execute(
            f"CREATE FUNCTION munjang_{name}.slowly() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$; "
            f"CREATE TRIGGER slowly BEFORE INSERT ON munjang_{name}.passages FOR EACH ROW "
            f"EXECUTE FUNCTION munjang_{name}.slowly()"
        )
        with pytest.raises(DataError, match=r"longer than 1 s.*timeout=SECONDS"):
            index.add(["둘"])
        assert index.count == 1
        assert len(index.search("하나")) == 1


def test_a_full_disk_is_told_and_nothing_is_half_done(postgres: PostgresServer, model: BiEncoder) -> None:
    name = _name()
    with Index.create(postgres.address(name), model) as index:
        index.add(["하나"])
        postgres.execute(
            f"CREATE FUNCTION munjang_{name}.full() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; "
            f'CREATE TRIGGER "full" BEFORE INSERT ON munjang_{name}.passages FOR EACH ROW '
            f"EXECUTE FUNCTION munjang_{name}.full()"
        )
        with pytest.raises(DataError, match="disk is full"):
            index.add(["둘", "셋"])
        assert index.count == 1
        assert index.verify().ok


def test_a_newer_format_is_refused(postgres: PostgresServer, model: BiEncoder) -> None:
    name = _name()
    Index.create(postgres.address(name), model).close()
    ours, newer = f'"format": {FORMAT}', f'"format": {FORMAT + 1}'
    postgres.execute(f"UPDATE munjang_{name}.header SET content = replace(content, '{ours}', '{newer}')")
    with pytest.raises(DataError, match=f"format {FORMAT + 1}, which a newer munjang wrote"):
        Index.open(postgres.address(name), model)


def test_vectors_are_kept_whole(postgres: PostgresServer, model: BiEncoder) -> None:
    with pytest.raises(InputError, match="float32"):
        Index.create(postgres.address(_name()), model, options=IndexOptions(vectors="int8"))


def test_verify_sees_damage(postgres: PostgresServer, model: BiEncoder) -> None:
    name = _name()
    with Index.create(postgres.address(name), model) as index:
        index.add([{"id": "a", "text": "비"}, {"id": "b", "text": "빵"}])
        assert index.verify().ok
        postgres.execute(f"DELETE FROM munjang_{name}.passages WHERE row = 1")
        assert "has 1 passages" in str(index.verify())
        postgres.execute(f"DELETE FROM munjang_{name}.tally")
        assert "the server counts 0 documents" in str(index.verify())
