"""Sources: files, names and examples; a file with a source column; weights by repetition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from munjang.data import Examples, load_dataset
from munjang.errors import DataError, InputError
from munjang.recipes import DistillOptions, SetOptions, Source
from munjang.recipes.distilling.sources import Taken, read_sources
from recipes.distilling.material import parallel, parallel_file, texts_file
from recipes.material import scored, triplets

OPTIONS = DistillOptions("unused")


def names(found: list[Taken]) -> dict[str, tuple[str, int, float]]:
    return {one.name: (one.examples.kind, len(one.examples), one.weight) for one in found}


def test_a_source_column_makes_sources_of_their_own(tmp_path: Path) -> None:
    file = parallel_file(tmp_path / "p.tsv", rows=10)
    found = read_sources([Source(file, 2.0), parallel("mine", 10, 13)], OPTIONS)
    assert names(found) == {"talks": ("pairs", 5, 2.0), "news": ("pairs", 5, 2.0), "mine": ("pairs", 3, 1.0)}
    chosen = DistillOptions("unused", weights={"news": 0, "mine": 0.5})
    assert names(read_sources([file, parallel("mine", 10, 13)], chosen)) == {
        "talks": ("pairs", 5, 1.0),
        "mine": ("pairs", 3, 0.5),
    }


def test_texts_and_other_files(tmp_path: Path) -> None:
    texts = texts_file(tmp_path / "s.txt", rows=7)
    table = tmp_path / "t.csv"
    table.write_text("영어,한국어\nhello,안녕\nbye,잘 가\n", encoding="utf-8")
    two = tmp_path / "two.tsv"
    two.write_text("ko\ten\n안녕\thello\n", encoding="utf-8")
    columns = {"anchor": "영어", "positive": "한국어"}
    found = read_sources(
        [texts, Source(table, columns=columns), Source(table, columns={"text": "한국어"}), two], OPTIONS
    )
    assert [one.examples.kind for one in found] == ["plain", "pairs", "plain", "pairs"]
    assert found[0].examples.reading.refused_counts == {"a blank text": 1}
    assert found[1].examples.columns == {"anchor": ["hello", "bye"], "positive": ["안녕", "잘 가"]}
    assert found[2].examples.columns == {"text": ["안녕", "잘 가"]}
    assert found[3].examples.columns == {"anchor": ["hello"], "positive": ["안녕"]}


def test_named_sets_are_split_and_hold_what_the_reader_gives(tmp_path: Path) -> None:
    folder = tmp_path / "parallel-en-ko"
    folder.mkdir()
    rows = ["one\t하나\ttalks", "two\t둘\txnli-dev", "three\t셋\twikiqa", "four\t넷\tnews", "five\t다섯\ttalks"]
    (folder / "train.tsv").write_text("en\tko\tsource\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for name in ("parallel", "parallel-all"):
        found = read_sources(name, DistillOptions("unused", sets=SetOptions(folder=str(tmp_path))))
        texts = Counter(text for one in found for text in one.examples.texts())
        assert texts == Counter(load_dataset(name, "train", tmp_path).texts())
        assert len(found) == (2 if name == "parallel" else 4)


@given(st.integers(1, 30), st.floats(0.01, 4), st.integers(0, 5))
def test_weights_repeat_rows_evenly(count: int, weight: float, seed: int) -> None:
    rows = Taken(Examples("s", "plain", {"text": [str(n) for n in range(count)]}), weight).rows(seed)
    often = np.bincount(rows, minlength=count)
    assert often.max() - often.min() <= 1
    assert len(rows) == max(1, int(weight) * count + round((weight - int(weight)) * count))
    again = Taken(Examples("s", "plain", {"text": ["x"] * count}), weight).rows(seed)
    assert rows.tolist() == again.tolist()


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        ("no-such-file.tsv", {}, DataError, "there is no such file"),
        ("parallel", {}, InputError, "say in which folder"),
        (parallel("p", 0, 3), {"weights": {"q": 1}}, InputError, r"weights must name sources \(p\), got q"),
        (Source(parallel("p", 0, 3), 0), {}, InputError, "nothing to learn over"),
        (Examples("c", "classified", {"text": ["a"]}, np.array([0]), ("x",)), {}, InputError, "c is classified"),
        (7, {}, InputError, "must be Examples, a path or a name, got int"),
    ],
)
def test_errors(source: object, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_sources(source, DistillOptions("unused", **options))  # type: ignore[arg-type]


def test_weights_are_numbers() -> None:
    for weight in (-1, float("nan"), float("inf"), True, "2"):
        with pytest.raises(InputError, match="must be a number from 0 on"):
            Source("x", weight)  # type: ignore[arg-type]


def test_examples_for_cross_encoders(tmp_path: Path) -> None:
    file = tmp_path / "scored.tsv"
    file.write_text("sentence1\tsentence2\tscore\na\tb\t4\nc\td\t1\n", encoding="utf-8")
    options = DistillOptions("unused", sets=SetOptions(score_range=(0, 5)))
    found = read_sources([Source(file, kind="pairs"), scored("s", 4), triplets("t", 4)], options)
    assert [one.examples.kind for one in found] == ["scored", "scored", "pairs"]


def test_a_file_without_a_header(tmp_path: Path) -> None:
    """As OPUS and Tatoeba give them: two columns, and the first line is a pair."""
    file = tmp_path / "talks.tsv"
    file.write_text("hello there\t안녕\nbye\t잘 가\n", encoding="utf-8")
    with pytest.raises(DataError, match="'hello there', '안녕'") as caught:
        read_sources(file, OPTIONS)
    for words in ("--source-columns anchor=0,positive=1", "no header", "--source-columns anchor=NAME"):
        assert words in str(caught.value)
    (one,) = read_sources(Source(file, columns={"anchor": "0", "positive": "1"}), OPTIONS)
    assert one.examples.columns == {"anchor": ["hello there", "bye"], "positive": ["안녕", "잘 가"]}


def test_columns_are_found_whatever_their_case_and_encoding(tmp_path: Path) -> None:
    upper = tmp_path / "upper.tsv"
    upper.write_text("EN\tKo\nhello\t안녕\nbye\t잘 가\n", encoding="utf-8")
    (one,) = read_sources(upper, OPTIONS)
    assert one.examples.columns == {"anchor": ["hello", "bye"], "positive": ["안녕", "잘 가"]}
    latin = tmp_path / "latin.tsv"
    latin.write_bytes("x\ty\tz\nun café\tune brûlée\t0.5\nété\thiver\t1\n".encode("latin-1"))
    options = DistillOptions("unused", sets=SetOptions(encoding="latin-1"))
    columns = {"a": "x", "b": "y", "score": "z"}
    (scores,) = read_sources(Source(latin, columns=columns), options)
    assert scores.examples.columns["b"] == ["une brûlée", "hiver"]
    by_source = tmp_path / "by-source.tsv"
    by_source.write_bytes("en\tko\tsource\nun café\tbrûlée\tnews\n".encode("latin-1"))
    (news,) = read_sources(by_source, options)
    assert (news.name, news.examples.columns["anchor"]) == ("news", ["un café"])
