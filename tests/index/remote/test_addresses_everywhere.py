"""An address wherever a folder is: the command line and the service, over a real PostgreSQL."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from munjang.cli import main
from munjang.cli.serve import named
from munjang.encoders import BiEncoder
from munjang.errors import InputError
from munjang.index.index import Index
from munjang.index.remote.engine import Unreachable
from munjang.serve.errors import as_serve_error
from munjang.serve.settings import ServeSettings
from support.indexed import DOCUMENTS, bi_encoder, service
from support.postgres_server import PostgresServer

pytestmark = pytest.mark.server


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    """With a password, which the server does not ask for: it must show up nowhere."""
    plain = postgres.address(f"a{secrets.token_hex(5)}")
    return plain.replace("postgres@", "postgres:open-sesame@", 1)


def _run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert "open-sesame" not in out + err
    return status, out, err


def test_the_command_line(address: str, tmp_path: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"id": f"글 {n}", "text": f"비가 온다 {n} rain", "year": 2000 + n}) for n in range(8)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(lines[:6]))
    status, _, err = _run(capsys, "index", "create", address, file, "--model", model_folder)
    assert (status, "6 added" in err) == (0, True), err
    status, _, err = _run(capsys, "index", "create", address, file, "--model", model_folder)
    assert (status, "already" in err) == (1, True), err
    (tmp_path / "more.jsonl").write_text("\n".join(lines[4:]))
    status, _, err = _run(capsys, "index", "add", address, tmp_path / "more.jsonl")
    assert (status, "2 added, 0 replaced, 2 unchanged" in err) == (0, True), err
    assert _run(capsys, "index", "delete", address, "글 7")[0] == 0
    status, out, _ = _run(capsys, "index", "get", address, "글 3", "--json")
    assert json.loads(out)["metadata"] == {"year": 2003}
    status, out, _ = _run(capsys, "index", "info", address, "--json")
    facts = json.loads(out)
    assert (facts["documents"], facts["keyword"]) == (7, True)
    assert facts["server"].startswith("PostgreSQL")
    status, out, _ = _run(capsys, "search", address, "온다", "--mode", "hybrid", "--filter", "year>=2003", "--json")
    assert sorted(hit["id"] for hit in json.loads(out)["hits"]) == ["글 3", "글 4", "글 5", "글 6"]
    status, out, _ = _run(capsys, "index", "verify", address)
    assert (status, "all is well" in out) == (0, True)
    assert _run(capsys, "index", "compact", address)[0] == 0
    status, _, err = _run(capsys, "index", "export", address, tmp_path / "all.parquet")
    assert (status, "7 documents" in err) == (0, True), err
    status, _, err = _run(capsys, "index", "copy", address, tmp_path / "copy")
    assert (status, "both sides are the same" in err) == (0, True), err
    with Index.open(tmp_path / "copy") as copied:
        assert sorted(copied.ids()) == [f"글 {n}" for n in range(7)]
    status, _, err = _run(capsys, "index", "copy", tmp_path / "copy", address + "_2")
    assert status == 0, err
    with Index.open(address + "_2") as copied:
        assert copied.count == 7


def test_a_creation_that_fails_leaves_nothing_on_the_server(
    address: str,
    tmp_path: Path,
    model_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": "비가 온다"}))

    def failing(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BiEncoder, "encode_document", failing)
        status, _, err = _run(capsys, "index", "create", address, file, "--model", model_folder)
    assert status != 0
    assert "was not made" in err
    with pytest.raises(InputError, match="no index"):
        Index.open(address)


def test_two_services_share_one_index(address: str, tmp_path: Path) -> None:
    with Index.create(address, bi_encoder()) as index:
        index.add(DOCUMENTS)
    settings = ServeSettings(page=False, indexes={"faq": address})
    with service(settings, rerank=False) as one, service(settings, rerank=False) as two:
        (listed,) = one.get("/indexes").json()
        assert (listed["documents"], listed["keyword"]) == (24, True)
        assert {field["name"] for field in listed["fields"]} == {"year", "place", "date", "draft"}
        new = {"id": "새", "text": "새 글 new", "year": 1999}
        added = one.post("/documents/faq", json={"documents": [new]})
        assert added.status_code == 200, added.text
        body = {"query": "새 글", "filter": {"year": {"<": 2000}}, "mode": "hybrid"}
        answer = two.post("/search", json=body)
        assert [hit["id"] for hit in answer.json()["hits"]] == ["새"], answer.text
        refused = two.post("/search", json={"query": "비", "filter": {"nothing": 1}})
        assert refused.status_code in (400, 422)
        assert two.get("/metrics").status_code == 200


def test_names_of_indexes_on_the_command_line(tmp_path: Path) -> None:
    one, two = "postgresql://h/d?index=faq&m=4", "milvus://h/news"
    assert named([one, f"own={two}", "folder"], "INDEX") == {"faq": one, "own": two, "folder": "folder"}


def test_a_client_of_the_service_learns_nothing_of_the_server() -> None:
    told = as_serve_error(Unreachable("postgresql://kim:***@db.internal: the connection was lost"))
    assert told is not None
    assert told.status == 503
    assert "db.internal" not in str(told)
