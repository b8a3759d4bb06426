"""Files and dicts with columns -> Examples: what is taken, what is guessed, what is refused and counted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from munjang.data import Examples, ReadOptions, open_rows, read_examples
from munjang.errors import DataError, InputError, MunjangWarning

PAIRS = [("비가 온다", "비 오는 날이다", "4.0"), ("A cat sleeps", "고양이가 잔다", "3.5")]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def tsv(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    return write(path, end.join(lines) + end, encoding)


def targets(examples: Examples) -> list[float]:
    assert examples.targets is not None
    found: list[float] = examples.targets.tolist()
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_marks_and_line_ends_do_not_matter(tmp_path: Path, end: str, encoding: str, suffix: str) -> None:
    between = "\t" if suffix == ".tsv" else ","
    lines = [between.join(fields) for fields in [("sentence1", "sentence2", "score"), *PAIRS]]
    found = read_examples(
        tsv(tmp_path / f"x{suffix}", *lines, end=end, encoding=encoding), kind="scored", score_range=(0, 5)
    )
    assert found.columns == {"a": [a for a, _, _ in PAIRS], "b": [b for _, b, _ in PAIRS]}
    assert targets(found) == pytest.approx([0.8, 0.7])
    assert str(found.reading) == "2 rows, 2 used; columns guessed: a = sentence1, b = sentence2, score = score"


def test_compressed_json_and_jsonl(tmp_path: Path) -> None:
    rows = [{"premise": a, "hypothesis": b, "label": "neutral"} for a, b, _ in PAIRS]
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    write(tmp_path / "x.jsonl", "\n".join(json.dumps(row) for row in rows))
    for name in ("x.json.gz", "x.jsonl"):
        found = read_examples(tmp_path / name, kind="labelled")
        assert found.labels == ("entailment", "neutral", "contradiction")
        assert targets(found) == [1, 1]
        assert found.columns["a"] == [a for a, _, _ in PAIRS]


def test_parquet_with_nulls_and_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"text": ["가", None, "다"], "vector": [[1.0, 2.0], [0.0, 0.0], [3.0]]})
    pq.write_table(table, tmp_path / "x.parquet")
    found = read_examples(tmp_path / "x.parquet", kind="taught")
    assert targets(found) == [[1.0, 2.0]]
    assert found.reading.refused_counts == {"text is missing": 1, "vector does not hold 2 numbers": 1}
    assert found.reading.refused[0].place == "x.parquet row 2"


def test_columns_by_number_mean_that_there_is_no_header(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.csv", "4.0,비,우천", '2.5,"눈, 그리고 비",설비')
    found = read_examples(path, kind="scored", columns={"score": 0, "a": 1, "b": 2}, score_range=(0, 5))
    assert found.columns["a"] == ["비", "눈, 그리고 비"]
    same = read_examples(path, kind="scored", columns={"score": "0", "a": "1", "b": "2"}, score_range=(0, 5))
    assert same.columns == found.columns
    assert not found.reading.notes  # nothing was guessed


def test_options_say_what_is_unusual(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.csv", "a,b,score", '"그는" 왔다,비,0.5')
    with pytest.raises(DataError, match="quot"):
        read_examples(path, kind="scored")
    assert read_examples(open_rows(path, options=ReadOptions(quoting=False)), kind="scored").columns["a"] == [
        '"그는" 왔다'
    ]


@pytest.mark.parametrize(
    ("names", "kind", "label_map", "wanted"),
    [
        (("문장1", "문장2", "점수"), "scored", None, ["a", "b"]),
        (("Sentence1", "Sentence2", "Label"), "labelled", {"1": "same", "0": "different"}, ["a", "b"]),
        (("문장1", "문장2", "라벨"), "labelled", ["no", "yes"], ["a", "b"]),
        (("anchor", "positive", "negative"), "pairs", None, ["anchor", "positive", "negative"]),
        (("anchor", "positive", "negative_1"), "pairs", None, ["anchor", "positive", "negative"]),
        (("query", "document", "relevance"), "ranked", None, ["query", "document"]),
    ],
)
def test_usual_names_are_guessed_and_said(
    tmp_path: Path, names: tuple[str, ...], kind: str, label_map: object, wanted: list[str]
) -> None:
    path = tsv(tmp_path / "x.tsv", "\t".join(names), "하나\t둘\t1", "셋\t넷\t0")
    found = read_examples(path, kind=kind, label_map=label_map)  # type: ignore[arg-type]
    assert list(found.columns) == wanted
    assert found.columns[wanted[0]] == ["하나", "셋"]
    plain = names in (("anchor", "positive", "negative"), ("query", "document", "relevance"))  # no guess at all
    assert (f"{wanted[0]} = {names[0]}" in str(found.reading)) == (not plain)


def test_what_cannot_be_guessed_is_asked_for(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.tsv", "links\trechts\tscore", "a\tb\t1")
    with pytest.raises(DataError, match=r"which column is 'a'\. Its columns are: 'links', 'rechts', 'score'"):
        read_examples(path, kind="scored")
    with pytest.raises(DataError, match="no column 'left'"):
        read_examples(path, kind="scored", columns={"a": "left", "b": "rechts"})
    with pytest.raises(InputError, match="are a, b, score; got text"):
        read_examples(path, kind="scored", columns={"text": "links"})
    twice = tsv(tmp_path / "y.tsv", "a\ta\tb\tscore", "1\t2\t3\t1")
    with pytest.raises(DataError, match="which column is 'a'"):
        read_examples(twice, kind="scored")


def test_every_bad_row_is_refused_with_its_reason_and_place(tmp_path: Path) -> None:
    path = tsv(
        tmp_path / "x.tsv", "sentence1\tsentence2\tscore", "가\t나\t5", "가\t\t5", "  \t나\t5", "가\t나\t",
        "가\t나\tmuch", "가\t나\t5.1", "가\t나\t-0.1", "가\t나\tnan", "가\t나\tinf",
        "가\t나\t1\t더", "가\t나", "", "다\t라\t0",
    )  # fmt: skip
    found = read_examples(path, kind="scored", score_range=(0, 5), drop_outside=True)
    assert targets(found) == [1.0, 0.0]
    assert found.reading.refused_counts == {
        "sentence2 is empty": 1,
        "sentence1 is empty": 1,
        "score is empty": 1,
        "score is not a number": 1,
        "score is outside 0..5": 2,
        "score is not a finite number": 2,
        "too many fields": 1,
        "too few fields": 1,
    }
    assert (found.reading.rows, found.reading.used) == (12, 2)  # a blank line is no row
    first = found.reading.refused[0]
    assert (first.place, first.reason, first.shown) == ("x.tsv line 3", "sentence2 is empty", "가 |  | 5")


def test_nothing_left_is_an_error_with_the_first_reasons(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.tsv", "a\tb\tscore", "가\t나\t", "다\t라\t")
    with pytest.raises(DataError, match=r"not one of its rows can be used .*score is empty \(2\).*x\.tsv line 2"):
        read_examples(path, kind="scored")
    for content in ("a\tb\tscore\n", ""):
        with pytest.raises(DataError, match="not a single row"):
            read_examples(write(tmp_path / "y.tsv", content), kind="scored")
    with pytest.raises(DataError, match="no such file"):
        read_examples(tmp_path / "z.tsv", kind="scored")
    with pytest.raises(DataError, match="no columns"):
        read_examples(write(tmp_path / "z.txt", "가"), kind="scored")


def test_many_refusals_are_counted_and_the_first_kept() -> None:
    rows = [{"a": "가", "b": "나", "score": None if place else 1.0} for place in range(100)]
    reading = Examples.from_dicts(rows, kind="scored").reading
    assert (len(reading.refused), reading.refused_counts) == (20, {"score is missing": 99})


@pytest.mark.parametrize("encoding", ["cp949", "euc-kr"])
def test_pitfall_cp949_is_found_and_said(tmp_path: Path, encoding: str) -> None:
    path = tsv(tmp_path / "x.csv", "문장1,문장2,점수", "오늘은 비가 옵니다,날씨가 맑습니다,1.5", encoding=encoding)
    with pytest.warns(MunjangWarning, match="read as cp949"):
        found = read_examples(path, kind="scored", score_range=(0, 5))
    assert found.columns == {"a": ["오늘은 비가 옵니다"], "b": ["날씨가 맑습니다"]}
    assert read_examples(path, kind="scored", score_range=(0, 5), encoding="cp949").columns == found.columns


def test_pitfall_nan_is_missing_and_never_the_text_nan(tmp_path: Path) -> None:
    """pandas reads an empty cell as the float NaN; str() makes it 'nan', a sentence that nobody wrote."""
    rows: list[Mapping[str, object]] = [
        {"sentence1": "nan", "sentence2": "난", "score": 1.0},  # the text 'nan' is a text
        {"sentence1": float("nan"), "sentence2": "난", "score": 1.0},
        {"sentence1": np.float32("nan"), "sentence2": "난", "score": 1.0},
        {"sentence1": None, "sentence2": "난", "score": 1.0},
        {"sentence1": "가", "sentence2": "나", "score": float("nan")},
        {"sentence1": 1989, "sentence2": "난", "score": 1.0},
    ]
    found = Examples.from_dicts(rows, kind="scored")
    assert found.columns == {"a": ["nan"], "b": ["난"]}
    assert found.reading.refused_counts == {
        "sentence1 is missing": 3,
        "score is missing": 1,
        "sentence1 is no text": 1,
    }
    path = tsv(tmp_path / "x.tsv", "sentence1\tsentence2\tscore", "nan\tNaN\t1.0")
    assert read_examples(path, kind="scored").columns == {"a": ["nan"], "b": ["NaN"]}


def test_half_a_character_is_refused() -> None:
    rows = [{"text": "\ud83d", "label": "x"}, {"text": "😀", "label": "x"}]
    found = Examples.from_dicts(rows, kind="classified")
    assert found.reading.refused_counts == {"text holds half a surrogate pair": 1}


def test_scores_without_a_range_must_be_in_0_to_1() -> None:
    rows = [{"a": "가", "b": "나", "score": score} for score in (0.5, 4.2)]
    with pytest.raises(InputError, match=r"scores are outside the score range 0\.\.1.*score_range=\(0, 5\)"):
        Examples.from_dicts(rows, kind="scored")
    assert targets(Examples.from_dicts(rows, kind="scored", score_range=(-1, 5))) == pytest.approx([0.25, 5.2 / 6])
    with pytest.raises(InputError, match=r"\(lowest, highest\)"):
        Examples.from_dicts(rows, kind="scored", score_range=(5, 0))


def test_numbers_as_labels_need_names() -> None:
    rows = [{"text": "좋다", "label": 1}, {"text": "싫다", "label": 0}, {"text": "?", "label": 2}]
    with pytest.raises(InputError, match=r"holds numbers \(0, 1, 2\).*label_map"):
        Examples.from_dicts(rows, kind="classified")
    found = Examples.from_dicts(rows, kind="classified", label_map=["negative", "positive"], drop_outside=True)
    assert (targets(found), found.labels) == ([1, 0], ("negative", "positive"))
    assert found.reading.refused_counts == {"label is not in the label map": 1}


SIMILAR = [{"a": f"문장 {i}", "b": f"말 {i}", "label": f"{i % 12 / 2.4:.3f}"} for i in range(60)]  # 0.000 to 4.583


def test_real_numbers_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"label holds real numbers: 12 distinct .* in 60 rows.*score=NAME.*any_labels"
    ):
        Examples.from_dicts(SIMILAR, kind="labelled")
    numbers = [{**row, "label": float(str(row["label"]))} for row in SIMILAR]  # as JSON and pandas have them
    with pytest.raises(InputError, match="real numbers"):
        Examples.from_dicts(numbers, kind="labelled")
    path = tsv(tmp_path / "x.tsv", "a\tb\tlabel", *("\t".join(row.values()) for row in SIMILAR))
    with pytest.raises(InputError, match=r"x\.tsv: label holds real numbers"):
        read_examples(path, kind="labelled")
    assert len(read_examples(path, kind="labelled", any_labels=True).labels) == 12
    assert targets(read_examples(path, kind="scored", columns={"score": "label"}, score_range=(0, 5)))[1] == (
        pytest.approx(0.417 / 5)
    )


@pytest.mark.parametrize("kind", ["labelled", "classified"])
def test_a_label_for_nearly_every_row_is_none(kind: str) -> None:
    rows = [{"a": f"{i}", "b": "나", "text": f"{i}", "label": f"글 {i // 3 if i < 6 else i}"} for i in range(40)]
    with pytest.raises(InputError, match=r"36 distinct values in 40 rows.*any_labels"):
        Examples.from_dicts(rows, kind=kind)  # type: ignore[arg-type]
    assert len(Examples.from_dicts(rows, kind=kind, any_labels=True).labels) == 36  # type: ignore[arg-type]
    few = [{**row, "label": f"{i % 9}번"} for i, row in enumerate(rows)]
    assert len(Examples.from_dicts(few, kind=kind).labels) == 9  # type: ignore[arg-type]


def test_scores_outside_the_range_stop_the_reading(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.tsv", "a\tb\tscore", "가\t나\t0.5", "\t나\t9", "다\t라\t3.25", "마\t바\t5", "사\t아\t1")
    with pytest.raises(InputError) as error:
        read_examples(path, kind="scored", score_range=(0, 1))
    for words in ("x.tsv: 2 of 5", "0..1", "line 4: 3.25, line 5: 5", "score_range=(0, 5)", "--drop-outside"):
        assert words in str(error.value)
    found = read_examples(path, kind="scored", score_range=(0, 1), drop_outside=True)
    assert targets(found) == [0.5, 1.0]
    assert found.reading.refused_counts == {"a is empty": 1, "score is outside 0..1": 2}
    with pytest.raises(InputError, match=r"score_range=\(-1, 1\)"):
        Examples.from_dicts([{"a": "가", "b": "나", "score": s} for s in (-0.5, 1)], kind="scored", score_range=(0, 1))


def test_labels_outside_the_map_stop_the_reading() -> None:
    rows = [{"a": "가", "b": "나", "label": label} for label in ("same", "different", "smae", "-", "smae")]
    with pytest.raises(InputError, match=r"2 of 5 labels are not in the label map .*'smae' \(2\); the first in row 2"):
        Examples.from_dicts(rows, kind="labelled", label_map=["different", "same"])
    with pytest.raises(InputError, match=r"real numbers.*scored"):
        Examples.from_dicts(SIMILAR, kind="labelled", label_map=["different", "same"])


def test_whole_numbers_written_as_real_ones_are_whole() -> None:
    rows = [{"a": "가", "b": "나", "label": label} for label in ("0.0", "1.0", 1.0, 0)]
    found = Examples.from_dicts(rows, kind="labelled", label_map=["different", "same"])
    assert targets(found) == [0, 1, 1, 0]
    with pytest.raises(InputError, match="label_map"):
        Examples.from_dicts(rows, kind="labelled")


@pytest.mark.parametrize(
    ("label_map", "names", "ids"),
    [
        ({"entailment": 0, "neutral": 1, "contradiction": 2}, ("entailment", "neutral", "contradiction"), [2, 0]),
        ({"entailment": 0, "neutral": 1, "contradiction": 1}, ("entailment", "neutral"), [1, 0]),
        ({"contradiction": "different", "entailment": "same"}, ("different", "same"), [0, 1]),
        (("contradiction", "entailment"), ("contradiction", "entailment"), [0, 1]),
    ],
)
def test_label_maps(label_map: object, names: tuple[str, ...], ids: list[int]) -> None:
    rows = [{"a": "가", "b": "나", "label": label} for label in (" contradiction", "entailment", "-", "", None)]
    found = Examples.from_dicts(rows, kind="labelled", label_map=label_map)  # type: ignore[arg-type]
    assert (found.labels, targets(found)) == (names, ids)
    assert found.reading.refused_counts == {"label is -: no gold label": 1, "label is empty": 1, "label is missing": 1}


@pytest.mark.parametrize("label", [1, 1.0, "1", True, np.int64(1), np.float32(1), np.array(1)])
def test_one_is_one_however_it_is_written(label: object) -> None:
    rows = [{"text": "가", "label": label}, {"text": "나", "label": -1}]
    found = Examples.from_dicts(rows, kind="classified", label_map={0: "no", 1: "yes"})
    assert found.row(0)["label"] == "yes"
    assert found.reading.refused_counts == {"label is -1: no gold label": 1}


@pytest.mark.parametrize(
    "label_map",
    [{"a": 0, "b": 2}, {"a": 0, "b": "x"}, {}, "ab", ["a", "a"]],
    ids=["gap", "mixed", "none", "text", "twice"],
)
def test_label_maps_that_say_nothing_clear(label_map: object) -> None:
    with pytest.raises(InputError, match="label"):
        Examples.from_dicts([{"text": "가", "label": "a"}], kind="classified", label_map=label_map)  # type: ignore[arg-type]


def test_names_of_labels_are_in_alphabetical_order() -> None:
    rows = [{"text": "가", "label": "정치"}, {"text": "나", "label": "경제"}]
    found = Examples.from_dicts(rows, kind="classified")
    assert (found.labels, targets(found)) == (("경제", "정치"), [1, 0])


def test_rows_of_a_query_come_together() -> None:
    rows = [{"query": q, "document": d, "relevance": r} for q, d, r in (("x", "1", 0), ("y", "2", 1), ("x", "3", 2))]
    found = Examples.from_dicts(rows, kind="ranked")
    assert found.columns == {"query": ["x", "x", "y"], "document": ["1", "3", "2"]}
    assert found.groups is not None
    assert (found.groups.tolist(), targets(found)) == ([0, 0, 1], [0, 2, 1])


def test_the_scores_of_a_teacher_come_only_when_they_are_named() -> None:
    rows = [{"anchor": "가", "positive": "나", "negative": "다", "scores": [0.9, 0.1]}]
    assert Examples.from_dicts(rows, kind="pairs").targets is None
    columns = {"anchor": "anchor", "positive": "positive", "negative": "negative", "scores": "scores"}
    assert targets(Examples.from_dicts(rows, kind="pairs", columns=columns)) == [pytest.approx([0.9, 0.1])]


def test_from_dicts_takes_any_iterable_of_mappings() -> None:
    def rows() -> Iterator[Mapping[str, object]]:
        yield {"text": "가", "label": "x"}
        yield {"text": "나"}

    found = Examples.from_dicts(rows(), kind="classified", name="own")
    assert (len(found), found.reading.refused[0].place) == (1, "own row 1")
    with pytest.raises(DataError, match="not a single row"):
        Examples.from_dicts([], kind="classified")
    with pytest.raises(DataError, match="cannot tell which column is 'label'"):
        Examples.from_dicts(["가"], kind="classified")


def test_a_table_in_memory_is_read_directly() -> None:
    rows = [{"a": "가", "b": "나", "score": 0.5}]
    assert targets(read_examples(rows, kind="scored", name="own")) == [0.5]
    with pytest.raises(InputError, match=r"1 of 1 scores are outside the score range 0\.\.1.*score_range=\(1, 5\)"):
        read_examples([{**rows[0], "score": 4}], kind="scored", drop_outside=True)  # no range, so nothing to drop by
