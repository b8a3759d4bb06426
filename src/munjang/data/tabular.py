"""Files with columns -> Examples: csv, tsv, jsonl, json, Parquet, with named columns or, without a header, numbers.

Enters: a path (or a TextSource, where quoting or header are unusual) and what is wanted of it. Leaves: Examples, whose
`reading` says which rows were refused and which columns were guessed. Unlike texts that are encoded row by row, a
damaged row of examples can be left out; it is refused and counted. A file that cannot be read at all is a DataError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from munjang.data.building import Broken, Records, Wanted, build
from munjang.data.cells import LabelMap
from munjang.data.columns import named_column
from munjang.data.encodings import text_lines
from munjang.data.examples import Examples
from munjang.data.files import Format, TextSource, parquet_table
from munjang.data.json_records import json_lines, json_list
from munjang.data.kinds import Kind
from munjang.data.tables import records
from munjang.errors import DataError


def read_examples(
    path: str | Path | TextSource,
    *,
    kind: Kind,
    columns: Mapping[str, str | int] | None = None,
    score_range: tuple[float, float] | None = None,
    label_map: LabelMap | None = None,
    any_labels: bool = False,
    drop_outside: bool = False,
    format: Format | None = None,
    encoding: str | None = None,
) -> Examples:
    """Read a file of examples.

    `columns` maps roles (a, b, score; anchor, positive, negative; text, label; query, document, relevance; text,
    translation, vector) to the names of columns; numbers, from 0, where the file has no header. What is not named is
    guessed from usual names. Plain texts may also come from a txt file, one on each line.
    `score_range` is the range of the scores, such as (0, 5); without one they must be in 0..1. `label_map` has the
    label names in the order of their ids, or maps what stands in the file to ids or names; numbers need one.

    Scores outside `score_range` and labels outside `label_map` are an error; `drop_outside` leaves out and counts their
    rows. Without a map, a label column that looks like scores, ids or texts is an error; `any_labels` takes every
    distinct value as a label.

    A TextSource as `path` says how to read it (quoting, header), and then `format` and `encoding` are its own.
    """
    source = path if isinstance(path, TextSource) else _source(path, columns, format, encoding)
    wanted = Wanted(kind, columns, label_map, score_range, any_labels, drop_outside)
    return read_source(source, wanted, name=short_name(source))


def read_source(source: TextSource, wanted: Wanted, *, name: str) -> Examples:
    """Examples of a file that is fully described."""
    lines = wanted.kind == "plain" and source.kind == "txt"
    return read_records(_line_records(source) if lines else file_records(source), wanted, name=name)


def read_records(found: Records, wanted: Wanted, *, name: str) -> Examples:
    """Examples of a table that is already open."""
    built = build(found, wanted)
    return Examples(name, wanted.kind, built.columns, built.targets, built.labels, built.groups, built.reading)


def file_records(source: TextSource) -> Records:
    """The rows of a file with columns."""
    kind = source.kind
    if kind == "csv" or kind == "tsv":
        return _table_records(source, "," if kind == "csv" else "\t", quoting=kind == "csv")
    if kind == "jsonl":
        return _json_records(source, json_lines(source.content(), source.name), "row")
    if kind == "json":
        return _json_records(source, json_list(source.content(), source.name), "item")
    if kind == "parquet":
        names, rows = parquet_table(source)
        return Records(short_name(source), "row", tuple(names), enumerate(rows, start=1))
    raise DataError(f"{source.name}: a txt file has no columns. Expected csv, tsv, jsonl, json or parquet")


def _line_records(source: TextSource) -> Records:
    """A text file for plain examples: every line is a text; blank lines are no rows."""
    lines = enumerate(text_lines(source.content()), start=1)
    return Records(short_name(source), "line", ("text",), ((number, [line]) for number, line in lines if line.strip()))


def only_where(found: Records, column: str, value: str) -> Records:
    """The rows of a table that hold this value, such as those of one split; the others are no rows of it."""
    place = named_column(found.names, column, found.where)
    seen: set[str] = set()

    def rows() -> Iterator[tuple[int, Sequence[object] | Broken]]:
        matched = False
        for number, cells in found.rows:
            if isinstance(cells, Broken):
                yield number, cells
            elif cells[place] == value:
                matched = True
                yield number, cells
            elif len(seen) < 20:
                seen.add(str(cells[place]))
        if not matched:
            raise DataError(f"{found.where}: no row has {column} {value!r}; there are {', '.join(sorted(seen))}")

    return replace(found, rows=rows())


def short_name(source: TextSource) -> str:
    """What reports call a file: its name without the folder."""
    return source.name if source.name == "stdin" else Path(source.path).name


def _source(
    path: str | Path, columns: Mapping[str, str | int] | None, format: Format | None, encoding: str | None
) -> TextSource:
    """Columns that are all numbers mean that there is no header."""
    numbered = bool(columns) and all(str(column).isdecimal() for column in (columns or {}).values())
    return TextSource(path, format=format, encoding=encoding, header=not numbered)


def _table_records(source: TextSource, delimiter: str, *, quoting: bool) -> Records:
    quoting = quoting if source.quoting is None else source.quoting
    found = records(source.content(), delimiter, quoting=quoting, name=source.name)
    first = next(((number, fields) for number, fields in found if fields), None)
    if first is None:
        raise DataError(f"{source.name}: there is not a single row")
    number, fields = first
    if source.header:
        names = tuple(fields)
        return Records(short_name(source), "line", names, _even_rows(found, len(names)))
    names = tuple(str(position) for position in range(len(fields)))
    return Records(short_name(source), "line", names, _even_rows(chain([(number, fields)], found), len(names)))


def _even_rows(found: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, Sequence[object] | Broken]]:
    """Rows with a field for every column; others are broken; blank lines are no rows."""
    for number, fields in found:
        if len(fields) == width:
            yield number, fields
        elif fields:
            yield number, Broken(f"{'too many' if len(fields) > width else 'too few'} fields", fields)


def _json_records(source: TextSource, found: Iterator[tuple[str, object]], unit: str) -> Records:
    first = next(found, None)
    if first is None:
        raise DataError(f"{source.name}: there is not a single row")
    where, value = first
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object with columns, such as {{...}}, got {type(value).__name__}")
    names = tuple(value)

    def cells() -> Iterator[tuple[int, Sequence[object] | Broken]]:
        for number, (_, item) in enumerate(chain([first], found), start=1):
            if isinstance(item, dict):
                yield number, [item.get(name) for name in names]
            else:
                yield number, Broken("no object with columns", [item])

    return Records(short_name(source), unit, names, cells())
