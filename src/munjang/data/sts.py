"""Semantic textual similarity sets -> scored examples: KorSTS, KLUE-STS, the STS benchmark, STS12 to STS16.

Every one is on a scale of 0..5, which becomes 0..1. Tab-separated files are read with quoting off: KorSTS has bare
quotation marks inside its sentences, and a quoting reader joins rows there without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from munjang.data.building import Wanted
from munjang.data.examples import Examples, join
from munjang.data.files import TextSource
from munjang.data.json_records import json_list
from munjang.data.tabular import file_records, only_where, read_records, read_source
from munjang.errors import DataError

RANGE = (0.0, 5.0)
_SENTENCES = {"a": "sentence1", "b": "sentence2"}
_SCORED = Wanted("scored", {**_SENTENCES, "score": "score"}, score_range=RANGE)


def korsts(path: str | Path, *, name: str = "KorSTS") -> Examples:
    """KorSTS (kakaobrain/kor-nlu-datasets): tsv with the columns score, sentence1, sentence2 and others."""
    return read_source(TextSource(path, format="tsv", quoting=False), _SCORED, name=name)


def klue_sts(path: str | Path, *, name: str = "KLUE-STS") -> Examples:
    """KLUE-STS: the official JSON list, or a csv with sentence1, sentence2, label; the real-valued label, 0..5."""
    source = TextSource(path)
    if source.kind == "json":
        rows = _klue_rows(source)
        columns = {**_SENTENCES, "score": "label"}
        return Examples.from_dicts(
            rows, kind="scored", columns=columns, score_range=RANGE, drop_outside=True, name=name
        )
    return read_source(source, Wanted("scored", {**_SENTENCES, "score": "label"}, score_range=RANGE), name=name)


def stsb(path: str | Path, *, split: str | None = None, name: str = "STSb") -> Examples:
    """The STS benchmark: csv without a header (sentence, sentence, score), or the classic tsv with one.

    `split` chooses the rows of one split where the file has a column of that name.
    """
    source = TextSource(path, header=False)
    if source.kind == "csv":
        return read_source(source, Wanted("scored", {"a": 0, "b": 1, "score": 2}, score_range=RANGE), name=name)
    found = file_records(TextSource(path, quoting=False))
    return read_records(only_where(found, "split", split) if split else found, _SCORED, name=name)


def sts_year(folder: str | Path, *, name: str = "STS") -> Examples:
    """All test files of one year of SemEval STS, as one set; a blank score means that there is no gold: refused."""
    files = sorted(Path(folder).glob("*.test.tsv"))
    if not files:
        raise DataError(f"{folder}: there is no file *.test.tsv in this folder")
    wanted = Wanted("scored", {"score": 0, "a": 1, "b": 2}, score_range=RANGE)
    parts = [read_source(TextSource(file, quoting=False, header=False), wanted, name=file.name) for file in files]
    return join(parts, name=name)


def sts12_16(folder: str | Path) -> dict[str, Examples]:
    """STS12 to STS16, one set a year, from the folders 2012 to 2016."""
    found = {f"STS{year - 2000}": Path(folder) / str(year) for year in range(2012, 2017)}
    missing = [str(path) for path in found.values() if not path.is_dir()]
    if missing:
        raise DataError(f"{folder}: expected a folder for every year 2012..2016; there is no {', '.join(missing)}")
    return {name: sts_year(path, name=name) for name, path in found.items()}


def _klue_rows(source: TextSource) -> Iterator[Mapping[str, object]]:
    """The official file keeps three labels for a pair, in an object of their own."""
    for where, item in json_list(source.content(), source.name):
        if not isinstance(item, dict):
            raise DataError(f"{where}: expected an object, got {type(item).__name__}")
        labels = item.get("labels")
        label = labels.get("label") if isinstance(labels, dict) else item.get("label")
        yield {"sentence1": item.get("sentence1"), "sentence2": item.get("sentence2"), "label": label}
