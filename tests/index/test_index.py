"""The index: adding, replacing, deleting, searching; and every bad input as one clear error."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.index.adding import AddReport
from munjang.index.fusion import WEIGHT
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from munjang.types import Threshold
from support.indexing import TEXTS, Plain
from support.small_models import bi_encoder

DOCUMENTS = [{"id": place, "text": text, "year": 2000 + place} for place, text in enumerate(TEXTS)]


@pytest.fixture
def index(tmp_path: Path, model: BiEncoder) -> Iterator[Index]:
    with Index.create(tmp_path / "index", model) as index:
        yield index


@pytest.fixture
def plain(index: Index, model: BiEncoder) -> Plain:
    """The index filled, and what it should hold."""
    index.add(DOCUMENTS)
    return Plain(model, {str(one["id"]): (one["text"], {"year": one["year"]}) for one in DOCUMENTS})


def test_what_was_added_is_found_like_brute_force(index: Index, plain: Plain, tmp_path: Path, model: BiEncoder) -> None:
    plain.check_all(index)
    for k in (1, 3, 11):
        plain.check(index.search("rain 비", k, mode="semantic"), "rain 비", k)
    with Index.open(tmp_path / "index", model) as again:
        plain.check_all(again)
    assert index.get(3).text == TEXTS[3]
    assert index.get("3").metadata == {"year": 2003}
    assert "3" in index
    assert 3 in index
    assert "no" not in index
    assert list(index.ids()) == [str(one["id"]) for one in DOCUMENTS]
    assert len(index) == len(DOCUMENTS)


def test_the_report_counts(index: Index) -> None:
    first = index.add(DOCUMENTS)
    assert (first.added, first.replaced, first.unchanged, first.empty) == (len(TEXTS), 0, 0, 2)
    assert first.passages > len(TEXTS)
    again = index.add([*DOCUMENTS[:2], {"id": 2, "text": TEXTS[2], "year": 1}, {"id": 3, "text": "새 글"}])
    assert (again.added, again.replaced, again.unchanged, again.passages) == (0, 2, 2, 1)
    assert index.get(2).metadata == {"year": 1}
    assert index.get(3).metadata == {}


def test_other_metadata_is_no_new_encoding(index: Index, plain: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    index.search("비", filter={"year": 2001})

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("encoded")

    with monkeypatch.context() as patch:
        patch.setattr(BiEncoder, "encode_document", never)
        index.add([{"id": 1, "text": TEXTS[1], "year": 1999, "author": "김"}])
    plain.documents["1"] = (TEXTS[1], {"year": 1999, "author": "김"})
    plain.check_all(index)
    assert index.search("비", filter={"year": 1999}).ids == ["1"]
    assert index.search("비", filter={"author": "김"}).ids == ["1"]
    assert index.search("비", filter={"year": 2001}).ids == []


def test_documents_without_ids_get_some(index: Index) -> None:
    report = index.add(["하나", "둘", {"text": "둘", "id": None}])
    assert report.added == 3
    assert len(set(index.ids())) == 3
    assert index.add(["하나"]).added == 1


def test_a_stream_commits_on_the_way(index: Index) -> None:
    def stream() -> Iterator[dict[str, object]]:
        for number in range(10):
            if number == 9:
                raise RuntimeError("the source broke")
            yield {"id": number, "text": f"비 {number}"}

    with pytest.raises(RuntimeError, match="the source broke"):
        index.add(stream(), commit_every=4)
    assert list(index.ids()) == [str(number) for number in range(8)]
    with pytest.raises(InputError, match=r"document 5 .*\(the first 4 documents of this call are in the index"):
        index.add([{"id": f"n{n}", "text": "빵" if n != 5 else None} for n in range(9)], commit_every=4)
    assert sum(id.startswith("n") for id in index.ids()) == 4


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"text": 5}, "the text of document 3 must be a string, got int"),
        ({"id": "x"}, "document 3 has no 'text'"),
        (7, "document 3 must be a text or a dict"),
        ({"id": 1.5, "text": "a"}, "the id of document 3 must be a text or a whole number, got float"),
        ({"id": " ", "text": "a"}, "the id of document 3 is empty"),
        ({"id": "b", "text": "a"}, "the id 'b' came twice, as document 1 and as document 3"),
        ({"text": "a", "price": float("nan")}, "document 3: the field 'price' is nan"),
        ({"text": "a", "tags": ["x", {}]}, "document 3: a value in the list 'tags' must be .* got dict"),
        ({"text": "a", "when": object()}, "document 3: the field 'when' must be .* got object"),
        ({"text": "a", "n": 2**64}, "document 3: the field 'n' must fit into 64 bits"),
        ({"text": "half \ud800"}, "text 3 is not valid Unicode"),
        ({"text": "a", "f": "\udc00"}, "document 3: the field 'f' is not valid Unicode"),
    ],
)
def test_one_broken_document_leaves_nothing_behind(index: Index, broken: object, said: str) -> None:
    index.add([{"id": "there", "text": "비"}])
    with pytest.raises(InputError, match=said):
        index.add([{"id": "a", "text": "하나"}, {"id": "b", "text": "둘"}, {"id": "there", "text": "새 글"}, broken])
    assert [one.text for one in index.documents()] == ["비"]
    assert index.search("둘", k=5).ids == ["there"]


def test_a_broken_document_many_windows_on(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.index.documents.WINDOW_DOCUMENTS", 3)
    with pytest.raises(InputError, match="the id '2' came twice, as document 2 and as document 10"):
        index.add([{"id": number % 8 if number == 10 else number, "text": "비"} for number in range(12)])
    assert index.count == 0


def test_of_lists_added_together_one_that_fails_late_leaves_nothing(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("munjang.index.documents.WINDOW_DOCUMENTS", 3)
    index.add([{"id": "there", "text": "비"}])
    late = [{"id": "there", "text": "새 글"}, *({"id": f"late-{number}", "text": "비"} for number in range(5))]
    first, failed, last = index.add_together(
        [[{"id": "a", "text": "하나"}], [*late, {"id": "broken", "text": None}], [{"id": "b", "text": "둘"}]]
    )
    assert isinstance(failed, InputError)
    assert [one.added for one in (first, last) if isinstance(one, AddReport)] == [1, 1]
    assert {one.id: one.text for one in index.documents()} == {"there": "비", "a": "하나", "b": "둘"}
    assert "late-0" not in index.search("비", k=9).ids


@pytest.mark.parametrize("given", ["one text", {"text": "a"}, b"bytes", 5])
def test_documents_must_be_a_list(index: Index, given: object) -> None:
    with pytest.raises(InputError, match=r"documents.* a list of texts"):
        index.add(given)  # type: ignore[arg-type]


def test_deleting(index: Index, plain: Plain) -> None:
    assert index.delete(["0", 8, "nobody"]) == 2
    assert index.delete("1") == 1
    assert index.delete([]) == 0
    for id in "018":
        del plain.documents[id]
    plain.check_all(index)
    with pytest.raises(InputError, match="there is no document '8'"):
        index.get(8)
    index.add([{"id": 8, "text": "다시 비"}])
    plain.documents["8"] = ("다시 비", {})
    plain.check_all(index)


def test_a_very_long_document(index: Index, model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("munjang.index.cutting._PIECE", 2000)
    text = "비 " * 1000 + "골목" * 1500 + " 빵 bread" * 500
    report = index.add([{"id": "long", "text": text}, {"id": "short", "text": "우산"}])
    assert report.passages > 50
    covered = np.zeros(len(text), bool)
    with index._store.reading() as state:
        for _, start, stop in state.spans(state.numbers().tolist()).values():
            if stop <= len(text):
                covered[start:stop] = True
    assert all(covered[place] for place, sign in enumerate(text) if not sign.isspace())
    assert set(index.search("빵 bread", k=5).ids) == {"long", "short"}


def test_searching_by_words_and_both(index: Index, plain: Plain) -> None:
    words = index.search("umbrella", k=20, mode="keyword")
    assert set(words.ids) == {"5", "6"}
    assert words[0].stages[0].name == "keyword"
    both = index.search("umbrella", k=20, mode="hybrid")
    assert set(both.ids) == set(plain.scores("umbrella"))
    semantic = {hit.id: hit.stages[0].rank for hit in index.search("umbrella", k=20, mode="semantic")}
    keyword = {hit.id: hit.stages[0].rank for hit in words}
    assert index.search("umbrella", k=20).ids == both.ids  # by both is the default
    lowest = min(hit.stages[0].normalized or 0 for hit in both if hit.stages[0].name == "semantic")
    for rank, hit in enumerate(both, start=1):
        shares = {stage.name: stage.normalized for stage in hit.stages}
        expected = WEIGHT * shares.get("semantic", lowest) + (1 - WEIGHT) * shares.get("keyword", 0.0)  # type: ignore[operator]
        assert hit.score == shares["hybrid"] == pytest.approx(expected, rel=1e-5)
        assert 0 <= shares.get("keyword", 0.0) <= 1  # type: ignore[operator]
        assert [stage.name for stage in hit.stages] == (
            ["semantic", "keyword", "hybrid"] if hit.id in keyword else ["semantic", "hybrid"]
        )
        assert hit.stages[-1].rank == rank
        assert hit.stages[0].rank == semantic[hit.id]
    assert {"encode", "search", "keyword", "fetch", "total"} <= set(both.timings)


def test_a_hybrid_search_for_few_looks_as_deep_as_one_for_many(tmp_path: Path, model: BiEncoder) -> None:
    """What both stages have in the middle can beat what only one of them has on top."""
    with Index.create(tmp_path / "deep", model) as index:
        index.add(
            [{"id": str(i), "text": f"{'비 ' * (1 + i % 5)}umbrella rain {'눈 ' * (i % 7)}{i}"} for i in range(60)]
        )
        for query in ("비 umbrella", "눈 rain", "눈 눈 비", "umbrella 3"):
            many = index.search(query, k=60, mode="hybrid")
            few = index.search(query, k=3, mode="hybrid")
            assert few.ids == many.ids[:3]
            assert [hit.score for hit in few] == [hit.score for hit in many][:3]


def test_batches_are_single_searches(index: Index, plain: Plain, model: BiEncoder) -> None:
    queries = ["비", "bread", "우산을 찾는 people"]
    for results, query in zip(index.search_many(queries, 4, mode="semantic"), queries, strict=True):
        plain.check(results, query, 4)
    vectors = model.encode_query(queries)
    assert [one.ids for one in index.search_many(vectors, 4)] == [
        one.ids for one in index.search_many(queries, 4, mode="semantic")
    ]
    assert index.search(vectors[1], 4).ids == index.search("bread", 4, mode="semantic").ids
    assert index.search(vectors[1].tolist(), 4).ids == index.search("bread", 4, mode="semantic").ids
    assert index.search_many([], 4) == []
    found = index.nearest(vectors, 5)
    assert found.numbers.shape == found.scores.shape == (3, 5)
    assert found.scores[1, 0] == pytest.approx(index.search("bread", 1, mode="semantic")[0].score)


def test_more_like_never_finds_itself(index: Index, plain: Plain, reranker: CrossEncoder) -> None:
    for id in ("0", "8"):
        results = index.more_like(id, k=50)
        assert set(results.ids) == set(plain.scores("a")) - {id}
    assert index.more_like(8, k=50, filter={"year": [2008, 2001]}).ids == ["1"]
    assert "0" not in index.more_like(0, k=3, reranker=reranker).ids
    with pytest.raises(InputError, match="there is no document 'x'"):
        index.more_like("x")
    with pytest.raises(InputError, match="has no words"):
        index.more_like(12)


def test_the_reranker_gets_the_candidates(index: Index, plain: Plain, reranker: CrossEncoder) -> None:
    first = index.search("빵 bread", k=6, mode="semantic")
    results = index.search("빵 bread", k=3, mode="semantic", reranker=reranker, candidates=6)
    texts = {hit.id: hit.passage.text for hit in first}
    scores = dict(zip(texts, reranker.predict([("빵 bread", text) for text in texts.values()]), strict=True))
    assert results.ids == sorted(scores, key=lambda id: -scores[id])[:3]
    for place, hit in enumerate(results):
        assert hit.text == plain.documents[hit.id][0]
        assert hit.moved == first.ids.index(hit.id) - place
        assert [stage.name for stage in hit.stages] == ["semantic", "rerank"]
    assert results.scored == 6
    assert results.timings["rerank"] > 0


def test_no_good_answer(tmp_path: Path, model: BiEncoder) -> None:
    knowing = model.with_thresholds({"answer": Threshold(0.999, "answer", "an answer")})
    with Index.create(tmp_path / "index", knowing) as index:
        index.add(["비가 온다.", "bread"])
        assert index.search("비가 온다.").answered is True
        assert index.search("우산").answered is False
        assert index.search("우산", filter=None, mode="keyword").answered is None


def test_an_empty_index_finds_nothing(index: Index) -> None:
    for mode in ("semantic", "keyword", "hybrid"):
        assert list(index.search("비", mode=mode)) == []
    assert list(index.search("비", filter={"anything": 1})) == []
    index.add(["", "  "])
    assert list(index.search("비")) == []
    assert index.verify().ok


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"query": "비", "k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"query": "비", "k": 2.5}, "k must be a whole number"),
        ({"query": " \n"}, "the query is empty"),
        ({"query": np.zeros(3, np.float32)}, r"query vectors must be \[queries, 32\]"),
        ({"query": np.full(32, np.nan)}, "must be finite"),
        ({"query": np.zeros(32), "mode": "keyword"}, "only be searched for by mode='semantic'"),
        ({"query": "비", "mode": "magic"}, "mode must be one of semantic, keyword, hybrid, got 'magic'"),
        ({"query": "비", "candidates": 0}, "candidates must be a whole number"),
        ({"query": "비", "candidates": 5, "rerank_budget": 1.0}, "candidates or rerank_budget, not both"),
        ({"query": "비", "rerank_budget": -1}, "rerank_budget must be seconds, 0 or more"),
        ({"query": "비", "reranker": "a name"}, "reranker must be a"),
        ({"query": "비", "filter": {"colour": "red"}}, "no document has the field 'colour'; the fields are: 'year'"),
        ({"query": "비", "filter": {"year": "2001"}}, "'year' = '2001' compares with a text, but .* are numbers"),
        ({"query": "비", "filter": 5}, "filter must be a dict, a text or None, got int"),
        ({"query": 5}, "query"),
    ],
)
def test_bad_searches(index: Index, plain: Plain, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        index.search(**arguments)  # type: ignore[arg-type]


def test_without_keywords(tmp_path: Path, model: BiEncoder) -> None:
    with Index.create(tmp_path / "index", model, options=IndexOptions(keyword=False)) as index:
        index.add(["비"])
        with pytest.raises(InputError, match="created with keyword=False"):
            index.search("비", mode="hybrid")
        assert index.search("비").mode == "semantic"
        assert index.verify().ok


@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_small_vectors_are_nearly_as_good(tmp_path: Path, model: BiEncoder, kind: str) -> None:
    with Index.create(tmp_path / "index", model, options=IndexOptions(vectors=kind)) as index:  # type: ignore[arg-type]
        index.add(DOCUMENTS)
        best = Plain(model, {str(one["id"]): (one["text"], {}) for one in DOCUMENTS}).scores("빵 냄새")
        results = index.search("빵 냄새", k=20, mode="semantic")
        assert set(results.ids) == set(best)
        for hit in results:
            assert hit.score == pytest.approx(best[hit.id], abs=0.02)
        assert index.verify().ok
        with index._store.reading() as state:
            sizes = state.connection.execute("SELECT DISTINCT length(vector) FROM vectors").fetchall()
        assert sizes == [(4 + 32,)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vectors": "float16"}, "vectors must be one of float32, int8, binary"),
        ({"chunk_tokens": 0}, "chunk_tokens must be a whole number of at least 1"),
        ({"chunk_tokens": 65}, r"chunk_tokens must be 3..64 .* got 65"),
        ({"chunk_tokens": 10, "stride": 9}, r"stride must be 1..8"),
        ({"exact_up_to": -1}, "exact_up_to must be a whole number of at least 0"),
        ({"keyword": "yes"}, "keyword must be True or False"),
        ({"title": " "}, "title must be the name of a field"),
    ],
)
def test_bad_options(tmp_path: Path, model: BiEncoder, options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Index.create(tmp_path / "index", model, options=IndexOptions(**options))  # type: ignore[arg-type]
    assert not (tmp_path / "index").exists()


# --- what cannot be opened --------------------------------------------------------------------------------------------


def test_places_that_are_no_index(tmp_path: Path, model: BiEncoder) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"there is no index at .*nowhere \(no such folder\)"):
        Index.open(tmp_path / "nowhere", model)
    with pytest.raises(InputError, match=r"an index is a folder, but .* is a file"):
        Index.open(tmp_path / "file", model)
    with pytest.raises(InputError, match="is not an index"):
        Index.open(tmp_path / "other", model)
    with pytest.raises(InputError, match="is a file"):
        Index.create(tmp_path / "file", model)
    with pytest.raises(InputError, match=r"is not empty \(it holds notes.txt\)"):
        Index.create(tmp_path / "other", model)
    with pytest.raises(InputError, match="bi-encoder"):
        Index.create(tmp_path / "new", "a name")  # type: ignore[arg-type]
    Index.create(tmp_path / "index", model).close()
    with pytest.raises(InputError, match=r"there is an index at .* already: Index.open opens it"):
        Index.create(tmp_path / "index", model)


def test_a_creation_that_was_interrupted_is_made_again(tmp_path: Path, model: BiEncoder) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "documents.sqlite3").touch()
    with pytest.raises(InputError, match="creation was interrupted"):
        Index.open(folder, model)
    with Index.create(folder, model) as index:
        index.add(["비"])
        assert index.count == 1


def test_another_model_is_refused(tmp_path: Path, model: BiEncoder) -> None:
    Index.create(tmp_path / "index", model).close()
    with pytest.raises(
        ModelError, match=r"was made by another model.*weights, tokenizer, pooling or max_length differ"
    ):
        Index.open(tmp_path / "index", bi_encoder("roberta"))
    with pytest.raises(ModelError, match="not on disk"):
        _ = Index.open(tmp_path / "index").model


@pytest.mark.usefixtures("exact")
def test_the_model_is_found_again(tmp_path: Path, model: BiEncoder) -> None:
    model.save(tmp_path / "model")
    saved = BiEncoder.load(tmp_path / "model", device="cpu", dtype="float32")
    saved.truncate_dim, saved.max_length = 16, 32
    with Index.create(tmp_path / "index", saved) as index:
        index.add(DOCUMENTS)
        expected = index.search("비", k=3).ids
    with Index.open(tmp_path / "index") as again:
        assert again.dimension == again.model.dimension == 16
        assert again.model.max_length == 32
        assert again.search("비", k=3).ids == expected
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"was made by .*model, which cannot be loaded"):
        _ = Index.open(tmp_path / "index").model


def test_a_newer_format_is_refused(tmp_path: Path, model: BiEncoder) -> None:
    Index.create(tmp_path / "index", model).close()
    database = sqlite3.connect(tmp_path / "index" / "documents.sqlite3")
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(DataError, match="has index format 9, which a newer munjang wrote; this one reads up to 2"):
        Index.open(tmp_path / "index", model)
    foreign = sqlite3.connect(tmp_path / "index" / "documents.sqlite3")
    foreign.execute("PRAGMA application_id = 5")
    foreign.close()
    with pytest.raises(InputError, match="database of another program"):
        Index.open(tmp_path / "index", model)


def test_a_closed_index_says_so(tmp_path: Path, model: BiEncoder) -> None:
    index = Index.create(tmp_path / "index", model)
    index.close()
    index.close()
    with pytest.raises(InputError, match="is closed"):
        index.search("비")
    with pytest.raises(InputError, match="is closed"):
        index.add(["비"])


def test_a_second_writer_gets_an_error_at_once(index: Index, plain: Plain, tmp_path: Path, model: BiEncoder) -> None:
    other = Index.open(tmp_path / "index", model)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        yield "하나"
        entered.set()
        go_on.wait(20)
        yield "둘"

    thread = threading.Thread(target=index.add, args=(slow(),))
    thread.start()
    assert entered.wait(20)
    for call in (lambda: other.add(["셋"]), lambda: other.delete(["0"]), other.compact):
        with pytest.raises(DataError, match=r"is being written by another process .* one writer at a time"):
            call()
    plain.check_all(other)  # what the first has not committed is not there
    go_on.set()
    thread.join()
    assert other.count == len(DOCUMENTS) + 2
    other.add(["셋"])
    other.close()


def test_threads_of_one_index(index: Index, model: BiEncoder) -> None:
    index.add([{"id": f"start{n}", "text": f"비 {n}", "n": n} for n in range(20)])
    errors: list[BaseException] = []

    def guarded(function: object) -> None:
        try:
            function()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    def write(name: str) -> None:
        for number in range(8):
            index.add([{"id": f"{name}{number}", "text": f"빵 {name} {number}", "n": number}])
            index.delete([f"start{number}"])

    def search() -> None:
        for number in range(15):
            mode = ("semantic", "keyword", "hybrid")[number % 3]
            results = index.search("비 빵", k=100, mode=mode, filter={"n": {"<": 5}})
            assert all(hit.metadata["n"] < 5 for hit in results)

    threads = [threading.Thread(target=guarded, args=(lambda n=name: write(n),)) for name in ("a", "b")]
    threads += [threading.Thread(target=guarded, args=(search,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(index.ids()) == {f"{n}{i}" for n in "ab" for i in range(8)} | {f"start{n}" for n in range(8, 20)}
    assert len(index.search("비", k=100)) == 28
    assert index.verify().ok


def test_compacting_keeps_everything(index: Index, plain: Plain) -> None:
    index.add([{"id": f"x{n}", "text": "비 " * 50 + str(n)} for n in range(300)])
    index.delete([f"x{n}" for n in range(300)])
    before = index.describe()["bytes"]["documents"]  # type: ignore[index]
    index.compact()
    assert index.describe()["bytes"]["documents"] < before  # type: ignore[index]
    plain.check_all(index)
    index.add([{"id": "0", "text": "새 비"}])
    plain.documents["0"] = ("새 비", {})
    plain.check_all(index)
    assert index.verify().ok
