"""Files and tables of documents -> what `Index.add` takes: dicts with `text`, perhaps `id`, and metadata.

`survey` reads everything once before any work is done: a broken row, a missing text or a repeated id is a `DataError`
that names file and line, and the second reading knows the number of documents and which columns of a csv are numbers.
A csv has no types, but `year>=2020` needs numbers: a column is numeric when every cell that is not empty is written as
a number (007 and 010-1234 are texts). An empty cell, a null and a NaN mean that the document lacks the field.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from munjang.data.columns import choose_column
from munjang.data.files import COMPRESSED_SUFFIXES, FORMAT_SUFFIXES, RowFile
from munjang.data.rows import (
    ReadLimits,
    ReadOptions,
    RowSource,
    UnusualTexts,
    check_characters,
    is_missing,
    open_source,
    text_cell,
)  # fmt: skip
from munjang.errors import DataError, DataWarning, InputError, brief

Document: TypeAlias = dict[str, object]  # text, perhaps id, and metadata
WHOLE_SUFFIXES = (".txt", ".md", ".markdown", ".rst", ".text")  # read of a folder of documents

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")  # more digits than a float holds exactly are rather an id
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,17}([eE][+-]?[0-9]{1,3})?")
_SHOWN = 5  # skipped files that a message names


@dataclass(frozen=True)
class DocumentSurvey:
    """Result of reading a file of documents once."""

    name: str
    documents: int
    blank: int = 0  # lines of a txt file without a text
    column: str | None = None  # that holds the texts; None where there are no columns
    id_column: str | None = None
    fields: tuple[str, ...] = ()  # metadata, in order of appearance
    numbers: frozenset[str] = frozenset()  # fields of a csv or tsv that are numbers
    skipped: Mapping[Path, str] = field(default_factory=dict)  # files of a folder that are not read -> why
    unusual: UnusualTexts = field(default_factory=UnusualTexts)  # texts that look empty or missing


@dataclass(frozen=True)
class DocumentFiles:
    """Files whose rows are documents, read on each iteration."""

    sources: Sequence[RowFile]
    id_column: str | None = None  # None: the column "id" where there is one
    metadata: Sequence[str] | None = None  # columns to keep; None: all others
    as_text: Sequence[str] = ()  # columns of a csv that stay texts although they look like numbers
    column: str | None = None  # of the texts: name or number; None: the only one, or one with a usual name
    _surveys: list[DocumentSurvey] = field(default_factory=list, init=False, repr=False)

    def survey(self) -> list[DocumentSurvey]:
        """Read everything once, so that errors show before any work is done."""
        if not self._surveys:
            seen: set[str] = set()
            self._surveys.extend([self._survey(source, seen) for source in self.sources])
            fields = {name for survey in self._surveys for name in survey.fields}
            missing = [name for name in [*(self.metadata or ()), *self.as_text] if name not in fields]
            if missing and any(survey.documents for survey in self._surveys):
                shown = ", ".join(map(repr, sorted(fields))) or "none"
                raise DataError(f"no document has the field {missing[0]!r}; there are {shown}")
        return self._surveys

    def __iter__(self) -> Iterator[Document]:
        for source, survey in zip(self.sources, self.survey(), strict=True):
            for _, document in _open(source, self.column, self.id_column, self.metadata)[1]:
                if document:
                    yield document | {name: _number(document[name]) for name in survey.numbers & document.keys()}
            if survey.unusual:
                warnings.warn(f"{survey.name}: {survey.unusual}", DataWarning, stacklevel=2)

    def _survey(self, source: RowFile, seen: set[str]) -> DocumentSurvey:
        count = blank = 0
        is_untyped = source.kind in ("csv", "tsv")
        numeric: dict[str, bool] = {}  # field -> whether all cells so far are numbers
        unusual_texts = UnusualTexts()
        columns, documents = _open(source, self.column, self.id_column, self.metadata)
        for place, document in documents:
            if not document:
                blank += 1
                continue
            count += 1
            key = document.get("id")
            if isinstance(key, str):
                if key in seen:
                    raise DataError(f"{place}: the id {key!r} repeats that of {self._first(key)}; ids must differ")
                seen.add(key)
            unusual_texts.add(str(document["text"]), place)
            for name, value in document.items():
                if name not in ("id", "text"):
                    is_number = is_untyped and not isinstance(_number(value), str)
                    numeric[name] = numeric.get(name, True) and is_number
            if source.options.limits is not None:
                source.options.limits.check("file_columns", len(numeric), source.name)
        numbers = frozenset(name for name, is_number in numeric.items() if is_number) - set(self.as_text)
        column, id_column = columns if source.kind != "txt" and columns[0] else (None, None)
        return DocumentSurvey(
            source.name, count, blank, column, id_column, tuple(numeric), numbers, unusual=unusual_texts
        )

    def _first(self, key: str) -> str:
        documents = itertools.chain.from_iterable(
            _open(source, self.column, self.id_column, self.metadata)[1] for source in self.sources
        )
        return next(place for place, document in documents if document.get("id") == key)


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

    def survey(self) -> list[DocumentSurvey]:
        """Read everything once, so that an error shows before any work is done."""
        files, skipped = self._files()
        for path in files.values():
            self._read(path)
        return [DocumentSurvey(", ".join(map(str, self.paths)), len(files), skipped=skipped)]

    def __iter__(self) -> Iterator[Document]:
        files, skipped = self._files()
        unusual_texts = UnusualTexts()
        for key, path in files.items():
            text = self._read(path)
            unusual_texts.add(text, str(path))
            yield {"id": key, "text": text}
        for report in filter(None, (_skipped_files(skipped), str(unusual_texts) if unusual_texts else "")):
            if report not in self._warned:
                self._warned.append(report)
                warnings.warn(report, DataWarning, stacklevel=2)

    def _read(self, path: Path) -> str:
        return "".join(RowFile(path, ReadOptions("txt", self.encoding, limits=self.limits)).content())

    def _files(self) -> tuple[dict[str, Path], dict[Path, str]]:
        """Id and path of every file, in order; and the files that are not read, with the reason."""
        files: dict[str, Path] = {}
        every_skipped: dict[Path, str] = {}
        for path in map(Path, self.paths):
            if str(path) == "-":
                raise InputError("stdin (-) has no name to be the id of a whole document: name a file")
            documents, skipped = _search(path) if path.is_dir() else ({path.name: path}, {})
            every_skipped |= skipped
            if not documents:
                more = f"; {_skipped_files(skipped)}" if skipped else ""
                raise DataError(
                    f"{path}: there is no document in this folder; expected {', '.join(WHOLE_SUFFIXES)}{more}"
                )
            repeated = next((key for key in documents if key in files), None)
            if repeated is not None:
                raise DataError(
                    f"{documents[repeated]} and {files[repeated]} would both have the id {repeated!r}; index them "
                    "separately"
                )
            files |= documents
        return files, every_skipped


def _search(folder: Path) -> tuple[dict[str, Path], dict[Path, str]]:
    """The files of a folder that are read, by their path in it; and why others are not, but for hidden ones."""
    documents: dict[str, Path] = {}
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*")):
        suffix, inside = path.suffix.lower(), path.relative_to(folder)
        if path.is_file() and suffix in WHOLE_SUFFIXES:
            documents[inside.as_posix()] = path
        elif any(part.startswith(".") for part in inside.parts):
            continue
        elif path.is_file():
            skipped[path] = (
                "compressed"
                if suffix in COMPRESSED_SUFFIXES
                else "a file of rows, index it without --whole-files"
                if suffix in FORMAT_SUFFIXES
                else "not plain text, convert it to .txt or .md"
            )
        elif path.is_symlink() and not path.exists():
            skipped[path] = "a link to a file that does not exist"
    return documents, skipped


def _skipped_files(reasons: Mapping[Path, str]) -> str:
    """A one-line summary of the files that are not read; nothing where there are none."""
    if not reasons:
        return ""
    count = len(reasons)
    suffixes = Counter(path.suffix.lower() or "without a suffix" for path in reasons).most_common()
    counts = ", ".join(f"{number:,} {suffix}" for suffix, number in suffixes)
    named = ", ".join(f"{path} ({reason})" for path, reason in itertools.islice(reasons.items(), _SHOWN))
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    return f"skipped {count:,} file{'s' * (count != 1)} ({counts}): {named}{more}"


def open_documents(source: object) -> Iterable[Any]:
    """Open documents in memory: the rows of a table, or the texts and dicts of an iterable as they are.

    A table needs a text column (`text`, or the only column of strings beside `id`); its other columns become metadata.

    Raises:
        InputError: `source` is a single text or dict, or it is not clear which column holds the texts.
    """
    wanted = "a list of texts or of dicts with 'text' (one document is [document])"
    if isinstance(source, str):
        raise InputError(f"documents must be {wanted}, got str")
    opened = open_source(source, None, "documents", wanted)
    if not isinstance(opened, RowSource):
        return opened
    return (_TableDocuments if opened.total is None else _CountedDocuments)(opened)


class _TableDocuments:
    """The rows of a table as documents; their number is known where the table's is."""

    def __init__(self, rows: RowSource) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Document]:
        with self._rows.errors():
            yield from (document for _, document in _open(self._rows)[1])


class _CountedDocuments(_TableDocuments):
    def __len__(self) -> int:
        return self._rows.total or 0


def _open(
    source: RowSource, column: str | int | None = None, id_column: str | None = None,
    metadata: Sequence[str] | None = None,
) -> tuple[tuple[str, str | None], Iterator[tuple[str, Document]]]:  # fmt: skip
    """The columns of text and id, and the place and document of every row; a blank line of txt has no document.

    Without `id_column` the id is in `id`, where there is such a column.
    """
    table, where = source.open(), source.name
    names = table.names
    if not names:
        return ("", None), iter(())
    if not table.has_names and column is not None:
        raise DataError(f"{where}: a txt file has no columns, so none can be chosen")
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise DataError(f"{where}: two columns are named {brief(repeated)}; names must differ")
    text_column = names[choose_column(names, column, where, strings=table.strings)]
    if id_column is None:
        id_column = "id" if "id" in names and text_column != "id" else None
    elif id_column not in names:
        raise DataError(f"{where}: there is no column {id_column!r} for ids; it has {', '.join(map(repr, names))}")
    elif id_column == text_column:
        raise DataError(f"{where}: {id_column!r} cannot be both the text and the id; choose another (--column)")
    columns = (text_column, id_column)

    def documents() -> Iterator[tuple[str, Document]]:
        for row in source.read(table):
            place = source.where(row)
            is_blank = not table.has_names and not str(row.values["text"]).strip()
            try:
                document = {} if is_blank else as_document(row.values, columns, metadata)
            except DataError as error:
                raise DataError(f"{place}: {error}") from None
            yield place, document

    return columns, documents()


def as_document(
    values: Mapping[str, object], columns: tuple[str, str | None], metadata: Sequence[str] | None
) -> Document:  # fmt: skip
    """Make a document of a row.

    Args:
        columns: of the text and, where there is one, of the id.
        metadata: columns to keep; None for all others.

    Raises:
        DataError: the row has no text or id, or a value that metadata cannot hold.
    """
    text_column, id_column = columns
    document: Document = {}
    if id_column is not None:
        document["id"] = _id(values.get(id_column), id_column)
    document["text"] = text = text_cell(values, text_column)
    check_characters(text)
    others = [name for name in values if name not in columns]
    for name in others if metadata is None else [name for name in metadata if name in values]:
        value = _metadata_value(values[name], name)
        if value is None:
            continue
        if name in ("text", "id"):
            raise DataError(
                f"the column {name!r} cannot be metadata, a document has its own {name}: rename it, or choose the "
                "columns to keep (--metadata)"
            )
        document[name] = value
    return document


def _id(value: object, column: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        shown = "nothing" if value is None or value == "" else brief(value)
        raise DataError(f"expected an id (a text or a whole number) in {column!r}, got {shown}")
    return str(value)


def _metadata_value(value: object, name: str) -> object:
    """A value that metadata can hold; None where there is none."""
    if is_missing(value) or value == "":
        return None
    if isinstance(value, str):
        check_characters(value)
    if isinstance(value, float) and math.isinf(value):
        raise DataError(f"{name!r} holds {value}, which is not a finite number")
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, list):
        items = [_metadata_value(item, name) for item in value if not isinstance(item, list)]
        if len(items) == len(value) and None not in items:
            return items or None
    raise DataError(
        f"{name!r} must be a text, a number, true or false, or a list of these, got {brief(value)}; leave the column "
        "out (--metadata) or flatten it"
    )


def _number(cell: object) -> object:
    """The number that a cell of a csv is written as, or the cell."""
    if not isinstance(cell, str):
        return cell
    return int(cell) if _WHOLE.fullmatch(cell) else float(cell) if _DECIMAL.fullmatch(cell) else cell
