"""Readers of public data sets in the formats in which they are published; `munjang.data.datasets` lists the sets.

Tab-separated files are read with quoting off: KorSTS and others have bare quotation marks inside their sentences, and a
quoting reader joins rows there without a word. Rows without a gold label (`-`, -1, a blank score) are refused and
counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from munjang.data.columns import Kind, named_column
from munjang.data.examples import Examples, join
from munjang.data.labels import NLI_LABELS, LabelMap
from munjang.data.readers import RowFile, open_binary, read_lines
from munjang.data.reading import make_examples
from munjang.data.rows import Format, ReadOptions, Row, RowSource, Table
from munjang.errors import DataError, InputError

Reader: TypeAlias = Callable[[Path], Examples]

POLARITY = ("negative", "positive")
STS_RANGE = (0.0, 5.0)
_PARAKQC_GROUP = 10  # consecutive sentences with the same meaning
_MNLI_QUESTION = re.compile(
    r'For the statement, "(?P<premise>.*)", does the hypothesis "(?P<hypothesis>.*)"'
    r" represent entailment, contradiction, or neutrality\?",
    re.DOTALL,
)
_WORDNET_MARK = re.compile(r"\((?:a|p|ip)\)$")
# the beginning of a SentEval file's name -> its labels
_SENTEVAL: dict[str, tuple[str, ...]] = {
    "rt-polarity": POLARITY,
    "custrev": POLARITY,
    "mpqa": POLARITY,
    "subj": ("subjective", "objective"),
    "trec": ("description", "entity", "abbreviation", "human", "location", "number"),
    "stsa.binary": POLARITY,
    "stsa.fine": ("very negative", "negative", "neutral", "positive", "very positive"),
}


def columns(
    kind: Kind, *, format: Format | None = None, header: bool = True, split: str | None = None,
    label_map: LabelMap | None = None, score_range: tuple[float, float] | None = None, **names: str,
) -> Reader:  # fmt: skip
    """Return the reader of a table: role=column.

    Args:
        split: take the rows with this value in the column `split`.
    """

    def read(path: Path) -> Examples:
        quoting = False if format == "tsv" else None
        file = RowFile(path, ReadOptions(format, quoting=quoting, header=header))
        source = file if split is None else _of_split(file, split)
        return make_examples(
            source, kind=kind, columns=names or None, label_map=label_map, score_range=score_range, name=path.name
        )

    return read


def nli(a: str, b: str, label: str, *, format: Format | None = None, split: str | None = None) -> Reader:
    """Return the reader of an NLI table; entailment, neutral and contradiction have the ids 0, 1, 2."""
    return columns("labelled", format=format, split=split, label_map=NLI_LABELS, a=a, b=b, label=label)


def sts(score: str = "score", *, format: Format | None = None) -> Reader:
    """Return the reader of sentence1, sentence2 and a score of 0..5."""
    return columns("scored", format=format, score_range=STS_RANGE, a="sentence1", b="sentence2", score=score)


def klue_sts(path: Path) -> Examples:
    """KLUE-STS: the official JSON list, whose labels are objects, or a csv; the real-valued label."""
    source = RowFile(path, ReadOptions())
    if source.kind != "json":
        return sts("label")(path)

    def flat(row: Row) -> Row:
        labels = row.values.get("labels")
        label = labels.get("label") if isinstance(labels, Mapping) else row.values.get("label")
        return row._replace(values={**row.values, "label": label})

    names = {"a": "sentence1", "b": "sentence2", "score": "label"}
    rows = _changed(source, lambda rows: map(flat, rows), (*names.values(),))
    return make_examples(rows, kind="scored", columns=names, score_range=STS_RANGE, name=path.name)


def stsb(path: Path) -> Examples:
    """The STS benchmark: csv without a header (sentence, sentence, score), or the classic tsv with one."""
    if RowFile(path, ReadOptions()).kind != "csv":
        return sts(format="tsv")(path)
    return columns("scored", header=False, score_range=STS_RANGE, a="0", b="1", score="2")(path)


def sts_year(folder: Path) -> Examples:
    """All test files of one year of SemEval STS as one set; a blank score is refused."""
    files = sorted(folder.glob("*.test.tsv"))
    if not files:
        raise DataError(f"{folder}: there is no file *.test.tsv in this folder")
    read = columns("scored", format="tsv", header=False, score_range=STS_RANGE, score="0", a="1", b="2")
    return join([read(file) for file in files], name=folder.name)


def snli(path: Path) -> Examples:
    """SNLI: tsv with premise, hypothesis and label (0, 1, 2), or with sentence1, sentence2 and gold_label."""
    names = RowFile(path, ReadOptions("tsv", quoting=False)).open().names
    is_official = "gold_label" in names
    columns = ("sentence1", "sentence2", "gold_label") if is_official else ("premise", "hypothesis", "label")
    return nli(*columns, format="tsv")(path)


def mnli(path: Path) -> Examples:
    """MultiNLI as a csv of questions: premise and hypothesis are inside one text, the label is the answer."""

    def parts(row: Row) -> Row:
        match = _MNLI_QUESTION.fullmatch(str(row.values.get("Question")).strip())
        if match is None or row.problem:
            return row._replace(problem=row.problem or "no premise and hypothesis inside the question")
        return row._replace(values={**match.groupdict(), "label": row.values["Answer"]})

    source = RowFile(path, ReadOptions())
    for name in ("Question", "Answer"):
        named_column(source.open().names, name, source.name)
    rows = _changed(source, lambda rows: map(parts, rows), ("premise", "hypothesis", "label"))
    names = {"a": "premise", "b": "hypothesis", "label": "label"}
    return make_examples(rows, kind="labelled", columns=names, label_map=NLI_LABELS, name=path.name)


def parallel(path: Path, *, without: Collection[str] = ()) -> Examples:
    """Translations: tsv with en, ko and source; anchor is English, positive is Korean; without some of the sources."""
    seen: dict[str, None] = {}

    def selected(rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            source = str(row.values.get("source"))
            seen.setdefault(source)
            if row.problem or source not in without:
                yield row
        unknown = [name for name in without if name not in seen]
        if unknown:
            raise InputError(f"{path}: there is no source {', '.join(unknown)}; there are {', '.join(seen)}")

    source = RowFile(path, ReadOptions("tsv", quoting=False))
    named_column(source.open().names, "source", source.name)
    return _translations(_changed(source, selected), path.name)


def parallel_by_source(path: str | Path, *, encoding: str | None = None) -> dict[str, Examples]:
    """Translations as one set for every source, so that each can have its own weight."""
    source = RowFile(Path(path), ReadOptions("tsv", encoding, quoting=False))
    table = source.open()
    named_column(table.names, "source", source.name)
    by_source: dict[str, list[Row]] = {}
    current = ""
    for row in table.read(None):
        current = current if row.problem else str(row.values["source"])  # a broken row counts with the one before
        by_source.setdefault(current, []).append(row)
    return {
        name: _translations(_rows(source.short_name, table.names, iter(rows)), name) for name, rows in by_source.items()
    }


def _translations(source: RowSource, name: str) -> Examples:
    return make_examples(source, kind="pairs", columns={"anchor": "en", "positive": "ko"}, name=name)


def tatoeba(folder: Path) -> Examples:
    """Two aligned files, *.eng and *.kor: anchor is English, positive is Korean; line n translates line n."""
    paths: list[Path] = []
    for suffix in (".eng", ".kor"):
        files = sorted(folder.glob(f"*{suffix}"))
        if len(files) != 1:
            raise DataError(f"{folder}: expected one file *{suffix} in this folder, found {len(files)}")
        paths.append(files[0])

    def aligned() -> Iterator[Row]:
        for number, (english, korean) in enumerate(zip_longest(*map(read_lines, paths)), start=1):
            if english is None or korean is None:
                shorter = paths[korean is None].name
                raise DataError(
                    f"{paths[0]} and {paths[1]} must have the same number of lines; {shorter} ends at {number}"
                )
            yield Row(f"line {number}", {"en": english, "ko": korean})

    return _translations(_rows(f"{paths[0].name} and {paths[1].name}", ("en", "ko"), aligned()), folder.name)


def wordnet(path: Path) -> Examples:
    """Princeton's WordNet, one of its files data.*: anchor is a word with its synonyms, positive their meaning.

    A line is `offset file kind count word id [word id ...] ... | meaning; "examples"`, the count in hexadecimal; lines
    of the licence begin with a space. Adjectives may carry a mark: 'galore(ip)'.
    """

    def synsets() -> Iterator[Row]:
        for number, line in enumerate(read_lines(path), start=1):
            if line.startswith(" "):
                continue
            left, mark, meaning = line.partition(" | ")
            cells = left.split()
            try:
                count = int(cells[3], 16)
            except (IndexError, ValueError):
                count = 0
            words = [_WORDNET_MARK.sub("", word).replace("_", " ") for word in cells[4 : 4 + 2 * count : 2]]
            if mark and count and len(words) == count:
                yield Row(f"line {number}", {"words": ", ".join(words), "meaning": meaning.strip()})
            else:
                expected = "expected 'offset file kind count word id ... | meaning'"
                yield Row(f"line {number}", {"line": line}, f"no line of WordNet: {expected}")

    source = _rows(path.name, ("words", "meaning"), synsets())
    return make_examples(source, kind="pairs", columns={"anchor": "words", "positive": "meaning"}, name=path.name)


def senteval(path: Path) -> Examples:
    """A SentEval file: on every line the number of the class, a space, the text.

    Files that are not valid UTF-8 are read as cp1252, or as Latin-1 where that fails, and the report says so.
    """
    labels = next((names for start, names in _SENTEVAL.items() if path.name.lower().startswith(start)), None)
    if labels is None:
        raise DataError(f"{path}: not a known SentEval file; expected a name that begins with {', '.join(_SENTEVAL)}")
    with open_binary(path) as binary:
        content = binary.read()
    encoding = next(encoding for encoding in ("utf-8", "cp1252", "latin-1") if _decodes(content, encoding))

    def classes() -> Iterator[Row]:
        for number, line in enumerate(read_lines(path, encoding=encoding), start=1):
            label, space, text = line.partition(" ")
            if space:
                yield Row(f"line {number}", {"label": label, "text": text})
            elif line:
                yield Row(f"line {number}", {"line": line}, "no space between label and text")

    notes = () if encoding == "utf-8" else (f"read as {encoding}",)
    source = _rows(path.name, ("label", "text"), classes(), notes)
    return make_examples(source, kind="classified", label_map=labels, name=path.name)


def parakqc(path: Path) -> Examples:
    """ParaKQC: tsv of topic, type and text; ten consecutive sentences mean the same, and their group is their label."""
    rows: list[Row] = []
    for number, line in enumerate(read_lines(path)):
        fields = line.split("\t")
        if len(fields) != 3:  # a line left out would shift every group after it
            raise DataError(f"{path}, line {number + 1}: expected 3 fields (topic, type, text), got {len(fields)}")
        rows.append(Row(f"line {number + 1}", {"label": f"group {number // _PARAKQC_GROUP:04}", "text": fields[2]}))
    if len(rows) % _PARAKQC_GROUP:
        raise DataError(f"{path}: expected groups of {_PARAKQC_GROUP} lines, got {len(rows):,} lines")
    return make_examples(_rows(path.name, ("label", "text"), iter(rows)), kind="classified", name=path.name)


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _rows(name: str, names: tuple[str, ...], rows: Iterator[Row], notes: tuple[str, ...] = ()) -> RowSource:
    return RowSource(name, lambda: Table(names, lambda columns: rows, notes=notes))


def _changed(
    source: RowFile, change: Callable[[Iterator[Row]], Iterator[Row]], names: tuple[str, ...] | None = None
) -> RowSource:
    """A file whose rows pass through a function, which may change the columns."""
    table = source.open()
    return _rows(source.short_name, names or table.names, change(table.read(None)))


def _of_split(source: RowFile, split: str) -> RowSource:
    """The rows of one split; the others do not count."""

    def matching(rows: Iterator[Row]) -> Iterator[Row]:
        others: set[str] = set()
        matched = False
        for row in rows:
            if row.problem or row.values["split"] == split:
                matched |= not row.problem
                yield row
            elif len(others) < 20:
                others.add(str(row.values["split"]))
        if not matched:
            raise DataError(f"{source.name}: no row has split {split!r}; there are {', '.join(sorted(others))}")

    named_column(source.open().names, "split", source.name)
    return _changed(source, matching)
