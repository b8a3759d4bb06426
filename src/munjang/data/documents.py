"""Files of documents -> what `Index.add` takes: dicts with `text`, perhaps `id`, and every other column as metadata.

Enters: files with columns (csv, tsv, jsonl, json, parquet), files of lines (txt), or files that are one document each
(`WholeFiles`: txt, md, a folder of them, where files of other kinds are skipped and reported). Leaves: documents, one
at a time, in file order. `survey` reads everything once before any work is done: a broken row, a missing text, an id
that stands twice is a DataError that names file and line, and the second reading knows how many documents come and
which columns of a csv are numbers.

A csv knows no types, but `year>=2020` needs numbers: a column counts as numbers when every cell that is not empty is
one, written as numbers are (007 and 010-1234 are texts). An empty cell, a null and a NaN mean that the document lacks
the field. Blank lines of a txt file are no documents.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from munjang.data.columns import choose_column
from munjang.data.encodings import text_lines
from munjang.data.files import COMPRESSED_SUFFIXES, FORMAT_SUFFIXES, ReadLimits, TextSource, parquet_table
from munjang.data.json_records import json_lines, json_list
from munjang.data.tables import records, table
from munjang.errors import DataError, DataWarning, InputError, brief
from munjang.inputs import UnusualTexts

Document: TypeAlias = dict[str, object]  # text, perhaps id, and metadata
WHOLE_SUFFIXES = (".txt", ".md", ".markdown", ".rst", ".text")  # what a folder of documents is searched for

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")  # more digits than a float holds exactly are rather a long id
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,17}([eE][+-]?[0-9]{1,3})?")
_SHOWN = 5  # skipped files that a message names
_Cells = Mapping[str, object]


@dataclass(frozen=True)
class SkippedFiles:
    """Files that were not read, with the reason for each; its string is a one-line summary."""

    reasons: Mapping[Path, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def by_suffix(self) -> dict[str, int]:
        """Number of files per suffix, the most frequent first; files without one count under ""."""
        return dict(Counter(path.suffix.lower() for path in self.reasons).most_common())

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {suffix or 'without a suffix'}" for suffix, count in self.by_suffix.items())
        named = [f"{path} ({reason})" for path, reason in itertools.islice(self.reasons.items(), _SHOWN)]
        more = f" and {len(self) - _SHOWN:,} more" if len(self) > _SHOWN else ""
        return f"skipped {len(self):,} file{'s' * (len(self) != 1)} ({counts}): {', '.join(named)}{more}"


@dataclass(frozen=True)
class DocumentSurvey:
    """What reading a file of documents found."""

    name: str
    documents: int
    blank: int  # lines of a txt file without a text
    column: str | None  # that holds the texts; None where there are no columns
    id_column: str | None
    fields: tuple[str, ...]  # metadata, in order of appearance
    numbers: frozenset[str] = frozenset()  # fields of a csv or tsv that are numbers
    skipped: SkippedFiles = SkippedFiles()  # files of a folder that are not read
    unusual: UnusualTexts = field(default_factory=UnusualTexts)  # texts that look empty or missing


@dataclass(frozen=True)
class DocumentFiles:
    """Files whose rows are documents, and how to read them."""

    sources: Sequence[TextSource]
    id_column: str | None = None  # None: the column "id" where there is one
    metadata: Sequence[str] | None = None  # columns to keep; None: all others
    as_text: Sequence[str] = ()  # columns of a csv that stay texts although they look like numbers
    _surveys: list[DocumentSurvey] = field(default_factory=list, init=False, repr=False)

    def survey(self) -> list[DocumentSurvey]:
        """Read everything once, so that errors show before any work is done."""
        if not self._surveys:
            seen: set[str] = set()
            self._surveys.extend([self._survey(source, seen) for source in self.sources])
            self._check_named()
        return self._surveys

    def __iter__(self) -> Iterator[Document]:
        for source, survey in zip(self.sources, self.survey(), strict=True):
            for _, document in _documents(source, self, survey):
                yield document
            if survey.unusual:
                warnings.warn(f"{survey.name}: {survey.unusual}", DataWarning, stacklevel=2)

    def _survey(self, source: TextSource, seen: set[str]) -> DocumentSurvey:
        plain = _Plain(source, self)
        for where, document in _documents(source, self, plain):
            key = document.get("id")
            if isinstance(key, str):
                if key in seen:
                    raise DataError(self._twice(key, where))
                seen.add(key)
        return plain.survey()

    def _twice(self, key: str, where: str) -> str:
        for source in self.sources:
            for first, document in _documents(source, self, _Plain(source, self)):
                if document.get("id") == key:
                    return f"{where}: the id {key!r} stands already in {first}; ids must differ"
        raise AssertionError(f"{key!r} was seen before")

    def _check_named(self) -> None:
        """Columns that were asked for by name must be in at least one of the files."""
        found = {name for survey in self._surveys for name in survey.fields}
        missing = [name for name in [*(self.metadata or ()), *self.as_text] if name not in found]
        if missing and any(survey.documents for survey in self._surveys):
            raise DataError(
                f"no document has the field {missing[0]!r}; there are {', '.join(map(repr, sorted(found))) or 'none'}"
            )


class _Plain:
    """What a first reading finds out about one file, row by row."""

    numbers: frozenset[str] = frozenset()  # a first reading takes all cells as they are

    def __init__(self, source: TextSource, files: DocumentFiles) -> None:
        self._name = source.name
        self._untyped = source.kind in ("csv", "tsv")
        self._as_text = set(files.as_text)
        self._numeric: dict[str, bool] = {}  # field -> whether all cells so far are numbers
        self._limits = source.limits
        self._columns: tuple[str | None, str | None] = (None, None)
        self._documents = self._blank = 0
        self.unusual = UnusualTexts()

    def columns(self, text: str | None, key: str | None) -> None:
        self._columns = (text, key)

    def blank(self) -> None:
        self._blank += 1

    def document(self, metadata: _Cells) -> None:
        self._documents += 1
        for name, value in metadata.items():
            numeric = self._untyped and isinstance(value, str) and _number(value) is not None
            self._numeric[name] = self._numeric.get(name, True) and numeric
        if self._limits is not None:
            self._limits.check("file_columns", len(self._numeric), self._name)

    def survey(self) -> DocumentSurvey:
        numbers = frozenset(name for name, numeric in self._numeric.items() if numeric) - self._as_text
        return DocumentSurvey(
            self._name,
            self._documents,
            self._blank,
            *self._columns,
            tuple(self._numeric),
            numbers,
            unusual=self.unusual,
        )


def _documents(
    source: TextSource, files: DocumentFiles, reading: _Plain | DocumentSurvey
) -> Iterator[tuple[str, Document]]:
    """Place and document of every row. A first reading is told what was found, a second knows the numbers."""
    plain = reading if isinstance(reading, _Plain) else None
    text_column: str | None = None
    id_column: str | None = None
    for where, cells in _rows(source):
        if text_column is None:
            text_column = list(cells)[choose_column(list(cells), source.column, where)]
            id_column = _id_column(cells, files.id_column, text_column, where)
            if plain is not None and source.kind != "txt":
                plain.columns(text_column, id_column)
        text = _text(cells, text_column, where)
        if source.kind == "txt" and not text.strip():
            if plain is not None:
                plain.blank()
            continue
        if plain is not None:
            plain.unusual.add(text, where)
        metadata = _metadata(cells, (text_column, id_column), files.metadata, where)
        if plain is not None:
            plain.document(metadata)
        typed = {name: _typed(value) if name in reading.numbers else value for name, value in metadata.items()}
        key = {} if id_column is None else {"id": _id(cells, id_column, where)}
        yield where, {**key, "text": text, **typed}


def as_document(cells: _Cells, columns: tuple[str, str | None], metadata: Sequence[str] | None, where: str) -> Document:
    """One row as a document. columns: of the text and, where there is one, of the id; metadata: None takes all."""
    text_column, id_column = columns
    key = {} if id_column is None else {"id": _id(cells, id_column, where)}
    return {**key, "text": _text(cells, text_column, where), **_metadata(cells, columns, metadata, where)}


def _rows(source: TextSource) -> Iterator[tuple[str, _Cells]]:
    """Place and cells of every row of a file, within its limits."""
    for number, (where, cells) in enumerate(_all_rows(source), start=1):
        if source.limits is not None:
            source.limits.check("file_rows", number, source.name)
            source.limits.check("file_columns", len(cells), source.name)
        yield where, cells


def _all_rows(source: TextSource) -> Iterator[tuple[str, _Cells]]:
    kind, name = source.kind, source.name
    if kind == "txt":
        if source.column is not None:
            raise DataError(f"{name}: a txt file has no columns, so none can be chosen")
        for number, line in enumerate(text_lines(source.content()), start=1):
            yield f"{name}, line {number}", {"text": line}
    elif kind == "csv" or kind == "tsv":
        quoting = source.quoting if source.quoting is not None else kind == "csv"
        found = records(source.content(), "," if kind == "csv" else "\t", quoting=quoting, name=name)
        names, lines = table(found, header=source.header, name=name)
        if source.limits is not None:
            source.limits.check("file_columns", len(names), name)
        _check_names(names, name)
        for number, fields in lines:
            yield f"{name}, line {number}", dict(zip(names, fields, strict=True))
    elif kind == "parquet":
        names, rows = parquet_table(source)
        for number, values in enumerate(rows, start=1):
            yield f"{name}, row {number}", dict(zip(names, values, strict=True))
    else:
        read = json_lines if kind == "jsonl" else json_list
        for where, value in read(source.content(), name):
            yield where, _object(value, where)


def _check_names(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: two columns are named {brief(name)}; every column needs a name of its own")
        seen.add(name)


def _object(value: object, where: str) -> _Cells:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict) or not value:
        raise DataError(f'{where}: expected an object with a text, such as {{"text": "..."}}, got {brief(value)}')
    return value


def _id_column(cells: _Cells, asked: str | None, text_column: str, where: str) -> str | None:
    if asked is None:
        return "id" if "id" in cells and text_column != "id" else None
    if asked not in cells:
        raise DataError(f"{where}: there is no column {asked!r} for ids; it has {', '.join(map(repr, cells))}")
    if asked == text_column:
        raise DataError(f"{where}: {asked!r} cannot be both the text and the id; choose another (--column)")
    return asked


def _text(cells: _Cells, column: str, where: str) -> str:
    if column not in cells:
        raise DataError(f"{where}: there is no {column!r}; it has {', '.join(map(repr, cells))}")
    text = cells[column]
    if not isinstance(text, str):
        raise DataError(f"{where}: expected a text in {column!r}, got {'null' if text is None else brief(text)}")
    _check_characters(text, where)
    return text


def _id(cells: _Cells, column: str, where: str) -> str:
    value = cells.get(column)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        shown = "nothing" if value is None or value == "" else brief(value)
        raise DataError(f"{where}: expected an id (a text or a whole number) in {column!r}, got {shown}")
    return str(value)


def _metadata(
    cells: _Cells, taken: tuple[str, str | None], wanted: Sequence[str] | None, where: str
) -> dict[str, object]:
    """The other fields, without those that are empty."""
    found: dict[str, object] = {}
    for name in cells if wanted is None else [name for name in wanted if name in cells]:
        if wanted is None and name in taken:
            continue
        value = _scalar(cells[name], name, where)
        if value is None:
            continue
        if name in ("text", "id"):
            raise DataError(
                f"{where}: the column {name!r} cannot be metadata, a document has its own {name}: rename it, or "
                "say which columns to keep (--metadata)"
            )
        found[name] = value
    return found


def _scalar(value: object, name: str, where: str) -> object:
    """A value that metadata can hold; None where there is none."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        _check_characters(value, where)
        return value
    if isinstance(value, float) and math.isinf(value):
        raise DataError(f"{where}: {name!r} holds {value}, which is no number that can be kept")
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list):
        items = [_scalar(item, name, where) for item in value if not isinstance(item, list)]
        if len(items) == len(value) and None not in items:
            return items or None
    raise DataError(
        f"{where}: {name!r} must be a text, a number, true or false, or a list of these, got {brief(value)}; leave the "
        "column out (--metadata) or flatten it"
    )


def _check_characters(text: str, where: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = f"\\u{ord(text[error.start]):04x}"
            raise DataError(f"{where}: half a surrogate pair ({shown}) is no character") from None


def _number(cell: str) -> int | float | None:
    if _WHOLE.fullmatch(cell):
        return int(cell)
    return float(cell) if _DECIMAL.fullmatch(cell) else None


def _typed(value: object) -> object:
    return _number(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class WholeFiles:
    """Files that are one document each, and folders of them.

    The id is the file's name or, in a folder, its path there. Of a folder, files that end in one of `WHOLE_SUFFIXES`
    are read. Other files are skipped: `skipped` lists them and iterating warns about them; hidden ones are ignored.
    """

    paths: Sequence[str | Path]
    encoding: str | None = None
    limits: ReadLimits | None = None
    _warned: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def skipped(self) -> SkippedFiles:
        """The files in the folders that are not read."""
        found = [_search(folder)[1] for folder in map(Path, self.paths) if folder.is_dir()]
        return SkippedFiles({path: reason for skipped in found for path, reason in skipped.items()})

    def survey(self) -> list[DocumentSurvey]:
        """Read everything once, so that errors show before any work is done."""
        files = self._files()
        for _, path in files:
            self._read(path)
        name = ", ".join(map(str, self.paths))
        return [DocumentSurvey(name, len(files), 0, None, None, (), skipped=self.skipped)]

    def __iter__(self) -> Iterator[Document]:
        skipped, unusual = self.skipped, UnusualTexts()
        for key, path in self._files():
            text = self._read(path)
            unusual.add(text, str(path))
            yield {"id": key, "text": text}
        for told in (skipped, unusual):
            if told and str(told) not in self._warned:
                self._warned.append(str(told))
                warnings.warn(str(told), DataWarning, stacklevel=2)

    def _read(self, path: Path) -> str:
        return "".join(TextSource(path, format="txt", encoding=self.encoding, limits=self.limits).content())

    def _files(self) -> list[tuple[str, Path]]:
        """Id and path of every file, in order."""
        found: dict[str, Path] = {}
        for given in map(Path, self.paths):
            if str(given) == "-":
                raise InputError("stdin (-) has no name to be the id of a whole document: name a file")
            for path in _within(given):
                key = path.relative_to(given).as_posix() if given.is_dir() else path.name
                if key in found:
                    raise DataError(f"{path} and {found[key]} would both have the id {key!r}; index them apart")
                found[key] = path
        return list(found.items())


def _within(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    found, skipped = _search(given)
    if not found:
        counted = f"; {SkippedFiles(skipped)}" if skipped else ""
        raise DataError(f"{given}: there is no document in this folder; expected {', '.join(WHOLE_SUFFIXES)}{counted}")
    return found


def _search(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """The files of a folder that are read, and the reason for each other one that is not hidden."""
    found: list[Path] = []
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and path.suffix.lower() in WHOLE_SUFFIXES:
            found.append(path)
        elif path.is_symlink() and not path.exists() and not hidden:
            skipped[path] = "a link to a file that does not exist"
        elif path.is_file() and not hidden:
            skipped[path] = _why_skipped(path)
    return found, skipped


def _why_skipped(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in COMPRESSED_SUFFIXES:
        return "compressed"
    if suffix in FORMAT_SUFFIXES:
        return "a file of rows, index it without --whole-files"
    return "not plain text, convert it to .txt or .md"
