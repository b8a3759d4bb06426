"""`munjang search`, in this process, with tiny real models: what is shown, what is written, what is refused."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from munjang.cli import main
from munjang.cli.hits import arrow, excerpt, facts, shown, wrapped
from munjang.cli.search import summary
from munjang.index.index import Index
from munjang.index.results import Hit, Passage, Results, Stage
from munjang.report.tables import width
from munjang.types import Threshold
from support import small_models

Run = Callable[..., tuple[int, str, str]]
DOCUMENTS: list[dict[str, Any]] = [
    {"id": "rain-ko", "text": "비가 오는 날에 우산 없이 걷다", "kind": "날씨", "year": 2020},
    {"id": "rain-en", "text": "When it rains, people have no umbrella", "kind": "날씨", "year": 2023},
    {"id": "bread-ko", "text": "빵 냄새를 따라 골목 끝까지 갔다", "kind": "음식", "year": 2021},
    {"id": "bread-en", "text": "a bakery at the end of the street", "kind": "음식"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, its model, a reranker that is never content, and one with labels."""
    folder = tmp_path_factory.mktemp("search")
    model = small_models.bi_encoder()
    model.save(folder / "model")
    never = {"answer": Threshold(1.0, "answer", "never reached")}
    small_models.cross_encoder().with_thresholds(never).save(folder / "reranker")
    small_models.cross_encoder(labels=3).save(folder / "labeller")
    import munjang

    with Index.create(folder / "i", munjang.load(folder / "model", device="cpu", dtype="float32")) as index:
        index.add(DOCUMENTS)
    with Index.create(folder / "empty", munjang.load(folder / "model", device="cpu", dtype="float32")):
        pass
    return folder


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the folder: exit status, stdout, stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("MUNJANG_RERANKER", raising=False)

    def command(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        status = main(["search", *arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_hits_on_a_terminal(run: Run, folder: Path) -> None:
    status, out, err = run("i", "빵 냄새를 따라 골목 끝까지 갔다", "-k", "2", "--mode", "semantic")
    assert status == 0
    first = out.splitlines()
    assert first[0].startswith(" 1. 1.0000  bread-ko   semantic")
    assert first[1] == "    빵 냄새를 따라 골목 끝까지 갔다"
    assert first[2] == "    kind: 음식 · year: 2021"
    assert first[3].startswith(" 2. ")
    assert "2 hits in " in err
    assert "encode" in err


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
def test_json_is_what_the_library_says(run: Run, folder: Path, mode: Any) -> None:
    status, out, _ = run("i", "빵 냄새", "--mode", mode, "--json", "-q")
    assert status == 0
    (answer,) = lines(out)
    with Index.open(folder / "i") as index:
        results = index.search("빵 냄새", mode=mode)
    assert [hit["id"] for hit in answer["hits"]] == results.ids
    assert (answer["query"], answer["mode"], answer["answered"]) == ("빵 냄새", mode, None)
    for one, hit in zip(answer["hits"], results, strict=True):
        assert [stage["name"] for stage in one["stages"]] == [stage.name for stage in hit.stages]
        assert one["score"] == pytest.approx(hit.score, rel=1e-5)
        assert one["passage"]["text"] == hit.text[hit.passage.start : hit.passage.end]
        assert one["metadata"] == dict(hit.metadata)


def test_reranked(run: Run) -> None:
    status, out, err = run("i", "우산", "--rerank", "reranker", "--json", "--device", "cpu")
    assert status == 0
    (answer,) = lines(out)
    assert answer["answered"] is False
    assert answer["scored"] == 4
    assert [hit["stages"][-1]["rank"] for hit in answer["hits"]] == [1, 2, 3, 4]
    for hit in answer["hits"]:
        assert hit["moved"] == hit["stages"][-2]["rank"] - hit["rank"]
        assert 0 <= hit["score"] <= 1
    assert "model: reranker" in err
    _, out, err = run("i", "우산", "--rerank", "reranker", "-k", "4")
    assert "no good answer" in err
    assert "the reranker read 4 passages" in err
    for hit in answer["hits"]:
        if hit["moved"]:
            assert f"{arrow(hit['moved'])}  {hit['id']}" in out


def test_how_many_are_reranked(run: Run, tmp_path: Path) -> None:
    for extra, read in ((("--candidates", "2"), 2), (("--rerank-budget", "5"), 4)):
        assert f"the reranker read {read} passages" in run("i", "우산", "-k", "1", *extra, "--rerank", "reranker")[2]
    status, _, err = run("i", "우산", "--candidates", "2", "--rerank-budget", "1", "--rerank", "reranker")
    assert status == 1
    assert "candidates or rerank_budget, not both" in err


def test_by_both_is_the_default(run: Run) -> None:
    assert run("i", "우산", "--json")[1].splitlines()[0].startswith('{"query": "우산", "mode": "hybrid"')


def test_the_reranker_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNJANG_RERANKER", "reranker")
    status, _, err = run("i", "우산", "--rerank", "--candidates", "2", "-k", "1")
    assert status == 0
    assert "model: reranker (from MUNJANG_RERANKER)" in err
    assert "the reranker read 2 passages" in err


def test_filters(run: Run) -> None:
    def found(condition: str) -> set[str]:
        status, out, err = run("i", "비", "--filter", condition, "--json")
        assert status == 0, err
        return {hit["id"] for hit in lines(out)[0]["hits"]}

    assert found("kind=날씨 and year>=2021") == {"rain-en"}
    assert found("not (kind in 날씨,다른것)") == {"bread-ko", "bread-en"}
    assert found("year<1900") == set()


def test_more_like(run: Run) -> None:
    status, out, _ = run("i", "--more-like", "rain-ko", "--json")
    assert status == 0
    (answer,) = lines(out)
    assert {hit["id"] for hit in answer["hits"]} == {"rain-en", "bread-ko", "bread-en"}
    assert "there is no document 'x'" in run("i", "--more-like", "x")[2]


def test_a_batch(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.cli.search._BATCH", 2)
    queries = ["비가 온다", "bakery", "우산", "빵 냄새", "street"]
    (folder / "q.txt").write_text("\n".join(queries), encoding="utf-8")
    status, out, _ = run("i", "--batch", "q.txt", "-k", "2", "--json")
    assert status == 0
    assert [answer["query"] for answer in lines(out)] == queries
    for query, answer in zip(queries, lines(out), strict=True):
        one = lines(run("i", query, "-k", "2", "--json")[1])[0]
        assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in answer["hits"]]
    (folder / "q.csv").write_text("n,질문\n1,비\n2,빵\n", encoding="utf-8")
    status, out, _ = run("i", "--batch", "q.csv", "--column", "질문", "-k", "1")
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("# ")] == ["# 비", "# 빵"]
    assert [answer["query"] for answer in lines(run("i", "-", "--json", stdin="비\n빵\n")[1])] == ["비", "빵"]


def test_into_a_file(run: Run, folder: Path) -> None:
    assert run("i", "비", "-o", "out.jsonl")[:2] == (0, "")
    (answer,) = lines((folder / "out.jsonl").read_text(encoding="utf-8"))
    assert len(answer["hits"]) == 4
    assert "pass --overwrite" in run("i", "비", "-o", "out.jsonl")[2]
    assert run("i", "비", "-o", "out.jsonl", "--overwrite")[0] == 0


def test_few_and_none(run: Run) -> None:
    assert len(lines(run("i", "비", "-k", "1000", "--json")[1])[0]["hits"]) == 4
    status, out, err = run("empty", "비")
    assert (status, out) == (0, "")
    assert "0 hits" in err
    assert lines(run("empty", "비", "--json", "--filter", "year=1")[1])[0]["hits"] == []


def test_what_is_refused(run: Run, folder: Path) -> None:
    for arguments, message in (
        (["i", "비", "--filter", "colour=red"], "no document has the field 'colour'; the fields are: 'kind', 'year'"),
        (["i", "비", "--filter", "kind=="], "filter: expected a value"),
        (["i", "비", "--filter", "year>=new"], "the values of 'year' are numbers"),
        (["i", " "], "the query is empty"),
        (["i", "비", "--rerank", "labeller"], "gives one score"),
        (["i", "비", "--rerank", "model"], "model was never trained to rerank"),
        (["none", "비"], "there is no index at none"),
        (["model", "비"], "model is not an index"),
        (["i", "비", "--model", "other"], "no model 'other'"),
        (["i", "--batch", "none.txt"], "there is no such file"),
        (["i", "-", "--json"], "query 2 is empty"),
    ):
        status, out, err = run(*arguments, stdin="비\n\n빵\n")
        assert status == 1, arguments
        assert out == ""
        assert message in err
        assert "fault in munjang" not in err
    for arguments in (
        ["i"],
        ["i", "비", "--more-like", "rain-ko"],
        ["i", "비", "-k", "0"],
        ["i", "비", "--mode", "fuzzy"],
        ["i", "--more-like", "rain-ko", "--mode", "hybrid"],
        ["i", "비", "--column", "x"],
        ["i", "비", "-o", "x.csv"],
    ):
        with pytest.raises(SystemExit) as left:
            run(*arguments)
        assert left.value.code == 2


def test_a_query_that_rerank_took_for_a_model(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("i", "--rerank", "비가 오면 어떻게 하나요")
    assert "--rerank took '비가 오면 어떻게 하나요' as its model: put the query before it" in capsys.readouterr().err


# --- words ------------------------------------------------------------------------------------------------------------


def test_moves_and_facts() -> None:
    assert [arrow(moved) for moved in (3, -2, 0)] == [" ▲3", " ▼2", ""]
    assert facts({"kind": "날씨", "tags": ["a", 2]}) == "kind: 날씨 · tags: a, 2"


def test_the_best_part_of_a_passage() -> None:
    text = "첫 문장은 다른 이야기다. " * 10 + "우산을 어디서 사나요? 역 앞 가게에 있다. " + "끝 문장도 다르다. " * 10
    part = excerpt(text, "우산은 어디서 사요", 70)
    assert "우산을 어디서 사나요?" in part
    assert part.startswith("… ")
    assert part.endswith(" …")
    assert width(part) <= 70
    assert excerpt("짧은 글", "질문", 70) == "짧은 글"
    assert excerpt("가운데", "질문", 70, around=(True, True)) == "… 가운데 …"


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=20), st.integers(20, 90))
def test_an_excerpt_keeps_its_width(text: str, query: str, cells: int) -> None:
    assert width(excerpt(text, query, cells)) <= cells
    assert all(width(line) <= cells for line in wrapped(text, cells))
    assert "".join("".join(wrapped(text, cells)).split()) == "".join("".join(wrapped(text, 1000)).split())


def test_a_hit_within_a_long_text() -> None:
    text = "앞 글. 우산을 쓴다. 뒤 글."
    stages = (Stage("keyword", 12.5, 6), Stage("rerank", 0.5, 7))
    hit = Hit("a\nb", text, {}, Passage("우산을 쓴다.", 6, 13), 0.5, stages, moved=-1)
    assert shown(hit, 7, "우산").splitlines() == [
        " 7. 0.5000 ▼1  a b   keyword 12.5 (rank 6), rerank 0.5 (rank 7)",
        "    … 우산을 쓴다. …",
    ]


def test_summary() -> None:
    assert summary(Results(())) == "0 hits"
    timed = Results((), {"encode": 0.0104, "rerank": 0.05, "total": 0.0604}, scored=7, answered=False)
    assert summary(timed) == (
        "0 hits in 60 ms (encode 10, rerank 50); the reranker read 7 passages; no good answer: no hit reaches the"
        " reranker's threshold"
    )
