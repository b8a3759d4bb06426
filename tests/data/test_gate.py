"""Every public door reads texts from every kind of source, to the same result as from a list, or refuses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from munjang.data import Examples, Retrieval, open_rows, open_texts, read_texts
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import DataError, InputError
from munjang.evaluation import RetrievalEvaluator, StsEvaluator
from munjang.index.index import Index
from munjang.search import TextCollection, search_texts
from munjang.tasks.classifier import Classifier
from munjang.tasks.cluster import cluster
from munjang.tasks.keywords import keywords_of_many
from munjang.tasks.map import text_map
from munjang.tasks.paraphrases import mine_paraphrases, near_duplicates
from munjang.tasks.recommend import Recommender
from munjang.tasks.topics import topics
from support import small_models

TEXTS = ["비가 온다.", "It is raining.", "빵 냄새가 난다", "fresh bread here", "비가 온다.", "rain and bread"]
LABELS = ["비", "비", "빵", "빵", "비", "빵"]
ROWS = [{"number": place, "text": text} for place, text in enumerate(TEXTS)]
BODIES = [{"number": place, "body": text} for place, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def model() -> BiEncoder:
    return small_models.bi_encoder()


@pytest.fixture(scope="module")
def reranker() -> CrossEncoder:
    return small_models.cross_encoder()


def generator(items: list[Any]) -> Iterator[Any]:
    yield from items


def library(name: str) -> Any:
    return pytest.importorskip(name)


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


TEXT_SOURCES: dict[str, Callable[[Path], Any]] = {
    "tuple": lambda folder: tuple(TEXTS),
    "generator": lambda folder: generator(TEXTS),
    "numpy array": lambda folder: np.array(TEXTS),
    "numpy objects": lambda folder: np.array(TEXTS, dtype=object),
    "dicts": lambda folder: ROWS,
    "stream of dicts": lambda folder: generator(ROWS),
    "txt": lambda folder: written(folder / "t.txt", "\n".join(TEXTS)),
    "csv": lambda folder: written(folder / "t.csv", "number,text\n" + "\n".join(f"1,{text}" for text in TEXTS)),
    "jsonl": lambda folder: written(folder / "t.jsonl", "\n".join(map(json.dumps, ROWS))),
    "pandas frame": lambda folder: library("pandas").DataFrame(ROWS),
    "pandas frame, other name": lambda folder: library("pandas").DataFrame(BODIES),
    "pandas strings": lambda folder: library("pandas").DataFrame(BODIES).astype({"body": "string"}),
    "pandas categories": lambda folder: library("pandas").DataFrame(BODIES).astype({"body": "category"}),
    "pandas series": lambda folder: library("pandas").Series(TEXTS, index=range(5, 11)),
    "polars frame": lambda folder: library("polars").DataFrame(ROWS),
    "polars frame, other name": lambda folder: library("polars").DataFrame(BODIES),
    "polars series": lambda folder: library("polars").Series(TEXTS),
    "arrow table": lambda folder: library("pyarrow").Table.from_pylist(ROWS),
    "arrow table, other name": lambda folder: library("pyarrow").Table.from_pylist(BODIES),
    "arrow batches": lambda folder: library("pyarrow").Table.from_pylist(BODIES).to_reader(2),
    "arrow column": lambda folder: library("pyarrow").chunked_array([TEXTS[:2], TEXTS[2:]]),
    "dataset": lambda folder: library("datasets").Dataset.from_list(ROWS),
    "dataset, other name": lambda folder: library("datasets").Dataset.from_list(BODIES).with_format("numpy"),
    "streamed dataset": lambda folder: library("datasets").Dataset.from_list(ROWS).to_iterable_dataset(),
    "column of a dataset": lambda folder: library("datasets").Dataset.from_list(ROWS)["text"],
}  # fmt: skip


def stored(index: Index) -> list[tuple[str, Any]]:
    hits = index.search("비", k=20).hits
    return sorted((hit.text, hit.metadata.get("number")) for hit in hits)


def index_of(source: Any, model: BiEncoder, folder: Path) -> list[str]:
    with Index.create(folder / "index", model) as index:
        index.add(source)
        return sorted(hit.text for hit in index.search("비", k=20).hits)


def encoded_to(source: Any, model: BiEncoder, folder: Path) -> Any:
    model.encode_to(source, folder / "vectors.jsonl")
    lines = (folder / "vectors.jsonl").read_text(encoding="utf-8").splitlines()
    return np.array([json.loads(line)["vector"] for line in lines])


def fitted(source: Any, model: BiEncoder) -> Any:
    return Classifier.fit(source, LABELS, model).probabilities(TEXTS)


TEXT_DOORS: dict[str, Callable[[Any, Any, Path], Any]] = {
    "encode": lambda source, m, folder: m.bi.encode(source),
    "encode_query": lambda source, m, folder: m.bi.encode_query(source),
    "encode_document": lambda source, m, folder: m.bi.encode_document(source),
    "encode_stream": lambda source, m, folder: np.concatenate([part.vectors for part in m.bi.encode_stream(source)]),
    "encode_to": lambda source, m, folder: encoded_to(source, m.bi, folder),
    "similarity": lambda source, m, folder: m.bi.similarity(source, TEXTS),
    "rank": lambda source, m, folder: [(hit.index, hit.text) for hit in m.cross.rank("비", source)],
    "Index.add": lambda source, m, folder: index_of(source, m.bi, folder),
    "TextCollection": lambda source, m, folder: [hit.text for hit in TextCollection(source, m.bi).search("비").hits],
    "search_texts": lambda source, m, folder: [hit.text for hit in search_texts(source, "비", model=m.bi).hits],
    "cluster": lambda source, m, folder: cluster(source, m.bi, method="kmeans", k=2).labels,
    "topics": lambda source, m, folder: topics(source, m.bi, k=2).labels,
    "Topics.assign": lambda source, m, folder: m.topics.assign(source).topics,
    "keywords": lambda source, m, folder: [[w.text for w in row] for row in keywords_of_many(source, m.bi)],
    "mine_paraphrases": lambda source, m, folder: [
        (pair.left, pair.right) for pair in mine_paraphrases(source, m.bi, threshold=0.5)
    ],
    "near_duplicates": lambda source, m, folder: [
        group.tolist() for group in near_duplicates(source, m.bi, threshold=0.9).groups
    ],
    "Classifier.fit": lambda source, m, folder: fitted(source, m.bi),
    "Classifier.predict": lambda source, m, folder: m.classifier.predict(source),
    "Classifier.evaluate": lambda source, m, folder: str(m.classifier.evaluate(source, LABELS)),
    "map": lambda source, m, folder: text_map(source, m.bi, method="pca").points,
    "Examples": lambda source, m, folder: Examples("x", "plain", {"text": source}).columns["text"],
    "read_texts": lambda source, m, folder: read_texts(source),
}


class Models:
    def __init__(self, bi: BiEncoder, cross: CrossEncoder) -> None:
        self.bi, self.cross = bi, cross
        self.classifier = Classifier.fit(TEXTS, LABELS, bi)
        self.topics = topics(TEXTS, bi, k=2)
        self._expected: dict[str, Any] = {}

    def expected(self, door: str, folder: Path) -> Any:
        """What a door makes of a plain list, computed once."""
        if door not in self._expected:
            folder.mkdir()
            self._expected[door] = TEXT_DOORS[door](list(TEXTS), self, folder)
        return self._expected[door]


@pytest.fixture(scope="module")
def models(model: BiEncoder, reranker: CrossEncoder) -> Models:
    return Models(model, reranker)


WHOLE = ("encode", "encode_to", "Index.add", "read_texts")  # one door of every way to open texts


def combinations(sources: Iterable[str]) -> list[tuple[str, str]]:
    """The doors of `WHOLE` with every source; every other door with each fourth source, beginning at another one."""
    names = list(sources)
    return [
        (door, name)
        for place, door in enumerate(TEXT_DOORS)
        for name in (names if door in WHOLE else names[place % 4 :: 4])
    ]


@pytest.mark.parametrize(("door", "source"), combinations(TEXT_SOURCES))
def test_every_door_reads_every_source(door: str, source: str, models: Models, tmp_path: Path) -> None:
    found = TEXT_DOORS[door](TEXT_SOURCES[source](tmp_path), models, tmp_path)
    expected = models.expected(door, tmp_path / "list")
    assert np.array_equal(found, expected) if isinstance(expected, np.ndarray) else found == expected


BAD_SOURCES: dict[str, tuple[Callable[[], Any], str]] = {
    "two columns of strings": (
        lambda: library("pandas").DataFrame({"head": TEXTS, "body": TEXTS, "n": range(6)}),
        r"which column holds the texts. .*'head', 'body', 'n'.*data\['head'\]",
    ),
    "NaN": (lambda: library("pandas").DataFrame({"text": ["가", float("nan")]}), "row 1.*'text'.*missing"),
    "None": (lambda: library("polars").DataFrame({"text": ["가", None]}), "row 1.*'text'.*null"),
    "null of arrow": (lambda: library("pyarrow").table({"text": ["가", None]}), "row 1.*'text'.*null"),
    "None in a dict": (lambda: [{"text": "가"}, {"text": None}], "(row|document) 1.*(null|NoneType)"),
    "NaN in a series": (lambda: library("pandas").Series(["가", float("nan")]), "1 must be .*nan"),
    "None in a list": (lambda: ["가", None], "1 must be .*NoneType"),
    "numbers": (lambda: library("pandas").DataFrame({"text": [1, 2]}), "row 0.*'text'.*a number"),
    "splits": (
        lambda: library("datasets").DatasetDict({"train": library("datasets").Dataset.from_list(ROWS)}),
        r"one split.*'train'.*data\['train'\]",
    ),
    "lazy frame": (lambda: library("polars").DataFrame(ROWS).lazy(), r"collect\(\)"),
    "dict": (lambda: {"text": TEXTS}, "got dict"),
    "number": (lambda: 3, "got int"),
    "missing file": (lambda: Path("nowhere.txt"), "no such file"),
}
TAKES_ONE_TEXT = ("encode", "encode_query", "encode_document", "encode_stream", "encode_to", "similarity", "keywords")


@pytest.mark.parametrize(("door", "source"), combinations(BAD_SOURCES))
def test_every_door_refuses_what_holds_no_texts(door: str, source: str, models: Models, tmp_path: Path) -> None:
    make, message = BAD_SOURCES[source]
    with pytest.raises((InputError, DataError), match=message):
        TEXT_DOORS[door](make(), models, tmp_path)


@pytest.mark.parametrize("door", [door for door in TEXT_DOORS if door not in (*TAKES_ONE_TEXT, "Classifier.predict")])
def test_a_single_text_is_no_list(door: str, models: Models, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"list"):
        TEXT_DOORS[door]("비가 온다", models, tmp_path)


def test_encode_takes_a_single_text(model: BiEncoder) -> None:
    assert model.encode("비가 온다").shape == (1, model.dimension)


PAIRS = [("비가 온다", "비 오는 날"), ("빵", "bread"), ("It rains", "")]


def pair_rows(first: str, second: str) -> list[dict[str, Any]]:
    return [{"number": 3.5, first: a, second: b} for a, b in PAIRS]


PAIR_SOURCES: dict[str, Callable[[Path], Any]] = {
    "lists": lambda folder: [list(pair) for pair in PAIRS],
    "generator": lambda folder: generator(PAIRS),
    "numpy": lambda folder: np.array(PAIRS),
    "dicts": lambda folder: pair_rows("a", "b"),
    "tsv": lambda folder: written(folder / "p.tsv", "a\tb\n" + "\n".join(map("\t".join, PAIRS)) + "\n"),
    "pandas": lambda folder: library("pandas").DataFrame(pair_rows("sentence1", "sentence2")),
    "pandas, other names": lambda folder: library("pandas").DataFrame(pair_rows("left", "right")),
    "polars": lambda folder: library("polars").DataFrame(pair_rows("question", "answer")),
    "arrow": lambda folder: library("pyarrow").Table.from_pylist(pair_rows("query", "document")),
    "dataset": lambda folder: library("datasets").Dataset.from_list(pair_rows("a", "b")),
}
PAIR_DOORS: dict[str, Callable[[CrossEncoder, Any], Any]] = {
    "predict": lambda cross, pairs: cross.predict(pairs),
    "predict_report": lambda cross, pairs: cross.predict_report(pairs).scores,
    "predict_stream": lambda cross, pairs: np.concatenate([part.scores for part in cross.predict_stream(pairs)]),
}


@pytest.mark.parametrize(("door", "source"), [(door, source) for door in PAIR_DOORS for source in PAIR_SOURCES])
def test_every_door_reads_pairs(door: str, source: str, reranker: CrossEncoder, tmp_path: Path) -> None:
    found = PAIR_DOORS[door](reranker, PAIR_SOURCES[source](tmp_path))
    assert np.array_equal(found, reranker.predict(PAIRS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: "비가 온다", r"One pair is \[\(a, b\)\]"),
        (lambda: ["비가 온다"], "pair 0 must be two texts.*single text"),
        (lambda: [("a", "b"), ("a",)], "pair 1 must be two texts"),
        (lambda: [("a", None)], "second text of pair 0.*NoneType"),
        (lambda: [{"a": "x", "b": None}], "row 0: expected a text in 'b', got null"),
        (lambda: library("pandas").DataFrame({"x": ["a"], "y": ["b"], "z": ["c"]}), "'x', 'y', 'z'"),
        (
            lambda: library("pandas").DataFrame({"a": ["x"], "b": [float("nan")]}),
            "row 0: expected a text in 'b', got a missing value",
        ),
        (lambda: library("datasets").DatasetDict(), "one split"),
    ],
)
def test_what_holds_no_pairs_is_refused(make: Callable[[], Any], message: str, reranker: CrossEncoder) -> None:
    with pytest.raises(InputError, match=message):
        reranker.predict(make())


DOCUMENT_SOURCES = ["dicts", "pandas frame", "polars frame", "arrow table", "dataset", "pandas frame, other name"]


@pytest.mark.parametrize("source", DOCUMENT_SOURCES)
def test_other_columns_become_metadata(source: str, model: BiEncoder, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", model) as index:
        index.add(TEXT_SOURCES[source](tmp_path))
        assert stored(index) == sorted((text, place) for place, text in enumerate(TEXTS))
        assert len(index.search("비", k=20, filter="number>=3").hits) == 3


@pytest.mark.parametrize("source", [*DOCUMENT_SOURCES, "jsonl", "streamed dataset"])
def test_encode_to_keeps_the_other_columns(source: str, model: BiEncoder, tmp_path: Path) -> None:
    model.encode_to(TEXT_SOURCES[source](tmp_path), tmp_path / "vectors.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["text"], row["number"]) for row in rows] == list(zip(TEXTS, range(6), strict=True))


def test_missing_cells_are_no_metadata(model: BiEncoder) -> None:
    pandas = library("pandas")
    day = pandas.to_datetime(["2024-05-01", None])
    frame = pandas.DataFrame({"id": ["x", "y"], "text": TEXTS[:2], "year": [2020, None], "day": day})
    hits = TextCollection(frame, model).search("비").hits
    metadata = {hit.id: dict(hit.metadata) for hit in hits}
    assert metadata == {"x": {"year": 2020.0, "day": "2024-05-01T00:00:00"}, "y": {}}


@pytest.mark.parametrize("source", ["dicts", "pandas frame", "polars frame", "arrow table", "dataset"])
def test_recommender_reads_tables(source: str, model: BiEncoder, tmp_path: Path) -> None:
    shop = Recommender.build(TEXT_SOURCES[source](tmp_path), model, chunk_tokens=32, stride=16)
    assert len(shop) == len(TEXTS)
    with pytest.raises(InputError, match="which column holds the texts"):
        Recommender.build(
            library("pandas").DataFrame({"head": TEXTS, "body": TEXTS}), model, chunk_tokens=32, stride=16
        )


SCORED = [{"sentence1": a, "sentence2": b or "x", "score": place / 2} for place, (a, b) in enumerate(PAIRS)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: generator(SCORED),
        lambda: library("pandas").DataFrame(SCORED),
        lambda: library("polars").DataFrame(SCORED),
        lambda: library("pyarrow").Table.from_pylist(SCORED),
        lambda: library("datasets").Dataset.from_list(SCORED),
        lambda: library("datasets").Dataset.from_list(SCORED).to_iterable_dataset(),
    ],
)
def test_evaluation_takes_examples_of_every_table(make: Callable[[], Any], model: BiEncoder) -> None:
    examples = Examples.from_dicts(make(), kind="scored", name="tiny")
    assert examples.columns["a"] == [row["sentence1"] for row in SCORED]
    expected = StsEvaluator(Examples.from_dicts(SCORED, kind="scored", name="tiny"))(model)
    assert StsEvaluator(examples)(model).values == expected.values
    with pytest.raises(InputError, match=r"Examples.from_dicts\(data, kind='scored'\)"):
        StsEvaluator(make())


def test_a_missing_cell_of_a_table_is_refused_with_its_row() -> None:
    pandas = library("pandas")
    frame = pandas.DataFrame({"a": ["x", None, pandas.NA], "b": ["y", "z", "z"], "score": [1.0, 0.5, 0.5]})
    reading = Examples.from_dicts(frame, kind="scored", name="tiny").reading
    assert (reading.used, reading.refused_counts) == (1, {"a is missing": 2})
    assert [refused.place for refused in reading.refused] == ["tiny row 1", "tiny row 2"]


def test_retrieval_takes_texts_only(model: BiEncoder) -> None:
    with pytest.raises(InputError, match=r"corpus\['d'\] must be a string, got float"):
        RetrievalEvaluator(Retrieval("r", {"q": "비"}, {"d": float("nan")}, {"q": {"d": 1}}))  # type: ignore[dict-item]


def test_sources_know_their_size_and_whether_they_can_be_read_again() -> None:
    pandas = library("pandas")
    for source, total, reiterable in (
        (TEXTS, 6, True), (generator(TEXTS), None, False), (pandas.DataFrame(ROWS), 6, True),
        (library("pyarrow").Table.from_pylist(ROWS).to_reader(2), None, False),
    ):  # fmt: skip
        rows, texts = open_rows(source), open_texts(source)
        assert (rows.total, rows.reiterable) == (texts.total, texts.reiterable) == (total, reiterable)


def test_columns_of_one_name_and_columns_to_keep() -> None:
    pandas = library("pandas")
    frame = pandas.DataFrame([["가", "나", 1]], columns=["x", "x", "n"])
    with pytest.raises(InputError, match="2 columns are named 'x'"):
        read_texts(frame, column="x")
    assert read_texts(frame, column=1) == ["나"]
    rows = open_texts(pandas.DataFrame(BODIES), column="body", keep=["number"]).rows()
    assert [row.columns for row in rows][:2] == [{"number": 0}, {"number": 1}]


def test_a_large_table_is_read_in_batches() -> None:
    texts = [f"문장 {place}" for place in range(10_000)]
    for make in (
        lambda: library("pandas").DataFrame({"text": texts}),
        lambda: library("pyarrow").table({"text": texts}),
    ):
        assert read_texts(make()) == texts
        assert [row.place for row in open_rows(make())][-1] == "row 9999"


def test_no_library_is_imported_for_a_list() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from munjang.data import read_texts; read_texts(['a']); read_texts(iter([{'text': 'a'}]));"
        "print(sorted({'numpy', 'pandas', 'polars', 'pyarrow', 'datasets'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("first", [{}, 3, b"bytes"])
def test_a_first_row_without_columns_is_refused(first: object) -> None:
    with pytest.raises(InputError, match=r"row 0: expected an object with columns"):
        list(open_rows([first, {"text": "x"}]))


def test_a_file_whose_first_object_is_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: expected an object with columns"):
        read_texts(written(tmp_path / "a.jsonl", '{}\n{"text": "x"}\n'))


def test_rows_are_changed_refused_and_skipped() -> None:
    def change(row: Mapping[str, Any]) -> Mapping[str, object] | str | None:
        return {"a": row["n"] * 2} if row["n"] % 3 == 0 else "odd one" if row["n"] % 3 == 1 else None

    changed = open_rows([{"n": number} for number in range(5)], name="numbers").map(change, ("a",))
    rows = list(changed.open().read(None))
    assert [(row.place, dict(row.values), row.problem) for row in rows if not row.problem] == [
        ("row 0", {"a": 0}, ""),
        ("row 3", {"a": 6}, ""),
    ]
    assert [row.place for row in rows if row.problem == "odd one"] == ["row 1", "row 4"]
    with pytest.raises(InputError, match="numbers, row 1: odd one"):
        list(changed)
