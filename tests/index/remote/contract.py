"""What every index does, wherever it lies: one suite for the folder, PostgreSQL and Milvus.

A module of tests makes a class of it and a fixture `place`, which gives a new address (or folder) for every name:

    class TestFolder(Contract):
        @pytest.fixture
        def place(self, tmp_path): return lambda name: str(tmp_path / name)

The folder index in `twin` and brute force (`Plain`) say what is right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError, ModelError
from munjang.index.index import Index
from munjang.index.options import IndexOptions
from munjang.index.results import Results
from support.indexing import TEXTS, Plain
from support.small_models import bi_encoder

Place = Callable[[str], str]
PLACES = ["부산", "서울", "Paris", "Rome"]
DOCUMENTS: list[dict[str, Any]] = [
    {"id": place, "text": text, "year": 2000 + place} for place, text in enumerate(TEXTS)
]
FACTS: list[dict[str, Any]] = [
    {
        "id": f"글/{number} '\"%s\\",
        "text": f"비가 온다 {number}. It is raining in {PLACES[number % 4]}; 우산 {number} bread.",
        "year": 2000 + number,
        "score": number / 4 - 1,
        "place": PLACES[number % 4],
        "date": f"2024-03-{number + 1:02}",
        "draft": number % 3 == 0,
        "tags": [name for bit, name in enumerate(["가", "b", "it's"]) if number >> bit & 1],
        "mixed": number if number % 2 else f"{number}",
        "large": 2**53 + number,
        **({"note": None} if number % 5 == 0 else {"note": f'"{number}" \\ % $ ; --'} if number % 5 == 1 else {}),
    }
    for number in range(24)
]
FILTERS: list[Any] = [
    {"place": "서울"},
    {"place": {"!=": "서울"}},
    {"place": ["서울", "Rome", "없는 곳"]},
    {"place": {"not in": ["서울", "Rome"]}},
    {"place": {">=": "Q"}},
    {"place": {"<": "부산"}},
    {"year": 2003},
    {"year": 2003.0},
    {"year": {">=": 2005, "<": 2012}},
    {"year": {">": 2020.5}},
    {"year": {"in": [2001, 2004, 9999]}},
    {"score": {"<=": 0}},
    {"score": 0.25},
    {"score": {">": -0.6}},
    {"date": {">=": "2024-03-10", "<=": "2024-03-12"}},
    {"draft": True},
    {"draft": {"!=": True}},
    {"tags": "가"},
    {"tags": ["b", "it's"]},
    {"tags": {"!=": "가"}},
    {"tags": {"exists": False}},
    {"tags": {">": "c"}},
    {"note": {"exists": True}},
    {"note": None},
    {"note": '"6" \\ % $ ; --'},
    {"mixed": 3},
    {"mixed": "4"},
    {"mixed": {"<": 10}},
    {"mixed": {">=": "5"}},
    {"large": 2**53 + 1},
    {"large": {">": 2**53 + 20}},
    {"year": {"<": 1e308}},
    {"or": [{"place": "Rome"}, {"year": {"<": 2003}}], "draft": False},
    {"not": {"or": [{"place": "Rome"}, {"tags": "b"}]}},
    {"not": {"not": {"place": "Paris"}}},
    "place=서울 and year>=2005",
    "mixed in 3,4 or note exists",
    "not (draft=true) and tags not in b",
    "place = 'no such place'",
]
WRONG_FILTERS: list[Any] = [
    {"unknown": 1},
    {"place": 3},
    {"year": "2003"},
    {"draft": {">": True}},
    {"draft": "true"},
    "year='2003'",
]


class Contract:
    """The tests; a subclass says where."""

    can_keyword = True

    @pytest.fixture
    def index(self, place: Place, model: BiEncoder) -> Iterator[Index]:
        with Index.create(place("one"), model) as index:
            yield index

    @pytest.fixture
    def plain(self, index: Index, model: BiEncoder) -> Plain:
        index.add(DOCUMENTS)
        return Plain(model, {str(one["id"]): (one["text"], {"year": one["year"]}) for one in DOCUMENTS})

    @pytest.fixture
    def twin(self, tmp_path: Path, model: BiEncoder) -> Iterator[Index]:
        """The same documents in a folder."""
        with Index.create(tmp_path / "twin", model) as twin:
            twin.add(FACTS)
            yield twin

    def test_what_was_added_is_found_like_brute_force(
        self, index: Index, plain: Plain, place: Place, model: BiEncoder
    ) -> None:
        plain.check_all(index)
        for k in (1, 3, 11):
            plain.check(index.search("rain 비", k, mode="semantic"), "rain 비", k)
        with Index.open(place("one"), model) as again:
            plain.check_all(again)
        assert index.get(3).text == TEXTS[3]
        assert index.get("3").metadata == {"year": 2003}
        assert ("3" in index, 3 in index, "no" in index, 2.5 in index) == (True, True, False, False)
        assert sorted(index.ids(), key=int) == [str(one["id"]) for one in DOCUMENTS]
        assert len(index) == len(DOCUMENTS)
        with pytest.raises(InputError, match="no document 'no'"):
            index.get("no")

    def test_the_report_counts(self, index: Index) -> None:
        told: list[int] = []
        first = index.add(DOCUMENTS, progress=lambda done, total: told.append(done))
        assert (first.added, first.replaced, first.unchanged, first.empty) == (len(TEXTS), 0, 0, 2)
        assert first.passages > len(TEXTS)
        assert told[-1] == len(TEXTS)
        again = index.add([*DOCUMENTS[:2], {"id": 2, "text": TEXTS[2], "year": 1}, {"id": 3, "text": "새 글"}])
        assert (again.added, again.replaced, again.unchanged, again.passages) == (0, 2, 2, 1)
        assert index.get(2).metadata == {"year": 1}
        assert index.get(3).metadata == {}

    def test_lists_added_together_fail_alone_and_replace_each_other(self, index: Index, model: BiEncoder) -> None:
        index.add([{"id": "old", "text": TEXTS[3]}, {"id": "same", "text": TEXTS[4]}])
        lists: list[list[dict[str, object]]] = [
            [{"id": "a", "text": TEXTS[3]}, {"id": "old", "text": "새 글"}],
            [{"id": "b", "text": TEXTS[4]}, {"id": "b", "text": "twice"}],
            [{"id": "c", "text": float("nan")}],
            [],
            [{"id": "a", "text": "rain"}, {"id": "old", "text": TEXTS[3]}, {"id": "same", "text": TEXTS[4]}],
        ]
        ahead = index.passages_to_encode(lists[4])
        assert ahead == ["rain"]  # the others are stored as they come
        first, twice, broken, empty, last = index.add_together(lists)
        assert isinstance(twice, InputError)
        assert "twice" in str(twice)
        assert isinstance(broken, InputError)
        assert [(one.added, one.replaced, one.unchanged) for one in (first, empty, last)] == [
            (1, 1, 0),
            (0, 0, 0),
            (0, 2, 1),
        ]
        texts = {"a": "rain", "old": TEXTS[3], "same": TEXTS[4]}
        Plain(model, {id: (text, {}) for id, text in texts.items()}).check_all(index)

    def test_replacing_a_long_text_by_a_short_one_and_back(self, index: Index, plain: Plain) -> None:
        long = TEXTS[8] + TEXTS[9]
        for text in ("short 빵", long, "", TEXTS[8], "비"):
            index.add([{"id": 8, "text": text, "year": 1}])
            plain.documents["8"] = (text, {"year": 1})
            plain.check_all(index)

    def test_other_metadata_is_no_new_encoding(
        self, index: Index, plain: Plain, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    def test_deleting(self, index: Index, plain: Plain) -> None:
        assert index.delete(["1", 8, "no"]) == 2
        assert index.delete("1") == 0
        del plain.documents["1"], plain.documents["8"]
        plain.check_all(index)
        assert "8" not in index
        assert index.delete([str(one["id"]) for one in DOCUMENTS]) == len(DOCUMENTS) - 2
        assert (index.count, index.search("비").ids, list(index.documents())) == (0, [], [])
        index.add(DOCUMENTS)
        assert index.count == len(DOCUMENTS)

    def test_documents_without_ids_get_some(self, index: Index) -> None:
        assert index.add(["하나", "둘", {"text": "둘", "id": None}]).added == 3
        assert sorted(one.text for one in index.documents()) == ["둘", "둘", "하나"]

    def test_an_empty_index_finds_nothing(self, index: Index) -> None:
        assert (index.count, index.search("비").ids, list(index.ids())) == (0, [], [])
        assert index.search("비", filter={"year": 2000}).ids == []
        assert index.add([]).documents == 0

    def test_ids_are_kept_as_they_are(self, index: Index) -> None:
        names = ["a", "A", " a", "é", "e\u0301", "글/1", "'; DROP TABLE x; --", '"', "%s", "\\", "a" * 200, "🙂", "1"]
        index.add([{"id": name, "text": f"text {place}"} for place, name in enumerate(names)])
        assert set(index.ids()) == set(names)
        assert [index.get(name).text for name in names] == [f"text {place}" for place in range(len(names))]
        assert index.delete(["a", '"', "%s"]) == 3
        assert set(index.ids()) == set(names) - {"a", '"', "%s"}

    # --- filters -----------------------------------------------------------------------------------------------------

    def test_filters_answer_as_in_a_folder(self, index: Index, twin: Index) -> None:
        index.add(FACTS)
        for filter in FILTERS:
            for k in (3, 100):
                ours, theirs = (one.search("빵 rain", k, mode="semantic", filter=filter) for one in (index, twin))
                assert _scores(ours) == pytest.approx(_scores(theirs), abs=2e-5), filter
                if k == 100:
                    assert sorted(ours.ids) == sorted(theirs.ids), filter

    def test_filters_that_can_find_nothing_are_errors(self, index: Index, twin: Index) -> None:
        index.add(FACTS)
        for filter in WRONG_FILTERS:
            with pytest.raises(InputError) as ours:
                index.search("비", filter=filter)
            with pytest.raises(InputError) as theirs:
                twin.search("비", filter=filter)
            assert str(ours.value) == str(theirs.value)

    # --- searching ---------------------------------------------------------------------------------------------------

    def test_searching_by_words_and_both(self, index: Index, twin: Index) -> None:
        index.add(FACTS)
        if not self.can_keyword:
            for mode in ("keyword", "hybrid"):
                with pytest.raises(InputError, match="only 'semantic'"):
                    index.search("우산", mode=mode)  # type: ignore[arg-type]
            return
        for query in ("우산은 17", "raining Rome", '"Paris" 비', "없는말", '"없는말" 비'):
            for filter in (None, {"year": {"<": 2010}}):
                ours = index.search(query, 30, mode="keyword", filter=filter)
                theirs = twin.search(query, 30, mode="keyword", filter=filter)
                assert _scores(ours) == pytest.approx(_scores(theirs), rel=1e-4), query
                assert sorted(ours.ids) == sorted(theirs.ids)
                near = index.search(query, 30, mode="semantic", filter=filter)
                both = index.search(query, 30, mode="hybrid", filter=filter)
                assert set(both.ids) == {*ours.ids, *near.ids}
                same = twin.search(query, 30, mode="hybrid", filter=filter)
                assert _scores(both) == pytest.approx(_scores(same), abs=1e-4), query
                assert index.search(query, 30, filter=filter).ids == both.ids  # by both is the default
        assert len(index.search("우산이", 30, mode="keyword")) == 24  # the particle does not hide the word

    def test_batches_are_single_searches(self, index: Index, plain: Plain, model: BiEncoder) -> None:
        queries = ["비", "bread and rain", "골목 끝"]
        vectors = model.encode_query(queries)
        together = index.search_many(queries, 4, mode="semantic")
        assert [one.ids for one in together] == [index.search(query, 4, mode="semantic").ids for query in queries]
        assert [one.ids for one in index.search_many(vectors, 4)] == [one.ids for one in together]
        for query, results in zip(queries, together, strict=True):
            plain.check(results, query, 4)
        assert index.search_many([]) == []

    @pytest.mark.filterwarnings("ignore::munjang.errors.TruncationWarning")
    def test_more_like_never_finds_itself(self, index: Index, plain: Plain, reranker: CrossEncoder) -> None:
        found = index.more_like(8, 20)
        assert "8" not in found.ids
        assert len(found) == len(DOCUMENTS) - 3
        assert index.more_like(8, 3, filter={"year": {"<": 2005}}).ids == [id for id in found.ids if int(id) < 5][:3]
        assert index.more_like(1, 2, reranker=reranker).scored > 0
        with pytest.raises(InputError, match="no words"):
            index.more_like(12)
        with pytest.raises(InputError, match="no document"):
            index.more_like("no")

    @pytest.mark.filterwarnings("ignore::munjang.errors.TruncationWarning")
    def test_the_reranker_gets_the_candidates(self, index: Index, plain: Plain, reranker: CrossEncoder) -> None:
        results = index.search("비가 오는 날", 3, reranker=reranker, candidates=6)
        assert len(results) == 3
        assert results.scored <= 6
        assert [hit.stages[-1].name for hit in results] == ["rerank"] * 3
        assert all(hit.text == plain.documents[hit.id][0] for hit in results)

    def test_vectors_of_another_width_are_refused(self, index: Index) -> None:
        for wrong in (np.zeros(7), [[1.0], [2.0]], [float("nan")] * 32):
            with pytest.raises(InputError):
                index.search(wrong)

    # --- bad input ---------------------------------------------------------------------------------------------------

    def test_one_broken_document_leaves_nothing_behind(self, index: Index) -> None:
        index.add(["eins"])
        for broken in ({"text": 3}, {"id": "x"}, {"text": "a", "when": object()}, {"text": "a", "id": "doc 0"}, 7):
            documents = [{"id": f"doc {number}", "text": f"비 {number}"} for number in range(30)]
            with pytest.raises(InputError):
                index.add([*documents, broken])  # type: ignore[list-item]
            assert index.count == 1

    def test_a_stream_commits_on_the_way(self, index: Index) -> None:
        def stream() -> Iterator[dict[str, Any]]:
            yield from ({"id": number, "text": f"비 {number}"} for number in range(25))
            yield {"id": 3, "text": "again"}

        with pytest.raises(InputError, match=r"came twice.*first 2[05] documents"):
            index.add(stream(), commit_every=5)
        assert index.count == 25
        assert index.get(3).text == "비 3"

    # --- one index, several users ------------------------------------------------------------------------------------

    def test_another_opening_sees_what_was_written(self, index: Index, place: Place, model: BiEncoder) -> None:
        with Index.open(place("one"), model) as other:
            for round in range(5):
                index.add([{"id": "x", "text": f"비 {round}", "round": round}])
                assert other.search("비", filter={"round": round}).ids == ["x"]
                assert other.get("x").text == f"비 {round}"
                before = other.describe()["generation"]
                index.delete("x")
                assert other.search("비").ids == []
                assert other.describe()["generation"] != before

    def test_threads_of_one_index(self, index: Index) -> None:
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                for number in range(6):
                    index.add([{"id": f"{name} {at}", "text": f"{name} {number} 비"} for at in range(3)])
                    assert f"{name} 0" in index.search(f"{name} {number}", 20).ids
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("하나", "two", "삼")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert index.count == 9
        assert all(one.text.split()[1] == "5" for one in index.documents())

    def test_another_model_is_refused(self, index: Index, place: Place) -> None:
        index.add(["비"])
        with pytest.raises(ModelError, match="another model"):
            Index.open(place("one"), bi_encoder("distilbert"))

    def test_an_index_is_made_once_and_opened_where_it_is(self, index: Index, place: Place, model: BiEncoder) -> None:
        index.add(["비"])
        with pytest.raises(InputError, match="already"):
            Index.create(place("one"), model)
        assert index.count == 1
        with pytest.raises(InputError, match="no index"):
            Index.open(place("two"), model)

    def test_without_keywords(self, place: Place, model: BiEncoder) -> None:
        with Index.create(place("bare"), model, options=IndexOptions(keyword=False)) as index:
            index.add(["비가 온다"])
            assert (len(index.search("비")), index.search("비").mode) == (1, "semantic")
            with pytest.raises(InputError, match="keyword"):
                index.search("비", mode="hybrid")

    # --- the whole of it ---------------------------------------------------------------------------------------------

    def test_what_a_service_asks(self, index: Index, plain: Plain) -> None:
        facts = index.describe()
        assert (facts["documents"], facts["dimension"]) == (len(DOCUMENTS), 32)
        assert facts["passages"] == index.verify().passages
        assert set(index.columns()["year"].values.tolist()) >= {2000, 2005, 2010}
        sample = index.sample(100)
        assert sorted(sample.ids, key=int) == [str(number) for number in range(11)]
        assert sample.vectors.shape == (11, 32)
        assert len(index.sample(4)) == 4
        report = index.verify()
        assert report.ok, report
        assert report.recall == 1.0

    def test_out_to_a_file_and_back(
        self, index: Index, plain: Plain, place: Place, tmp_path: Path, model: BiEncoder
    ) -> None:
        assert index.export(tmp_path / "all.parquet") == len(DOCUMENTS)
        with Index.import_(tmp_path / "all.parquet", place("again"), model) as again:
            plain.check_all(again)
            assert (
                again.search("비", 3, filter={"year": {">": 2005}}).ids
                == index.search("비", 3, filter={"year": {">": 2005}}).ids
            )

    def test_closed_means_closed(self, place: Place, model: BiEncoder) -> None:
        index = Index.create(place("closed"), model)
        index.close()
        index.close()
        with pytest.raises((InputError, DataError), match="closed"):
            index.search("비")


def _scores(results: Results) -> list[float]:
    return [hit.score for hit in results]
